//! Test scenarios: conversations as plain data. Shared by the cases and the property tests of
//! policies that look at the whole conversation.

use super::set::{Judge, Rule, RuleOf};
use super::{ConfigError, Policy, cases};
use model::Event;
use model::plan::{Plan, Reason};
use model::testing::{self, SampleItem, SampleRequest};
use proptest::prelude::*;
use std::sync::Arc;

/// Now, in every scenario, in ms.
pub(super) const NOW_MS: u64 = 1_000_000;

/// One message, or a reply with the results of its calls.
#[derive(Clone, Debug)]
pub(super) enum Step {
    User(String),
    Says(String),
    Calls(Vec<Made>),
}

/// A call, and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) tool: String,
    pub(super) arguments: String,
    /// None: it was never answered.
    pub(super) result: Option<String>,
    pub(super) released_ms: Option<u64>,
}

/// The user says something.
pub(super) fn user(text: &str) -> Step {
    Step::User(text.to_owned())
}

/// The assistant answers in text.
pub(super) fn says(text: &str) -> Step {
    Step::Says(text.to_owned())
}

/// A reply of these calls: tool, arguments and result each.
pub(super) fn calls(made: &[(&str, &str, &str)]) -> Step {
    let owned = |&(tool, arguments, result): &(&str, &str, &str)| Made {
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        result: Some(result.to_owned()),
        released_ms: None,
    };
    Step::Calls(made.iter().map(owned).collect())
}

/// A reply of one call, handed out at `released_ms`.
pub(super) fn call_at(made: (&str, &str, &str), released_ms: u64) -> Step {
    let Step::Calls(mut reply) = calls(&[made]) else { unreachable!() };
    reply[0].released_ms = Some(released_ms);
    Step::Calls(reply)
}

/// The scenario as messages.
pub(super) fn items(scenario: &[Step]) -> Vec<SampleItem> {
    let mut items = Vec::new();
    for (at, step) in scenario.iter().enumerate() {
        match step {
            Step::User(text) => items.push(testing::user(text)),
            Step::Says(text) => items.push(testing::assistant(text)),
            Step::Calls(made) => {
                let id = |place: usize| format!("c{at}_{place}");
                let made = || made.iter().enumerate();
                items.push(testing::reply(
                    made().map(|(place, call)| testing::call(&id(place), &call.tool, &call.arguments)),
                ));
                items.extend(
                    made().filter_map(|(place, call)| {
                        Some(testing::result(&id(place), call.result.as_deref()?))
                    }),
                );
            }
        }
    }
    items
}

/// What `rules`, one after the other, make of the scenario.
pub(super) fn read(rules: &[Arc<dyn Rule>], scenario: &[Step]) -> (Plan, Judge) {
    let released = scenario.iter().filter_map(|step| match step {
        Step::Calls(made) => Some(made.iter().map(|call| call.released_ms)),
        _ => None,
    });
    let released: Vec<Option<u64>> = released.flatten().collect();
    cases::read_knowing(rules, &SampleRequest::new(&items(scenario)), |transcript| {
        cases::set_times(transcript, &released, NOW_MS);
    })
}

/// What the policy `P` decides on the calls of the next reply, one after the other.
pub(super) fn verdicts<P: Policy>(
    table: &str,
    scenario: &[Step],
    reply: &[(&str, &str)],
) -> Vec<Option<Reason>> {
    let mut judge = read(&[cases::policy::<P>(table)], scenario).1;
    let rulings = reply.iter().map(|(tool, arguments)| judge.rule(0, tool, Some(arguments), NOW_MS));
    rulings.map(|mut ruling| ruling.objections.pop().map(|(_, reason)| reason)).collect()
}

/// Which of the calls of the next reply pass.
pub(super) fn passes<P: Policy>(table: &str, scenario: &[Step], reply: &[(&str, &str)]) -> Vec<bool> {
    verdicts::<P>(table, scenario, reply).iter().map(Option::is_none).collect()
}

/// The first problem's key with the settings of `table`.
pub(super) fn problem<P: Policy>(table: &str) -> String {
    let config: P::Config = toml::from_str(table).unwrap();
    let problems: Vec<ConfigError> = P::new(config).err().unwrap();
    problems[0].to_string()
}

/// Random conversations over these tools, arguments and results. Some calls are never answered, some times unknown.
pub(super) fn random(
    tools: &'static [&'static str],
    arguments: &'static [&'static str],
    results: &'static [&'static str],
) -> impl Strategy<Value = Vec<Step>> {
    let made = (
        prop::sample::select(tools),
        prop::sample::select(arguments),
        prop::option::weighted(0.95, prop::sample::select(results)),
        prop::option::weighted(0.8, 0..NOW_MS),
    );
    let made = made.prop_map(|(tool, arguments, result, released_ms)| Made {
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        result: result.map(str::to_owned),
        released_ms,
    });
    let words = prop::sample::select(&["yes", "so it is, I think", "", "  ", "再来"][..]);
    let step = prop_oneof![
        2 => words.clone().prop_map(user),
        2 => words.prop_map(says),
        5 => prop::collection::vec(made, 1..4).prop_map(Step::Calls),
    ];
    prop::collection::vec(step, 0..14).prop_map(|mut scenario| {
        // Calls are handed out one after the other.
        let all = scenario
            .iter_mut()
            .filter_map(|step| if let Step::Calls(made) = step { Some(made) } else { None });
        let mut known: Vec<&mut u64> = all.flatten().filter_map(|call| call.released_ms.as_mut()).collect();
        let mut times: Vec<u64> = known.iter().map(|at| **at).collect();
        times.sort_unstable();
        known.iter_mut().zip(times).for_each(|(at, sorted)| **at = sorted);
        scenario
    })
}

/// A reply whose calls are random.
pub(super) fn random_reply(
    tools: &'static [&'static str],
    arguments: &'static [&'static str],
) -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    prop::collection::vec((prop::sample::select(tools), prop::sample::select(arguments)), 1..5)
}

/// The turn of each step, counted from 1; 0 before the first user message.
pub(super) fn turns(scenario: &[Step]) -> Vec<usize> {
    let (mut turn, mut answered, mut has_begun) = (0, false, false);
    let mut of_step = Vec::new();
    for step in scenario {
        match step {
            Step::User(_) => {
                turn += usize::from(answered || !has_begun);
                answered = false;
            }
            Step::Says(_) => answered = true,
            Step::Calls(_) => answered = false,
        }
        has_begun = true;
        of_step.push(turn);
    }
    of_step
}

/// A policy that does something to every result whose text holds its mark, before others read it.
pub(super) fn marking(mark: &'static str, act: fn(&mut Plan)) -> Arc<dyn Rule> {
    Arc::new(RuleOf::new(Marking { mark, act }))
}

struct Marking {
    mark: &'static str,
    act: fn(&mut Plan),
}

impl Policy for Marking {
    const NAME: &'static str = "marking";
    const SUMMARY: &'static str = "acts on marked results";
    type Config = toml::Table;
    type State = ();

    fn new(_config: toml::Table) -> Result<Self, Vec<ConfigError>> {
        Err(Vec::new())
    }

    fn read(&self, event: &Event<'_>, _state: &mut (), plan: &mut Plan) {
        if let Event::Result(result) = event
            && result.view.texts().any(|text| text.contains(self.mark))
        {
            (self.act)(plan);
        }
    }
}
