//! Responses that were made before: one that a client reads again by its id, and recorded ones. The upstream stores
//! all that the model said, and the client may have been shown less of it. A call keeps the verdict of its first
//! reply where that is known.

use super::history::HistoryRecord;
use super::item::{Item, ItemKind, parse_item};
use super::reply::convert::whole_of;
use super::reply::written::{message, result_of};
use crate::RecordedReply;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::{decode, decode_bytes, in_one_case, quote};
use wire::members::{Member, members_of};
use wire::splice::Splices;

/// What to do with a stored response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoredReply {
    /// The response as the client may see it, where that is not what the upstream sent.
    pub edited: Option<Vec<Bytes>>,
    /// It has, or may have, calls whose verdict is not known.
    pub is_unjudged: bool,
}

/// Reads the body of a stored response. `known` is the state store's record of it, and `id` the id that the client has
/// for it.
pub fn read_stored(body: &Bytes, known: Option<&[u8]>, id: &str) -> StoredReply {
    let unjudged = StoredReply { edited: None, is_unjudged: true };
    let Ok(response) = Response::parse(body) else { return unjudged };
    if response.is_ambiguous {
        return unjudged;
    }
    let known: Option<HistoryRecord> = known.and_then(|known| serde_json::from_slice(known).ok());
    let shown = known.iter().flat_map(|known| &known.items).map(|item| item.get());
    let shown: BTreeMap<String, &str> = shown.filter_map(|item| Some((call_id(item)?, item))).collect();
    let blocked: Vec<String> =
        known.iter().flat_map(|known| &known.owed).filter_map(|item| call_id(item.get())).collect();
    let (mut splices, mut is_unjudged) = (Splices::default(), false);
    let calls = response.items.iter().filter(|item| matches!(item.kind, ItemKind::Call(_)));
    for call in calls.clone() {
        let name = call.call.id.map(|id| decode(id, body).into_owned());
        match name.as_ref().and_then(|name| shown.get(name)) {
            Some(item) if !is_same(item, call.span.of(body)) => {
                splices.replace(call.span, item.to_string());
            }
            Some(_) => {}
            None => is_unjudged |= !name.is_some_and(|name| blocked.contains(&name)),
        }
    }
    let is_blocked = |item: &Item| {
        let id = item.call.id.filter(|_| matches!(item.kind, ItemKind::Call(_)));
        id.is_some_and(|id| blocked.iter().any(|blocked| *blocked == decode(id, body)))
    };
    splices.remove_items(&response.items, |item| item.span, is_blocked);
    let notice = known.iter().flat_map(|known| &known.items).find(|item| is_notice(item.get(), id));
    if let (Some(notice), Some(list)) = (notice, response.output.filter(|_| is_ended(body))) {
        let left = response.items.iter().filter(|item| !is_blocked(item)).map(|item| item.span.of(body));
        let items: Vec<&[u8]> = left.chain([notice.get().as_bytes()]).collect();
        splices = Splices::default();
        splices.replace(list, format!("[{}]", String::from_utf8_lossy(&items.join(&b','))));
    }
    if let Some(span) = response.id.filter(|span| known.is_some() && span.of(body) != quote(id).as_bytes()) {
        splices.replace(span, quote(id));
    }
    let edited = (!splices.is_empty()).then(|| splices.apply(body).into_pieces());
    StoredReply { edited, is_unjudged }
}

