//! The hidden exchange of one reply: its items in order, and a synthetic result for each blocked call after them.

use super::items::OutItem;
use super::written::{judged_call, synthetic_result};
use crate::dialect::responses::rounds::Element;
use crate::plan::approval::{Question, Unasked, put_off};
use crate::plan::decision::Decision;
use crate::plan::envelope;

/// The elements of the reply `id` with these items.
pub fn elements(
    id: Option<&str>,
    items: &[OutItem],
    result: &dyn Fn(&Decision) -> Option<String>,
) -> Vec<Element> {
    let (mut elements, mut results) = (Vec::new(), Vec::new());
    elements.extend(id.map(|id| Element::Reply(id.to_owned())));
    for item in items.iter().filter(|item| !item.own) {
        let Some(call) = &item.call else {
            elements.extend(item.done.clone().map(Element::Shown));
            continue;
        };
        let written = || judged_call(call.kind, &call.assembled, item.done.as_ref());
        let as_made = || item.done.clone().filter(|_| !call.differs).unwrap_or_else(written);
        if call.is_released() {
            elements.push(Element::Shown(if call.is_written() { written() } else { as_made() }));
        } else if let Some(text) = call.decision.as_ref().and_then(result) {
            elements.push(Element::Hidden(as_made()));
            let result = synthetic_result(call.kind, &call.assembled, item.done.as_ref(), &text);
            results.extend(result.map(Element::Result));
        }
    }
    elements.extend(results);
    elements
}

/// What the model reads as the result of a call; `None` for one that it gets none for.
pub fn result_of(decision: &Decision, question: Option<&Result<Question, Unasked>>) -> Option<String> {
    Some(match decision {
        Decision::Block { policy, reason } => envelope(policy, reason),
        Decision::Ask { policy, reason, .. } => envelope(policy, &put_off(reason, question)),
        Decision::Answer { content, .. } => content.clone(),
        _ => return None,
    })
}
