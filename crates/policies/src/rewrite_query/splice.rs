//! The query among the arguments of a call: found by its argument's name, and replaced without touching another byte.
//! Decides nothing about its words.

use super::super::DeclaredTool;
use serde_json::Value;
use std::collections::BTreeMap;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, escaped};

/// Schemas of more bytes are not read: what a search takes is declared in a few lines.
const LONGEST_SCHEMA: usize = 64 << 10;

/// A query, and where it is.
pub(super) struct Found<'a> {
    pub(super) query: String,
    /// The argument's name; empty for a tool whose input is one free text.
    pub(super) name: &'a str,
    /// Its bytes among the arguments, without quotes.
    span: Span,
}

impl<'a> Found<'a> {
    /// The first of the arguments `names` that the JSON object `text` has. Text that is not JSON is the query itself, the
    /// input of a free-form tool. `None` where it is no text, or where readers of JSON may differ on it.
    pub(super) fn in_arguments(text: &str, names: &'a [String]) -> Option<Self> {
        if !text.trim_start().starts_with(['{', '[', '"']) {
            return Some(Self { query: text.to_owned(), name: "", span: Span::new(0, text.len()) });
        }
        let members = members(text).ok()?;
        let values = |name: &&'a String| members.iter().filter(|(key, _)| key == *name).count();
        let name = names.iter().find(|name| values(name) > 0)?;
        let mut of_name = members.iter().filter(|(key, _)| key == name);
        let (_, value) = of_name.next()?;
        if of_name.next().is_some() {
            return None;
        }
        let value = value.filter(|value| !value.odd)?;
        let query = decode(value, text.as_bytes()).into_owned();
        Some(Self { query, name, span: value.span })
    }

    /// The arguments `text` with `query` in its place.
    pub(super) fn with(&self, text: &str, query: &str) -> String {
        let Span { start, end } = self.span;
        let (before, after) = (&text[..start as usize], &text[end as usize..]);
        if self.name.is_empty() {
            return format!("{before}{query}{after}");
        }
        // Escapes of a string that is UTF-8 are UTF-8.
        let query = String::from_utf8(escaped(query)).unwrap_or_default();
        format!("{before}{query}{after}")
    }
}

/// The members of the object `text`: their names, and their values where these are strings.
fn members(text: &str) -> Result<Vec<(String, Option<Str>)>, Fault> {
    let mut scanner = Scanner::new(text.as_bytes());
    let mut members = Vec::new();
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let key = decode(key, text.as_bytes()).into_owned();
        if scanner.peek()? == Kind::String {
            members.push((key, Some(scanner.string()?)));
        } else {
            scanner.skip()?;
            members.push((key, None));
        }
    }
    scanner.end()?;
    Ok(members)
}

/// What the declared schemas say about the arguments of tools.
#[derive(Default)]
pub(super) struct Shapes(BTreeMap<String, Value>);

impl Shapes {
    /// The schemas of `tools`.
    pub(super) fn read<'a>(tools: impl Iterator<Item = &'a DeclaredTool<'a>>) -> Self {
        let read = tools.filter_map(|tool| {
            let schema = tool.parameters.filter(|schema| schema.len() <= LONGEST_SCHEMA)?;
            let mut schema: Value = serde_json::from_slice(schema).ok()?;
            Some((tool.name.clone().into_owned(), schema.get_mut("properties")?.take()))
        });
        Self(read.collect())
    }

    /// Whether the argument `name` of `tool` may be `query`: a rewritten query must not be refused where the original
    /// was right.
    pub(super) fn accept(&self, tool: &str, name: &str, query: &str) -> bool {
        let Some(shape) = self.0.get(tool).and_then(|properties| properties.get(name)) else { return true };
        if ["enum", "const", "pattern", "format", "not", "$ref"].iter().any(|key| shape.get(key).is_some()) {
            return false;
        }
        let chars = query.chars().count() as u64;
        let bound = |key: &str| shape.get(key).and_then(Value::as_u64);
        bound("minLength").is_none_or(|least| chars >= least)
            && bound("maxLength").is_none_or(|most| chars <= most)
    }
}
