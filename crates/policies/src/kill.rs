//! Kill switch: conversations and callers that are stopped at once.
//!
//! # What it does
//! Every call of a stopped conversation, or of a stopped caller, is blocked with `STOPPED`, and the model is asked for its
//! final answer at once. `conversations` are ids as toolrein reports them; `callers` are tiers, or callers' keyed
//! hashes. What a person stops at the admin port is stopped too. Where nothing is stopped, nothing happens.
//!
//! # Why
//! An agent that does harm has to be stopped before anybody knows the cause, and without a restart. Calls are blocked
//! with a reason, so that the agent ends with an answer to the user; after an error it would try again.
//!
//! # State
//! Whether the request is stopped. Nothing in its history matters.
//!
//! # Example
//! With `conversations = ["7f3a"]` the next call in a request with `x-toolrein-conversation: 7f3a` is blocked with
//! `STOPPED`, and the client gets the model's answer in text.

use super::about::{About, Service};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, FactKeys, Policy, RequestView};
use model::EventKinds;
use model::Stopped;
use model::Transcript;
use model::fact::{Answers, Batch};
use model::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use model::store::Stop;
use serde::Deserialize;

/// See the module.
pub struct Kill {
    config: Config,
    texts: Texts,
}

/// `[policy.kill]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Ids of conversations.
    conversations: Vec<String>,
    /// Names of tiers, and callers' hashes in hexadecimal.
    callers: Vec<String>,
    /// What the model reads of a blocked call.
    message: String,
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            conversations: Vec::new(),
            callers: Vec::new(),
            message: "This conversation was stopped. No tool runs any more. Answer with what you have."
                .to_owned(),
            texts: OwnTexts::default(),
        }
    }
}

/// Whether the request is stopped.
#[derive(Clone, Default)]
pub struct State {
    /// A person has stopped it.
    by_person: bool,
    is_stopped: bool,
}

