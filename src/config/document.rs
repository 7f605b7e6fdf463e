//! A TOML document with the positions of its keys, read table by table so that one mistake does not hide the next.
//! Handles lines, spans and keys, without knowing their meaning.

use super::error::{Problem, reworded};
use super::shipped;
use super::slips::{self, Misfit};
use super::variables::{self, ValueOf};
use policies::{BuildError, ConfigError};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

/// The most problems of one kind that are searched for: each takes time.
pub(super) const MOST_PROBLEMS: usize = 100;

/// A parsed document.
pub(super) struct Document<'a> {
    name: &'a str,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
    /// The keys that environment variables set, dotted, each with its variable.
    variables: Vec<(String, String)>,
    /// The keys, dotted, whose variables are not set: their values are no second problem.
    unset: Vec<String>,
}

/// The result of reading a table.
pub(super) struct Reading<T> {
    /// The value as far as it could be read; `None` where nothing could.
    pub value: Option<T>,
    /// The keys left out because their values are wrong, dotted from the table.
    pub left_out: Vec<String>,
    pub problems: Vec<Problem>,
}

impl<'a> Document<'a> {
    /// Parses `text`; problems call it `name`.
    ///
    /// # Errors
    /// Every position that is not TOML, one a line.
    pub(super) fn parse(name: &'a str, text: &'a str) -> Result<Self, Vec<Problem>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self { name, text, root, variables: Vec::new(), unset: Vec::new() };
        let mut problems: Vec<Problem> = Vec::new();
        for error in errors.iter().take(MOST_PROBLEMS) {
            let line = document.line_at(error.span().map_or(text.len(), |span| span.start));
            // Further errors on the same line usually follow from the first.
            if problems.last().is_none_or(|last| last.line != Some(line)) {
                let written = text.lines().nth(line - 1).unwrap_or_default();
                let hint = slips::not_toml(written, error.message());
                let text = hint.map_or_else(
                    || error.message().to_owned(),
                    |hint| format!("{hint} ({})", error.message()),
                );
                let text = format!("not TOML: {text}");
                problems.push(document.problem(Some(line), String::new(), text));
            }
        }
        if problems.is_empty() { Ok(document) } else { Err(problems) }
    }

    /// Replaces the environment variables in strings by what `value_of` gives, and sets the keys that the variables
    /// `settings` name; `written`: their values, see [`variables::as_toml`]. Without `value_of` none may be used in strings.
    /// Returns what could not be done.
    pub(super) fn apply_variables(
        &mut self,
        settings: &[(String, String)],
        written: &'a str,
        value_of: ValueOf<'_>,
    ) -> Vec<Problem> {
        let mut troubles = variables::expand(self.root.get_mut(), value_of);
        let (set, unset) = variables::set(self.root.get_mut(), settings, written);
        self.variables = set;
        self.unset = troubles.iter().map(|trouble| trouble.key.clone()).collect();
        troubles.extend(unset);
        troubles.into_iter().map(|trouble| self.problem_within(&trouble.key, trouble.text)).collect()
    }

    /// The document's top.
    pub(super) fn root(&self) -> Spanned<DeValue<'a>> {
        Spanned::new(self.root.span(), DeValue::Table(self.root.get_ref().clone()))
    }

    /// Refuses a file without tables: everything would have the shipped defaults, the upstream included.
    pub(super) fn require_a_table(&self) -> Result<(), Problem> {
        let mut values = self.root.get_ref().values();
        let found = values.any(|value| matches!(value.get_ref(), DeValue::Table(_)));
        let text = "has no table, so it is empty or was read while it was being written; the configuration in force stays";
        found.then_some(()).ok_or_else(|| self.problem(None, String::new(), text.to_owned()))
    }

    /// The entries of the top-level table `name`, in the file's order; `None` where it is absent or not a table.
    pub(super) fn tables(&self, name: &str) -> Option<Vec<Entry<'a>>> {
        match self.root.get_ref().get(name)?.get_ref() {
            DeValue::Table(table) => Some(in_order(table)),
            _ => None,
        }
    }

    /// Whether the operator's own file, or a variable that sets a key, has the whole dotted `key`.
    pub(super) fn has_own(&self, key: &str) -> bool {
        let is_here = || locate(self.root.get_ref(), key).is_some_and(|position| position.is_whole);
        let is_shipped = self.name == shipped::NAME;
        self.variables.iter().any(|(set, _)| set == key) || (!is_shipped && is_here())
    }

    /// A problem at the first of `keys`, dotted from the top, that is in the file; without a line where none is.
    pub(super) fn problem_at(&self, keys: &[&str], text: String) -> Problem {
        let found =
            keys.iter().find_map(|key| locate(self.root.get_ref(), key).filter(|position| position.is_whole));
        match found {
            Some(position) => self.problem(Some(self.line_at(position.at)), position.key, text),
            None => self.problem(None, keys.first().copied().unwrap_or_default().to_owned(), text),
        }
    }

    /// A problem at `key`, or else at the innermost table on the way to it that is in the file.
    pub(super) fn problem_within(&self, key: &str, text: String) -> Problem {
        let position = locate(self.root.get_ref(), key);
        let line = position.as_ref().map(|position| self.line_at(position.at));
        let key = position
            .filter(|position| position.is_whole)
            .map_or_else(|| key.to_owned(), |position| position.key);
        self.problem(line, key, text)
    }

    /// Reads `value` with `read`. Where `read` refuses an entry, that entry is left out and the rest is read again, so
    /// that every problem is found at once.
    pub(super) fn read<T>(
        &self,
        path: &[&str],
        mut value: Spanned<DeValue<'a>>,
        read: impl Fn(Spanned<DeValue<'a>>) -> Result<T, BuildError>,
    ) -> Reading<T> {
        let mut reading = Reading { value: None, left_out: Vec::new(), problems: Vec::new() };
        while reading.left_out.len() < MOST_PROBLEMS {
            let error = match read(value.clone()) {
                Ok(read) => {
                    reading.value = Some(read);
                    break;
                }
                Err(BuildError::Checked(errors)) => {
                    reading.add_checked(self, path, errors);
                    break;
                }
                Err(BuildError::Read(error)) => error,
            };
            let span = error.span().unwrap_or_else(|| value.span());
            let struck = strike(value.get_mut(), &span);
            let stop = struck.is_none();
            let struck = struck.unwrap_or_default();
            let key = dotted(path.iter().copied().chain(struck.path.iter().map(String::as_str)));
            let left_out = dotted(struck.path.iter().map(String::as_str));
            // A key that is missing because it was left out before is not a second problem.
            let follows = error.message().starts_with("missing field ")
                && reading.left_out.iter().any(|earlier| is_within(earlier, &left_out));
            if !follows && !self.unset.contains(&key) {
                let text = struck.hint(path).unwrap_or_else(|| {
                    let is_table = struck.is_table() && path.is_empty() && struck.path.len() == 1;
                    let text = reworded(error.message(), is_table);
                    let hint = slips::as_wanted(&text, &key, &struck.value);
                    hint.map_or_else(|| text.clone(), |hint| format!("{text}; {hint}"))
                });
                let problem = self.problem(Some(self.line_at(span.start)), key, text);
                // Each entry of a list is left out separately, and then the list itself may be refused with the same
                // text.
                if reading.problems.last() != Some(&problem) {
                    reading.problems.push(problem);
                }
            }
            reading.left_out.push(left_out);
            if stop {
                break;
            }
        }
        reading
    }

    fn problem(&self, line: Option<usize>, key: String, text: String) -> Problem {
        if let Some(variable) = self.variable_of(&key) {
            return Problem { source: variable.to_owned(), line: None, key, text };
        }
        Problem { source: self.name.to_owned(), line, key, text }
    }

    /// The variable that set `key`, or the table around it, or a key within it that is not in the file.
    fn variable_of(&self, key: &str) -> Option<&str> {
        let sets = |set: &str| {
            let is_beyond_file =
                || locate(self.root.get_ref(), key).is_some_and(|position| position.at >= self.text.len());
            set == key || is_within(key, set) || (is_within(set, key) && is_beyond_file())
        };
        let set = self.variables.iter().find(|(set, _)| sets(set));
        set.map(|(_, variable)| variable.as_str())
    }

    /// The line of a byte, from 1.
    fn line_at(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        memchr::memchr_iter(b'\n', before).count() + 1
    }
}

