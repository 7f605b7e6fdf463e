//! One log line, as JSON or as text. Knows the two ways to write a field and bounds every value; which fields
//! there are is the log's affair.

use super::bounded;
use super::log::Level;
use serde::Serialize;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::{Duration, SystemTime};

/// Longest value, in characters: more than any id or model name in use.
const MAX_VALUE_CHARS: usize = 200;
/// Longest list; the rest is told by number.
const MAX_ITEMS: usize = 20;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object, flat: values are strings, numbers, `true`, or lists of strings.
    Json,
    /// Time, level, message and `key=value` for people.
    Text,
}

/// A time of day as humantime writes it, without fractions of the second.
const SECOND: &[u8; 20] = b"1970-01-01T00:00:00Z";

thread_local! {
    /// The second since the epoch that was written last, and how it is written.
    static LAST_SECOND: Cell<(u64, [u8; SECOND.len()])> = const { Cell::new((0, *SECOND)) };
}

/// A line being written.
pub(super) struct Line {
    form: Form,
    // Writes to a Vec cannot fail, so their results are dropped below.
    bytes: Vec<u8>,
}

impl Line {
    /// Begins a line.
    pub(super) fn new(form: Form, at: SystemTime, level: Level, message: &str) -> Self {
        let mut line = Self { form, bytes: Vec::with_capacity(1024) };
        match form {
            Form::Json => {
                line.bytes.extend_from_slice(br#"{"timestamp":""#);
                line.time(at);
                line.bytes.push(b'"');
                line.word("level", level.as_str());
                line.text("message", message);
            }
            Form::Text => {
                line.time(at);
                let message = bounded::text(message, MAX_VALUE_CHARS);
                line.put(format_args!(" {:5} {message}", level.as_str()));
            }
        }
        line
    }

    /// A time of day, to the microsecond. A thousand requests share a second, which is written once for each thread.
    fn time(&mut self, at: SystemTime) {
        // A clock that was never set may stand before the epoch, which cannot be written.
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (second, micros) = (since.as_secs(), since.subsec_micros());
        let mut last = LAST_SECOND.get();
        if last.0 != second {
            let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            let _ = write!(&mut last.1[..], "{}", humantime::format_rfc3339_seconds(whole));
            last.0 = second;
            LAST_SECOND.set(last);
        }
        self.bytes.extend_from_slice(&last.1[..SECOND.len() - 1]);
        let digit = |of: u32| b'0' + (micros / of % 10) as u8;
        let digits = [100_000, 10_000, 1000, 100, 10, 1].map(digit);
        self.bytes.push(b'.');
        self.bytes.extend_from_slice(&digits);
        self.bytes.push(b'Z');
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        self.key(key);
        if self.form == Form::Json && is_plain(value) {
            // Nearly every value: nothing to cut, to hide or to escape.
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(value.as_bytes());
            self.bytes.push(b'"');
            return;
        }
        let value = bounded::text(value, MAX_VALUE_CHARS);
        match self.form {
            Form::Json => self.json(&value),
            Form::Text => self.plain(&value),
        }
    }

    /// A word of our own, in which nothing needs to be looked for: no quote, no control, no great length.
    pub(super) fn word(&mut self, key: &'static str, word: &'static str) {
        self.key(key);
        match self.form {
            Form::Json => {
                self.bytes.push(b'"');
                self.bytes.extend_from_slice(word.as_bytes());
                self.bytes.push(b'"');
            }
            Form::Text => self.plain(word),
        }
    }

    /// A text, where there is one.
    pub(super) fn some(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// A number, zero too.
    pub(super) fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        self.digits(value);
    }

    /// A number, where it is not zero.
    pub(super) fn count(&mut self, key: &'static str, value: u64) {
        if value > 0 {
            self.number(key, value);
        }
    }

    /// `true`, where it is.
    pub(super) fn flag(&mut self, key: &'static str, value: bool) {
        if value {
            self.key(key);
            self.bytes.extend_from_slice(b"true");
        }
    }

    /// A span of time as a number in ms, to the microsecond.
    pub(super) fn millis(&mut self, key: &'static str, value: Duration) {
        self.key(key);
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.digits(micros / 1000);
        let digit = |of: u64| b'0' + (micros / of % 10) as u8;
        self.bytes.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }

    /// A list of texts, where it is not empty. `show` writes one item.
    pub(super) fn list<T>(&mut self, key: &'static str, items: &[T], show: impl Fn(&T, &mut String)) {
        if items.is_empty() {
            return;
        }
        self.key(key);
        let mut shown = String::new();
        // Text is quoted as a whole, JSON item by item.
        let mut joined = String::new();
        for at in 0..items.len().min(MAX_ITEMS + 1) {
            shown.clear();
            if at == MAX_ITEMS {
                let _ = write!(shown, "+{} more", items.len() - MAX_ITEMS);
            } else {
                show(&items[at], &mut shown);
            }
            let item = bounded::text(&shown, MAX_VALUE_CHARS);
            match self.form {
                Form::Json => {
                    self.bytes.push(if at == 0 { b'[' } else { b',' });
                    self.json(&item);
                }
                Form::Text => {
                    joined.push_str(if at == 0 { "" } else { ", " });
                    joined.push_str(&item);
                }
            }
        }
        match self.form {
            Form::Json => self.bytes.push(b']'),
            Form::Text => self.plain(&joined),
        }
    }

    /// The whole line, its end included.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.form == Form::Json {
            self.bytes.push(b'}');
        }
        self.bytes.push(b'\n');
        self.bytes
    }

    fn key(&mut self, key: &'static str) {
        let key = key.as_bytes();
        match self.form {
            // Keys are ours and need no escape.
            Form::Json => {
                self.bytes.extend_from_slice(b",\"");
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(b"\":");
            }
            Form::Text => {
                self.bytes.push(b' ');
                self.bytes.extend_from_slice(key);
                self.bytes.push(b'=');
            }
        }
    }

    /// A number as it is written. A dozen stand in each line, and to have them formatted took 170 instructions each.
    fn digits(&mut self, mut number: u64) {
        // As many as the largest has.
        let mut digits = [b'0'; 20];
        let mut first = digits.len() - 1;
        loop {
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.bytes.extend_from_slice(&digits[first..]);
            }
            first -= 1;
        }
    }

    fn put(&mut self, words: fmt::Arguments<'_>) {
        let _ = self.bytes.write_fmt(words);
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        let _ = serde_json::to_writer(&mut self.bytes, value);
    }

    /// As it is where it is one word, else quoted and escaped.
    fn plain(&mut self, text: &str) {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@*+".contains(&byte);
        if !text.is_empty() && text.bytes().all(is_word) {
            self.bytes.extend_from_slice(text.as_bytes());
        } else {
            self.put(format_args!("{text:?}"));
        }
    }
}

