//! The envelope of results that carry intents: `{ok, data, intents, meta}`, and nothing else. Reads it strictly; what the
//! intents do is for the policy to decide.

use serde::Deserialize;
use serde_json::Value;
use wire::body::{Fault, Kind as JsonKind, Scanner, Span};
use wire::hidden_unicode::strip;
use wire::json::decode;

/// The members of the envelope.
const MEMBERS: [&str; 4] = ["ok", "data", "intents", "meta"];
/// The most intents of one result; the rest is malformed.
const MOST_INTENTS: usize = 16;
/// The longest list of intents, in bytes.
const LONGEST_LIST: usize = 16 << 10;
/// The longest name of a tool or key, in characters.
const LONGEST_NAME: usize = 128;
/// How toolrein's own notes begin, and what it becomes where somebody else wrote it.
const OWN: (&str, &str) = ("[toolrein", "(");

/// The closed list of intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    EndTurn,
    CloseTool,
    OpenTool,
    QueueText,
    HideAfter,
}

impl Kind {
    /// As written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::CloseTool => "close_tool",
            Self::OpenTool => "open_tool",
            Self::QueueText => "queue_text",
            Self::HideAfter => "hide_after",
        }
    }
}

/// One intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    EndTurn,
    CloseTool(String),
    OpenTool(String),
    /// A text of the configuration's.
    QueueKey(String),
    /// A text of the tool's own.
    QueueText(String),
    HideAfter,
}

impl Intent {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::EndTurn => Kind::EndTurn,
            Self::CloseTool(_) => Kind::CloseTool,
            Self::OpenTool(_) => Kind::OpenTool,
            Self::QueueKey(_) | Self::QueueText(_) => Kind::QueueText,
            Self::HideAfter => Kind::HideAfter,
        }
    }
}

/// One element of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Intent(Intent),
    Malformed,
}

/// The intents of the result `text`; `None` where it is no envelope.
pub(super) fn entries(text: &str) -> Option<Vec<Entry>> {
    // Most results are none, which is seen without reading them.
    let trimmed = text.trim_ascii();
    if !trimmed.starts_with('{') || !trimmed.ends_with('}') {
        return None;
    }
    let list = list_of(text).ok().flatten()?;
    let list = list.of(text.as_bytes());
    if list.len() > LONGEST_LIST {
        return Some(vec![Entry::Malformed]);
    }
    let Ok(list) = serde_json::from_slice::<Vec<Value>>(list) else { return Some(vec![Entry::Malformed]) };
    let read =
        list.iter().take(MOST_INTENTS).map(|entry| read(entry).map_or(Entry::Malformed, Entry::Intent));
    let rest = (list.len() > MOST_INTENTS).then_some(Entry::Malformed);
    Some(read.chain(rest).collect())
}

/// The list of intents in `text`, where that is the envelope: every member once, and no other.
fn list_of(text: &str) -> Result<Option<Span>, Fault> {
    let mut scanner = Scanner::new(text.as_bytes());
    let mut known = [false; MEMBERS.len()];
    let mut list = None;
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let name = decode(key, text.as_bytes());
        let Some(at) = MEMBERS.iter().position(|member| *member == name) else { return Ok(None) };
        if std::mem::replace(&mut known[at], true) {
            return Ok(None);
        }
        let kind = scanner.peek()?;
        let is_right = match MEMBERS[at] {
            "ok" => matches!(kind, JsonKind::True | JsonKind::False),
            "intents" => kind == JsonKind::Array,
            _ => true,
        };
        if !is_right {
            return Ok(None);
        }
        let value = scanner.skip_kind(kind)?;
        if MEMBERS[at] == "intents" {
            list = Some(value);
        }
    }
    scanner.end()?;
    Ok(list.filter(|_| known == [true; MEMBERS.len()]))
}

/// The intent that `entry` is: an object of its type and what that takes, and nothing else.
fn read(entry: &Value) -> Option<Intent> {
    let members = entry.as_object()?;
    let text = |key: &str| members.get(key)?.as_str();
    let name = |key: &str| {
        let name = text(key).filter(|name| !name.is_empty() && name.chars().count() <= LONGEST_NAME)?;
        (!name.chars().any(char::is_control)).then(|| name.to_owned())
    };
    let intent = match text("type")? {
        "end_turn" => Intent::EndTurn,
        "hide_after" => Intent::HideAfter,
        "close_tool" => Intent::CloseTool(name("tool").filter(|name| is_tool(name))?),
        "open_tool" => Intent::OpenTool(name("tool").filter(|name| is_tool(name))?),
        "queue_text" if members.contains_key("key") => Intent::QueueKey(name("key")?),
        "queue_text" => Intent::QueueText(text("text").filter(|text| !text.trim().is_empty())?.to_owned()),
        _ => return None,
    };
    let takes = 1 + usize::from(!matches!(intent, Intent::EndTurn | Intent::HideAfter));
    (members.len() == takes).then_some(intent)
}

/// Whether `name` may be that of a tool. It is part of notices, and must not be able to say anything there.
fn is_tool(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte))
}

/// A text of a tool's own as the model is shown it: in one line, without hidden characters and without notes that look like
/// toolrein's.
pub(super) fn own_text(text: &str) -> String {
    let text = strip(text).map_or_else(|| text.to_owned(), |(stripped, _)| stripped);
    let hides = |letter: char| {
        matches!(letter, '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let kept: String = text
        .chars()
        .filter(|letter| letter.is_whitespace() || !(letter.is_control() || hides(*letter)))
        .collect();
    let mut line = kept.split_whitespace().collect::<Vec<_>>().join(" ");
    // ASCII lower case keeps every position.
    while let Some(at) = line.to_ascii_lowercase().find(OWN.0) {
        line.replace_range(at..=at, OWN.1);
    }
    line
}