impl<T> Reading<T> {
    /// Adds what a check of the whole table found, except what follows from values that were left out: such a problem
    /// names the key, or is at it.
    fn add_checked(&mut self, document: &Document<'_>, path: &[&str], errors: Vec<ConfigError>) {
        for ConfigError { key, problem } in errors {
            let follows = self.left_out.iter().any(|left_out| key == *left_out || problem.contains(left_out));
            if !follows {
                let key = format!("{}.{key}", path.join("."));
                self.problems.push(document.problem_within(&key, problem));
            }
        }
    }
}

/// A key with its value.
pub(super) struct Entry<'a> {
    pub name: String,
    pub value: Spanned<DeValue<'a>>,
}

/// The entries of a table in the order in which they are written.
pub(super) fn in_order<'a>(table: &DeTable<'a>) -> Vec<Entry<'a>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter();
    entries
        .map(|(key, value)| Entry { name: key.get_ref().clone().into_owned(), value: value.clone() })
        .collect()
}

/// Reads a value as `T`.
pub(super) fn read_as<T: serde::de::DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, BuildError> {
    T::deserialize(ValueDeserializer::from(value)).map_err(BuildError::Read)
}

/// A dotted key, its parts quoted where TOML requires it.
pub(super) fn dotted<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.map(quoted_key).collect::<Vec<_>>().join(".")
}

