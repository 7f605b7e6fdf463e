//! Rules for the source tree: which module may import which, headers, names, and texts that no file may contain. Rules
//! that clippy can check (parameters, complexity, no panics) are clippy's; which crate may import which, cargo's.

mod costs;
mod source;

use costs::costs;
use policies::REGISTRY;
use source::{CRATES, Source, root, rust_files, shipped, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// Which module may import which: a module imports modules of lower layers, and of its own layer if no cycle arises.
/// Of crates, cargo holds the same: they are here so that each module's place is in one list.
const RUNGS: &[&[&str]] = &[
    &["wire"],
    &["model", "mock"],
    &["dialects", "state"],
    &["policies"],
    &["engine"],
    &["secret"],
    &["config", "telemetry"],
    &["recorder", "state_dir"],
    &["store", "proxy", "admin"],
    &["cli", "serve", "replay", "explain", "doctor", "run", "setup", "signals", ""],
];

#[test]
fn imports_run_one_way() {
    let rung = |room: &str| {
        let at = RUNGS.iter().position(|rooms| rooms.contains(&room));
        at.unwrap_or_else(|| panic!("{room} has no rung in this file"))
    };
    for source in shipped() {
        for name in source.names() {
            let named = name.first().map_or("", String::as_str);
            let allowed = named == source.room() || rung(named) <= rung(source.room());
            assert!(allowed, "{} names {}, which is above it", source.path, name.join("::"));
        }
    }
}

#[test]
fn no_rooms_import_each_other_in_a_circle() {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in shipped() {
        let named = source.names().into_iter().filter_map(|name| name.into_iter().next());
        imports
            .entry(source.room().to_owned())
            .or_default()
            .extend(named.filter(|room| room != source.room()));
    }
    for room in imports.keys() {
        let mut reached = BTreeSet::new();
        let mut open = vec![room];
        while let Some(next) = open.pop() {
            open.extend(
                imports.get(next).into_iter().flatten().filter(|room| reached.insert((*room).clone())),
            );
        }
        assert!(!reached.contains(room), "{room} imports itself by way of others: {reached:?}");
    }
}

#[test]
fn telemetry_calls_nobody_and_takes_plain_data() {
    for source in shipped().iter().filter(|source| source.room() == "telemetry") {
        let others: Vec<_> =
            source.names().into_iter().filter(|name| !["telemetry", "model"].contains(&&*name[0])).collect();
        assert!(others.is_empty(), "{} names {others:?}", source.path);
    }
}

#[test]
fn the_core_does_no_io_reads_no_clock_takes_no_lock_and_logs_nothing() {
    let core = ["wire", "model", "dialects", "policies", "engine"];
    let shell = [
        "tokio",
        "hyper",
        "tracing",
        "dashmap",
        "moka",
        "prometheus",
        "Mutex",
        "RwLock",
        "Instant",
        "SystemTime",
        "File",
        "TcpStream",
        "UdpSocket",
        "thread",
        "process",
    ];
    for source in shipped().iter().filter(|source| core.contains(&source.room())) {
        // An exchange receives the time and never reads a clock.
        let is_told = |word: &str| word == "Instant" && ["engine", "model"].contains(&source.room());
        assert!(!source.code.contains("Instant::now"), "{} reads the clock", source.path);
        let names = words(&source.code).map(|(_, word)| word);
        let found: Vec<_> = names.filter(|word| shell.contains(word) && !is_told(word)).collect();
        assert!(found.is_empty(), "{} names {found:?}", source.path);
    }
}

/// What one operating system has alone, as code names it.
const OF_ONE_SYSTEM: [&str; 12] = [
    "os::unix",
    "os::linux",
    "os::fd",
    "os::windows",
    "signal::unix",
    "signal::windows",
    "net::unix",
    "UnixStream",
    "UnixListener",
    "process_collector",
    "tikv_jemallocator",
    "libc",
];

/// Paths of files that other systems do not have.
const FOLDERS_OF_ONE_SYSTEM: [&str; 5] = ["/proc/", "/sys/", "/dev/", "/etc/", "/tmp/"];

#[test]
fn what_one_operating_system_has_alone_is_named_where_cfg_asks_for_that_system() {
    let mut asked_for = 0;
    for source in shipped() {
        let everywhere = source.code_for_every_system();
        let found = OF_ONE_SYSTEM.into_iter().find(|name| names_path(&everywhere, name));
        assert!(found.is_none(), "{} names {}, outside of #[cfg]", source.path, found.unwrap_or_default());
        let calls = OF_ONE_SYSTEM.into_iter().filter(|name| names_path(&source.code, name)).count();
        asked_for += calls;
        for literal in source.literals_for_every_system() {
            let path = literal.trim_start_matches(['b', 'r', '#', '"']);
            let folder = FOLDERS_OF_ONE_SYSTEM.into_iter().find(|folder| path.starts_with(folder));
            assert!(folder.is_none(), "{} has the path {literal}", source.path);
        }
    }
    assert!(asked_for > 3, "the rule finds what is there: {asked_for}");
}

/// Whether code names this path, as whole words.
fn names_path(code: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(path)
        .any(|(at, _)| !code[..at].ends_with(is_part) && !code[at + path.len()..].starts_with(is_part))
}

#[test]
fn the_engine_names_no_wire_protocol() {
    let dialects = ["chat", "responses", "CHAT", "RESPONSES"];
    for source in shipped().iter().filter(|source| source.room() == "engine") {
        for name in source.names() {
            let is_one = name[0] == "dialects" && name.get(1).is_some_and(|name| dialects.contains(&&**name));
            assert!(!is_one, "{} names {}", source.path, name.join("::"));
        }
    }
}

#[test]
fn no_policy_names_another() {
    for source in shipped().iter().filter(|source| source.room() == "policies" && source.module.len() > 1) {
        let own = &source.module[1];
        for name in source.names() {
            let other = name.get(1).filter(|named| REGISTRY.iter().any(|entry| entry.name == named.as_str()));
            let names_another = name[0] == "policies" && other.is_some_and(|other| other != own);
            assert!(!names_another, "{} names {}", source.path, name.join("::"));
        }
    }
}

#[test]
fn no_policy_reads_the_words_or_the_shapes_of_anothers_plan() {
    // A policy writes changes of its own, and reads none.
    let of_plans = ["Edit", "edits", "change"];
    for source in shipped().iter().filter(|source| source.room() == "policies" && source.module.len() > 1) {
        let is_of_all = ["set"].contains(&source.module[1].as_str());
        let found = words(&source.code).map(|(_, word)| word).find(|word| of_plans.contains(word));
        assert!(is_of_all || found.is_none(), "{} names {found:?}; facts are asked of the plan", source.path);
        // A change that is written names all of its members, a pattern does not.
        let is_pattern = |(at, _): (usize, &str)| {
            let change = source.code[at..].split_once('}').map_or("", |(change, _)| change);
            change.contains("..") || source.code[..at].trim_end().ends_with("let")
        };
        let reads = source.code.match_indices("Change::").any(is_pattern);
        assert!(is_of_all || !reads, "{} reads a change; facts are asked of the plan", source.path);
    }
}

#[test]
fn only_the_exchange_sequences_the_steps_of_a_request() {
    let steps = ["Transcript", "PolicySet", "Plan", "Judging", "Variant", "AdaptationTries"];
    for source in shipped().iter().filter(|source| ["proxy", "admin", "serve"].contains(&source.room())) {
        let found = words(&source.code).map(|(_, word)| word).find(|word| steps.contains(word));
        assert!(found.is_none(), "{} names {found:?}; that is the exchange's", source.path);
    }
    // A module that only observes plans, forms and verdicts must not make any.
    let steps = ["PolicySet", "Judge", "Judging", "Variant", "ReplyPipeline", "AdaptationTries", "Reasks"];
    for source in shipped().iter().filter(|source| ["replay", "explain"].contains(&source.room())) {
        let found = words(&source.code).map(|(_, word)| word).find(|word| steps.contains(word));
        assert!(found.is_none(), "{} names {found:?}; that is the exchange's", source.path);
    }
    let steps = ["PolicySet", "Judge", "Judging", "ReplyPipeline", "AdaptationTries", "Reasks"];
    for path in rust_files(&root().join("tests/it/simulation")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = words(&text).map(|(_, word)| word).find(|word| steps.contains(word));
        assert!(found.is_none(), "{} names {found:?}; that is the exchange's", path.display());
    }
}

/// Members of requests and replies that occur in no other protocol here: code that names one depends on a dialect.
const WIRE_MEMBERS: [&str; 11] = [
    "tool_call_id",
    "tool_choice",
    "parallel_tool_calls",
    "function_call",
    "function_call_output",
    "finish_reason",
    "choices",
    "delta",
    "stream_options",
    "prompt_tokens",
    "completion_tokens",
];

#[test]
fn nothing_outside_of_the_dialects_names_a_member_of_the_wire() {
    // The demonstration is itself an upstream; configuration and telemetry have keys of the same names, and the help
    // shows a recording. Exports of other programs have formats of their own, and records and adaptations have labels.
    let others = ["dialects", "mock", "config", "telemetry", "cli"];
    let of_their_own = [["replay", "exports"], ["model", "record"], ["model", "adaptation"]];
    let is_in = |source: &Source, module: [&str; 2]| source.module.starts_with(&module.map(str::to_owned));
    let has_own = |source: &Source| of_their_own.iter().any(|module| is_in(source, *module));
    let is_named = |source: &&Source| others.contains(&source.room()) || has_own(source);
    for source in shipped().iter().filter(|source| !is_named(source)) {
        for literal in source.literals() {
            let inner = literal.trim_matches('"');
            let found = WIRE_MEMBERS.iter().find(|member| {
                inner == **member
                    || literal.contains(&format!("\\\"{member}\\\""))
                    || literal.contains(&format!("\"{member}\":"))
            });
            assert!(found.is_none(), "{} names `{}`: {literal}", source.path, found.unwrap_or(&""));
        }
    }
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    for folder in ["src", "crates", "tests", "benches", "fuzz"] {
        for path in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("//! "), "{} does not open with //!", path.display());
        }
    }
}

