//! Duplicate calls: actions that must not be repeated, and retrievals that need not be.
//!
//! # What it does
//! A call of one of `tools` is blocked if an equal call has succeeded in this conversation before, within `window`;
//! the model reads that call's result. Two calls are equal if they call the same tool with the same arguments as
//! JSON, or, for tools in `keys`, with the same key arguments. A call that failed may be made again. A call in the
//! same reply that has no result yet counts as well; one of an earlier reply that was never answered does not.
//!
//! Calls of `retrieval` tools are answered from the earlier result, without the client, as long as nothing can have
//! changed it: in the same turn, with no call of any other tool since. Results that failed, are empty, hold more than
//! text, were changed on their way to the model or are longer than 16,000 characters are not used.
//!
//! A call whose outcome is unknown, since it timed out, lost its connection, was cancelled or met an error of the server,
//! may have been done. It is not simply made again: with `after_unknown = "verify"` an equal call is blocked until a tool
//! was called that shows whether it was done, and answered without failing. Which tools do, `checks` says, or else their
//! names: they retrieve, and share a word that names a thing. Where none of them is declared and may be called, the
//! user's next message counts.
//! `"block"` never allows the same call again, `"pass"` does.
//!
//! # Why
//! A model that loses track orders twice and pays twice. An agent cannot undo that, and a tool that does not know its
//! callers cannot recognise it. What did not change need not be fetched again. After a time limit most models try
//! again at once, and the order is placed twice.
//!
//! # State
//! The calls of action tools so far, each with how it ended; the retrieved results of the turn. A time window uses
//! the times at which calls were handed out. Where a time is not known (a restart, another replica) a call counts as
//! recent in the running turn and as old before it; a window of 0 needs no times.
//!
//! # Example
//! With `keys = { create_order = ["order_id"] }` a second `create_order` with `order_id = 7` is blocked with
//! `DUPLICATE` and "Its result was: ...", whatever its other arguments are.

mod family;
mod past;

use super::about::{About, NO_TOOLS, list_keys, list_tools};
use super::path::Path;
use super::pattern::{Pattern, any_concerns, any_fits, best_concern, problem_of};
use super::period::Period;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::calls::Call;
use model::identity::Hash;
use model::message::Content;
use model::names::dispatch_form;
use model::outcome::{has_failed, is_unknown};
use model::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use model::{Event, ToolResult};
use past::{Deed, End, Found, Past, Same};
use serde::Deserialize;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use wire::plural::counted;

/// The most of an earlier result that is quoted, in characters.
const QUOTED: usize = 500;
/// The longest result that answers a call, in characters: the default limit of `truncate`.
const LONGEST_ANSWER: usize = 16_000;

/// See the module.
pub struct Duplicates {
    tools: Vec<Pattern>,
    keys: Vec<(Pattern, Vec<Path>)>,
    keyless: Keyless,
    retrieval: Vec<Pattern>,
    window_ms: u64,
    after_unknown: AfterUnknown,
    /// By tool, the tools that show whether its calls were done.
    checks: Vec<(Pattern, Vec<Pattern>)>,
    texts: Texts,
}

/// `[policy.duplicates]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools whose calls must not succeed twice, by name or pattern.
    tools: Vec<Pattern>,
    /// The arguments that alone identify a call: by tool name or pattern, paths. Such a tool need not be listed in
    /// `tools`.
    keys: BTreeMap<String, Vec<String>>,
    /// How a call without any of its key arguments is compared.
    keyless: Keyless,
    /// How long a success counts; 0: as long as the conversation.
    window: Period,
    /// The tools that are answered from an earlier result, by name or pattern.
    retrieval: Vec<Pattern>,
    /// What happens to a call that may have been done already.
    after_unknown: AfterUnknown,
    /// By tool name or pattern, the tools that show whether its calls were done.
    checks: BTreeMap<String, Vec<Pattern>>,
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        // What orders, books and pays is found by its first word alone: get_order and check_payment only look.
        let tools = [
            "create*",
            "*_create",
            "*_create_*",
            "send*",
            "*_send",
            "*_send_*",
            "order*",
            "book*",
            "pay*",
            "transfer*",
            "award*",
        ];
        Self {
            tools: tools.map(Pattern::new).to_vec(),
            keys: BTreeMap::new(),
            keyless: Keyless::Compare,
            window: Period(Duration::ZERO),
            retrieval: Vec::new(),
            after_unknown: AfterUnknown::Verify,
            checks: BTreeMap::new(),
            texts: OwnTexts::default(),
        }
    }
}

