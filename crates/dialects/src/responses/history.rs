//! Conversations that the upstream keeps: what is known of one after each reply, and the request with it. Policies read
//! both as one conversation; only what the client sent now goes upstream. Long results are shortened and old turns left
//! out, so that the cost of a request does not grow with the length of the chain.

use super::item::{Item, ItemKind, parse_item};
use bytes::Bytes;
use model::message::{Content, Role};
use model::request::{Request, UpstreamHistory};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wire::body::{Scanner, Span};
use wire::json::{decode, escaped, quote};
use wire::members::members_of;
use wire::plural::counted;
use wire::splice::Splices;

/// Most bytes of items that are kept: those of some hundred calls with short results.
const MOST_BYTES: usize = 128 * 1024;
/// Most characters that are kept of one result: its beginning shows what it is.
const MOST_CHARS: usize = 1_000;

/// What is known of a conversation after one reply.
#[derive(Serialize, Deserialize)]
pub struct Known {
    /// The id of the upstream's last reply; empty where the upstream has none of the conversation.
    pub upstream_id: String,
    /// What the client sent and was shown, oldest first.
    pub items: Vec<Box<RawValue>>,
    /// Items that the upstream needs before those that the client sends next: results of blocked calls, and what was said
    /// since its last reply.
    pub owed: Vec<Box<RawValue>>,
    /// The response as the client has it, where toolrein made it and the upstream keeps none for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reply: Option<Box<RawValue>>,
}

impl Known {
    /// What is known after a reply: the items of `request` and of the reply that the client was shown.
    pub fn after(
        request: &Request,
        body: &[u8],
        upstream_id: String,
        shown: &[Bytes],
        owed: &[Bytes],
    ) -> Self {
        // What the upstream still needs is kept whole, so that policies read all of it before it is sent.
        let kept = |item: &Bytes| if owed.contains(item) { raw(item) } else { short(item) };
        let mut items: Vec<Box<RawValue>> = sent(request, body).iter().filter_map(kept).collect();
        items.extend(shown.iter().filter_map(short));
        bound(&mut items);
        let owed = owed.iter().filter_map(|item| raw(item)).collect();
        Self { upstream_id, items, owed, own_reply: None }
    }

    /// The same, after a reply of toolrein's own that no upstream keeps.
    #[must_use]
    pub fn with_own_reply(self, response: &[u8]) -> Self {
        Self { own_reply: raw(response), ..self }
    }

    /// As the state store keeps it.
    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The upstream's id of the last reply, from what is known of a conversation.
pub fn upstream_id(known: &[u8]) -> Option<String> {
    let known: Known = serde_json::from_slice(known).ok()?;
    Some(known.upstream_id).filter(|id| !id.is_empty())
}

/// The response of toolrein's own that a client reads again by its id, from what is known of its conversation.
pub fn own_reply(known: &[u8]) -> Option<Bytes> {
    let known: Known = serde_json::from_slice(known).ok()?;
    Some(Bytes::from(known.own_reply?.get().to_owned()))
}

/// The state of the upstream after a request that was not sent to it: the id of its last reply, empty where it has none, and
/// the items that it needs next, those of the request included.
pub fn continued_by(request: &Request, body: &[u8]) -> (String, Vec<Bytes>) {
    let history = request.upstream_history.as_deref();
    let named = request.value(body, "previous_response_id");
    let named: Option<String> = named.and_then(|id| serde_json::from_slice(id.of(body)).ok());
    let id = history.and_then(|history| history.upstream_id.clone()).or(named).unwrap_or_default();
    let owed = history.map(|history| [b"[", &history.owed[..], b"]"].concat());
    let owed: Vec<Box<RawValue>> =
        owed.and_then(|list| serde_json::from_slice(&list).ok()).unwrap_or_default();
    let mut owed: Vec<Bytes> =
        owed.iter().map(|item| Bytes::copy_from_slice(item.get().as_bytes())).collect();
    if request.messages_span.of(body).starts_with(b"\"") {
        owed.push(user_message(request.messages_span.of(body)));
        return (id, owed);
    }
    let known_end = history.map_or(0, |history| history.span.end);
    let items = super::restore::items_of(request, body);
    let new = items.iter().filter(|item| item.span.start >= known_end);
    owed.extend(new.map(|item| Bytes::copy_from_slice(item.span.of(body))));
    (id, owed)
}

fn raw(item: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(item.to_vec()).ok()?).ok()
}