/// The words in the left columns of DESIGN's table, matched as whole words in any case.
const PRIVATE_WORDS: [&str; 27] = [
    "told",
    "tells",
    "stands",
    "behind",
    "of which",
    "withheld",
    "withhold",
    "withholds",
    "a yes",
    "ledger",
    "anchor",
    "anchors",
    "story",
    "foretold",
    "foretells",
    "meter",
    "mend",
    "mends",
    "mended",
    "regret",
    "regrets",
    "hidden round",
    "hidden rounds",
    "turnstile",
    "spelled",
    "alike",
    "begun",
];

/// The names in the left columns of DESIGN's table: they do not say what a thing is.
const PRIVATE_NAMES: [&str; 26] = [
    "Place",
    "Asked",
    "Told",
    "Seen",
    "Standing",
    "Alarm",
    "Patient",
    "Timed",
    "Swap",
    "Door",
    "Seats",
    "Turnstile",
    "Passage",
    "Hangups",
    "Gateway",
    "Begun",
    "Beginning",
    "Alike",
    "Spelled",
    "Ledger",
    "Round",
    "Withheld",
    "Regret",
    "Story",
    "Anchor",
    "Word",
];

#[test]
fn texts_use_the_words_of_the_field() {
    let area = std::env::var("WORDS_AREA").unwrap_or_default();
    let mut found = Vec::new();
    for source in shipped() {
        // A regular expression matches the words of other programs.
        let literals = source.literals().into_iter().filter(|literal| !literal.contains("(?:"));
        for text in source.documentation().into_iter().chain(literals) {
            found.extend(
                private_words(text).map(|word| format!("{}: `{word}` in {}", source.path, text.trim())),
            );
        }
        let names = source.public_names();
        found.extend(
            names
                .iter()
                .filter(|name| PRIVATE_NAMES.contains(name))
                .map(|name| format!("{}: the name {name}", source.path)),
        );
    }
    let pages = tracked().into_iter().filter(|path| {
        let path = path.to_string_lossy();
        let is_text = path.ends_with(".md") || path == "proxy.toml" || path.starts_with("deploy/");
        // A link to a folder, such as the chart's, leads to files that are listed themselves.
        let is_file = root().join(&*path).is_file();
        is_text && is_file && !path.starts_with("tests/") && path != "CHANGELOG.md"
    });
    for path in pages {
        let path = path.to_string_lossy().into_owned();
        for line in text_of(&path).lines() {
            found.extend(private_words(line).map(|word| format!("{path}: `{word}` in {}", line.trim())));
        }
    }
    found.retain(|hit| hit.starts_with(&area));
    assert!(found.is_empty(), "{} private words:\n{}", found.len(), found.join("\n"));
}

