//! The explanation as one self-contained HTML page: no script, light and dark, two columns where there is room. Only
//! lays out; maud escapes, and every text from the recording passes `visible` or `one_line` first.

mod top;

use super::facts::{
    Act, Explained, Fate, Kind, Limit, Made, Objection, Piece, Refused, Rule, Ruled, Shown, Size,
};
use super::marks::{Mark, Run, compare};
use super::text::UNKNOWN_APPROVALS;
use super::visible::{abridged, grouped, grouped_noun, grouped_signed, one_line, saved_in_words, visible};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::cmp::Ordering;
use std::io::{self, Write};

const STYLE: &str = include_str!("page.css");
const NO_SCRIPT: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The line after the first call that would have been blocked and was not.
const GONE_ANOTHER_WAY: &str =
    "A live run would have gone another way from here. What follows is shown as it was recorded.";

/// Writes the page; texts are shown whole where it is `full`.
pub(super) fn write(explained: &Explained, full: bool, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(page(explained, full).into_string().as_bytes())
}

fn page(explained: &Explained, full: bool) -> Markup {
    let file = one_line(&explained.file);
    let place = if explained.line == 0 { file.into_owned() } else { format!("{file}:{}", explained.line) };
    let refusals_at = |shown: &Shown| {
        let (message, is_added) = (shown.message, shown.fate == Fate::Added);
        explained.refusals.iter().filter(move |refused| refused.message == message && !is_added)
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta http-equiv="Content-Security-Policy" content=(NO_SCRIPT);
                title { (place) " explained" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (place) } (labels(explained)) }
                (top::summary(explained))
                input #only type="checkbox"; label for="only" { "Only what changed" }
                main {
                    @for shown in &explained.messages {
                        (message(shown, full))
                        @for refused in refusals_at(shown) { (refusal(refused)) }
                        @if explained.counterfactual_after == Some(shown.message) && shown.fate != Fate::Added {
                            p.counterfactual role="separator" { span { (GONE_ANOTHER_WAY) } }
                        }
                    }
                }
                (live(explained, full))
                (sums(explained))
                (limits(explained))
                (tools(explained))
                (footer(explained))
            }
        }
    }
}

/// What toolrein did when this was recorded.
fn live(explained: &Explained, full: bool) -> Markup {
    let short = |text: &str| {
        let (start, left_out, _) = abridged(text, full);
        format!("{}{}", visible(start), if left_out > 0 { " …" } else { "" })
    };
    let used = |rule: &Rule| {
        let of = rule.used.zip(rule.limit);
        of.map_or(String::new(), |(used, limit)| format!(", {} of {} used", grouped(used), grouped(limit)))
    };
    html! {
        @if !explained.live.is_empty() {
            h2 { "Live, when this was recorded" }
            table {
                tr { th { "time" } th { "call" } th { "rule" } th { "the model read" } th { "then the model" } }
                @for block in &explained.live {
                    tr {
                        td { (one_line(&block.time)) br; (one_line(&block.request_id)) }
                        td {
                            b { (one_line(block.tool.as_deref().unwrap_or("the request"))) }
                            " " (one_line(&block.verdict))
                            @if let Some(arguments) = &block.arguments { pre { (short(arguments)) } }
                        }
                        td {
                            @for rule in &block.rules {
                                p { (one_line(&rule.policy)) ", " (one_line(&rule.reason)) (used(rule)) }
                            }
                        }
                        td { @if let Some(read) = &block.read { (short(read)) } }
                        td { @if let Some(next) = &block.next { (short(next)) } }
                    }
                }
            }
        }
    }
}

fn labels(explained: &Explained) -> Markup {
    let labels = [
        ("source", &explained.source),
        ("id", &explained.id),
        ("model", &explained.model),
        ("profile", &explained.profile),
    ];
    html! {
        p.labels {
            @for (name, value) in labels {
                @if let Some(value) = value { span { (name) " " b { (one_line(value)) } } " " }
            }
            @if let Some(placement) = explained.placement { span { "notices placed " b { (placement) } } }
        }
    }
}