impl Policy for Kill {
    const NAME: &'static str = "kill";
    const SUMMARY: &'static str = "stops conversations and callers at once: no call of theirs runs any more";
    const TEXTS: &'static [Text] = &[BLOCKED];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let lists = [("conversations", &config.conversations), ("callers", &config.callers)];
        let empty = lists.into_iter().filter(|(_, names)| names.iter().any(|name| name.trim().is_empty()));
        let mut problems: Vec<ConfigError> =
            empty.map(|(key, _)| ConfigError::new(key, "expected names, found an empty one")).collect();
        if config.message.trim().is_empty() {
            problems.push(ConfigError::new("message", "expected a text that the model can act on"));
        }
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        if problems.is_empty() { Ok(Self { config, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        About { services: vec![Service::ObeyStops], ignored_events: EventKinds::all(), ..About::default() }
    }

    fn ask(&self, request: &FactKeys<'_>, batch: &mut Batch) -> Option<State> {
        let (conversation, caller) = (request.conversation_id.to_owned(), request.identity.caller.to_hex());
        batch.stops = vec![
            Stop { what: Stopped::Conversation, id: conversation },
            Stop { what: Stopped::Caller, id: caller },
        ];
        Some(State::default())
    }

    fn receive(&self, answers: &Answers, state: &mut State) {
        state.by_person = answers.stopped.is_some();
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, plan: &mut Plan) {
        state.is_stopped = state.by_person || self.stops(request.transcript);
        if state.is_stopped {
            plan.restrict_calls();
        }
    }

    fn judge(&self, _call: &Proposed<'_>, state: &State) -> Verdict {
        if !state.is_stopped {
            return Verdict::Allow;
        }
        let message = self.texts.fill(&BLOCKED, &[("message", &self.config.message)]);
        Verdict::Block(Reason::new(ReasonKind::Stopped, message).for_the_turn())
    }
}

const BLOCKED: Text =
    Text { key: "blocked", default: "The call was not run. {message}", placeholders: &["message"] };

impl Kill {
    fn stops(&self, transcript: &Transcript) -> bool {
        let Config { conversations, callers, .. } = &self.config;
        let identity = &transcript.identity;
        let names = |name: &str| conversations.iter().any(|conversation| conversation == name);
        let is_caller = |caller: &String| {
            transcript.tier.as_deref() == Some(caller)
                || caller.eq_ignore_ascii_case(&identity.caller.to_hex())
        };
        (!conversations.is_empty() && names(&identity.conversation_id(transcript.conversation())))
            || callers.iter().any(is_caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{policy, read_answered, somebody, turn};
    use crate::scenario::problem;
    use crate::set::Judge;
    use model::Transcript;
    use model::identity::Identity;

    /// The judge of a request whose transcript is `known` more of.
    fn judge(table: &str, explicit: Option<&str>, know: impl Fn(&mut Transcript)) -> Judge {
        judge_stopped(table, explicit, know, None)
    }

    /// The same, where a person has stopped it.
    fn judge_stopped(
        table: &str,
        explicit: Option<&str>,
        know: impl Fn(&mut Transcript),
        stopped: Option<Stopped>,
    ) -> Judge {
        let request = turn("f", 3);
        let identity = Identity { explicit: explicit.map(str::to_owned), ..somebody() };
        let mut transcript = request.transcript(&identity);
        know(&mut transcript);
        let answer = |batch: Batch| {
            let ids = [explicit.map(str::to_owned), Some(somebody().caller.to_hex())];
            let asked = batch.stops.iter().map(|stop| stop.id.clone());
            assert!(asked.zip(ids).all(|(asked, id)| id.is_none_or(|id| id == asked)));
            Answers { stopped, ..Answers::default() }
        };
        read_answered(&[policy::<Kill>(table)], &transcript, answer).1
    }

    fn is_stopped(mut judge: Judge) -> bool {
        let stopped = ["f", "other"].map(|tool| !judge.rule(0, tool, Some("{}"), 0).is_allowed());
        assert_eq!(
            stopped,
            [judge.restricts_calls(); 2],
            "calls are restricted where it is stopped, and only there"
        );
        assert!(!judge.needs_arguments(0, "f"), "the name is enough, or the call is not judged");
        stopped[0]
    }

    #[test]
    fn only_the_configured_conversations_callers_and_tiers_are_stopped() {
        let request = turn("f", 3);
        let derived = request.transcript(&somebody()).conversation().to_hex();
        let hash = somebody().caller.to_hex();
        let tier = |transcript: &mut Transcript| transcript.tier = Some("free".into());
        for (table, explicit, expected) in [
            (String::new(), Some("a"), false),
            ("conversations = [\"a\"]".to_owned(), Some("a"), true),
            ("conversations = [\"a\"]".to_owned(), Some("b"), false),
            ("conversations = [\"a\"]".to_owned(), None, false),
            (format!("conversations = [\"{derived}\"]"), None, true),
            (format!("conversations = [\"{derived}\"]"), Some("a"), false),
            ("callers = [\"free\"]".to_owned(), None, true),
            ("callers = [\"paid\"]".to_owned(), None, false),
            (format!("callers = [\"{}\"]", hash.to_uppercase()), None, true),
            (format!("callers = [\"{}\"]", &hash[1..]), None, false),
        ] {
            assert_eq!(is_stopped(judge(&table, explicit, tier)), expected, "{table} {explicit:?}");
        }
        assert!(!is_stopped(judge("callers = [\"free\"]", None, |_| {})), "of no tier");
    }

    #[test]
    fn conversations_and_callers_stopped_at_run_time_are_stopped() {
        for stopped in [Stopped::Conversation, Stopped::Caller] {
            assert!(is_stopped(judge_stopped("", Some("a"), |_| {}, Some(stopped))));
        }
    }

    #[test]
    fn a_stopped_call_gets_a_final_reason_with_the_operators_message() {
        let mut judge = judge("conversations = [\"a\"]\nmessage = \"Ask Ada.\"", Some("a"), |_| {});
        let reason = judge.rule(0, "f", None, 0).objections.remove(0).1;
        let message = "The call was not run. Ask Ada.";
        assert_eq!(reason, Reason { is_final: true, ..Reason::new(ReasonKind::Stopped, message) });
    }

    #[test]
    fn settings_that_name_nothing_are_refused() {
        for (table, key) in [
            ("conversations = [\"\"]", "conversations"),
            ("callers = [\" \"]", "callers"),
            ("message = \"\"", "message"),
        ] {
            assert!(problem::<Kill>(table).starts_with(key), "{table}");
        }
    }
}
