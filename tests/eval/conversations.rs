//! What the shipped policies do to recorded conversations: how many of the solved ones would have seen a blocked
//! call, how many results are cut, and how far the estimate of tokens is off. The sample in `tests/data` runs
//! always; `TOOLREIN_CORPUS=FOLDER make eval` runs over the whole corpus and prints a table.

mod runaways;

use crate::world::{Facts, NOW_MS, identity, read, shipped};
use bytes::Bytes;
use model::Transcript;
use model::fact::Fact as _;
use model::identity::Hash;
use model::memo::NoMemo;
use model::plan::texts::settle;
use model::released::{NOTHING_HIDDEN, Release, Releases};
use model::tokens::estimate_json;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One call every two seconds: faster than any recorded agent.
const PACE_MS: u64 = 2_000;
/// Of so many solved conversations fewer than one may see a blocked call.
const ONE_IN: usize = 200;
/// Tokens below which a prompt says nothing about the estimate.
const SMALL_PROMPT: f64 = 200.0;

/// The results for the conversations of one source.
#[derive(Default)]
struct Tally {
    conversations: usize,
    solved: usize,
    /// Solved conversations with a blocked call.
    disturbed: Vec<String>,
    calls: usize,
    results: usize,
    cut: usize,
    /// Estimated as in the metric: 3.6 characters a token.
    saved_tokens: usize,
    /// By kind of cut: results touched and bytes saved.
    kinds: BTreeMap<&'static str, (usize, usize)>,
    /// Relative errors of the estimate of a whole prompt, and of one on top of the usage before it.
    errors: Vec<f64>,
    anchored: Vec<f64>,
}

#[test]
fn no_solved_conversation_of_the_sample_sees_a_blocked_call() {
    let tallies = evaluate(&crate::recordings::own_transcripts());
    let all = tallies.values();
    let (solved, calls) = all.fold((0, 0), |(solved, calls), one| (solved + one.solved, calls + one.calls));
    assert!(solved >= 10 && calls >= 40, "{solved} solved, {calls} calls");
    for (source, tally) in &tallies {
        assert_eq!(tally.disturbed, [] as [String; 0], "{source}");
        assert!(tally.kinds.keys().all(|kind| *kind == "duplicate"), "{source}: {:?}", tally.kinds);
    }
    let anchored: Vec<f64> = tallies.values().flat_map(|tally| tally.anchored.iter().copied()).collect();
    assert!(anchored.len() > 20 && mean(&anchored) < 0.12, "{anchored:?}");
}

#[test]
fn fewer_than_one_in_200_solved_conversations_of_the_corpus_see_a_blocked_call() {
    let Some(folder) = crate::recordings::corpus() else {
        println!("not run: TOOLREIN_CORPUS names no folder of recorded conversations");
        return;
    };
    let tallies = evaluate(&std::fs::read_to_string(folder.join("transcripts.jsonl")).unwrap());
    println!(
        "source                 conv.  solved  disturbed  calls  results  cut    saved  error  on usage"
    );
    for (source, tally) in &tallies {
        println!(
            "{source:<22} {:>5} {:>7} {:>10} {:>6} {:>8} {:>4} {:>8} {:>5.1}% {:>8.1}%",
            tally.conversations,
            tally.solved,
            tally.disturbed.len(),
            tally.calls,
            tally.results,
            tally.cut,
            tally.saved_tokens,
            mean(&tally.errors) * 100.0,
            mean(&tally.anchored) * 100.0,
        );
    }
    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (kind, (results, bytes)) in tallies.values().flat_map(|tally| &tally.kinds) {
        let sum = kinds.entry(kind).or_default();
        *sum = (sum.0 + results, sum.1 + bytes);
    }
    println!("\n{:<22} results  bytes saved", "truncate");
    for (kind, (results, bytes)) in &kinds {
        println!("{kind:<22} {results:>7} {bytes:>12}");
    }
    let disturbed: Vec<&String> = tallies.values().flat_map(|tally| &tally.disturbed).collect();
    let solved: usize = tallies.values().map(|tally| tally.solved).sum();
    println!("{} of {solved} solved conversations see a blocked call", disturbed.len());
    assert!(disturbed.len() * ONE_IN < solved, "{disturbed:#?}");
}

fn evaluate(lines: &str) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for line in lines.lines() {
        let talk: Value = serde_json::from_str(line).unwrap();
        let tally = tallies.entry(talk["source"].as_str().unwrap().to_owned()).or_default();
        tally.conversations += 1;
        let blocked = blocked(&talk, tally);
        if talk["reward"].as_f64() == Some(1.0) {
            tally.solved += 1;
            tally.disturbed.extend(blocked);
        }
        cuts(&talk, tally);
        estimates(&talk, tally);
    }
    tallies
}