/// How a call without any of its key arguments is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keyless {
    /// By all its arguments.
    Compare,
    /// Not at all: it equals no other call.
    Pass,
}

/// What happens to a call that is equal to one of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AfterUnknown {
    /// It is blocked until it was checked whether the earlier one was done.
    Verify,
    /// It is blocked.
    Block,
    /// It passes, as after a failure.
    Pass,
}

/// The most equal calls that are counted in a reason.
const MOST_EARLIER: usize = 100;
/// The most tools that the model is shown as ways to check.
const MOST_CHECKS: usize = 3;

const DONE: Text = Text {
    key: "done",
    default: "The call was not run: {tool} was called with the same {keys} before and succeeded, and must not be \
              repeated. Go on from there. Its result was: {result}",
    placeholders: &["tool", "keys", "result"],
};
const DONE_EMPTY: Text = Text {
    key: "done_empty",
    default: "The call was not run: {tool} was called with the same {keys} before and succeeded, and must not be \
              repeated. Go on from there. Its result was empty.",
    placeholders: &["tool", "keys"],
};
const DONE_ABOVE: Text = Text {
    key: "done_above",
    default: "The call was not run: {tool} was called with the same {keys} before and succeeded, and must not be \
              repeated. Go on from there. Its result is above.",
    placeholders: &["tool", "keys"],
};
const SAME_REPLY: Text = Text {
    key: "same_reply",
    default: "The call was not run: a call of {tool} with the same {keys} comes before it in the same reply. Use the \
              result of that call.",
    placeholders: &["tool", "keys"],
};
const VERIFY: Text = Text {
    key: "verify",
    default: "The call was not run: {tool} was called with the same {keys} before, and its result does not say whether \
              it was done. Check first with {checks}. If it was not done, make the call again.",
    placeholders: &["tool", "keys", "checks"],
};
const VERIFY_WITH_USER: Text = Text {
    key: "verify_with_user",
    default: "The call was not run: {tool} was called with the same {keys} before, and its result does not say whether \
              it was done. No tool here can check that: ask the user before you make the call again.",
    placeholders: &["tool", "keys"],
};
const UNKNOWN: Text = Text {
    key: "unknown",
    default: "The call was not run: {tool} was called with the same {keys} before, and its result does not say whether \
              it was done, so it is not made again. Tell the user what is unknown.",
    placeholders: &["tool", "keys"],
};

/// What a tool is to this policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Action,
    Retrieval,
    Other,
}

impl Policy for Duplicates {
    const NAME: &'static str = "duplicates";
    const SUMMARY: &'static str =
        "blocks an action that has succeeded before, or may have, and quotes its result";
    const TEXTS: &'static [Text] =
        &[DONE, DONE_EMPTY, DONE_ABOVE, SAME_REPLY, VERIFY, VERIFY_WITH_USER, UNKNOWN];
    type Config = Config;
    type State = Past;

