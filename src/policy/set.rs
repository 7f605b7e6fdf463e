//! The configured policies run as one: a single fold over the transcript gives the plan, and the folds'
//! states then judge the calls of the reply. Knows the order of policies and nothing of what they do.

mod facts;
mod passed;
mod readings;
mod ruling;

pub use self::ruling::Ruling;

use self::facts::facts_of;
use self::passed::Passed;
use super::pattern::{Pattern, best_concern};
use super::plan::{Change, Confirming, Counted, Edit, Plan, Proposed, SummaryPlace, Usage, Verdict};
use super::{Evidence, Policy, RequestFacts};
use crate::transcript::calls::canonical_hash;
use crate::transcript::identity::{Hash, HashKey};
use crate::transcript::names::meant;
use crate::transcript::{Event, Transcript};
use std::borrow::Cow;
use std::sync::Arc;

/// A configured policy whose type is forgotten.
pub trait Rule: Send + Sync {
    /// See [`Policy::NAME`].
    fn name(&self) -> &'static str;
    /// See [`Policy::named_tools`].
    fn named_tools(&self) -> Vec<String>;
    /// See [`Policy::EDITS_CONTEXT`].
    fn edits_context(&self) -> bool;
    /// See [`Policy::RESTRICTS_CALLS`].
    fn restricts_calls(&self) -> bool;
    /// See [`Policy::needs_usage`].
    fn needs_usage(&self) -> bool;
    /// See [`Policy::diagram`].
    fn diagram(&self) -> Option<String>;
    /// See [`Policy::forbids`].
    fn forbids(&self, name: &str) -> bool;
    /// See [`Policy::cuts`].
    fn cuts(&self) -> bool;
    /// See [`Policy::confirming`].
    fn confirming(&self) -> Option<Confirming>;
    /// See [`Policy::counted`].
    fn counted(&self) -> Vec<Counted>;
    /// See [`Policy::asks_for_summaries`].
    fn asks_for_summaries(&self) -> Option<SummaryPlace>;
    /// A fold with a fresh state.
    fn start(&self) -> Box<dyn Fold>;
}