/// The first call that would have been blocked; each call is judged at its recorded time.
fn blocked(talk: &Value, tally: &mut Tally) -> Option<String> {
    let messages = talk["messages"].as_array().unwrap();
    let facts = Facts { released: paced(talk), ..Facts::default() };
    let (mut at, mut first) = (0, None);
    for (place, message) in messages.iter().enumerate() {
        let Some(calls) = message["tool_calls"].as_array().filter(|calls| !calls.is_empty()) else {
            continue;
        };
        let mut judge = read(&body(talk, place), shipped(), &facts).judge;
        for call in calls {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let now_ms = NOW_MS + at * PACE_MS;
            let ruling = judge.rule(0, name, call["function"]["arguments"].as_str(), now_ms);
            if let Some((policy, reason)) = ruling.objections.first() {
                first.get_or_insert_with(|| {
                    format!("{}: call {at}, {policy}: {}", talk["id"], reason.message)
                });
            }
            at += 1;
        }
    }
    tally.calls += at as usize;
    first
}

/// When each call of the conversation was handed out.
fn paced(talk: &Value) -> BTreeMap<Hash, Releases> {
    let (body, identity) = (body(talk, talk["messages"].as_array().unwrap().len()), identity(1));
    let request = dialects::chat::parse(&body).unwrap();
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    let paced = transcript.calls.calls.iter().zip((NOW_MS..).step_by(PACE_MS as usize));
    let mut released: BTreeMap<Hash, Releases> = BTreeMap::new();
    for (call, at_ms) in paced {
        let known = released.entry(call.key).or_default();
        let release = Release { context: call.context, hidden: NOTHING_HIDDEN, at_ms };
        release.add_to(Arc::make_mut(known));
    }
    released
}

/// What the shipped settings remove from the conversation's results, by kind.
fn cuts(talk: &Value, tally: &mut Tally) {
    let messages = talk["messages"].as_array().unwrap();
    tally.results += messages.iter().filter(|message| message["role"] == "tool").count();
    let reading = read(&body(talk, messages.len()), shipped(), &Facts::default());
    for (&(item, text), change) in &settle(&reading.plan) {
        let Some(by) = change.by() else { continue };
        let place = reading.request.messages[item.index].content.texts().nth(text).unwrap();
        let original = wire::json::decode(place, &reading.body);
        if is_document(&original) {
            assert!(is_document(by), "{by}");
        }
        tally.cut += 1;
        tally.saved_tokens += change.gone_chars() * 10 / 36;
        let kind = tally.kinds.entry(kind_of(&original, by)).or_default();
        kind.0 += 1;
        kind.1 += original.len().saturating_sub(by.len());
    }
}

fn is_document(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The kind of cut that turned `original` into `by`.
fn kind_of(original: &str, by: &str) -> &'static str {
    if by.contains("[toolrein: the same ") {
        "duplicate"
    } else if !by.contains("[toolrein: cut ") {
        "base64"
    } else if is_document(original) {
        "JSON"
    } else if by.contains("(rows ") {
        "table"
    } else if by.contains(", except what looks like errors") {
        "text with errors"
    } else {
        "text"
    }
}

fn estimates(talk: &Value, tally: &mut Tally) {
    let (body, identity) = (body(talk, talk["messages"].as_array().unwrap().len()), identity(1));
    let request = dialects::chat::parse(&body).unwrap();
    let transcript = Transcript::read(request.clone(), body.to_vec(), identity, Arc::new(NoMemo));
    let tools = request.value(&body, "tools").map_or(0, |tools| estimate_json(tools.of(&body)).tokens());
    let between = |from: usize, to: usize| {
        (from..to).map(|at| transcript.view(at).tokens().tokens()).sum::<u64>() as f64
    };
    let mut before: Option<(usize, f64)> = None;
    for usage in talk["usage"].as_array().into_iter().flatten() {
        let (upto, billed) =
            (usage["upto"].as_u64().unwrap() as usize, usage["prompt_tokens"].as_f64().unwrap());
        // Providers add constants of their own, which are most of a small prompt.
        if upto > request.messages.len() || billed < SMALL_PROMPT {
            continue;
        }
        tally.errors.push(((tools as f64 + between(0, upto)) / billed - 1.0).abs());
        if let Some((from, known)) = before.filter(|(from, _)| *from <= upto) {
            tally.anchored.push(((known + between(from, upto)) / billed - 1.0).abs());
        }
        before = Some((upto, billed));
    }
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |sum, error| sum + error) / errors.len().max(1) as f64
}

/// The request with the first `count` messages.
fn body(talk: &Value, count: usize) -> Bytes {
    let messages = &talk["messages"].as_array().unwrap()[..count];
    let mut body = json!({"model": talk["model"], "messages": messages});
    if talk["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
        body["tools"] = talk["tools"].clone();
    }
    body.to_string().into()
}
