//! Runaways of the corpus: conversations that failed and repeat themselves, how many of them are stopped by the shipped
//! policies and by those of the first edition; what notices add to a conversation, and what is saved at list prices.

use super::{PACE_MS, body, paced};
use crate::world::{Facts, NOW_MS, read, set_of, shipped};
use model::plan::Change;
use model::plan::texts::settle;
use model::tokens::{estimate_json, estimate_text};
use policies::set::PolicySet;
use serde_json::Value;
use std::collections::BTreeMap;

/// The shipped policies before patterns and `empty_block`, by their settings. What the code has learned since about equal
/// results helps them too, so that they seem better than they were.
const BEFORE: &str = r#"
[policy.budget]
[policy.rate_limit]
default = { calls = 60, per = "60s" }
[policy.rate_limit.tools]
searchAll = { calls = 5, per = "60s" }
searchFiles = { calls = 5, per = "60s" }
searchNotes = { calls = 5, per = "60s" }
searchTasks = { calls = 5, per = "60s" }
searchKnowledgeBank = { calls = 5, per = "60s" }
queryHistory = { calls = 5, per = "60s" }
urlReader = { calls = 3, per = "60s" }
codeExecution = { calls = 2, per = "60s" }
calculator = { calls = 10, per = "60s" }
datetime = { calls = 5, per = "60s" }
weather = { calls = 3, per = "60s" }
[policy.loops]
empty_block = 0
quiet = []
[policy.arguments]
[policy.truncate]
[policy.compact]
"#;
/// This many calls in a row without anything new count as a runaway.
const LONG: usize = 5;
/// The most that notices may add to a conversation in the median of those that get any.
const MOST_ADDED: f64 = 0.01;
/// US dollars for a million input tokens, by the beginning of a model's name: list prices of late 2026, uncached.
const PRICES: [(&str, f64); 15] = [
    ("gpt-4o-mini", 0.15),
    ("gpt-4o", 2.5),
    ("gpt-4.1", 2.0),
    ("ft:gpt-4.1", 3.0),
    ("gpt-5-mini", 0.25),
    ("gpt-5.4-mini", 0.25),
    ("gpt-5", 1.25),
    ("toolorchestra(gpt-5)", 1.25),
    ("o3", 2.0),
    ("claude-opus", 5.0),
    ("claude", 3.0),
    ("anthropic/claude", 3.0),
    ("openai/gpt-oss", 0.1),
    ("xai/grok-3", 3.0),
    ("deepseek", 0.28),
];

/// The results for one conversation.
struct Run {
    id: String,
    is_solved: bool,
    is_runaway: bool,
    /// What blocked a call first, before and now.
    before: Option<&'static str>,
    now: Option<&'static str>,
    /// Tokens of notices, and all of the conversation.
    added: u64,
    tokens: u64,
    /// Input in US dollars: spent as recorded; saved by cuts, net of notices; saved by ending the turn at the first
    /// block.
    spent: f64,
    cut: f64,
    ended: f64,
}

#[test]
fn more_runaways_of_the_corpus_are_stopped_than_before_and_notices_cost_little() {
    let Some(folder) = crate::recordings::corpus() else {
        println!("not run: TOOLREIN_CORPUS names no folder of recorded conversations");
        return;
    };
    let before = set_of(BEFORE);
    let lines = std::fs::read_to_string(folder.join("transcripts.jsonl")).unwrap();
    let talks = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let runs: Vec<Run> = talks.map(|talk| run(&talk, &before)).collect();
    let count = |of: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| of(run)).count();
    println!("{:<34} {:>6} {:>8} {:>8}", "conversations", "all", "before", "now");
    type Kind<'a> = (&'a str, &'a dyn Fn(&Run) -> bool);
    let kinds: [Kind<'_>; 3] = [
        ("solved, with a blocked call", &|run| run.is_solved),
        ("not solved, with a blocked call", &|run| !run.is_solved),
        ("runaways that failed, stopped", &|run| !run.is_solved && run.is_runaway),
    ];
    for (name, is) in kinds {
        let [all, old, new] = [
            count(&|run| is(run)),
            count(&|run| is(run) && run.before.is_some()),
            count(&|run| is(run) && run.now.is_some()),
        ];
        println!("{name:<34} {all:>6} {old:>8} {new:>8}");
    }
    let mut policies: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for run in &runs {
        if let Some(policy) = run.now {
            *policies.entry((policy, run.is_solved)).or_default() += 1;
        }
    }
    println!("first block by: {policies:?}");
    for run in runs.iter().filter(|run| !run.is_solved && run.is_runaway && run.now.is_none()) {
        println!("a runaway that goes on: {}", run.id);
    }
    let mut shares: Vec<f64> =
        runs.iter().filter(|run| run.added > 0).map(|run| run.added as f64 / run.tokens as f64).collect();
    shares.sort_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2).copied().unwrap_or_default();
    println!(
        "{} conversations get notices, {:.2}% of their tokens in the median",
        shares.len(),
        median * 100.0
    );
    let sum = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>();
    let (spent, cut, ended) = (sum(|run| run.spent), sum(|run| run.cut), sum(|run| run.ended));
    println!("input at list prices: {spent:.2} USD; saved by cuts {cut:.2}, by ended turns {ended:.2}");
    let stopped = |set: fn(&Run) -> bool| count(&|run| !run.is_solved && run.is_runaway && set(run));
    assert!(stopped(|run| run.now.is_some()) > stopped(|run| run.before.is_some()));
    assert!(median <= MOST_ADDED, "{median}");
    assert!(cut >= 0.0 && ended > 0.0, "{cut} {ended}");
}

