//! The hidden exchange of one reply: the assistant message with all of its blocks as the protocol takes them back, and the user
//! message with a result for each call that the client does not see. The member `shown` of the former says which blocks the client
//! has; the request writer removes it.

use super::block::Block;
use crate::accepted::new_id;
use crate::codec::KnownIds;
use crate::repair::{harmless_arguments, is_object};
use crate::reply_choice::{ReplyCall, ReplyChoice};
use bytes::Bytes;
use model::assembled::Assembled;
use model::plan::decision::{Decision, dropped_result};
use wire::json::{escaped, quote};

/// The exchange; `None` if nothing is hidden.
pub fn hidden_exchange(blocks: &[Block], choice: &ReplyChoice, known_ids: &KnownIds) -> Option<Bytes> {
    // Only a call that was decided on and that the client does not see has a result.
    if !choice.calls().iter().any(|call| call.decision.is_some() && !call.is_released()) {
        return None;
    }
    // Reasoning must not lose the call after it: beside reasoning a call that nobody sees goes back with a result too.
    let reasons = blocks.iter().any(Block::is_reasoning);
    let result = |call: &ReplyCall| match call.decision.as_ref()? {
        Decision::Drop => reasons.then(dropped_result),
        decision => decision.hidden_result(choice.question.as_ref()),
    };
    let (mut content, mut shown, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks.iter().filter(|block| !block.is_empty_text()) {
        let position = content.len().to_string();
        let Some((at, call)) = block.call.and_then(|at| Some((at, choice.calls().get(at)?))) else {
            shown.extend(block.is_visible(choice).then_some(position));
            content.push(block.json());
            continue;
        };
        if call.is_placeholder() {
            continue;
        }
        if call.is_released() {
            shown.push(position);
            content.push(with_input(block, &call.assembled));
        } else if let Some(result) = result(call) {
            let form = accepted(at, choice, known_ids);
            let is_answered =
                matches!(call.decision, Some(Decision::Answer { .. } | Decision::Clarify { .. }));
            results.push(format!(
                r#"{{"type":"tool_result","tool_use_id":"{}",{}"content":{}}}"#,
                String::from_utf8_lossy(&form.id),
                if is_answered { "" } else { r#""is_error":true,"# },
                quote(&result)
            ));
            content.push(with_input(block, &form));
        }
    }
    let (content, shown) = (content.join(&b","[..]), shown.join(","));
    let text = format!(
        r#"{{"role":"assistant","content":[{}],"shown":[{shown}]}},{{"role":"user","content":[{}]}}"#,
        String::from_utf8_lossy(&content),
        results.join(",")
    );
    (!results.is_empty()).then(|| text.into())
}

/// The block as this call: no history may hold arguments that are no object.
fn with_input(block: &Block, call: &Assembled) -> Bytes {
    let arguments = call.arguments();
    let input = if is_object(&arguments) { arguments } else { harmless_arguments(&arguments) };
    block.json_of(call, &input)
}

/// The call at this position with a name and an id that every provider accepts.
fn accepted(at: usize, choice: &ReplyChoice, known_ids: &KnownIds) -> Assembled {
    let call = &choice.calls()[at];
    let mut form = call.accepted.of(&call.assembled);
    let is_accepted = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if form.id.is_empty() || !form.id.iter().all(is_accepted) {
        let is_used = |id: &str| {
            let is_in_reply = choice.calls().iter().any(|other| other.assembled.id == id.as_bytes());
            is_in_reply || known_ids.has(id)
        };
        form.id = escaped(&new_id(&call.assembled, at, is_used));
    }
    form
}
