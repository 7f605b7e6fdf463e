//! The configured policies, built from their tables. A key that a table leaves out has the value of the shipped file,
//! so the file's documentation is always right. Knows no single policy, and no key but `enabled`, which every policy
//! has.

use super::document::{Document, Entry, MOST_PROBLEMS, in_order};
use super::error::{Problem, suggestion};
use super::file::not_a_table;
use super::shipped;
use policies::about::NamedTool;
use policies::set::{PolicySet, Rule};
use serde_json::{Map, Value};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The configured policies, in registry order: the shipped ones, those of the file applied over them, or a profile's
/// applied over those.
#[derive(Clone, Default)]
pub(super) struct Layer<'a> {
    all: Vec<Configured<'a>>,
    /// A layer over the shipped one is merged key by key at every depth, so that a file that adds one tool to a list
    /// of limits keeps the others.
    is_shipped: bool,
}

/// A policy that has a table.
#[derive(Clone)]
pub(super) struct Configured<'a> {
    pub rule: Arc<dyn Rule>,
    /// Defaults filled in.
    pub settings: Value,
    pub is_on: bool,
    /// As written, over the table that it extends.
    table: Spanned<DeValue<'a>>,
}

/// A tool that a policy names by default.
pub(super) struct ShippedTool {
    pub policy: &'static str,
    pub tool: NamedTool,
}

/// The key of every policy that says whether it is on.
const ENABLED: &str = "enabled";

/// Builds policies from their tables.
pub(super) struct Builder<'a> {
    pub document: &'a Document<'a>,
    registry: &'a [policies::Entry],
    defaults: Vec<Entry<'a>>,
}

impl<'a> Layer<'a> {
    /// The policies that are on.
    pub(super) fn on(&self) -> impl Iterator<Item = &Configured<'a>> {
        self.all.iter().filter(|policy| policy.is_on)
    }

    /// The policies that are on, as a set.
    pub(super) fn set(&self) -> PolicySet {
        PolicySet::new(self.on().map(|on| Arc::clone(&on.rule)).collect())
    }

    /// The settings by name of those that are on.
    pub(super) fn settings(&self) -> Map<String, Value> {
        self.on().map(|on| (on.rule.name().to_owned(), on.settings.clone())).collect()
    }

    /// The settings by name of those policies for which `wanted` is true; a policy that is off has only `enabled` as
    /// a setting.
    pub(super) fn settings_of(&self, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
        let wanted = self.all.iter().filter(|policy| wanted(policy.rule.name()));
        let settings = |policy: &Configured<'_>| match policy.is_on {
            true => policy.settings.clone(),
            false => Value::from(Map::from_iter([(ENABLED.to_owned(), Value::Bool(false))])),
        };
        wanted.map(|policy| (policy.rule.name().to_owned(), settings(policy))).collect()
    }
}

impl<'a> Builder<'a> {
    /// A builder for `document`; `defaults` is the shipped file with every setting on.
    pub(super) fn new(
        document: &'a Document<'a>,
        registry: &'a [policies::Entry],
        defaults: &'a str,
    ) -> Self {
        let defaults = Document::parse("", defaults).ok().and_then(|defaults| defaults.tables("policy"));
        Self { document, registry, defaults: defaults.unwrap_or_default() }
    }

    /// The tools that policies name by default, by name or pattern.
    pub(super) fn shipped_tools(&self) -> Vec<ShippedTool> {
        let built = self.registry.iter().filter_map(|entry| {
            let default = self.defaults.iter().find(|default| default.name == entry.name)?;
            (entry.build)(ValueDeserializer::from(default.value.clone())).ok()
        });
        let named = |rule: Arc<dyn Rule>| {
            let (policy, named) = (rule.name(), rule.about().named_tools.clone());
            named.into_iter().map(move |tool| ShippedTool { policy, tool })
        };
        built.flat_map(named).collect()
    }

