//! The configuration as written: every table except the policies, defaults filled in, each value of the right type and
//! unit. Consistency between values is checked elsewhere.

use super::callers::KnownCaller;
use super::document::{Document, Entry, MOST_PROBLEMS, in_order, read_as};
use super::error::{Problem, reworded};
use super::messages::Messages;
use super::record::Record;
use super::reload::Reload;
use super::responses::Responses;
use super::tables::{Admin, Audit, Conversation, Limits, Listen, Log, Model, Notices, Reask, StateStore};
use super::target::Target;
use super::telemetry::Telemetry;
use super::tiers::{KeyHash, Tier};
use super::units::parse_address;
use super::upstream::Upstream;
use super::variables::PREFIX;
use engine::settings::Mode;
use serde::de::value::StrDeserializer;
use serde::de::{IgnoredAny, IntoDeserializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub base: Base,
    pub mode: Mode,
    pub reload: Reload,
    pub listen: Listen,
    pub upstream: Upstream,
    pub limits: Limits,
    pub notices: Notices,
    pub conversation: Conversation,
    pub reask: Reask,
    pub responses: Responses,
    pub messages: Messages,
    pub store: StateStore,
    pub log: Log,
    pub audit: Audit,
    pub record: Record,
    pub admin: Admin,
    pub telemetry: Telemetry,
    pub model: BTreeMap<String, Model>,
    pub caller: BTreeMap<String, KnownCaller>,
    pub tier: BTreeMap<String, Tier>,
    /// These two are built from their own tables elsewhere.
    #[serde(skip_serializing)]
    policy: IgnoredAny,
    #[serde(skip_serializing)]
    profile: IgnoredAny,
}

impl File {
    /// The keys of a tier: its own, and those of the callers that it names.
    pub(super) fn keys_of<'f>(&'f self, tier: &'f Tier) -> impl Iterator<Item = &'f KeyHash> {
        let callers = tier.callers.iter().filter_map(|name| self.caller.get(name));
        tier.keys.iter().chain(callers.flat_map(|caller| &caller.keys))
    }
}

/// What the file changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Base {
    /// The shipped policies.
    #[default]
    Shipped,
    /// Nothing: only the policies that the file names are on.
    None,
}

/// The result of reading the file.
#[derive(Default)]
pub(super) struct Written {
    pub file: File,
    /// The keys whose values are wrong, dotted; the file has their defaults.
    pub left_out: Vec<String>,
    pub problems: Vec<Problem>,
}

/// Reads `document` as written.
pub(super) fn read(document: &Document<'_>) -> Written {
    let mut root = document.root();
    let mut written = Written::default();
    if let DeValue::Table(root) = root.get_mut() {
        written.problems = take_out_what_is_no_table(document, root);
    }
    let reading = document.read(&[], root, read_as::<File>);
    written.problems.extend(reading.problems);
    written.left_out = reading.left_out;
    written.file = reading.value.unwrap_or_default();
    written
}

/// Removes from `root` what should be a table and is not, since a list would be read as one.
fn take_out_what_is_no_table(document: &Document<'_>, root: &mut DeTable<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Entry { name, value } in in_order(root) {
        if TABLES.contains(&name.as_str()) && !is_table(&value) {
            root.remove(name.as_str());
            problems.push(not_a_table(document, &name));
        }
    }
    for (top, named) in [
        ("model", "expected the name of a model, or a pattern such as \"gpt-*\""),
        ("caller", "expected a name"),
        ("tier", "expected a name"),
    ] {
        let Some(DeValue::Table(tables)) = root.get_mut(top).map(Spanned::get_mut) else { continue };
        for Entry { name, value } in in_order(tables) {
            if problems.len() >= MOST_PROBLEMS {
                break;
            }
            if !is_table(&value) {
                tables.remove(name.as_str());
                problems.push(not_a_table(document, &format!("{top}.{name}")));
            } else if name.is_empty() {
                problems.push(document.problem_within(top, named.to_owned()));
            }
        }
    }
    problems
}

/// All top-level keys except `base` and `mode`.
const TABLES: [&str; 18] = [
    "listen",
    "upstream",
    "limits",
    "notices",
    "conversation",
    "reask",
    "responses",
    "messages",
    "store",
    "log",
    "audit",
    "record",
    "admin",
    "model",
    "caller",
    "tier",
    "policy",
    "profile",
];

/// Whether a value is a table.
pub(super) fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    matches!(value.get_ref(), DeValue::Table(_))
}

