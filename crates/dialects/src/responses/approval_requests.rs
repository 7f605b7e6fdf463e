//! Approval requests of a provider that a person approved first. Such a request was blocked and answered with a
//! refusal, as any call that waits for a person is, and the client was handed the same request under the same id. The
//! upstream must get each request once and one answer to it, the client's. Looks at the items of a written request;
//! knows of no question.

use super::item::{CallKind, Item, ItemKind};
use super::restore::items_of;
use crate::variant::{PlannedRequest, Variant};
use bytes::Bytes;
use memchr::memmem::find;
use wire::json::decode;
use wire::splice::{Rope, Splices};

/// Whether toolrein adds an approval request to the request, or an item that may be the second of its id.
pub fn are_added(planned: &PlannedRequest<'_>, variant: &Variant) -> bool {
    let rounds = variant.asking.iter().flat_map(|asking| &asking.rounds);
    let owed = planned.upstream.iter().map(|upstream| &upstream.owed);
    let mut added = planned.restored.iter().map(|(_, exchange)| exchange).chain(rounds).chain(owed);
    let wanted = CallKind::McpApproval.item_type().as_bytes();
    added.any(|items| find(items, wanted).is_some() || find(items, b"mcp_approval_response").is_some())
}

/// The request with each approval request once, and without the answers that came before the client had it; `None` if
/// nothing changes.
pub fn once_each(body: &Bytes) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let items = items_of(&request, body);
    let requests: Vec<(usize, String)> = positions(&items, body, ItemKind::Call(CallKind::McpApproval));
    let answers: Vec<(usize, String)> = positions(&items, body, ItemKind::Result);
    let mut gone = Vec::new();
    for (at, id) in &requests {
        // An answer before the first request says that the upstream keeps the request.
        let mentions = || requests.iter().chain(&answers).filter(|(_, other)| other == id);
        if mentions().any(|(other, _)| other < at) {
            gone.push(*at);
        }
    }
    for (at, id) in &answers {
        let is_later = |(other, of): &(usize, String)| other > at && of == id;
        let is_of_request = requests.iter().any(|(_, of)| of == id);
        if requests.iter().any(is_later) || (is_of_request && answers.iter().any(is_later)) {
            gone.push(*at);
        }
    }
    if gone.is_empty() {
        return None;
    }
    let places: Vec<(usize, &Item)> = items.iter().enumerate().collect();
    let mut splices = Splices::default();
    splices.remove_items(&places, |(_, item)| item.span, |(at, _)| gone.contains(at));
    Some(splices.apply(body))
}

/// The items of this kind: where they are, and the id of the call that each is or answers.
fn positions(items: &[Item], body: &[u8], kind: ItemKind) -> Vec<(usize, String)> {
    let of_kind = items.iter().enumerate().filter(|(_, item)| item.kind == kind);
    of_kind.filter_map(|(at, item)| Some((at, decode(item.call.id?, body).into_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// `?a` is a request with the id `a`, `-a` its refusal, `+a` its approval, and anything else a text.
    fn left(items: &str) -> String {
        let item = |word: &str| match word.split_at(1) {
            ("?", id) => json!({"type": "mcp_approval_request", "id": id, "name": "f", "server_label": "s",
                "arguments": "{}"}),
            (sign @ ("-" | "+"), id) => {
                json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": sign == "+"})
            }
            _ => json!({"role": "user", "content": word}),
        };
        let input: Vec<Value> = items.split(' ').map(item).collect();
        let body = Bytes::from(json!({ "input": input }).to_string());
        let out = once_each(&body).map_or(body, |rope| rope.join());
        let out: Value = serde_json::from_slice(&out).unwrap();
        let word = |item: &Value| match item["type"].as_str() {
            Some("mcp_approval_request") => format!("?{}", item["id"].as_str().unwrap()),
            Some(_) => {
                let sign = if item["approve"] == true { "+" } else { "-" };
                format!("{sign}{}", item["approval_request_id"].as_str().unwrap())
            }
            None => item["content"].as_str().unwrap().to_owned(),
        };
        out["input"].as_array().unwrap().iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_upstream_gets_each_approval_request_once_with_the_answer_that_came_after_it() {
        for (said, items, sent) in [
            ("approved by the client", "q ?a -a which yes ?a +a", "q ?a which yes +a"),
            ("declined by the client", "q ?a -a which yes ?a -a", "q ?a which yes -a"),
            ("not answered yet", "q ?a -a which yes ?a", "q ?a which yes"),
            ("declined by the person", "q ?a -a which no", "q ?a -a which no"),
            ("the upstream has the request", "-a which yes ?a +a", "which yes +a"),
            ("only the client has it", "q which yes ?a +a", "q which yes ?a +a"),
            ("two, and one is declined", "q ?a ?b -a -b which yes ?a ?b +b -a", "q ?a ?b which yes +b -a"),
            ("blocked after the approval", "q ?a -a which yes ?a -a", "q ?a which yes -a"),
            ("of another conversation", "+a more", "+a more"),
        ] {
            assert_eq!(left(items), sent, "{said}");
        }
    }
}
