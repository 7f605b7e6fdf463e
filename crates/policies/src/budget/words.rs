//! The texts of the budget, and how amounts are written in them.

use super::super::texts::Text;
use super::settings::Exhausted;
use model::account::{KINDS, Kind, Scope};
use model::plan::CALLS_OF_DAY;
use std::time::Duration;

/// The kinds in the order of [`ALL`].
const LISTED: [Kind; 5] = [Kind::Calls, Kind::Requests, Kind::Tokens, Kind::Nanodollars, Kind::Millis];

pub(super) const NOTICE: Text = Text {
    key: "notice",
    default: "[toolrein] Budget: {used}, ~{left}% left. {advice}",
    placeholders: &["used", "left", "advice"],
};
pub(super) const ADVICE: Text =
    Text { key: "advice", default: "Use the calls that are left for what matters most.", placeholders: &[] };
pub(super) const ADVICE_LOW: Text =
    Text { key: "advice_low", default: "Answer now with what you have, or ask the user.", placeholders: &[] };
pub(super) const ADVICE_OUT: Text = Text {
    key: "advice_used_up",
    default: "No tool calls left: answer now with what you have, or ask the user.",
    placeholders: &[],
};
pub(super) const FRESH: Text = Text {
    key: "fresh",
    default: "[toolrein] New turn: the tool budget is fresh, {limit} {limit:tool call/tool calls}.",
    placeholders: &["limit"],
};
pub(super) const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {used}. No tool calls left. Give your final answer now with what you have, or ask \
              the user how to go on.",
    placeholders: &["used"],
};
pub(super) const UNASKED: Text = Text {
    key: "unasked",
    default: "The call was not run: {used}. The user may allow more, and is asked only about replies that contain \
              nothing but such calls. Give your final answer now with what you have.",
    placeholders: &["used"],
};
pub(super) const QUESTION: Text = Text {
    key: "question",
    default: "The budget is used up: {used}. Your approval adds {extension}.",
    placeholders: &["used", "extension"],
};
pub(super) const EXTENSION_CALLS: Text =
    Text { key: "extension_calls", default: "{calls} more {calls:call/calls}", placeholders: &["calls"] };
pub(super) const EXTENSION_SHARE: Text =
    Text { key: "extension_share", default: "{percent}% of the limit", placeholders: &["percent"] };
pub(super) const REJECTED: Text = Text {
    key: "rejected",
    default: "The budget of {scope} is used up: {used}. {anew}",
    placeholders: &["scope", "used", "anew"],
};
pub(super) const ANEW_TURN: Text = Text {
    key: "anew_turn",
    default: "A new message of the user begins a new turn with a new budget.",
    placeholders: &[],
};
pub(super) const ANEW_CONVERSATION: Text = Text {
    key: "anew_conversation",
    default: "A new conversation begins with a new budget.",
    placeholders: &[],
};
pub(super) const ANEW_DAY: Text = Text {
    key: "anew_day",
    default: "The budget of the day begins anew at {reset_at}, in {wait}.",
    placeholders: &["reset_at", "wait"],
};
const CONTEXT: Text = line("conversation_context_tokens", "~{used} of {limit} {limit:token/tokens} used");

/// All of them: first how each amount is written, by scope and kind.
pub(super) static ALL: &[Text] = &[
    line("turn_tool_calls", "{used} of {limit} {limit:tool call/tool calls} of this turn used"),
    line("turn_requests", "{used} of {limit} {limit:model request/model requests} of this turn used"),
    line("turn_billed_tokens", "{used} of {limit} {limit:billed token/billed tokens} of this turn used"),
    line("turn_spend_usd", "{used} of {limit} spent in this turn"),
    line("turn_time", "{used} of {limit} of this turn's time used"),
    line(
        "conversation_tool_calls",
        "{used} of {limit} {limit:tool call/tool calls} of this conversation used",
    ),
    line(
        "conversation_requests",
        "{used} of {limit} {limit:model request/model requests} of this conversation used",
    ),
    line(
        "conversation_billed_tokens",
        "{used} of {limit} {limit:billed token/billed tokens} of this conversation used",
    ),
    line("conversation_spend_usd", "{used} of {limit} spent in this conversation"),
    line("conversation_time", "{used} of {limit} of this conversation's time used"),
    line("day_tool_calls", "{used} of {limit} {limit:tool call/tool calls} of today used"),
    line("day_requests", "{used} of {limit} {limit:model request/model requests} of today used"),
    line("day_billed_tokens", "{used} of {limit} {limit:billed token/billed tokens} of today used"),
    line("day_spend_usd", "{used} of {limit} spent today"),
    line("day_time", "{used} of {limit} of today's time used"),
    CONTEXT,
    NOTICE,
    ADVICE,
    ADVICE_LOW,
    ADVICE_OUT,
    FRESH,
    BLOCKED,
    UNASKED,
    QUESTION,
    EXTENSION_CALLS,
    EXTENSION_SHARE,
    REJECTED,
    ANEW_TURN,
    ANEW_CONVERSATION,
    ANEW_DAY,
];

const fn line(key: &'static str, default: &'static str) -> Text {
    Text { key, default, placeholders: &["used", "limit"] }
}

/// The text for an amount of `kind` in `scope`.
pub(super) fn line_of(scope: Scope, kind: Kind) -> &'static Text {
    let at = LISTED.iter().position(|listed| *listed == kind);
    at.and_then(|at| ALL.get(scope as usize * LISTED.len() + at)).unwrap_or(&CONTEXT)
}

