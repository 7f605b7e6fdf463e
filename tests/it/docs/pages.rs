//! The pages: their paths, headings and blocks of code, and the text without these blocks.

use clap::CommandFactory as _;
use std::path::{Path, PathBuf};
use toolrein::cli::Cli;

/// One Markdown file.
pub struct Page {
    /// From the project's root, such as `docs/start.md`.
    pub path: String,
    pub text: String,
}

/// A fenced block of code.
pub struct Block<'a> {
    pub language: &'a str,
    /// Its lines, each with its end.
    pub text: String,
    /// The line of its fence, from 1.
    pub line: usize,
}

/// The languages of blocks, each of which has its test: here, or `tests/it/check` for toml. `text` and `mermaid` are
/// pictures.
const LANGUAGES: [&str; 9] = ["sh", "console", "toml", "python", "js", "json", "promql", "text", "mermaid"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages for users: the README, and all below `docs`.
pub fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned()];
    below(&root().join("docs"), &mut paths);
    paths.sort();
    paths.into_iter().map(page).collect()
}

/// # Panics
/// If there is no such page.
pub fn page(path: String) -> Page {
    let text = std::fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Page { path, text }
}

fn below(folder: &Path, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            below(&path, paths);
        } else if path.extension().is_some_and(|end| end == "md") {
            paths.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

impl Page {
    pub fn blocks(&self) -> Vec<Block<'_>> {
        let (mut blocks, mut open): (Vec<Block<'_>>, Option<Block<'_>>) = (Vec::new(), None);
        for (at, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    open = Some(Block { language: language.trim(), text: String::new(), line: at + 1 });
                }
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        blocks
    }

    /// The lines outside of blocks.
    pub fn prose(&self) -> String {
        let mut within = false;
        let lines = self.text.lines().filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            within ^= is_fence;
            !within && !is_fence
        });
        lines.map(|line| format!("{line}\n")).collect()
    }
}

#[test]
fn every_block_has_a_language_that_a_test_knows() {
    for page in pages() {
        for block in page.blocks() {
            let is_known = LANGUAGES.contains(&block.language);
            assert!(is_known, "{}:{}: no test knows {:?}", page.path, block.line, block.language);
        }
    }
}

#[test]
fn json_in_the_pages_is_json() {
    for page in pages() {
        for block in page.blocks().iter().filter(|block| block.language == "json") {
            let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
            assert!(parsed.is_ok(), "{}:{}: {parsed:?}", page.path, block.line);
        }
    }
}

#[test]
fn the_readme_is_read_in_a_minute_and_counts_the_policies() {
    let readme = page("README.md".to_owned());
    let lines = readme.text.lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
    let counted = format!("{} policies", policies::REGISTRY.len());
    assert!(readme.text.contains(&counted), "README.md does not say: {counted}");
    let clients = page("docs/clients.md".to_owned());
    let table = readme.text.split("| --- | --- |\n").nth(1).unwrap();
    let lines = table.lines().take_while(|line| line.starts_with('|')).map(|row| row.split('`').rev().nth(1));
    for line in lines.flatten().filter(|line| !line.starts_with('~')) {
        assert!(clients.text.contains(&format!("`{line}`")), "docs/clients.md does not have `{line}`");
    }
}

/// Pages that people come for with one question: at most so many words, commands included.
const SHORT: [(&str, usize); 5] = [
    ("docs/kubernetes.md", 300),
    ("docs/azure.md", 300),
    ("docs/agents.md", 300),
    ("docs/customers.md", 300),
    ("docs/why.md", 300),
];

#[test]
fn pages_with_one_answer_are_short() {
    for (path, most) in SHORT {
        let words = page(path.to_owned()).text.split_whitespace().count();
        assert!(words <= most, "{path} has {words} words");
    }
    let readme = page("README.md".to_owned()).text.lines().count();
    assert!(readme <= 150, "README.md has {readme} lines");
}

#[test]
fn every_policy_page_says_what_it_guarantees_and_what_it_does_not() {
    for page in pages().iter().filter(|page| page.path.starts_with("docs/policies/")) {
        if page.path.ends_with("README.md") {
            continue;
        }
        for heading in ["\n## Guarantees\n", "\n## Does not guarantee\n"] {
            let (_, section) =
                page.text.split_once(heading).unwrap_or_else(|| panic!("{}: no {heading}", page.path));
            let section = section.split("\n## ").next().unwrap();
            assert!(section.contains("\n- "), "{}: nothing below {heading}", page.path);
        }
    }
}

#[test]
fn the_glossary_has_twelve_words_and_the_pages_of_logs_and_headers_and_the_help_lead_to_it() {
    let glossary = page("docs/glossary.md".to_owned());
    let rows = glossary.text.lines().filter_map(|line| line.strip_prefix("| <a id=\""));
    let words: Vec<&str> = rows.map(|row| row.split('"').next().unwrap()).collect();
    assert_eq!(words.len(), 12);
    let others: Vec<Page> = pages().into_iter().filter(|page| page.path != glossary.path).collect();
    for word in words {
        let link = format!("glossary.md#{word})");
        assert!(others.iter().any(|page| page.text.contains(&link)), "no page leads to {word}");
    }
    for path in
        ["docs/logs.md", "docs/configuration.md", "docs/policies/README.md", "docs/start.md", "docs/why.md"]
    {
        assert!(page(path.to_owned()).text.contains("glossary.md"), "{path}");
    }
    let help = Cli::command().render_help().to_string();
    assert!(help.contains("docs/glossary.md"), "{help}");
}
