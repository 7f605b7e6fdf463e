//! The top of the page: the verdict in one sentence, the figures, and the map of messages with its legend. Only lays out.

use super::super::facts::{Explained, Fate, Shown};
use super::super::headline::{counts, headline, replayed_blocks};
use super::super::visible::{grouped, grouped_noun, one_line};
use maud::{Markup, html};
use wire::plural::{counted, noun_after};

/// The roles that have a colour.
const ROLES: [&str; 5] = ["system", "user", "assistant", "tool", "other"];

pub(super) fn summary(explained: &Explained) -> Markup {
    html! {
        p.verdict { (headline(explained)) }
        @if let Some(blocks) = replayed_blocks(explained) { p { (blocks) } }
        (figures(explained))
        (map(explained))
        (legend(explained))
    }
}

fn figures(explained: &Explained) -> Markup {
    let totals = &explained.totals;
    let (calls, blocked) = counts(explained);
    let touched = explained.messages.iter().filter(|shown| shown.is_touched()).count();
    let figures = [
        ("calls", calls, "in all".to_owned()),
        ("blocked", blocked, format!("of {}", counted(calls, "call"))),
        ("notices", totals.notices as u64, "texts of toolrein".to_owned()),
        ("removed", totals.tokens_removed, format!("of {}", grouped_noun(totals.tokens_before, "token"))),
        ("added", totals.tokens_added, noun_after(totals.tokens_added, "token")),
        ("touched", touched as u64, format!("of {}", counted(explained.messages.len(), "message"))),
    ];
    html! {
        dl.figures {
            @for (name, figure, more) in figures {
                div { dt { (name) } dd { (grouped(figure)) small { (more) } } }
            }
        }
    }
}

/// One bar for each message, as wide as its tokens; the pale end of it is the part that is not sent.
fn map(explained: &Explained) -> Markup {
    html! {
        nav.map aria-label="Messages by tokens" {
            @for shown in explained.messages.iter().filter(|shown| shown.fate != Fate::Added) { (bar(shown)) }
        }
    }
}

fn bar(shown: &Shown) -> Markup {
    let before = shown.before.map_or(0, |size| size.tokens).max(1);
    let after = shown.after.map_or(0, |size| size.tokens);
    let kept = if shown.fate == Fate::Reply { 100 } else { (after * 100 / before).min(100) };
    let (number, role) = (shown.message, shown.role);
    let is_blocked = shown.calls.iter().any(|call| call.ruling.is_blocked());
    html! {
        a href={ "#m" (number) }
            class={ (role) @if shown.is_touched() { " touched" } @if is_blocked { " has-block" } }
            style={ "flex-grow:" (before) }
            title={ (number) " " (role) ", " (grouped(before)) " tokens" @if is_blocked { ", a call blocked" } }
        { i style={ "height:" (kept) "%" } {} }
    }
}

/// What the colours of this page mean.
fn legend(explained: &Explained) -> Markup {
    let has = |role: &str| explained.messages.iter().any(|shown| shown.role == role);
    let is_blocked = |shown: &Shown| shown.calls.iter().any(|call| call.ruling.is_blocked());
    html! {
        p.legend aria-label="Legend" {
            @for role in ROLES.into_iter().filter(|role| has(role)) {
                span { i class={ "key " (role) } {} (one_line(role)) } " "
            }
            span { i.key.pale {} "strong colour: changed" } " "
            span { i.key.unsent {} "not sent" } " "
            @if explained.messages.iter().any(is_blocked) { span { i.key.block {} "a call blocked" } " " }
            span { del { "removed" } } " "
            span { ins { "added" } }
        }
    }
}