/// The items that the request holds, those known from before included.
fn sent(request: &Request, body: &[u8]) -> Vec<Bytes> {
    let input = request.messages_span;
    if input.of(body).starts_with(b"\"") {
        return vec![user_message(input.of(body))];
    }
    let items = super::restore::items_of(request, body);
    items.iter().map(|item| Bytes::copy_from_slice(item.span.of(body))).collect()
}

fn user_message(text: &[u8]) -> Bytes {
    [br#"{"role":"user","content":"#, text, b"}"].concat().into()
}

/// An item as it is kept. Of one that no policy looks at, only what a reference to it needs; `None` where nothing can
/// refer to it.
fn short(item: &Bytes) -> Option<Box<RawValue>> {
    let read = parse_item(&mut Scanner::new(item)).ok()?;
    match read.kind {
        ItemKind::Carried if read.is_in_container => raw(item),
        ItemKind::Reasoning | ItemKind::Carried if !read.seals => raw(&known_by_id(item, &read)?),
        ItemKind::Reasoning | ItemKind::Carried => None,
        ItemKind::Result => raw(&shortened(item, &read)),
        _ => raw(item),
    }
}

/// An item's type and id.
fn known_by_id(item: &Bytes, read: &Item) -> Option<Bytes> {
    let id = read.id.map(|id| decode(id, item))?;
    let kind = members_of(item, read.span).into_iter().find(|member| member.key.raw(item) == b"type")?;
    Some([b"{\"type\":", kind.value.of(item), b",\"id\":", quote(&id).as_bytes(), b"}"].concat().into())
}

fn shortened(item: &Bytes, read: &Item) -> Bytes {
    let mut splices = Splices::default();
    let texts = read.content.as_ref().unwrap_or(&Content::Absent);
    for text in texts.texts().filter(|text| text.span.len() > 2 * MOST_CHARS) {
        let decoded = decode(text, item);
        let start: String = decoded.chars().take(MOST_CHARS).collect();
        // Results of different lengths stay different.
        splices.replace(
            text.span,
            escaped(&format!("{start}\n[{} in all]", counted(decoded.chars().count(), "character"))),
        );
    }
    splices.apply(item).join()
}

/// Drops the oldest items beyond the limit, but not the first: the conversation is known by it.
fn bound(items: &mut Vec<Box<RawValue>>) {
    let mut bytes: usize = items.iter().map(|item| item.get().len() + 1).sum();
    let mut gone = 1;
    while bytes > MOST_BYTES && gone < items.len() {
        bytes -= items[gone].get().len() + 1;
        gone += 1;
    }
    // A result must not be kept without its call.
    let is_result = |item: &RawValue| {
        let read = parse_item(&mut Scanner::new(item.get().as_bytes()));
        read.is_ok_and(|item| item.kind == ItemKind::Result)
    };
    while gone > 1 && gone < items.len() && is_result(&items[gone]) {
        gone += 1;
    }
    if gone > 1 {
        items.drain(1..gone);
    }
}

/// The request with what is known before it, and the body of both.
pub fn with_history(body: &Bytes, known: &[u8]) -> Option<(Bytes, Request)> {
    let known: Known = serde_json::from_slice(known).ok()?;
    let request = super::parse(body).ok()?;
    if request.continues.is_none() {
        return super::references::with_items(body, &request, &known.items);
    }
    let input = request.messages_span;
    let items = known.items.iter().map(|item| item.get()).collect::<Vec<_>>().join(",");
    let (at, prefix, suffix) = match input.of(body).first() {
        Some(b'[') => (input.start as usize + 1, String::new(), ""),
        Some(b'"') => (input.start as usize, "[".to_owned(), r#"{"type":"message","role":"user","content":"#),
        // The client sends nothing new: the upstream continues by itself.
        _ => return None,
    };
    let is_text = !suffix.is_empty();
    let comma = if items.is_empty() || (!is_text && request.messages.is_empty()) { "" } else { "," };
    let end = if is_text { "}]" } else { "" };
    let cut = if is_text { input.end as usize } else { at };
    let all: Bytes = [
        &body[..at],
        prefix.as_bytes(),
        items.as_bytes(),
        comma.as_bytes(),
        suffix.as_bytes(),
        &body[at..cut],
        end.as_bytes(),
        &body[cut..],
    ]
    .concat()
    .into();
    let start = at + prefix.len();
    let span = Span::new(start, start + items.len() + comma.len());
    let mut whole = super::parse(&all).ok()?;
    let is_known = |message: &&model::message::Message| message.span.start < span.end;
    let messages = whole.messages.iter().take_while(is_known).count();
    let continues = whole.value(&all, "previous_response_id").map(|id| id.of(&all).to_vec());
    let alias = serde_json::to_vec(&known.upstream_id).ok().filter(|id| continues.as_ref() != Some(id));
    let owed = known.owed.iter().map(|item| item.get()).collect::<Vec<_>>().join(",");
    whole.upstream_history = Some(Box::new(UpstreamHistory {
        span,
        messages,
        upstream_id: alias.filter(|_| continues.is_some()).map(|_| known.upstream_id.clone()),
        owed: owed.into(),
        original: body.clone(),
    }));
    let is_answer = |role: Role| role == Role::Assistant;
    whole.may_be_continued =
        request.may_be_continued || whole.messages.iter().any(|message| is_answer(message.role));
    Some((all, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::write;
    use crate::variant::{Placement, Source, Variant};
    use model::plan::Plan;
    use serde_json::{Value, json};

    const CALL: &str =
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}"#;

    fn known(body: &str, owed: &[&str]) -> Bytes {
        let request = crate::responses::parse(body.as_bytes()).unwrap();
        let owed: Vec<Bytes> = owed.iter().map(|item| Bytes::copy_from_slice(item.as_bytes())).collect();
        Known::after(&request, body.as_bytes(), "resp_2".to_owned(), &[CALL.into()], &owed).to_bytes()
    }

    fn sent(body: &Bytes, request: &Request) -> String {
        let plan = Plan::default();
        let source = Source { body, request, plan: &plan, restored: &[] };
        String::from_utf8(write(&source, &Variant::plain(Placement::Suffix)).join().to_vec()).unwrap()
    }

    const NEXT: &str = r#"{"model":"m","previous_response_id":"resp_2", "input": [ {"type":"function_call_output","call_id":"call_1","output":"r"} ]}"#;

    #[test]
    fn the_history_kept_by_the_upstream_is_parsed_but_not_sent_again() {
        let body = Bytes::from_static(NEXT.as_bytes());
        let (all, request) = with_history(&body, &known(r#"{"input":"q"}"#, &[])).unwrap();
        let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(request.first_sent(), 2);
        assert_eq!(sent(&all, &request), NEXT);
        for text in [
            r#"{"previous_response_id":"resp_2","input":"and now?"}"#,
            r#"{"input":[],"previous_response_id":"resp_2"}"#,
        ] {
            let body = Bytes::copy_from_slice(text.as_bytes());
            let (all, request) = with_history(&body, &known(r#"{"input":"q"}"#, &[])).unwrap();
            assert_eq!(sent(&all, &request), text);
        }
    }

    #[test]
    fn the_upstream_gets_the_results_that_it_waits_for_and_its_own_id() {
        let owed = r#"{"type":"function_call_output","call_id":"call_9","output":"no"}"#;
        let body: Bytes = NEXT.replace("resp_2", "resp_1").into();
        let (all, request) = with_history(&body, &known(r#"{"input":"q"}"#, &[owed])).unwrap();
        let out: Value = serde_json::from_str(&sent(&all, &request)).unwrap();
        assert_eq!(out["previous_response_id"], "resp_2");
        let ids: Vec<&Value> = out["input"].as_array().unwrap().iter().map(|item| &item["call_id"]).collect();
        assert_eq!(ids, ["call_9", "call_1"]);
        let body = Bytes::from_static(br#"{"previous_response_id":"resp_1","input":"and now?"}"#);
        let (all, request) = with_history(&body, &known(r#"{"input":"q"}"#, &[owed])).unwrap();
        let out: Value = serde_json::from_str(&sent(&all, &request)).unwrap();
        assert_eq!(out["input"][0]["call_id"], "call_9");
        assert_eq!(out["input"][1], json!({"type": "message", "role": "user", "content": "and now?"}));
    }

    #[test]
    fn the_remembered_history_stays_bounded_over_a_long_chain_of_responses() {
        let long = "x".repeat(100_000);
        let mut kept = known(r#"{"input":"q"}"#, &[]);
        for _ in 0..300 {
            let body: Bytes = NEXT.replace("\"r\"", &format!("\"{long}\"")).into();
            let (all, request) = with_history(&body, &kept).unwrap();
            kept = Known::after(&request, &all, "resp_2".to_owned(), &[CALL.into()], &[]).to_bytes();
            assert!(kept.len() < MOST_BYTES + 4_096, "{}", kept.len());
        }
        assert!(kept.len() > MOST_BYTES / 2);
    }
}
