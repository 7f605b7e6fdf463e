//! What is said at the end of a run, from the live view: requests, calls, what was stopped and why, what was not sent. At
//! most six lines.

use crate::admin::saved_usd;
use crate::config::{Config, Mode};
use crate::telemetry::live::conversations::{CallDecision, Conversation};
use crate::telemetry::live::{Live, Snapshot, VERDICTS};
use crate::telemetry::short_line::first_sentence;
use model::record::Verdict;
use std::collections::BTreeSet;
use wire::plural::{counted, grouped, noun_after};

/// Policies whose reasons are given, each on a line.
const MOST_REASONS: usize = 2;
/// Conversations that are looked at.
const MOST_CONVERSATIONS: usize = 1_000;

/// The lines. `explanation`: the command that explains the run.
pub(super) fn lines(config: &Config, live: &Live, explanation: &str) -> Vec<String> {
    let totals = live.totals();
    let requests: u64 = totals.models.iter().map(|model| model.requests).sum();
    if requests == 0 {
        return vec![without_requests(&totals)];
    }
    let mut lines = vec![counts(config, &totals, requests)];
    lines.extend(not_governed(&totals).map(|relayed| format!("{relayed}, not governed")));
    let conversations = acted_on(live);
    lines.extend(stops(&totals, &conversations));
    lines.extend(savings(config, &totals));
    lines.push(format!("call by call: {explanation}"));
    lines
}

/// What to do where nothing was governed.
fn without_requests(totals: &Snapshot) -> String {
    match not_governed(totals) {
        Some(relayed) => format!("nothing was governed: {relayed}"),
        None => "no model request came: the command reads neither OPENAI_BASE_URL nor ANTHROPIC_BASE_URL, or made none; \
                 docs/clients.md has what each framework needs"
            .to_owned(),
    }
}

/// How many requests and calls there were.
fn counts(config: &Config, totals: &Snapshot, requests: u64) -> String {
    let of = |verdict| {
        VERDICTS.iter().zip(totals.calls).find(|(it, _)| **it == verdict).map_or(0, |(_, count)| count)
    };
    let (calls, blocked) = (totals.calls.iter().sum::<u64>(), of(Verdict::Block));
    let mode = match config.mode {
        Mode::Enforce => String::new(),
        mode => format!(" (mode {}: nothing is stopped)", mode.as_str()),
    };
    format!(
        "{}, {}, {blocked} of them stopped{mode}",
        counted(requests, "model request"),
        counted(calls, "tool call")
    )
}

/// The requests to models that were relayed.
fn not_governed(totals: &Snapshot) -> Option<String> {
    let relayed = totals.ungoverned.iter();
    let relayed: Vec<String> =
        relayed.map(|(endpoint, count)| format!("{} to {endpoint}", counted(*count, "request"))).collect();
    (!relayed.is_empty()).then(|| format!("{} relayed", relayed.join(", ")))
}

/// The conversations in which something was stopped, the first one first.
fn acted_on(live: &Live) -> Vec<Conversation> {
    let is_stopped = |conversation: &Conversation| conversation.blocked + conversation.refused > 0;
    let (_, listed) = live.conversations(is_stopped, 0, MOST_CONVERSATIONS);
    listed.iter().rev().filter_map(|conversation| live.conversation(&conversation.id)).collect()
}

/// What each policy stopped, and why in one sentence.
fn stops(totals: &Snapshot, conversations: &[Conversation]) -> Vec<String> {
    let mut policies: Vec<(&str, u64)> = totals
        .policies
        .iter()
        .map(|policy| (policy.policy, policy.block))
        .filter(|(_, count)| *count > 0)
        .collect();
    policies.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = policies.split_off(policies.len().min(MOST_REASONS));
    let mut lines: Vec<String> =
        policies.into_iter().map(|(policy, count)| stop(policy, count, conversations)).collect();
    let refused: u64 = conversations.iter().map(|conversation| conversation.refused).sum();
    let mut more: Vec<String> = others.iter().map(|(policy, count)| format!("{policy} {count}")).collect();
    more.extend((refused > 0).then(|| format!("{} refused", counted(refused, "request"))));
    match lines.last_mut() {
        Some(last) if !more.is_empty() => last.push_str(&format!("; also {}", more.join(", "))),
        None if !more.is_empty() => lines.push(more.join(", ")),
        _ => {}
    }
    lines
}

fn stop(policy: &str, count: u64, conversations: &[Conversation]) -> String {
    let is_stop = |decision: &&CallDecision| {
        decision.verdict == Verdict::Block.as_str() && decision.policy == Some(policy)
    };
    let decisions = || conversations.iter().flat_map(|conversation| &conversation.decisions).filter(is_stop);
    let tools: BTreeSet<&str> = decisions().map(|decision| decision.tool.as_str()).collect();
    let tools = if tools.is_empty() { "calls".to_owned() } else { Vec::from_iter(tools).join(", ") };
    let reason = decisions().find_map(|decision| decision.message.as_deref());
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", first_sentence(reason)));
    format!("{policy} stopped {tools} {count} {}{reason}", noun_after(count, "time"))
}

/// The tokens, and their money, that the model did not get and that it got in addition. What stopped calls would have
/// cost is not known. `None` where no token was removed or added.
fn savings(config: &Config, totals: &Snapshot) -> Option<String> {
    let sum =
        |count: fn(&crate::telemetry::live::PolicyTotals) -> u64| totals.policies.iter().map(count).sum();
    let (removed, added): (u64, u64) = (sum(|it| it.removed), sum(|it| it.added + it.reasked));
    let tokens = |count| format!("{} {}", grouped(count), noun_after(count, "token"));
    let [not_sent, was_added] = match config.mode {
        Mode::Enforce => ["not sent", "added"],
        _ => ["that would not have been sent", "would have been added"],
    };
    let counts = match (removed, added) {
        (0, 0) => return None,
        (0, added) => format!("{} {was_added}", tokens(added)),
        (removed, 0) => format!("{} {not_sent}", tokens(removed)),
        (removed, added) => format!("{} {not_sent}, {} {was_added}", tokens(removed), grouped(added)),
    };
    let money = match saved_usd(config, totals) {
        Some([usd, _]) if usd > 0.0 => format!("; about ${usd:.4} less"),
        Some([usd, _]) if usd < 0.0 => format!("; about ${:.4} more", -usd),
        _ => String::new(),
    };
    Some(counts + &money)
}
