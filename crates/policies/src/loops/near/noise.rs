//! What a model varies in arguments without meaning it: counts of attempts, nonces, timestamps, random ids; as members or
//! within texts. Recognised by the name before the value or by the value's form. Takes out; decides nothing.

use std::ops::Range;

/// What is left out, with everything before it in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noise {
    /// Values whose names say that they mean nothing.
    Named,
    /// Counts and exact times, which may mean something.
    Count,
    /// Random ids under any name.
    Id,
}

/// Parts of the names of members that mean nothing to a tool, in lower case without separators.
const NOISE: [&str; 17] = [
    "attempt",
    "nonce",
    "salt",
    "cachebust",
    "cachebreak",
    "nocache",
    "idempotency",
    "requestid",
    "traceid",
    "spanid",
    "correlationid",
    "invocationid",
    "toolcallid",
    "retrycount",
    "retries",
    "retrynumber",
    "timestamp",
];
/// Names of the same kind that other names contain.
const WHOLE_NOISE: [&str; 7] = ["try", "tries", "retry", "ts", "cb", "rand", "random"];
/// Names of counts that may mean something.
const COUNTERS: [&str; 20] = [
    "n",
    "i",
    "k",
    "count",
    "num",
    "number",
    "no",
    "nr",
    "step",
    "run",
    "turn",
    "call",
    "counter",
    "iteration",
    "iter",
    "seq",
    "sequence",
    "round",
    "trial",
    "tick",
];
/// Words before a number in a text that counts how often something was done, as names mean nothing or may mean something.
const COUNTING: [&str; 9] = ["attempt", "attempts", "try", "retry", "poll", "nonce", "ts", "cb", "cachebust"];
/// Words between such a word and its number: "attempt no. 7".
const BETWEEN: [&str; 5] = ["number", "no", "nr", "num", "count"];
/// Numbers as words; one is left out, since it is more often no number.
const NUMBERS: [&str; 11] =
    ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
const MAYBE_COUNTING: [&str; 6] = ["iteration", "iter", "round", "trial", "take", "counter"];
/// The shortest hexadecimal number that is an id.
const LEAST_HEX: usize = 16;

/// Whether the member `name` means nothing to a tool, whatever its value.
pub fn is_noise_name(name: &str) -> bool {
    let name = lower(name);
    WHOLE_NOISE.contains(&name.as_str()) || NOISE.iter().any(|part| name.contains(part))
}

/// Whether the member `name` may be a mere count of calls.
pub fn is_counter_name(name: &str) -> bool {
    COUNTERS.contains(&lower(name).as_str())
}

/// A name without the number at its end, and that number: `k7`, `key_12`.
pub fn counted_name(name: &str) -> Option<(&str, i64)> {
    let letters = name.trim_end_matches(|char: char| char.is_ascii_digit());
    let count = name[letters.len()..].parse().ok()?;
    letters.contains(|char: char| char.is_alphabetic()).then_some((letters, count))
}

/// The minutes of a text that is a time of whole minutes and nothing else: a clock's, of a date, or since 1970.
pub fn minutes_of(text: &str) -> Option<i64> {
    let text = text.trim();
    if matches!(text.len(), 10 | 13)
        && text.starts_with('1')
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        let seconds = text[..10].parse::<i64>().ok()?;
        return (seconds % 60 == 0 && text[10..].bytes().all(|byte| byte == b'0')).then_some(seconds / 60);
    }
    let (date, clock) = text.split_once(['T', 't', ' ']).unwrap_or(("", text));
    let clock = clock.trim_end_matches(['Z', 'z']);
    let clock = clock.split_once(['+', '-']).map_or(clock, |(clock, _)| clock);
    let mut parts = clock.split(':');
    let two = |part: Option<&str>| part.filter(|part| part.len() == 2)?.parse::<i64>().ok();
    let (hours, minutes) = (two(parts.next())?, two(parts.next())?);
    let is_whole = parts.next().is_none_or(|seconds| seconds.bytes().all(|byte| matches!(byte, b'0' | b'.')));
    let days = if date.is_empty() { Some(0) } else { days_of(date) };
    days.filter(|_| is_whole && parts.next().is_none()).map(|days| (days * 24 + hours) * 60 + minutes)
}

