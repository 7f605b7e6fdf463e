//! Validation of the arguments of calls against what their tool declares.
//!
//! # What it does
//! The arguments must be one JSON object that fits the JSON Schema in the tool's declaration and the operator's
//! own limits (`tools`): length, pattern, the hosts that a URL may lead to. Absent, empty and null arguments count as
//! none, which is right for a tool that needs none. Keys that harm programs in JavaScript are refused or removed. A
//! call that does not fit is blocked; the model reads where the problem is, which rule was broken and what was
//! expected, and may correct the call.
//!
//! The lenient form accepts harmless deviations: null or an empty text for an optional parameter, a value outside an
//! enum, a string that parses to the expected type, a number or boolean where a string was expected. `strict` accepts
//! none of them. What is accepted reaches the client as it came.
//!
//! # Why
//! Models get arguments wrong, and clients fail on them in ways that no model can correct. Schemas are sloppy too: of
//! 3,922 calls known to be good, strict validation refuses 1.4%, the lenient form 0.1%. The lenient form finds 97% of the
//! broken calls that it does not accept by design (`tests/eval/arguments.rs`). What cannot be judged passes: no schema,
//! one that is too large or refers to another document, arguments that would take too long. The library `jsonschema`
//! validates by JSON Schema 2020-12, with patterns whose time is linear in the text. Ours are the schema that it is given,
//! the bound on its work, the lenient form and the messages.
//!
//! # State
//! The schemas that the request declares, compiled at the first call that needs them and kept in the memo under
//! the hash of their bytes.
//!
//! # Example
//! A call of `weather` with `{"days":"many"}` is blocked with `VALIDATION` and "days: type, expected integer, found
//! string; city: required, expected string".

mod lenient;
mod limits;
mod problem;
mod schema;
mod strip;
mod validator;
mod weight;

use super::about::{About, list_keys};
use super::pattern::{Pattern, all_concerns};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use limits::{Limit, Written};
use model::EventKinds;
use model::identity::Domain;
use model::memo::Derived;
use model::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use problem::{Problem, issues, join, listed, shown_tool};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use validator::Deferred;
use wire::body::{Fault, Scanner};
use wire::json::unescape;

/// Keys that change the prototypes of JavaScript objects where a program merges the arguments into an object.
const UNSAFE_KEYS: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// The most harmful keys that are reported: each is reported with its path, which may be long.
const MOST_UNSAFE: usize = 100;

/// See the module.
pub struct Arguments {
    strict: bool,
    unsafe_keys: UnsafeKeys,
    tools: Vec<(Pattern, Vec<Limit>)>,
    texts: Texts,
}

/// `[policy.arguments]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Accept only what the schema accepts.
    strict: bool,
    /// What to do with calls that hold `__proto__`, `constructor` or `prototype` as a key.
    unsafe_keys: UnsafeKeys,
    /// Further limits: by tool name or pattern, then by argument.
    tools: BTreeMap<String, BTreeMap<String, Written>>,
    texts: OwnTexts,
}

/// What happens to calls with harmful keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnsafeKeys {
    #[default]
    Refuse,
    Strip,
    Off,
}

/// The schemas that the request declares, by tool.
#[derive(Clone, Default)]
pub struct Declared(Arc<Schemas>);

/// The schemas of one list of tools.
#[derive(Default)]
struct Schemas(BTreeMap<String, Arc<Deferred>>);

impl Derived for Schemas {
    fn weight(&self) -> usize {
        let of_one = |(name, schema): (&String, &Arc<Deferred>)| name.len() + schema.weight();
        self.0.iter().map(of_one).sum()
    }
}

impl Policy for Arguments {
    const NAME: &'static str = "arguments";
    const SUMMARY: &'static str = "checks the arguments of calls against the tool's JSON Schema";
    const TEXTS: &'static [Text] = &[BLOCKED];
    type Config = Config;
    type State = Declared;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut tools = Vec::with_capacity(config.tools.len());
        for (tool, written) in config.tools {
            let mut limits = Vec::with_capacity(written.len());
            for (argument, limit) in written {
                match Limit::new(&argument, limit) {
                    Ok(limit) => limits.push(limit),
                    Err((key, text)) => {
                        problems.push(ConfigError::new(format!("tools.{tool}.{argument}.{key}"), text));
                    }
                }
            }
            tools.push((Pattern::new(tool), limits));
        }
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        let policy = Self { strict: config.strict, unsafe_keys: config.unsafe_keys, tools, texts };
        if problems.is_empty() { Ok(policy) } else { Err(problems) }
    }

    fn about(&self) -> About {
        About {
            named_tools: list_keys("tools", &self.tools),
            ignored_events: EventKinds::all(),
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut Declared, _plan: &mut Plan) {
        let Some(definitions) = request.definitions else { return };
        // A name may have a namespace, which is no part of the definition.
        let names = request.names.iter().map(String::as_bytes);
        let (digest, strict) = (definitions.0.to_le_bytes(), [u8::from(self.strict)]);
        let parts = [&digest[..], &strict].into_iter().chain(names);
        let key = request.transcript.identity.key.hash_all(Domain::Schema, parts);
        let read = || read_schemas(request, |parameters| self.schema(parameters, request));
        state.0 = request.transcript.memo.derive(key, read);
    }

    fn judge(&self, call: &Proposed<'_>, state: &Declared) -> Verdict {
        let schema = state.0.0.get(call.name);
        let limits: Vec<&Vec<Limit>> =
            all_concerns(&self.tools, call.name).into_iter().map(|concern| concern.value).collect();
        if schema.is_none() && limits.is_empty() {
            return Verdict::Allow;
        }
        let Some(text) = call.arguments else { return Verdict::NeedsArguments };
        let mut value = match parse(text) {
            Parsed::Object(value) => value,
            Parsed::OnlyByOthers if self.must_see(text, !limits.is_empty()) => {
                return self.block(call.name, &[Problem::ambiguous()]);
            }
            Parsed::OnlyByOthers => return Verdict::Allow,
            Parsed::Wrong(problem) => return self.block(call.name, &[problem]),
        };
        let validator = schema.and_then(|schema| schema.validator());
        let harms = |key: &str| {
            UNSAFE_KEYS.contains(&key) && !validator.is_some_and(|validator| validator.expects_key(key))
        };
        let stripped = if self.unsafe_keys == UnsafeKeys::Strip { strip::strip(text, &harms) } else { None };
        if let Some(Ok(Value::Object(clean))) = stripped.as_deref().map(serde_json::from_str) {
            value = Value::Object(clean);
        }
        // An empty text counts as absent for the schema alone: what the operator asks for holds for it.
        let blanks = if limits.is_empty() { Value::Null } else { blanks_of(&value) };
        // First, since it corrects what the lenient form accepts: the later checks see what the tool will get.
        let unfit = validator.map_or_else(Vec::new, |validator| validator.problems(&mut value));
        let mut problems = Vec::new();
        if self.unsafe_keys != UnsafeKeys::Off {
            // In a string within the arguments they cannot be stripped.
            find_keys(&value, &mut String::new(), &harms, &mut problems);
        }
        problems.extend(unfit);
        for limit in limits.into_iter().flatten() {
            let found = limit.problems(&value);
            problems.extend(if found.is_empty() { limit.problems(&blanks) } else { found });
        }
        match (problems.is_empty(), stripped) {
            (true, None) => Verdict::Allow,
            (true, Some(text)) => Verdict::Modify(text),
            (false, _) => self.block(call.name, &problems),
        }
    }
}

