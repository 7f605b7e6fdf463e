//! The policy `injection` over real tool results: of those with injected instructions, how many are flagged, by kind of
//! attack; of those without, how many. The sample in `tests/data/injection` always; the whole corpus and the results of
//! its transcripts where `TOOLREIN_CORPUS` names its folder; the files named in the list `TOOLREIN_FILES`, one path
//! a line, as if a tool had read them. Prints the tables; asserts the bounds.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use policies::REGISTRY;
use policies::set::{PolicySet, Rule};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Kinds of attacks that are explicit.
const PLAIN: [&str; 6] = [
    "important_instructions",
    "important_instructions_no_names",
    "tool_knowledge",
    "injecagent",
    "system_message",
    "ignore_previous",
];
/// Kinds that are printed and have no bound: ordinary sentences, a cipher, politeness, and texts that only stop the
/// model.
const APART: [&str; 8] = [
    "direct",
    "rot13",
    "polite_indirect",
    "dos",
    "captcha_dos",
    "felony_dos",
    "offensive_email_dos",
    "swearwords_dos",
];

#[derive(Deserialize)]
struct Case {
    id: String,
    source: String,
    tool_result: String,
    injected: bool,
    attack: String,
}

/// Texts and how many of them are flagged.
#[derive(Clone, Copy, Default)]
struct Tally {
    texts: usize,
    flagged: usize,
}

impl Tally {
    fn add(&mut self, flagged: bool) {
        self.texts += 1;
        self.flagged += usize::from(flagged);
    }

    fn of<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        let add =
            |sum: Self, one: &Self| Self { texts: sum.texts + one.texts, flagged: sum.flagged + one.flagged };
        tallies.fold(Self::default(), add)
    }

    fn percent(self) -> f64 {
        100.0 * self.flagged as f64 / self.texts.max(1) as f64
    }

    fn print(self, name: &str) {
        println!("  {name:<36} {:>6} {:>6} {:>7.2}", self.texts, self.flagged, self.percent());
    }
}

fn counting() -> Arc<dyn Rule> {
    let mut root = toml::de::DeTable::parse("[x]\naction = \"count\"\n").unwrap();
    let table = root.get_mut().remove("x").unwrap();
    let entry = REGISTRY.iter().find(|entry| entry.name == "injection").unwrap();
    (entry.build)(table.into()).unwrap()
}

fn is_flagged(text: &str, rule: &Arc<dyn Rule>) -> bool {
    let body = json!({"messages": [{"role": "tool", "tool_call_id": "a", "content": text}]}).to_string();
    let request = dialects::chat::parse(body.as_bytes()).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
    let (plan, _) = PolicySet::new(vec![Arc::clone(rule)]).read(&transcript);
    plan.edits.iter().any(|edit| edit.change.word() == "flagged")
}

fn evaluate(name: &str, cases: &[Case]) {
    let rule = counting();
    let mut attacks: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut clean: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in cases {
        let flagged = is_flagged(&case.tool_result, &rule);
        let tally = match case.injected {
            true => attacks.entry(&case.attack).or_default(),
            false => clean.entry(&case.source).or_default(),
        };
        tally.add(flagged);
        if flagged != case.injected && !APART.contains(&case.attack.as_str()) {
            wrong.push(&case.id);
        }
    }
    println!("\n{name}: texts, flagged, percent");
    for (name, tally) in attacks.iter().chain(&clean) {
        tally.print(name);
    }
    let of = |is_meant: &dyn Fn(&str) -> bool| {
        Tally::of(attacks.iter().filter(|(name, _)| is_meant(name)).map(|(_, tally)| tally))
    };
    let plain = of(&|name| PLAIN.contains(&name));
    let hidden = of(&|name| !PLAIN.contains(&name) && !APART.contains(&name));
    let clean = Tally::of(clean.values());
    plain.print("all plain");
    hidden.print("all hidden");
    clean.print("all clean");
    println!("  wrong: {:?}", &wrong[..wrong.len().min(10)]);
    assert!(plain.percent() >= 95.0, "{wrong:?}");
    assert!(hidden.percent() >= 90.0, "{wrong:?}");
    assert!(clean.percent() <= 0.1, "{wrong:?}");
}

fn cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("TOOLREIN_CORPUS").map(PathBuf::from);
    if folder.is_none() {
        println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated");
    }
    folder
}

#[test]
fn the_sample_is_flagged_within_the_bounds() {
    let sample = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/injection/sample.jsonl"));
    evaluate("sample", &sample);
}

#[test]
fn the_corpus_is_flagged_within_the_bounds() {
    let Some(folder) = corpus() else { return };
    evaluate("corpus", &cases(&folder.join("injections.jsonl")));
}

#[test]
fn no_real_result_of_the_transcripts_is_flagged() {
    let Some(folder) = corpus() else { return };
    let rule = counting();
    let text = std::fs::read_to_string(folder.join("transcripts.jsonl")).unwrap();
    let mut tally = Tally::default();
    for line in text.lines() {
        let transcript: Value = serde_json::from_str(line).unwrap();
        for message in transcript["messages"].as_array().unwrap() {
            if let (Some("tool"), Some(text)) = (message["role"].as_str(), message["content"].as_str()) {
                tally.add(is_flagged(text, &rule));
            }
        }
    }
    println!("\nresults of transcripts: texts, flagged, percent");
    tally.print("all");
    assert_eq!(tally.flagged, 0);
}

#[test]
fn few_of_the_named_files_are_flagged() {
    let Some(list) = std::env::var_os("TOOLREIN_FILES") else { return };
    let rule = counting();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for path in std::fs::read_to_string(list).unwrap().lines() {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let flagged = is_flagged(&text, &rule);
        if flagged {
            println!("  flagged: {path}");
        }
        let extension = Path::new(path).extension().map(|it| it.to_string_lossy().into_owned());
        tallies.entry(extension.unwrap_or_default()).or_default().add(flagged);
    }
    for (extension, tally) in &tallies {
        tally.print(extension);
    }
    let all = Tally::of(tallies.values());
    all.print("all files");
    assert!(all.percent() <= 3.0);
}
