//! Places in the JSON of the Messages API, and its events as text.

use bytes::Bytes;
use serde_json::{Value, json};
use wire::body::{Scanner, Span};
use wire::json::{decode_bytes, in_one_case, unescape};
use wire::members::{all_members, members_of};

/// Whether `data` is an object.
pub(super) fn is_object(data: &[u8]) -> bool {
    let mut scanner = Scanner::tolerant(data);
    all_members(&mut scanner).is_ok() && scanner.end().is_ok()
}

/// The value at this path of members, where an empty name is no step; of members of one name the last one.
pub(super) fn find(data: &[u8], path: &[&str]) -> Option<Span> {
    path.iter().filter(|key| !key.is_empty()).try_fold(Span::new(0, data.len()), |object, key| {
        let members = members_of(data, object);
        let found = members.iter().rfind(|member| *decode_bytes(member.key, data) == *key.as_bytes());
        found.map(|member| member.value)
    })
}

/// The string at this path, between its quotes.
pub(super) fn inside(data: &[u8], path: &[&str]) -> Option<Span> {
    let span = find(data, path).filter(|span| span.of(data).starts_with(b"\""))?;
    Some(Span { start: span.start + 1, end: span.end - 1 })
}

/// The string at this path, decoded.
pub(super) fn text(data: &[u8], path: &[&str]) -> Option<String> {
    inside(data, path).map(|span| unescape(span.of(data)))
}

/// Whether readers of the object at this path may differ on the values of these members.
pub(super) fn repeats(data: &[u8], path: &[&str], keys: &[&str]) -> bool {
    let members = find(data, path).map_or_else(Vec::new, |object| members_of(data, object));
    let names = members.iter().map(|member| in_one_case(&decode_bytes(member.key, data)).into_owned());
    let names: Vec<Vec<u8>> = names.collect();
    keys.iter().any(|key| names.iter().filter(|name| *name == key.as_bytes()).count() > 1)
}

/// The elements of the list at this path.
pub(super) fn elements(data: &[u8], path: &[&str]) -> Vec<Span> {
    let Some(list) = find(data, path).filter(|list| list.of(data).starts_with(b"[")) else {
        return Vec::new();
    };
    let (mut scanner, mut found) = (Scanner::within(data, list), Vec::new());
    let mut read = || {
        scanner.array()?;
        while scanner.element()? {
            found.push(scanner.skip()?);
        }
        Ok::<_, wire::body::Fault>(())
    };
    // What comes after a fault is no element.
    let _ = read();
    found
}

/// Whether the message at this path has come whole.
pub(super) fn is_full(data: &[u8], at: &str) -> bool {
    !elements(data, &[at, "content"]).is_empty() || text(data, &[at, "stop_reason"]).is_some()
}

/// The events of a stream whose head, the event `data`, holds the whole message.
pub(super) fn events_of(data: &[u8]) -> Vec<Bytes> {
    let mut head: Value = serde_json::from_slice(data).unwrap_or_default();
    let content = std::mem::replace(&mut head["message"]["content"], json!([]));
    let reason = std::mem::replace(&mut head["message"]["stop_reason"], Value::Null);
    let usage = head["message"]["usage"].clone();
    let mut events = vec![event(&head)];
    for (index, block) in (0..).zip(content.as_array().into_iter().flatten()) {
        let text = block["text"].as_str().unwrap_or_default().to_owned();
        let mut start = block.clone();
        if !text.is_empty() {
            start["text"] = "".into();
        }
        events.extend(block_events(index, &start, ("text_delta", "text", &text)));
    }
    let delta = json!({"stop_reason": reason, "stop_sequence": head["message"]["stop_sequence"]});
    let end = event(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.extend((!reason.is_null()).then_some(end));
    events
}

/// The events of a block, with this delta where its text is not empty: its type, its member and the text.
pub(super) fn block_events(
    index: u64,
    block: &Value,
    (kind, member, text): (&str, &str, &str),
) -> Vec<Bytes> {
    let start = json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, member: text}});
    let stop = json!({"type": "content_block_stop", "index": index});
    let delta = Some(&delta).filter(|_| !text.is_empty());
    [Some(&start), delta, Some(&stop)].into_iter().flatten().map(event).collect()
}

/// An event with this data.
pub(super) fn event(data: &Value) -> Bytes {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()).into()
}
