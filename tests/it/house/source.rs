//! The source tree as the rules of the house read it: files without comments, literals and tests, and the paths that their
//! code names. The parser is good enough for formatted Rust; it resolves no macro and no re-export.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file of `src/`, or of a crate's, that ships.
pub(crate) struct Source {
    /// Its path from the project's root.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
    /// Its code, with comments, literals and tests blanked out and lines kept.
    pub(crate) code: String,
    /// Where it is: `["store", "redis"]` for `src/store/redis.rs` and for `src/store/redis/mod.rs`, and with the name of
    /// its crate `["policies", "budget"]` for `crates/policies/src/budget.rs`.
    pub(crate) module: Vec<String>,
    /// How many names of [`Self::module`] come from the crate: none for the program.
    crate_names: usize,
}

impl Source {
    /// The crate that it belongs to, or its module of the program; empty for `src/lib.rs` and `src/main.rs`.
    pub(crate) fn room(&self) -> &str {
        self.module.first().map_or("", String::as_str)
    }

    /// How many lines it has, its tests left out.
    pub(crate) fn lines(&self) -> usize {
        let tests: usize =
            test_blocks(&blank(&self.text)).iter().map(|&(from, to)| lines(&self.text[from..to])).sum();
        lines(&self.text) - tests
    }

    /// Its code without the items that `#[cfg]` leaves to certain operating systems.
    pub(crate) fn code_for_every_system(&self) -> String {
        let mut code = self.code.clone();
        for (from, to) in system_blocks(&self.text, &code) {
            code.replace_range(from..to, &blanks(&code[from..to]));
        }
        code
    }

    /// The lines of its documentation.
    pub(crate) fn documentation(&self) -> Vec<&str> {
        let is_documentation =
            |line: &&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
        self.text.lines().filter(is_documentation).collect()
    }

    /// The names of its public items.
    pub(crate) fn public_names(&self) -> Vec<&str> {
        let items = ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];
        let lines = self.code.lines().filter_map(|line| {
            let mut words =
                words(line.trim_start()).map(|(_, word)| word).skip_while(|word| *word != "pub").skip(1);
            words.find(|word| items.contains(word)).and_then(|_| words.next())
        });
        lines.collect()
    }

    /// The strings in its code, with their quotes.
    pub(crate) fn literals(&self) -> Vec<&str> {
        let tests = test_blocks(&blank(&self.text));
        let is_test = |at: usize| tests.iter().any(|&(from, to)| (from..to).contains(&at));
        let (mut found, mut at, mut before) = (Vec::new(), 0, None);
        while let Some(next) = self.text[at..].chars().next() {
            let length = hidden(&self.text[at..], before);
            let end = at + length.max(next.len_utf8());
            let literal = &self.text[at..end];
            if length > 0 && !literal.starts_with(['/', '\'']) && literal.contains('"') && !is_test(at) {
                found.push(literal);
            }
            before = Some(if length > 0 { ' ' } else { next });
            at = end;
        }
        found
    }

    /// The strings in code that is compiled for every operating system.
    pub(crate) fn literals_for_every_system(&self) -> Vec<&str> {
        let blocks = system_blocks(&self.text, &self.code);
        let is_of_one = |literal: &&str| {
            let at = literal.as_ptr() as usize - self.text.as_ptr() as usize;
            blocks.iter().any(|&(from, to)| (from..to).contains(&at))
        };
        self.literals().into_iter().filter(|literal| !is_of_one(literal)).collect()
    }

    /// The paths that it names in the program and in our crates: `["model", "plan", "Plan"]`.
    pub(crate) fn names(&self) -> BTreeSet<Vec<String>> {
        let mut found = BTreeSet::new();
        for (at, word) in words(&self.code) {
            let (is_crate, is_super) = (word == "crate", word == "super");
            let continued = self.code[..at].trim_end().ends_with("::");
            if CRATES.contains(&word) && !continued {
                if let Some(tree) = self.code[at + word.len()..].strip_prefix("::") {
                    branches(tree, &[word.to_owned()], &mut found);
                }
            } else if (is_crate || is_super) && !continued {
                let mut base =
                    if is_crate { self.module[..self.crate_names].to_vec() } else { parent(&self.module) };
                let mut rest = &self.code[at + word.len()..];
                while let Some(next) = rest.strip_prefix("::super") {
                    base = parent(&base);
                    rest = next;
                }
                if let Some(tree) = rest.strip_prefix("::") {
                    branches(tree, &base, &mut found);
                }
            }
        }
        found
    }
}