    /// The names of all policies.
    pub(super) fn known(&self) -> Vec<&'static str> {
        self.registry.iter().map(|entry| entry.name).collect()
    }

    /// The policies of the shipped file.
    pub(super) fn shipped(&self) -> Layer<'a> {
        let shipped = Document::parse("", shipped::TEXT).ok().and_then(|shipped| shipped.tables("policy"));
        let (layer, _) = self.build(&["policy"], &shipped.unwrap_or_default(), &Layer::default(), &[]);
        Layer { is_shipped: true, ..layer }
    }

    /// All policies, on, with the settings of the shipped file; without those that need further settings.
    pub(super) fn all_defaults(&self) -> Layer<'a> {
        self.build(&["policy"], &self.defaults, &Layer::default(), &[]).0
    }

    /// Builds the policies of `tables`, which are at `path`, over those of `under`. Those named in `off` are off.
    pub(super) fn build(
        &self,
        path: &[&str],
        tables: &[Entry<'a>],
        under: &Layer<'a>,
        off: &[String],
    ) -> (Layer<'a>, Vec<Problem>) {
        let (mut layer, mut problems) = (Layer::default(), self.unknown(path, tables));
        for entry in self.registry {
            let below = under.all.iter().find(|policy| policy.rule.name() == entry.name);
            let Some(table) = tables.iter().find(|table| table.name == entry.name) else {
                let is_off = off.iter().any(|off| off == entry.name);
                let kept = below.map(|below| Configured { is_on: below.is_on && !is_off, ..below.clone() });
                layer.all.extend(kept);
                continue;
            };
            let path: Vec<&str> = path.iter().copied().chain([entry.name]).collect();
            let below = below.map(|below| (&below.table, under.is_shipped));
            match self.build_one(&path, entry, &table.value, below) {
                Ok(policy) => layer.all.push(policy),
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

    /// Builds the policy of `table` over the table `below`; its flag says whether inner tables are merged as well.
    fn build_one(
        &self,
        path: &[&str],
        entry: &policies::Entry,
        table: &Spanned<DeValue<'a>>,
        below: Option<(&Spanned<DeValue<'a>>, bool)>,
    ) -> Result<Configured<'a>, Vec<Problem>> {
        let mut table = table.clone();
        let DeValue::Table(own) = table.get_mut() else {
            return Err(vec![not_a_table(self.document, &path.join("."))]);
        };
        let enabled = own.remove(ENABLED);
        let is_on = match enabled.as_ref().map(Spanned::get_ref) {
            None => Some(true),
            Some(value) => value.as_bool(),
        };
        let default = self.defaults.iter().find(|default| default.name == entry.name);
        let default = default.map(|default| &default.value);
        let own = plain(table.get_ref());
        let remove_overruled = |table: &mut Spanned<DeValue<'a>>| {
            let shipped = default.map(|default| plain(default.get_ref()));
            shipped.into_iter().for_each(|shipped| remove_overruled(table, &own, &shipped, entry.overruled));
        };
        if let Some((below, merges_tables)) = below {
            complete(&mut table, below, merges_tables);
            remove_overruled(&mut table);
        }
        let mut reading = self.document.read(path, table.clone(), |mut table| {
            if let Some(default) = default {
                complete(&mut table, default, false);
                remove_overruled(&mut table);
            }
            let settings = settings(&table, default);
            (entry.build)(ValueDeserializer::from(table)).map(|rule| (rule, settings))
        });
        if is_on.is_none() {
            let key = format!("{}.{ENABLED}", path.join("."));
            reading.problems.push(self.document.problem_within(&key, "expected true or false".to_owned()));
        }
        match (reading.value, is_on) {
            (Some((rule, settings)), Some(is_on)) if reading.problems.is_empty() => {
                Ok(Configured { rule, settings, is_on, table })
            }
            _ => Err(reading.problems),
        }
    }
}

/// Gives `table` the keys of `default` that it leaves out; where that `merges_tables`, also to its tables.
fn complete<'a>(table: &mut Spanned<DeValue<'a>>, default: &Spanned<DeValue<'a>>, merges_tables: bool) {
    let (DeValue::Table(own), DeValue::Table(default)) = (table.get_mut(), default.get_ref()) else { return };
    for (key, value) in default {
        match own.get_mut(key.get_ref().as_ref()) {
            None => drop(own.insert(key.clone(), value.clone())),
            Some(own) if merges_tables => complete(own, value, true),
            Some(_) => {}
        }
    }
}

/// Removes from `table` the settings of the `shipped` one that the operator's `own` table overrules.
fn remove_overruled(
    table: &mut Spanned<DeValue<'_>>,
    own: &Value,
    shipped: &Value,
    overruled: policies::Overruled,
) {
    for [inner, key] in overruled(own, shipped) {
        let at = |value: &Value| value.get(&inner).and_then(|inner| inner.get(&key)).cloned();
        let DeValue::Table(members) = table.get_mut() else { return };
        let Some(DeValue::Table(entries)) = members.get_mut(inner.as_str()).map(Spanned::get_mut) else {
            continue;
        };
        let is_shipped = entries.get(key.as_str()).map(|value| plain(value.get_ref())) == at(shipped);
        if is_shipped && at(own).is_none() {
            entries.remove(key.as_str());
        }
    }
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
