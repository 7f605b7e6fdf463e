//! The whole profile `tutor`, all its policies together, against a plain tutor of the test's own: random lessons, and
//! no verdict ever lets through a second award for a card, a skip, or an award for another card than the one on the
//! table; what the plain tutor would do passes. The reference knows steps of a lesson, no JSON and no states.

use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use policies::REGISTRY;
use policies::set::{Judge, PolicySet};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Source};

/// What a student writes. The last says nothing, but it is a message.
const ANSWERS: [&str; 4] = ["A cat.", "It sleeps, I think?", "猫", "?"];
/// What a tutor says, and whether that holds a question.
const WORDS: [(&str, bool); 4] =
    [("What is it?", true), ("Right.", false), ("这是什么？", true), ("Hm? Well.", true)];
/// The tools' answers to an award and whether the points are there then.
const AWARDED: [(&str, bool); 4] = [
    ("{\"total\":2}", true),
    ("", true),
    ("Error: locked", false),
    ("{\"ok\":false,\"error\":\"busy\"}", false),
];
/// Where show_next_card says which card it is.
const SHAPES: [&str; 3] = ["card_id", "card.id", "id"];

/// Policies of the profile that count earlier calls and messages.
const COUNTING: [&str; 3] = ["budget", "loops", "min_conversation"];

/// A call that the model may propose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    /// For the card of this number.
    Award(usize),
    /// For the card on the table.
    AwardThis,
    Show,
    /// A tool that has nothing to do with the order of steps.
    LookUp,
    /// A tool that would delete the learner's points.
    Reset,
}

/// One reply of the model's, or one message of the student's, and what becomes of it.
#[derive(Clone, Debug)]
enum Step {
    Student(usize),
    Tutor(usize),
    /// The calls of one reply with what each would be answered, and whether text stands beside them.
    Calls(Vec<(Call, usize)>, bool),
    /// What the plain tutor would do next, or the student.
    Onward,
    /// The reply was made and judged, but the client was gone: it asks again with what it has.
    Unheard(Vec<Call>),
}

/// The plain tutor: what has happened with the card on the table.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Cards are numbered as they come to the table.
    card: usize,
    asked: bool,
    answered_once: bool,
    asked_again: bool,
    answered_twice: bool,
    awarded: bool,
    /// Every card that has its points.
    paid: Vec<usize>,
}

impl Table {
    fn student(&mut self) {
        if self.asked_again {
            self.answered_twice = true;
        } else if self.asked {
            self.answered_once = true;
        }
    }

    fn tutor(&mut self, asks: bool) {
        if self.answered_once {
            self.asked_again = true;
        } else if asks {
            self.asked = true;
        }
    }

    /// Whether a tutor who keeps to the rules would make this call, as the first of a reply.
    fn may(&self, call: Call) -> bool {
        match call {
            Call::Award(card) => {
                let on_table = card == self.card;
                self.answered_twice && !self.awarded && on_table && !self.paid.contains(&card)
            }
            Call::AwardThis => self.may(Call::Award(self.card)),
            Call::Show => self.awarded,
            Call::LookUp => true,
            Call::Reset => false,
        }
    }

    /// The step that continues the lesson from here.
    fn onward(&self) -> Step {
        match [Call::AwardThis, Call::Show].into_iter().find(|call| self.may(*call)) {
            Some(call) => Step::Calls(vec![(call, 0)], false),
            None if self.asked == self.answered_once && self.asked_again == self.answered_twice => {
                Step::Tutor(0)
            }
            None => Step::Student(0),
        }
    }

    fn award(&mut self, card: usize) {
        self.awarded = true;
        self.paid.push(card);
    }

    fn show(&mut self) {
        let Self { card, paid, .. } = std::mem::take(self);
        *self = Self { card: card + 1, paid, ..Self::default() };
    }
}

/// A lesson as it is led by a program and a model in front of the profile.
struct Lesson<'a> {
    policies: &'a PolicySet,
    shape: &'static str,
    messages: Vec<Value>,
    table: Table,
}

