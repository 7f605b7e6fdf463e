//! Tables that the program writes: the keys of each policy, from `toolrein policies NAME`, and the metrics, from their
//! definitions and from a scrape.

use super::pages::{Page, page, pages, root};
use super::sandbox::Sandbox;
use policies::{Entry, REGISTRY};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use toolrein::cli::policies_report;

const KEYS: &str = "<!-- made from toolrein policies NAME: UPDATE_DOCS=1 cargo test --test it docs:: -->\n";
const METRICS: &str = "<!-- made from the program's metrics: UPDATE_DOCS=1 cargo test --test it docs:: -->\n";
const END: &str = "<!-- end -->\n";

/// The `type` of errors, which is no metric.
const ERROR_TYPE: &str = "toolrein_error";

/// Longer defaults are cut: `proxy.toml` has them.
const LONGEST_DEFAULT: usize = 72;

#[test]
fn every_policy_has_a_page_with_an_example_and_its_keys() {
    for entry in REGISTRY {
        let page = page(format!("docs/policies/{}.md", entry.name));
        let title = page.text.lines().next().unwrap_or_default().replace('`', "");
        assert!(title.starts_with(&format!("# {}", entry.name)), "{}: {title}", page.path);
        let example = page.blocks().into_iter().find(|block| block.language == "toml");
        let example = example.unwrap_or_else(|| panic!("{} has no example", page.path));
        assert!(
            example.text.contains(&format!("[policy.{}", entry.name)),
            "{}:\n{}",
            page.path,
            example.text
        );
        hold(&page, KEYS, &keys(entry));
    }
}

#[test]
fn the_metrics_are_on_their_page_with_their_kind_labels_and_help() {
    hold(&page("docs/metrics.md".to_owned()), METRICS, &metrics_table());
}

/// What the sources say of a metric is what a scrape says.
#[test]
fn what_is_scraped_is_on_the_page() {
    let sandbox = Sandbox::new();
    sandbox.chat("demo-stuck", "Search for bicycles.", "web_search");
    let scraped = sandbox.program.metrics();
    let page = page("docs/metrics.md".to_owned());
    let mut families = 0;
    for line in scraped.lines().filter(|line| line.starts_with("# HELP toolrein_")) {
        let (name, help) = line["# HELP ".len()..].split_once(' ').unwrap();
        let kind = scraped.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap();
        let row = page.text.lines().find(|row| row.starts_with(&format!("| `{name}"))).unwrap_or_default();
        let labels = labels_of(&scraped, name, kind);
        let expected = format!("| `{name}{labels}` | {kind} | {} |", escaped(help));
        let sorted = row.replace(&labels_in(row), &sorted(&labels_in(row)));
        assert_eq!(sorted, expected);
        families += 1;
    }
    assert!(families > 15, "{families}\n{scraped}");
}

/// A name that no metric has any more misleads whoever makes a query of it.
#[test]
fn every_metric_that_a_page_names_is_on_the_page_of_metrics() {
    let name = Regex::new(r"\btoolrein_[a-z_]+").unwrap();
    let listed = page("docs/metrics.md".to_owned()).text;
    let known = |name: &str| {
        let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        [Some(name), family]
            .into_iter()
            .flatten()
            .any(|name| listed.contains(&format!("| `{name}`")) || listed.contains(&format!("| `{name}{{")))
    };
    for page in pages() {
        let mut named = name.find_iter(&page.text).map(|found| found.as_str());
        let unknown = named.find(|name| *name != ERROR_TYPE && !known(name));
        assert_eq!(unknown, None, "{}", page.path);
    }
}

