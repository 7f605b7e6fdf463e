//! The policy `redact` over real tool results: how many texts it touches, and how many values of each kind it finds. The
//! sample in `tests/data` always; the corpus where `TOOLREIN_CORPUS` names its folder. Prints the tables, with examples
//! where `TOOLREIN_SHOW` is set; asserts that few results of coding and browsing agents, which hold ids, dates, hashes and
//! numbers of every kind, are taken for cards, accounts and phones.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::plan::Change;
use policies::REGISTRY;
use policies::set::{PolicySet, Rule};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Examples of each kind that are printed.
const SHOWN: usize = 40;

fn redacting() -> Arc<dyn Rule> {
    let mut root = toml::de::DeTable::parse("[x]\nexplain = false\n").unwrap();
    let table = root.get_mut().remove("x").unwrap();
    let entry = REGISTRY.iter().find(|entry| entry.name == "redact").unwrap();
    (entry.build)(table.into()).unwrap()
}

#[derive(Default)]
struct Tally {
    texts: usize,
    touched: usize,
    bytes: usize,
    /// Texts with a value of the kind, and examples.
    kinds: BTreeMap<String, (usize, Vec<String>)>,
}

impl Tally {
    fn add(&mut self, text: &str, rule: &Arc<dyn Rule>) {
        self.texts += 1;
        self.bytes += text.len();
        let body = json!({"messages": [{"role": "tool", "tool_call_id": "a", "content": text}]}).to_string();
        let request = dialects::chat::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
        let (plan, _) = PolicySet::new(vec![Arc::clone(rule)]).read(&transcript);
        self.touched += usize::from(!plan.edits.is_empty());
        for edit in plan.edits {
            match edit.change {
                Change::Remark { word, .. } => self.kinds.entry(word.to_owned()).or_default().0 += 1,
                Change::Redact { ranges, .. } => {
                    for one in ranges.iter() {
                        let label = one.by.trim_matches(['"', '[']).split('_').next().unwrap_or_default();
                        let (_, examples) = self.kinds.entry(label.to_lowercase()).or_default();
                        let start = text.floor_char_boundary(one.range.start.saturating_sub(24));
                        let end = text.ceil_char_boundary((one.range.end + 8).min(text.len()));
                        let example = text[start..end].replace('\n', "⏎");
                        examples.push(example.chars().take(110).collect());
                    }
                }
                _ => {}
            }
        }
    }

    fn print(&self, name: &str) {
        let percent = |count: usize| 100.0 * count as f64 / self.texts.max(1) as f64;
        println!(
            "\n{name}: {} texts, {} bytes, {} touched ({:.2}%)",
            self.texts,
            self.bytes,
            self.touched,
            percent(self.touched)
        );
        for (kind, (texts, values)) in &self.kinds {
            println!("  {kind:<10} {texts:>6} texts ({:>5.2}%) {:>6} values", percent(*texts), values.len());
            if std::env::var_os("TOOLREIN_SHOW").is_some() {
                let mut values = values.clone();
                values.dedup();
                values
                    .iter()
                    .step_by((values.len() / SHOWN).max(1))
                    .for_each(|value| println!("      {value}"));
            }
        }
    }

    fn percent_of(&self, kind: &str) -> f64 {
        let (texts, _) = self.kinds.get(kind).map_or((0, 0), |(texts, values)| (*texts, values.len()));
        100.0 * texts as f64 / self.texts.max(1) as f64
    }
}

/// The results of recorded conversations, by source.
fn transcripts(path: &Path) -> BTreeMap<String, Tally> {
    let rule = redacting();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for line in text.lines() {
        let transcript: Value = serde_json::from_str(line).unwrap();
        let source = transcript["source"].as_str().unwrap_or("recorded").to_owned();
        for message in transcript["messages"].as_array().unwrap() {
            if let (Some("tool"), Some(text)) = (message["role"].as_str(), message["content"].as_str()) {
                tallies.entry(source.clone()).or_default().add(text, &rule);
            }
        }
    }
    tallies
}

/// Of real results, this share may be taken to hold a number that they can hardly hold.
fn assert_few(tallies: &BTreeMap<String, Tally>) {
    for (source, tally) in tallies {
        tally.print(source);
    }
    let texts: usize = tallies.values().map(|tally| tally.texts).sum();
    for (kind, most) in [("card", 0.1), ("iban", 0.1), ("secret", 2.0)] {
        let found: f64 = tallies.values().map(|tally| tally.percent_of(kind) * tally.texts as f64).sum();
        assert!(found / texts as f64 <= most, "{kind}: {found} percent of {texts}");
    }
    // The customers of tau2-bench have phone numbers.
    for (source, tally) in tallies.iter().filter(|(source, _)| *source != "tau2-bench") {
        assert!(tally.percent_of("phone") <= 0.5, "{source}: {}", tally.percent_of("phone"));
    }
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

#[test]
fn few_results_of_the_sample_are_touched() {
    assert_few(&transcripts(&data("transcripts/sample.jsonl")));
}

#[test]
fn few_results_of_the_corpus_are_touched() {
    let Some(folder) = std::env::var_os("TOOLREIN_CORPUS").map(PathBuf::from) else {
        println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated");
        return;
    };
    assert_few(&transcripts(&folder.join("transcripts.jsonl")));
    let rule = redacting();
    let mut tally = Tally::default();
    for line in std::fs::read_to_string(folder.join("injections.jsonl")).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        tally.add(case["tool_result"].as_str().unwrap(), &rule);
    }
    tally.print("results of mail, banking and travel tools, which hold personal data");
}
