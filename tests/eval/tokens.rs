//! How far the token estimate of whole prompts is off their bills, model by model: of the corpus, where `TOOLREIN_CORPUS`
//! names its folder. Prints the table; asserts the bounds.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::tokens::Estimate;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Smaller prompts are mostly constants of the provider's.
const SMALL_PROMPT: u64 = 200;
/// What a model must have for its errors to be held against the bound: bills.
const ENOUGH: usize = 20;
/// The mean error of a model at most, in percent: providers render tools in their own ways, which no estimate knows.
const MOST_OFF: f64 = 30.0;
/// The same of the models whose tokenizer the estimate was fitted to, by the beginnings of their names.
const FITTED: [&str; 2] = ["gpt-4o", "gpt-4.1"];
const MOST_OFF_FITTED: f64 = 15.0;

/// The estimated tokens of a request.
fn estimated(body: &str) -> u64 {
    let request = dialects::chat::parse(body.as_bytes()).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request.clone(), body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
    let messages: Estimate = (0..request.messages.len()).map(|at| transcript.view(at).tokens()).sum();
    (transcript.definition_tokens() + transcript.instructions_tokens() + messages).tokens()
}

/// By how many percent the estimates of a conversation's requests are off their bills. Where one history has several
/// bills, nothing says which request they are of, so the first counts.
fn errors(talk: &Value) -> Vec<f64> {
    let messages = talk["messages"].as_array().unwrap();
    let (mut errors, mut last) = (Vec::new(), 0);
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
        errors.push((estimated(&body.to_string()) as f64 / prompt as f64 - 1.0).abs() * 100.0);
    }
    errors
}

#[test]
fn the_estimates_of_the_corpus_are_near_the_bills() {
    let Some(folder) = std::env::var_os("TOOLREIN_CORPUS") else {
        return println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated");
    };
    let lines = std::fs::read_to_string(Path::new(&folder).join("transcripts.jsonl")).unwrap();
    let mut by_model: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in lines.lines() {
        let talk: Value = serde_json::from_str(line).unwrap();
        by_model.entry(talk["model"].as_str().unwrap().to_owned()).or_default().extend(errors(&talk));
    }
    println!("errors in percent                  bills     mean      p95");
    let mut beyond = Vec::new();
    for (model, mut errors) in by_model.into_iter().filter(|(_, errors)| !errors.is_empty()) {
        errors.sort_by(f64::total_cmp);
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let shown: String = model.chars().take(34).collect();
        println!("{shown:<34} {:>5} {mean:>8.2} {:>8.2}", errors.len(), errors[errors.len() * 95 / 100]);
        let name = model.rsplit('/').next().unwrap_or_default();
        let is_fitted = FITTED.iter().any(|fitted| name.starts_with(fitted));
        let most = if is_fitted { MOST_OFF_FITTED } else { MOST_OFF };
        beyond.extend((errors.len() >= ENOUGH && mean > most).then_some(model));
    }
    assert!(beyond.is_empty(), "{beyond:?}");
}