/// One part of a key, quoted where TOML requires it.
pub(super) fn quoted_key(part: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !part.is_empty() && part.bytes().all(bare) {
        part.to_owned()
    } else {
        toml::Value::from(part).to_string()
    }
}

fn is_within(key: &str, table: &str) -> bool {
    table.is_empty() || key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

/// The position of a key.
struct KeyPosition {
    /// Its first byte.
    at: usize,
    key: String,
    /// Whether the whole key was found, and not only a table on the way to it.
    is_whole: bool,
}

/// The position of the unquoted dotted `key`, whose parts may contain dots themselves, or of the last table on the way.
fn locate(table: &DeTable<'_>, key: &str) -> Option<KeyPosition> {
    let fits = table.iter().filter_map(|(name, value)| {
        let rest = key.strip_prefix(name.get_ref().as_ref())?;
        (rest.is_empty() || rest.starts_with('.')).then_some((name, value, rest.trim_start_matches('.')))
    });
    let (name, value, rest) = fits.max_by_key(|(name, _, _)| name.get_ref().len())?;
    let here =
        KeyPosition { at: name.span().start, key: quoted_key(name.get_ref()), is_whole: rest.is_empty() };
    let DeValue::Table(inner) = value.get_ref() else { return Some(here) };
    match locate(inner, rest) {
        Some(deeper) if !rest.is_empty() => {
            Some(KeyPosition { key: format!("{}.{}", here.key, deeper.key), ..deeper })
        }
        _ => Some(here),
    }
}

/// An entry that was taken out.
struct Struck {
    path: Vec<String>,
    value: Misfit,
}

impl Default for Struck {
    fn default() -> Self {
        Self { path: Vec::new(), value: Misfit::Other }
    }
}

impl Struck {
    fn is_table(&self) -> bool {
        matches!(self.value, Misfit::Table(_))
    }

    /// A common mistake with models: `[model.gpt-4.1]` is the table `1` within `gpt-4`.
    fn hint(&self, path: &[&str]) -> Option<String> {
        match self.path.as_slice() {
            [top, name, rest] if path.is_empty() && top == "model" && self.is_table() && rest != "price" => {
                Some(format!("unknown table; quote names that contain dots: [model.\"{name}.{rest}\"]"))
            }
            _ => None,
        }
    }
}

/// Removes the entry whose key or value is at `span` from `value`, the deepest match. Spans are compared whole, since a
/// table's own span is its header, which does not enclose its entries.
fn strike(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<Struck> {
    match value {
        DeValue::Table(table) => strike_entry(table, span),
        DeValue::Array(items) => strike_item(items, span),
        _ => None,
    }
}

fn strike_entry(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<Struck> {
    let mut found = None;
    for (key, value) in table.iter_mut() {
        if let Some(mut struck) = strike(value.get_mut(), span) {
            struck.path.insert(0, key.get_ref().clone().into_owned());
            return Some(struck);
        }
        if key.span() == *span || value.span() == *span {
            found = Some(key.get_ref().clone().into_owned());
        }
    }
    let name = found?;
    let value = table.remove(name.as_str())?;
    Some(Struck { path: vec![name], value: misfit(value.get_ref()) })
}

/// A value, as far as a suggestion shows it.
fn misfit(value: &DeValue<'_>) -> Misfit {
    let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
    match value {
        DeValue::Table(table) => Misfit::Table(table.keys().map(|key| key.get_ref().to_string()).collect()),
        DeValue::Array(items) => Misfit::List(items.iter().filter_map(|item| text(item.get_ref())).collect()),
        value => text(value).map_or(Misfit::Other, Misfit::Text),
    }
}

fn strike_item(items: &mut DeArray<'_>, span: &Range<usize>) -> Option<Struck> {
    for item in items.iter_mut() {
        if let Some(struck) = strike(item.get_mut(), span) {
            return Some(struck);
        }
    }
    let position = items.iter().position(|item| item.span() == *span)?;
    let mut kept = DeArray::new();
    for (_, item) in items.iter().enumerate().filter(|(at, _)| *at != position) {
        kept.push(item.clone());
    }
    *items = kept;
    Some(Struck::default())
}
