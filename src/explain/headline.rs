//! The first sentence of an explanation: what happened to the conversation's calls, where that is known, else what would
//! have happened. Words only.

use super::facts::Explained;
use super::visible::{grouped_noun, one_line};
use crate::replay::live::LiveCounts;
use wire::plural::{counted, is_one};

/// In one sentence, how the conversation went, or would have gone.
pub(super) fn headline(explained: &Explained) -> String {
    match &explained.live_counts {
        Some(live_counts) => format!("{}, {}.", what_happened(live_counts), tokens(explained, "reads")),
        None => format!("{}, and {}.", what_would_have(explained), tokens(explained, "would have read")),
    }
}

/// The counts of calls, blocked ones included, as they are shown: those that happened, else those of the replay.
pub(super) fn counts(explained: &Explained) -> (u64, u64) {
    let totals = &explained.totals;
    let replayed = (totals.calls as u64, totals.blocked as u64);
    explained.live_counts.as_ref().map_or(replayed, |live_counts| (live_counts.calls, live_counts.blocked))
}

/// What this replay adds to what happened: calls that the client saw and that would be blocked now.
pub(super) fn replayed_blocks(explained: &Explained) -> Option<String> {
    let totals = &explained.totals;
    let differs = explained.live_counts.is_some() && totals.blocked > 0;
    differs.then(|| {
        let calls = counted(totals.calls, "call");
        format!("Of the {calls} that are shown, {} would be blocked in this replay.", totals.blocked)
    })
}

fn what_happened(live_counts: &LiveCounts) -> String {
    let LiveCounts { calls, blocked, refused, first_by, .. } = live_counts;
    let by = first_by.as_ref().map_or(String::new(), |policy| format!(", the first by {}", one_line(policy)));
    let calls = match (calls, blocked) {
        (0, _) => "The model made no calls".to_owned(),
        (1, 0) => "Its one call was not blocked".to_owned(),
        (1, 1) => format!("Its one call was blocked{}", by.replace("the first by", "by")),
        (all, 0) => format!("None of its {all} calls was blocked"),
        (all, blocked) => {
            let were = if is_one(*blocked) { "was" } else { "were" };
            format!("{blocked} of its {all} calls {were} blocked{by}")
        }
    };
    match refused {
        0 => calls,
        1 => format!("{calls}, a request was refused"),
        more => format!("{calls}, {more} requests were refused"),
    }
}

fn what_would_have(explained: &Explained) -> String {
    let totals = &explained.totals;
    let first = explained.messages.iter().flat_map(|shown| &shown.calls);
    let first = first.filter(|call| call.ruling.is_blocked()).find_map(|call| call.objections.first());
    let calls = match (totals.calls, totals.blocked) {
        (0, _) => "There were no calls to judge".to_owned(),
        (1, 0) => "Its one call would have run".to_owned(),
        (all, 0) => format!("All {all} calls would have run"),
        (all, blocked) => {
            let by = first.map_or(String::new(), |first| format!(", the first by {}", first.policy));
            format!("{blocked} of {} would have been blocked{by}", counted(all, "call"))
        }
    };
    match explained.refusals.as_slice() {
        [] => calls,
        [one] => format!("{calls}, a request would have been refused by {}", one.policy),
        more => format!("{calls}, {} requests would have been refused", more.len()),
    }
}

/// How much the model `reads` of the last request.
fn tokens(explained: &Explained, reads: &str) -> String {
    let totals = &explained.totals;
    match (totals.tokens_removed, totals.tokens_added) {
        (0, 0) => format!("the model {reads} the conversation as it was recorded"),
        (removed, added) if removed == added => format!("the model {reads} as many tokens"),
        (removed, added) if removed > added => {
            format!("the model {reads} {} less", grouped_noun(removed - added, "token"))
        }
        (removed, added) => format!("the model {reads} {} more", grouped_noun(added - removed, "token")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_said_in_the_past() {
        for (calls, blocked, refused, by, expected) in [
            (0, 0, 0, None, "The model made no calls"),
            (1, 0, 0, None, "Its one call was not blocked"),
            (1, 1, 0, Some("allow"), "Its one call was blocked, by allow"),
            (8, 0, 0, None, "None of its 8 calls was blocked"),
            (8, 1, 0, Some("loops"), "1 of its 8 calls was blocked, the first by loops"),
            (8, 4, 0, Some("budget"), "4 of its 8 calls were blocked, the first by budget"),
            (2, 0, 1, None, "None of its 2 calls was blocked, a request was refused"),
            (0, 0, 3, None, "The model made no calls, 3 requests were refused"),
        ] {
            let first_by = by.map(str::to_owned);
            let live_counts = LiveCounts { requests: 9, calls, blocked, refused, first_by };
            assert_eq!(what_happened(&live_counts), expected);
        }
    }
}