/// A number for a date, one more for the next day of its month.
fn days_of(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    parts.next().is_none().then_some((year * 12 + month) * 31 + day)
}

fn lower(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}

/// `text` without `noise`.
pub fn without_noise(text: &str, noise: Option<Noise>) -> String {
    let Some(noise) = noise else { return text.to_owned() };
    let (mut out, mut last, mut before) = (String::with_capacity(text.len()), 0, String::new());
    // Where the word between a counting word and its number begins.
    let mut between = None;
    let mut tokens = tokens(text).peekable();
    while let Some(token) = tokens.next() {
        let word = &text[token.clone()];
        let is_counting = |next: &Range<usize>| COUNTING.contains(&lower(&text[next.clone()]).as_str());
        let counts_next = is_ordinal(word) && tokens.peek().is_some_and(is_counting);
        if is_noise(word, &before, noise) || counts_next {
            out.push_str(&text[last..between.unwrap_or(token.start)]);
            last = token.end;
        }
        let is_between = BETWEEN.contains(&lower(word).as_str()) && COUNTING.contains(&before.as_str());
        between = is_between.then_some(token.start);
        if !is_between {
            before = lower(word);
        }
    }
    out.push_str(&text[last..]);
    out
}

/// The tokens of a text: letters and digits with what joins them in times and ids.
fn tokens(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find(|char: char| char.is_alphanumeric())?;
        let joins = |at: usize, char: char| {
            let next = text[at + char.len_utf8()..].chars().next();
            let is_joined = next.is_some_and(|next| next.is_alphanumeric());
            char.is_alphanumeric() || (matches!(char, '-' | ':' | '.' | '+') && is_joined)
        };
        let end = text[start..].char_indices().find(|(at, char)| !joins(start + at, *char));
        from = end.map_or(text.len(), |(at, _)| start + at);
        Some(start..from)
    })
}

fn is_noise(word: &str, before: &str, noise: Noise) -> bool {
    let digits = word.trim_start_matches(|char: char| char.is_ascii_alphabetic());
    let is_number = (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        || NUMBERS.contains(&lower(word).as_str());
    // "attempt 7" and "attempt7".
    let counted = if digits.is_empty() || digits.len() == word.len() {
        before.to_owned()
    } else {
        lower(word).replace(digits, "")
    };
    let counts = |words: &[&str]| is_number && words.contains(&counted.as_str());
    counts(&COUNTING)
        || (noise >= Noise::Count && (counts(&MAYBE_COUNTING) || is_exact_time(word)))
        || (noise >= Noise::Id && is_random_id(word))
}

/// "7th", "second": before a word for a try.
fn is_ordinal(word: &str) -> bool {
    const ORDINALS: [&str; 10] =
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
    let digits = word.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_ending = matches!(&word[digits.len()..], "st" | "nd" | "rd" | "th");
    (is_number && is_ending) || ORDINALS.contains(&lower(word).as_str())
}

/// A time with seconds that are not 0, or seconds or milliseconds since 1970: nobody asks for these.
fn is_exact_time(word: &str) -> bool {
    let whole = word.split('.').next().unwrap_or_default();
    let is_epoch = matches!(whole.len(), 10 | 13) && whole.starts_with('1');
    if is_epoch && whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.len() > whole.len() || !whole.ends_with("00");
    }
    let clock = word.split(['T', 't']).next_back().unwrap_or_default();
    let mut parts = clock.split(':');
    let is_two = |part: &&str| part.len() >= 2 && part.as_bytes()[..2].iter().all(u8::is_ascii_digit);
    let [hours, minutes, seconds] =
        [parts.next(), parts.next(), parts.next()].map(|part| part.filter(is_two));
    hours.is_some() && minutes.is_some() && seconds.is_some_and(|seconds| !seconds.starts_with("00"))
}

fn is_random_id(word: &str) -> bool {
    let hex = word.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_uuid = word.len() == 36 && hex == 32 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
    let is_hex = hex == word.len() && hex >= LEAST_HEX && word.bytes().any(|byte| byte.is_ascii_digit());
    is_uuid || is_hex
}
