//! Actions that must not happen twice.
//!
//! # What it does
//! A call of one of `tools` is withheld where the same call has succeeded in this conversation before, within
//! `window`; the model reads what that call brought. The same is: the same tool with the same arguments as JSON, or,
//! for tools in `keys`, with the same key arguments. A call that failed may be made again. One that stands in the
//! same reply and has no result yet counts as well; one of an earlier reply that nobody answered does not.
//!
//! Calls of `retrieval` tools are answered from the earlier result, without the client, as long as nothing could
//! have changed it: in the same turn, with no call of any other tool since. Results that failed, are empty, hold
//! more than text, were changed on their way to the model or are longer than 16,000 characters are not used.
//!
//! # Why
//! A model that loses track orders twice and pays twice. An agent cannot undo that, and a tool that does not know
//! its callers cannot tell. What did not change need not be fetched again.
//!
//! # State
//! The calls of action tools so far, each with how it ended; the retrieved results of the turn. A window of time
//! goes by when calls were handed out. Where that is not known (a restart, another replica) a call counts as recent
//! in the running turn and as old before it; a window of 0 needs no times.
//!
//! # Example
//! With `keys = { create_order = ["order_id"] }` a second `create_order` with `order_id = 7` is withheld with
//! `DUPLICATE` and "Its result was: ...", whatever else stands in its arguments.

mod past;

use super::about::About;
use super::path::Path;
use super::pattern::{Pattern, any_concerns, any_fits, best_concern, exact_among, exact_names, problem_of};
use super::period::Period;
use super::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use super::{ConfigError, Policy};
use crate::transcript::calls::Call;
use crate::transcript::identity::Hash;
use crate::transcript::names::dispatch_form;
use crate::transcript::outcome::has_failed;
use crate::transcript::{Event, ToolResult};
use crate::wire::message::Content;
use past::{Deed, End, Found, Past, Same};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most of an earlier result that is quoted, in characters.
const QUOTED: usize = 500;
/// The longest result that answers a call, in characters: as much as `truncate` leaves of one as shipped.
const LONGEST_ANSWER: usize = 16_000;

/// See the file's head.
pub struct Duplicates {
    tools: Vec<Pattern>,
    keys: Vec<(Pattern, Vec<Path>)>,
    keyless: Keyless,
    retrieval: Vec<Pattern>,
    window_ms: u64,
}

/// `[policy.duplicates]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools whose calls must not succeed twice, by name or pattern.
    tools: Vec<Pattern>,
    /// The arguments that alone say what a call does: by tool name or pattern, paths. Such a tool need not stand in
    /// `tools`.
    keys: BTreeMap<String, Vec<String>>,
    /// What a call without any of its key arguments is compared by.
    keyless: Keyless,
    /// How long a success counts; 0: as long as the conversation.
    window: Period,
    /// The tools that are answered from an earlier result, by name or pattern.
    retrieval: Vec<Pattern>,
}

impl Default for Config {
    fn default() -> Self {
        let tools = ["create*", "send*", "order*", "book*", "pay*", "transfer*", "award*"];
        Self {
            tools: tools.map(Pattern::new).to_vec(),
            keys: BTreeMap::new(),
            keyless: Keyless::Compare,
            window: Period(Duration::ZERO),
            retrieval: Vec::new(),
        }
    }
}

/// What a call without any of its key arguments is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keyless {
    /// By all that it has.
    Compare,
    /// By nothing: it is never the same as another.
    Pass,
}

/// What a tool is to this policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Action,
    Retrieval,
    Other,
}

impl Policy for Duplicates {
    const NAME: &'static str = "duplicates";
    const SUMMARY: &'static str = "withholds an action that has succeeded before, and tells its result";
    type Config = Config;
    type State = Past;

