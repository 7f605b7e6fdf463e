//! The policies that are on, built from their tables. A key that a table leaves out has the value of the
//! shipped file, so that file's word is true by construction. Knows no policy and no key of one.

use super::document::{Document, Entry, MOST_PROBLEMS, in_order};
use super::error::{Problem, suggestion};
use super::file::{is_table, not_a_table};
use super::shipped;
use crate::policy;
use crate::policy::set::Rule;
use serde_json::{Map, Value};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The policies that are on.
#[derive(Default)]
pub(super) struct Built {
    /// In registry order.
    pub rules: Vec<Arc<dyn Rule>>,
    /// Their settings by name, defaults filled in, in registry order.
    pub settings: Map<String, Value>,
    /// The tools that they name by default.
    pub shipped_tools: Vec<String>,
    pub problems: Vec<Problem>,
}

/// Builds the policies of `document`.
pub(super) fn build(document: &Document<'_>, registry: &[policy::Entry]) -> Built {
    let mut built = Built::default();
    let tables = document.tables("policy").unwrap_or_default();
    let known: Vec<&str> = registry.iter().map(|entry| entry.name).collect();
    let unknown = tables.iter().filter(|table| !known.contains(&table.name.as_str()));
    for Entry { name, .. } in unknown.take(MOST_PROBLEMS) {
        let text = format!("unknown policy; {}", suggestion(name, &known));
        built.problems.push(document.problem_within(&format!("policy.{name}"), text));
    }
    let defaults = shipped::with_all_that_is_off();
    let defaults = Document::parse("", &defaults).ok();
    let defaults = defaults.as_ref().and_then(|defaults| defaults.tables("policy")).unwrap_or_default();
    for entry in registry {
        let Some(table) = tables.iter().find(|table| table.name == entry.name) else { continue };
        let default = defaults.iter().find(|default| default.name == entry.name);
        let shipped = default.and_then(|it| (entry.build)(ValueDeserializer::from(it.value.clone())).ok());
        built.shipped_tools.extend(shipped.iter().flat_map(|rule| rule.named_tools()));
        build_one(document, entry, &table.value, default.map(|default| &default.value), &mut built);
    }
    built
}

fn build_one<'a>(
    document: &Document<'a>,
    entry: &policy::Entry,
    table: &Spanned<DeValue<'a>>,
    default: Option<&Spanned<DeValue<'_>>>,
    built: &mut Built,
) {
    if !is_table(table) {
        built.problems.push(not_a_table(document, &format!("policy.{}", entry.name)));
        return;
    }
    let reading = document.read(&["policy", entry.name], table.clone(), |table| {
        let completed = completed(table, default);
        let settings = settings(&completed, default);
        (entry.build)(ValueDeserializer::from(completed)).map(|rule| (rule, settings))
    });
    built.problems.extend(reading.problems);
    if let Some((rule, settings)) = reading.value {
        built.rules.push(rule);
        built.settings.insert(entry.name.to_owned(), settings);
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

/// A value without its places.
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
