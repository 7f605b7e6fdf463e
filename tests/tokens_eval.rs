//! How far the foretold bills of prompts are off the real ones, model by model: upon an earlier bill of the same
//! conversation, and by the rates alone that other conversations taught. A few made-up conversations always; the
//! corpus where `TOOLREIN_CORPUS` names its folder. Prints the table; asserts the bounds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail by panicking, and this one is read by people"
)]

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use toolrein::ledger::memory::{Bounds, MemoCache, Memory};
use toolrein::ledger::{Ask, Cost, Facts, Ledger as _, News};
use toolrein::policy::plan::Plan;
use toolrein::rewrite::sent::Sent;
use toolrein::transcript::Transcript;
use toolrein::transcript::identity::{Hash, HashKey, Identity};
use toolrein::transcript::prompt::{Anchor, Basis, Histories, Prediction, Size, predict};
use toolrein::wire::request::Request;

/// Smaller prompts are mostly constants of the provider's.
const SMALL_PROMPT: u64 = 200;
/// What a model must have for its errors to be held against the bounds: others have nothing to learn from.
const ENOUGH: (usize, usize) = (5, 20);
const MODEL: Hash = Hash(1);

/// A request as it was billed.
struct Billed {
    size: Size,
    histories: Histories,
    prompt: u64,
    completion: u64,
    body: String,
}

/// Relative errors of one model.
#[derive(Default)]
struct Errors {
    conversations: usize,
    raw: Vec<f64>,
    by_rates: Vec<f64>,
    anchored: Vec<f64>,
}

fn identity() -> Identity {
    Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None }
}

fn memory() -> Memory {
    let hour = Duration::from_secs(3600);
    Memory::new(&Bounds { calls: 100, rounds_bytes: 100, conversations: 100, lifetime: hour, refusals: hour })
}

fn with_sent<T>(body: &str, memo: &MemoCache, look: impl FnOnce(Sent<'_>) -> T) -> T {
    let request = Request::parse(body.as_bytes()).unwrap();
    let identity = identity();
    let transcript = &Transcript::read(&request, body.as_bytes(), &identity, memo);
    look(Sent { transcript, plan: &Plan::default(), restored: &[] })
}

/// The requests of a conversation whose bill is known, each sized upon the one before. Where one history has several
/// bills it is not told which request they are of, so the first counts.
fn requests(talk: &Value, memo: &MemoCache) -> Vec<Billed> {
    let messages = talk["messages"].as_array().unwrap();
    let mut requests: Vec<Billed> = Vec::new();
    let ledger = memory();
    let mut last = 0;
    for usage in talk["usage"].as_array().into_iter().flatten() {
        let upto = usage["upto"].as_u64().unwrap() as usize;
        let prompt = usage["prompt_tokens"].as_u64().unwrap();
        if upto <= last || upto > messages.len() || prompt < SMALL_PROMPT {
            continue;
        }
        last = upto;
        let mut body = json!({"model": talk["model"], "messages": messages[..upto]});
        if talk["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            body["tools"] = talk["tools"].clone();
        }
        let body = body.to_string();
        let histories = with_sent(&body, memo, |sent| Histories::read(sent.transcript, MODEL));
        let completion = usage["completion_tokens"].as_u64().unwrap_or(0);
        let mut request = Billed { size: Size::default(), histories, prompt, completion, body };
        let facts = request.facts(&ledger);
        request.size = with_sent(&request.body, memo, |sent| {
            sent.foretell(&request.histories, &facts.anchors, facts.ratio).0
        });
        request.tell(&ledger, Hash(0));
        requests.push(request);
    }
    requests
}

impl Billed {
    fn facts(&self, ledger: &Memory) -> Facts {
        let histories: Vec<Hash> = self.histories.earlier.iter().map(|(_, name)| *name).collect();
        let ask = Ask {
            calls: &[],
            places: &[],
            model: MODEL,
            request: Hash(1),
            conversation: Hash(1),
            histories: &histories,
            answered: None,
            quotas: &[],
            stops: &[],
            bytes: Hash(0),
            now_ms: 0,
            now: Instant::now(),
        };
        ledger.look_up(ask).now_or_never().unwrap()
    }

    fn tell(&self, ledger: &Memory, conversation: Hash) {
        let Self { size, prompt, completion, .. } = *self;
        let anchor = Anchor { size, prompt, completion, ..Anchor::default() };
        let cost = Cost { model: MODEL, conversation, history: self.histories.whole, anchor };
        ledger.record(News { cost: Some(cost), ..News::default() });
    }

    fn error(&self, foretold: Prediction) -> f64 {
        (foretold.tokens as f64 / self.prompt as f64 - 1.0).abs()
    }
}

/// Each conversation of a model as if all the others had come before it.
fn errors(talks: &[Vec<Billed>], memo: &MemoCache) -> Errors {
    let mut errors = Errors { conversations: talks.len(), ..Errors::default() };
    for (at, talk) in talks.iter().enumerate() {
        let ledger = memory();
        for (other, requests) in talks.iter().enumerate().filter(|(other, _)| *other != at) {
            requests.iter().for_each(|request| request.tell(&ledger, Hash(other as u128)));
        }
        // What others taught alone: the conversation's own bills teach too.
        let rates = talk.first().and_then(|first| first.facts(&ledger).ratio);
        for request in talk {
            errors.raw.push(request.error(predict(request.size, None, None)));
            if rates.is_some() {
                errors.by_rates.push(request.error(predict(request.size, None, rates)));
            }
            let facts = request.facts(&ledger);
            let (size, foretold) = with_sent(&request.body, memo, |sent| {
                sent.foretell(&request.histories, &facts.anchors, facts.ratio)
            });
            assert_eq!(size, request.size, "sized alike whatever others taught");
            if foretold.basis == Basis::Usage {
                errors.anchored.push(request.error(foretold));
            }
            request.tell(&ledger, Hash(at as u128));
        }
    }
    errors
}

fn evaluate(lines: &str) -> BTreeMap<String, Errors> {
    let memo = MemoCache::new(64 << 20);
    let mut by_model: BTreeMap<String, Vec<Vec<Billed>>> = BTreeMap::new();
    for line in lines.lines() {
        let talk: Value = serde_json::from_str(line).unwrap();
        let requests = requests(&talk, &memo);
        if !requests.is_empty() {
            by_model.entry(talk["model"].as_str().unwrap().to_owned()).or_default().push(requests);
        }
    }
    by_model.into_iter().map(|(model, talks)| (model, errors(&talks, &memo))).collect()
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |sum, error| sum + 100.0 * error) / errors.len().max(1) as f64
}