impl Arguments {
    fn block(&self, tool: &str, problems: &[Problem]) -> Verdict {
        let message =
            self.texts.fill(&BLOCKED, &[("tool", &shown_tool(tool)), ("problems", &listed(problems))]);
        let numbers = vec![("problems", problems.len() as u64)];
        let reason = Reason::new(ReasonKind::Validation, message).retryable().with(numbers);
        Verdict::Block(reason.about(issues(problems)))
    }

    fn schema(&self, parameters: &[u8], request: &RequestView<'_>) -> Arc<Deferred> {
        let key =
            request.transcript.identity.key.hash(Domain::Schema, &[parameters, &[u8::from(self.strict)]]);
        request.transcript.memo.derive(key, || Deferred::new(parameters, self.strict))
    }

    /// Whether arguments that only other programs can read are refused, since a rule depends on their values.
    fn must_see(&self, text: &str, limited: bool) -> bool {
        let names_key = || {
            let text = unescape(text.as_bytes());
            UNSAFE_KEYS.iter().any(|key| text.contains(key))
        };
        limited || self.strict || (self.unsafe_keys != UnsafeKeys::Off && names_key())
    }
}

/// The schemas of the request's tools, each by `read`; of tools with one name that of the first.
fn read_schemas(request: &RequestView<'_>, mut read: impl FnMut(&[u8]) -> Arc<Deferred>) -> Schemas {
    let mut schemas = BTreeMap::new();
    for tool in &request.tools {
        let Some(parameters) = tool.parameters.filter(|schema| schema.starts_with(b"{")) else { continue };
        if !schemas.contains_key(&*tool.name) {
            schemas.insert(tool.name.clone().into_owned(), read(parameters));
        }
    }
    Schemas(schemas)
}

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: its arguments do not fit {tool}. {problems}. Correct them and call again.",
    placeholders: &["tool", "problems"],
};

/// Arguments as read.
enum Parsed {
    Object(Value),
    /// Valid JSON by its grammar that this program cannot hold: too deep, half a surrogate pair, a number out of
    /// range.
    OnlyByOthers,
    Wrong(Problem),
}

fn parse(text: &str) -> Parsed {
    // Providers use all these forms for no arguments, and clients accept them.
    if matches!(text.trim(), "" | "null") {
        return Parsed::Object(Value::Object(Map::new()));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => Parsed::Object(value),
        Ok(other) => Parsed::Wrong(Problem::not_an_object(&other)),
        Err(error) => {
            let mut scanner = Scanner::new(text.as_bytes());
            match scanner.skip().and_then(|_| scanner.end()) {
                Ok(()) | Err(Fault::Depth) => Parsed::OnlyByOthers,
                Err(_) => Parsed::Wrong(Problem::not_json(&error)),
            }
        }
    }
}

/// `value` with its empty texts alone, at their places; everything else in it is null.
fn blanks_of(value: &Value) -> Value {
    match value {
        Value::String(text) if text.trim().is_empty() => value.clone(),
        Value::Array(items) => items.iter().map(blanks_of).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, value)| (key.clone(), blanks_of(value))).collect())
        }
        _ => Value::Null,
    }
}

/// Collects the keys that `harm`, anywhere in `value` at the JSON pointer `path`: [`MOST_UNSAFE`] of them.
fn find_keys(value: &Value, path: &mut String, harms: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let above = path.len();
    match value {
        _ if problems.len() >= MOST_UNSAFE => {}
        Value::Object(members) => {
            for (key, value) in members {
                if harms(key) {
                    problems.push(Problem::unsafe_key(path, key));
                } else {
                    path.push_str(&join("", key));
                    find_keys(value, path, harms, problems);
                    path.truncate(above);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push_str(&format!("/{at}"));
                find_keys(item, path, harms, problems);
                path.truncate(above);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
