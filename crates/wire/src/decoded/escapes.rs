//! The escapes of free text: those of addresses (`%40`), of markup (`&#64;`, `&quot;`), and those that shells and programs
//! share (`\x40`, `\100`, `\u0040`, `\@`, `'\''`). One level of each is resolved at a time.

use super::runs::Runs;

/// The two ways in which a shell writes a quote within single quotes.
const SHELL_QUOTES: [&str; 2] = [r"'\''", r#"'"'"'"#];

/// `text` without one level of its escapes, and where its bytes come from; `None` where there are none.
pub(super) fn resolve(text: &str) -> Option<(String, Runs)> {
    let bytes = text.as_bytes();
    if !may_be_escaped(bytes) {
        return None;
    }
    let (mut out, mut runs, mut done) = (String::new(), Runs::default(), 0);
    let mut at = 0;
    let is_first = |byte: &u8| matches!(byte, b'\\' | b'%' | b'\'' | b'&');
    while let Some(next) = bytes.get(at..)?.iter().position(is_first) {
        at += next;
        let Some((used, meant)) = escape_at(&text[at..]) else {
            at += 1;
            continue;
        };
        if done < at {
            runs.begin(out.len(), done);
            out.push_str(&text[done..at]);
        }
        runs.escape(out.len(), at);
        out.push_str(&meant);
        at += used;
        done = at;
        runs.escape(out.len(), at);
    }
    if done == 0 {
        return None;
    }
    out.push_str(&text[done..]);
    Some((out, runs))
}

/// Whether the text may hold an escape.
fn may_be_escaped(bytes: &[u8]) -> bool {
    let [_, without_backslash] = SHELL_QUOTES;
    memchr::memchr3(b'\\', b'%', b'&', bytes).is_some()
        || memchr::memmem::find(bytes, without_backslash.as_bytes()).is_some()
}

/// The escape that begins `text`: its length in bytes, and what it means.
fn escape_at(text: &str) -> Option<(usize, String)> {
    match text.as_bytes() {
        [b'%', ..] => percent(text.as_bytes()),
        [b'&', ..] => entity(text),
        [b'\'', ..] => {
            let used = SHELL_QUOTES.iter().find(|quote| text.starts_with(**quote))?.len();
            Some((used, "'".to_owned()))
        }
        [b'\\', ..] => {
            backslash(&text[1..]).map(|(used, meant)| (used + 1, meant.map(String::from).unwrap_or_default()))
        }
        _ => None,
    }
}

/// One character in percent-encoding, of up to four bytes.
fn percent(text: &[u8]) -> Option<(usize, String)> {
    let mut found = Vec::with_capacity(4);
    for escape in text.chunks_exact(3).take(4) {
        let Some(byte) = byte_of(escape) else { break };
        found.push(byte);
        if let Ok(character) = std::str::from_utf8(&found) {
            return Some((3 * found.len(), character.to_owned()));
        }
    }
    None
}

/// A character as markup writes it, by its name or its number.
fn entity(text: &str) -> Option<(usize, String)> {
    const NAMED: [(&str, char); 11] = [
        ("quot", '"'),
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("apos", '\''),
        ("nbsp", ' '),
        ("commat", '@'),
        ("period", '.'),
        ("colon", ':'),
        ("equals", '='),
        ("lowbar", '_'),
    ];
    const LONGEST: usize = 10;
    let end = text.bytes().take(LONGEST).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let character = match name.strip_prefix('#') {
        Some(code) => {
            let code = match code.strip_prefix(['x', 'X']) {
                Some(digits) => number(digits.as_bytes(), 16),
                None => number(code.as_bytes(), 10),
            };
            char::from_u32(code?)?
        }
        None => NAMED.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((end + 1, character.to_string()))
}

fn byte_of(escape: &[u8]) -> Option<u8> {
    let [b'%', digits @ ..] = escape else { return None };
    u8::try_from(number(digits, 16)?).ok()
}

/// The escape after a backslash: its length, and the character; `None` in its place for a line that goes on.
fn backslash(text: &str) -> Option<(usize, Option<char>)> {
    let bytes = text.as_bytes();
    let hexadecimal = |from: usize, digits: usize| number(bytes.get(from..from + digits)?, 16);
    let of = |used: usize, code: u32| Some((used, Some(char::from_u32(code)?)));
    match *bytes.first()? {
        b'n' => Some((1, Some('\n'))),
        b'r' => Some((1, Some('\r'))),
        b't' => Some((1, Some('\t'))),
        b'\n' => Some((1, None)),
        b'x' => of(3, hexadecimal(1, 2)?),
        b'u' if bytes.get(1) == Some(&b'{') => {
            let end = bytes.iter().take(9).position(|byte| *byte == b'}')?;
            of(end + 1, hexadecimal(2, end - 2)?)
        }
        b'u' => match hexadecimal(1, 4)? {
            high @ 0xD800..0xDC00 => {
                let low = hexadecimal(7, 4).filter(|low| (0xDC00..0xE000).contains(low))?;
                (bytes.get(5..7)? == b"\\u").then_some(())?;
                of(11, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            }
            code => of(5, code),
        },
        b'U' => of(9, hexadecimal(1, 8)?),
        b'0'..=b'7' => {
            let digits = bytes.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            of(digits, number(&bytes[..digits], 8)?).filter(|_| digits > 1)
        }
        byte if byte.is_ascii_punctuation() || byte == b' ' => Some((1, Some(char::from(byte)))),
        // Other letters begin names, as in paths of Windows.
        _ => None,
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_alphanumeric);
    let digits = str::from_utf8(digits).ok().filter(|_| is_plain)?;
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_level_of_escapes_is_resolved_and_what_is_no_escape_stays() {
        for (text, expected) in [
            (r"a\x40b \u0040 \u{40} \U00000040 \100 \@", "a@b @ @ @ @ @"),
            (r"\ud83d\ude00 %F0%9F%98%80 %c3%a9", "\u{1f600} \u{1f600} \u{e9}"),
            (r"%2540 \\n \\\\", r"%40 \n \\"),
            (r"'it'\''s' 'it'\x22'\x22's'", "'it's' 'it'\"'\"'s'"),
            (r#"'it'"'"'s'"#, "'it's'"),
            ("a\\\nb", "ab"),
            ("a&#64;b &quot;&#x22;&amp;amp; &nosuch; &# a&b", "a@b \"\"&amp; &nosuch; &# a&b"),
            (r"C:\Users\Anna 100% %zz \ud83d \xZZ \0", ""),
            ("plain", ""),
        ] {
            let resolved = resolve(text).map(|(resolved, _)| resolved);
            assert_eq!(resolved.unwrap_or_default(), expected, "{text}");
        }
    }
}