/// The private words in `text`.
fn private_words(text: &str) -> impl Iterator<Item = &'static str> {
    let letters = |c: char| if c.is_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { ' ' };
    let text = format!(" {} ", text.chars().map(letters).collect::<String>());
    let text = text.split_whitespace().fold(String::from(" "), |text, word| text + word + " ");
    PRIVATE_WORDS.into_iter().filter(move |word| text.contains(&format!(" {word} ")))
}

#[test]
fn names_say_what_a_thing_is() {
    for source in shipped() {
        let file = source.module.last().map_or("", String::as_str);
        assert!(
            !["utils", "util", "common", "helpers", "misc"].contains(&file),
            "{} is a drawer",
            source.path
        );
        let poor =
            |word: &str| word.starts_with("get_") || word.ends_with("Manager") || word.ends_with("Helper");
        let defined = defined_in(&source).into_iter().find(|word| poor(word));
        assert_eq!(defined, None, "in {}", source.path);
    }
}

#[test]
fn every_exception_to_a_lint_has_its_reason() {
    for source in shipped() {
        for marker in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in source.code.match_indices(marker) {
                let attribute = source.code[at..].split(']').next().unwrap_or_default();
                assert!(attribute.contains("reason ="), "{}: {attribute}] gives no reason", source.path);
            }
        }
    }
}

