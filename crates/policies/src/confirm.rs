//! Approvals: tools whose calls need a person's approval.
//!
//! # What it does
//! Calls of `tools` need approval, in one of two forms. `chat`: they are blocked, and the user is asked in the
//! assistant's voice: which tool, with which arguments in full, and a short token. If the user's next message is that
//! token or one of `words`, the call is handed out as it was shown, once, without asking the model; any other message
//! goes to the model, which reads that its call was not run. `held`: the reply waits, up to `hold`, until somebody
//! decides on the admin port. Approved, the call goes on to the client as it came; declined or unanswered, it is
//! blocked like any other.
//!
//! Tools in `when` need approval only where their arguments meet a condition, or may: whatever programs could read in
//! another way counts as met. With `remember = "conversation"` an approval holds for equal calls in the rest of the
//! conversation. In `held`, a `webhook` is notified of each call that waits.
//!
//! # Why
//! Some calls cannot be undone, and no rule can decide whether they are wanted. A model that is asked to confirm
//! first may forget it, or ask about one thing and do another. So toolrein asks, and what runs is byte for byte what
//! was shown. Arguments that are too long to be shown whole are refused, since nobody can approve what is hidden.
//! Forced calls (`tool_choice`) need approval too; tools in `reask.answer_tools` do not.
//!
//! # State
//! The calls of the conversation that a person has approved, where that is remembered: the state store knows which of
//! them, by caller, call and everything that the model saw before, so that neither the model nor a tool can write one.
//! `chat`: the question is kept in the state store under the name of the message that asked: caller,
//! conversation, calls so far and text. A state store in memory forgets it at a restart and is not shared with other
//! replicas: then an approval is an ordinary message to the model. A shared state store avoids both. `held`: a call
//! waits in the process that holds the client's connection, and is lost with either.
//!
//! # Example
//! The model calls `delete_file` with `{"path":"/tmp/a"}`. In `chat` the user reads the call and `reply with K7PQ3M`,
//! answers `k7pq3m`, and the program gets that call. In `held` a dialogue lists it and posts `{"approve":true}`.

mod webhook;

use super::about::{About, ApprovalForm, Confirming, NO_TOOLS, Service, list_keys, list_tools};
use super::approvals::{TEXTS, checked};
use super::conditions::{Condition, Written, certain_values, is_certain};
use super::path::Path;
use super::pattern::{Pattern, all_concerns, best_concern, problem_of};
use super::period::Period;
use super::texts::{OwnTexts, Text};
use super::{ConfigError, Policy};
use model::Event;
use model::identity::Hash;
use model::names::dispatch_form;
use model::plan::{CallEffect, Plan, Proposed, Reason, ReasonKind, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use webhook::WebhookConfig;

/// See the module.
pub struct Confirm {
    /// By name or pattern, when a call needs approval.
    tools: Vec<(Pattern, Needs)>,
    /// In which arguments calls are equal, by name or pattern.
    keys: Vec<(Pattern, Vec<Path>)>,
    confirming: Arc<Confirming>,
}

/// The calls of the conversation whose approvals hold for equal ones.
#[derive(Clone, Default)]
pub struct Approved(Vec<(String, Same)>);

/// What equal calls of a tool have in common.
#[derive(Clone, PartialEq, Eq)]
enum Same {
    /// All arguments, by their hash.
    Whole(Hash),
    /// The values of each key argument.
    Keys(Vec<String>),
}

/// When a call of a tool needs approval.
enum Needs {
    Always,
    /// Where its arguments may meet one of these.
    When(Vec<Condition>),
}

impl Needs {
    /// Whether a call with these `arguments` needs approval.
    fn is_met(&self, arguments: &str) -> bool {
        match self {
            Self::Always => true,
            Self::When(conditions) => conditions.iter().any(|condition| condition.is_met(arguments)),
        }
    }
}

/// `[policy.confirm]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that need approval, by name or pattern.
    tools: Vec<Pattern>,
    /// Tools whose calls need approval where their arguments meet one of these conditions, by name or pattern.
    when: BTreeMap<String, Vec<Written>>,
    /// How it is given.
    form: Form,
    /// How long a reply waits for it.
    hold: Period,
    /// What the user may say for the token.
    words: Vec<String>,
    /// Whether an approval holds for equal calls later in the conversation.
    remember: Remember,
    /// The arguments in which such calls must be equal, by tool name or pattern: paths; for others, all.
    keys: BTreeMap<String, Vec<String>>,
    /// Who is notified of calls that wait.
    webhook: WebhookConfig,
    /// How long a question stays open.
    expires: Period,
    /// The longest arguments that are shown, in characters.
    max_chars: usize,
    texts: OwnTexts,
}

