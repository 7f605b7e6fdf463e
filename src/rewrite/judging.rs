//! The judge at work on one client request: which calls of its replies are released, withheld or dropped, and
//! the record of it. Shared by whole and streamed replies; knows neither spans nor sockets.

mod holding;
mod names;
pub mod wrapper;

use self::holding::Holding;
#[cfg(test)]
pub(super) use self::holding::tests as holding_tests;
use super::confirm::{Question, Unaskable, ask};
use crate::policy::pattern::{Pattern, any_fits};
use crate::policy::plan::{Reason, ReasonKind, Usage};
use crate::policy::set::{Judge, Ruling};
use crate::wire::assemble::Assembled;
use crate::wire::json::decode;
use crate::wire::request::{Choice, Request};
use std::borrow::Cow;
use std::sync::Arc;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The client sees it.
    Release,
    /// The client sees it with these arguments, JSON text.
    Rewrite { arguments: String },
    /// The client does not see it, the model is told why.
    Withhold { policy: &'static str, reason: Reason },
    /// The client does not see it until a person has said yes; what they are shown are the new arguments, if any.
    Ask { policy: &'static str, reason: Reason, arguments: Option<String> },
    /// Nobody sees it until a person's word has come for the call of this number among those that wait; what the
    /// client is to see then are the new arguments, if any.
    Hold { id: u32, arguments: Option<String> },
    /// The client does not see it, the model reads this as its result.
    Answer {
        content: String,
        /// By a tool of ours, which keeps a bound of its own.
        own: bool,
    },
    /// It came although the model was asked for a final answer: nobody sees it.
    Drop,
}

impl Decision {
    /// Whether the client sees the call.
    pub fn is_released(&self) -> bool {
        matches!(self, Self::Release | Self::Rewrite { .. })
    }

    /// Whether the model, and nobody else, gets a result of ours for the call.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Withhold { .. } | Self::Ask { .. } | Self::Answer { .. })
    }
}

/// One call as it was judged, for the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub tool: String,
    /// As the upstream gave it; empty where it gave none.
    pub id: String,
    pub decision: Decision,
    /// Every policy that objected, also where only observed.
    pub objections: Vec<(&'static str, Reason)>,
    /// What else was done to it, also where only observed, by whom and in a word.
    pub acts: Vec<(&'static str, &'static str)>,
    /// The tool whose cut result it asks for.
    pub regret: Option<String>,
    /// It was let through because nobody could rule on it.
    pub unjudged: bool,
}

/// Calls that are answers: some clients must be answered by a call, so these stay open over every limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerTools {
    /// Names that the operator gave.
    pub named: Arc<[Pattern]>,
    /// The request forces a call and declares no tool of those names: any call is its answer.
    pub any: bool,
    /// The tool that the request itself names as the one to be called.
    pub forced: Option<String>,
    /// The answers among the tools that the request declares.
    pub declared: Vec<String>,
}

impl AnswerTools {
    /// Which calls are answers to `request`, where the operator `named` some.
    pub fn of(request: &Request, body: &[u8], named: &Arc<[Pattern]>) -> Self {
        let names = request.tools.iter().filter_map(|tool| tool.name).map(|name| decode(name, body));
        let answers = names.filter(|name| any_fits(named, name));
        let declared: Vec<String> = answers.map(Cow::into_owned).collect();
        let any = request.choice == Choice::Forced && declared.is_empty();
        let forced = if any {
            request.value(body, "tool_choice").and_then(|choice| name_in(choice.of(body)))
        } else {
            None
        };
        Self { named: Arc::clone(named), any, forced, declared }
    }

    /// Whether a call of the tool `name` is an answer.
    pub fn includes(&self, name: &str) -> bool {
        self.any || any_fits(&self.named, name)
    }

    /// Whether somebody has named `name` as the tool whose calls are answers: the operator, or the caller who forces it.
    fn is_by_name(&self, name: &str) -> bool {
        any_fits(&self.named, name) || self.forced.as_deref() == Some(name)
    }

