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
//! # Why
//! Some calls cannot be undone, and no rule can decide whether they are wanted. A model that is asked to confirm
//! first may forget it, or ask about one thing and do another. So toolrein asks, and what runs is byte for byte what
//! was shown. Arguments that are too long to be shown whole are refused, since nobody can approve what is hidden.
//! Forced calls (`tool_choice`) need approval too; tools in `reask.answer_tools` do not.
//!
//! # State
//! None here. `chat`: the question is kept in the state store under the name of the message that asked: caller,
//! conversation, calls so far and text. A state store in memory forgets it at a restart and is not shared with other
//! replicas: then an approval is an ordinary message to the model. A shared state store avoids both. `held`: a call
//! waits in the process that holds the client's connection, and is lost with either.
//!
//! # Example
//! The model calls `delete_file` with `{"path":"/tmp/a"}`. In `chat` the user reads the call and `reply with K7PQ3M`,
//! answers `k7pq3m`, and the program gets that call. In `held` a dialogue lists it and posts `{"approve":true}`.

use super::about::{About, ApprovalForm, Confirming, NO_TOOLS};
use super::pattern::{Pattern, any_concerns, exact_among, problem_of};
use super::period::Period;
use super::{ConfigError, Policy};
use crate::plan::{Proposed, Reason, ReasonKind, Verdict};
use serde::Deserialize;
use std::time::Duration;

/// See the module.
pub struct Confirm {
    config: Config,
}

/// `[policy.confirm]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that need approval, by name or pattern.
    tools: Vec<Pattern>,
    /// How it is given.
    form: Form,
    /// How long a reply waits for it.
    hold: Period,
    /// What the user may say for the token.
    words: Vec<String>,
    /// How long a question stays open.
    expires: Period,
    /// The longest arguments that are shown, in characters.
    max_chars: usize,
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

/// The openai packages give up after ten minutes, and the model's own time is part of that.
const LONGEST_HOLD: Duration = Duration::from_secs(9 * 60);

impl Default for Config {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            form: Form::Chat,
            hold: Period(Duration::from_secs(120)),
            words: ["yes", "approve"].map(str::to_owned).to_vec(),
            expires: Period(Duration::from_secs(600)),
            // Two screens: people do not read more before they approve.
            max_chars: 4000,
        }
    }
}

impl Policy for Confirm {
    const NAME: &'static str = "confirm";
    const SUMMARY: &'static str = "asks a person before certain tools run, and runs exactly what was shown";
    type Config = Config;
    type State = ();

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
        if problems.is_empty() { Ok(Self { config }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let words = self.config.words.iter().map(|word| word.trim().to_lowercase());
        let form = match self.config.form {
            Form::Chat => ApprovalForm::Chat,
            Form::Held => ApprovalForm::Held { hold_ms: self.config.hold.millis() },
        };
        let approvals = Confirming {
            form,
            words: words.collect(),
            expires_ms: self.config.expires.millis(),
            max_chars: self.config.max_chars,
        };
        About {
            named_tools: exact_among(&self.config.tools),
            restricts_calls: true,
            idle: self.config.tools.is_empty().then_some(NO_TOOLS),
            approvals: Some(approvals),
            ..About::default()
        }
    }

    fn judge(&self, call: &Proposed<'_>, _state: &()) -> Verdict {
        if any_concerns(&self.config.tools, call.name) {
            Verdict::Ask(reason(self.config.form, call.name))
        } else {
            Verdict::Allow
        }
    }
}

/// What the model reads where nobody can be asked about this reply.
fn reason(form: Form, tool: &str) -> Reason {
    let (why, retryable) = match form {
        Form::Chat => (
            "the user is asked only about replies that contain nothing but such calls. Call it again alone.",
            true,
        ),
        Form::Held => ("nobody can be asked now. Tell the user what is left to do.", false),
    };
    let message = format!("The call was not run: {tool} needs the user's approval, and {why}");
    Reason { retryable, ..Reason::new(ReasonKind::ConfirmationRequired, message) }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Conversation, policy};
    use super::super::scenario::problem;
    use super::*;

    #[test]
    fn calls_of_the_tools_need_a_yes_and_others_do_not() {
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
    fn words_are_compared_without_case_and_white_space() {
        let rule = policy::<Confirm>("words = [\" Go Ahead \"]\nexpires = \"90s\"\nmax_chars = 9");
        let confirming = rule.about().approvals.clone().unwrap();
        let words = vec!["go ahead".into()];
        let expected = Confirming { form: ApprovalForm::Chat, words, expires_ms: 90_000, max_chars: 9 };
        assert_eq!(confirming, expected);
    }

    #[test]
    fn held_calls_are_judged_whole_and_wait_as_long_as_is_said() {
        for (table, hold_ms) in [("", 120_000), ("hold = \"5s\"", 5_000)] {
            let rule = policy::<Confirm>(&format!("tools = [\"pay\"]\nform = \"held\"\n{table}"));
            assert_eq!(rule.about().approvals.as_ref().unwrap().hold_ms(), Some(hold_ms));
            let mut conversation = Conversation::new(&rule);
            assert!(conversation.needs_arguments("pay") && !conversation.needs_arguments("search"));
            let reason = conversation.judge("pay", "{}", 0).objections.remove(0).1;
            assert!(reason.message.contains("nobody can be asked now") && !reason.retryable);
        }
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
            ("tools = [\"\"]", "tools: expected names or patterns, found an empty one"),
        ] {
            assert_eq!(problem::<Confirm>(table), expected);
        }
    }
}