fn message(shown: &Shown, full: bool) -> Markup {
    let touched = if shown.is_touched() { "touched" } else { "same" };
    let id = (shown.fate != Fate::Added).then(|| format!("m{}", shown.message));
    html! {
        article id=[&id] class={ (shown.role) " " (touched) " " (fate_class(shown.fate)) } {
            h2 {
                @match &id {
                    Some(id) => a.number href={ "#" (id) } { (shown.message) },
                    None => span.number { "+" },
                }
                span.role { (shown.role) }
                @if let Some(tool) = &shown.tool { code { (one_line(tool)) } }
                span.size { (sizes(shown.before, shown.after)) }
                @if let Some(word) = fate_word(shown.fate) { em.fate { (word) } }
            }
            @if !shown.acts.is_empty() { ul.acts { @for act in &shown.acts { (item(act)) } } }
            @if let Some(result) = &shown.instead {
                div.instead {
                    p { "Its call would have been blocked. The model would be shown instead:" }
                    (pre(&[(Mark::Ours, result)], full))
                }
            }
            @for part in &shown.pieces { (piece(part, shown.fate, full)) }
            @for made in &shown.calls { (call(made, full)) }
        }
    }
}

fn item(act: &Act) -> Markup {
    html! {
        li class=[(!act.applies).then_some("idle")] {
            b { (act.policy) } " " mark { (one_line(&act.action)) } " " (one_line(&act.why))
            @if act.saved_tokens != 0 { " " span.size { (saved_in_words(act.saved_tokens)) } }
        }
    }
}

fn piece(piece: &Piece, fate: Fate, full: bool) -> Markup {
    html! {
        @if piece.kind == Kind::Part { p.part { "a part that is not text" } }
        @match (&piece.before, &piece.after) {
            (Some(before), Some(after)) if before != after => (beside(&compare(before, after), full)),
            (Some(text), None) if matches!(fate, Fate::Dropped | Fate::Unsent) => {
                (pre(&[(Mark::Gone, text)], full))
            },
            (Some(text), _) => (pre(&[(Mark::Same, text)], full)),
            (None, Some(text)) => (pre(&[(Mark::Ours, text)], full)),
            (None, None) => {},
        }
    }
}

/// The original and the sent text, in two columns.
fn beside(runs: &[Run<'_>], full: bool) -> Markup {
    let side = |without: Mark| -> Vec<Run<'_>> {
        runs.iter().copied().filter(|(mark, _)| *mark != without).collect()
    };
    html! {
        div.beside {
            div { h3 { "recorded" } (pre(&side(Mark::Ours), full)) }
            div { h3 { "as sent" } (pre(&side(Mark::Gone), full)) }
        }
    }
}