impl Lesson<'_> {
    /// Does the step with what the profile lets through, and holds every verdict against the plain tutor's.
    fn step(&mut self, at: usize, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Student(text) => {
                self.messages.push(json!({"role": "user", "content": ANSWERS[*text]}));
                self.table.student();
            }
            Step::Tutor(text) => {
                self.messages.push(json!({"role": "assistant", "content": WORDS[*text].0}));
                self.table.tutor(WORDS[*text].1);
            }
            Step::Calls(calls, beside) => {
                let proposed: Vec<Call> = calls.iter().map(|(call, _)| *call).collect();
                let released = self.judged(&proposed)?;
                let made: Vec<(Call, usize)> = released.into_iter().map(|place| calls[place]).collect();
                if !made.is_empty() {
                    self.run(at, &made, *beside);
                }
            }
            Step::Onward => self.step(at, &self.table.onward())?,
            Step::Unheard(calls) => {
                let first = self.judged(calls)?;
                prop_assert_eq!(first, self.judged(calls)?, "the same request is judged the same");
            }
        }
        Ok(())
    }

    /// The places of the calls that are let through out of one reply.
    fn judged(&self, calls: &[Call]) -> Result<Vec<usize>, TestCaseError> {
        let mut judge = self.judge();
        let mut released = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            let (name, arguments) = self.spelled(*call);
            let ruling = judge.rule(0, name, Some(&arguments), 0);
            let allowed = ruling.is_allowed();
            // Of one reply the first good call alone: the next was chosen before its result.
            let expected = released.is_empty() && self.table.may(*call);
            let told = || {
                format!("{call:?} as {place} of {calls:?} with {:?}\n{}", self.table, json!(self.messages))
            };
            prop_assert!(!allowed || expected, "let through: {}", told());
            // These look at how much there was, not at the order of steps.
            let counts = ruling.objections.iter().all(|(policy, _)| COUNTING.contains(policy));
            prop_assert!(allowed || !expected || counts, "blocked: {ruling:?} {}", told());
            if allowed {
                released.push(place);
            }
        }
        Ok(released)
    }

    /// The program runs the calls and answers them.
    fn run(&mut self, at: usize, made: &[(Call, usize)], beside: bool) {
        let id = |nth: usize| format!("call_{at}_{nth}");
        let calls = made.iter().enumerate().map(|(nth, (call, _))| {
            let (name, arguments) = self.spelled(*call);
            json!({"id": id(nth), "type": "function", "function": {"name": name, "arguments": arguments}})
        });
        let calls: Vec<Value> = calls.collect();
        let content = if beside { json!("Let me see. Ready?") } else { Value::Null };
        self.messages.push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
        for (nth, (call, answer)) in made.iter().enumerate() {
            let answer = self.answer(*call, *answer);
            self.messages.push(json!({"role": "tool", "tool_call_id": id(nth), "content": answer}));
        }
    }

    fn answer(&mut self, call: Call, nth: usize) -> String {
        match call {
            Call::Award(card) => {
                let (text, done) = AWARDED[nth];
                if done {
                    self.table.award(card);
                }
                text.to_owned()
            }
            Call::AwardThis => self.answer(Call::Award(self.table.card), nth),
            // A failure is as likely as with awards; a card that does not say which it is there is none.
            Call::Show if AWARDED[nth].1 => {
                self.table.show();
                let id = card_id(self.table.card);
                let card = match self.shape {
                    "card.id" => json!({"card": {"id": id, "front": "a picture"}}),
                    shape => json!({shape: id, "front": "a picture"}),
                };
                card.to_string()
            }
            Call::Show => AWARDED[nth].0.to_owned(),
            Call::LookUp | Call::Reset => "It stands in the book.".to_owned(),
        }
    }

    fn spelled(&self, call: Call) -> (&'static str, String) {
        match call {
            // Two names of the tool, and of its argument.
            Call::Award(card) if self.messages.len().is_multiple_of(2) => {
                ("award_mastery_points", json!({"points": 2, "cardId": card_id(card)}).to_string())
            }
            Call::Award(card) => ("award_points", json!({"points": 2, "card_id": card_id(card)}).to_string()),
            Call::AwardThis => self.spelled(Call::Award(self.table.card)),
            Call::Show => ("show_next_card", "{}".to_owned()),
            Call::LookUp => ("lookup_word", "{\"word\":\"cat\"}".to_owned()),
            Call::Reset => ("reset_points", "{}".to_owned()),
        }
    }

    /// A judge that has read the conversation and nothing else, as after a restart.
    fn judge(&self) -> Judge {
        let card = json!({"type": "string"});
        let award = |argument: &str| {
            json!({"type": "object", "required": [argument],
                "properties": {argument: card, "points": {"type": "integer"}}})
        };
        let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        let any = json!({"type": "object"});
        let tools = json!([
            tool("award_points", award("card_id")),
            tool("award_mastery_points", award("cardId")),
            tool("show_next_card", any.clone()),
            tool("lookup_word", any.clone()),
            tool("reset_points", any),
        ]);
        let body = json!({"model": "m", "tools": tools, "messages": self.messages}).to_string();
        let request = dialects::chat::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None };
        let transcript = Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
        self.policies.read(&transcript).1
    }
}

