//! One line of the made-up protocol: which statement it makes, read and written.

use dialects::reply::Unjudged;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;
use wire::body::Span;

/// See the file's head. Strings are as written between their quotes, since a line may split an escape.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Line<'a> {
    pub choice: Option<u32>,
    pub call: Option<u64>,
    #[serde(borrow, deserialize_with = "inside")]
    pub text: Option<&'a str>,
    #[serde(borrow, deserialize_with = "inside")]
    pub name: Option<&'a str>,
    #[serde(borrow, deserialize_with = "inside")]
    pub arguments: Option<&'a str>,
    #[serde(borrow, deserialize_with = "inside")]
    pub finish: Option<&'a str>,
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    /// Of the call, or, in a line without one, of the reply.
    pub end: bool,
}

impl<'a> Line<'a> {
    /// A line about this choice that says nothing yet.
    pub fn of(choice: u32) -> Self {
        Self { choice: Some(choice), ..Self::default() }
    }

    /// Reads a line, which makes one statement: about the text, a call or the finish of a choice, or about the reply.
    pub fn read(json: &'a [u8]) -> Result<Self, Unjudged> {
        // Of a member that occurs twice another reader may read the other one.
        let why = |error: serde_json::Error| match error.is_data() {
            true => Unjudged::Ambiguous,
            false => Unjudged::NotJson,
        };
        let line: Self = serde_json::from_slice(json).map_err(why)?;
        let of_choice = [line.text.is_some(), line.call.is_some(), line.finish.is_some()];
        let of_reply = [line.usage.is_some(), line.error.is_some(), line.ends_reply()];
        let statements = of_choice.iter().chain(&of_reply).filter(|is_made| **is_made).count();
        let has_choice = line.choice.is_some() || !of_choice.contains(&true);
        let has_call = line.call.is_some() || line.name.or(line.arguments).is_none();
        if statements == 1 && has_choice && has_call { Ok(line) } else { Err(Unjudged::Ambiguous) }
    }

    /// Whether it is the last line of a reply.
    pub fn ends_reply(&self) -> bool {
        self.end && self.call.is_none()
    }

    /// The line as JSON. One about usage or an error is never written.
    pub fn write(&self) -> String {
        let numbers = [("choice", self.choice.map(u64::from)), ("call", self.call)];
        let strings = [
            ("text", self.text),
            ("name", self.name),
            ("arguments", self.arguments),
            ("finish", self.finish),
        ];
        let numbers = numbers.into_iter().filter_map(|(key, value)| Some(format!("\"{key}\":{}", value?)));
        let strings =
            strings.into_iter().filter_map(|(key, value)| Some(format!("\"{key}\":\"{}\"", value?)));
        let end = self.end.then(|| "\"end\":true".to_owned());
        format!("{{{}}}", numbers.chain(strings).chain(end).collect::<Vec<_>>().join(","))
    }
}

/// The inside of a JSON string.
fn inside<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de str>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?.get();
    let inside = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    inside.map(Some).ok_or_else(|| D::Error::custom("it is no string"))
}

/// The lines of a whole reply, as JSON.
fn in_array(body: &[u8]) -> Option<Vec<&str>> {
    let lines: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    Some(lines.into_iter().map(RawValue::get).collect())
}

/// The lines of a whole reply.
pub fn all_lines(body: &[u8]) -> Result<Vec<Line<'_>>, Unjudged> {
    let lines = in_array(body).ok_or(Unjudged::NotJson)?;
    lines.into_iter().map(|line| Line::read(line.as_bytes())).collect()
}

/// The lines of a whole reply that `are_meant`, as JSON.
pub fn lines_of(body: &[u8], are_meant: impl Fn(&Line<'_>) -> bool) -> Vec<&str> {
    let is_meant = |line: &&str| Line::read(line.as_bytes()).is_ok_and(|line| are_meant(&line));
    in_array(body).unwrap_or_default().into_iter().filter(is_meant).collect()
}

/// A whole reply as a stream.
pub fn stream_of(body: &[u8]) -> Option<String> {
    Some(in_array(body)?.into_iter().map(|line| format!("{line}\n")).collect())
}

/// A stream as a whole reply.
pub fn body_of(stream: &[u8]) -> String {
    let stream = String::from_utf8_lossy(stream);
    let lines = stream.lines().filter(|line| !is_comment(line.as_bytes()));
    format!("[{}]", lines.collect::<Vec<_>>().join(","))
}

/// Whether a line of a stream says nothing.
pub fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"#") || line.trim_ascii().is_empty()
}

/// Where `part`, which was read from `text`, is in it.
pub fn span_of(part: &str, text: &[u8]) -> Span {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    Span::new(start, start + part.len())
}
