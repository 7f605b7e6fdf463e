//! Commands of the pages: each runs and ends with 0, and prints what the page shows, `...` aside.

use super::pages::{Block, pages};
use super::sandbox::Sandbox;
use regex::Regex;
use std::collections::{BTreeSet, HashMap};

/// Commands that cannot run here: the page, how the block begins, and why.
const NOT_RUN: [(&str, &str, &str); 5] = [
    ("README.md", "uvx toolrein demo", "tests/it/packages installs the packages of this state and runs them"),
    ("README.md", "make demo", "builds the program, and runs this test"),
    ("docs/start.md", "pip install toolrein", "tests/it/packages does"),
    ("docs/admin.md", "curl -N", "it reads until it is stopped; tests/it/admin.rs reads the stream"),
    (
        "docs/tls.md",
        "openssl req -x509",
        "its second line serves until it is stopped; tests/it/access does the same",
    ),
];

/// Shows a call that waits for a person.
const APPROVALS: &str = "docs/approvals.md";

/// Its commands need the tools of a cluster (`make deploy-tools`), so that they run with the programs of `clients`.
pub const CLUSTER: &str = "docs/kubernetes.md";

/// The outputs so far: equal commands of two pages run once, where they take long.
type Outputs = HashMap<String, String>;

#[test]
fn every_command_runs_and_prints_what_its_page_shows() {
    let mut sandbox = Sandbox::new();
    let (mut outputs, mut left_out, mut run) = (Outputs::new(), BTreeSet::new(), 0);
    let mut problems = Vec::new();
    for page in pages().into_iter().filter(|page| page.path != CLUSTER) {
        for block in page.blocks().iter().filter(|block| ["sh", "console"].contains(&block.language)) {
            let fits = |row: &&(&str, &str, &str)| row.0 == page.path && block.text.starts_with(row.1);
            if let Some(row) = NOT_RUN.iter().find(fits) {
                left_out.insert(row);
                continue;
            }
            let mut play = |sandbox: &Sandbox| {
                if let Err(problem) = check(sandbox, block, &mut outputs) {
                    problems.push(format!("{}:{}: {problem}", page.path, block.line));
                }
            };
            if page.path == APPROVALS {
                sandbox.with_a_call_that_waits(play);
            } else {
                play(&sandbox);
            }
            run += 1;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert_eq!(left_out.len(), NOT_RUN.len(), "of NOT_RUN only {left_out:?} are there");
    assert!(run >= 12, "{run}");
}

fn check(sandbox: &Sandbox, block: &Block<'_>, outputs: &mut Outputs) -> Result<(), String> {
    for Step { command, shown } in steps(block) {
        if !outputs.contains_key(&command) || !command.starts_with("toolrein demo") {
            let output = sandbox.run(&command);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let said = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                return Err(format!("{command}\n{}\n{printed}{said}", output.status));
            }
            outputs.insert(command.clone(), sandbox.documented(&printed));
        }
        let printed = &outputs[&command];
        match shown {
            Some(shown) if !fits(&shown, printed) => {
                return Err(format!("{command}\nshown:\n{shown}\nprinted:\n{printed}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A command, and where the block shows one its output.
struct Step {
    command: String,
    shown: Option<String>,
}

fn steps(block: &Block<'_>) -> Vec<Step> {
    if block.language == "sh" {
        return vec![Step { command: block.text.clone(), shown: None }];
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: Some(String::new()) });
            goes_on = line.ends_with('\\');
            continue;
        }
        let step = steps.last_mut().expect("a console begins with a command");
        let part = if goes_on { &mut step.command } else { step.shown.as_mut().unwrap() };
        let (before, after) = if goes_on { ("\n", "") } else { ("", "\n") };
        *part = format!("{part}{before}{line}{after}");
        goes_on &= line.ends_with('\\');
    }
    steps
}

/// Whether `printed` is `shown`, in which `...` is any text; ends of lines aside.
fn fits(shown: &str, printed: &str) -> bool {
    let trimmed =
        |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned();
    let pieces: Vec<String> = trimmed(shown).split("...").map(regex::escape).collect();
    let pattern = Regex::new(&format!("(?s)^{}$", pieces.join(".*?"))).unwrap();
    pattern.is_match(&trimmed(printed))
}

#[test]
fn an_ellipsis_is_any_text_and_nothing_else_differs() {
    for (shown, printed, expected) in [
        ("a...c\n", "a b c\n", true),
        ("a\n...\nc\n", "a\nb\nb\nc\n", true),
        ("a\n...\n", "a\n", false),
        ("a b\n", "a  b\n", false),
        ("[1]\n", "[1] \n", true),
        ("", "a\n", false),
    ] {
        assert_eq!(fits(shown, printed), expected, "{shown:?} {printed:?}");
    }
}
