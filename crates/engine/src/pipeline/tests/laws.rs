//! Laws of the pipeline, whatever the dialect: they drive it with the codec of the made-up protocol and read what comes out
//! with a client of their own.

mod client;
mod replies;

pub(super) use self::client::Client;
use self::client::ReadChoice;
use self::replies::{Making, Reply, Wildness, arb_lines, arb_reply};
use super::lines::LinesCodec;
use super::*;
use crate::judging::Judged;
use model::plan::approval::ApprovalDecision;
use model::testing::{SampleRequest, user};
use policies::REGISTRY;
use policies::about::About;
use proptest::sample::Index;
use std::collections::{BTreeMap, BTreeSet};

/// What the policies of a pipeline want.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// They read arguments; else names alone decide.
    by_arguments: bool,
    /// Nothing passes unjudged.
    is_strict: bool,
    /// A person decides on calls of `pay`.
    holds: bool,
    observes: bool,
}

pub(super) const BY_NAME: Rules =
    Rules { by_arguments: false, is_strict: false, holds: false, observes: false };
pub(super) const BY_ARGUMENTS: Rules = Rules { by_arguments: true, ..BY_NAME };
pub(super) const STRICT: Rules = Rules { is_strict: true, ..BY_ARGUMENTS };
pub(super) const HELD: Rules = Rules { holds: true, ..BY_ARGUMENTS };

/// The arguments of a call that a policy has written anew.
const FIXED: &str = r#"{"q":"fixed"}"#;

impl Rules {
    fn denies_name(name: &str) -> bool {
        name.starts_with("deny")
    }

    /// Whether the arguments forbid a call. More of them may allow it again.
    fn denies(self, arguments: &str) -> bool {
        self.by_arguments && arguments.contains("bad") && !arguments.contains("sorry")
    }

    fn is_to_be_fixed(name: &str, arguments: &str) -> bool {
        name == "fix" && arguments.contains("spoilt")
    }

    /// Whether the client gets a call, and with which arguments; whoever holds calls lets them through.
    fn shown(self, name: &str, arguments: &str) -> Option<String> {
        match () {
            () if Self::denies_name(name) || name == "known" => None,
            () if Self::is_to_be_fixed(name, arguments) => Some(FIXED.to_owned()),
            () => (!self.denies(arguments)).then(|| arguments.to_owned()),
        }
    }
}

impl Policy for Rules {
    const NAME: &'static str = "rules";
    const SUMMARY: &'static str = "for tests";
    type Config = ();
    type State = ();

    fn new(_: ()) -> Result<Self, Vec<ConfigError>> {
        Ok(BY_NAME)
    }

    fn about(&self) -> About {
        About { restricts_calls: self.is_strict, ..About::default() }
    }

    fn judge(&self, call: &Proposed<'_>, _: &()) -> Verdict {
        let blocked = || Verdict::Block(Reason::new(ReasonKind::ModeRestricted, "no".to_owned()));
        match (call.name, call.arguments) {
            (name, _) if Self::denies_name(name) => blocked(),
            ("known", _) => Verdict::Answer { content: "It is known.".to_owned(), re_requests: None },
            ("fix", None) => Verdict::NeedsArguments,
            ("fix", Some(text)) if Self::is_to_be_fixed("fix", text) => Verdict::Modify(FIXED.to_owned()),
            (_, None) if self.by_arguments => Verdict::NeedsArguments,
            (_, Some(text)) if self.denies(text) => blocked(),
            _ => Verdict::Allow,
        }
    }
}

/// The judge of these rules and of the policies of `tables`, with a person who can be asked.
pub(super) fn judging_by(rules: Rules, tables: &str) -> Judging {
    let mut root = toml::de::DeTable::parse(tables).unwrap();
    let shipped = REGISTRY.iter().filter_map(|entry| {
        let table = root.get_mut().remove(entry.name)?;
        Some((entry.build)(toml::de::ValueDeserializer::from(table)).unwrap())
    });
    let own: Arc<dyn Rule> = Arc::new(RuleOf::new(rules));
    let tools = ["ok", "look", "deny", "denyAll", "fix", "known", "pay"];
    let request = SampleRequest::new(&[user("q")]);
    let request = tools.into_iter().fold(request, |request, tool| request.declaring(tool, "{}"));
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let judge =
        PolicySet::new([own].into_iter().chain(shipped).collect()).read(&request.transcript(&identity)).1;
    Judging::new(judge, AnswerTools::default(), rules.observes).with_token(Some("K7PQ3M".to_owned()))
}

pub(super) fn judging_of(rules: Rules) -> Judging {
    judging_by(rules, if rules.holds { "[confirm]\ntools = [\"pay\"]\nform = \"held\"\n" } else { "" })
}