/// The problem that `key` is not written as a table. A list would be accepted as one.
pub(super) fn not_a_table(document: &Document<'_>, key: &str) -> Problem {
    document.problem_within(key, format!("expected a table, such as [{key}]"))
}

/// The values of flags and variables as given; they take precedence over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`, `TOOLREIN_LISTEN`: `listen.proxy`.
    pub listen: Option<String>,
    /// `--admin`, `TOOLREIN_ADMIN`: `listen.admin`.
    pub admin: Option<String>,
    /// `--upstream`, `TOOLREIN_UPSTREAM`: `upstream.url`.
    pub upstream: Option<String>,
    /// `--mode`, `TOOLREIN_MODE`: `mode`.
    pub mode: Option<String>,
    /// `--log-level`, `TOOLREIN_LOG_LEVEL`: `log.level`.
    pub log_level: Option<String>,
    /// What `upstream.url` is where no flag, no variable and no file names one.
    pub inherited: Option<InheritedUpstream>,
    /// Variables that each set a key, such as `TOOLREIN__POLICY__BUDGET__TOOL_CALLS`, with their values.
    pub settings: Vec<(String, String)>,
}

/// The upstream that a program would have without toolrein.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedUpstream {
    /// What names it: an environment variable, a file, or an option of the program.
    pub source: String,
    /// Its address, or why it is not known, as a sentence.
    pub url: Result<String, String>,
}

impl Overrides {
    /// The variables of this process that each set a key, sorted by name.
    pub fn settings_of_environment() -> Vec<(String, String)> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        let mut settings: Vec<_> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
        settings.sort_unstable();
        settings
    }
}

/// Writes the inherited upstream into `file` where `given` has one and nothing else names the upstream. Returns what is
/// wrong with it.
pub(super) fn inherit_upstream(
    given: &Overrides,
    document: &Document<'_>,
    file: &mut File,
) -> Option<Problem> {
    const KEY: &str = "upstream.url";
    let inherited = given.inherited.as_ref()?;
    if given.upstream.is_some() || document.has_own(KEY) {
        return None;
    }
    let problem =
        |key: &str, text| Problem { source: inherited.source.clone(), line: None, key: key.to_owned(), text };
    let url = match &inherited.url {
        Ok(url) => url,
        Err(sentence) => return Some(problem("", sentence.clone())),
    };
    match Target::parse(url.trim()) {
        Ok(url) => {
            file.upstream.url = url;
            None
        }
        Err(text) => Some(problem(KEY, text)),
    }
}

/// Overrides, parsed.
#[derive(Default)]
pub(super) struct Overriding {
    proxy: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    url: Option<Target>,
    mode: Option<Mode>,
    log_level: Option<String>,
    /// The keys set, each with its flag.
    pub keys: Vec<(&'static str, &'static str)>,
    pub problems: Vec<Problem>,
}

impl Overriding {
    /// Parses the overrides.
    pub(super) fn read(given: &Overrides) -> Self {
        let mut read = Self::default();
        read.proxy = read.one("listen.proxy", "--listen or TOOLREIN_LISTEN", &given.listen, parse_address);
        read.admin = read.one("listen.admin", "--admin or TOOLREIN_ADMIN", &given.admin, parse_address);
        read.url =
            read.one("upstream.url", "--upstream or TOOLREIN_UPSTREAM", &given.upstream, Target::parse);
        read.mode = read.one("mode", "--mode or TOOLREIN_MODE", &given.mode, parse_mode);
        let level = |text: &str| Ok(text.to_owned());
        read.log_level = read.one("log.level", "--log-level or TOOLREIN_LOG_LEVEL", &given.log_level, level);
        read
    }

    /// Writes the overrides into `file`.
    pub(super) fn apply(&self, file: &mut File) {
        file.listen.proxy = self.proxy.unwrap_or(file.listen.proxy);
        file.listen.admin = self.admin.unwrap_or(file.listen.admin);
        file.mode = self.mode.unwrap_or(file.mode);
        if let Some(url) = &self.url {
            file.upstream.url = url.clone();
        }
        if let Some(level) = &self.log_level {
            file.log.level.clone_from(level);
        }
    }

    fn one<T>(
        &mut self,
        key: &'static str,
        flag: &'static str,
        given: &Option<String>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(given.as_deref()?) {
            Ok(value) => {
                self.keys.push((key, flag));
                Some(value)
            }
            Err(text) => {
                self.problems.push(Problem {
                    source: flag.to_owned(),
                    line: None,
                    key: key.to_owned(),
                    text,
                });
                None
            }
        }
    }
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    let text: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    Mode::deserialize(text).map_err(|error| reworded(&error.to_string(), false))
}
