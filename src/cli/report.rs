//! What `toolrein check` and `toolrein policies` print. Reads a configuration and prints nothing itself.

use super::EXIT_REFUSED;
use crate::config::{Config, Overrides, Profile, Source, shipped};
use crate::serve::trial::Trial;
use humantime::format_rfc3339_seconds;
use policies::set::PolicySet;
use std::fmt::Write as _;

/// The output of `toolrein check`, with the exit code: what is in effect and 0, or every problem and 2; without what only
/// a trial of the start finds.
pub fn check_report(source: Source, overrides: &Overrides, registry: &[policies::Entry]) -> (String, u8) {
    tried_report(source, overrides, registry, |_| Trial::default())
}

/// The output of `toolrein check` and its exit code, with what `start` finds when it tries to start with the
/// configuration.
pub fn tried_report(
    source: Source,
    overrides: &Overrides,
    registry: &[policies::Entry],
    start: impl FnOnce(&Config) -> Trial,
) -> (String, u8) {
    let mut config = match Config::load(source, overrides, registry) {
        Ok(config) => config,
        Err(problems) => return (format!("{problems}\n"), EXIT_REFUSED),
    };
    let name = config.source.clone();
    let Trial { problems, warnings } = start(&config);
    config.warnings.extend(warnings);
    match problems.is_empty() {
        true => (good_report(&name, &config, registry), 0),
        false => (problems.iter().map(|problem| format!("{name}: {problem}\n")).collect(), EXIT_REFUSED),
    }
}

/// The output of `toolrein policies`, or of `toolrein policies NAME`, with the exit code.
pub fn policies_report(registry: &[policies::Entry], name: Option<&str>) -> (String, u8) {
    let Some(name) = name else {
        let width = name_width(registry);
        let lines = registry.iter().map(|entry| format!("{:width$}  {}\n", entry.name, entry.summary));
        return (lines.collect(), 0);
    };
    let Some(entry) = registry.iter().find(|entry| entry.name == name) else {
        return (format!("{name}: there is no such policy; toolrein policies lists them\n"), EXIT_REFUSED);
    };
    let scope = entry.scope.map_or_else(String::new, |scope| format!("acts on: {scope}\n"));
    let keys = shipped::of_policy(name).unwrap_or_default();
    (format!("{name}: {}\n{scope}\n{keys}\n{}", entry.summary, texts_report(entry)), 0)
}

/// The texts of a policy, as a table of its own in which each can be replaced.
fn texts_report(entry: &policies::Entry) -> String {
    if entry.texts.is_empty() {
        return String::new();
    }
    let about = "What the model and people read. Put a text of your own into the table, with any of its placeholders:";
    let mut report = format!("\n# {about}\n#[policy.{}.texts]\n", entry.name);
    for text in entry.texts {
        let setting = toml::Value::from(text.default);
        let setting = format!("{} = {setting}", text.key);
        setting.lines().for_each(|line| put(&mut report, format_args!("#{line}\n")));
    }
    report
}

fn good_report(name: &str, config: &Config, registry: &[policies::Entry]) -> String {
    let mut report = format!("{name}: good\n\n");
    let mode = serde_json::to_value(config.mode).unwrap_or_default();
    for (what, value) in [
        ("mode", mode.as_str().unwrap_or_default().to_owned()),
        ("proxy", proxy(config)),
        ("admin", config.listen.admin.to_string()),
        ("probes", config.listen.probes.map(|address| address.to_string()).unwrap_or_default()),
        ("upstream", config.upstream.url.to_string()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    {
        put(&mut report, format_args!("{what:8}  {value}\n"));
    }
    let outside = if config.profiles.is_empty() { "" } else { " outside of profiles" };
    put(&mut report, format_args!("\nPolicies that are on{outside}:\n"));
    for (name, settings) in &config.policy_settings {
        let entry = registry.iter().find(|entry| entry.name == *name);
        let summary = entry.map_or("", |entry| entry.summary);
        let scope = entry.and_then(|entry| entry.scope);
        let scope = scope.map_or_else(String::new, |scope| format!("\n    acts on: {scope}"));
        put_policy(&mut report, &format!("{name}: {summary}{scope}"), settings);
        put_explanation(&mut report, &config.policies, name);
    }
    let on: Vec<&str> = config.policies.names().collect();
    if on.is_empty() {
        report.push_str("\n  none\n");
    }
    let off: Vec<&str> = registry.iter().map(|entry| entry.name).filter(|name| !on.contains(name)).collect();
    if !off.is_empty() {
        put(&mut report, format_args!("\nOff: {}\n", off.join(", ")));
    }
    for profile in config.profiles.iter() {
        put(&mut report, format_args!("\nProfile {}, {}:\n", profile.name, taken_by(config, profile)));
        for (name, settings) in profile.policy_settings() {
            put_policy(&mut report, name, &settings);
            put_explanation(&mut report, &profile.policies, name);
        }
        let on: Vec<&str> = profile.policies.names().collect();
        put(&mut report, format_args!("\n  All that are on: {}\n", or_none(&on)));
    }
    for warning in &config.warnings {
        put(&mut report, format_args!("\nwarning: {warning}\n"));
    }
    report
}

/// Where clients connect, and how.
fn proxy(config: &Config) -> String {
    let address = config.listen.proxy;
    match &config.certificates {
        Some(found) => {
            format!("{address} with TLS (certificate until {})", format_rfc3339_seconds(found.ends))
        }
        None => address.to_string(),
    }
}

fn put_policy(report: &mut String, title: &str, settings: &[String]) {
    put(report, format_args!("\n  {title}\n"));
    for line in settings {
        put(report, format_args!("    {line}\n"));
    }
}

/// What the settings of a policy amount to: in sentences, and as a drawing.
fn put_explanation(report: &mut String, policies: &PolicySet, name: &str) {
    let Some(explanation) = policies.explanation(name) else { return };
    for sentence in &explanation.sentences {
        put(report, format_args!("    -> {sentence}\n"));
    }
    for line in explanation.diagram.iter().flat_map(|diagram| diagram.lines()) {
        put(report, format_args!("    {line}\n"));
    }
}

/// The selection rules of a profile, and the profile that it extends.
fn taken_by(config: &Config, profile: &Profile) -> String {
    let chosen = &profile.chosen;
    let models = chosen.models.iter().map(|model| format!("model {}", model.as_str()));
    let tiers = chosen.tiers.iter().map(|tier| format!("tier {tier}"));
    let header = config.conversation.profile_header.then(|| "header".to_owned());
    let ways: Vec<String> = models.chain(tiers).chain(header).collect();
    let over =
        chosen.extends.as_ref().map_or_else(String::new, |extends| format!(", over profile {extends}"));
    format!("by {}{over}", or_none(&ways))
}

fn or_none<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Writing to a string cannot fail.
fn put(report: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = report.write_fmt(text);
}

fn name_width(registry: &[policies::Entry]) -> usize {
    registry.iter().map(|entry| entry.name.len()).max().unwrap_or_default()
}
