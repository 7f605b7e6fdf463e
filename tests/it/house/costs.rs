//! What changes cost, counted in the source: in how many places a fact or a refusal occurs, how many ways there are to wait,
//! how wide a dialect is, how many files import each other in a circle. A textual count of formatted Rust: it resolves no
//! types, and a name that two types share is left out.

use crate::house::source::{Source, words};
use std::collections::{BTreeMap, BTreeSet};

/// One count, and the count that the redesign aims at.
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    /// How it is counted.
    pub(crate) meaning: &'static str,
    pub(crate) count: usize,
    pub(crate) aim: usize,
}

/// All costs of the shipped `sources`.
pub(crate) fn costs(sources: &[Source]) -> Vec<Cost> {
    let dialect = |name: &str| dialect_lines(sources, name);
    vec![
        Cost {
            name: "places of a fact",
            meaning: "files that name the type of a record of the store; the median of all such types",
            count: places_of_a_fact(sources),
            aim: 3,
        },
        Cost {
            name: "places of a refusal",
            meaning: "files that list three or more of what a model refuses, as variants, fields or a match",
            count: places_of_a_refusal(sources),
            aim: 1,
        },
        Cost {
            name: "ways to wait",
            meaning: "outputs of an exchange that an input of their own answers",
            count: ways_to_wait(sources),
            aim: 1,
        },
        Cost {
            name: "members for one policy",
            meaning: "public members of what policies see (`RequestView`, `View`, `Proposed`, `Plan`) that one policy names, and no module that policies share",
            count: members_for_one_policy(sources).len(),
            aim: 5,
        },
        Cost {
            name: "methods of a dialect",
            meaning: "methods of the traits in crate `dialects`, and public functions of `dialects::chat` called from outside of it",
            count: methods_of_a_dialect(sources),
            aim: 16,
        },
        Cost {
            name: "lines of chat",
            meaning: "without tests and blank lines, to the nearest hundred",
            count: dialect("chat"),
            aim: 2_200,
        },
        Cost { name: "lines of Responses", meaning: "the same", count: dialect("responses"), aim: 2_200 },
        Cost { name: "lines of Messages", meaning: "the same", count: dialect("messages"), aim: 2_200 },
        Cost {
            name: "largest circle",
            meaning: "files of one crate, or of one folder of `src/`, that import each other in a circle",
            count: largest_circle(sources).len(),
            aim: 5,
        },
    ]
}

/// Types that `impl Record for` names, also behind an `Arc`, if they are defined once; the number of files that name each, and of these the median.
fn places_of_a_fact(sources: &[Source]) -> usize {
    let recorded = ["impl Record for ", "impl Record for Arc<"];
    let types: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| recorded.iter().flat_map(|before| after(&source.code, before)))
        .collect();
    let mut defined: Vec<&str> = Vec::new();
    for kind in ["struct ", "enum ", "type "] {
        defined.extend(sources.iter().flat_map(|source| after(&source.code, kind)));
    }
    let is_defined_once = |name: &&&str| defined.iter().filter(|known| *known == *name).count() == 1;
    let words: Vec<BTreeSet<&str>> = sources.iter().map(words_of).collect();
    let files = |name: &&str| words.iter().filter(|words| words.contains(name)).count();
    let mut places: Vec<usize> = types.iter().filter(is_defined_once).map(files).collect();
    places.sort_unstable();
    places.get(places.len() / 2).copied().unwrap_or(0)
}

fn words_of(source: &Source) -> BTreeSet<&str> {
    words(&source.code).map(|(_, word)| word).collect()
}

/// What models refuse, in the spellings of fields, constants and variants.
const REFUSED: [&str; 12] = [
    "tools",
    "choice",
    "toolchoice",
    "forcedchoice",
    "history",
    "toolhistory",
    "flattened",
    "latesystem",
    "placement",
    "overflow",
    "streamoptions",
    "streamedtools",
];

/// The files with an item in braces (an enum, a struct, a match, a table) that names three or more of what models refuse, and
/// whose name or path says that it is about refusals.
fn places_of_a_refusal(sources: &[Source]) -> usize {
    const TYPES: [&str; 4] = ["Refusal", "Fallback", "Variant", "Adaptation"];
    let lists = |source: &&Source| {
        let (code, named) = (&source.code, words_of(source));
        if !TYPES.iter().any(|name| named.contains(name)) {
            return false;
        }
        let plain = |word: &str| word.replace('_', "").to_lowercase();
        blocks(code).into_iter().any(|block| {
            let named: BTreeSet<String> = words(block).map(|(_, word)| plain(word)).collect();
            REFUSED.iter().filter(|name| named.contains(**name)).count() >= 3
        })
    };
    sources.iter().filter(lists).count()
}

/// The variants of `Output` whose documentation names the `Input` that answers.
fn ways_to_wait(sources: &[Source]) -> usize {
    let body = sources.iter().find_map(|source| source.text.split_once("pub enum Output {"));
    let body = body.and_then(|(_, rest)| rest.split_once("\n}")).map_or("", |(body, _)| body);
    body.lines().filter(|line| line.trim_start().starts_with("///") && line.contains("[`Input::")).count()
}

/// The types that policies are given, each with the names that its values have in the code of policies.
const SEEN: [(&str, &[&str]); 4] =
    [("RequestView", &["request"]), ("View", &["view"]), ("Proposed", &["call"]), ("Plan", &["plan"])];

