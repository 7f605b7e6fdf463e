//! Restoring hidden exchanges among the items that the client sends back: each blocked call goes after the item of
//! its own reply that came before it and that the client was shown; each synthetic result goes after the reply.

use super::item::{CallKind, Item, ItemKind, parse_item};
use super::request::is_reference;
use super::rounds::{Element, read};
use bytes::Bytes;
use model::message::Content;
use model::request::Request;
use wire::body::{Scanner, Span};
use wire::json::decode;
use wire::members::members_of;
use wire::splice::Splices;

/// Puts `exchange` back among those of `items`, all of the input, that are in the message `span`.
pub fn restore(items: &[Item], body: &[u8], span: Span, exchange: &[u8], splices: &mut Splices) {
    let first = items.partition_point(|item| item.span.start < span.start);
    let end = items.partition_point(|item| item.span.start < span.end);
    let items = &items[first..end];
    for (after, added) in placed(items, body, read(exchange)) {
        match after.checked_sub(1).and_then(|last| items.get(last)) {
            Some(item) => splices.insert(item.span.end, [b",", &added[..]].concat()),
            None => splices.insert(span.start, [&added[..], b","].concat()),
        }
    }
}

/// The items of the request's input.
pub fn items_of(request: &Request, body: &[u8]) -> Vec<Item> {
    let mut scanner = Scanner::within(body, request.messages_span);
    let mut items = Vec::new();
    if request.messages_span.is_empty() || scanner.array().is_err() {
        return items;
    }
    while let Ok(true) = scanner.element() {
        let Ok(item) = parse_item(&mut scanner) else { break };
        items.push(item);
    }
    items
}

/// The items that are put back, each with how many of the client's items come before it.
fn placed(items: &[Item], body: &[u8], elements: Vec<Element>) -> Vec<(usize, Bytes)> {
    let (mut out, mut at) = (Vec::new(), 0);
    // The reasoning before the next item, where the client has dropped it.
    let mut reasoning: Option<Bytes> = None;
    // The reasoning of this reply cannot be put back, so its calls go without the ids that would need it.
    let mut is_bare = false;
    for element in elements {
        match element {
            Element::Reply(_) => (reasoning, is_bare) = (None, false),
            Element::Shown(shown) => {
                let known = parse_item(&mut Scanner::new(&shown)).ok();
                let same =
                    |item: &Item| known.as_ref().is_some_and(|known| is_same(known, &shown, item, body));
                match items[at..].iter().position(same) {
                    Some(found) => {
                        at += found + 1;
                        is_bare |= reasoning.take().is_some();
                    }
                    None if known.is_some_and(|known| known.kind == ItemKind::Reasoning) => {
                        is_bare |= reasoning.is_some();
                        reasoning = Some(shown);
                    }
                    None => is_bare |= reasoning.take().is_some(),
                }
            }
            Element::Hidden(hidden) => {
                out.extend(reasoning.take().map(|reasoning| (at, reasoning)));
                out.push((at, if is_bare { without_id(&hidden) } else { hidden }));
            }
            Element::Result(result) => out.push((at, result)),
        }
    }
    out
}

/// Whether `item` of the client's is the one that it was shown, or refers to it.
fn is_same(known: &Item, shown: &[u8], item: &Item, body: &[u8]) -> bool {
    let refers = item.kind == ItemKind::Other && is_reference(item.span.of(body));
    if known.kind != item.kind && !refers {
        return false;
    }
    let texts = |item: &Item, text: &[u8]| {
        let content = item.content.as_ref().unwrap_or(&Content::Absent);
        content.texts().map(|part| decode(part, text).into_owned()).collect::<String>()
    };
    match (known.id, item.id, known.call.id, item.call.id) {
        (Some(one), Some(other), ..) => decode(one, shown) == decode(other, body),
        (_, _, Some(one), Some(other)) => decode(one, shown) == decode(other, body),
        _ if refers => false,
        _ if matches!(known.kind, ItemKind::Message(_)) => texts(known, shown) == texts(item, body),
        // Clients leave out ids of reasoning and of hosted calls, but keep the order.
        _ => true,
    }
}

/// What the item is.
pub fn kind_of(item: &Bytes) -> ItemKind {
    parse_item(&mut Scanner::new(item)).map(|item| item.kind).unwrap_or_default()
}

/// The kind of an item and its id; `None` where it has no id.
pub fn kind_and_id(item: &[u8]) -> Option<(ItemKind, String)> {
    let read = parse_item(&mut Scanner::new(item)).ok()?;
    Some((read.kind, decode(read.id?, item).into_owned()))
}

/// An item of toolrein's own as the upstream gets it: without its `id`, unless the client answers it by its `id`.
pub fn as_new(item: &Bytes) -> Bytes {
    let is_shell = kind_of(item) == ItemKind::Call(CallKind::LocalShell);
    if is_shell { item.clone() } else { without_id(item) }
}

