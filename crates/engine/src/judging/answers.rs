//! Answer tools: calls that are the client's answer.

use dialects::variant::PlannedRequest;
use model::plan::Reason;
use model::request::Choice;
use policies::pattern::{Pattern, any_fits};
use std::borrow::Cow;
use std::sync::Arc;

/// Answer tools: some clients need a call as their answer, so these calls stay allowed beyond every limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerTools {
    /// Name patterns from the configuration.
    pub named: Arc<[Pattern]>,
    /// The request forces a call and declares no tool with such a name: any call is its answer.
    pub any: bool,
    /// The tool that the request itself names as the one to be called.
    pub forced: Option<String>,
    /// The answers among the tools that the request declares.
    pub declared: Vec<String>,
}

impl AnswerTools {
    /// Which calls are answers to the request, where the operator `named` some.
    pub fn of(planned: &PlannedRequest<'_>, named: &Arc<[Pattern]>) -> Self {
        let request = planned.request;
        let names = planned.tools().filter_map(|(tool, bytes)| tool.full_name(bytes));
        let answers = names.filter(|name| any_fits(named, name));
        let declared: Vec<String> = answers.map(Cow::into_owned).collect();
        let any = request.choice == Choice::Forced && declared.is_empty();
        let forced = request.forced_tool.clone().filter(|_| any);
        Self { named: Arc::clone(named), any, forced, declared }
    }

    /// Whether a call of the tool `name` is an answer.
    pub fn includes(&self, name: &str) -> bool {
        self.any || any_fits(&self.named, name)
    }

    /// The tool that a final-answer request forces: the first of the declared answers, or the one that the request
    /// itself forces. `None` where a text, or any call, is the answer.
    pub fn last(&self) -> Option<&str> {
        self.declared.first().or(self.forced.as_ref()).map(String::as_str)
    }

    /// Whether the operator, or the caller who forces it, has named `name` as an answer tool.
    pub(super) fn is_by_name(&self, name: &str) -> bool {
        any_fits(&self.named, name) || self.forced.as_deref() == Some(name)
    }

    /// Removes objections that would keep the model from answering at all: where the request forces a call, limits on
    /// the number of calls do not apply. Rules on which calls are allowed hold for forced calls too.
    pub(super) fn exempt(&self, objections: &mut Vec<(&'static str, Reason)>) {
        if self.any {
            objections.retain(|(_, reason)| !reason.kind.is_limit());
        }
    }

    /// Adds for the model how to answer, where only a call is an answer.
    pub(super) fn advise(&self, reason: &Reason) -> Reason {
        let mut reason = reason.clone();
        if !self.declared.is_empty() {
            reason.message.push_str(&format!(" To answer, call {}.", self.declared.join(" or ")));
        }
        reason
    }
}