    /// Leaves out what would keep the model from answering at all: where the request forces a call, no limit on how many
    /// there are stands in its way. What says which calls may be made holds for forced calls too.
    fn exempt(&self, objections: &mut Vec<(&'static str, Reason)>) {
        if self.any {
            objections.retain(|(_, reason)| !reason.kind.is_limit());
        }
    }

    /// Tells the model how to answer, where only a call will do.
    fn advise(&self, reason: &Reason) -> Reason {
        let mut reason = reason.clone();
        if !self.declared.is_empty() {
            reason.message.push_str(&format!(" To answer, call {}.", self.declared.join(" or ")));
        }
        reason
    }
}

/// The tool that a `tool_choice` names.
fn name_in(choice: &[u8]) -> Option<String> {
    let choice: serde_json::Value = serde_json::from_slice(choice).ok()?;
    let of = |kind: &str| choice.get(kind)?.get("name")?.as_str().map(str::to_owned);
    of("function").or_else(|| of("custom"))
}

/// How much of a call is known where it is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its name.
    Name,
    /// All of it.
    Whole,
    /// All that came of it before the reply was cut: its arguments may be half of what the model meant.
    Cut,
}

/// The judge with its mode, its exceptions and its record.
pub struct Judging {
    judge: Judge,
    answers: AnswerTools,
    /// Decide and record, but release everything.
    observe: bool,
    /// The model was asked for a final answer: calls that are none are dropped.
    landing: bool,
    /// Under which a person may say yes to calls of this reply, in the conversation; without it nobody is there to be
    /// asked.
    token: Option<String>,
    /// What cannot be judged passes, also where policies restrict calls.
    pass_unjudged: bool,
    holding: Holding,
    pub record: Vec<Judged>,
}

impl Judging {
    /// A judge that rules by `judge`, with `answers` always released.
    pub fn new(judge: Judge, answers: AnswerTools, observe: bool) -> Self {
        let (token, holding, record) = (None, Holding::default(), Vec::new());
        Self { judge, answers, observe, landing: false, token, pass_unjudged: false, holding, record }
    }

    /// Lets pass what cannot be judged, also where policies restrict calls.
    #[must_use]
    pub fn passing_unjudged(mut self, pass: bool) -> Self {
        self.pass_unjudged = pass;
        self
    }