/// An item without its `id`, where it can do without: an approval request is answered by its id.
pub fn without_id(item: &Bytes) -> Bytes {
    if kind_of(item) == ItemKind::Call(CallKind::McpApproval) {
        return item.clone();
    }
    let members = members_of(item, Span::new(0, item.len()));
    let mut splices = Splices::default();
    splices.remove_members(&members, |member| member.key.raw(item) == b"id");
    splices.apply(item).join()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::rounds::write;
    use serde_json::{Value, json};

    fn bytes(value: &Value) -> Bytes {
        value.to_string().into()
    }

    fn shown(value: &Value) -> Element {
        Element::Shown(bytes(value))
    }

    fn put_back(items: &[Value], elements: &[Element]) -> Vec<String> {
        let mut input = vec![json!({"role": "user", "content": "q"})];
        input.extend(items.iter().cloned());
        let body: Bytes = json!({ "input": input }).to_string().into();
        let request = crate::responses::parse(&body).unwrap();
        let mut splices = Splices::default();
        let items = items_of(&request, &body);
        restore(&items, &body, request.messages[1].span, &write(elements), &mut splices);
        let out: Value = serde_json::from_slice(&splices.apply(&body).join()).unwrap();
        let name = |item: &Value| item["id"].as_str().or(item["call_id"].as_str()).unwrap_or("-").to_owned();
        out["input"].as_array().unwrap()[1..].iter().map(name).collect()
    }

    fn reasoning(id: &str) -> Value {
        json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": id})
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"), "name": "f", "arguments": "{}"})
    }

    fn result(id: &str) -> Element {
        let result = json!({"type": "function_call_output", "call_id": format!("call_{id}"), "output": "no"});
        Element::Result(bytes(&result))
    }

    fn text(id: &str) -> Value {
        json!({"type": "message", "role": "assistant", "id": id, "content": [{"type": "output_text", "text": id}]})
    }

    #[test]
    fn a_blocked_call_comes_back_after_its_reasoning_and_before_the_next_reply() {
        let elements = [
            Element::Reply("resp_1".into()),
            shown(&reasoning("rs_1")),
            Element::Hidden(bytes(&call("1"))),
            result("1"),
        ];
        let items = [reasoning("rs_1"), reasoning("rs_2"), text("msg_2")];
        assert_eq!(put_back(&items, &elements), ["rs_1", "fc_1", "call_1", "rs_2", "msg_2"]);
    }

    #[test]
    fn a_blocked_call_beside_a_released_one_keeps_its_place() {
        let hidden = Element::Hidden(bytes(&call("b")));
        let before = [hidden.clone(), shown(&call("a")), result("b")];
        assert_eq!(put_back(&[call("a")], &before), ["fc_b", "fc_a", "call_b"]);
        let after = [shown(&call("a")), hidden, result("b")];
        assert_eq!(put_back(&[call("a")], &after), ["fc_a", "fc_b", "call_b"]);
    }

    #[test]
    fn several_replies_come_back_in_order() {
        let elements = [
            Element::Reply("resp_1".into()),
            shown(&text("msg_1")),
            Element::Hidden(bytes(&call("1"))),
            result("1"),
            Element::Reply("resp_2".into()),
            Element::Hidden(bytes(&call("2"))),
            result("2"),
        ];
        let items = [text("msg_1"), text("msg_3")];
        let expected = ["msg_1", "fc_1", "call_1", "fc_2", "call_2", "msg_3"];
        assert_eq!(put_back(&items, &elements), expected);
    }

    #[test]
    fn items_whose_ids_the_client_dropped_are_found_by_call_id_and_text() {
        let mut bare = [text("msg_1"), call("a")];
        bare.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("id")));
        let elements =
            [shown(&text("msg_1")), shown(&call("a")), Element::Hidden(bytes(&call("b"))), result("b")];
        assert_eq!(put_back(&bare, &elements), ["-", "call_a", "fc_b", "call_b"]);
    }

    #[test]
    fn a_blocked_call_whose_reasoning_the_client_dropped_brings_it_back_or_goes_without_its_id() {
        let hidden = Element::Hidden(bytes(&call("1")));
        let next = [shown(&reasoning("rs_1")), hidden.clone(), result("1")];
        assert_eq!(put_back(&[text("msg_2")], &next), ["rs_1", "fc_1", "call_1", "msg_2"]);
        let apart = [shown(&reasoning("rs_1")), shown(&call("a")), hidden, result("1")];
        let mut bare = call("a");
        bare.as_object_mut().unwrap().remove("id");
        assert_eq!(put_back(&[bare], &apart), ["call_a", "call_1", "call_1"]);
    }
}
