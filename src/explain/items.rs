//! The items of an explained conversation as a list for the admin server: what was said, called, answered, noticed and
//! blocked, in order.

use super::facts::{Explained, Fate, Made, Piece, Ruled, Shown};
use serde_json::{Value, json};

/// The items, the oldest first; calls of the last reply are not in a request, and so not in it.
pub(super) fn items(explained: &Explained) -> Value {
    explained.messages.iter().flat_map(of_message).collect()
}

fn of_message(shown: &Shown) -> Vec<Value> {
    let text = text_of(&shown.pieces);
    let kind = match (shown.fate, shown.role) {
        (Fate::Added, _) => "notice",
        (_, "assistant") => "assistant",
        (_, "user") => "user",
        (_, "tool" | "function") => "result",
        _ => "system",
    };
    let is_said = !text.is_empty() || kind != "assistant";
    let said = is_said.then(|| {
        let mut item = item(kind);
        item["text"] = json!(text);
        item["tool"] = json!(shown.tool);
        item["is_error"] = json!((kind == "result").then_some(shown.is_failed));
        item["message"] = json!(shown.instead);
        item
    });
    let notices = shown.acts.iter().filter(|act| act.action == "notice").map(|act| {
        let mut item = item("notice");
        item["policy"] = json!(act.policy);
        item["text"] = json!(act.why);
        item
    });
    said.into_iter().chain(shown.calls.iter().map(of_call)).chain(notices).collect()
}

fn of_call(call: &Made) -> Value {
    let (kind, policy, message) = match &call.ruling {
        Ruled::Blocked { by, result } => ("blocked", Some(*by), Some(result)),
        Ruled::Answered { by, result } => ("call", Some(*by), Some(result)),
        Ruled::Rewritten { by, new_arguments } => ("call", Some(*by), Some(new_arguments)),
        Ruled::Released | Ruled::Refused | Ruled::Unjudged => ("call", None, None),
    };
    let mut item = item(kind);
    item["tool"] = json!(call.tool);
    item["arguments"] = json!(call.arguments);
    item["policy"] = json!(policy);
    item["message"] = json!(message);
    item
}

/// An item with all members.
fn item(kind: &str) -> Value {
    json!({
        "kind": kind, "text": null, "tool": null, "arguments": null, "policy": null, "message": null,
        "is_error": null,
    })
}

/// As the client sent it; a message of toolrein as the model was shown it.
fn text_of(pieces: &[Piece]) -> String {
    let texts = pieces.iter().filter_map(|piece| piece.before.as_deref().or(piece.after.as_deref()));
    texts.collect::<Vec<_>>().join("\n")
}