/// See [`costs`].
fn members_for_one_policy(sources: &[Source]) -> BTreeSet<&str> {
    let of_crate = || sources.iter().filter(|source| source.room() == "policies");
    let policies: BTreeSet<&str> =
        of_crate().filter(|source| source.code.contains("impl Policy for ")).filter_map(submodule).collect();
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in of_crate() {
        users.entry(submodule(source).unwrap_or_default()).or_default().insert(&source.code);
    }
    let names = |code: &str, values: &[&str], member: &str| {
        let of = |value: &&str| after(code, &format!("{value}.")).any(|word| word == member);
        values.iter().any(of)
    };
    let of_one = SEEN.iter().flat_map(|(name, values)| {
        public_members(sources, name).into_iter().filter(|member| {
            let of = users.iter().filter(|(_, code)| code.iter().any(|code| names(code, values, member)));
            let of: Vec<&str> = of.map(|(user, _)| *user).collect();
            matches!(of.as_slice(), [user] if policies.contains(user))
        })
    });
    of_one.collect()
}

/// The module of its crate that a file belongs to.
fn submodule(source: &Source) -> Option<&str> {
    source.module.get(1).map(String::as_str)
}

/// The public fields and methods of the type `name`.
fn public_members<'a>(sources: &'a [Source], name: &str) -> BTreeSet<&'a str> {
    let mut members = BTreeSet::new();
    for source in sources.iter().filter(|source| ["model", "policies"].contains(&source.room())) {
        let heads = [format!("pub struct {name}"), format!("impl {name}"), format!("impl<'a> {name}")];
        for head in heads {
            for (at, _) in source.code.match_indices(&head) {
                let rest = &source.code[at + head.len()..];
                let is_whole = !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
                let Some(body) = rest.find("\n}").map(|end| &rest[..end]).filter(|_| is_whole) else {
                    continue;
                };
                let lines = body.lines().filter_map(|line| line.strip_prefix("    pub "));
                let lines = lines.map(|line| line.trim_start_matches("const ").trim_start_matches("fn "));
                members.extend(lines.filter_map(|line| words(line).next()).map(|(_, word)| word));
            }
        }
    }
    members
}

/// See [`costs`].
fn methods_of_a_dialect(sources: &[Source]) -> usize {
    let shared = sources.iter().filter(|source| source.room() == "dialects");
    let of_traits: usize = shared.map(|source| trait_methods(&source.code)).sum();
    let is_of_chat =
        |source: &&Source| source.module.starts_with(&["dialects".to_owned(), "chat".to_owned()]);
    let public = sources.iter().filter(is_of_chat).flat_map(|source| after(&source.code, "pub fn "));
    let public: BTreeSet<&str> = public.collect();
    let outside: Vec<BTreeSet<&str>> =
        sources.iter().filter(|source| !is_of_chat(source) && names_chat(source)).map(words_of).collect();
    let is_called = |name: &&&str| outside.iter().any(|words| words.contains(**name));
    of_traits + public.iter().filter(is_called).count()
}

fn names_chat(source: &Source) -> bool {
    source.names().iter().any(|name| name.starts_with(&["dialects".to_owned(), "chat".to_owned()]))
}

/// How many methods the traits of `code` have.
fn trait_methods(code: &str) -> usize {
    let bodies = code.match_indices("pub trait ").filter_map(|(at, _)| {
        let rest = &code[at..];
        Some(&rest[rest.find('{')?..rest.find("\n}")?])
    });
    bodies.map(|body| body.matches("    fn ").count()).sum()
}

fn dialect_lines(sources: &[Source], name: &str) -> usize {
    let folder = ["dialects".to_owned(), name.to_owned()];
    let own = sources.iter().filter(|source| source.module.starts_with(&folder));
    let lines: usize =
        own.map(|source| source.code.lines().filter(|line| !line.trim().is_empty()).count()).sum();
    // Small edits must not change the table.
    (lines + 50) / 100 * 100
}

/// The largest set of files of one folder each of which imports each other, directly or by way of others.
fn largest_circle(sources: &[Source]) -> BTreeSet<&str> {
    let imports: BTreeMap<&str, BTreeSet<&str>> =
        sources.iter().map(|source| (source.path.as_str(), imported(source, sources))).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|path| (*path, reach(path, &imports))).collect();
    let circle = |path: &&str| -> BTreeSet<&str> {
        reached[path].iter().filter(|other| reached[*other].contains(path)).copied().collect()
    };
    imports.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

/// The files of the same crate or folder of `src/` that a file names. What a module names below itself is left out: that is its own.
fn imported<'a>(source: &Source, sources: &'a [Source]) -> BTreeSet<&'a str> {
    let file_of = |name: &[String]| {
        let holds = |other: &&Source| !other.module.is_empty() && name.starts_with(&other.module);
        sources.iter().filter(holds).max_by_key(|other| other.module.len())
    };
    let named = source.names();
    let files = named.iter().filter_map(|name| file_of(name));
    let own = files.filter(|other| other.room() == source.room() && other.path != source.path);
    own.map(|other| other.path.as_str()).collect()
}

fn reach<'a>(from: &'a str, imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(imports.get(next).into_iter().flatten().filter(|other| reached.insert(**other)));
    }
    reached
}

/// The words that follow `before` in `code`.
fn after<'a, 'b>(code: &'a str, before: &'b str) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
    code.match_indices(before)
        .filter_map(move |(at, _)| words(&code[at + before.len()..]).next())
        .map(|(_, word)| word)
}

/// The texts between braces, without those that hold further braces.
fn blocks(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = None;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' => open = Some(at + 1),
            '}' => found.extend(open.take().map(|from| &code[from..at])),
            _ => {}
        }
    }
    found
}
