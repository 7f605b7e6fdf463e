//! Where the line of an upstream goes into a YAML file: a parser says where its entries are, and whether the changed file
//! means what it meant and names the upstream beside. Writes no YAML of its own but `key: value`.

use super::insert::{Insertion, MARK, UpstreamSetting, insert_all};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// What `text` says under `key` of its root mapping, and what is to be inserted for `value`.
///
/// # Errors
/// It is no YAML, or its root is not a mapping in lines of their own.
pub(super) fn find(text: &str, key: &str, value: &str) -> Result<UpstreamSetting, String> {
    let yaml = Yaml::read(text)?;
    let insertion = match yaml.root()? {
        Root::Nothing => Insertion { at: text.len(), text: ended(text, &format!("{key}: {value}")) },
        Root::Mapping(at) => match yaml.one(&yaml.entries(at), key)? {
            Some(entry) => match yaml.value(&entry, value)? {
                Ok(named) => return Ok(UpstreamSetting::Named(named)),
                Err(insertion) => insertion,
            },
            None => yaml.before_the_first(at, key, value)?,
        },
    };
    yaml.checked(vec![insertion], key, value)
}

/// The value under `key` of the root mapping.
///
/// # Errors
/// It is no YAML, or the key has no text as its value.
pub(super) fn named(text: &str, key: &str) -> Result<Option<String>, String> {
    let yaml = Yaml::read(text)?;
    let Root::Mapping(at) = yaml.root()? else { return Ok(None) };
    let Some(entry) = yaml.one(&yaml.entries(at), key)? else { return Ok(None) };
    match &yaml.events[entry.value].0 {
        scalar if is_empty(scalar) => Ok(None),
        Event::Scalar(named, ..) => Ok(Some(named.to_string())),
        _ => Err(format!("has another kind of value at {key}")),
    }
}

/// What the models of `provider` in `list` say under `key`, and what is to be inserted for `value`.
///
/// # Errors
/// As [`find`], or there is no such model.
pub(super) fn find_in_models(
    text: &str,
    [list, provider, key]: [&str; 3],
    value: &str,
) -> Result<UpstreamSetting, String> {
    let yaml = Yaml::read(text)?;
    let none = || format!("has no list of {list}");
    let Root::Mapping(root) = yaml.root()? else { return Err(none()) };
    let models = yaml.one(&yaml.entries(root), list)?.ok_or_else(none)?;
    if !matches!(yaml.events[models.value].0, Event::SequenceStart(..)) {
        return Err(none());
    }
    let (mut insertions, mut named) = (Vec::new(), None);
    for model in yaml.items(models.value) {
        let entries = yaml.entries(model);
        let Some(of_provider) = yaml.one(&entries, "provider")? else { continue };
        if yaml.text(of_provider.value) != Some(provider) {
            continue;
        }
        match yaml.one(&entries, key)? {
            Some(entry) => match yaml.value(&entry, value)? {
                Ok(other) => named = Some(other),
                Err(insertion) => insertions.push(insertion),
            },
            None => insertions.push(yaml.after(&of_provider, key, value)),
        }
    }
    match named {
        Some(named) => Ok(UpstreamSetting::Named(named)),
        None if insertions.is_empty() => Err(format!("has no model with the provider {provider}")),
        None => yaml.checked(insertions, key, value),
    }
}

/// The events of a parser with their places.
struct Yaml<'a> {
    text: &'a str,
    /// The byte at which each character begins, and the end.
    bytes: Vec<usize>,
    events: Vec<(Event<'a>, Span)>,
}

/// What the one document of a file holds.
enum Root {
    Nothing,
    /// A mapping: the position of its first event.
    Mapping(usize),
}

/// An entry of a mapping: the positions of the events of its key and of its value.
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    value: usize,
}