/// How approval is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// In the user's next message.
    Chat,
    /// On the admin port, while the reply waits.
    Held,
}

/// How long an approval holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Remember {
    /// For its call.
    No,
    /// For equal calls in the rest of the conversation.
    Conversation,
}

/// The openai packages give up after ten minutes, and the model's own time is part of that.
const LONGEST_HOLD: Duration = Duration::from_secs(9 * 60);

impl Default for Config {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            when: BTreeMap::new(),
            form: Form::Chat,
            hold: Period(Duration::from_secs(120)),
            words: ["yes", "approve"].map(str::to_owned).to_vec(),
            remember: Remember::No,
            keys: BTreeMap::new(),
            webhook: WebhookConfig::default(),
            expires: Period(Duration::from_secs(600)),
            // Two screens: people do not read more before they approve.
            max_chars: 4000,
            texts: OwnTexts::default(),
        }
    }
}

impl Policy for Confirm {
    const NAME: &'static str = "confirm";
    const SUMMARY: &'static str = "asks a person before certain tools run, and runs exactly what was shown";
    const TEXTS: &'static [Text] = TEXTS;
    type Config = Config;
    type State = Approved;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems: Vec<ConfigError> = problem_of("tools", &config.tools).into_iter().collect();
        if config.words.iter().any(|word| word.trim().is_empty()) {
            problems.push(ConfigError::new("words", "expected words, found an empty one"));
        }
        if config.expires.0.is_zero() {
            problems.push(ConfigError::new("expires", "expected a time above 0"));
        }
        if config.hold.0.is_zero() || config.hold.0 > LONGEST_HOLD {
            problems.push(ConfigError::new(
                "hold",
                "expected a time above 0, up to 9m: clients wait no longer than 10m for a reply",
            ));
        }
        if config.max_chars == 0 {
            problems.push(ConfigError::new("max_chars", "expected at least 1"));
        }
        let tools = needs(&config.tools, config.when, &mut problems);
        let texts = checked(config.texts, &mut problems);
        let keys = paths(config.keys, &mut problems);
        if config.remember == Remember::No && !keys.is_empty() {
            problems.push(ConfigError::new("keys", "needs remember = \"conversation\""));
        }
        let webhook = config.webhook.checked(&mut problems);
        if config.form == Form::Chat && webhook.is_some() {
            problems.push(ConfigError::new(
                "webhook",
                "needs form = \"held\": in \"chat\" the user decides, in the conversation",
            ));
        }
        let form = match config.form {
            Form::Chat => ApprovalForm::Chat,
            Form::Held => ApprovalForm::Held { hold_ms: config.hold.millis() },
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let remembers = config.remember == Remember::Conversation;
        let remembered = tools.iter().filter(|_| remembers).map(|(tool, _)| tool.clone()).collect();
        let confirming = Confirming {
            form,
            remembered,
            webhook: webhook.map(Arc::new),
            words: config.words.iter().map(|word| word.trim().to_lowercase()).collect(),
            expires_ms: config.expires.millis(),
            max_chars: config.max_chars,
            texts,
        };
        Ok(Self { tools, keys, confirming: Arc::new(confirming) })
    }

    fn about(&self) -> About {
        let needed = |conditional: bool| {
            let tools = self.tools.iter();
            tools
                .filter(move |(_, needs)| matches!(needs, Needs::When(_)) == conditional)
                .map(|(tool, _)| tool)
        };
        About {
            named_tools: [
                list_tools("tools", needed(false)),
                list_tools("when", needed(true)),
                list_keys("keys", &self.keys),
            ]
            .concat(),
            restricts_calls: true,
            idle: self.tools.is_empty().then_some(NO_TOOLS),
            services: vec![Service::AskPeople(Arc::clone(&self.confirming))],
            windows: vec![("expires".to_owned(), self.confirming.expires_ms)],
            ..About::default()
        }
    }

    fn read(&self, event: &Event<'_>, approved: &mut Approved, _plan: &mut Plan) {
        if let Event::Call(call) = event
            && call.approved
            && best_concern(&self.tools, &call.name).is_some()
        {
            let same = self.same(&call.name, &call.arguments_text(), call.arguments);
            approved.0.extend(same.map(|same| (dispatch_form(&call.name).into_owned(), same)));
        }
    }