#[test]
fn each_direct_dependency_has_its_line_and_no_other_crate_has() {
    let manifest: toml::Table = text_of("Cargo.toml").parse().unwrap();
    let names = |table: &toml::Value| table.as_table().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut direct: BTreeSet<String> = names(&manifest["dependencies"]).into_iter().collect();
    for target in manifest["target"].as_table().unwrap().values() {
        direct.extend(names(&target["dependencies"]));
    }
    for name in CRATES {
        let of_crate: toml::Table = text_of(&format!("crates/{name}/Cargo.toml")).parse().unwrap();
        direct.extend(names(&of_crate["dependencies"]));
    }
    direct.retain(|name| !CRATES.contains(&name.as_str()));
    let direct: Vec<String> = direct.into_iter().collect();
    let page = text_of("docs/dependencies.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let listed: Vec<&str> =
        rows.map(|(name, _)| name).filter(|name| !["crate", "---"].contains(name)).collect();
    assert_eq!(listed, direct);
}

#[test]
fn no_tracked_file_names_a_machine_or_a_registry() {
    // Written in two halves, so that this file does not contain them.
    let needles = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["registry.npm", "js.org"],
        ["pythonho", "sted.org"],
        ["py", "pi.org"],
        ["index.cra", "tes.io"],
        ["static.cra", "tes.io"],
        ["deb.deb", "ian.org"],
        ["\"resol", "ved\""],
    ]
    .map(|halves| halves.concat());
    for path in tracked() {
        // Recorded traffic is kept as it is.
        if path.starts_with("tests/data") {
            continue;
        }
        let bytes = std::fs::read(root().join(&path)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let found: Vec<_> = needles.iter().filter(|needle| text.contains(needle.as_str())).collect();
        assert!(found.is_empty(), "{} contains {found:?}", path.display());
    }
}

#[test]
fn every_policy_has_its_table_in_the_shipped_file_and_its_row_among_the_policies() {
    for (file, before, after) in [("proxy.toml", "[policy.", "]"), ("docs/policies/README.md", "| [`", "`](")]
    {
        let text = text_of(file);
        for entry in REGISTRY {
            let expected = format!("{before}{}{after}", entry.name);
            assert!(text.contains(&expected), "{file} does not contain {expected}");
        }
    }
}

#[test]
fn the_map_of_the_house_stays_a_page_that_one_reads() {
    for path in tracked().iter().filter(|path| path.ends_with("ARCHITECTURE.md")) {
        let lines = std::fs::read_to_string(root().join(path)).unwrap_or_default().lines().count();
        assert!(lines <= 200, "{} has {lines} lines", path.display());
    }
}

/// The table is written by `UPDATE_DOCS=1 cargo test --test it house::`.
#[test]
fn the_costs_of_change_are_those_that_the_map_of_the_house_states() {
    const HEAD: &str = "| cost | how it is counted | today | aim |\n| --- | --- | --- | --- |\n";
    let row =
        |cost: costs::Cost| format!("| {} | {} | {} | {} |\n", cost.name, cost.meaning, cost.count, cost.aim);
    let made: String = costs(&shipped()).into_iter().map(row).collect();
    let text = text_of("ARCHITECTURE.md");
    let (before, rest) = text.split_once(HEAD).expect("ARCHITECTURE.md has the table of costs");
    let end = rest.find("\n\n").map_or(rest.len(), |at| at + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}{HEAD}{made}{}", &rest[end..]);
        std::fs::write(root().join("ARCHITECTURE.md"), text).unwrap();
    } else {
        assert_eq!(&rest[..end], made, "UPDATE_DOCS=1 cargo test --test it house::");
    }
}