impl<'a> Yaml<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let body = text.strip_prefix(MARK).unwrap_or(text);
        let offset = text.len() - body.len();
        // The parser accepts some that other readers refuse.
        if let Some(line) = body.lines().position(|line| line.starts_with('\t') && !line.trim().is_empty()) {
            return Err(format!("is not YAML: a tab as indentation in line {}", line + 1));
        }
        let events: Result<Vec<_>, _> = Parser::new_from_str(body).collect();
        let events = events
            .map_err(|error| format!("is not YAML: {} in line {}", error.info(), error.marker().line()))?;
        if events.iter().filter(|(event, _)| matches!(event, Event::DocumentStart(_))).count() > 1 {
            return Err("holds several YAML documents".to_owned());
        }
        let starts = body.char_indices().map(|(at, _)| at + offset);
        Ok(Self { text, bytes: starts.chain([text.len()]).collect(), events })
    }

    fn root(&self) -> Result<Root, String> {
        let start = self.events.iter().position(|(event, _)| matches!(event, Event::DocumentStart(_)));
        let Some(at) = start.map(|start| start + 1) else { return Ok(Root::Nothing) };
        match &self.events[at].0 {
            Event::MappingStart(..) => Ok(Root::Mapping(at)),
            scalar if is_empty(scalar) => Ok(Root::Nothing),
            _ => Err("does not hold YAML keys".to_owned()),
        }
    }

    /// The position after the node that begins at `at`.
    fn after_node(&self, at: usize) -> usize {
        let mut depth = 0_usize;
        for (index, (event, _)) in self.events.iter().enumerate().skip(at) {
            match event {
                Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
                Event::MappingEnd | Event::SequenceEnd => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return index + 1;
            }
        }
        self.events.len()
    }

    /// The positions of the nodes inside of the one that begins at `at`.
    fn items(&self, at: usize) -> Vec<usize> {
        let end = self.after_node(at) - 1;
        let mut items = Vec::new();
        let mut next = at + 1;
        while next < end {
            items.push(next);
            next = self.after_node(next);
        }
        items
    }

    /// The entries of the mapping that begins at `at`; none of another node.
    fn entries(&self, at: usize) -> Vec<Entry> {
        match self.events[at].0 {
            Event::MappingStart(..) => {
                let pairs = self.items(at);
                pairs.chunks_exact(2).map(|pair| Entry { key: pair[0], value: pair[1] }).collect()
            }
            _ => Vec::new(),
        }
    }

    fn text(&self, at: usize) -> Option<&str> {
        match &self.events[at].0 {
            Event::Scalar(text, ..) => Some(text),
            _ => None,
        }
    }

    /// The entry with this key.
    fn one(&self, entries: &[Entry], key: &str) -> Result<Option<Entry>, String> {
        let mut found = entries.iter().filter(|entry| self.text(entry.key) == Some(key));
        match (found.next(), found.next()) {
            (found, None) => Ok(found.copied()),
            _ => Err(format!("has the key {key} twice")),
        }
    }

    fn byte(&self, index: usize) -> usize {
        self.bytes.get(index).copied().unwrap_or(self.text.len())
    }

    /// What an entry says, or where `value` goes if it says nothing.
    fn value(&self, entry: &Entry, value: &str) -> Result<Result<String, Insertion>, String> {
        let (event, span) = &self.events[entry.value];
        match event {
            Event::Scalar(named, ..) if !is_empty(event) => Ok(Ok(named.to_string())),
            Event::Scalar(_, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, ..) => {
                let at = self.byte(span.start.index() + 1);
                Ok(Err(Insertion { at, text: value.to_owned() }))
            }
            Event::Scalar(..) => {
                let after_key = self.byte(self.events[entry.key].1.end.index());
                let colon = self.text[after_key..].find(':').map(|colon| after_key + colon + 1);
                let at = colon.ok_or_else(not_plain)?;
                Ok(Err(Insertion { at, text: format!(" {value}") }))
            }
            _ => Err(format!("has another kind of value at {}", self.text(entry.key).unwrap_or_default())),
        }
    }

    /// The line of a new entry before the first one of the mapping at `at`.
    fn before_the_first(&self, at: usize, key: &str, value: &str) -> Result<Insertion, String> {
        let first = self.entries(at).first().map(|entry| self.byte(self.events[entry.key].1.start.index()));
        let first = first.ok_or_else(not_plain)?;
        let line = self.text[..first].rfind('\n').map_or(self.text.len() - self.body().len(), |end| end + 1);
        let indent = &self.text[line..first];
        match indent.bytes().all(|byte| byte == b' ') {
            true => {
                Ok(Insertion { at: line, text: format!("{indent}{key}: {value}{}", line_end(self.text)) })
            }
            false => Err(not_plain()),
        }
    }

    /// The line of a new entry after the line of another one, which is of one line.
    fn after(&self, entry: &Entry, key: &str, value: &str) -> Insertion {
        let column = self.events[entry.key].1.start.col();
        let new = format!("{}{key}: {value}", " ".repeat(column));
        let from = self.byte(self.events[entry.value].1.end.index());
        match self.text[from..].find('\n') {
            Some(end) => Insertion { at: from + end + 1, text: format!("{new}{}", line_end(self.text)) },
            None => Insertion { at: self.text.len(), text: format!("{}{new}", line_end(self.text)) },
        }
    }

    fn body(&self) -> &str {
        self.text.strip_prefix(MARK).unwrap_or(self.text)
    }

    /// The insertions, if the text means with them what it meant without them, but for `key: value`.
    fn checked(&self, insertions: Vec<Insertion>, key: &str, value: &str) -> Result<UpstreamSetting, String> {
        let changed = insert_all(self.text, &insertions);
        let after = Yaml::read(&changed).map_err(|_| not_plain())?;
        let (mut before, mut found) = (self.content().peekable(), 0);
        let mut content = after.content();
        let is = |event: Option<&Event<'_>>, text: &str| matches!(event, Some(Event::Scalar(found, ..)) if found == text);
        while let Some(event) = content.next() {
            if before.next_if(|old| *old == event).is_some() {
                continue;
            }
            // A new entry, or a new value of an entry that had none.
            let is_new = is(Some(event), key) && is(content.next(), value);
            let mut is_filled = || is(Some(event), value) && before.next_if(|old| is_empty(old)).is_some();
            if !is_new && !is_filled() {
                return Err(not_plain());
            }
            found += 1;
        }
        match before.next().is_none() && found == insertions.len() {
            true => Ok(UpstreamSetting::Missing(insertions)),
            false => Err(not_plain()),
        }
    }

    /// The events inside of the root mapping.
    fn content(&self) -> impl Iterator<Item = &Event<'a>> {
        let inside = match self.root() {
            Ok(Root::Mapping(at)) => at + 1..self.after_node(at) - 1,
            _ => 0..0,
        };
        self.events[inside].iter().map(|(event, _)| event)
    }
}