fn run(talk: &Value, before: &PolicySet) -> Run {
    let messages = talk["messages"].as_array().unwrap();
    let (mut spent, mut cut, mut ended, mut blocked_now) = (0.0, 0.0, 0.0, None);
    let price = price(talk["model"].as_str().unwrap()) / 1e6;
    let tools = estimate_json(talk["tools"].to_string().as_bytes()).tokens();
    let mut tokens: Vec<u64> = vec![tools];
    let mut added = 0;
    let whole = read(&body(talk, messages.len()), shipped(), &Facts::default());
    let mut change = vec![0_i64; messages.len() + 1];
    for edit in &whole.plan.edits {
        if let Change::Notice { text, .. } = &edit.change {
            let notice = estimate_text(text).tokens();
            added += notice;
            change[edit.item.index] += notice as i64;
        }
    }
    for (&(item, _), text) in &settle(&whole.plan) {
        change[item.index] -= (text.gone_chars() * 10 / 36) as i64;
    }
    for message in messages {
        tokens.push(tokens.last().unwrap() + estimate_json(message.to_string().as_bytes()).tokens());
    }
    let (now, was) = (first_block(talk, shipped()), first_block(talk, before));
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "user" {
            blocked_now = None;
        }
        if message["role"] != "assistant" {
            continue;
        }
        let input = tokens[at] as f64 * price;
        spent += input;
        // The model is asked once more, for its answer.
        match blocked_now {
            Some(true) => ended += input,
            _ => cut -= change[..at].iter().sum::<i64>() as f64 * price,
        }
        if blocked_now == Some(false) {
            blocked_now = Some(true);
        }
        if now.is_some_and(|(_, message)| message == at) {
            blocked_now = Some(false);
        }
    }
    Run {
        id: talk["id"].to_string(),
        is_solved: talk["reward"].as_f64() == Some(1.0),
        is_runaway: longest_stretch(messages) >= LONG,
        before: was.map(|(policy, _)| policy),
        now: now.map(|(policy, _)| policy),
        added,
        tokens: *tokens.last().unwrap(),
        spent,
        cut,
        ended,
    }
}

/// The policy that blocks a call first, and the message of that call; malformed calls do not count.
fn first_block(talk: &Value, policies: &PolicySet) -> Option<(&'static str, usize)> {
    let messages = talk["messages"].as_array().unwrap();
    let facts = Facts { released: paced(talk), ..Facts::default() };
    let mut at = 0;
    for (place, message) in messages.iter().enumerate() {
        let Some(calls) = message["tool_calls"].as_array().filter(|calls| !calls.is_empty()) else {
            continue;
        };
        let mut judge = read(&body(talk, place), policies, &facts).judge;
        for call in calls {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let ruling = judge.rule(0, name, call["function"]["arguments"].as_str(), NOW_MS + at * PACE_MS);
            if let Some((policy, _)) = ruling.objections.iter().find(|(policy, _)| *policy != "arguments") {
                return Some((policy, place));
            }
            at += 1;
        }
    }
    None
}

fn price(model: &str) -> f64 {
    PRICES.iter().find(|(family, _)| model.starts_with(family)).map_or(1.0, |(_, price)| *price)
}

/// The longest run of results within a turn of which none is news: empty, or, but for digits, the one before of the same
/// tool, whose arguments have the same words. Its rules are simpler than the policy's and its own.
fn longest_stretch(messages: &[Value]) -> usize {
    let mut calls: BTreeMap<&str, (&str, Vec<String>)> = BTreeMap::new();
    let (mut last, mut same, mut empty, mut longest) = (None, 0, 0, 0);
    for message in messages {
        if message["role"] == "user" {
            (last, same, empty) = (None, 0, 0);
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let arguments = words(function["arguments"].as_str().unwrap_or_default());
            calls.insert(
                call["id"].as_str().unwrap_or_default(),
                (function["name"].as_str().unwrap_or_default(), arguments),
            );
        }
        if message["role"] != "tool" {
            continue;
        }
        let content = &message["content"];
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        let Some((tool, arguments)) = calls.get(message["tool_call_id"].as_str().unwrap_or_default()) else {
            continue;
        };
        if *tool == "think" {
            (last, same, empty) = (None, 0, 0);
            continue;
        }
        let step = (*tool, arguments.clone(), masked(&text));
        same = if last.as_ref() == Some(&step) { same + 1 } else { 1 };
        let is_action = ["bash", "execute", "edit", "send", "update"].iter().any(|verb| tool.contains(verb));
        empty = if ["[]", "{}", "null", ""].contains(&text.trim()) && !is_action { empty + 1 } else { 0 };
        last = Some(step);
        longest = longest.max(same).max(empty);
    }
    longest
}

fn masked(text: &str) -> String {
    text.split(|char: char| char.is_ascii_digit())
        .filter(|piece| !piece.is_empty())
        .collect::<Vec<_>>()
        .join("#")
}

fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut words: Vec<String> = lower
        .split(|char: char| !char.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.sort_unstable();
    words
}