/// A pipeline of the made-up protocol.
pub(super) fn piped(judging: Judging, form: Form, limits: Limits, has_name_pieces: bool) -> ReplyPipeline {
    let codec = Box::new(LinesCodec::new(form, limits, has_name_pieces));
    ReplyPipeline::with_codec(Box::new(judging), codec, form, limits, Options::default())
}

fn of_stream(rules: Rules) -> ReplyPipeline {
    piped(judging_of(rules), Form::Streamed, LIMITS, false)
}

fn of_whole(rules: Rules) -> ReplyPipeline {
    piped(judging_of(rules), Form::Whole, LIMITS, false)
}

fn feed(judge: &mut ReplyPipeline, bytes: &[u8], out: &mut Vec<Bytes>) {
    judge.push(Bytes::copy_from_slice(bytes), 0, out);
}

fn text_of(out: &[Bytes]) -> String {
    String::from_utf8_lossy(&out.concat()).into_owned()
}

/// What a person says of the call of this number.
fn is_approved(number: &str, words: u8) -> bool {
    let number: u64 = number.parse().unwrap();
    words >> (number % 8) & 1 == 1
}

/// Settles the first call that waits; false if none does.
fn settle_first(judge: &mut ReplyPipeline, words: u8, out: &mut Vec<Bytes>) -> bool {
    let Some((id, number)) = judge.judging.waiting().first().map(|call| (call.number, call.call.id())) else {
        return false;
    };
    let approved = is_approved(&number, words);
    let decision = if approved { ApprovalDecision::Approved } else { ApprovalDecision::Declined };
    settle(judge, id, decision, out);
    true
}

pub(super) const FINAL: &str =
    "{\"choice\":0,\"text\":\"final\"}\n{\"choice\":0,\"finish\":\"stop\"}\n{\"end\":true}\n";
const FINAL_BODY: &str =
    "[{\"choice\":0,\"text\":\"final\"},{\"choice\":0,\"finish\":\"stop\"},{\"end\":true}]";

/// Ends a reply that was fed: settles what waits, and feeds `later` replies where the model is asked again, then a final
/// one. Returns every ending.
fn end(judge: &mut ReplyPipeline, words: u8, later: &[String], out: &mut Vec<Bytes>) -> Vec<Ending> {
    let (mut later, mut endings) = (later.iter(), Vec::new());
    loop {
        let ending = judge.finish(0, out);
        match &ending {
            Ending::Waits => assert!(settle_first(judge, words, out), "nothing waits"),
            Ending::Reask { choice, .. } => {
                let mut shown = Client::of_stream(&text_of(out)).choices;
                let finishes = shown.remove(&u64::from(*choice)).unwrap_or_default().finishes;
                assert!(finishes.is_empty(), "nothing can follow the finish of {choice}: {}", text_of(out));
                let reply = later.next().map_or_else(
                    || {
                        judge.judging.land();
                        if judge.form == Form::Whole { FINAL_BODY } else { FINAL }
                    },
                    String::as_str,
                );
                judge.continue_with(*choice);
                feed(judge, reply.as_bytes(), out);
            }
            _ => {
                endings.push(ending);
                return endings;
            }
        }
        endings.push(ending);
        assert!(endings.len() < 100, "it never ends");
    }
}

/// Everything that comes out for these chunks, and of what follows.
pub(super) fn run_all<'a>(
    judge: &mut ReplyPipeline,
    chunks: impl IntoIterator<Item = &'a [u8]>,
    later: &[String],
) -> (String, Vec<Ending>) {
    let mut out = Vec::new();
    chunks.into_iter().for_each(|chunk| feed(judge, chunk, &mut out));
    let endings = end(judge, 0b0101_1010, later, &mut out);
    (text_of(&out), endings)
}

fn arb_rules() -> impl Strategy<Value = Rules> {
    (any::<[bool; 3]>(), prop::bool::weighted(0.2)).prop_map(
        |([by_arguments, is_strict, holds], observes)| Rules { by_arguments, is_strict, holds, observes },
    )
}

const EVERY_NAME: &[&str] = &["ok", "look", "deny", "denyAll", "fix", "known", "pay"];
const THREE: Making = Making {
    choices: 3,
    names: EVERY_NAME,
    has_name_pieces: false,
    has_odd_ends: true,
    has_blank_texts: false,
};
const TWO: Making = Making { choices: 2, ..THREE };
const ONE: Making = Making { choices: 1, ..THREE };

/// A proper reply, or anything.
fn arb_stream() -> impl Strategy<Value = Reply> {
    prop_oneof![
        arb_reply(THREE),
        arb_reply(Making { has_name_pieces: true, ..TWO }),
        arb_lines(Wildness::Anything),
        arb_lines(Wildness::Anything),
    ]
}

