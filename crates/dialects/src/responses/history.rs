//! Records of conversations that the upstream keeps: what is known of one after each reply, and the items that a later
//! request continues from. Policies read both as one conversation; only what the client sent now goes upstream. Long
//! results are shortened and old turns left out, so that the cost of a request does not grow with the length of the chain.

use super::OWN_ID;
use super::item::{Item, ItemKind, parse_item};
use super::request::{is_reference, source, take_shells};
use crate::upstream_history::UpstreamHistory;
use crate::variant::PlannedRequest;
use bytes::Bytes;
use model::message::Content;
use model::request::Request;
use model::source::{CLIENT, ItemId, Order, Origin};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use wire::body::{Scanner, Span};
use wire::json::{decode, escaped, quote};
use wire::members::members_of;
use wire::plural::counted;
use wire::splice::Splices;

/// Most bytes of items that are kept: those of some hundred calls with short results.
const MOST_BYTES: usize = 128 * 1024;
/// Most characters that are kept of one result: its beginning shows what it is.
const MOST_CHARS: usize = 1_000;
/// Most ids of toolrein's own that are kept: each is that of a call that a person approved.
const MOST_OWN_IDS: usize = 64;

/// What is known of a conversation after one reply.
#[derive(Default, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// The id of the upstream's last reply; empty where the upstream has none of the conversation.
    pub upstream_id: String,
    /// What the client sent and was shown, oldest first.
    pub items: Vec<Box<RawValue>>,
    /// Items that the upstream needs before those that the client sends next: results of blocked calls, and what was said
    /// since its last reply.
    pub owed: Vec<Box<RawValue>>,
    /// The ids of items that toolrein gave out and the upstream does not know, beside those of its messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// The response as the client has it, where toolrein made it and the upstream keeps none for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_reply: Option<Box<RawValue>>,
}

impl HistoryRecord {
    /// What is known after a reply: the items of the conversation, with those of the request, and of the reply that the
    /// client was shown.
    pub fn after(planned: &PlannedRequest<'_>, upstream_id: String, shown: &[Bytes], owed: &[Bytes]) -> Self {
        // What the upstream still needs is kept whole, so that policies read all of it before it is sent.
        let kept = |item: &Bytes| if owed.contains(item) { raw(item) } else { short(item) };
        let before = planned.upstream.and_then(|upstream| read_record(&upstream.record));
        let conversation = whole_conversation(planned, before.as_ref());
        let mut items: Vec<Box<RawValue>> = conversation.iter().filter_map(kept).collect();
        items.extend(shown.iter().filter_map(short));
        bound(&mut items);
        let owed = owed.iter().filter_map(|item| raw(item)).collect();
        let own = before.map(|before| before.own).unwrap_or_default();
        Self { upstream_id, items, owed, own, own_reply: None }
    }

    /// The same, after a reply of toolrein's own that no upstream keeps.
    #[must_use]
    pub fn with_own_reply(self, response: &[u8]) -> Self {
        Self { own_reply: raw(response), ..self }
    }

    /// The same, with the ids of further items that the upstream does not know.
    #[must_use]
    pub fn with_own_ids(mut self, ids: impl Iterator<Item = String>) -> Self {
        self.own.extend(ids.filter(|id| !id.starts_with(OWN_ID)));
        let surplus = self.own.len().saturating_sub(MOST_OWN_IDS);
        self.own.drain(..surplus);
        self
    }

    /// Whether toolrein gave out the item with this id, so that the upstream does not know it.
    pub fn is_own(&self, id: &str) -> bool {
        id.starts_with(OWN_ID) || self.own.iter().any(|own| own == id)
    }

    /// As the state store keeps it.
    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The upstream's id of the last reply, from what is known of a conversation.
pub fn upstream_id(known: &[u8]) -> Option<String> {
    let known = read_record(known)?;
    Some(known.upstream_id).filter(|id| !id.is_empty())
}

/// The response of toolrein's own that a client reads again by its id, from what is known of its conversation.
pub fn own_reply(known: &[u8]) -> Option<Bytes> {
    let known = read_record(known)?;
    Some(Bytes::from(known.own_reply?.get().to_owned()))
}

/// The state of the upstream after a request that was not sent to it: the id of its last reply, empty where it has none, and
/// the items that it needs next, those of the request included.
pub fn continued_by(planned: &PlannedRequest<'_>) -> (String, Vec<Bytes>) {
    let PlannedRequest { request, body, upstream, .. } = *planned;
    let named = request.value(body, "previous_response_id");
    let named: Option<String> = named.and_then(|id| serde_json::from_slice(id.of(body)).ok());
    let id = upstream.and_then(|upstream| upstream.upstream_id.clone()).or(named).unwrap_or_default();
    let owed = upstream.map(|upstream| [b"[", &upstream.owed[..], b"]"].concat());
    let owed: Vec<Box<RawValue>> =
        owed.and_then(|list| serde_json::from_slice(&list).ok()).unwrap_or_default();
    let owed = owed.iter().map(|item| Bytes::copy_from_slice(item.get().as_bytes()));
    (id, owed.chain(sent_items(planned)).collect())
}

fn raw(item: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(item.to_vec()).ok()?).ok()
}