/// The crates beside the program, each in a folder of `crates/` of the same name.
pub(crate) const CRATES: [&str; 7] = ["dialects", "engine", "mock", "model", "policies", "state", "wire"];

/// Every file of the program and of our crates that ships: not those declared `#[cfg(test)]`.
pub(crate) fn shipped() -> Vec<Source> {
    let folders = CRATES.map(|name| (format!("crates/{name}/src"), vec![name.to_owned()]));
    let mut sources: Vec<Source> = Vec::new();
    for (folder, names) in [("src".to_owned(), Vec::new())].into_iter().chain(folders) {
        let files = rust_files(&root().join(&folder));
        assert!(!files.is_empty(), "{folder} has no file");
        sources.extend(files.iter().map(|path| read(root(), &folder, &names, path)));
    }
    let for_tests: Vec<Vec<String>> = sources.iter().flat_map(test_modules).collect();
    sources.retain(|source| !for_tests.iter().any(|module| source.module.starts_with(module)));
    sources
}

/// The project's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every `.rs` file below `folder`.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The words of code and where they begin.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(is_part).filter_map(move |(at, _)| {
        let begins = !code[..at].ends_with(is_part);
        begins.then(|| (at, code[at..].split(|c| !is_part(c)).next().unwrap_or_default()))
    })
}

/// Reads the file at `path`, which is below `root/folder`, the sources of the crate of these names.
fn read(root: &Path, folder: &str, crate_names: &[String], path: &Path) -> Source {
    let text = std::fs::read_to_string(path).expect("a source file is text");
    let mut code = blank(&text);
    for (from, to) in test_blocks(&code) {
        code.replace_range(from..to, &blanks(&code[from..to]));
    }
    let within = path.strip_prefix(root.join(folder)).expect("below the folder").with_extension("");
    let mut module = crate_names.to_vec();
    module.extend(within.iter().map(|part| part.to_string_lossy().into_owned()));
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    let path = format!("{folder}/{}.rs", within.display());
    Source { path, text, code, module, crate_names: crate_names.len() }
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

/// The range of `#[cfg(test)] mod x { ... }` in `code`, from the attribute to the closing brace. What the feature `testing`
/// shows to other crates' tests is a test too.
fn test_blocks(code: &str) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let own = code.match_indices("#[cfg(test)]");
    for (from, _) in own.chain(code.match_indices("#[cfg(any(test,")) {
        let Some(open) = code[from..].find(['{', ';']).map(|at| from + at) else { continue };
        let mut depth = 0_usize;
        let close = code[open..].char_indices().find_map(|(at, c)| {
            depth = if c == '{' { depth + 1 } else { depth - usize::from(c == '}') };
            (depth == 0).then_some(open + at + 1)
        });
        blocks.push((from, close.unwrap_or(code.len())));
    }
    blocks
}

/// The ranges of items and statements in `code` that have a `#[cfg]` of an operating system, from the attribute to the end:
/// a semicolon or a closing brace, after further attributes. The names of systems are literals, so `text` has them.
fn system_blocks(text: &str, code: &str) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    for (from, _) in code.match_indices("#[cfg(") {
        let Some(close) = code[from..].find(")]").map(|at| from + at + 2) else { continue };
        let condition = &text[from..close];
        let is_of_system =
            ["unix", "windows", "target_os", "target_family"].iter().any(|it| condition.contains(it));
        if !is_of_system {
            continue;
        }
        let mut start = close;
        while code[start..].trim_start().starts_with("#[") {
            let Some(end) = code[start..].find(']').map(|at| start + at + 1) else { break };
            start = end;
        }
        let mut depth = 0_usize;
        let mut brackets = 0_usize;
        let end = code[start..].char_indices().find_map(|(at, c)| {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let ends = depth == 0 && brackets == 0 && (c == ';' || c == '}');
            ends.then_some(start + at + 1)
        });
        let end = end.unwrap_or(code.len());
        // The semicolon of `use a::{b, c};`.
        blocks.push((from, end + usize::from(code[end..].starts_with(';'))));
    }
    blocks
}

