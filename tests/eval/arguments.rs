//! The policy `arguments` over real calls: of those known to be good, how many are refused, and of those broken
//! on purpose, how many are found. The sample in `tests/data/calls` always; the whole corpus where
//! `TOOLREIN_CORPUS` names its folder. Prints the table; asserts the bounds of the lenient form.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use policies::REGISTRY;
use policies::set::{PolicySet, Rule};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Broken calls that the lenient form passes by design: the tools behind them take them.
const HARMLESS: [&str; 3] = ["enum_unknown", "numeric_string_for_number", "json_string_for_array"];

/// A call against its tool's declaration.
#[derive(Deserialize)]
struct Case {
    source: String,
    id: String,
    tool: Value,
    arguments: String,
    valid: bool,
    mutation: Option<String>,
}

#[derive(Default)]
struct Tally {
    cases: usize,
    refused: usize,
}

/// The results of all cases: good calls by source, broken calls by mutation.
#[derive(Default)]
struct Table {
    good: BTreeMap<String, Tally>,
    broken: BTreeMap<String, Tally>,
    refused: Vec<String>,
    missed: Vec<String>,
}

impl Tally {
    fn share(tallies: impl Iterator<Item = (usize, usize)>) -> (usize, usize, f64) {
        let (cases, refused) = tallies.fold((0, 0), |sum, tally| (sum.0 + tally.0, sum.1 + tally.1));
        (cases, refused, 100.0 * refused as f64 / cases.max(1) as f64)
    }
}

impl Table {
    fn of(cases: &[Case], rule: &Arc<dyn Rule>) -> Self {
        let mut table = Self::default();
        for case in cases {
            let problem = refusal(case, rule);
            let mutation = case.mutation.clone().unwrap_or_default();
            let tally = match case.valid {
                true => table.good.entry(case.source.clone()).or_default(),
                false => table.broken.entry(mutation.clone()).or_default(),
            };
            tally.cases += 1;
            tally.refused += usize::from(problem.is_some());
            match problem {
                Some(text) if case.valid => table.refused.push(format!("{}: {text}", case.id)),
                None if !case.valid && !HARMLESS.contains(&mutation.as_str()) => {
                    table.missed.push(case.id.clone());
                }
                _ => {}
            }
        }
        table
    }

    /// Good calls, how many of them are refused, and their share in percent.
    fn refused(&self) -> (usize, usize, f64) {
        Tally::share(self.good.values().map(|tally| (tally.cases, tally.refused)))
    }

    /// The number and share of broken calls that are found, with or without the harmless mutations.
    fn found(&self, harmless: bool) -> (usize, usize, f64) {
        let chosen = self.broken.iter().filter(|(name, _)| harmless == HARMLESS.contains(&name.as_str()));
        Tally::share(chosen.map(|(_, tally)| (tally.cases, tally.refused)))
    }

    fn print(&self, form: &str) {
        println!("\n{form}: calls, refused, percent");
        for (name, tally) in self.good.iter().chain(&self.broken) {
            let percent = 100.0 * tally.refused as f64 / tally.cases as f64;
            println!("  {name:<32} {:>6} {:>6} {percent:>7.2}", tally.cases, tally.refused);
        }
        let rows = [("good", self.refused()), ("broken", self.found(false)), ("harmless", self.found(true))];
        for (name, (cases, refused, percent)) in rows {
            println!("  all {name:<28} {cases:>6} {refused:>6} {percent:>7.2}");
        }
        for line in self.refused.iter().take(40) {
            println!("  refused though good: {line}");
        }
        println!("  passed though broken: {:?}", &self.missed[..self.missed.len().min(10)]);
    }
}

fn rule(settings: &str) -> Arc<dyn Rule> {
    let text = format!("[x]\n{settings}");
    let mut root = toml::de::DeTable::parse(&text).unwrap();
    let table = root.get_mut().remove("x").unwrap();
    let entry = REGISTRY.iter().find(|entry| entry.name == "arguments").unwrap();
    (entry.build)(table.into()).unwrap()
}

/// Why the call is blocked, if it is.
fn refusal(case: &Case, rule: &Arc<dyn Rule>) -> Option<String> {
    let body = json!({"model": "m", "tools": [case.tool], "messages": [{"role": "user", "content": "q"}]});
    let body = body.to_string();
    let request = dialects::chat::parse(body.as_bytes()).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
    let (_, mut judge) = PolicySet::new(vec![Arc::clone(rule)]).read(&transcript);
    let name = case.tool["function"]["name"].as_str().unwrap();
    let mut ruling = judge.rule(0, name, Some(&case.arguments), 0);
    let (_, reason) = ruling.objections.pop()?;
    assert!(reason.message.chars().count() <= 600, "{}", reason.message);
    Some(reason.message)
}

fn cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn evaluate(path: &Path) {
    let cases = cases(path);
    let lenient = Table::of(&cases, &rule(""));
    lenient.print("lenient");
    let strict = Table::of(&cases, &rule("strict = true"));
    strict.print("strict");
    let (good, refused, percent) = lenient.refused();
    assert!(percent <= 0.3, "{refused} of {good} good calls are refused");
    let (broken, found, percent) = lenient.found(false);
    assert!(percent >= 95.0, "{found} of {broken} broken calls are found");
    assert!(strict.missed.is_empty(), "strict passes {:?}", strict.missed);
}

#[test]
fn the_sample_is_judged_within_the_bounds() {
    evaluate(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/calls/sample.jsonl"));
}

#[test]
fn the_corpus_is_judged_within_the_bounds() {
    match std::env::var_os("TOOLREIN_CORPUS") {
        Some(folder) => evaluate(&Path::new(&folder).join("calls.jsonl")),
        None => println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated"),
    }
}
