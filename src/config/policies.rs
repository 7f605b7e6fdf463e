//! The policies that are on, built from their tables. A key that a table leaves out has the value of the shipped file,
//! so the file's documentation is always right. Knows no policy and no key of one.

use super::document::{Document, Entry, MOST_PROBLEMS, in_order};
use super::error::{Problem, suggestion};
use super::file::{is_table, not_a_table};
use crate::policy;
use crate::policy::set::{PolicySet, Rule};
use serde_json::{Map, Value};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The policies that are on, in registry order: those of the file, or a profile's applied over them.
#[derive(Clone, Default)]
pub(super) struct Layer<'a> {
    pub on: Vec<On<'a>>,
}

/// A policy that is on.
#[derive(Clone)]
pub(super) struct On<'a> {
    pub rule: Arc<dyn Rule>,
    /// Defaults filled in.
    pub settings: Value,
    /// As written, over the table that it extends.
    table: Spanned<DeValue<'a>>,
}

/// Builds policies from their tables.
pub(super) struct Builder<'a> {
    pub document: &'a Document<'a>,
    registry: &'a [policy::Entry],
    defaults: Vec<Entry<'a>>,
}

impl Layer<'_> {
    /// The policies as a set.
    pub(super) fn set(&self) -> PolicySet {
        PolicySet::new(self.on.iter().map(|on| Arc::clone(&on.rule)).collect())
    }

    /// Their settings by name, of those for which `wanted` is true.
    pub(super) fn settings(&self, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
        let on = self.on.iter().filter(|on| wanted(on.rule.name()));
        on.map(|on| (on.rule.name().to_owned(), on.settings.clone())).collect()
    }
}

impl<'a> Builder<'a> {
    /// A builder for `document`; `defaults` is the shipped file with every setting on.
    pub(super) fn new(document: &'a Document<'a>, registry: &'a [policy::Entry], defaults: &'a str) -> Self {
        let defaults = Document::parse("", defaults).ok().and_then(|defaults| defaults.tables("policy"));
        Self { document, registry, defaults: defaults.unwrap_or_default() }
    }

    /// The tools that policies name by default.
    pub(super) fn shipped_tools(&self) -> Vec<String> {
        let built = self.registry.iter().filter_map(|entry| {
            let default = self.defaults.iter().find(|default| default.name == entry.name)?;
            (entry.build)(ValueDeserializer::from(default.value.clone())).ok()
        });
        built.flat_map(|rule| rule.about().named_tools.clone()).collect()
    }

    /// The names of all policies.
    pub(super) fn known(&self) -> Vec<&'static str> {
        self.registry.iter().map(|entry| entry.name).collect()
    }

    /// Builds the policies of `tables`, which are at `path`, over those of `under`: key by key, a key's whole value
    /// replaced. Those named in `off` are left out.
    pub(super) fn build(
        &self,
        path: &[&str],
        tables: &[Entry<'a>],
        under: &Layer<'a>,
        off: &[String],
    ) -> (Layer<'a>, Vec<Problem>) {
        let (mut layer, mut problems) = (Layer::default(), self.unknown(path, tables));
        for entry in self.registry.iter().filter(|entry| !off.iter().any(|off| off == entry.name)) {
            let below = under.on.iter().find(|on| on.rule.name() == entry.name);
            let Some(table) = tables.iter().find(|table| table.name == entry.name) else {
                layer.on.extend(below.cloned());
                continue;
            };
            let path: Vec<&str> = path.iter().copied().chain([entry.name]).collect();
            match self.build_one(&path, entry, &table.value, below) {
                Ok(on) => layer.on.push(on),
                Err(found) => problems.extend(found),
            }
        }
        (layer, problems)
    }

    fn unknown(&self, path: &[&str], tables: &[Entry<'_>]) -> Vec<Problem> {
        let known = self.known();
        let unknown = tables.iter().filter(|table| !known.contains(&table.name.as_str()));
        let problem = |Entry { name, .. }: &Entry<'_>| {
            let text = format!("unknown policy; {}", suggestion(name, &known));
            self.document.problem_within(&format!("{}.{name}", path.join(".")), text)
        };
        unknown.take(MOST_PROBLEMS).map(problem).collect()
    }

    fn build_one(
        &self,
        path: &[&str],
        entry: &policy::Entry,
        table: &Spanned<DeValue<'a>>,
        below: Option<&On<'a>>,
    ) -> Result<On<'a>, Vec<Problem>> {
        if !is_table(table) {
            return Err(vec![not_a_table(self.document, &path.join("."))]);
        }
        let default = self.defaults.iter().find(|default| default.name == entry.name);
        let default = default.map(|default| &default.value);
        let table = completed(table.clone(), below.map(|below| &below.table));
        let reading = self.document.read(path, table.clone(), |table| {
            let completed = completed(table, default);
            let settings = settings(&completed, default);
            (entry.build)(ValueDeserializer::from(completed)).map(|rule| (rule, settings))
        });
        match reading.value {
            Some((rule, settings)) if reading.problems.is_empty() => Ok(On { rule, settings, table }),
            _ => Err(reading.problems),
        }
    }
}

/// `table` with the keys of `default` that it leaves out.
fn completed<'a>(
    mut table: Spanned<DeValue<'a>>,
    default: Option<&Spanned<DeValue<'a>>>,
) -> Spanned<DeValue<'a>> {
    if let (DeValue::Table(own), Some(DeValue::Table(default))) =
        (table.get_mut(), default.map(Spanned::get_ref))
    {
        for (key, value) in default {
            if !own.contains_key(key.get_ref().as_ref()) {
                own.insert(key.clone(), value.clone());
            }
        }
    }
    table
}

/// The settings in the order of `default`.
fn settings(completed: &Spanned<DeValue<'_>>, default: Option<&Spanned<DeValue<'_>>>) -> Value {
    let mut settings = plain(completed.get_ref());
    let order = default.map(|default| plain(default.get_ref()));
    if let (Value::Object(settings), Some(Value::Object(order))) = (&mut settings, order) {
        let place = |key: &str| order.keys().position(|known| known == key).unwrap_or(order.len());
        let mut entries: Vec<_> = std::mem::take(settings).into_iter().collect();
        entries.sort_by_key(|(key, _)| place(key));
        *settings = entries.into_iter().collect();
    }
    settings
}

/// A value without its positions.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::from(number.as_str()), Value::from),
        DeValue::Float(number) => {
            number.as_str().parse::<f64>().map_or_else(|_| Value::from(number.as_str()), Value::from)
        }
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(items) => items.iter().map(|item| plain(item.get_ref())).collect(),
        DeValue::Table(table) => plain_table(table),
    }
}

fn plain_table(table: &DeTable<'_>) -> Value {
    in_order(table).into_iter().map(|entry| (entry.name, plain(entry.value.get_ref()))).collect()
}
