//! The policy `ask_user` over recorded conversations: how many of the solved ones, and of the others, would get a notice,
//! for which reason, and what it costs. The sample in `tests/data` always; `TOOLREIN_CORPUS=FOLDER make eval` runs over
//! the whole corpus and prints the table.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::plan::Change;
use policies::REGISTRY;
use policies::set::PolicySet;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Source};

/// Of so many solved conversations fewer than one may get a notice.
const ONE_IN: usize = 200;
/// The reasons, by words of their texts.
const REASONS: [(&str, &str); 6] = [
    ("poor", "search results in a row"),
    ("same topic", "The same topic was searched"),
    ("diminishing", "of the last result was in earlier"),
    ("failed", "calls in a row failed"),
    ("same error", "The same error came"),
    ("budget", "of the budget is left"),
];

#[derive(Default)]
struct Tally {
    conversations: usize,
    results: usize,
    /// Those with a notice.
    told: Vec<String>,
    notices: usize,
    chars: usize,
    reasons: BTreeMap<&'static str, usize>,
}

impl Tally {
    fn print(&self, name: &str) {
        let reasons: Vec<String> =
            self.reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!(
            "  {name:<34} {:>6} {:>8} {:>6} {:>6.2}% {:>8} {:>6}  {}",
            self.conversations,
            self.results,
            self.told.len(),
            100.0 * self.told.len() as f64 / self.conversations.max(1) as f64,
            self.notices,
            self.chars * 10 / 36,
            reasons.join(", ")
        );
    }
}

fn policies() -> PolicySet {
    let text = "[policy.ask_user]\ntool = true\n".to_owned();
    let source = Source::Text { name: "ask_user.toml".to_owned(), text };
    Config::load(source, &Overrides::default(), REGISTRY).unwrap().policies
}

/// The notices of `ask_user` in a whole conversation. Each depends on nothing after it.
fn notices(talk: &Value, policies: &PolicySet) -> Vec<String> {
    let mut body = json!({"model": talk["model"], "messages": talk["messages"]});
    if talk["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
        body["tools"] = talk["tools"].clone();
    }
    let body = body.to_string();
    let request = dialects::chat::parse(body.as_bytes()).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
    let (plan, _) = policies.read(&transcript);
    let own = plan.edits.into_iter().filter(|edit| edit.policy == "ask_user");
    own.filter_map(|edit| if let Change::Notice { text, .. } = edit.change { Some(text) } else { None })
        .collect()
}

/// The tallies of solved conversations and of the others, by source.
fn evaluate(lines: &str) -> BTreeMap<(bool, String), Tally> {
    let policies = policies();
    let mut tallies: BTreeMap<(bool, String), Tally> = BTreeMap::new();
    for line in lines.lines() {
        let talk: Value = serde_json::from_str(line).unwrap();
        let is_solved = talk["reward"].as_f64() == Some(1.0);
        let tally = tallies.entry((is_solved, talk["source"].as_str().unwrap().to_owned())).or_default();
        tally.conversations += 1;
        let messages = talk["messages"].as_array().unwrap();
        tally.results += messages.iter().filter(|message| message["role"] == "tool").count();
        let found = notices(&talk, &policies);
        if found.is_empty() {
            continue;
        }
        tally.told.push(format!("{}: {}", talk["id"], found[0]));
        for text in &found {
            tally.notices += 1;
            tally.chars += text.chars().count();
            for (name, _) in REASONS.iter().filter(|(_, words)| text.contains(words)) {
                *tally.reasons.entry(name).or_default() += 1;
            }
        }
    }
    tallies
}

/// Prints the table; returns how many solved conversations there are, and which get a notice.
fn report(name: &str, tallies: &BTreeMap<(bool, String), Tally>) -> (usize, Vec<String>) {
    println!(
        "\nask_user, {name}                     conv.  results   told            notices tokens  reasons"
    );
    for ((is_solved, source), tally) in tallies {
        tally.print(&format!("{} {source}", if *is_solved { "solved" } else { "other" }));
    }
    let solved = || tallies.iter().filter(|((is_solved, _), _)| *is_solved).map(|(_, tally)| tally);
    let count = solved().map(|tally| tally.conversations).sum();
    (count, solved().flat_map(|tally| tally.told.clone()).collect())
}

#[test]
fn no_solved_conversation_of_the_sample_gets_a_notice() {
    let (solved, told) = report("sample", &evaluate(&crate::recordings::own_transcripts()));
    assert!(solved >= 10, "{solved}");
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn few_solved_conversations_of_the_corpus_get_a_notice() {
    let Some(folder) = crate::recordings::corpus() else {
        println!("TOOLREIN_CORPUS names no folder: the corpus is not evaluated");
        return;
    };
    let lines = std::fs::read_to_string(folder.join("transcripts.jsonl")).unwrap();
    let (solved, told) = report("corpus", &evaluate(&lines));
    println!("{} of {solved} solved conversations get a notice", told.len());
    assert!(told.len() * ONE_IN < solved, "{told:#?}");
}
