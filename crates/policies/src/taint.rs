//! Taint tracking: after a suspicious result, tools that change things are blocked.
//!
//! # What it does
//! If an earlier policy has flagged a tool result, whatever else it does with it, the `tools` are not called for the
//! rest of the turn. With `action = "block"` their calls are blocked until the user's next message; with `"confirm"`
//! a person is asked first, where that is possible, else the reason says to ask the user. All other tools go on. What
//! was flagged is never quoted, neither to the model nor elsewhere.
//!
//! # Why
//! A page or a mail may carry instructions, and no scan for them is certain. Further reading does little harm; the
//! actions of the agent do. The user's next message is a new task from a person.
//!
//! # State
//! How many results of the running turn were flagged.
//!
//! # Example
//! `fetch` brings a page that is flagged; in the same turn the model calls `send_mail`, which is blocked with
//! `MODE_RESTRICTED` and `flagged_results = 1`, while `search` goes on.

use super::about::{About, Need, list_tools};
use super::pattern::{Pattern, any_concerns, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::Event;
use model::plan::{CallEffect, Finding, Plan, Proposed, Reason, ReasonKind, Verdict};
use serde::Deserialize;

/// See the module.
pub struct Taint {
    config: Config,
    texts: Texts,
}

/// `[policy.taint]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that are blocked, by name or pattern.
    tools: Vec<Pattern>,
    /// What happens to their calls.
    action: Action,
    texts: OwnTexts,
}

/// What happens to calls after a flagged result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// They do not run in this turn.
    Block,
    /// They need a person's approval.
    Confirm,
}

impl Default for Config {
    fn default() -> Self {
        let tools = [
            "*create*",
            "*update*",
            "*delete*",
            "*remove*",
            "*send*",
            "*write*",
            "edit*",
            "*_edit*",
            "*code*exec*",
        ];
        Self { tools: tools.map(Pattern::new).to_vec(), action: Action::Block, texts: OwnTexts::default() }
    }
}

/// The flagged results of the running turn.
#[derive(Clone, Default)]
pub struct Tainted {
    results: u64,
}

impl Policy for Taint {
    const NAME: &'static str = "taint";
    const SUMMARY: &'static str = "blocks tools that change things after a suspicious result";
    const TEXTS: &'static [Text] = &[BLOCKED, CONFIRM];
    type Config = Config;
    type State = Tainted;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems: Vec<ConfigError> = problem_of("tools", &config.tools).into_iter().collect();
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        if problems.is_empty() { Ok(Self { config, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let asks = self.config.action == Action::Confirm;
        let approvals = asks.then_some(Need::Approvals { key: None });
        let needs = [Need::FlaggedResults].into_iter().chain(approvals).collect();
        About {
            named_tools: list_tools("tools", &self.config.tools),
            restricts_calls: true,
            needs,
            ..About::default()
        }
    }

    fn read(&self, event: &Event<'_>, tainted: &mut Tainted, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => *tainted = Tainted::default(),
            Event::Result(_) if plan.findings_here().any(Finding::is_instructions) => tainted.results += 1,
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, tainted: &Tainted) -> Verdict {
        let reason = || self.reason(call.name, tainted.results);
        match self.config.action {
            _ if !self.holds(call.name, tainted) => Verdict::Allow,
            Action::Block => Verdict::Block(reason()),
            Action::Confirm => Verdict::Pending(CallEffect::Approve(reason())),
        }
    }
}

impl Taint {
    fn reason(&self, tool: &str, results: u64) -> Reason {
        let (kind, text) = match self.config.action {
            Action::Block => (ReasonKind::ModeRestricted, &BLOCKED),
            Action::Confirm => (ReasonKind::ConfirmationRequired, &CONFIRM),
        };
        let message = self.texts.fill(text, &[("tool", &tool)]);
        Reason::new(kind, message).with(vec![("flagged_results", results)])
    }

    fn holds(&self, tool: &str, tainted: &Tainted) -> bool {
        tainted.results > 0 && any_concerns(&self.config.tools, tool)
    }
}

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: a tool result in this turn may hold instructions that are not the user's, so {tool} \
              does not run until the user's next message. Go on with other tools, or tell the user what is left to do.",
    placeholders: &["tool"],
};
const CONFIRM: Text = Text {
    key: "confirm",
    default: "The call was not run: a tool result in this turn may hold instructions that are not the user's, so {tool} \
              needs the user's approval first. Tell the user what the call would do and ask whether to make it.",
    placeholders: &["tool"],
};

#[cfg(test)]
mod tests;
