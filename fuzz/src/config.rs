//! Target: a configuration's text. Every problem names an existing line; a valid configuration is valid again when
//! written, processes a conversation, and can be shown as the settings in effect.

use crate::world::identity;
use bytes::Bytes;
use model::Transcript;
use model::memo::NoMemo;
use policies::REGISTRY;
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Problems, Source};

const BODY: &str = r#"{"model":"gpt-4.1","messages":[{"role":"system","content":"s"},{"role":"user","content":"please look"},{"role":"assistant","content":"I look?","tool_calls":[{"id":"a","type":"function","function":{"name":"searchAll","arguments":"{\"q\":1}"}}]},{"role":"tool","tool_call_id":"a","content":"[]"},{"role":"assistant","content":"Well."},{"role":"user","content":"more"}],"tools":[{"type":"function","function":{"name":"searchAll","parameters":{"type":"object"}}}]}"#;

pub fn run(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let config = match load(text) {
        Ok(config) => config,
        Err(problems) => {
            check_report(&problems, text);
            return toml_reads(&problems);
        }
    };
    let again = load(text).unwrap_or_else(|problems| panic!("good, then not: {problems}"));
    assert_eq!(config.policy_names(), again.policy_names());
    config.named_tools();
    let body = Bytes::from_static(BODY.as_bytes());
    let (request, identity) = (dialects::chat::parse(&body).unwrap(), identity(1));
    let mut transcript = Transcript::read(request.clone(), body.to_vec(), identity.clone(), Arc::new(NoMemo));
    transcript.token_factor = config.token_factor("gpt-4.1");
    transcript.context_window = config.context_window("gpt-4.1");
    let profile = config.profiles.of_model("gpt-4.1");
    let policies = config.policies_of(profile);
    for name in policies.names() {
        policies.explanation(name);
    }
    let (plan, mut judge) = policies.read(&transcript);
    assert_eq!(plan, again.policies_of(again.profiles.of_model("gpt-4.1")).read(&transcript).0);
    judge.rule(0, "searchAll", Some("{\"q\":1}"), 0);
    judge.usage(0);
    true
}

/// Whether it could be parsed as TOML: then there is more than one problem, or one that names a key.
fn toml_reads(problems: &Problems) -> bool {
    !problems.to_string().contains("TOML")
}

fn load(text: &str) -> Result<Config, Problems> {
    let source = Source::Text { name: "fuzz.toml".to_owned(), text: text.to_owned() };
    Config::load(source, &Overrides::default(), REGISTRY)
}

fn check_report(problems: &Problems, text: &str) {
    let report = problems.to_string();
    assert!(!report.is_empty(), "refused without a report");
    let lines = text.lines().count().max(1) + 1;
    for line in report.lines().filter_map(|line| line.strip_prefix("fuzz.toml:")) {
        let number = line.split(':').next().and_then(|number| number.parse::<usize>().ok());
        assert!(number.is_none_or(|number| number <= lines), "line {number:?} of {lines}: {report}");
    }
}