/// The file of instruction counts that `make gate` compares with.
const COUNTS: &str = "benches/instructions.txt";

/// A shallow clone does not have the commit before the last change: there is nothing to compare then.
#[test]
fn a_count_of_instructions_rises_only_in_a_commit_of_its_own() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root()).output().expect("git runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["log", "-1", "--format=%H", "--", COUNTS]).expect("the file is tracked");
    let (before, after) = (format!("{commit}^:{COUNTS}"), format!("{commit}:{COUNTS}"));
    let Some((before, after)) = git(&["show", &before]).zip(git(&["show", &after])) else { return };
    let rows = |text: &str| -> BTreeMap<String, u64> {
        let rows = text.lines().filter_map(|line| line.rsplit_once(' '));
        rows.filter_map(|(name, count)| Some((name.trim().to_owned(), count.parse().ok()?))).collect()
    };
    let (before, after) = (rows(&before), rows(&after));
    assert!(!after.is_empty(), "{COUNTS} has rows");
    let rises = after.iter().any(|(name, count)| before.get(name).is_some_and(|before| before < count));
    let changed = git(&["show", "--format=", "--name-only", &commit]).unwrap_or_default();
    assert!(
        !rises || changed == COUNTS,
        "{commit} raises a row of {COUNTS} and changes other files: {changed}"
    );
}

/// The names that follow `fn`, `struct`, `enum`, `trait` and `type`.
fn defined_in(source: &Source) -> Vec<&str> {
    let names: Vec<&str> = words(&source.code).map(|(_, word)| word).collect();
    let defines = |word: &str| ["fn", "struct", "enum", "trait", "type"].contains(&word);
    names.windows(2).filter(|pair| defines(pair[0])).map(|pair| pair[1]).collect()
}

fn tracked() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.expect("git lists the tracked files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sections of SECURITY.md in which every line is a claim. The other sections say what is not protected, and
/// where to report.
const CLAIMS: [&str; 3] = ["What is at stake", "Who attacks, and what is held", "Who the caller is"];

#[test]
fn every_claim_in_security_md_names_tests_and_all_of_them_exist() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut seen = 0;
    for section in text.split("\n## ").skip(1) {
        let (title, body) = section.split_once('\n').unwrap();
        let rows = body.split("\n\n").flat_map(|block| match block.starts_with('|') {
            true => block.lines().skip(2).collect(),
            false => vec![block],
        });
        for claim in rows.filter(|claim| !claim.trim().is_empty()) {
            let named: Vec<&str> =
                claim.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
            for name in &named {
                let (file, test) = name.split_once("::").unwrap();
                assert!(has_test(file, test), "SECURITY.md names {name}, which there is not");
            }
            seen += named.len();
            let is_held = !named.is_empty() || NO_TEST.iter().any(|words| claim.contains(words));
            assert!(is_held || !CLAIMS.contains(&title), "SECURITY.md: no test is named by: {claim}");
        }
    }
    assert!(seen > 60, "only {seen} tests are named");
}

/// The beginnings of lines that claim nothing, and of the one claim that the compiler checks.
const NO_TEST: [&str; 5] = [
    "The compiler refuses",
    "It is trusted with the requests",
    "It is trusted to remember",
    "A caller is a keyed hash of the one credential",
    "Each claim below names the tests",
];

/// Whether the file has the test `test`: a file in `tests/`, one in `src/`, or one of a crate.
fn has_test(file: &str, test: &str) -> bool {
    let tests = ["tests", "tests/it", "src", "crates"];
    let places =
        tests.iter().flat_map(|folder| [format!("{folder}/{file}.rs"), format!("{folder}/{file}/mod.rs")]);
    let texts = places.filter_map(|place| std::fs::read_to_string(root().join(place)).ok());
    texts.into_iter().any(|text| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| {
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            name.and_then(|name| name.strip_prefix(test)).is_some_and(|rest| rest.starts_with('('))
        });
        // Attributes and comments may come between.
        at.is_some_and(|at| lines[..at].iter().rev().take(6).any(|line| is_test_attribute(line)))
    })
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}