fn read_record(record: &[u8]) -> Option<HistoryRecord> {
    serde_json::from_slice(record).ok()
}

/// The items of the conversation: those that the request continues from, as far as the record `before` has them, and its
/// own.
fn whole_conversation(planned: &PlannedRequest<'_>, before: Option<&HistoryRecord>) -> Vec<Bytes> {
    let before = before.filter(|_| planned.request.continues.is_some());
    let items = before.into_iter().flat_map(|before| &before.items);
    let items = items.map(|item| Bytes::copy_from_slice(item.get().as_bytes()));
    items.chain(sent_items(planned)).collect()
}

/// The request with all items of the conversation as its input.
pub fn whole_request(planned: &PlannedRequest<'_>) -> Bytes {
    let PlannedRequest { request, body, upstream, .. } = *planned;
    let Some(upstream) = upstream else { return body.clone() };
    let before = read_record(&upstream.record);
    let items = [b"[", &whole_conversation(planned, before.as_ref()).join(&b","[..])[..], b"]"].concat();
    let mut splices = Splices::default();
    splices.replace(request.messages_span, items);
    splices.apply(body).join()
}

/// The items of the request, each that it refers to in the place of the reference.
fn sent_items(planned: &PlannedRequest<'_>) -> Vec<Bytes> {
    let PlannedRequest { request, body, upstream, .. } = *planned;
    let input = request.messages_span.of(body);
    if input.starts_with(b"\"") {
        return vec![user_message(input)];
    }
    let written = |item: &Item| {
        let named = upstream.and_then(|upstream| upstream.item_at(item.span));
        Bytes::copy_from_slice(named.unwrap_or_else(|| item.span.of(body)))
    };
    super::restore::items_of(request, body).iter().map(written).collect()
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
        ItemKind::Reasoning | ItemKind::Carried => raw(&known_by_id(item, &read)?),
        ItemKind::Result => raw(&shortened(item, &read)),
        // Read later as the item itself, it would hide that this is not known.
        ItemKind::Other if is_reference(item) => None,
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

/// What a record says of the items that the request continues from, or refers to.
pub fn upstream_history(request: &mut Request, body: &Bytes, record: &Bytes) -> Option<UpstreamHistory> {
    let known = read_record(record)?;
    if request.continues.is_none() {
        return Some(super::references::resolved(request, body, record, &known));
    }
    // A client that sends nothing new lets the upstream continue by itself.
    if !matches!(request.messages_span.of(body).first(), Some(b'[' | b'"')) {
        return None;
    }
    let members = members_of(record, Span::new(0, record.len()));
    let items = members.iter().find(|member| member.key.raw(record) == b"items")?.value;
    let read = |request: &Request| source(Origin::Upstream, record.clone(), items, request.hosts_shell);
    let mut source = read(request)?;
    if take_shells(request, std::slice::from_ref(&source)) {
        source = read(request)?;
    }
    let mut order = Order::default();
    order.add(ItemId::first_of(CLIENT + 1), source.messages.len());
    let continues = request.value(body, "previous_response_id").map(|id| id.of(body).to_vec());
    let alias = serde_json::to_vec(&known.upstream_id).ok().filter(|id| continues.as_ref() != Some(id));
    let owed = known.owed.iter().map(|item| item.get()).collect::<Vec<_>>().join(",");
    Some(UpstreamHistory {
        record: record.clone(),
        sources: vec![Arc::new(source)],
        order,
        upstream_id: alias.filter(|_| continues.is_some()).map(|_| known.upstream_id.clone()),
        owed: owed.into(),
        ..UpstreamHistory::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::write;
    use crate::variant::{Placement, Variant};
    use model::adaptation::Adaptation;
    use model::message::Role;
    use model::plan::Plan;
    use serde_json::{Value, json};

    const CALL: &str =
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}"#;

    fn known(body: &str, owed: &[&str]) -> Bytes {
        let (body, plan) = (Bytes::copy_from_slice(body.as_bytes()), Plan::default());
        let request = crate::responses::parse(&body).unwrap();
        let owed: Vec<Bytes> = owed.iter().map(|item| Bytes::copy_from_slice(item.as_bytes())).collect();
        let planned = PlannedRequest::new(&body, &request, &plan);
        HistoryRecord::after(&planned, "resp_2".to_owned(), &[CALL.into()], &owed).to_bytes()
    }

    /// The request `body`, with what `record` says of it, as it is sent; and the record after its reply.
    fn sent(body: &str, record: &Bytes) -> (String, Bytes, UpstreamHistory) {
        sent_as(&Variant::plain(Placement::Suffix), body, record)
    }

    fn sent_as(variant: &Variant, body: &str, record: &Bytes) -> (String, Bytes, UpstreamHistory) {
        let (body, plan) = (Bytes::copy_from_slice(body.as_bytes()), Plan::default());
        let mut request = crate::responses::parse(&body).unwrap();
        let upstream = upstream_history(&mut request, &body, record).unwrap();
        let planned =
            PlannedRequest { upstream: Some(&upstream), ..PlannedRequest::new(&body, &request, &plan) };
        let out = write(&planned, variant).join();
        let next = HistoryRecord::after(&planned, "resp_2".to_owned(), &[CALL.into()], &[]).to_bytes();
        (String::from_utf8(out.to_vec()).unwrap(), next, upstream)
    }

    const NEXT: &str = r#"{"model":"m","previous_response_id":"resp_2", "input": [ {"type":"function_call_output","call_id":"call_1","output":"r"} ]}"#;

    #[test]
    fn the_history_kept_by_the_upstream_is_a_source_before_the_clients_items_and_not_sent_again() {
        let (out, _, upstream) = sent(NEXT, &known(r#"{"input":"q"}"#, &[]));
        let roles: Vec<Role> = upstream.sources[0].messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant]);
        assert_eq!(upstream.order.id(1), ItemId { source: 1, index: 1 });
        assert_eq!(upstream.order.id(2), ItemId::of_client(0));
        assert_eq!(out, NEXT);
        for text in [
            r#"{"previous_response_id":"resp_2","input":"and now?"}"#,
            r#"{"input":[],"previous_response_id":"resp_2"}"#,
        ] {
            assert_eq!(sent(text, &known(r#"{"input":"q"}"#, &[])).0, text);
        }
    }

    #[test]
    fn the_upstream_gets_the_results_that_it_waits_for_and_its_own_id() {
        let owed = r#"{"type":"function_call_output","call_id":"call_9","output":"no"}"#;
        let record = known(r#"{"input":"q"}"#, &[owed]);
        let out: Value = serde_json::from_str(&sent(&NEXT.replace("resp_2", "resp_1"), &record).0).unwrap();
        assert_eq!(out["previous_response_id"], "resp_2");
        let ids: Vec<&Value> = out["input"].as_array().unwrap().iter().map(|item| &item["call_id"]).collect();
        assert_eq!(ids, ["call_9", "call_1"]);
        for (input, answer) in [
            (r#""and now?""#, json!({"type": "message", "role": "user", "content": "and now?"})),
            (r#"[{"role":"user","content":"now"}]"#, json!({"role": "user", "content": "now"})),
            ("[]", Value::Null),
        ] {
            let text = format!(r#"{{"previous_response_id":"resp_1","input":{input}}}"#);
            let out: Value = serde_json::from_str(&sent(&text, &record).0).unwrap();
            assert_eq!(out["input"][0]["call_id"], "call_9", "{input}");
            assert_eq!(out["input"][1], answer, "{input}");
        }
    }

    #[test]
    fn people_read_the_whole_conversation_of_a_request_that_continues_one() {
        let (body, plan) = (Bytes::from_static(NEXT.as_bytes()), Plan::default());
        let mut request = crate::responses::parse(&body).unwrap();
        let upstream = upstream_history(&mut request, &body, &known(r#"{"input":"q"}"#, &[])).unwrap();
        let planned = PlannedRequest::new(&body, &request, &plan);
        assert_eq!(whole_request(&planned), body);
        let whole = whole_request(&PlannedRequest { upstream: Some(&upstream), ..planned });
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let input = whole["input"].as_array().unwrap();
        let kinds: Vec<&Value> = input.iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, [&Value::Null, &json!("function_call"), &json!("function_call_output")]);
        assert_eq!((&input[0]["content"], &whole["model"]), (&json!("q"), &json!("m")));
    }

    #[test]
    fn a_model_without_tools_is_told_so_where_the_upstream_keeps_the_history_too() {
        let variant = Variant::plain(Placement::System).with(Adaptation::Tools);
        let record = known(r#"{"input":"q"}"#, &[]);
        let body = r#"{"previous_response_id":"resp_2","input":"and now?","tools":[{}]}"#;
        let out: Value = serde_json::from_str(&sent_as(&variant, body, &record).0).unwrap();
        let [asked, told] = out["input"].as_array().unwrap().as_slice() else { panic!("{out}") };
        assert_eq!(asked["content"], "and now?");
        assert!(
            told["content"][0]["text"].as_str().unwrap().starts_with("[toolrein] No tools can be called")
        );
        assert_eq!(out["tools"], Value::Null);
    }

    #[test]
    fn a_reference_to_an_item_that_is_not_known_is_not_remembered_as_the_item() {
        let record =
            known(r#"{"input":[{"role":"user","content":"q"},{"type":"item_reference","id":"fc_9"}]}"#, &[]);
        let record: Value = serde_json::from_slice(&record).unwrap();
        let ids: Vec<&Value> = record["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
        assert_eq!(ids, [&Value::Null, &json!("fc_1")]);
    }

    #[test]
    fn the_remembered_history_stays_bounded_over_a_long_chain_of_responses() {
        let long = "x".repeat(100_000);
        let mut kept = known(r#"{"input":"q"}"#, &[]);
        for _ in 0..300 {
            kept = sent(&NEXT.replace("\"r\"", &format!("\"{long}\"")), &kept).1;
            assert!(kept.len() < MOST_BYTES + 4_096, "{}", kept.len());
        }
        assert!(kept.len() > MOST_BYTES / 2);
    }
}