    fn new(mut config: Config) -> Result<Self, Vec<ConfigError>> {
        let lists = [("tools", &config.tools), ("retrieval", &config.retrieval)];
        let mut problems: Vec<ConfigError> =
            lists.iter().filter_map(|(key, patterns)| problem_of(key, patterns)).collect();
        for pattern in config.retrieval.iter().filter(|pattern| config.tools.contains(pattern)) {
            let text = format!("`{}` stands in `tools` as well", pattern.as_str());
            problems.push(ConfigError::new("retrieval", text));
        }
        let mut keys = Vec::new();
        for (tool, paths) in std::mem::take(&mut config.keys) {
            let key = format!("keys.{tool}");
            if paths.is_empty() {
                problems.push(ConfigError::new(&key, "expected at least one argument"));
            }
            let (read, wrong): (Vec<_>, Vec<_>) =
                paths.iter().map(|path| Path::parse(path)).partition(Result::is_ok);
            problems
                .extend(wrong.into_iter().filter_map(Result::err).map(|text| ConfigError::new(&key, text)));
            keys.push((Pattern::new(tool), read.into_iter().flatten().collect()));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let window_ms = config.window.millis();
        let Config { tools, keyless, retrieval, .. } = config;
        Ok(Self { tools, keys, keyless, retrieval, window_ms })
    }

    fn about(&self) -> About {
        let mut named_tools = exact_names(&self.keys);
        named_tools.extend(exact_among(&self.tools).into_iter().chain(exact_among(&self.retrieval)));
        About { named_tools, restricts_calls: true, ..About::default() }
    }

    fn read(&self, event: &Event<'_>, past: &mut Past, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => past.begin_turn(),
            Event::Assistant(_) => past.begin_reply(),
            Event::User(_) => past.give_up(),
            Event::Call(call) => self.add_call(call, past),
            Event::Result(result) => self.add_result(result, past, plan),
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, past: &Past) -> Verdict {
        let kind = self.kind(call.name);
        if kind == Kind::Other {
            return Verdict::Allow;
        }
        let Some(arguments) = call.arguments_hash else { return Verdict::NeedsArguments };
        let recent = |at_ms, turn| past.is_recent(at_ms, turn, self.window_ms, call.now_ms);
        match kind {
            Kind::Other => Verdict::Allow,
            Kind::Retrieval => {
                let found = past.found(call.name, arguments);
                let found = found.filter(|found| recent(found.released_ms, past.turn));
                let answer =
                    |found: &Found| Verdict::Answer { content: found.text.to_string(), re_requests: None };
                found.map_or(Verdict::Allow, answer)
            }
            Kind::Action => {
                let same = self.same(call.name, arguments, call.arguments.unwrap_or_default());
                let Some(same) = same else { return Verdict::Allow };
                let form = dispatch_form(call.name);
                let equal = past.equal(&form, &same).filter(|deed| recent(deed.released_ms, deed.turn));
                let equal: Vec<&Deed> = equal.collect();
                let Some(last) = equal.last() else { return Verdict::Allow };
                Verdict::Block(self.reason(call.name, &last.end, equal.len()))
            }
        }
    }

    fn release(&self, call: &Proposed<'_>, past: &mut Past) {
        let kind = self.kind(call.name);
        if kind != Kind::Retrieval {
            past.forget_found();
        }
        if let (Kind::Action, Some(arguments)) = (kind, call.arguments_hash) {
            let same = self.same(call.name, arguments, call.arguments.unwrap_or_default());
            let same = same.unwrap_or(Same::Nothing);
            past.add(&dispatch_form(call.name), same, None, Some(call.now_ms));
        }
    }
}

impl Duplicates {
    fn kind(&self, tool: &str) -> Kind {
        if best_concern(&self.keys, tool).is_some() || any_concerns(&self.tools, tool) {
            Kind::Action
        } else if any_fits(&self.retrieval, tool) {
            Kind::Retrieval
        } else {
            Kind::Other
        }
    }

