//! The mutator: inputs made from others by flipping bits, cutting, doubling and moving pieces, and, since most inputs
//! are JSON, replacing values by others. Deterministic for a seed; knows no target and measures nothing.

/// A plain generator of numbers (xorshift), the same for the same seed everywhere.
#[derive(Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `bound`, or 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if bound == 0 { 0 } else { (self.0 >> 11) as usize % bound }
    }
}

/// Pieces that parsers often fail on.
const BURRS: [&[u8]; 44] = [
    b"\0",
    b"\\u0000",
    b"\\ud83d",
    b"\\ude00",
    b"\\u202e",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"18446744073709551616",
    b"-1",
    b"0.1",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b"\n\ndata: ",
    b"data: [DONE]\n\n",
    b": \n",
    b"event: error\n",
    b"\"content\":null,",
    b"\"tool_calls\":[],",
    b"\"tool_calls\":[{\"index\":4294967295,\"function\":{\"arguments\":{}}}],",
    b"\"role\":\"tool\",\"tool_call_id\":\"\",",
    b"\"finish_reason\":\"stop\",",
    b"\"index\":1,",
    b"\"id\":\"\",",
    b"\"name\":\"look\",",
    b"\"name\":\"send_mail\",",
    b"\"name\":\"pay_bill\",",
    b"\"name\":\"toolrein_read_more\",",
    b"\"function_call\":{\"name\":\"look\",\"arguments\":\"\"},",
    b"\"n\":2,",
    b"\"usage\":{\"prompt_tokens\":1},",
];
/// Longest input.
const MOST_BYTES: usize = 64 * 1024;

/// An input made of one of `pool`, with pieces of others.
pub fn mutate(pool: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = pool.get(numbers.below(pool.len())).cloned().unwrap_or_default();
    // Long ones are cut now and then, so that not all time goes to them.
    if bytes.len() > 8_000 && numbers.below(4) > 0 {
        let at = numbers.below(bytes.len());
        let length = numbers.below(6_000);
        bytes.drain(at..(at + length).min(bytes.len()));
    }
    for _ in 0..=numbers.below(6) {
        let other = &pool[numbers.below(pool.len())];
        harm(&mut bytes, other, numbers);
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

fn harm(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    match numbers.below(14) {
        0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
        1 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
        // The choices that an input begins with.
        2 if bytes.len() > 2 => bytes[numbers.below(2)] = numbers.below(256) as u8,
        3 => {
            let burr = BURRS[numbers.below(BURRS.len())];
            bytes.splice(at..at, burr.iter().copied());
        }
        4 => {
            let burr = BURRS[numbers.below(BURRS.len())];
            let end = (at + burr.len()).min(bytes.len());
            bytes.splice(at..end, burr.iter().copied());
        }
        5 => drop(bytes.drain(at..(at + numbers.below(40)).min(bytes.len()))),
        6 => bytes.truncate(at),
        7 => {
            let piece = piece(bytes, numbers).to_vec();
            bytes.splice(at..at, piece);
        }
        8 => {
            let piece = piece(other, numbers).to_vec();
            bytes.splice(at..at, piece);
        }
        9 => nest(bytes, at, numbers),
        _ => swap_values(bytes, other, numbers),
    }
}

fn piece<'a>(bytes: &'a [u8], numbers: &mut Numbers) -> &'a [u8] {
    let at = numbers.below(bytes.len() + 1);
    &bytes[at..(at + numbers.below(400)).min(bytes.len())]
}

fn nest(bytes: &mut Vec<u8>, at: usize, numbers: &mut Numbers) {
    let depth = numbers.below(140);
    let nest = [b"[".repeat(depth), b"]".repeat(depth)].concat();
    bytes.splice(at..at, nest);
}

/// Replaces a value by one of `other` or of the input itself; or doubles or drops an item.
fn swap_values(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let Some((start, end)) = value(bytes, numbers) else { return };
    let choice = numbers.below(6);
    let source = if choice == 0 { other } else { bytes.as_slice() };
    let Some((from, to)) = value(source, numbers) else { return };
    let taken = source[from..to].to_vec();
    match choice {
        0..=2 => drop(bytes.splice(start..end, taken)),
        3 => {
            let again = [bytes[start..end].to_vec(), b",".to_vec()].concat();
            bytes.splice(start..start, again);
        }
        4 => {
            let comma = usize::from(bytes.get(end) == Some(&b','));
            bytes.drain(start..end + comma);
        }
        _ => {
            let item = [taken, b",".to_vec()].concat();
            bytes.splice(start..start, item);
        }
    }
}

/// Where a JSON value is, roughly: brackets are balanced without regard to brackets inside strings.
fn value(bytes: &[u8], numbers: &mut Numbers) -> Option<(usize, usize)> {
    let from = numbers.below(bytes.len());
    let begins = |byte: &u8| matches!(byte, b'{' | b'[' | b'"' | b'0'..=b'9');
    let start = from + bytes.get(from..)?.iter().position(begins)?;
    let length = match bytes[start] {
        b'"' => {
            2 + bytes[start + 1..]
                .windows(2)
                .position(|pair| pair[0] != b'\\' && pair[1] == b'"')
                .map_or(0, |at| at + 1)
        }
        b'0'..=b'9' => bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        open => balanced(&bytes[start..], open)?,
    };
    Some((start, (start + length).min(bytes.len())))
}

fn balanced(bytes: &[u8], open: u8) -> Option<usize> {
    let close = if open == b'{' { b'}' } else { b']' };
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == open {
            depth += 1;
        } else if *byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}