    /// Lets a person be asked, under `token`, about calls that need a yes.
    #[must_use]
    pub fn asking(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Whether calls must not pass unjudged: a policy decides which of them may be made, or a person does.
    pub fn is_strict(&self) -> bool {
        self.confirms() || (!self.observe && self.judge.restricts_calls() && !self.pass_unjudged)
    }

    /// Whether some calls need a person's approval.
    fn confirms(&self) -> bool {
        !self.observe && self.judge.confirming().is_some()
    }

    /// Whether a person has said yes to the calls that come.
    pub fn approve(&mut self, approved: bool) {
        self.judge.approve(approved);
    }

    /// What a person is asked about `calls`.
    ///
    /// # Errors
    /// Why nobody can be asked about them.
    pub fn question(&self, calls: &[Assembled]) -> Result<Question, Unaskable> {
        match (&self.token, self.judge.confirming()) {
            (Some(token), Some(confirming)) => ask(calls, token, confirming),
            _ => Err(Unaskable::Nobody),
        }
    }

    /// Whether nothing may be changed.
    pub fn observes(&self) -> bool {
        self.observe
    }

    /// From now on only answers are released.
    pub fn land(&mut self) {
        self.landing = true;
    }

    /// Whether the model was asked for a final answer.
    pub fn is_landing(&self) -> bool {
        self.landing
    }

    /// Whether a call must be whole to be decided on. While observing, all must.
    pub fn needs_arguments(&mut self, choice: u32, name: &str) -> bool {
        if self.observe || wrapper::is_name(name) {
            return true;
        }
        // A forced call may have to wait, and then it is shown whole.
        let meant = self.judge.meant(name);
        let is_open = if self.holds() { self.is_operators(&meant) } else { self.answers.is_by_name(&meant) };
        // Asked for a final answer, the model may still have to answer by a call, whose arguments count.
        if (self.landing && !self.answers.any) || (is_open && !self.judge.owns(name)) {
            return false;
        }
        self.judge.needs_arguments(choice, name)
    }

    /// Decides on the next call of `choice`.
    pub fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision {
        let name = call.name();
        let arguments = (known != Known::Name).then(|| call.arguments());
        let names = || std::iter::once(name.clone()).chain(call.other_names());
        let wrapped =
            arguments.as_deref().and_then(|text| names().find_map(|name| wrapper::calls(&name, text)));
        if let Some(calls) = wrapped {
            return self.decide_wrapper((choice, now_ms), call, calls);
        }
        let whole = known == Known::Whole;
        let mut ruling = self.ruling((choice, now_ms), call, arguments.as_deref());
        if !ruling.own {
            self.answers.exempt(&mut ruling.objections);
        }
        if known == Known::Cut {
            return self.decide_cut(call, ruling);
        }
        // An answer is let through over every limit, so nothing was done to it that could be told.
        let meant = self.judge.meant(&name);
        let is_answer =
            self.answers.is_by_name(&meant) && !ruling.own && !self.needs_yes_first(&meant, &ruling);
        let ruling = if is_answer { Ruling::default() } else { ruling };
        let acts = acts(&ruling);
        let needs_yes = ruling.needs_yes_alone();
        if whole
            && !self.landing
            && self.holds()
            && ruling.answer.is_none()
            && let Some((policy, reason)) = ruling.objections.first().filter(|_| needs_yes).cloned()
        {
            return self.hold((choice, now_ms), call, (policy, &reason), ruling);
        }
        let Ruling { objections, answer, rewritten, own, regret } = ruling;
        let answers = is_answer || (self.landing && self.answers.any && objections.is_empty());
        let decision = match (objections.first(), answer, rewritten) {
            _ if self.observe || answers => Decision::Release,
            _ if self.landing => Decision::Drop,
            (Some((policy, reason)), None, rewritten)
                if needs_yes && choice == 0 && self.token.is_some() && !self.holds() =>
            {
                let arguments = rewritten.map(|(_, arguments)| arguments);
                Decision::Ask { policy, reason: reason.clone(), arguments }
            }
            (Some((policy, reason)), ..) => {
                Decision::Withhold { policy, reason: self.answers.advise(reason) }
            }
            (None, Some((_, content)), _) => Decision::Answer { content, own },
            // What runs is what was shown.
            (None, None, Some((policy, _))) if self.judge.is_approved() => {
                Decision::Withhold { policy, reason: changed() }
            }
            (None, None, Some((_, arguments))) => Decision::Rewrite { arguments },
            (None, None, None) => Decision::Release,
        };
        let regret = regret.filter(|_| decision.is_hidden());
        let (id, decided) = (call.id(), decision.clone());
        let judged = Judged { tool: name, id, decision: decided, objections, acts, regret, unjudged: false };
        self.record.push(judged);
        decision
    }

    /// Lets a call of `choice` through that could not be judged, unless its tool needs a person's yes.
    pub fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision {
        let tool = call.name();
        let mut objections = Vec::new();
        if self.confirms() {
            objections = self.judge.rule(choice, &tool, None, 0).objections;
            objections.retain(|(_, reason)| reason.needs_yes());
        }
        let decision = match objections.first() {
            Some((policy, reason)) => Decision::Withhold { policy, reason: reason.clone() },
            None => Decision::Release,
        };
        let unjudged = decision.is_released();
        let (id, acts, regret, decided) = (call.id(), Vec::new(), None, decision.clone());
        self.record.push(Judged { tool, id, decision: decided, objections, acts, regret, unjudged });
        decision
    }

    /// Whether a forced call needs a person's yes. A caller's `tool_choice` says what to call, not that somebody
    /// agrees; tools that the operator named stay open.
    fn needs_yes_first(&self, name: &str, ruling: &Ruling) -> bool {
        self.confirms()
            && !self.is_operators(name)
            && ruling.objections.iter().any(|(_, reason)| reason.needs_yes())
    }

    fn is_operators(&self, name: &str) -> bool {
        self.answers.named.iter().any(|pattern| pattern.matches(name))
    }

    /// What the conversation has used of each limit, by policy.
    pub fn usage(&self, now_ms: u64) -> Vec<(&'static str, Usage)> {
        self.judge.usage(now_ms)
    }
}

/// Why an approved call is withheld after all.
fn changed() -> Reason {
    Reason::new(
        ReasonKind::Validation,
        "The call was not run: its arguments would no longer be those that the user approved. Make the \
                  call again if it is still wanted."
            .to_owned(),
    )
    .retryable()
}

/// What was done to a call beside objecting to it.
fn acts(ruling: &Ruling) -> Vec<(&'static str, &'static str)> {
    let answered = ruling.answer.as_ref().map(|(policy, _)| (*policy, "answered"));
    let rewritten = ruling.rewritten.as_ref().map(|(policy, _)| (*policy, "rewritten"));
    let done = answered.or(rewritten).filter(|_| ruling.objections.is_empty());
    done.into_iter().collect()
}