/// A scope as people read it.
pub(super) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Turn => "this turn",
        Scope::Conversation => "this conversation",
        Scope::Day => "this day",
    }
}

/// What happens where a limit is used up, as `toolrein check` says it.
pub(super) fn effect(scope: Scope, kind: Kind, limit: u64, exhausted: Exhausted) -> String {
    let (of, until) = match scope {
        Scope::Turn => ("a turn", "until the user writes again"),
        Scope::Conversation => ("a conversation", "until a new conversation begins"),
        Scope::Day => ("a caller's day", "until midnight UTC"),
    };
    let amount = written(kind, limit);
    let amount = match kind {
        Kind::Calls => format!("{amount} tool calls"),
        Kind::Requests => format!("{amount} model requests"),
        Kind::Tokens => format!("{amount} billed tokens"),
        Kind::Context => format!("{amount} tokens of context"),
        Kind::Nanodollars | Kind::Millis => amount,
    };
    let then = match exhausted {
        _ if exhausted.refuses_after_answer(scope, kind) => {
            format!("the running turn gets one final answer, then requests are refused with 400 {until}")
        }
        Exhausted::Auto | Exhausted::Answer => {
            "calls are blocked and the model answers; text still passes".to_owned()
        }
        Exhausted::Inform => "the model is informed, and nothing is blocked or refused".to_owned(),
        Exhausted::Reject => format!("requests are refused with 400 {until}, without a final answer"),
        Exhausted::Ask => "a person is asked to extend it".to_owned(),
    };
    format!("{amount} in {of}: when it is used up, {then}")
}

/// The name of a limit in the log and in reports.
pub(super) fn name_of(scope: Scope, kind: Kind) -> &'static str {
    const NAMES: [[&str; KINDS]; 3] = [
        ["*", "turn:requests", "turn:billed_tokens", "turn:spend_microusd", "turn:time_ms", ""],
        [
            "conversation:tool_calls",
            "conversation:requests",
            "conversation:billed_tokens",
            "conversation:spend_microusd",
            "conversation:time_ms",
            "conversation:context_tokens",
        ],
        [CALLS_OF_DAY, "day:requests", "day:billed_tokens", "day:spend_microusd", "day:time_ms", ""],
    ];
    NAMES[scope as usize][kind as usize]
}

/// The names, with their units, of the numbers in the envelope of a blocked call: what is used, and the limit.
pub(super) fn numbers_of(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::Calls => ["calls_used", "calls_limit"],
        Kind::Requests => ["requests_used", "requests_limit"],
        Kind::Tokens => ["billed_tokens_used", "billed_tokens_limit"],
        Kind::Nanodollars => ["spend_microusd_used", "spend_microusd_limit"],
        Kind::Millis => ["time_ms_used", "time_ms_limit"],
        Kind::Context => ["tokens_used", "tokens_limit"],
    }
}

/// An amount as programs are given it: money in millionths of a dollar.
pub(super) fn number(kind: Kind, amount: u64) -> u64 {
    if kind == Kind::Nanodollars { amount / 1_000 } else { amount }
}

/// An amount as it is read.
pub(super) fn written(kind: Kind, amount: u64) -> String {
    match kind {
        Kind::Nanodollars => dollars(amount),
        // Tenths matter only in short times.
        Kind::Millis if amount < 10_000 && amount % 1_000 >= 100 => {
            format!("{}.{}s", amount / 1_000, amount % 1_000 / 100)
        }
        Kind::Millis => humantime::format_duration(Duration::from_secs(amount / 1_000)).to_string(),
        _ => amount.to_string(),
    }
}

/// Two digits after the point, and more where the amount is smaller than a cent.
fn dollars(nanodollars: u64) -> String {
    let dollars = nanodollars as f64 / 1e9;
    let is_whole_cents = nanodollars.is_multiple_of(10_000_000);
    if dollars >= 1.0 || is_whole_cents { format!("${dollars:.2}") } else { format!("${dollars:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::account::ALL_SCOPES;

    #[test]
    fn every_amount_has_the_text_and_the_name_of_its_scope_and_kind() {
        for (at, scope) in ["turn", "conversation", "day"].into_iter().enumerate() {
            for kind in LISTED {
                let key = line_of(ALL_SCOPES[at], kind).key;
                assert!(key.starts_with(scope), "{key}");
                let name = name_of(ALL_SCOPES[at], kind);
                let name = name.replace("microusd", "usd").replace("time_ms", "time").replace(':', "_");
                assert!(name == key || name == "*", "{name} {key}");
            }
        }
        assert_eq!(line_of(Scope::Conversation, Kind::Context).key, "conversation_context_tokens");
    }

    #[test]
    fn amounts_are_written_as_people_read_them() {
        for (kind, amount, text) in [
            (Kind::Calls, 12, "12"),
            (Kind::Nanodollars, 2_000_000_000, "$2.00"),
            (Kind::Nanodollars, 500_000_000, "$0.50"),
            (Kind::Nanodollars, 1_234_567, "$0.0012"),
            (Kind::Nanodollars, 1_234_567_890, "$1.23"),
            (Kind::Millis, 90_999, "1m 30s"),
            (Kind::Millis, 0, "0s"),
        ] {
            assert_eq!(written(kind, amount), text);
        }
    }
}