/// The modules that `source` declares for tests alone, in files of their own.
fn test_modules(source: &Source) -> Vec<Vec<String>> {
    let code = blank(&source.text);
    let declared = test_blocks(&code).into_iter().filter_map(|(from, to)| {
        let name = code[from..to].strip_suffix(';')?.split_whitespace().last()?;
        Some([source.module.clone(), vec![name.to_owned()]].concat())
    });
    declared.collect()
}

/// Adds the paths of a use tree, or of a path in an expression, to `found`.
fn branches(tree: &str, base: &[String], found: &mut BTreeSet<Vec<String>>) {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        let mut depth = 0_usize;
        let mut from = 0;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    branches(&group[from..at], base, found);
                    from = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let Some((0, name)) = words(tree).next() else {
        found.insert(base.to_vec());
        return;
    };
    let here = if name == "self" { base.to_vec() } else { [base, &[name.to_owned()]].concat() };
    match tree[name.len()..].strip_prefix("::") {
        Some(rest) if !rest.starts_with('<') => branches(rest, &here, found),
        _ => drop(found.insert(here)),
    }
}

/// `text` with every comment and literal blanked out.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = hidden(rest, code.chars().next_back());
        let shown = if length == 0 { rest.chars().next().map_or(0, char::len_utf8) } else { 0 };
        code.push_str(&rest[..shown]);
        code.push_str(&blanks(&rest[shown..shown.max(length)]));
        rest = &rest[shown.max(length)..];
    }
    code
}

/// The length of the comment or literal at the start of `rest`; 0 if there is none.
fn hidden(rest: &str, before: Option<char>) -> usize {
    let up_to =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return up_to("*/", 2);
    }
    if let Some(raw) = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br")).filter(|_| !in_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return up_to(&end, rest.len() - raw.len() + hashes + 1);
        }
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    // A lifetime has no quote behind its first letter; a character has one, or a backslash.
    let mut after = rest.strip_prefix('\'').map(str::chars).into_iter().flatten();
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 0,
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// As long as `text`, in bytes and lines, and empty.
fn blanks(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_literals_and_tests_are_left_out_and_grouped_paths_are_split() {
        let text = concat!(
            "// crate::no\nuse crate::{proxy::{sse, body::Span}, policy};\nuse super::plan::Plan;\nuse model::call::Call;\n",
            "const A: &str = \"crate::no\"; const B: char = '\"'; const C: &str = r#\"crate::\"no\"#;\n",
            "fn f<'a>(x: &'a str) { crate::dialect::apply::<u8>(x); }\n",
            "#[cfg(test)]\nmod tests {\n    use crate::no;\n    fn g() { let x = '{'; }\n}\n",
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("src/policy")).unwrap();
        let path = folder.path().join("src/policy/budget.rs");
        std::fs::write(&path, text).unwrap();
        let source = read(folder.path(), "src", &[], &path);
        let names = |source: &Source| source.names().iter().map(|name| name.join("::")).collect::<Vec<_>>();
        assert_eq!(
            names(&source),
            [
                "dialect::apply",
                "model::call::Call",
                "policy",
                "policy::plan::Plan",
                "proxy::body::Span",
                "proxy::sse"
            ]
        );
        assert_eq!((source.room(), source.lines()), ("policy", 6));
        let of_crate = read(folder.path(), "src", &["policies".to_owned()], &path);
        assert_eq!(of_crate.room(), "policies");
        assert_eq!(names(&of_crate)[..2], ["model::call::Call", "policies::dialect::apply"]);
        assert_eq!(source.literals(), ["\"crate::no\"", "r#\"crate::\"no\"#"]);
    }

    #[test]
    fn items_of_one_operating_system_are_left_out_and_what_follows_is_not() {
        let code = concat!(
            "#[cfg(unix)]\nuse std::os::unix::A;\nuse std::os::unix::B;\n",
            "#[cfg(target_os = \"linux\")]\n#[inline]\nfn f(a: [u8; 2]) { std::os::linux::c(); }\nfn g() { d(); }\n",
            "#[cfg(test)]\nmod tests {}\n#[cfg(all(unix, feature))]\nuse a::{b, c};\nuse e;\n",
        );
        let source = Source {
            path: "src/a.rs".to_owned(),
            text: code.to_owned(),
            code: code.to_owned(),
            module: vec!["a".to_owned()],
            crate_names: 0,
        };
        let left = source.code_for_every_system();
        let left: Vec<&str> = left.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            left,
            ["use std::os::unix::B;", "fn g() { d(); }", "#[cfg(test)]", "mod tests {}", "use e;"]
        );
    }
}