fn card_id(card: usize) -> String {
    format!("c{card}")
}

/// The profile as shipped, with a first card that the system message names; or, as its head tells, with all cards dealt
/// by the tool.
fn profile(all_dealt: bool, shape: &str) -> PolicySet {
    let mut text = include_str!("../../deploy/profiles/tutor.toml").to_owned();
    if all_dealt {
        for (shipped, instead) in [
            ("start = \"start\"", "start = \"next_card\""),
            ("unknown = \"named\"", "unknown = \"block\""),
            ("show_next_card = { min_exchanges = 1, min_user_messages = 2, min_user_words = 10 }\n", ""),
        ] {
            assert_eq!(text.matches(shipped).count(), 1, "{shipped}");
            text = text.replace(shipped, instead);
        }
        let other = |line: &&str| line.contains("path = ") && !line.contains(&format!("path = \"{shape}\""));
        text = text.lines().filter(|line| !other(line)).collect::<Vec<_>>().join("\n");
        assert_eq!(text.matches("path = ").count(), 2, "one for each name of the argument");
    }
    let source = Source::Text { name: "tutor.toml".to_owned(), text };
    let config = Config::load(source, &Overrides::default(), REGISTRY).unwrap();
    let profile = config.profiles.named("tutor").unwrap();
    config.policies_of(Some(profile)).clone()
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => (0..4_usize).prop_map(Call::Award),
        4 => Just(Call::AwardThis),
        4 => Just(Call::Show),
        1 => Just(Call::LookUp),
        1 => Just(Call::Reset),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    // Good answers are more frequent than failures, so that lessons make progress.
    let answer = prop_oneof![3 => 0..2_usize, 1 => 2..4_usize];
    prop_oneof![
        6 => (0..ANSWERS.len()).prop_map(Step::Student),
        6 => (0..WORDS.len()).prop_map(Step::Tutor),
        6 => (prop::collection::vec((any_call(), answer), 1..4), any::<bool>())
            .prop_map(|(calls, beside)| Step::Calls(calls, beside)),
        1 => prop::collection::vec(any_call(), 1..4).prop_map(Step::Unheard),
        18 => Just(Step::Onward),
    ]
}

/// `make test-fast` tries a fifth of the cases.
fn cases() -> u32 {
    if std::env::var_os("FAST").is_some() { 40 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_lesson_lets_through_a_second_award_a_skip_or_an_award_for_another_card(
        steps in prop::collection::vec(any_step(), 0..50),
        shape in prop::sample::select(SHAPES.to_vec()),
        all_dealt in any::<bool>(),
    ) {
        let policies = profile(all_dealt, shape);
        // Before the first card is dealt there is none to talk about.
        let table = Table { awarded: all_dealt, ..Table::default() };
        let named = json!({"role": "system", "content": format!("Teach. On the table: {}.", card_id(0))});
        let mut lesson = Lesson { policies: &policies, shape, messages: vec![named], table };
        for (at, step) in steps.iter().enumerate() {
            lesson.step(at, step)?;
        }
    }
}