    fn judge(&self, call: &Proposed<'_>, approved: &Approved) -> Verdict {
        let form = dispatch_form(call.name);
        let mut earlier = approved.0.iter().filter(|(tool, _)| *tool == *form).peekable();
        let needs: Vec<&Needs> =
            all_concerns(&self.tools, call.name).into_iter().map(|concern| concern.value).collect();
        if needs.is_empty() {
            return Verdict::Allow;
        }
        let Some(arguments) = call.arguments else {
            let is_certain =
                needs.iter().any(|needs| matches!(needs, Needs::Always)) && earlier.peek().is_none();
            return if is_certain { self.ask(call.name) } else { Verdict::NeedsArguments };
        };
        let same = call.arguments_hash.and_then(|hash| self.same(call.name, arguments, hash));
        let was_approved = same.is_some_and(|same| earlier.any(|(_, known)| *known == same));
        if was_approved || !needs.iter().any(|needs| needs.is_met(arguments)) {
            return Verdict::Allow;
        }
        self.ask(call.name)
    }
}

impl Confirm {
    /// What equal calls of `tool` have in common with this one; `None` where programs may read its arguments in several
    /// ways, or one of its key arguments is missing: then an approval is needed.
    fn same(&self, tool: &str, arguments: &str, hash: Hash) -> Option<Same> {
        match best_concern(&self.keys, tool) {
            Some(keys) => certain_values(arguments, keys).map(Same::Keys),
            None => is_certain(arguments).then_some(Same::Whole(hash)),
        }
    }

    /// A person is to be asked about a call of `tool`.
    fn ask(&self, tool: &str) -> Verdict {
        Verdict::Pending(CallEffect::Approve(self.reason(tool)))
    }

    /// What the model reads where nobody can be asked about this reply.
    fn reason(&self, tool: &str) -> Reason {
        let (message, retryable) = self.confirming.nobody(tool);
        Reason { retryable, ..Reason::new(ReasonKind::ConfirmationRequired, message) }
    }
}

/// The key arguments as written, checked.
fn paths(keys: BTreeMap<String, Vec<String>>, problems: &mut Vec<ConfigError>) -> Vec<(Pattern, Vec<Path>)> {
    let mut read = Vec::new();
    for (tool, written) in keys {
        let key = format!("keys.{tool}");
        if written.is_empty() {
            problems.push(ConfigError::new(&key, "expected at least one argument"));
        }
        let paths: Vec<Result<Path, String>> = written.iter().map(|path| Path::parse(path)).collect();
        let wrong = paths.iter().filter_map(|path| path.as_ref().err());
        problems.extend(wrong.map(|problem| ConfigError::new(&key, problem.clone())));
        read.push((Pattern::new(tool), paths.into_iter().flatten().collect()));
    }
    read
}