/// A policy with the state of one transcript.
pub trait Fold: Send + Sync {
    fn name(&self) -> &'static str;
    fn open(&mut self, request: &RequestFacts<'_>, plan: &mut Plan);
    fn read(&mut self, event: &Event<'_>, plan: &mut Plan);
    fn close(&self, plan: &mut Plan);
    fn owns(&self, name: &str) -> bool;
    fn evidence(&self, name: &str) -> Evidence;
    fn judge(&self, call: &Proposed<'_>) -> Verdict;
    fn regrets(&self, call: &Proposed<'_>) -> Option<String>;
    fn release(&mut self, call: &Proposed<'_>);
    fn usage(&self, now_ms: u64) -> Vec<Usage>;
    /// The same fold with a copy of the state.
    fn fork(&self) -> Box<dyn Fold>;
}

/// A policy and its state.
struct Running<P: Policy> {
    policy: Arc<P>,
    state: P::State,
}

/// A policy as a [`Rule`].
pub struct RuleOf<P>(Arc<P>);

impl<P: Policy> RuleOf<P> {
    /// The policy as a rule.
    pub fn new(policy: P) -> Self {
        Self(Arc::new(policy))
    }
}

impl<P: Policy> Rule for RuleOf<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn named_tools(&self) -> Vec<String> {
        self.0.named_tools()
    }

    fn edits_context(&self) -> bool {
        P::EDITS_CONTEXT
    }

    fn restricts_calls(&self) -> bool {
        P::RESTRICTS_CALLS
    }

    fn needs_usage(&self) -> bool {
        self.0.needs_usage()
    }

    fn diagram(&self) -> Option<String> {
        self.0.diagram()
    }

    fn forbids(&self, name: &str) -> bool {
        self.0.forbids(name)
    }

    fn cuts(&self) -> bool {
        self.0.cuts()
    }

    fn confirming(&self) -> Option<Confirming> {
        self.0.confirming()
    }

    fn counted(&self) -> Vec<Counted> {
        self.0.counted()
    }

    fn asks_for_summaries(&self) -> Option<SummaryPlace> {
        self.0.asks_for_summaries()
    }

    fn start(&self) -> Box<dyn Fold> {
        Box::new(Running { policy: Arc::clone(&self.0), state: P::State::default() })
    }
}

impl<P: Policy> Fold for Running<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn open(&mut self, request: &RequestFacts<'_>, plan: &mut Plan) {
        self.policy.open(request, &mut self.state, plan);
    }

    fn read(&mut self, event: &Event<'_>, plan: &mut Plan) {
        self.policy.read(event, &mut self.state, plan);
    }

    fn close(&self, plan: &mut Plan) {
        self.policy.close(&self.state, plan);
    }

    fn owns(&self, name: &str) -> bool {
        self.policy.owns(name, &self.state)
    }

    fn evidence(&self, name: &str) -> Evidence {
        self.policy.evidence(name, &self.state)
    }

    fn judge(&self, call: &Proposed<'_>) -> Verdict {
        self.policy.judge(call, &self.state)
    }

    fn regrets(&self, call: &Proposed<'_>) -> Option<String> {
        self.policy.regrets(call, &self.state)
    }

    fn release(&mut self, call: &Proposed<'_>) {
        self.policy.release(call, &mut self.state);
    }

    fn usage(&self, now_ms: u64) -> Vec<Usage> {
        self.policy.usage(&self.state, now_ms)
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(Self { policy: Arc::clone(&self.policy), state: self.state.clone() })
    }
}

/// The configured policies, in registry order.
#[derive(Clone)]
pub struct PolicySet {
    rules: Vec<Arc<dyn Rule>>,
    /// Theirs, in their order: each event is read under each of them.
    names: Arc<[&'static str]>,
    confirming: Option<Arc<Confirming>>,
    /// One policy counts, so places need no more than this list.
    counted: Arc<[Counted]>,
    /// Names and patterns of tools, each with its place in it.
    counts: Arc<[(Pattern, usize)]>,
}

impl Default for PolicySet {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PolicySet {
    /// A set of `rules`, which must be in registry order.
    pub fn new(rules: Vec<Arc<dyn Rule>>) -> Self {
        let confirming = rules.iter().find_map(|rule| rule.confirming()).map(Arc::new);
        let counted: Arc<[Counted]> = rules.iter().flat_map(|rule| rule.counted()).collect();
        let places = counted.iter().enumerate();
        let counts =
            places.flat_map(|(at, it)| it.tools.iter().map(move |tool| (tool.clone(), at))).collect();
        let names = rules.iter().map(|rule| rule.name()).collect();
        Self { rules, names, confirming, counted, counts }
    }

    /// What the ledger is to count for each caller.
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// The place in [`Self::counted`] of what a call of the tool `name` counts for.
    pub fn counts_for(&self, name: &str) -> Option<usize> {
        best_concern(&self.counts, name).copied()
    }

    /// How a person is asked about calls that need a yes, where somebody is to be asked.
    pub fn confirming(&self) -> Option<&Arc<Confirming>> {
        self.confirming.as_ref()
    }

    /// Where other models are asked for summaries.
    pub fn summary_places(&self) -> impl Iterator<Item = SummaryPlace> + '_ {
        self.rules.iter().filter_map(|rule| rule.asks_for_summaries())
    }

    /// The names of the policies that are on.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.names.iter().copied()
    }

    /// The tools that the policies' settings name.
    pub fn named_tools(&self) -> Vec<String> {
        self.rules.iter().flat_map(|rule| rule.named_tools()).collect()
    }

    /// Whether any policy that is on decides which tools may be called: see [`Policy::RESTRICTS_CALLS`].
    pub fn restricts_calls(&self) -> bool {
        self.rules.iter().any(|rule| rule.restricts_calls())
    }

    /// Whether any policy is of use only where streams tell their usage.
    pub fn needs_usage(&self) -> bool {
        self.rules.iter().any(|rule| rule.needs_usage())
    }

    /// Whether `plan` changes what the model is shown of the conversation's own texts.
    pub fn touches_context(&self, plan: &Plan) -> bool {
        let dropped = plan.dropped.iter().any(|dropped| self.is_of_context(dropped.policy));
        dropped || plan.edits.iter().any(|edit| self.edits_context(edit))
    }

    /// Leaves out of `plan` what [`touches_context`](Self::touches_context) means.
    pub fn leave_context(&self, plan: &mut Plan) {
        plan.edits.retain(|edit| !self.edits_context(edit));
        plan.dropped.retain(|dropped| !self.is_of_context(dropped.policy));
        plan.declared.retain(|declared| !self.is_of_context(declared.policy));
    }

    fn edits_context(&self, edit: &Edit) -> bool {
        !matches!(edit.change, Change::Remark { .. }) && self.is_of_context(edit.policy)
    }

    fn is_of_context(&self, policy: &str) -> bool {
        self.rules.iter().any(|rule| rule.name() == policy && rule.edits_context())
    }

    /// What the settings of the policy `name` amount to as a drawing, where it has one.
    pub fn diagram(&self, name: &str) -> Option<String> {
        self.rules.iter().find(|rule| rule.name() == name)?.diagram()
    }

    /// Reads the whole transcript: what shall change, and a judge that knows the conversation.
    pub fn read(&self, transcript: &Transcript<'_>) -> (Plan, Judge) {
        let mut facts = facts_of(transcript);
        facts.cuts = self.rules.iter().any(|rule| rule.cuts());
        let mut plan = Plan::default();
        let mut folds: Vec<Box<dyn Fold>> = self.rules.iter().map(|rule| rule.start()).collect();
        for (fold, name) in folds.iter_mut().zip(self.names()) {
            plan.stand_at(0, name);
            fold.open(&facts, &mut plan);
        }
        // Not a loop: an iterator that is made of several walks itself in fewer steps.
        transcript.events().for_each(|event| {
            let message = event.message();
            for (fold, name) in folds.iter_mut().zip(self.names()) {
                plan.stand_at(message, name);
                fold.read(&event, &mut plan);
            }
        });
        for (fold, name) in folds.iter().zip(self.names()) {
            plan.stand_at(transcript.request.messages.len(), name);
            fold.close(&mut plan);
        }
        let key = transcript.identity.key.clone();
        let confirming = self.confirming.clone();
        let declared = facts.tools.iter().map(|tool| tool.name.clone().into_owned()).collect();
        let (choices, restricts, passed) = (Vec::new(), self.restricts_calls(), Vec::new());
        (plan, Judge { folds, choices, key, declared, confirming, approved: false, restricts, passed })
    }
}

/// Rules on the calls of a reply, each choice on its own.
pub struct Judge {
    folds: Vec<Box<dyn Fold>>,
    /// The folds as each choice has moved them, by choice index.
    choices: Vec<(u32, Vec<Box<dyn Fold>>)>,
    key: HashKey,
    /// The tools that the request declares.
    declared: Vec<String>,
    confirming: Option<Arc<Confirming>>,
    /// A person has said yes to the calls that come.
    approved: bool,
    /// See [`PolicySet::restricts_calls`].
    restricts: bool,
    /// The calls that were let through, where one may have to be taken back.
    passed: Vec<Passed>,
}

impl Judge {
    /// How much of a call of the tool `name` in `choice` must be seen before all policies can rule.
    pub fn evidence(&mut self, choice: u32, name: &str) -> Evidence {
        let name = &*self.meant(name).into_owned();
        let folds = self.folds_of(choice);
        if folds.iter().any(|fold| fold.owns(name)) {
            return Evidence::Arguments;
        }
        folds.iter().map(|fold| fold.evidence(name)).max().unwrap_or(Evidence::Nothing)
    }

    /// The declared tool that a call of `name` means; `name` where it means none.
    pub fn meant<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        meant(name, self.declared.iter().map(String::as_str)).unwrap_or(name).into()
    }

    /// See [`PolicySet::confirming`].
    pub fn confirming(&self) -> Option<&Confirming> {
        self.confirming.as_deref()
    }

    /// Whether a person has said yes to the calls that come: then nobody objects for want of it.
    pub fn approve(&mut self, approved: bool) {
        self.approved = approved;
    }

    /// See [`Self::approve`].
    pub fn is_approved(&self) -> bool {
        self.approved
    }

    /// Rules on the next call of `choice`: a call of the tool `name` with `arguments`, where they are known.
    pub fn rule(&mut self, choice: u32, name: &str, arguments: Option<&str>, now_ms: u64) -> Ruling {
        let (key, approved) = (self.key.clone(), self.approved);
        let name = &*self.meant(name).into_owned();
        let folds = self.folds_of(choice);
        if let Some(owner) = folds.iter_mut().find(|fold| fold.owns(name)) {
            let arguments_hash = arguments.map(|text| canonical_hash(text, &key));
            let call = Proposed { name, arguments, arguments_hash, now_ms };
            let ruling = rule_alone(&mut **owner, &call);
            if ruling.answer.is_some() {
                self.keep_passed(choice, &call);
            }
            return ruling;
        }
        let mut ruling = Ruling::default();
        let mut arguments = arguments.map(Cow::Borrowed);
        let mut arguments_hash = arguments.as_deref().map(|text| canonical_hash(text, &key));
        for fold in folds.iter() {
            match fold.judge(&Proposed { name, arguments: arguments.as_deref(), arguments_hash, now_ms }) {
                Verdict::Allow => {}
                Verdict::Withhold(reason) if approved && reason.needs_yes() => {}
                Verdict::Withhold(reason) => ruling.objections.push((fold.name(), reason)),
                Verdict::Answer(text) => {
                    ruling.answer.get_or_insert((fold.name(), text));
                }
                Verdict::Rewrite(text) => {
                    arguments_hash = Some(canonical_hash(&text, &key));
                    arguments = Some(Cow::Owned(text.clone()));
                    ruling.rewritten = Some((fold.name(), text));
                }
            }
        }
        if ruling.is_allowed() {
            let call = Proposed { name, arguments: arguments.as_deref(), arguments_hash, now_ms };
            for fold in folds {
                fold.release(&call);
            }
            self.keep_passed(choice, &call);
        }
        ruling
    }

    /// The name of arguments, equal for every spelling of the same JSON.
    pub fn arguments_hash(&self, arguments: &str) -> Hash {
        canonical_hash(arguments, &self.key)
    }

    /// Whether `name` is a tool of ours.
    pub fn owns(&self, name: &str) -> bool {
        self.folds.iter().any(|fold| fold.owns(name))
    }

    /// What the conversation has used of each limit, by policy.
    pub fn usage(&self, now_ms: u64) -> Vec<(&'static str, Usage)> {
        // With the calls of the reply, where one has been judged.
        let folds = self.choices.first().map_or(&self.folds, |(_, folds)| folds);
        let mut named = Vec::new();
        for fold in folds {
            named.extend(fold.usage(now_ms).into_iter().map(|usage| (fold.name(), usage)));
        }
        named
    }

    fn folds_of(&mut self, choice: u32) -> &mut Vec<Box<dyn Fold>> {
        let known = self.choices.iter().position(|(index, _)| *index == choice);
        let at = known.unwrap_or_else(|| {
            let forked = self.folds.iter().map(|fold| fold.fork()).collect();
            self.choices.push((choice, forked));
            self.choices.len() - 1
        });
        &mut self.choices[at].1
    }
}

/// The ruling on a call of the policy's own tool.
fn rule_alone(owner: &mut dyn Fold, call: &Proposed<'_>) -> Ruling {
    let mut ruling = Ruling { own: true, ..Ruling::default() };
    match owner.judge(call) {
        Verdict::Answer(text) => {
            ruling.regret = owner.regrets(call);
            ruling.answer = Some((owner.name(), text));
            owner.release(call);
        }
        Verdict::Withhold(reason) => ruling.objections.push((owner.name(), reason)),
        Verdict::Allow | Verdict::Rewrite(_) => {}
    }
    ruling
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::allow::Allow;
    use crate::policy::budget::Budget;
    use crate::policy::cases::policy;

    #[test]
    fn a_set_restricts_calls_where_one_of_its_policies_decides_which_tools_may_be_called() {
        let budget = || policy::<Budget>("");
        assert!(!PolicySet::default().restricts_calls());
        assert!(!PolicySet::new(vec![budget()]).restricts_calls());
        assert!(PolicySet::new(vec![budget(), policy::<Allow>("except = [\"f\"]")]).restricts_calls());
    }

    #[test]
    fn these_policies_restrict_calls_and_no_others() {
        let restricting: Vec<_> = crate::policy::REGISTRY
            .iter()
            .filter(|entry| entry.restricts_calls)
            .map(|entry| entry.name)
            .collect();
        let expected =
            ["turn_limits", "allow", "states", "duplicates", "serial", "fresh", "taint", "confirm"];
        assert_eq!(restricting, expected);
    }
}
