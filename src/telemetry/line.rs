//! One log line, as JSON or as text. Knows the two ways to write a field and bounds every value; which fields
//! there are is the log's affair.

use super::bounded;
use super::log::Level;
use std::io::Write;
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

/// A line being written.
pub(super) struct Line {
    form: Form,
    // Writes to a Vec cannot fail, so their results are dropped below.
    bytes: Vec<u8>,
}

impl Line {
    /// Begins a line.
    pub(super) fn new(form: Form, at: SystemTime, level: Level, message: &str) -> Self {
        let mut line = Self { form, bytes: Vec::with_capacity(512) };
        let (at, level) = (humantime::format_rfc3339_micros(at), level.as_str());
        let message = bounded::text(message, MAX_VALUE_CHARS);
        match form {
            Form::Json => {
                let _ = write!(line.bytes, r#"{{"timestamp":"{at}","level":"{level}","message":"#);
                line.json(&message);
            }
            Form::Text => {
                let _ = write!(line.bytes, "{at} {level:5} {message}");
            }
        }
        line
    }

    /// A text.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        let value = bounded::text(value, MAX_VALUE_CHARS);
        match self.form {
            Form::Json => self.json(&value),
            Form::Text => self.plain(&value),
        }
    }

    /// A text, where there is one.
    pub(super) fn some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// A number, zero too.
    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        let _ = write!(self.bytes, "{value}");
    }

    /// A number, where it is not zero.
    pub(super) fn count(&mut self, key: &str, value: u64) {
        if value > 0 {
            self.number(key, value);
        }
    }

    /// `true`, where it is.
    pub(super) fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.key(key);
            self.bytes.extend_from_slice(b"true");
        }
    }

    /// A span of time as a number in ms, to the microsecond.
    pub(super) fn millis(&mut self, key: &str, value: Duration) {
        self.key(key);
        let micros = value.as_micros();
        let _ = write!(self.bytes, "{}.{:03}", micros / 1000, micros % 1000);
    }

    /// A list of texts, where it is not empty. `show` writes one item.
    pub(super) fn list<T>(&mut self, key: &str, items: &[T], show: impl Fn(&T) -> String) {
        if items.is_empty() {
            return;
        }
        let fit = |item| bounded::text(&show(item), MAX_VALUE_CHARS).into_owned();
        let mut shown: Vec<String> = items.iter().take(MAX_ITEMS).map(fit).collect();
        if items.len() > MAX_ITEMS {
            shown.push(format!("+{} more", items.len() - MAX_ITEMS));
        }
        self.key(key);
        match self.form {
            Form::Json => {
                for (at, item) in shown.iter().enumerate() {
                    self.bytes.push(if at == 0 { b'[' } else { b',' });
                    self.json(item);
                }
                self.bytes.push(b']');
            }
            Form::Text => self.plain(&shown.join(", ")),
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

    fn key(&mut self, key: &str) {
        match self.form {
            Form::Json => {
                self.bytes.push(b',');
                self.json(key);
                self.bytes.push(b':');
            }
            Form::Text => {
                let _ = write!(self.bytes, " {key}=");
            }
        }
    }

    fn json(&mut self, text: &str) {
        let _ = serde_json::to_writer(&mut self.bytes, text);
    }

    /// As it is where it is one word, else quoted and escaped.
    fn plain(&mut self, text: &str) {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@*+".contains(&byte);
        let _ = if !text.is_empty() && text.bytes().all(is_word) {
            write!(self.bytes, "{text}")
        } else {
            write!(self.bytes, "{text:?}")
        };
    }
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
        line.count("zero", 0);
        line.flag("no", false);
        line.flag("yes", true);
        line.millis("total_ms", Duration::from_micros(12_034));
        line.list("empty", &[] as &[&str], |item| (*item).to_owned());
        line.list("calls", &["a=1", "b c"], |item| (*item).to_owned());
    }

    #[test]
    fn a_line_reads_the_same_as_json_and_as_text() {
        assert_eq!(
            written(Form::Json, fill),
            concat!(
                r#"{"timestamp":"2023-11-14T22:13:20.123456Z","level":"warn","message":"request","#,
                r#""model":"gpt-4o","words":"two words","status":0,"yes":true,"total_ms":12.034,"#,
                r#""calls":["a=1","b c"]}"#,
                "\n"
            )
        );
        assert_eq!(
            written(Form::Text, fill),
            "2023-11-14T22:13:20.123456Z warn  request model=gpt-4o words=\"two words\" status=0 yes=true \
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
                line.list("calls", &[hostile], |item| (*item).to_owned());
            });
            assert!(line.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
        }
        assert!(written(Form::Text, |line| line.text("id", "a b=c \"d")).contains(r#" id="a b=c \"d""#));
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let many: Vec<String> = (0..1_000).map(|n| n.to_string().repeat(1_000)).collect();
        for form in [Form::Json, Form::Text] {
            let line = written(form, |line| {
                line.text("id", &many[1]);
                line.list("calls", &many, Clone::clone);
            });
            assert!(line.contains("+980 more") && line.len() < 6_000, "{}", line.len());
        }
    }
}