    /// What makes two calls of `tool` the same; `None`: nothing. Without any of its key arguments a call is known by all
    /// it has, or by nothing.
    fn same(&self, tool: &str, arguments: Hash, text: &str) -> Option<Same> {
        let keys = best_concern(&self.keys, tool).map_or([].as_slice(), Vec::as_slice);
        let values: Vec<Vec<String>> = keys.iter().map(|path| path.values(text)).collect();
        match values.iter().all(Vec::is_empty) {
            true if !keys.is_empty() && self.keyless == Keyless::Pass => None,
            true => Some(Same::Whole(arguments)),
            false => Some(Same::Keys(values)),
        }
    }

    fn add_call(&self, call: &Call, past: &mut Past) {
        let kind = self.kind(&call.name);
        if kind != Kind::Retrieval {
            past.forget_found();
        }
        if kind == Kind::Action {
            let keyed = best_concern(&self.keys, &call.name).is_some();
            let text = if keyed { call.arguments_text() } else { "".into() };
            let same = self.same(&call.name, call.arguments, &text).unwrap_or(Same::Nothing);
            past.add(&dispatch_form(&call.name), same, Some((call.message, call.position)), call.released_ms);
        }
    }

    fn add_result(&self, result: &ToolResult<'_>, past: &mut Past, plan: &Plan) {
        let Some(call) = result.call else { return };
        let kind = self.kind(&call.name);
        if kind == Kind::Other {
            return;
        }
        let failed = has_failed(&result.view);
        let text = readable(result, plan);
        match kind {
            Kind::Action if failed => past.end((call.message, call.position), End::Failed),
            Kind::Action => {
                let quote = text.map(|text| quote(&text));
                past.end((call.message, call.position), End::Succeeded(quote));
            }
            _ => {
                let text = text.filter(|text| !failed && !text.trim().is_empty() && holds_text_alone(result));
                let text = text.filter(|text| text.chars().nth(LONGEST_ANSWER).is_none());
                past.add_found(text.map(|text| Found {
                    tool: call.name.to_string(),
                    arguments: call.arguments,
                    text: text.into(),
                    released_ms: call.released_ms,
                }));
            }
        }
    }

    fn reason(&self, tool: &str, end: &End, earlier_calls: usize) -> Reason {
        let what = match best_concern(&self.keys, tool) {
            Some(keys) => keys.iter().map(Path::as_str).collect::<Vec<_>>().join(", "),
            None => "arguments".to_owned(),
        };
        let message = match end {
            End::Succeeded(quote) => {
                let result = match quote.as_deref() {
                    Some("") => " Its result was empty.".to_owned(),
                    Some(quote) => format!(" Its result was: {quote}"),
                    None => " Its result stands above.".to_owned(),
                };
                format!(
                    "The call was not run: {tool} was called with the same {what} before and succeeded, and is not to \
                     be done twice. Go on from there.{result}"
                )
            }
            _ => format!(
                "The call was not run: a call of {tool} with the same {what} stands before it in the same reply. \
                 Use the result of that one."
            ),
        };
        Reason::new(ReasonKind::Duplicate, message).with(vec![("earlier_calls", earlier_calls as u64)])
    }
}

/// The text of a result as the model reads it, unless an earlier policy changes it: what was kept from the model
/// must not come back by this way.
fn readable(result: &ToolResult<'_>, plan: &Plan) -> Option<String> {
    if plan.changes_text_here() {
        return None;
    }
    let texts: Vec<_> = result.view.texts().collect();
    Some(texts.join("\n"))
}

fn holds_text_alone(result: &ToolResult<'_>) -> bool {
    match &result.view.message.content {
        Content::Text(_) => true,
        Content::Parts { parts, .. } => parts.iter().all(|part| part.text.is_some()),
        _ => false,
    }
}

/// The head of a text, and how much is left out.
fn quote(text: &str) -> Arc<str> {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(QUOTED) else { return text.into() };
    let left_out = text[end..].chars().count();
    format!("{}... [{left_out} more characters]", &text[..end]).into()
}

#[cfg(test)]
mod tests;