/// Whether a value says nothing: an empty text, or YAML's null.
fn is_empty(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) => ["", "~", "null", "Null", "NULL"].contains(&&**text),
        Event::Scalar(text, ..) => text.is_empty(),
        _ => false,
    }
}

fn not_plain() -> String {
    "is not a plain list of YAML keys, so it cannot be changed safely".to_owned()
}

fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// `line` as one that goes to the end of `text`.
fn ended(text: &str, line: &str) -> String {
    let end = line_end(text);
    match text.is_empty() || text.ends_with(['\n', '\u{feff}']) {
        true => format!("{line}{end}"),
        false => format!("{end}{line}{end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "OPENAI_HOST";
    const URL: &str = "http://127.0.0.1:4242";

    #[test]
    fn a_new_entry_goes_where_the_entries_of_the_root_are_whatever_their_indent() {
        let line = "OPENAI_HOST: http://127.0.0.1:4242";
        for (text, expected) in [
            ("  a: 1\n  b: 2\n", format!("  {line}\n  a: 1\n  b: 2\n")),
            ("---\n  # mine\n  a: 1\n", format!("---\n  # mine\n  {line}\n  a: 1\n")),
            ("\u{feff}a: 1\n", format!("\u{feff}{line}\na: 1\n")),
            ("\u{feff}# mine\na: 1\r\n", format!("\u{feff}# mine\n{line}\r\na: 1\r\n")),
            ("\u{feff}", format!("\u{feff}{line}\n")),
            ("# é\n\"ü: x\": 'é'\r\n", format!("# é\n{line}\r\n\"ü: x\": 'é'\r\n")),
            ("---\n", format!("---\n{line}\n")),
            ("a: |\n  OPENAI_HOST: x\nb: 1\n", format!("{line}\na: |\n  OPENAI_HOST: x\nb: 1\n")),
            ("a: &x {b: 1}\nc: *x\nlist:\n- a\n", format!("{line}\na: &x {{b: 1}}\nc: *x\nlist:\n- a\n")),
        ] {
            match find(text, KEY, URL) {
                Ok(UpstreamSetting::Missing(insertions)) => {
                    assert_eq!(insert_all(text, &insertions), expected, "{text:?}");
                    assert_eq!(find(&expected, KEY, URL), Ok(UpstreamSetting::Named(URL.to_owned())));
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_key_without_a_value_is_given_one() {
        for (text, expected) in [
            ("OPENAI_HOST:\na: 1\n", "OPENAI_HOST: http://127.0.0.1:4242\na: 1\n"),
            ("OPENAI_HOST: # mine\n", "OPENAI_HOST: http://127.0.0.1:4242 # mine\n"),
            ("a: 1\nOPENAI_HOST: \"\"\n", "a: 1\nOPENAI_HOST: \"http://127.0.0.1:4242\"\n"),
            ("'OPENAI_HOST': '' # é\n", "'OPENAI_HOST': 'http://127.0.0.1:4242' # é\n"),
        ] {
            match find(text, KEY, URL) {
                Ok(UpstreamSetting::Missing(insertions)) => {
                    assert_eq!(insert_all(text, &insertions), expected, "{text:?}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
            assert_eq!(named(text, KEY), Ok(None));
            assert_eq!(named(expected, KEY), Ok(Some(URL.to_owned())));
        }
    }

    #[test]
    fn what_is_no_yaml_or_could_mean_something_else_afterwards_is_not_changed() {
        for (text, why) in [
            ("a: [1\n", "is not YAML"),
            ("a:\n\t- 1\n\tb: 2\n", "is not YAML"),
            ("a: 1\n b: 2\n", "is not YAML"),
            ("{a: 1}\n", "cannot be changed safely"),
            ("? a\n: 1\n", "cannot be changed safely"),
            ("- a\n", "does not hold YAML keys"),
            ("just text\n", "does not hold YAML keys"),
            ("a: 1\n---\nb: 2\n", "holds several YAML documents"),
            ("OPENAI_HOST: a\nOPENAI_HOST: b\n", "has the key OPENAI_HOST twice"),
            ("OPENAI_HOST: [a]\n", "another kind of value at OPENAI_HOST"),
            ("OPENAI_HOST: ~\n", "cannot be changed safely"),
        ] {
            let problem = find(text, KEY, URL).unwrap_err();
            assert!(problem.contains(why), "{text:?}: {problem}");
        }
        // What cannot be changed can be read.
        assert_eq!(named("{a: 1, OPENAI_HOST: 'http://x'}\n", KEY), Ok(Some("http://x".to_owned())));
        assert_eq!(named("{a: 1}\n", KEY), Ok(None));
    }

    #[test]
    fn models_are_found_in_every_form_and_changed_in_lines() {
        let find = |text: &str| find_in_models(text, ["models", "openai", "apiBase"], URL);
        let text = "  models:\n    - {name: a, provider: ollama}\n    - apiBase: \"\"\n      provider: openai\n    -\n      provider: 'openai' # é\n";
        let expected = "  models:\n    - {name: a, provider: ollama}\n    - apiBase: \"http://127.0.0.1:4242\"\n      provider: openai\n    \
                        -\n      provider: 'openai' # é\n      apiBase: http://127.0.0.1:4242\n";
        match find(text) {
            Ok(UpstreamSetting::Missing(insertions)) => assert_eq!(insert_all(text, &insertions), expected),
            other => panic!("{other:?}"),
        }
        assert!(find("models:\n- {provider: openai}\n").unwrap_err().contains("cannot be changed safely"));
        assert_eq!(
            find("models: [{provider: openai, apiBase: x}]\n"),
            Ok(UpstreamSetting::Named("x".to_owned()))
        );
    }
}
