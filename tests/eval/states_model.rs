//! The states of a conversation against a plain machine of the test's own: random machines, random conversations,
//! the same states, the same verdicts, the same notices. The reference knows steps of a conversation, no JSON.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::plan::Change;
use policies::REGISTRY;
use policies::set::{Judge, PolicySet};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Source};

/// No two of these names differ by only one letter.
const TOOLS: [&str; 3] = ["alpha", "bravo", "charlie"];
/// What users and assistants say: the text, its words, whether it asks, whether it matches `stop`.
const TEXTS: [(&str, usize, bool, bool); 6] = [
    ("Yes.", 1, false, false),
    ("And what now?", 3, true, false),
    ("please stop", 2, false, true),
    ("你看到了什么？", 3, true, false),
    ("Tell me: will it **stop?!**", 5, true, true),
    ("", 0, false, false),
];
/// What tools answer, and what that is.
const RESULTS: [(&str, Outcome); 5] = [
    ("done", Outcome::Success),
    ("{\"points\":0}", Outcome::Success),
    ("Error: no", Outcome::Failure),
    ("{\"ok\":false}", Outcome::Failure),
    ("[]", Outcome::Nothing),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Success,
    Failure,
    Nothing,
}

/// The reference's own machine.
#[derive(Clone, Debug)]
struct Plain {
    states: Vec<PlainState>,
    always: Option<usize>,
}

#[derive(Clone, Debug)]
struct PlainState {
    /// Which of the tools may be called; `None`: all.
    tools: Option<[bool; 3]>,
    text: bool,
    on: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    event: &'static str,
    tool: Option<usize>,
    stop: bool,
    words: usize,
    count: u32,
    to: usize,
}

/// A step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    User(usize),
    Says(usize),
    /// Calls made at once, each a tool and its result, and the text beside them.
    Calls(Vec<(usize, usize)>, usize),
}

/// What happens, as the reference sees it.
#[derive(Clone, Copy)]
enum Fact {
    User(usize),
    Says(usize),
    Called(usize),
    Answered(usize, Outcome),
}

/// Where the reference stands: everything since the state was entered, kept as it came.
#[derive(Clone)]
struct Stand {
    state: usize,
    since: Vec<Fact>,
    /// Entered and not told yet.
    news: bool,
}

impl Plain {
    fn toml(&self) -> String {
        let names = |tools: &[bool; 3]| {
            let names = TOOLS.iter().zip(tools).filter(|(_, allowed)| **allowed);
            names.map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
        };
        let mut out = "[policy.states]\nstart = \"s0\"\n".to_owned();
        if let Some(tool) = self.always {
            writeln!(out, "always = [\"{}*\"]", TOOLS[tool]).unwrap();
        }
        for (at, state) in self.states.iter().enumerate() {
            writeln!(out, "[policy.states.state.s{at}]\nfinal = {}", state.on.is_empty()).unwrap();
            if let Some(tools) = &state.tools {
                writeln!(out, "tools = [{}]", names(tools)).unwrap();
            }
            if state.text {
                writeln!(out, "text = \"This is s{at}.\"").unwrap();
            }
            for rule in &state.on {
                let Rule { event, count, to, .. } = rule;
                writeln!(
                    out,
                    "[[policy.states.state.s{at}.on]]\nevent = \"{event}\"\ncount = {count}\nto = \"s{to}\""
                )
                .unwrap();
                if let Some(tool) = rule.tool {
                    writeln!(out, "tool = \"{}\"", TOOLS[tool]).unwrap();
                }
                if rule.stop {
                    writeln!(out, "pattern = \"(?i)sto[p]\"").unwrap();
                }
                if rule.words > 0 {
                    writeln!(out, "words = {}", rule.words).unwrap();
                }
            }
        }
        out
    }

    fn allows(&self, state: usize, tool: usize) -> bool {
        self.always == Some(tool) || self.states[state].tools.is_none_or(|tools| tools[tool])
    }

    fn happen(&self, fact: Fact, stand: &mut Stand) {
        stand.since.push(fact);
        let done = self.states[stand.state].on.iter().find(|rule| {
            let come = stand.since.iter().filter(|fact| rule.fits(**fact)).count();
            rule.fits(fact) && come >= rule.count as usize
        });
        if let Some(rule) = done {
            *stand = Stand { state: rule.to, since: Vec::new(), news: true };
        }
    }