/// When calls need approval, by name or pattern. The exact name decides, then the longest pattern, so one that is in
/// both tables contradicts itself.
fn needs(
    tools: &[Pattern],
    when: BTreeMap<String, Vec<Written>>,
    problems: &mut Vec<ConfigError>,
) -> Vec<(Pattern, Needs)> {
    let mut needs: Vec<(Pattern, Needs)> = tools.iter().map(|tool| (tool.clone(), Needs::Always)).collect();
    for (tool, written) in when {
        let key = format!("when.{tool}");
        let pattern = Pattern::new(tool);
        if tools.contains(&pattern) {
            problems.push(ConfigError::new(&key, "is in `tools` as well, where every call needs approval"));
        }
        if written.is_empty() {
            problems.push(ConfigError::new(&key, "expected at least one condition"));
        }
        let mut conditions = Vec::new();
        for (at, condition) in written.into_iter().enumerate() {
            match Condition::new(condition) {
                Ok(condition) => conditions.push(condition),
                Err((inner, problem)) => {
                    let inner = if inner.is_empty() { String::new() } else { format!(".{inner}") };
                    problems.push(ConfigError::new(format!("{key}[{at}]{inner}"), problem));
                }
            }
        }
        needs.push((pattern, Needs::When(conditions)));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Conversation, policy};
    use super::super::scenario::problem;
    use super::*;
    use crate::set::PolicySet;

    #[test]
    fn calls_of_the_listed_tools_need_an_approval_and_others_do_not() {
        let rule = policy::<Confirm>("tools = [\"delete*\", \"pay\"]");
        let mut conversation = Conversation::new(&rule);
        for (tool, passes) in [("delete_file", false), ("pay", false), ("search", true), ("payment", true)] {
            let ruling = conversation.judge(tool, "{}", 0);
            assert_eq!(ruling.is_allowed(), passes, "{tool}");
            let kinds: Vec<ReasonKind> = ruling.objections.iter().map(|(_, reason)| reason.kind).collect();
            assert!(passes || kinds == [ReasonKind::ConfirmationRequired]);
            assert!(!conversation.needs_arguments(tool));
        }
    }

    #[test]
    fn approval_words_are_compared_without_case_and_outer_white_space() {
        let rule = policy::<Confirm>("words = [\" Go Ahead \"]\nexpires = \"90s\"\nmax_chars = 9");
        let set = PolicySet::new(vec![rule]);
        let confirming = set.confirming().unwrap();
        let words = vec!["go ahead".into()];
        let expected = Confirming { words, expires_ms: 90_000, max_chars: 9, ..Confirming::default() };
        assert_eq!(**confirming, expected);
    }

    #[test]
    fn held_calls_are_judged_with_their_arguments_and_wait_for_the_configured_time() {
        for (table, hold_ms) in [("", 120_000), ("hold = \"5s\"", 5_000)] {
            let rule = policy::<Confirm>(&format!("tools = [\"pay\"]\nform = \"held\"\n{table}"));
            let set = PolicySet::new(vec![Arc::clone(&rule)]);
            assert_eq!(set.confirming().unwrap().hold_ms(), Some(hold_ms));
            let mut conversation = Conversation::new(&rule);
            assert!(conversation.needs_arguments("pay") && !conversation.needs_arguments("search"));
            let reason = conversation.judge("pay", "{}", 0).objections.remove(0).1;
            assert!(reason.message.contains("nobody can be asked now") && !reason.retryable);
        }
    }

    #[test]
    fn calls_whose_arguments_meet_no_condition_pass() {
        let rule = policy::<Confirm>(
            "tools = [\"delete_all\"]\n[x.when]\npay = [{ argument = \"amount\", above = 100 }, { argument = \"to\", values_except = [\"ann\"] }]\n\"delete*\" = [{ argument = \"force\", values = [true], missing = \"pass\" }]",
        );
        let mut conversation = Conversation::new(&rule);
        for (tool, arguments, passes) in [
            ("pay", r#"{"amount":5,"to":"ann"}"#, true),
            ("pay", r#"{"amount":500,"to":"ann"}"#, false),
            ("pay", r#"{"amount":5,"to":"bob"}"#, false),
            ("pay", r#"{"amount":5}"#, false),
            ("pay", r#"{"amount":5,"amount":500,"to":"ann"}"#, false),
            ("PAY", r#"{"amount":500,"to":"ann"}"#, false),
            ("functions.pay", "{", false),
            ("delete_file", "{}", true),
            ("delete_file", r#"{"force":true}"#, false),
            ("delete_all", "{}", false),
            ("search", r#"{"amount":500}"#, true),
        ] {
            assert_eq!(conversation.judge(tool, arguments, 0).is_allowed(), passes, "{tool} {arguments}");
        }
        assert!(conversation.needs_arguments("pay") && conversation.needs_arguments("delete_file"));
        assert!(!conversation.needs_arguments("delete_all") && !conversation.needs_arguments("search"));
    }

    #[test]
    fn settings_that_cannot_work_are_reported() {
        for (table, expected) in [
            ("words = [\" \"]", "words: expected words, found an empty one"),
            ("expires = \"0s\"", "expires: expected a time above 0"),
            ("max_chars = 0", "max_chars: expected at least 1"),
            (
                "hold = \"0s\"",
                "hold: expected a time above 0, up to 9m: clients wait no longer than 10m for a reply",
            ),
            (
                "hold = \"10m\"",
                "hold: expected a time above 0, up to 9m: clients wait no longer than 10m for a reply",
            ),
            (
                "tools = [\"pay\"]\nwhen = { pay = [{ argument = \"a\", above = 1 }] }",
                "when.pay: is in `tools` as well, where every call needs approval",
            ),
            ("when = { pay = [] }", "when.pay: expected at least one condition"),
            (
                "when = { pay = [{ argument = \"a\", above = 1 }, { argument = \"a\", pattern = \"(\" }] }",
                "when.pay[1].pattern: expected a regular expression without look-around and back-references",
            ),
            (
                "when = { pay = [{ argument = \"a\" }] }",
                "when.pay[0]: expected one of above, below, values, values_except, pattern, pattern_except, hosts, \
                 hosts_except",
            ),
            (
                "texts = { question = \"Reply {token}!\" }",
                "texts.question: expected {calls} in it: people approve what they are shown",
            ),
            ("tools = [\"\"]", "tools: expected names or patterns, found an empty one"),
        ] {
            assert_eq!(problem::<Confirm>(table), expected);
        }
    }
}
