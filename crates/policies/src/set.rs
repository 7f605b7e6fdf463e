//! The configured policies as one policy: a single fold over the conversation gives the plan, and the folds' states
//! then judge the calls of the reply. Knows the order of policies and nothing of what they do.

mod judge;
mod ruling;
mod snapshot;

pub use self::judge::Judge;
pub use self::ruling::{Ruling, longest_wait};

use super::about::{
    About, Accounting, Confirming, Counted, EngineService, Explanation, NamedTool, Need, Service,
};
use super::pattern::{Pattern, best_concern};
use super::{FactKeys, Policy, RequestView};
use model::fact::{Answers, Batch};
use model::plan::{Change, Edit, Finding, ModelEndpoint, Plan, Proposed, Usage, Verdict};
use model::{Event, EventKinds, EventPosition, Transcript};
use smallvec::SmallVec;
use snapshot::{FoldSnapshot, Snapshots};
use std::sync::Arc;

/// A configured policy whose type is forgotten.
pub trait Rule: Send + Sync {
    /// See [`Policy::NAME`].
    fn name(&self) -> &'static str;
    /// See [`Policy::about`].
    fn about(&self) -> &About;
    /// A fold with a fresh state.
    fn start(&self) -> Box<dyn Fold>;
    /// A fold that waits for the answers to what it has asked; `None`: it needs nothing. See [`Policy::ask`].
    fn ask(&self, request: &FactKeys<'_>, batch: &mut Batch) -> Option<Box<dyn Fold>>;
}

/// A policy with the state of one transcript.
pub trait Fold: Send + Sync {
    fn name(&self) -> &'static str;
    fn receive(&mut self, answers: &Answers);
    fn open(&mut self, request: &RequestView<'_>, plan: &mut Plan);
    fn read(&mut self, event: &Event<'_>, plan: &mut Plan);
    fn close(&self, plan: &mut Plan);
    fn judge(&self, call: &Proposed<'_>) -> Verdict;
    fn release(&mut self, call: &Proposed<'_>);
    fn usage(&self, now_ms: u64) -> Vec<Usage>;
    /// The same fold with a copy of the state.
    fn fork(&self) -> Box<dyn Fold>;
}

/// The states of all policies, in registry order.
type Folds = Vec<Box<dyn Fold>>;

/// A policy and its state.
struct Running<P: Policy> {
    policy: Arc<P>,
    state: P::State,
}

/// A policy as a [`Rule`].
pub struct RuleOf<P> {
    policy: Arc<P>,
    about: About,
}

impl<P: Policy> RuleOf<P> {
    /// The policy as a rule.
    pub fn new(policy: P) -> Self {
        Self { about: policy.about(), policy: Arc::new(policy) }
    }
}

impl<P: Policy> Rule for RuleOf<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn start(&self) -> Box<dyn Fold> {
        Box::new(Running { policy: Arc::clone(&self.policy), state: P::State::default() })
    }

    fn ask(&self, request: &FactKeys<'_>, batch: &mut Batch) -> Option<Box<dyn Fold>> {
        let state = self.policy.ask(request, batch)?;
        Some(Box::new(Running { policy: Arc::clone(&self.policy), state }))
    }
}

impl<P: Policy> Fold for Running<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn receive(&mut self, answers: &Answers) {
        self.policy.receive(answers, &mut self.state);
    }

    fn open(&mut self, request: &RequestView<'_>, plan: &mut Plan) {
        self.policy.open(request, &mut self.state, plan);
    }

    fn read(&mut self, event: &Event<'_>, plan: &mut Plan) {
        self.policy.read(event, &mut self.state, plan);
    }

    fn close(&self, plan: &mut Plan) {
        self.policy.close(&self.state, plan);
    }

    fn judge(&self, call: &Proposed<'_>) -> Verdict {
        self.policy.judge(call, &self.state)
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

/// The policies that have asked the state store about a request, each with its position in the set.
#[derive(Default)]
pub struct AskingPolicies(SmallVec<[(usize, Box<dyn Fold>); 1]>);

impl AskingPolicies {
    /// Gives each its answers.
    pub fn receive(&mut self, answers: &Answers) {
        self.0.iter_mut().for_each(|(_, fold)| fold.receive(answers));
    }

    fn fold(&self, position: usize) -> Option<Box<dyn Fold>> {
        let asking = self.0.iter().find(|(asking, _)| *asking == position);
        asking.map(|(_, fold)| fold.fork())
    }
}

/// The configured policies, in registry order.
#[derive(Clone)]
pub struct PolicySet {
    rules: Vec<Arc<dyn Rule>>,
    /// Their names, in the same order: each event is read under each of them.
    names: Arc<[&'static str]>,
    /// The events that they read, in the same order.
    events: Arc<[EventKinds]>,
    /// Every policy that reads events may go on from a copy of an earlier state.
    resumes: bool,
    confirming: Option<Arc<Confirming>>,
    accounting: Option<Accounting>,
    longest_wait_ms: u64,
    /// A policy may shorten or clear results.
    cuts_results: bool,
    /// Other models may be asked about calls, or toolrein may run their tools.
    waits_for_others: bool,
    /// A limit over several conversations may count calls.
    reserves_calls: bool,
    /// At most one policy counts calls, so indexes into this list suffice.
    counted: Arc<[Counted]>,
    /// Names and patterns of tools, each with its index in it.
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
        let abouts = || rules.iter().map(|rule| rule.about());
        let confirming = abouts().flat_map(|about| &about.services).find_map(|service| match service {
            Service::AskPeople(confirming) => Some(Arc::clone(confirming)),
            _ => None,
        });
        let engine = || abouts().flat_map(|about| &about.engine);
        let accounting = accounting_of(engine(), confirming.as_deref());
        let longest_wait_ms = engine().map(|service| match service {
            EngineService::HoldCalls { most_ms } => *most_ms,
            _ => 0,
        });
        let longest_wait_ms = longest_wait_ms.max().unwrap_or(0);
        let counted = engine().filter_map(|service| match service {
            EngineService::CountCalls(counted) => Some(counted.clone()),
            _ => None,
        });
        let counted: Arc<[Counted]> = counted.collect();
        let places = counted.iter().enumerate();
        let counts =
            places.flat_map(|(at, it)| it.tools.iter().map(move |tool| (tool.clone(), at))).collect();
        let names = rules.iter().map(|rule| rule.name()).collect();
        let events = abouts().map(|about| !about.ignored_events).collect();
        let resumes = abouts().all(|about| about.resumes || about.ignored_events == EventKinds::all());
        let cuts_results = abouts().any(|about| about.services.contains(&Service::CutResults));
        let waits =
            |service: &EngineService| matches!(service, EngineService::AskModel(_) | EngineService::RunTools);
        let waits_for_others = engine().any(waits);
        let reserves_calls = engine().any(|service| *service == EngineService::ReserveCalls);
        Self {
            rules,
            names,
            events,
            resumes,
            confirming,
            accounting,
            longest_wait_ms,
            cuts_results,
            waits_for_others,
            reserves_calls,
            counted,
            counts,
        }
    }

    fn abouts(&self) -> impl Iterator<Item = &About> {
        self.rules.iter().map(|rule| rule.about())
    }

    fn services(&self) -> impl Iterator<Item = &Service> {
        self.abouts().flat_map(|about| &about.services)
    }

    fn needs(&self) -> impl Iterator<Item = (&'static str, Need)> {
        self.rules.iter().flat_map(|rule| rule.about().needs.iter().map(|need| (rule.name(), *need)))
    }

    fn engine_services(&self) -> impl Iterator<Item = (&'static str, &EngineService)> {
        self.rules.iter().flat_map(|rule| rule.about().engine.iter().map(|service| (rule.name(), service)))
    }

    /// What is to be counted for each caller.
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// What must be known of the conversation's account: where a policy limits it, and where a user may approve calls in
    /// the conversation, since that goes on with the turn.
    pub fn accounting(&self) -> Option<Accounting> {
        self.accounting
    }

    /// The index in [`Self::counted`] of what a call of the tool `name` counts for.
    pub fn counts_for(&self, name: &str) -> Option<usize> {
        best_concern(&self.counts, name).copied()
    }

    /// How a person is asked about calls that need an approval, where somebody is to be asked.
    pub fn confirming(&self) -> Option<&Arc<Confirming>> {
        self.confirming.as_ref()
    }

    /// Where other models are asked for summaries.
    pub fn summary_endpoints(&self) -> impl Iterator<Item = ModelEndpoint> + '_ {
        self.engine_services().filter_map(|(_, service)| match service {
            EngineService::Summarise(endpoint) => Some(endpoint.clone()),
            _ => None,
        })
    }

    /// Where other models are asked about calls, with the policy that asks.
    pub fn model_endpoints(&self) -> impl Iterator<Item = (&'static str, ModelEndpoint)> + '_ {
        self.engine_services().filter_map(|(policy, service)| match service {
            EngineService::AskModel(endpoint) => Some((policy, endpoint.clone())),
            _ => None,
        })
    }

    /// The names of the enabled policies.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.names.iter().copied()
    }

    /// The tools that the policies' settings name, each with the policy.
    pub fn named_tools(&self) -> impl Iterator<Item = (&'static str, &NamedTool)> {
        self.rules.iter().flat_map(|rule| {
            let policy = rule.name();
            rule.about().named_tools.iter().map(move |tool| (policy, tool))
        })
    }

    /// Whether any enabled policy decides which tools may be called: see [`About::restricts_calls`].
    pub fn restricts_calls(&self) -> bool {
        self.abouts().any(|about| about.restricts_calls)
    }

    /// Whether any policy acts on what a person has stopped.
    pub fn obeys_stops(&self) -> bool {
        self.services().any(|service| *service == Service::ObeyStops)
    }

    /// Whether any policy needs streams to report their usage.
    pub fn needs_usage(&self) -> bool {
        self.accounting.is_some_and(|accounting| accounting.tokens)
    }

    /// Whether `plan` changes what the model is shown of the conversation's own texts.
    pub fn touches_context(&self, plan: &Plan) -> bool {
        let dropped = plan.dropped.iter().any(|dropped| self.is_of_context(dropped.policy));
        dropped || plan.edits.iter().any(|edit| self.edits_context(edit))
    }

    /// Removes from `plan` the edits that [`touches_context`](Self::touches_context) means.
    pub fn leave_context(&self, plan: &mut Plan) {
        plan.edits.retain(|edit| !self.edits_context(edit));
        plan.dropped.retain(|dropped| !self.is_of_context(dropped.policy));
        plan.declared.retain(|declared| !self.is_of_context(declared.policy));
    }

    fn edits_context(&self, edit: &Edit) -> bool {
        !matches!(edit.change, Change::Remark { .. }) && self.is_of_context(edit.policy)
    }

    fn is_of_context(&self, policy: &str) -> bool {
        self.rules.iter().any(|rule| rule.name() == policy && rule.about().edits_context)
    }

    /// The policies that never act, one sentence each: with these settings, or without another policy.
    pub fn idle(&self) -> Vec<String> {
        let wants_approvals = self.needs().any(|(_, need)| matches!(need, Need::Approvals { .. }));
        let asks =
            |about: &About| about.services.iter().any(|service| matches!(service, Service::AskPeople(_)));
        let why = |about: &About| {
            let lacking = about.needs.iter().find_map(|need| need.idle(self.services()));
            // A policy that asks people for others need not name a tool.
            lacking.or(about.idle.filter(|_| !(wants_approvals && asks(about))))
        };
        let rules = self.rules.iter().filter_map(|rule| Some((rule.name(), why(rule.about())?)));
        rules.map(|(name, why)| format!("policy.{name}: has no effect: {why}")).collect()
    }

    /// The policies that cannot work unless a person can be asked, each with the key that wants it.
    pub fn needs_approvals(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.needs().filter_map(|(policy, need)| match need {
            Need::Approvals { key } => Some((policy, key?)),
            Need::CutResults | Need::FlaggedResults => None,
        })
    }

    /// How long the state store must keep facts: each policy with a key and the time it says, in ms.
    pub fn windows(&self) -> impl Iterator<Item = (&'static str, &str, u64)> + '_ {
        self.rules.iter().flat_map(|rule| {
            let windows = rule.about().windows.iter();
            windows.map(|(key, window_ms)| (rule.name(), key.as_str(), *window_ms))
        })
    }

    /// What the settings of the policy `name` amount to.
    pub fn explanation(&self, name: &str) -> Option<&Explanation> {
        Some(&self.rules.iter().find(|rule| rule.name() == name)?.about().explanation)
    }

    /// Has every policy ask the state store for what it needs to know of a request.
    pub fn ask(&self, request: &FactKeys<'_>, batch: &mut Batch) -> AskingPolicies {
        let asking = self.rules.iter().enumerate();
        AskingPolicies(asking.filter_map(|(nth, rule)| Some((nth, rule.ask(request, batch)?))).collect())
    }

    /// As [`Self::read_with`], where nothing is known beside the conversation.
    pub fn read(&self, transcript: &Transcript) -> (Plan, Judge) {
        self.read_with(transcript, &AskingPolicies::default())
    }

    /// Folds the whole conversation: returns the plan, and a judge that knows the conversation. `asked`: the policies that
    /// have received what the state store knows.
    pub fn read_with(&self, transcript: &Transcript, asked: &AskingPolicies) -> (Plan, Judge) {
        let request = RequestView::new(transcript, self.cuts_results);
        let snapshots = Snapshots::new(self, &request);
        let mut known = snapshots.as_ref().and_then(Snapshots::find);
        let mut plan = Plan::default();
        let mut open = self.open_folds(&request, asked, known.as_deref(), &mut plan);
        if known.as_ref().is_some_and(|known| open.need_all_items || known.opened != plan) {
            known = None;
            open = self.open_folds(&request, asked, None, &mut plan);
        }
        let OpenFolds { mut folds, need_all_items } = open;
        let mut position = known.as_ref().map_or_else(EventPosition::default, |known| known.position);
        let snapshots = snapshots.filter(|_| !need_all_items);
        let next = snapshots.and_then(|snapshots| snapshots.prepare(&plan, position));
        if let Some(known) = &known {
            plan.clone_from(&known.plan);
        }
        let mut readers = self.readers(&mut folds);
        if let Some(next) = next {
            position = readers.read_until(next.end, position, transcript, &mut plan);
            next.keep(readers.folds(), &plan, position);
        }
        readers.read_until(transcript.len(), position, transcript, &mut plan);
        for (fold, name) in folds.iter().zip(self.names()) {
            plan.move_to(transcript.len(), name);
            fold.close(&mut plan);
        }
        plan.hide_in_notices();
        let judge = Judge::new(self, &request, folds, &plan);
        (plan, judge)
    }
}

/// See [`PolicySet::accounting`].
fn accounting_of<'a>(
    engine: impl Iterator<Item = &'a EngineService>,
    confirming: Option<&Confirming>,
) -> Option<Accounting> {
    let asks_in_chat = confirming.is_some_and(|confirming| confirming.hold_ms().is_none());
    let turns = asks_in_chat.then(Accounting::default);
    let join = |one: Accounting, other: Accounting| Accounting {
        tokens: one.tokens || other.tokens,
        spend: one.spend || other.spend,
        day: one.day || other.day,
        calls: one.calls || other.calls,
        ahead: one.ahead || other.ahead,
    };
    let wanted = engine.filter_map(|service| match service {
        EngineService::KeepAccount(accounting) => Some(*accounting),
        _ => None,
    });
    wanted.chain(turns).reduce(join)
}

/// The folds before the first event.
struct OpenFolds {
    folds: Folds,
    /// See [`Finding::AllItemsNeeded`].
    need_all_items: bool,
}

/// The folds that read events, each with its policy's name and the kinds of its events.
struct EventReaders<'a>(Vec<(&'a mut Box<dyn Fold>, &'static str, EventKinds)>);

impl PolicySet {
    /// Opens the folds, those that read events with the states that they have in the snapshot; `plan` becomes their plan before
    /// the first event. `asked`: see [`Self::read_with`].
    fn open_folds(
        &self,
        request: &RequestView<'_>,
        asked: &AskingPolicies,
        known: Option<&FoldSnapshot>,
        plan: &mut Plan,
    ) -> OpenFolds {
        *plan = Plan::default();
        plan.order = request.transcript.order().clone();
        plan.definition_tokens = request.definition_tokens.tokens();
        let mut known = known.into_iter().flat_map(FoldSnapshot::folds);
        let mut folds = Folds::with_capacity(self.rules.len());
        for (nth, rule) in self.rules.iter().enumerate() {
            let known = if self.events[nth].is_empty() { None } else { known.next() };
            let mut fold = known.or_else(|| asked.fold(nth)).unwrap_or_else(|| rule.start());
            plan.move_to(0, rule.name());
            fold.open(request, plan);
            folds.push(fold);
        }
        let is_needed = |finding: &Finding| *finding == Finding::AllItemsNeeded;
        let need_all_items = plan.findings().any(|(_, finding)| is_needed(finding));
        // It may depend on what was counted for earlier requests, which the plan does not.
        plan.forget_findings(is_needed);
        OpenFolds { folds, need_all_items }
    }

    /// Those of `folds` that read events.
    fn readers<'a>(&self, folds: &'a mut Folds) -> EventReaders<'a> {
        let readers = folds.iter_mut().zip(self.names()).zip(&*self.events);
        let readers = readers.filter(|(_, events)| !events.is_empty());
        EventReaders(readers.map(|((fold, name), events)| (fold, name, *events)).collect())
    }
}

impl EventReaders<'_> {
    /// The folds, in registry order.
    fn folds(&self) -> impl Iterator<Item = &dyn Fold> {
        self.0.iter().map(|(fold, ..)| &***fold)
    }