    /// The reference at the end of `steps`, and the places at which it tells which state.
    fn run(&self, steps: &[Step]) -> (Stand, Vec<(usize, usize)>) {
        let mut stand = Stand { state: 0, since: Vec::new(), news: true };
        let mut told = Vec::new();
        let mut message = 0;
        for step in steps {
            match step {
                Step::User(text) => self.happen(Fact::User(*text), &mut stand),
                Step::Says(text) => self.happen(Fact::Says(*text), &mut stand),
                Step::Calls(calls, _) => {
                    for (tool, _) in calls {
                        self.happen(Fact::Called(*tool), &mut stand);
                    }
                    for (tool, result) in calls {
                        self.happen(Fact::Answered(*tool, RESULTS[*result].1), &mut stand);
                    }
                    message += calls.len();
                }
            }
            if !matches!(step, Step::Says(_)) {
                if stand.news && self.states[stand.state].text {
                    told.push((message, stand.state));
                }
                stand.news = false;
            }
            message += 1;
        }
        (stand, told)
    }
}

impl Rule {
    fn fits(&self, fact: Fact) -> bool {
        let is_tool = |tool: usize| self.tool.is_none_or(|own| own == tool);
        let says = |text: usize| !self.stop || TEXTS[text].3;
        match (self.event, fact) {
            ("user_message", Fact::User(text)) => TEXTS[text].1 >= self.words && says(text),
            ("assistant_message", Fact::Says(text)) => !TEXTS[text].0.is_empty() && says(text),
            ("assistant_question", Fact::Says(text)) => TEXTS[text].2 && says(text),
            ("tool_called", Fact::Called(tool)) => is_tool(tool),
            ("tool_succeeded", Fact::Answered(tool, Outcome::Success))
            | ("tool_failed", Fact::Answered(tool, Outcome::Failure))
            | ("tool_empty", Fact::Answered(tool, Outcome::Nothing)) => is_tool(tool),
            _ => false,
        }
    }
}

fn any_rule(states: usize) -> impl Strategy<Value = Rule> {
    let events = [
        "user_message",
        "assistant_message",
        "assistant_question",
        "tool_called",
        "tool_succeeded",
        "tool_failed",
        "tool_empty",
    ];
    let event = prop::sample::select(events.to_vec());
    (event, prop::option::of(0..3_usize), prop::bool::weighted(0.2), 0..4_usize, 1..4_u32, 0..states)
        .prop_map(|(event, tool, stop, words, count, to)| {
            let of_tool = event.starts_with("tool");
            let tool = tool.filter(|_| of_tool);
            let words = if event == "user_message" { words } else { 0 };
            Rule { event, tool, stop: stop && !of_tool, words, count, to }
        })
}

/// Machines that the configuration takes; each state leads on to the next, so that most are.
fn any_machine() -> impl Strategy<Value = Plain> {
    let machine = (2..5_usize).prop_flat_map(|count| {
        let tools = prop::option::weighted(0.8, any::<[bool; 3]>());
        let state = (tools, any::<bool>(), prop::collection::vec(any_rule(count), 1..4));
        (prop::collection::vec(state, count), prop::option::weighted(0.3, 0..3_usize))
    });
    let machine = machine.prop_map(|(states, always)| {
        let count = states.len();
        let states = states.into_iter().enumerate().map(|(at, (tools, text, mut on))| {
            on[0].to = (at + 1) % count;
            PlainState { tools, text, on }
        });
        Plain { states: states.collect(), always }
    });
    machine.prop_filter("refused", |plain| load(plain).is_some())
}

fn load(plain: &Plain) -> Option<PolicySet> {
    let source =
        Source::Text { name: "machine.toml".to_owned(), text: format!("base = \"none\"\n{}", plain.toml()) };
    Config::load(source, &Overrides::default(), REGISTRY).ok().map(|config| config.policies)
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let texts = 0..TEXTS.len();
    let calls = prop::collection::vec((0..TOOLS.len(), 0..RESULTS.len()), 1..4);
    let step = prop_oneof![
        2 => texts.clone().prop_map(Step::User),
        2 => texts.clone().prop_map(Step::Says),
        3 => (calls, texts).prop_map(|(calls, text)| Step::Calls(calls, text)),
    ];
    prop::collection::vec(step, 0..16)
}

