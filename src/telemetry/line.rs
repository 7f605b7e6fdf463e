//! The format of a log line that is no request's: a JSON object, or text for people. Bounds the values that come from
//! outside; the log defines the fields.

use super::bounded;
use super::log::Level;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::SystemTime;

/// The longest value, in characters: more than any id or model name in use.
pub(super) const MAX_VALUE_CHARS: usize = 200;
/// The longest list; the number of further items is given.
pub(super) const MAX_ITEMS: usize = 20;

/// Few lines are longer.
pub(super) const USUAL_BYTES: usize = 1024;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object.
    Json,
    /// Time, level, message and `key=value` for people.
    Text,
}

/// What every line has.
#[derive(Serialize)]
struct Line<'a, F> {
    timestamp: String,
    level: &'static str,
    message: &'a str,
    #[serde(flatten)]
    fields: F,
}

/// A line, its end included. `fields` is a struct or a map, whose values are bounded.
pub(super) fn line(
    form: Form,
    at: SystemTime,
    level: Level,
    message: &str,
    fields: impl Serialize,
) -> Vec<u8> {
    // A clock that was never set may be before the epoch, which cannot be written.
    let timestamp = humantime::format_rfc3339_micros(at.max(SystemTime::UNIX_EPOCH)).to_string();
    let message = bounded::text(message, MAX_VALUE_CHARS);
    let mut bytes = match form {
        Form::Json => {
            let line = Line { timestamp, level: level.as_str(), message: &message, fields };
            let mut bytes = Vec::with_capacity(USUAL_BYTES);
            // Writing fails only where a key is not text, and our keys are text.
            let _ = serde_json::to_writer(&mut bytes, &line);
            bytes
        }
        Form::Text => {
            let fields = serde_json::to_value(fields).unwrap_or_default();
            let fields: String = pairs(&fields).map(|pair| format!(" {pair}")).collect();
            format!("{timestamp} {:5} {message}{fields}", level.as_str()).into_bytes()
        }
    };
    bytes.push(b'\n');
    bytes
}

/// Fields with external text: each text and each list bounded, at any depth.
pub(super) fn bounded_fields(fields: impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => {
            fields.into_iter().map(|(key, value)| (key, bounded_value(value))).collect()
        }
        _ => Map::new(),
    }
}

fn bounded_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(bounded::text(&text, MAX_VALUE_CHARS).into_owned()),
        Value::Array(items) => {
            let more = items.len().saturating_sub(MAX_ITEMS);
            let more = (more > 0).then(|| Value::String(format!("+{more} more")));
            Value::Array(items.into_iter().take(MAX_ITEMS).map(bounded_value).chain(more).collect())
        }
        Value::Object(fields) => Value::Object(bounded_fields(fields)),
        plain => plain,
    }
}

/// The members of an object as `key=value`.
fn pairs(fields: &Value) -> impl Iterator<Item = String> + '_ {
    let fields = fields.as_object().into_iter().flatten();
    fields.map(|(key, value)| format!("{key}={}", plain(&shown(value))))
}

/// A value without quotes: items are separated by commas, members of an item by spaces.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(_) => pairs(value).collect::<Vec<_>>().join(" "),
        plain => plain.to_string(),
    }
}

/// The text unchanged where it is one word, otherwise quoted and escaped.
fn plain(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@*+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_word) { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn written(form: Form, fields: Value) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        String::from_utf8(line(form, at, Level::Warn, "request", bounded_fields(fields))).unwrap()
    }

    #[test]
    fn a_line_has_the_same_fields_as_json_and_as_text() {
        let fields = json!({"model": "gpt-4o", "words": "two words", "status": 0, "yes": true, "total_ms": 12.034,
            "calls": [{"name": "a", "verdict": "allow"}, {"name": "b c"}], "why": ["x", "y"]});
        assert_eq!(
            written(Form::Json, fields.clone()),
            concat!(
                r#"{"timestamp":"2023-11-14T22:13:20.123456Z","level":"warn","message":"request","#,
                r#""model":"gpt-4o","words":"two words","status":0,"yes":true,"total_ms":12.034,"#,
                r#""calls":[{"name":"a","verdict":"allow"},{"name":"b c"}],"why":["x","y"]}"#,
                "\n"
            )
        );
        assert_eq!(
            written(Form::Text, fields),
            "2023-11-14T22:13:20.123456Z warn  request model=gpt-4o words=\"two words\" status=0 yes=true \
             total_ms=12.034 calls=\"name=a verdict=allow, name=\\\"b c\\\"\" why=\"x, y\"\n"
        );
    }

    #[test]
    fn hostile_values_stay_inside_their_field_and_on_their_line() {
        let hostile = "x\"}\n{\"level\":\"error\" \\ \u{1b}[2J\u{9b}\u{202e} \u{2028} é";
        let json = written(Form::Json, json!({"id": hostile}));
        let value: Value = serde_json::from_str(&json).unwrap();
        let expected = "x\"}\u{fffd}{\"level\":\"error\" \\ \u{fffd}[2J\u{fffd}\u{fffd} \u{fffd} é";
        assert_eq!((&value["id"], &value["level"]), (&expected.into(), &"warn".into()));
        for form in [Form::Json, Form::Text] {
            let line = written(form, json!({"id": hostile, "calls": [{"name": hostile}, hostile]}));
            assert!(line.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
        }
        assert!(written(Form::Text, json!({"id": "a b=c \"d"})).contains(r#" id="a b=c \"d""#));
    }

    #[test]
    fn a_clock_before_the_epoch_is_written_as_the_epoch() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        let line = line(Form::Text, before, Level::Info, "early", json!({}));
        assert_eq!(String::from_utf8(line).unwrap(), "1970-01-01T00:00:00.000000Z info  early\n");
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let many: Vec<String> = (0..1_000).map(|n| n.to_string().repeat(1_000)).collect();
        for form in [Form::Json, Form::Text] {
            let line = written(form, json!({"id": many[1], "calls": many}));
            assert!(line.contains("+980 more") && line.len() < 6_000, "{}", line.len());
        }
    }
}