    /// Has the events from `position` on read that are before the item at `end`. Returns the position after them.
    fn read_until(
        &mut self,
        end: usize,
        position: EventPosition,
        transcript: &Transcript,
        plan: &mut Plan,
    ) -> EventPosition {
        let approvals =
            transcript.account.as_ref().map_or([].as_slice(), |account| account.approvals.as_slice());
        let goes_on =
            |event: &Event<'_>| matches!(event, Event::TurnBegins(view) if approvals.contains(&view.index));
        transcript.read_events_until(end, position, |event| {
            if goes_on(event) {
                return;
            }
            let (message, kind) = (event.message(), event.kind());
            for (fold, name, _) in self.0.iter_mut().filter(|(.., events)| events.contains(kind)) {
                plan.move_to(message, name);
                fold.read(event, plan);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::Allow;
    use crate::budget::Budget;
    use crate::cases::{built, default_of, policy, set_times, somebody};
    use model::testing::{SampleRequest, assistant, call, reply, result, system, user};

    #[test]
    fn a_set_restricts_calls_where_one_of_its_policies_decides_which_tools_may_be_called() {
        let budget = || policy::<Budget>("");
        assert!(!PolicySet::default().restricts_calls());
        assert!(!PolicySet::new(vec![budget()]).restricts_calls());
        assert!(PolicySet::new(vec![budget(), policy::<Allow>("except = [\"f\"]")]).restricts_calls());
    }

    /// The policies that say so of themselves with the default settings.
    fn all_that(say: impl Fn(&About) -> bool) -> Vec<&'static str> {
        let entries = crate::REGISTRY.iter();
        entries.filter(|entry| say(built(entry, default_of(entry)).about())).map(|entry| entry.name).collect()
    }

    #[test]
    fn these_policies_read_no_events_and_no_others() {
        let expected = ["kill", "allow", "arguments", "serial", "definitions"];
        assert_eq!(all_that(|about| about.ignored_events == EventKinds::all()), expected);
    }

    #[test]
    fn these_policies_read_some_events_alone() {
        let some =
            |about: &About| !about.ignored_events.is_empty() && about.ignored_events != EventKinds::all();
        assert_eq!(all_that(some), ["budget", "rate_limit", "truncate"]);
    }

    #[test]
    fn a_policy_plans_the_same_where_it_is_given_the_events_that_it_ignores() {
        let long = "many words ".repeat(3_000);
        let turn = |id| [user("q"), reply([call(id, "f", "{}")]), result(id, &long), assistant("done")];
        let request =
            SampleRequest::new(&[&[system("s")], &turn("a")[..], &turn("b"), &[user("?")]].concat());
        let planned = |set: &PolicySet| {
            let mut transcript = request.transcript(&somebody());
            set_times(&mut transcript, &[Some(1), Some(2)], 3);
            let (plan, judge) = set.read(&transcript);
            format!("{plan:?} {:?}", judge.usage(3))
        };
        let budget = crate::REGISTRY.iter().find(|entry| entry.name == "budget").unwrap();
        let shipped = crate::REGISTRY.iter().map(|entry| (entry, default_of(entry)));
        for (entry, table) in shipped.chain([(budget, "context_tokens = 50")]) {
            let mut set = PolicySet::new(vec![built(entry, table)]);
            let usual = planned(&set);
            set.events = [EventKinds::all()].into();
            assert_eq!(usual, planned(&set), "{}", entry.name);
        }
    }

    #[test]
    fn these_policies_restrict_calls_and_no_others() {
        let restricting = all_that(|about| about.restricts_calls);
        let expected = ["turn_limits", "states", "duplicates", "serial", "fresh", "taint", "confirm"];
        assert_eq!(restricting, expected);
    }
}