fn body(steps: &[Step]) -> String {
    let mut messages: Vec<Value> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::User(text) => messages.push(json!({"role": "user", "content": TEXTS[*text].0})),
            Step::Says(text) => messages.push(json!({"role": "assistant", "content": TEXTS[*text].0})),
            Step::Calls(calls, text) => {
                let id = |nth: usize| format!("c{at}_{nth}");
                let made = calls.iter().enumerate().map(|(nth, (tool, _))| {
                    json!({"id": id(nth), "type": "function",
                        "function": {"name": TOOLS[*tool], "arguments": "{}"}})
                });
                let made: Vec<Value> = made.collect();
                messages.push(json!({"role": "assistant", "content": TEXTS[*text].0, "tool_calls": made}));
                messages.extend(calls.iter().enumerate().map(|(nth, (_, result))| {
                    json!({"role": "tool", "tool_call_id": id(nth), "content": RESULTS[*result].0})
                }));
            }
        }
    }
    json!({"model": "m", "messages": messages}).to_string()
}

/// The places at which the program tells which state, and its judge of the reply.
fn read(policies: &PolicySet, steps: &[Step]) -> (Vec<(usize, usize)>, Judge) {
    let body = body(steps);
    let request = dialects::chat::parse(body.as_bytes()).unwrap();
    let identity = Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
    let (plan, judge) = policies.read(&transcript);
    let told = plan.edits.iter().map(|edit| {
        let Change::Notice { text, .. } = &edit.change else { panic!("{edit:?}") };
        let (_, state) = text.split_once("State: s").unwrap();
        (edit.item.index, state.split('.').next().unwrap().parse().unwrap())
    });
    (told.collect(), judge)
}

/// `make test-fast` tries a fifth of the cases.
fn cases() -> u32 {
    if std::env::var_os("FAST").is_some() { 80 } else { 400 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn states_verdicts_and_notices_are_those_of_the_reference(
        plain in any_machine(),
        steps in any_steps(),
        proposed in prop::collection::vec(0..3_usize, 1..5),
    ) {
        let policies = load(&plain).unwrap();
        // Every beginning of the conversation is one that some request ended with.
        for end in 0..=steps.len() {
            let (mut stand, told) = plain.run(&steps[..end]);
            let (found, mut judge) = read(&policies, &steps[..end]);
            prop_assert_eq!(&found, &told, "after {} steps\n{}", end, plain.toml());
            for tool in &proposed {
                let ruling = judge.rule(0, TOOLS[*tool], None, 0);
                let allowed = plain.allows(stand.state, *tool);
                prop_assert_eq!(ruling.is_allowed(), allowed, "{} after {} steps\n{}", TOOLS[*tool], end, plain.toml());
                if allowed {
                    plain.happen(Fact::Called(*tool), &mut stand);
                } else {
                    let message = &ruling.objections[0].1.message;
                    let state = format!("may not be called in the state s{}.", stand.state);
                    prop_assert!(message.contains(&state), "{} is not in {}", state, message);
                }
            }
        }
    }

    #[test]
    fn released_calls_move_the_judge_to_the_state_of_the_next_request(
        plain in any_machine(),
        steps in any_steps(),
        proposed in prop::collection::vec((0..3_usize, 0..RESULTS.len()), 1..5),
    ) {
        let policies = load(&plain).unwrap();
        let (_, mut judge) = read(&policies, &steps);
        let released: Vec<(usize, usize)> =
            proposed.into_iter().filter(|(tool, _)| judge.rule(0, TOOLS[*tool], None, 0).is_allowed()).collect();
        prop_assume!(!released.is_empty());
        // In the reference every call that was let through was allowed where it stood.
        let (mut stand, _) = plain.run(&steps);
        for (tool, _) in &released {
            prop_assert!(plain.allows(stand.state, *tool));
            plain.happen(Fact::Called(*tool), &mut stand);
        }
        let next = [steps.as_slice(), &[Step::Calls(released, 0)]].concat();
        let (stand, _) = plain.run(&next);
        let (_, mut judge) = read(&policies, &next);
        for (at, tool) in TOOLS.iter().enumerate() {
            // A judge of another choice each: nothing that was let through moves the next.
            let ruling = judge.rule(at as u32, tool, None, 0);
            prop_assert_eq!(ruling.is_allowed(), plain.allows(stand.state, at));
        }
    }
}