proptest! {
    #![proptest_config(with_cases(200))]

    // 1. Chunks.

    #[test]
    fn any_chunking_gives_the_same_bytes_verdicts_and_endings(
        reply in arb_stream(),
        later in arb_stream(),
        rules in arb_rules(),
        has_name_pieces in any::<bool>(),
        limits in prop::sample::select(vec![LIMITS, Limits { event: 50, ..LIMITS }, Limits { held: 12, ..LIMITS }]),
        is_cut in any::<bool>(),
        places in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let (mut stream, later) = (reply.stream(), [later.stream()]);
        if is_cut {
            stream.truncate(stream.floor_char_boundary(stream.len() / 2));
        }
        let mut one = piped(judging_of(rules), Form::Streamed, limits, has_name_pieces);
        let expected = run_all(&mut one, [stream.as_bytes()], &later);
        for chunks in [chunks(stream.as_bytes(), &places), stream.as_bytes().chunks(1).collect()] {
            let mut many = piped(judging_of(rules), Form::Streamed, limits, has_name_pieces);
            prop_assert_eq!(&run_all(&mut many, chunks, &later), &expected);
            prop_assert_eq!(&many.judging.record, &one.judging.record);
            prop_assert_eq!(many.unjudged(), one.unjudged());
            prop_assert_eq!(many.is_changed(), one.is_changed());
        }
    }

    // 2. What is blocked.

    #[test]
    fn no_client_of_a_proper_reply_finds_a_blocked_call(
        reply in arb_reply(THREE),
        later in arb_reply(ONE),
        rules in arb_rules(),
    ) {
        prop_assume!(!rules.observes);
        let streamed = run_all(&mut of_stream(rules), [reply.stream().as_bytes()], &[later.stream()]).0;
        prop_assert_eq!(Client::of_stream(&streamed).faults(rules, true), Vec::<String>::new(), "{}", streamed);
        prop_assert!(!streamed.contains("deny") && !streamed.contains("known"), "{}", streamed);
        let (whole, endings) = run_all(&mut of_whole(rules), [reply.body().as_bytes()], &[later.body()]);
        prop_assert_eq!(endings.last(), Some(&Ending::Complete));
        prop_assert_eq!(Client::of_body(&whole).faults(rules, true), Vec::<String>::new(), "{}", whole);
        prop_assert!(!whole.contains("deny") && !whole.contains("known"), "{}", whole);
    }

    #[test]
    fn a_client_finds_every_other_call_as_it_was_made_or_corrected_whatever_the_upstreams_form(
        reply in arb_reply(THREE),
        rules in arb_rules(),
        forms in prop::sample::select(vec![
            [Form::Streamed, Form::Streamed], [Form::Streamed, Form::Whole],
            [Form::Whole, Form::Whole], [Form::Whole, Form::Streamed],
        ]),
    ) {
        prop_assume!(!rules.observes && !rules.holds);
        let mut judge = piped(judging_of(rules), forms[0], LIMITS, false);
        judge.begin(forms[1], OK);
        let sent = if forms[1] == Form::Whole { reply.body() } else { reply.stream() };
        let text = run_all(&mut judge, [sent.as_bytes()], &[]).0;
        let mut client = if forms[0] == Form::Whole { Client::of_body(&text) } else { Client::of_stream(&text) };
        for (index, sent) in Client::of_stream(&reply.stream()).choices {
            let got = client.choices.remove(&index).unwrap_or_default();
            let expected = sent.calls.iter().filter_map(|call| {
                let name = call.names.concat();
                Some((call.number, rules.shown(&name, &call.arguments)?, name))
            });
            let calls = got.calls.iter().map(|call| (call.number, call.arguments.clone(), call.names.concat()));
            prop_assert_eq!(calls.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", text);
            prop_assert!(got.text.contains(&sent.text), "{}", text);
        }
    }

    #[test]
    fn no_call_is_shown_in_a_final_answer(reply in arb_reply(THREE), rules in arb_rules(), is_whole in any::<bool>()) {
        prop_assume!(!rules.observes);
        let mut judge = if is_whole { of_whole(rules) } else { of_stream(rules) };
        judge.judging.land();
        let sent = if is_whole { reply.body() } else { reply.stream() };
        let (text, endings) = run_all(&mut judge, [sent.as_bytes()], &[]);
        prop_assert_eq!(endings, [Ending::Complete]);
        let mut client = if is_whole { Client::of_body(&text) } else { Client::of_stream(&text) };
        for (index, sent) in Client::of_stream(&reply.stream()).choices {
            let got = client.choices.remove(&index).unwrap_or_default();
            prop_assert!(got.calls.is_empty(), "{}", text);
            let is_silent = sent.text.is_empty() && !sent.calls.is_empty();
            let is_answered = got.text == if is_silent { NO_ANSWER } else { &sent.text };
            // In a stream the sentence comes before a finish, and one is not missed where the upstream sent none.
            prop_assert!(is_answered || sent.finishes.is_empty(), "{}", text);
            let finishes = sent.finishes.iter().map(|finish| if finish == "calls" { "stop" } else { finish });
            prop_assert_eq!(got.finishes.iter().map(String::as_str).collect::<Vec<_>>(), finishes.collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_client_of_any_lines_finds_a_blocked_call_unless_it_is_counted_as_unjudged(
        reply in arb_lines(Wildness::Anything),
        later in arb_lines(Wildness::Anything),
        rules in arb_rules(),
        has_name_pieces in any::<bool>(),
    ) {
        prop_assume!(!rules.observes);
        let mut judge = piped(judging_of(rules), Form::Streamed, LIMITS, has_name_pieces);
        let (out, _) = run_all(&mut judge, [reply.stream().as_bytes()], &[later.stream()]);
        let is_over = judge.broken_off().is_none();
        if judge.judging.is_strict() || judge.unjudged().is_empty() {
            prop_assert_eq!(Client::of_stream(&out).faults(rules, is_over), Vec::<String>::new(), "{}", out);
        }
    }

    #[test]
    fn a_reply_cut_at_any_byte_shows_no_blocked_call(
        reply in prop_oneof![arb_reply(TWO), arb_lines(Wildness::Anything)],
        rules in prop::sample::select(vec![STRICT, HELD]),
    ) {
        let stream = reply.stream();
        for at in (0..stream.len()).step_by(3) {
            let (mut judge, mut out) = (of_stream(rules), Vec::new());
            feed(&mut judge, &stream.as_bytes()[..at], &mut out);
            let before = text_of(&out);
            prop_assert_eq!(Client::of_stream(&before).faults(rules, false), Vec::<String>::new(), "{}: {}", at, before);
            let held: BTreeSet<u64> =
                judge.judging.waiting().iter().map(|call| call.call.id().parse().unwrap()).collect();
            let seen = Client::of_stream(&before);
            let mut calls = seen.choices.values().flat_map(|choice| &choice.calls);
            prop_assert!(!calls.any(|call| held.contains(&call.number)), "held: {:?} in {}", held, before);
            end(&mut judge, 0, &[], &mut out);
            let is_over = judge.broken_off().is_none();
            let after = text_of(&out);
            prop_assert_eq!(Client::of_stream(&after).faults(rules, is_over), Vec::<String>::new(), "{}: {}", at, after);
            prop_assert!(!rules.holds || !after.contains("\"pay\""), "every one was declined: {}", after);
        }
    }

    // 3. Order.

    #[test]
    fn what_is_shown_of_a_choice_keeps_its_order(reply in arb_reply(THREE), rules in arb_rules()) {
        prop_assume!(!rules.observes);
        let stream = reply.stream();
        let out = run_all(&mut of_stream(rules), [stream.as_bytes()], &[]).0;
        let (sent, got) = (Client::of_stream(&stream), Client::of_stream(&out));
        for (index, choice) in &got.choices {
            let order = &sent.choices[index].items;
            let positions: Vec<usize> =
                choice.items.iter().filter_map(|item| order.iter().position(|sent| sent == item)).collect();
            prop_assert!(positions.is_sorted(), "{:?} of {:?}", choice.items, order);
            let lines = |text: &str| -> Vec<String> {
                let own = format!("{{\"choice\":{index},");
                let lines = text.lines().filter(|line| line.replace(' ', "").starts_with(&own));
                lines.map(str::to_owned).collect()
            };
            let (sent, got) = (lines(&stream), lines(&out));
            let mut open = sent.iter();
            let as_it_came = got.iter().filter(|line| sent.contains(line));
            for line in as_it_came {
                prop_assert!(open.any(|sent| sent == line), "{} is out of order in {}", line, out);
            }
        }
    }

    #[test]
    fn a_text_waits_only_for_calls_that_began_before_it_in_its_choice(
        reply in arb_reply(Making { has_odd_ends: false, ..THREE }),
        rules in prop::sample::select(vec![BY_NAME, BY_ARGUMENTS, STRICT, HELD]),
    ) {
        let (mut judge, mut so_far) = (of_stream(rules), String::new());
        for line in &reply.lines {
            let mut out = Vec::new();
            so_far += &format!("{line}\n");
            feed(&mut judge, format!("{line}\n").as_bytes(), &mut out);
            let read: Value = serde_json::from_str(line).unwrap_or_default();
            let Some(text) = read["text"].as_str() else { continue };
            let choice = &Client::of_stream(&so_far).choices[&read["choice"].as_u64().unwrap()];
            let passes = text_of(&out).contains(text);
            prop_assert_eq!(passes, !has_waiting_call(choice, rules), "{} after {}", line, so_far);
        }
    }

    #[test]
    fn calls_are_judged_in_the_order_in_which_they_began_streamed_or_whole(
        reply in arb_reply(ONE),
        by_arguments in any::<bool>(),
    ) {
        let rules = Rules { by_arguments, ..BY_NAME };
        let (mut streamed, mut whole) = (of_stream(rules), of_whole(rules));
        let mut out = Vec::new();
        feed(&mut streamed, reply.stream().as_bytes(), &mut out);
        feed(&mut whole, reply.body().as_bytes(), &mut out);
        let endings = [streamed.finish(0, &mut out), whole.finish(0, &mut out)];
        prop_assert_eq!(&endings[0], &endings[1]);
        let sent = Client::of_stream(&reply.stream());
        let began = sent.choices.get(&0).map_or(Vec::new(), |choice| {
            choice.calls.iter().map(|call| call.number.to_string()).collect::<Vec<_>>()
        });
        let judged = |judge: &ReplyPipeline| -> Vec<String> {
            judge.judging.record.iter().map(|judged| judged.id.clone()).collect()
        };
        prop_assert_eq!(judged(&streamed), &began[..]);
        prop_assert_eq!(&streamed.judging.record, &whole.judging.record);
    }

    #[test]
    fn a_limit_lets_the_first_calls_through_whatever_order_their_pieces_come_in(
        reply in arb_reply(Making { names: &["ok", "look"], has_odd_ends: false, ..ONE }),
        by_arguments in any::<bool>(),
        is_whole in any::<bool>(),
    ) {
        let rules = Rules { by_arguments, ..BY_NAME };
        let form = if is_whole { Form::Whole } else { Form::Streamed };
        let mut judge = piped(judging_by(rules, "[turn_limits]\ncalls = 2\n"), form, LIMITS, false);
        let (sent, mut out) = (if is_whole { reply.body() } else { reply.stream() }, Vec::new());
        feed(&mut judge, sent.as_bytes(), &mut out);
        judge.finish(0, &mut out);
        let began = Client::of_stream(&reply.stream()).choices.remove(&0).unwrap_or_default().calls;
        let allowed = began.iter().filter(|call| !rules.denies(&call.arguments)).map(|call| call.number);
        let released: Vec<u64> = judge.shown().first().map_or(Vec::new(), |choice| {
            choice.released().into_iter().map(|call| call.id().parse().unwrap()).collect()
        });
        prop_assert_eq!(released, allowed.take(2).collect::<Vec<_>>(), "{}", sent);
    }

    // 4. Identity.

    #[test]
    fn where_nothing_acts_the_bytes_are_identical(
        reply in arb_reply(Making { names: &["ok", "look"], ..ONE }),
        by_arguments in any::<bool>(),
        is_strict in any::<bool>(),
    ) {
        let rules = Rules { by_arguments, is_strict, ..BY_NAME };
        prop_assume!(!acts_on(rules, &reply));
        for (mut judge, sent) in [(of_stream(rules), reply.stream()), (of_whole(rules), reply.body())] {
            let (out, endings) = run_all(&mut judge, [sent.as_bytes()], &[]);
            prop_assert_eq!((out, endings), (sent, vec![Ending::Complete]));
            prop_assert!(!judge.is_changed());
        }
    }

    #[test]
    fn where_nothing_acts_each_choice_is_as_it_came_and_none_waits_for_another(
        reply in prop_oneof![
            arb_reply(Making { names: &["ok", "look"], ..THREE }),
            arb_lines(Wildness::Harmless),
        ],
        by_arguments in any::<bool>(),
    ) {
        let rules = Rules { by_arguments, ..BY_NAME };
        prop_assume!(!acts_on(rules, &reply));
        let mut judge = of_stream(rules);
        let (out, endings) = run_all(&mut judge, [reply.stream().as_bytes()], &[]);
        prop_assert_eq!(endings, [Ending::Complete]);
        prop_assert!(!judge.is_changed());
        let is_about = |line: &&str, choice: &str| line.contains(&format!("\"choice\":{choice}"));
        let of = |text: &str, choice: &str| -> Vec<String> {
            text.lines().filter(|line| is_about(line, choice)).map(str::to_owned).collect()
        };
        prop_assert_eq!(of(&out, "").len(), of(&reply.stream(), "").len());
        for choice in ["0", "1", "2"] {
            prop_assert_eq!(of(&out, choice), of(&reply.stream(), choice));
        }
        let rest = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !is_about(line, "")).map(str::to_owned).collect()
        };
        prop_assert_eq!(rest(&out), rest(&reply.stream()));
    }

    #[test]
    fn while_observing_the_bytes_are_always_identical_and_the_verdicts_are_recorded(
        reply in arb_stream(),
        rules in arb_rules(),
        has_name_pieces in any::<bool>(),
        is_whole in any::<bool>(),
    ) {
        let rules = Rules { observes: true, ..rules };
        let is_body = |reply: &Reply| serde_json::from_str::<Value>(&reply.body()).is_ok();
        let form = if is_whole && is_body(&reply) { Form::Whole } else { Form::Streamed };
        let sent = if form == Form::Whole { reply.body() } else { reply.stream() };
        let mut judge = piped(judging_of(rules), form, LIMITS, has_name_pieces);
        let (out, endings) = run_all(&mut judge, [sent.as_bytes()], &[]);
        prop_assert_eq!((out, endings), (sent, vec![Ending::Complete]));
        prop_assert!(!judge.is_changed());
        let denied = |judged: &&Judged| Rules::denies_name(&judged.tool) && !judged.unjudged;
        prop_assert!(judge.judging.record.iter().filter(denied).all(|judged| !judged.objections.is_empty()));
    }

    // 5. Asking again.

    #[test]
    fn a_choice_is_asked_again_alone_and_all_replies_are_one(
        first in arb_reply(Making { has_odd_ends: false, has_blank_texts: true, names: &["ok", "deny", "denyAll", "known"], ..THREE }),
        later in prop::collection::vec(arb_reply(Making { has_odd_ends: false, has_blank_texts: true, names: &["ok", "deny"], ..TWO }), 3),
        ends_blank in any::<bool>(),
        is_whole in any::<bool>(),
    ) {
        let form = if is_whole { Form::Whole } else { Form::Streamed };
        let written = |reply: &Reply| if is_whole { reply.body() } else { reply.stream() };
        let (mut judge, mut out) = (piped(judging_of(BY_NAME), form, LIMITS, false), Vec::new());
        feed(&mut judge, written(&first).as_bytes(), &mut out);
        let mut expected = expected_of(&first);
        let (mut later, mut tokens) = (later.iter(), tokens_of(&first));
        let last = [json!({"choice": 0, "text": if ends_blank { " " } else { "final" }}), json!({"choice": 0, "finish": "stop"})];
        let last = Reply::of(last.into_iter().chain([json!({"usage": {"total_tokens": 1}}), json!({"end": true})]));
        loop {
            let asked: Vec<u64> =
                expected.iter().filter(|(_, choice)| choice.is_asked_again).map(|(index, _)| *index).collect();
            let ending = judge.finish(0, &mut out);
            let Ending::Reask { choice, hidden } = ending else {
                prop_assert_eq!((ending, asked), (Ending::Complete, Vec::new()));
                break;
            };
            let own = expected.get_mut(&u64::from(choice)).unwrap();
            prop_assert!(own.is_asked_again, "{} of {:?}", choice, asked);
            prop_assert_eq!(hidden_calls(&hidden), std::mem::take(&mut own.hidden));
            judge.continue_with(choice);
            let reply = later.next().unwrap_or(&last);
            feed(&mut judge, written(reply).as_bytes(), &mut out);
            own.go_on(expected_of(reply).remove(&0).unwrap_or_default());
            tokens += tokens_of(reply);
        }
        let text = text_of(&out);
        let client = if is_whole { Client::of_body(&text) } else { Client::of_stream(&text) };
        for (index, expected) in &expected {
            let got = &client.choices[index];
            let calls: Vec<u64> = got.calls.iter().map(|call| call.number).collect();
            prop_assert_eq!((&got.text, &calls), (&expected.text(), &expected.calls), "{} of {}", index, text);
            prop_assert_eq!(got.finishes.len(), 1, "{}", text);
            prop_assert_eq!(got.finishes[0] == "calls", !calls.is_empty(), "{}", text);
        }
        prop_assert_eq!((client.ends, client.after_end, client.unreadable), (1, 0, 0), "{}", text);
        prop_assert_eq!(client.choices.len(), expected.len(), "{}", text);
        let usages: Vec<u64> = client.usages.iter().map(|usage| usage["total_tokens"].as_u64().unwrap()).collect();
        prop_assert_eq!(usages, [tokens], "{}", text);
        for choice in judge.shown() {
            let got = client.choices.get(&u64::from(choice.index())).map_or("", |choice| choice.text.as_str());
            prop_assert_eq!(choice.text(), got, "what the client has is known");
        }
    }

    // 6. Bounds.

    #[test]
    fn beyond_the_limit_a_strict_judge_breaks_off_and_another_releases_and_counts_once(
        sizes in prop::collection::vec(0..60usize, 1..6),
        held in 20..150usize,
        is_strict in any::<bool>(),
    ) {
        let rules = Rules { by_arguments: true, is_strict, ..BY_NAME };
        // Calls that are all open at once, then their ends.
        let line = |more: Value, number: usize| {
            let mut line = json!({"choice": 0, "call": number});
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            line
        };
        let begins = sizes.iter().enumerate().map(|(at, size)| line(json!({"name": "ok", "arguments": "x".repeat(*size)}), at));
        let ends = (0..sizes.len()).map(|at| line(json!({"end": true}), at));
        let rest = [json!({"choice": 0, "finish": "calls"}), json!({"end": true})];
        let stream = Reply::of(begins.chain(ends).chain(rest)).stream();
        let mut judge = piped(judging_of(rules), Form::Streamed, Limits { held, ..LIMITS }, false);
        let (out, endings) = run_all(&mut judge, [stream.as_bytes()], &[]);
        let exceeds = sizes.iter().sum::<usize>() > held;
        match (exceeds, is_strict) {
            (true, true) => {
                prop_assert_eq!(endings, [Ending::BrokenOff(Unjudged::HeldTooMuch)]);
                let mut more = Vec::new();
                feed(&mut judge, FINAL.as_bytes(), &mut more);
                prop_assert_eq!((out + &text_of(&more), judge.kept_bytes() < 4_096), (String::new(), true));
            }
            _ => prop_assert_eq!((out, endings), (stream, vec![Ending::Complete])),
        }
        prop_assert_eq!(judge.unjudged(), if exceeds { &[Unjudged::HeldTooMuch][..] } else { &[] });
    }

    #[test]
    fn the_bytes_that_are_kept_are_linear_in_those_that_came(
        reply in arb_stream(),
        rules in arb_rules(),
        places in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let (stream, mut judge, mut out, mut came) = (reply.stream(), of_stream(rules), Vec::new(), 0);
        for chunk in chunks(stream.as_bytes(), &places) {
            feed(&mut judge, chunk, &mut out);
            came += chunk.len();
            // A line of 20 bytes may begin a choice or a call, and wait as a frame.
            let most = 4_096 + 80 * came;
            prop_assert!(judge.kept_bytes() <= most, "{} of {}", judge.kept_bytes(), came);
        }
        end(&mut judge, 0, &[], &mut out);
        prop_assert!(!judge.is_holding());
    }

    // 7. Held calls.

    #[test]
    fn held_calls_come_out_as_they_were_judged_or_leave_nothing_whenever_they_are_settled(
        reply in arb_reply(Making { names: &["ok", "pay", "deny", "fix"], has_odd_ends: false, ..TWO }),
        words in any::<u8>(),
        early in prop::collection::vec(any::<bool>(), 60),
        is_whole in any::<bool>(),
    ) {
        let (mut judge, mut out) = (if is_whole { of_whole(HELD) } else { of_stream(HELD) }, Vec::new());
        if is_whole {
            feed(&mut judge, reply.body().as_bytes(), &mut out);
        } else {
            for (line, settles) in reply.lines.iter().zip(early.iter().cycle()) {
                feed(&mut judge, format!("{line}\n").as_bytes(), &mut out);
                if *settles {
                    settle_first(&mut judge, words, &mut out);
                }
            }
        }
        let endings = end(&mut judge, words, &[], &mut out);
        prop_assert_eq!(endings.last(), Some(&Ending::Complete));
        prop_assert!(!judge.is_waiting() && !judge.is_holding());
        let text = text_of(&out);
        let client = if is_whole { Client::of_body(&text) } else { Client::of_stream(&text) };
        for (index, sent) in Client::of_stream(&reply.stream()).choices {
            let expected = sent.calls.iter().filter_map(|call| {
                let name = call.names.concat();
                let shown = HELD.shown(&name, &call.arguments)?;
                let is_shown = name != "pay" || is_approved(&call.number.to_string(), words);
                is_shown.then_some((call.number, name, shown))
            });
            let got = client.choices.get(&index).map_or(&[][..], |choice| &choice.calls).iter();
            let got = got.map(|call| (call.number, call.names.concat(), call.arguments.clone()));
            prop_assert_eq!(got.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", text);
        }
        prop_assert_eq!((client.ends, client.after_end), (1, 0), "{}", text);
    }

    // The hidden exchange.

    #[test]
    fn a_hidden_call_goes_back_beside_the_calls_that_it_followed(reply in arb_reply(ONE), rules in arb_rules()) {
        prop_assume!(!rules.observes && !rules.holds);
        let (mut judge, mut out) = (of_stream(rules), Vec::new());
        feed(&mut judge, reply.stream().as_bytes(), &mut out);
        judge.finish(0, &mut out);
        let hidden = judge.shown().first().and_then(ClientChoice::hidden_exchange);
        let shown = Client::of_stream(&text_of(&out)).choices.remove(&0).unwrap_or_default();
        // The client's message is split where a hidden call goes back into it.
        let mut message: Vec<u64> = shown.calls.iter().map(|call| call.number).collect();
        let read = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let hidden: Vec<Value> = hidden.iter().flat_map(|it| std::str::from_utf8(it).unwrap().lines()).map(read).collect();
        for (at, call) in hidden.iter().enumerate() {
            prop_assert!(!call["result"].as_str().unwrap().is_empty());
            let after = call["after"].as_u64().unwrap() as usize;
            message.insert(after + at, call["call"].as_str().unwrap().parse().unwrap());
        }
        let sent = Client::of_stream(&reply.stream()).choices.remove(&0).unwrap_or_default();
        prop_assert_eq!(message, sent.calls.iter().map(|call| call.number).collect::<Vec<_>>());
    }
}

/// Whether a rule objects to a call of the reply.
fn acts_on(rules: Rules, reply: &Reply) -> bool {
    let sent = Client::of_stream(&reply.stream());
    let mut calls = sent.choices.values().flat_map(|choice| &choice.calls);
    calls.any(|call| rules.denies(&call.arguments))
}

/// Whether a call of the choice, as far as it has come, is not decided on yet or waits for a person. Calls are decided on in
/// order: by a name that is denied, or else when they have ended.
fn has_waiting_call(choice: &ReadChoice, rules: Rules) -> bool {
    let mut is_turn = true;
    choice.calls.iter().any(|call| {
        let name = call.names.concat();
        let needs_arguments = rules.by_arguments || name == "fix" || (rules.holds && name == "pay");
        let by_name = Rules::denies_name(&name) || name == "known" || (!name.is_empty() && !needs_arguments);
        let by_end = !call.at_ends.is_empty();
        is_turn &= by_name || by_end;
        let is_held = rules.holds && name == "pay" && !rules.denies(&call.arguments);
        !is_turn || is_held
    })
}

/// So many cases, or those that the variable `LAWS_CASES` asks for.
fn with_cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("LAWS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual);
    ProptestConfig { max_global_rejects: cases * 20, ..ProptestConfig::with_cases(cases) }
}

/// What the client is to get of a choice, by names alone.
#[derive(Debug, Default)]
struct Expected {
    texts: Vec<String>,
    calls: Vec<u64>,
    hidden: Vec<u64>,
    is_asked_again: bool,
    is_continued: bool,
}

impl Expected {
    fn go_on(&mut self, later: Self) {
        let texts = std::mem::take(&mut self.texts).into_iter().chain(later.texts).collect();
        *self = Self { texts, is_continued: true, ..later };
    }

    fn text(&self) -> String {
        let mut texts = self.texts.clone();
        if self.is_continued && self.calls.is_empty() && texts.iter().all(|text| text.trim().is_empty()) {
            texts.last_mut().unwrap().push_str(NO_ANSWER);
        }
        texts.retain(|text| !text.is_empty());
        texts.join("\n\n")
    }
}

fn expected_of(reply: &Reply) -> BTreeMap<u64, Expected> {
    let choices = Client::of_stream(&reply.stream()).choices.into_iter();
    let expected = choices.map(|(index, choice)| {
        let (shown, hidden): (Vec<_>, Vec<_>) = choice
            .calls
            .iter()
            .partition(|call| BY_NAME.shown(&call.names.concat(), &call.arguments).is_some());
        let numbers = |calls: &[&client::ReadCall]| calls.iter().map(|call| call.number).collect::<Vec<_>>();
        let (calls, hidden) = (numbers(&shown), numbers(&hidden));
        let is_asked_again = calls.is_empty() && !hidden.is_empty();
        let texts = vec![choice.text];
        (index, Expected { texts, calls, hidden, is_asked_again, is_continued: false })
    });
    expected.collect()
}

fn hidden_calls(exchange: &Bytes) -> Vec<u64> {
    let lines = std::str::from_utf8(exchange).unwrap().lines();
    let calls = lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["call"].clone());
    calls.map(|call| call.as_str().unwrap().parse().unwrap()).collect()
}

fn tokens_of(reply: &Reply) -> u64 {
    let usages = Client::of_stream(&reply.stream()).usages;
    usages.iter().map(|usage| usage["total_tokens"].as_u64().unwrap()).sum()
}