    fn new(mut config: Config) -> Result<Self, Vec<ConfigError>> {
        let lists = [("tools", &config.tools), ("retrieval", &config.retrieval)];
        let mut problems: Vec<ConfigError> =
            lists.iter().filter_map(|(key, patterns)| problem_of(key, patterns)).collect();
        for pattern in config.retrieval.iter().filter(|pattern| config.tools.contains(pattern)) {
            let text = format!("`{}` is in `tools` as well", pattern.as_str());
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
        for (tool, patterns) in &config.checks {
            let key = format!("checks.{tool}");
            problems.extend(problem_of(&key, patterns));
            if patterns.is_empty() {
                problems.push(ConfigError::new(key, "expected at least one tool"));
            }
        }
        let texts = std::mem::take(&mut config.texts).check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let window_ms = config.window.millis();
        let Config { tools, keyless, retrieval, after_unknown, checks, .. } = config;
        let checks = checks.into_iter().map(|(tool, checks)| (Pattern::new(tool), checks)).collect();
        Ok(Self { tools, keys, keyless, retrieval, window_ms, after_unknown, checks, texts })
    }

    fn about(&self) -> About {
        let checks = list_tools("checks", self.checks.iter().flat_map(|(_, checks)| checks));
        let named_tools = [
            list_keys("keys", &self.keys),
            list_tools("tools", &self.tools),
            list_tools("retrieval", &self.retrieval),
            list_keys("checks", &self.checks),
            checks,
        ];
        let named_tools = named_tools.concat();
        let names_none = self.tools.is_empty() && self.keys.is_empty() && self.retrieval.is_empty();
        let idle = names_none.then_some(NO_TOOLS);
        let windows = vec![("window".to_owned(), self.window_ms)];
        About { named_tools, restricts_calls: true, idle, windows, ..About::default() }
    }

    fn open(&self, request: &RequestView<'_>, past: &mut Past, _plan: &mut Plan) {
        if self.after_unknown == AfterUnknown::Verify {
            past.declared = Arc::clone(&request.names);
        }
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
        let recent = |at_ms| past.is_recent(at_ms, past.turn, self.window_ms, call.now_ms);
        match kind {
            Kind::Other => Verdict::Allow,
            Kind::Retrieval => {
                let found = past.found(call.name, arguments);
                let found = found.filter(|found| recent(found.released_ms));
                let answer =
                    |found: &Found| Verdict::Answer { content: found.text.to_string(), re_requests: None };
                found.map_or(Verdict::Allow, answer)
            }
            Kind::Action => self.judge_action(call, arguments, past),
        }
    }

    fn release(&self, call: &Proposed<'_>, past: &mut Past) {
        let kind = self.kind(call.name);
        if kind != Kind::Retrieval {
            past.forget_found();
        }
        if let (Kind::Action, Some(arguments)) = (kind, call.arguments_hash) {
            let same = self.same(call.name, arguments, call.arguments.unwrap_or_default());
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

    /// The key by which two calls of `tool` are compared; `None`: not compared. A call without any of its key
    /// arguments is compared by all its arguments, or not at all.
    fn same(&self, tool: &str, arguments: Hash, text: &str) -> Option<Same> {
        let keys = best_concern(&self.keys, tool).map_or([].as_slice(), Vec::as_slice);
        let values: Vec<Vec<String>> = keys.iter().map(|path| path.values(text)).collect();
        match values.iter().all(Vec::is_empty) {
            true if !keys.is_empty() && self.keyless == Keyless::Pass => None,
            true => Some(Same::Whole(arguments)),
            false => Some(Same::Keys(values)),
        }
    }

    fn judge_action(&self, call: &Proposed<'_>, arguments: Hash, past: &Past) -> Verdict {
        let same = self.same(call.name, arguments, call.arguments.unwrap_or_default());
        let Some(same) = same else { return Verdict::Allow };
        let form = dispatch_form(call.name);
        // Looked up where a call is unknown, and once for all that are.
        let checked = LazyCell::new(|| past.last_answered(|check| self.shows(check, &form)));
        let can_check = LazyCell::new(|| self.checks_of(&form, past, call).next().is_some());
        let must_check = |deed: &Deed, since| match self.after_unknown {
            AfterUnknown::Pass => false,
            AfterUnknown::Block => true,
            AfterUnknown::Verify => *checked <= Some(since) && (past.turn <= deed.turn || *can_check),
        };
        let is_against = |deed: &&Deed| match deed.end {
            _ if !past.is_recent(deed.released_ms, deed.turn, self.window_ms, call.now_ms) => false,
            End::Failed => false,
            End::Open | End::Succeeded(_) => true,
            End::Unknown(since) => must_check(deed, since),
        };
        let Some(last) = past.equal(&form, &same).find(is_against) else { return Verdict::Allow };
        let earlier = past.equal(&form, &same).take(MOST_EARLIER).filter(is_against).count();
        Verdict::Block(self.reason(call, &last.end, earlier.max(1), past))
    }

    fn add_call(&self, call: &Call, past: &mut Past) {
        let kind = self.kind(&call.name);
        if kind != Kind::Retrieval {
            past.forget_found();
        }
        if kind == Kind::Action {
            let keyed = best_concern(&self.keys, &call.name).is_some();
            let text = if keyed { call.arguments_text() } else { "".into() };
            let same = self.same(&call.name, call.arguments, &text);
            past.add(&dispatch_form(&call.name), same, Some((call.message, call.position)), call.released_ms);
        }
    }

    /// Whether a call of `check` shows whether one of `tool` was done.
    fn shows(&self, check: &str, tool: &str) -> bool {
        match best_concern(&self.checks, tool) {
            Some(checks) => any_fits(checks, check),
            None => family::shows(check, tool),
        }
    }

    /// The declared tools that show whether a call of `tool` was done, and that may be called.
    fn checks_of<'a>(
        &'a self,
        tool: &'a str,
        past: &'a Past,
        call: &'a Proposed<'_>,
    ) -> impl Iterator<Item = &'a str> {
        let declared = past.declared.iter().map(String::as_str);
        declared.filter(move |check| self.shows(check, tool) && call.open.include(check))
    }

    fn add_result(&self, result: &ToolResult<'_>, past: &mut Past, plan: &Plan) {
        for call in result.call.into_iter().flat_map(Call::as_made) {
            self.add_result_of(call, result, past, plan);
        }
    }

    fn add_result_of(&self, call: &Call, result: &ToolResult<'_>, past: &mut Past, plan: &Plan) {
        let kind = self.kind(&call.name);
        if past.has_unknown() && !has_failed(&result.view) && !is_unknown(&result.view) {
            past.add_answered(&call.name);
        }
        if kind == Kind::Other {
            return;
        }
        let failed = has_failed(&result.view);
        let text = readable(result, plan);
        match kind {
            Kind::Action if is_unknown(&result.view) => {
                past.end((call.message, call.position), End::Unknown(past.now()));
            }
            Kind::Action if failed => past.end((call.message, call.position), End::Failed),
            Kind::Action => {
                let quote = text.map(|text| quote(&text));
                past.end((call.message, call.position), End::Succeeded(quote));
            }
            _ => {
                // The result of a wrapper call holds those of all its calls.
                let text = text.filter(|_| result.call.is_some_and(|call| call.as_made().len() == 1));
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

    fn reason(&self, call: &Proposed<'_>, end: &End, earlier_calls: usize, past: &Past) -> Reason {
        let tool = call.name;
        let keys = match best_concern(&self.keys, tool) {
            Some(keys) => keys.iter().map(Path::as_str).collect::<Vec<_>>().join(", "),
            None => "arguments".to_owned(),
        };
        let fill = |text: &Text, more: &[(&str, &dyn Display)]| {
            let values: [(&str, &dyn Display); 2] = [("tool", &tool), ("keys", &keys)];
            self.texts.fill(text, &[&values, more].concat())
        };
        let numbers = vec![("earlier_calls", earlier_calls as u64)];
        let message = match end {
            End::Succeeded(quote) => match quote.as_deref() {
                Some("") => fill(&DONE_EMPTY, &[]),
                Some(quote) => fill(&DONE, &[("result", &quote)]),
                None => fill(&DONE_ABOVE, &[]),
            },
            End::Unknown(_) if self.after_unknown == AfterUnknown::Verify => {
                let checks: Vec<&str> = self.checks_of(tool, past, call).take(MOST_CHECKS).collect();
                let message = match checks.is_empty() {
                    true => fill(&VERIFY_WITH_USER, &[]),
                    false => fill(&VERIFY, &[("checks", &checks.join(" or "))]),
                };
                return Reason::new(ReasonKind::Duplicate, message).retryable().with(numbers);
            }
            End::Unknown(_) => fill(&UNKNOWN, &[]),
            _ => fill(&SAME_REPLY, &[]),
        };
        Reason::new(ReasonKind::Duplicate, message).with(numbers)
    }
}

/// The text of a result as the model reads it, unless an earlier policy changes it: this must not bring back what was
/// kept from the model.
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

/// The beginning of a text, and how much is left out.
fn quote(text: &str) -> Arc<str> {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(QUOTED) else { return text.into() };
    let left_out = text[end..].chars().count();
    format!("{}... [{}]", &text[..end], counted(left_out, "more character")).into()
}

#[cfg(test)]
mod tests;