/// Whether a value stands in JSON as it is.
fn is_plain(value: &str) -> bool {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    // Without a branch for each byte: sixteen at a time.
    value.len() <= MAX_VALUE_CHARS && value.bytes().fold(true, |so_far, byte| so_far & plain(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, fill: impl Fn(&mut Line)) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let mut line = Line::new(form, at, Level::Warn, "request");
        fill(&mut line);
        String::from_utf8(line.end()).unwrap()
    }

    fn fill(line: &mut Line) {
        line.text("model", "gpt-4o");
        line.text("words", "two words");
        line.some("none", None);
        line.number("status", 0);
        line.number("most", u64::MAX);
        line.count("zero", 0);
        line.flag("no", false);
        line.flag("yes", true);
        line.millis("total_ms", Duration::from_micros(12_034));
        line.list("empty", &[] as &[&str], |item, shown| shown.push_str(item));
        line.list("calls", &["a=1", "b c"], |item, shown| shown.push_str(item));
    }

    #[test]
    fn a_line_reads_the_same_as_json_and_as_text() {
        assert_eq!(
            written(Form::Json, fill),
            concat!(
                r#"{"timestamp":"2023-11-14T22:13:20.123456Z","level":"warn","message":"request","#,
                r#""model":"gpt-4o","words":"two words","status":0,"most":18446744073709551615,"yes":true,"total_ms":12.034,"#,
                r#""calls":["a=1","b c"]}"#,
                "\n"
            )
        );
        assert_eq!(
            written(Form::Text, fill),
            "2023-11-14T22:13:20.123456Z warn  request model=gpt-4o words=\"two words\" status=0 most=18446744073709551615 yes=true \
             total_ms=12.034 calls=\"a=1, b c\"\n"
        );
    }

    #[test]
    fn hostile_values_stay_inside_their_field_and_on_their_line() {
        let hostile = "x\"}\n{\"level\":\"error\" \\ \u{1b}[2J\u{9b}\u{202e} \u{2028} é";
        let json = written(Form::Json, |line| line.text("id", hostile));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let shown = "x\"}\u{fffd}{\"level\":\"error\" \\ \u{fffd}[2J\u{fffd}\u{fffd} \u{fffd} é";
        assert_eq!((&value["id"], &value["level"]), (&shown.into(), &"warn".into()));
        for form in [Form::Json, Form::Text] {
            let line = written(form, |line| {
                line.text("id", hostile);
                line.list("calls", &[hostile], |item, shown| shown.push_str(item));
            });
            assert!(line.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
        }
        assert!(written(Form::Text, |line| line.text("id", "a b=c \"d")).contains(r#" id="a b=c \"d""#));
    }

    #[test]
    fn a_clock_before_the_epoch_is_written_as_the_epoch() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        let line = String::from_utf8(Line::new(Form::Text, before, Level::Info, "early").end()).unwrap();
        assert_eq!(line, "1970-01-01T00:00:00.000000Z info  early\n");
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let many: Vec<String> = (0..1_000).map(|n| n.to_string().repeat(1_000)).collect();
        for form in [Form::Json, Form::Text] {
            let line = written(form, |line| {
                line.text("id", &many[1]);
                line.list("calls", &many, |item, shown| shown.push_str(item));
            });
            assert!(line.contains("+980 more") && line.len() < 6_000, "{}", line.len());
        }
    }
}
