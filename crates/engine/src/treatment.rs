//! The treatment of a client request, for a recording: which calls were judged how and why, the hidden exchanges, and the
//! texts of toolrein that the model read. Plain data; no decision uses it.

use super::judging::Judged;
use super::notes::verdict_of;
use super::{Inspection, Phase};
use bytes::Bytes;
use model::plan::decision::Decision;
use model::plan::{Change, Reason, Refusal};
use model::record::Verdict;

/// What was done to one client request.
#[derive(Clone, Debug, Default)]
pub struct Treatment {
    /// The calls of all its replies, in the order in which they were judged.
    pub calls: Vec<TreatedCall>,
    /// The hidden exchanges, each with the number of its choice: items of the history, joined by commas.
    pub hidden: Vec<(u32, Bytes)>,
    /// The notices that are new in the request, each with its policy.
    pub notices: Vec<(&'static str, String)>,
    /// Why a policy refused the request.
    pub refusal: Option<Refusal>,
}

/// A call and what was decided on it.
#[derive(Clone, Debug)]
pub struct TreatedCall {
    pub tool: String,
    /// As the upstream gave it; empty where it gave none.
    pub id: String,
    pub verdict: Verdict,
    /// It was allowed because it could not be judged.
    pub unjudged: bool,
    /// Every objection, also in observe mode; the first one is the one that the model read.
    pub objections: Vec<Objection>,
    /// What else was done: the policy and the name of the action.
    pub acts: Vec<(&'static str, &'static str)>,
    /// The arguments that the client got instead of the model's.
    pub new_arguments: Option<String>,
}

/// Why a policy objects to a call.
#[derive(Clone, Debug)]
pub struct Objection {
    pub policy: &'static str,
    pub reason: &'static str,
    pub message: String,
    /// Numbers with units in their names.
    pub numbers: Vec<(&'static str, u64)>,
}

impl Inspection<'_> {
    /// What was done so far; complete once the exchange is closed.
    pub fn treatment(&self) -> Treatment {
        let plan = self.plan();
        let new = plan.effective_edits().filter(|edit| edit.decided >= self.0.core.new_from);
        let notices = new.filter_map(|edit| match &edit.change {
            Change::Notice { text, .. } => Some((edit.policy, text.clone())),
            _ => None,
        });
        let calls = self.judging().map(|judging| judging.record.iter().map(treated).collect());
        let hidden = match &self.0.phase {
            Phase::Running(running) | Phase::Ended(running) => running.hidden(),
            _ => Vec::new(),
        };
        Treatment {
            calls: calls.unwrap_or_default(),
            hidden,
            notices: notices.collect(),
            refusal: plan.refusal.clone(),
        }
    }
}

fn treated(judged: &Judged) -> TreatedCall {
    let objection = |(policy, reason): &(&'static str, Reason)| Objection {
        policy,
        reason: reason.kind.as_str(),
        message: reason.message.clone(),
        numbers: reason.numbers.clone(),
    };
    let new_arguments = match &judged.decision {
        Decision::Rewrite { arguments } => Some(arguments.clone()),
        _ => None,
    };
    TreatedCall {
        tool: judged.tool.clone(),
        id: judged.id.clone(),
        verdict: verdict_of(&judged.decision),
        unjudged: judged.unjudged,
        objections: judged.objections.iter().map(objection).collect(),
        acts: judged.acts.clone(),
        new_arguments,
    }
}