fn p95(errors: &[f64]) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 95 / 100).map_or(0.0, |error| 100.0 * error)
}

/// A conversation that a provider with rates of its own bills: 0.6 for tools, 1.25 for messages.
fn made_up(topic: &str) -> String {
    let memo = MemoCache::new(1 << 20);
    let tool = json!({"type": "function", "function": {"name": "look", "description": "Looks things up. ".repeat(40)}});
    let mut messages = Vec::new();
    for round in 0..6 {
        messages.push(json!({"role": "user", "content": format!("{topic} {round} ").repeat(30 + round)}));
        messages.push(json!({"role": "assistant", "content": format!("Of {topic}: {round}. ").repeat(12)}));
    }
    let mut talk = json!({"model": "m", "tools": [tool], "messages": messages});
    talk["usage"] = (1..12).step_by(2).map(|upto| json!({"upto": upto, "prompt_tokens": 1_000})).collect();
    let bills: Vec<u64> = requests(&talk, &memo)
        .iter()
        .map(|request| {
            (request.size.tools.tokens() * 60 + request.size.messages.tokens() * 125).div_ceil(100)
        })
        .collect();
    for (usage, bill) in talk["usage"].as_array_mut().unwrap().iter_mut().zip(bills) {
        usage["prompt_tokens"] = json!(bill);
    }
    talk.to_string()
}

#[test]
fn a_providers_rates_are_learned_from_its_bills() {
    let talks: Vec<String> = ["rivers", "engines", "paintings"].map(made_up).into();
    let errors = &evaluate(&talks.join("\n"))["m"];
    let counts = [errors.raw.len(), errors.by_rates.len(), errors.anchored.len()];
    assert!(counts[0] >= 12 && counts[1] == counts[0] && counts[2] == counts[0] - 3, "{counts:?}");
    assert!(mean(&errors.raw) > 8.0, "{:?}", errors.raw);
    assert!(mean(&errors.by_rates) < 1.0 && mean(&errors.anchored) < 1.0, "{:?}", errors.by_rates);
}

#[test]
fn the_bills_of_the_corpus_are_foretold_within_the_bounds() {
    let Some(folder) = std::env::var_os("TOOLREIN_CORPUS") else {
        return println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated");
    };
    let lines = std::fs::read_to_string(Path::new(&folder).join("transcripts.jsonl")).unwrap();
    println!(
        "errors in percent, mean and p95    conv.  bills   class estimate    by rates alone    upon a bill"
    );
    let mut beyond = Vec::new();
    for (model, errors) in evaluate(&lines) {
        let Errors { conversations, raw, by_rates, anchored } = errors;
        let shown: String = model.chars().take(34).collect();
        let columns =
            [&raw, &by_rates, &anchored].map(|errors| format!("{:>8.2} {:>8.2}", mean(errors), p95(errors)));
        println!("{shown:<34} {conversations:>5} {:>6} {}", raw.len(), columns.join(" "));
        let enough = conversations >= ENOUGH.0 && raw.len() >= ENOUGH.1;
        if enough && (mean(&by_rates) >= 6.0 || mean(&anchored) >= 2.5) {
            beyond.push(model);
        }
    }
    assert!(beyond.is_empty(), "6 % by rates alone, 2.5 % upon a bill: {beyond:?}");
}