fn pre(runs: &[Run<'_>], full: bool) -> Markup {
    if runs.iter().all(|(_, run)| run.is_empty()) {
        return html! { p.part { "empty" } };
    }
    html! {
        pre {
            @for (mark, run) in runs {
                @match mark {
                    Mark::Same => (shortened(run, full)),
                    Mark::Gone => del { (shortened(run, full)) },
                    Mark::Ours => ins { (shortened(run, full)) },
                }
            }
        }
    }
}

fn shortened(run: &str, full: bool) -> Markup {
    let (head, left_out, tail) = abridged(run, full);
    html! {
        (visible(head))
        @if left_out > 0 {
            span.more { (grouped(left_out as u64)) " characters not shown here" }
            (visible(tail))
        }
    }
}

fn call(call: &Made, full: bool) -> Markup {
    let (class, word) = match &call.ruling {
        Ruled::Released | Ruled::Unjudged => ("", ""),
        Ruled::Rewritten { .. } => (" rewritten", "rewritten"),
        Ruled::Answered { .. } => (" rewritten", "answered by toolrein"),
        Ruled::Blocked { .. } => (" blocked", "blocked"),
        Ruled::Refused => (" blocked", "never made: its request was refused"),
    };
    html! {
        div class={ "call" (class) } {
            p { "calls " code { (one_line(&call.tool)) } @if !word.is_empty() { " " em.fate { (word) } } }
            @match &call.ruling {
                Ruled::Rewritten { new_arguments, .. } => {
                    (beside(&compare(&call.arguments, new_arguments), full))
                },
                _ if call.arguments.is_empty() => {},
                _ => (pre(&[(Mark::Same, &call.arguments)], full)),
            }
            @if !call.objections.is_empty() {
                ul.acts { @for objection in &call.objections { (objected(objection)) } }
            }
        }
    }
}

fn objected(objection: &Objection) -> Markup {
    html! { li { b { (objection.policy) } " " mark { (objection.reason) } " " (one_line(&objection.message)) } }
}

fn refusal(refused: &Refused) -> Markup {
    html! {
        article."touched"."refusal" {
            h2 { em.fate { "request refused" } }
            ul.acts {
                li { b { (refused.policy) } " " mark { (one_line(refused.code)) } " " (one_line(&refused.words)) }
            }
        }
    }
}

fn sums(explained: &Explained) -> Markup {
    if explained.policies.is_empty() {
        return html! { section { h2 { "Policies" } p { (explained.idle_sentence()) } } };
    }
    html! {
        section {
            h2 { "Policies" }
            div.scroll {
                table {
                    tr {
                        th { "policy" }
                        @for title in ["changes", "objections", "tokens saved"] { th.n { (title) } }
                        th { "what it does" }
                    }
                    @for sum in &explained.policies {
                        tr {
                            td { b { (sum.policy) } }
                            td.n { (sum.changes) }
                            td.n { (sum.blocked) }
                            td.n { (grouped_signed(sum.saved_tokens)) }
                            td { (one_line(sum.summary)) }
                        }
                    }
                }
            }
        }
    }
}

fn limits(explained: &Explained) -> Markup {
    html! {
        @if !explained.limits.is_empty() {
            section {
                h2 { "Limits, used at most" }
                div.scroll {
                    table {
                        @for limit in &explained.limits { (row(limit)) }
                    }
                }
            }
        }
    }
}

/// A limit with its bar, which is red where nothing is left of it.
fn row(limit: &Limit) -> Markup {
    let share = limit.used.saturating_mul(100).checked_div(limit.limit).unwrap_or(100).min(100);
    let (class, word) = match limit.used.cmp(&limit.limit) {
        Ordering::Less => ("gauge", ""),
        Ordering::Equal => ("gauge over", "used up"),
        Ordering::Greater => ("gauge over", "over the limit"),
    };
    html! {
        tr {
            td { b { (limit.policy) } }
            td { code { (one_line(&limit.tool)) } }
            td.n { (grouped(limit.used)) " of " (grouped(limit.limit)) }
            td { div class=(class) { i style={ "width:" (share) "%" } {} } }
            td.over { (word) }
        }
    }
}

fn tools(explained: &Explained) -> Markup {
    let (before, after) = (explained.totals.tool_tokens_before, explained.totals.tool_tokens_after);
    let tokens =
        if before == after { grouped(before) } else { format!("{} → {}", grouped(before), grouped(after)) };
    html! {
        @if !explained.tools.is_empty() {
            section {
                h2 { "Tools declared: " (explained.tools.len()) ", " (tokens) " tokens" }
                p.tools {
                    @for tool in &explained.tools {
                        @match tool.hidden_by {
                            Some(policy) => {
                                span.hidden { del { code { (one_line(&tool.name)) } } " hidden by " b { (policy) } }
                            },
                            None => code { (one_line(&tool.name)) },
                        }
                        " "
                    }
                }
            }
        }
    }
}

fn footer(explained: &Explained) -> Markup {
    html! {
        footer {
            "The last request is shown, as enforced. Tokens are estimated. The conversation continues as it was \
             recorded, also after a call that would have been blocked."
            @if explained.lacks_approvals() { " " (UNKNOWN_APPROVALS) }
            " Written by " b { "toolrein explain" } "."
        }
    }
}

fn sizes(before: Option<Size>, after: Option<Size>) -> String {
    let words = |size: Size| {
        let chars = grouped_noun(size.chars as u64, "character");
        (chars, grouped_noun(size.tokens, "token"))
    };
    match (before, after) {
        (Some(before), Some(after)) if before != after => {
            let (chars, tokens) = words(after);
            format!("{} → {chars}, {} → {tokens}", grouped(before.chars as u64), grouped(before.tokens))
        }
        (Some(one), _) | (None, Some(one)) => {
            let (chars, tokens) = words(one);
            format!("{chars}, {tokens}")
        }
        (None, None) => String::new(),
    }
}

fn fate_class(fate: Fate) -> &'static str {
    match fate {
        Fate::Same => "kept",
        Fate::Changed => "changed",
        Fate::Dropped => "dropped",
        Fate::Added => "added",
        Fate::Reply => "reply",
        Fate::Unsent => "unsent",
    }
}

fn fate_word(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Same => None,
        Fate::Changed => Some("changed"),
        Fate::Dropped => Some("dropped"),
        Fate::Added => Some("added by toolrein"),
        Fate::Reply => Some("the reply"),
        Fate::Unsent => Some("not sent"),
    }
}
