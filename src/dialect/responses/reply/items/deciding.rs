//! Decisions on the calls of a reply, in their order and as early as may be.

use super::{CHOICE, Call, OutItem};
use crate::dialect::judge::CallJudge;
use crate::dialect::responses::item::ItemKind;
use model::plan::decision::{Decision, Known};
use wire::json::escape_into;

/// How far a reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    Ended,
    /// It ended before the model had finished: for its length, or by a filter.
    Cut,
}

/// Decides on calls in their order, as far as possible now.
pub fn decide(items: &mut [OutItem], progress: Progress, judging: &mut dyn CallJudge, now_ms: u64) {
    let last = items.iter().rposition(|item| !item.own);
    let last_call = items.iter().rposition(|item| item.call.is_some());
    for (at, item) in items.iter_mut().enumerate() {
        let is_complete = item.done.is_some();
        let Some(call) = item.call.as_mut() else { continue };
        if progress == Progress::Cut && Some(at) == last_call {
            call.drop_if_cut(is_complete);
        }
        if call.decision.is_some() {
            continue;
        }
        if !is_complete {
            block_by_name(call, judging, now_ms);
            if progress != Progress::Open && call.decision.is_none() {
                call.is_begun_only = call.ended.is_none();
                call.take_pieces();
            }
        }
        let may_be_cut = Some(at) == last_call && call.may_be_cut();
        let known = match progress {
            _ if call.decision.is_some() => continue,
            _ if (is_complete || progress != Progress::Open) && call.is_placeholder() && !call.differs => {
                // An item of this index that comes later with a name is another call than this one.
                (call.decision, call.with_arguments) = (Some(Decision::Release), true);
                continue;
            }
            Progress::Cut if may_be_cut => Known::Cut,
            // The next event says whether the reply was cut within the call.
            Progress::Open if is_complete && may_be_cut && Some(at) == last => return,
            Progress::Ended | Progress::Cut if call.is_begun_only && call.has_open_arguments() => Known::Cut,
            Progress::Ended | Progress::Cut => Known::Whole,
            Progress::Open if is_complete => Known::Whole,
            _ if call.name_passes && judging.needs_name_alone(CHOICE, &call.assembled, now_ms) => Known::Name,
            _ => return,
        };
        let decision = judging.decide(CHOICE, &call.assembled, known, now_ms);
        call.with_arguments = known != Known::Name;
        set(call, decision);
    }
}

/// Settles calls that came in pieces alone, at the end of the reply. A piece that says a name is a call that a client
/// may run; without a name pieces are none. OGX sends such pieces for tools that it runs itself.
pub fn settle_pieces(items: &mut [OutItem]) {
    for item in items.iter_mut().filter(|item| item.done.is_none()) {
        let first_id = item.ids.first();
        let Some(call) = item.call.as_mut().filter(|call| call.needs_a_name()) else { continue };
        if let Some(name) = &call.said_name {
            escape_into(name, &mut call.assembled.name);
            if let Some(id) = first_id.filter(|_| call.assembled.id.is_empty()) {
                escape_into(id, &mut call.assembled.id);
            }
            continue;
        }
        (item.call, item.kind, item.is_unclaimed) = (None, ItemKind::Other, true);
    }
}

/// Blocks a call whose turn has come, if its name is enough for that.
pub fn block_by_name(call: &mut Call, judging: &mut dyn CallJudge, now_ms: u64) {
    if call.name_passes || call.assembled.name.is_empty() || call.decision.is_some() {
        return;
    }
    match judging.block_by_name(CHOICE, &call.assembled, now_ms) {
        Some(decision) => call.decision = Some(decision),
        None => call.name_passes = true,
    }
}

/// Lets every undecided call through.
pub fn release_rest(items: &mut [OutItem], judging: &mut dyn CallJudge) {
    for call in items.iter_mut().filter_map(|item| item.call.as_mut()) {
        if call.decision.is_none() {
            let decision = judging.release_unjudged(CHOICE, &call.assembled);
            set(call, decision);
        }
    }
}

/// Takes the decision on a call, with the arguments that it changes.
pub fn set(call: &mut Call, decision: Decision) {
    if let Decision::Rewrite { arguments }
    | Decision::Ask { arguments: Some(arguments), .. }
    | Decision::Hold { arguments: Some(arguments), .. } = &decision
    {
        call.assembled.arguments.clear();
        escape_into(arguments, &mut call.assembled.arguments);
    }
    call.decision = Some(decision);
}