/// The request that a stored response answers, as far as it is known: the items of the record, and the tools,
/// instructions and model that the response repeats. What forces a call is left out, since that lifts limits.
pub fn request_of(body: &Bytes, known: Option<&[u8]>) -> Bytes {
    let echo: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let known: Option<HistoryRecord> = known.and_then(|known| serde_json::from_slice(known).ok());
    let mut items: Vec<&str> = known.iter().flat_map(|known| &known.items).map(|item| item.get()).collect();
    if items.is_empty() {
        items.push(r#"{"role":"user","content":""}"#);
    }
    let member = |name: &str| {
        let value = echo.get(name).map(|value| value.get()).filter(|value| *value != "null");
        value.map_or_else(String::new, |value| format!(",\"{name}\":{value}"))
    };
    let echoed: String = ["model", "tools", "instructions"].into_iter().map(member).collect();
    format!("{{\"input\":[{}]{echoed}}}", items.join(",")).into()
}

/// Whether the response is complete: its calls can be judged.
pub fn is_ended(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Status {
        status: Option<String>,
    }
    let status = serde_json::from_slice::<Status>(body).ok().and_then(|read| read.status);
    !matches!(status.as_deref(), Some("queued" | "in_progress"))
}

/// The record of a stored response none of whose unknown calls may run; `None` where a call is one that no text can
/// answer. `text`: what the model reads of the call of this id.
pub fn record_blocked(
    body: &Bytes,
    known: Option<&[u8]>,
    id: &str,
    text: &dyn Fn(&str) -> String,
) -> Option<Bytes> {
    let known: Option<HistoryRecord> = known.and_then(|known| serde_json::from_slice(known).ok());
    let nothing = || HistoryRecord { upstream_id: id.to_owned(), ..HistoryRecord::default() };
    let mut known = known.unwrap_or_else(nothing);
    let response = Response::parse(body).ok().filter(|response| !response.is_ambiguous)?;
    let shown: Vec<String> = known.items.iter().filter_map(|item| call_id(item.get())).collect();
    for item in &response.items {
        let ItemKind::Call(kind) = item.kind else { continue };
        let id = decode(item.call.id?, body).into_owned();
        if !shown.contains(&id) {
            let owed = result_of(kind, &id, Some(item.span.of(body)), &text(&id))?;
            known.owed.push(RawValue::from_string(String::from_utf8(owed.to_vec()).ok()?).ok()?);
        }
    }
    let stays = |item: &Item| match item.kind {
        ItemKind::Call(_) => {
            item.call.id.is_some_and(|id| shown.iter().any(|shown| *shown == decode(id, body)))
        }
        kind => kind != ItemKind::Reasoning,
    };
    if is_ended(body) && !response.items.iter().any(stays) {
        known.items.push(RawValue::from_string(message(&notice_id(id), BLOCKED).to_string()).ok()?);
    }
    Some(known.to_bytes())
}

/// The sentence in place of calls that were all blocked.
const BLOCKED: &str = "The tool calls of this response were not run: a policy blocked them.";

/// The id of the message that holds it, in the response with this id.
fn notice_id(id: &str) -> String {
    format!("msg_blocked_{id}")
}

/// Whether `item` is that message.
fn is_notice(item: &str, id: &str) -> bool {
    let read = parse_item(&mut Scanner::new(item.as_bytes()));
    read.is_ok_and(|read| read.id.is_some_and(|own| decode(own, item.as_bytes()) == notice_id(id)))
}

/// What a recorded reply, whole or a stream, adds to the conversation: its items.
pub fn reply_items(reply: &Bytes) -> RecordedReply {
    let is_whole = reply.trim_ascii_start().starts_with(b"{");
    let whole = if is_whole { Some(reply.clone()) } else { whole_of(reply) };
    let Some((response, body)) = whole.and_then(|whole| Some((Response::parse(&whole).ok()?, whole))) else {
        return RecordedReply::default();
    };
    let id = response.id.and_then(|id| serde_json::from_slice(id.of(&body)).ok());
    let items = response.items.iter().map(|item| body.slice(item.span.range())).collect();
    let ended: Option<Ended> = serde_json::from_slice(&body).ok();
    let finish =
        ended.and_then(|ended| ended.incomplete_details).map(|details| match details.reason.as_str() {
            "max_output_tokens" => "length".to_owned(),
            _ => details.reason,
        });
    RecordedReply { id, items, finish }
}

/// Why a response ended early.
#[derive(Deserialize)]
struct Ended {
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: String,
}

/// The whole reply of this id with these items.
pub fn whole_reply(reply: &RecordedReply) -> Bytes {
    let id = reply.id.as_ref().map_or_else(String::new, |id| format!("\"id\":{},", quote(id)));
    let items: Vec<&[u8]> = reply.items.iter().map(|item| &**item).collect();
    let head = format!(r#"{{{id}"object":"response","status":"completed","output":["#);
    [head.as_bytes(), &items.join(&b","[..]), b"]}"].concat().into()
}

/// The id of the call that `item` is, or answers.
fn call_id(item: &str) -> Option<String> {
    let read = parse_item(&mut Scanner::new(item.as_bytes())).ok()?;
    matches!(read.kind, ItemKind::Call(_) | ItemKind::Result).then_some(())?;
    Some(decode(read.call.id?, item.as_bytes()).into_owned())
}

/// Whether both calls would run the same way.
fn is_same(shown: &str, stored: &[u8]) -> bool {
    let call = |item: &[u8]| {
        let read = parse_item(&mut Scanner::new(item)).ok().filter(|read| !read.odd)?;
        let name = read.call.full_name(item).map(|name| name.into_owned());
        Some((name, read.call.arguments.text(item).into_owned()))
    };
    call(shown.as_bytes()).is_some_and(|shown| call(stored).as_ref() == Some(&shown))
}

/// The parts of a response that matter here.
#[derive(Default)]
struct Response {
    id: Option<Span>,
    /// The list of items.
    output: Option<Span>,
    items: Vec<Item>,
    /// Two parsers may see different calls in it.
    is_ambiguous: bool,
}

impl Response {
    fn parse(body: &[u8]) -> Result<Self, Fault> {
        let mut scanner = Scanner::new(body);
        if scanner.peek()? != Kind::Object {
            return Err(Fault::Type);
        }
        let object = scanner.skip()?;
        scanner.end()?;
        let mut response = Self::default();
        let members = members_of(body, object);
        let named = |name: &[u8]| -> Vec<&Member> {
            let is_named = |member: &&Member| *in_one_case(&decode_bytes(member.key, body)) == *name;
            members.iter().filter(is_named).collect()
        };
        response.id = named(b"id").first().map(|member| member.value);
        let output = named(b"output");
        response.is_ambiguous = output.len() > 1 || scanner.odd();
        let Some(output) = output.first().map(|member| member.value) else { return Ok(response) };
        response.output = Some(output);
        let mut items = Scanner::within(body, output);
        if items.peek()? != Kind::Array {
            return Ok(response);
        }
        items.array()?;
        while items.element()? {
            response.items.push(parse_item(&mut items)?);
        }
        // The tools of its request are not at hand, so a shell may be the client's.
        response.items.iter_mut().for_each(|item| item.settle(false));
        response.is_ambiguous |= response.items.iter().any(|item| item.odd || item.call.ambiguous);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn call(id: &str, arguments: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "f",
            "arguments": arguments, "status": "completed"})
    }

    fn response(items: &[Value]) -> String {
        json!({"id": "resp_1", "status": "completed", "output": items}).to_string()
    }

    /// The record of a reply with a call `a` that was shown and a call `b` that was blocked.
    fn record() -> String {
        let owed = json!({"type": "function_call_output", "call_id": "b", "output": "no"});
        json!({"upstream_id": "resp_1", "items": [call("a", "{}")], "owed": [owed]}).to_string()
    }

    fn read(body: &str, known: Option<&str>, id: &str) -> (Option<Value>, bool) {
        let read = read_stored(&Bytes::copy_from_slice(body.as_bytes()), known.map(str::as_bytes), id);
        let edited = read.edited.map(|pieces| serde_json::from_slice(&pieces.concat()).unwrap());
        (edited, read.is_unjudged)
    }

    #[test]
    fn calls_keep_the_verdict_of_their_first_reply() {
        let (a, b) = (call("a", "{}"), call("b", "{}"));
        let shown_a = serde_json::from_str::<Value>(&response(&[call("a", "{}")])).ok();
        for (said, items, shown) in [
            ("shown as it was", vec![&a], None),
            ("blocked", vec![&b], serde_json::from_str(&response(&[])).ok()),
            ("one of two is blocked", vec![&a, &b], shown_a.clone()),
            ("the first of two is blocked", vec![&b, &a], shown_a.clone()),
            ("shown with other arguments", vec![&call("a", "{\"all\":true}")], shown_a.clone()),
            ("the same in other words", vec![&call("a", "{ }")], shown_a),
        ] {
            let items: Vec<Value> = items.into_iter().cloned().collect();
            assert_eq!(read(&response(&items), Some(&record()), "resp_1"), (shown, false), "{said}");
        }
    }

    #[test]
    fn calls_without_a_known_verdict_pass_and_are_reported() {
        let unknown = response(&[call("c", "{}")]);
        assert_eq!(read(&unknown, Some(&record()), "resp_1"), (None, true));
        assert_eq!(read(&unknown, None, "resp_1"), (None, true));
        assert_eq!(read(&response(&[]), None, "resp_1"), (None, false), "no call");
        for body in [
            r#"{"id":"resp_1","output":[],"OUTPUT":[]}"#,
            r#"{"id":"resp_1","output":[],"output":[]}"#,
            r#"{"id":"resp_1","output":[1]}"#,
            r#"{"id":"resp_1","output":[{"type":"function_call","type":"message"}]}"#,
            r#"["#,
            r#"{} {}"#,
        ] {
            assert_eq!(read(body, Some(&record()), "resp_1"), (None, true), "{body}");
        }
    }

    #[test]
    fn the_client_gets_the_id_that_it_knows() {
        let body = response(&[]);
        let (edited, _) = read(&body, Some(&record()), "resp_0");
        assert_eq!(edited.unwrap()["id"], "resp_0");
        assert_eq!(read(&body, None, "resp_0"), (None, false), "no record, no alias");
    }
}