/// Compares the part of the page between the marker and its end with `made`, or writes it.
fn hold(page: &Page, marker: &str, made: &str) {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut text = page.text.clone();
    if update && !text.contains(marker) {
        write!(text, "\n## Keys\n\n{marker}{END}").unwrap();
    }
    let (before, rest) = text.split_once(marker).unwrap_or_else(|| panic!("{}: no {marker}", page.path));
    let (written, after) = rest.split_once(END).unwrap_or_else(|| panic!("{}: no {END}", page.path));
    if update {
        std::fs::write(root().join(&page.path), format!("{before}{marker}{made}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, made, "{}: UPDATE_DOCS=1 cargo test --test it docs::", page.path);
    }
}

/// The keys of a policy as a table, its scope and its texts.
fn keys(entry: &Entry) -> String {
    let (report, _) = policies_report(REGISTRY, Some(entry.name));
    let mut made = String::from("| key | default | what it does |\n| --- | --- | --- |\n");
    for Key { names, default, what } in parsed(&report, entry.name) {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let default = if default.is_empty() { default } else { format!("`{default}`").replace('|', "\\|") };
        writeln!(made, "| {} | {default} | {} |", names.join(", "), escaped(&what)).unwrap();
    }
    if let Some(scope) = entry.scope {
        write!(made, "\nActs on: {scope}.\n").unwrap();
    }
    let texts: Vec<String> = entry.texts.iter().map(|text| format!("`{}`", text.key)).collect();
    if !texts.is_empty() {
        write!(
            made,
            "\nTexts that `[policy.{}.texts]` may replace: {}. `toolrein policies {}` shows them with their placeholders.\n",
            entry.name,
            texts.join(", "),
            entry.name
        )
        .unwrap();
    }
    made
}

/// One row: keys that share a default and a comment.
struct Key {
    names: Vec<String>,
    default: String,
    what: String,
}

fn parsed(report: &str, policy: &str) -> Vec<Key> {
    let settings = report.split("\n# What the model and people read.").next().unwrap_or_default();
    let own = format!("[policy.{policy}");
    let (mut keys, mut table, mut comment): (Vec<Key>, Option<String>, String) =
        (Vec::new(), None, String::new());
    let mut lines = settings.lines();
    while let Some(line) = lines.next() {
        let setting = line.strip_prefix('#').unwrap_or(line);
        if line.is_empty() || setting.is_empty() {
            comment.clear();
        } else if let Some(further) = line.strip_prefix("# ") {
            let gap = if comment.is_empty() { "" } else { " " };
            comment = comment + gap + further.trim();
        } else if let Some(rest) = setting.strip_prefix(&own) {
            let inner = rest.trim_end_matches(']').trim_start_matches('.');
            if !inner.is_empty() {
                keys.push(Key {
                    names: vec![inner.to_owned()],
                    default: String::new(),
                    what: std::mem::take(&mut comment),
                });
            }
            table = Some(if inner.is_empty() { String::new() } else { format!("{inner}.") });
            comment.clear();
        } else if let (Some(table), Some((name, value))) = (&table, setting.split_once(" = ")) {
            let mut value = value.to_owned();
            while value.matches(['[', '{']).count() > value.matches([']', '}']).count() {
                let Some(more) = lines.next() else { break };
                value += more.trim_start_matches('#').trim();
            }
            if name != "texts" {
                put(&mut keys, format!("{table}{name}"), cut(&value), std::mem::take(&mut comment));
            }
            comment.clear();
        }
    }
    keys
}

fn put(keys: &mut Vec<Key>, name: String, default: String, what: String) {
    match keys.last_mut() {
        Some(last) if what.is_empty() && last.default == default => last.names.push(name),
        _ => keys.push(Key { names: vec![name], default, what }),
    }
}

fn cut(value: &str) -> String {
    if value.chars().count() <= LONGEST_DEFAULT {
        return value.to_owned();
    }
    value.chars().take(LONGEST_DEFAULT).collect::<String>() + " …"
}

/// A text in a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('*', "\\*").replace('<', "&lt;")
}

/// The metrics as a table, from what the sources of `telemetry` say of each.
fn metrics_table() -> String {
    let made = Regex::new(
        r#"(?s)(?:\.(\w+)|Requests::new)\(\s*(?:&make,\s*)?"((?:toolrein|gen_ai)_\w+)",\s*"((?:[^"\\]|\\.)*)",?\s*(.*?)\)\?"#,
    )
    .unwrap();
    let named_help =
        Regex::new(r#"let help = "([^"]*)";\s*self\.(\w+)\("(\w+)", help, &\[([^\]]*)\]"#).unwrap();
    let name = Regex::new(r#""(toolrein_[a-z_]+)""#).unwrap();
    let mut rows = BTreeMap::new();
    let folder = root().join("src/telemetry");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(source) = std::fs::read_to_string(path) else { continue };
        let source = source.split("\n#[cfg(test)]").next().unwrap_or_default();
        for found in made.captures_iter(source) {
            let constructor = found.get(1).map_or("requests", |name| name.as_str());
            rows.insert(found[2].to_owned(), row(&found[2], constructor, &found[3], &found[4]));
        }
        for found in named_help.captures_iter(source) {
            rows.insert(
                found[3].to_owned(),
                row(&found[3], &found[2], &found[1], &format!("&[{}]", &found[4])),
            );
        }
        // None is missed: each name in quotes is of a metric.
        let missed: Vec<&str> = name
            .captures_iter(source)
            .map(|found| found.get(1).unwrap().as_str())
            .filter(|name| !rows.contains_key(*name))
            .collect();
        assert!(missed.is_empty(), "{missed:?}");
    }
    let head = "| metric | kind | what it counts |\n| --- | --- | --- |\n";
    rows.into_values().fold(head.to_owned(), |table, row| table + &row)
}

fn row(name: &str, constructor: &str, help: &str, rest: &str) -> String {
    let kind = match constructor {
        "gauge" | "gauges" => "gauge",
        "histogram" | "histograms" => "histogram",
        _ => "counter",
    };
    let quoted = Regex::new(r#""(\w+)""#).unwrap();
    let listed = match rest.trim_start() {
        _ if constructor == "requests" => "\"endpoint\", \"model\", \"status\", \"error\"",
        rest if rest.starts_with("&LABELS") => "\"touched\", \"held_out\"",
        rest if rest.starts_with("&[") => rest.split(']').next().unwrap_or_default(),
        rest if rest.starts_with('"') => rest.split(',').next().unwrap_or_default(),
        _ => "",
    };
    let labels: Vec<&str> =
        quoted.captures_iter(listed).map(|found| found.get(1).unwrap().as_str()).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let help = Regex::new(r"\\\n\s*").unwrap().replace_all(help, "").replace("\\\"", "\"");
    format!("| `{name}{labels}` | {kind} | {} |\n", escaped(&help))
}

/// The labels of a scraped family as `{a,b}`, in the order of their names, without a histogram's own.
fn labels_of(scraped: &str, name: &str, kind: &str) -> String {
    let suffix = if kind == "histogram" { "_count" } else { "" };
    let sample = scraped.lines().find(|line| {
        line.strip_prefix(&format!("{name}{suffix}")).is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let label = Regex::new(r#"(\w+)=""#).unwrap();
    let sample = sample.unwrap_or_default();
    let labels: Vec<&str> = label.captures_iter(sample).map(|found| found.get(1).unwrap().as_str()).collect();
    if labels.is_empty() { String::new() } else { sorted(&format!("{{{}}}", labels.join(","))) }
}

/// The labels in a row of the page, braces included.
fn labels_in(row: &str) -> String {
    let name = row.split('`').nth(1).unwrap_or_default();
    name.find('{').map_or_else(String::new, |at| name[at..].to_owned())
}

fn sorted(labels: &str) -> String {
    let mut names: Vec<&str> =
        labels.trim_matches(['{', '}']).split(',').filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    if names.is_empty() { String::new() } else { format!("{{{}}}", names.join(",")) }
}
