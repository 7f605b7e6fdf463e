//! Loop detection: repeated calls that bring nothing new.
//!
//! # What it does
//! A call that gets the same result `notice` times in a row is followed by a notice; the `block`-th such call is
//! blocked. The same holds for cycles of two or three calls, and for larger replies of parallel calls that are
//! repeated: a notice comes after `notice - 1` full rounds, and calls are blocked from the one that begins the
//! `block`-th round. Arguments are the same as JSON, whatever the order of their keys, or if they have the same words and
//! numbers, or differ only in what means nothing to a tool: counts of attempts, nonces, timestamps. Results are the same if
//! they differ only in times, ids, cursors and counts of attempts
//! ([`Likeness`](model::outcome::Likeness)); pictures, and what the client sends after the results, belong to
//! them. Repetitions that may be progress count half: results that differ in a few other numbers, equal long results of one
//! tool for other arguments, and arguments that differ in what may be a mere count.
//!
//! Waiting is no loop: repetitions whose results say that something still runs do not count where the calls are ten seconds
//! apart, and else a twentieth, so that a model that asks hundreds of times at once is stopped.
//!
//! After `empty` empty results in a row comes a notice, and from the `empty_block`-th on the tools that gave them are
//! blocked, whatever the arguments, until the turn ends or another call brings something. Tools in `exempt` (thinking,
//! waiting) are ignored, and they reset the counts: the same call after a wait is a new question. With `strict = true`
//! calls are blocked where otherwise a notice would come, and equal calls count anywhere in the turn and with any
//! result.
//!
//! # Why
//! A model in a loop does not notice it. Most calls that repeat an earlier one are healthy (80% of those of coding
//! agents bring a changed result), so call *and* result are compared, and only next to each other: by name and
//! arguments alone 72% of healthy coding runs would be stopped. A search that rewords its query, or a page with a clock,
//! is no progress either. Actions (`quiet`) often return nothing when they succeed: that is not an empty result.
//!
//! # State
//! The last steps of the turn, each a call with the position of its result, and how long they have repeated; the
//! empty results in a row. All from the conversation. The counts are reset where a turn begins, and not at every user
//! message: some clients put a user message of their own after each group of results (dspy), and would never get a
//! notice.
//!
//! # Example
//! `weather` is called five times with `{"city":"Paris"}` and answers "rain" each time: after the third and the
//! fourth result the model reads that this will not change, and the fifth call is blocked with `LOOP_DETECTED`.

mod near;
mod trail;
mod turn;
mod words;

use super::about::{About, NO_LIMITS, list_tools};
use super::pattern::Pattern;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::calls::Call;
use model::outcome::{Answer, Emptiness, has_failed, is_empty, is_silent, says_running};
use model::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use model::{Event, ToolResult, View};
use near::Worded;
use serde::Deserialize;
use std::sync::{Arc, OnceLock};
use trail::{ActingTools, ComparedCall, Kind, Next, Trail};
use turn::{Made, Turn};

/// See the module.
pub struct Loops {
    notice: usize,
    block: usize,
    empty: usize,
    empty_block: usize,
    strict: bool,
    exempt: Vec<Pattern>,
    quiet: Vec<Pattern>,
    words: Nothing,
    texts: Texts,
}

/// `[policy.loops]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Equal calls with equal results in a row after which a notice comes; 0: never.
    notice: usize,
    /// The equal call in a row that is blocked; 0: none.
    block: usize,
    /// Empty results in a row after which a notice comes; 0: never.
    empty: usize,
    /// The empty result in a row that is prevented: calls of the tools that gave those before are blocked; 0: none.
    empty_block: usize,
    /// Block where a notice would come, and compare calls without results.
    strict: bool,
    /// Tools that may repeat themselves, by name or pattern.
    exempt: Vec<Pattern>,
    /// Tools that say nothing when they succeed, by name or pattern.
    quiet: Vec<Pattern>,
    /// Texts that count as empty results, as patterns; case does not count.
    empty_texts: Vec<String>,
    /// Members of an object that hold its results.
    empty_keys: Vec<String>,
    texts: OwnTexts,
}

/// Verbs of tools that act. A tool may say nothing because it did what it was asked to.
const QUIET: [&str; 40] = [
    "*bash*",
    "*shell*",
    "*exec*",
    "*terminal*",
    "*command*",
    "*script*",
    "run*",
    "*_run*",
    "write*",
    "*_write*",
    "edit*",
    "*_edit*",
    "create*",
    "*_create*",
    "update*",
    "*_update*",
    "delete*",
    "*_delete*",
    "remove*",
    "*_remove*",
    "set*",
    "*_set*",
    "send*",
    "*_send*",
    "save*",
    "*_save*",
    "add*",
    "insert*",
    "move*",
    "copy*",
    "mkdir*",
    "apply*",
    "*click*",
    "type*",
    "*_type*",
    "press*",
    "scroll*",
    "*navigate*",
    "notify*",
    "toggle*",
];

impl Default for Config {
    fn default() -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            notice: 3,
            block: 5,
            empty: 2,
            empty_block: 5,
            strict: false,
            exempt: ["think", "wait*", "sleep*"].map(Pattern::new).to_vec(),
            quiet: QUIET.map(Pattern::new).to_vec(),
            empty_texts: owned(&["none", "no results*", "no matches*", "nothing found*"]),
            empty_keys: owned(&[
                "results",
                "result",
                "items",
                "data",
                "hits",
                "matches",
                "documents",
                "rows",
                "content",
                "text",
            ]),
            texts: OwnTexts::default(),
        }
    }
}

/// What counts as empty by the settings.
struct Nothing {
    /// In lower case.
    texts: Vec<Pattern>,
    keys: Vec<String>,
}

impl Policy for Loops {
    const NAME: &'static str = "loops";
    const SUMMARY: &'static str =
        "warns the model that its calls repeat without new results, then blocks them";
    const TEXTS: &'static [Text] =
        &[words::NOTICE, words::BLOCKED, words::BLOCKED_EQUAL, words::EMPTY, words::BLOCKED_EMPTY];
    type Config = Config;
    type State = Turn;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let counts = [("notice", config.notice), ("block", config.block)];
        let single =
            counts.into_iter().chain([("empty_block", config.empty_block)]).filter(|(_, count)| *count == 1);
        let problem = |(key, _)| ConfigError::new(key, "expected 0 (off) or at least 2: one call is no loop");
        let mut problems: Vec<ConfigError> = single.map(problem).collect();
        let own_texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let texts = config.empty_texts.iter().map(|text| Pattern::new(text.trim().to_lowercase())).collect();
        Ok(Self {
            notice: config.notice,
            block: config.block,
            empty: config.empty,
            empty_block: config.empty_block,
            strict: config.strict,
            exempt: config.exempt,
            quiet: config.quiet,
            words: Nothing { texts, keys: config.empty_keys },
            texts: own_texts,
        })
    }

    fn about(&self) -> About {
        let limits = [self.notice, self.block, self.empty, self.empty_block];
        let idle = limits.iter().all(|limit| *limit == 0).then_some(NO_LIMITS);
        About {
            named_tools: [list_tools("exempt", &self.exempt), list_tools("quiet", &self.quiet)].concat(),
            idle,
            resumes: true,
            ..About::default()
        }
    }

    fn read(&self, event: &Event<'_>, turn: &mut Turn, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => *turn = Turn::default(),
            Event::Assistant(_) => turn.begin_reply(),
            Event::Call(call) => self.add_call(call, turn),
            Event::Result(result) => self.add_result(result, turn),
            Event::ResultsComplete(view) => {
                if turn.complete_reply(view, &self.quiet) {
                    self.tell(turn, plan);
                }
            }
            Event::System(view) | Event::User(view) => {
                if turn.add_following(view, &self.quiet) {
                    self.tell(turn, plan);
                }
            }
            Event::Hidden(_) => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, turn: &Turn) -> Verdict {
        if self.is_exempt(call.name) {
            return Verdict::Allow;
        }
        let reason = self.strict_reason(call, turn).or_else(|| self.reason(call, turn));
        if let Some(reason) = reason.or_else(|| self.empty_reason(call, turn)) {
            return Verdict::Block(reason);
        }
        let counts = self.strict && self.notice > 0;
        let compares = || counts || self.closed(turn).any(|cycle| cycle.has_tool(call.name));
        if call.arguments.is_none() && compares() { Verdict::NeedsArguments } else { Verdict::Allow }
    }

    fn release(&self, call: &Proposed<'_>, turn: &mut Turn) {
        // Its result is not known yet, so nothing after it can be the next round of a cycle.
        turn.progress.trail.clear();
        if let Some(arguments) = call.arguments_hash.filter(|_| self.strict && !self.is_exempt(call.name)) {
            turn.count(call.name, arguments);
        }
    }
}

impl Loops {
    fn is_exempt(&self, tool: &str) -> bool {
        self.exempt.iter().any(|pattern| pattern.matches(tool))
    }

    /// The cycles whose next round is blocked.
    fn closed<'a>(&self, turn: &'a Turn) -> impl Iterator<Item = trail::Cycle<'a>> {
        let block = self.block;
        turn.progress.trail.cycles(move |length| match length {
            1 if block > 0 => block - 1,
            _ => enough(block, length),
        })
    }

    fn add_call(&self, call: &Call, turn: &mut Turn) {
        if self.strict && !self.is_exempt(&call.name) {
            turn.count(&call.name, call.arguments);
        }
        let is_exempt = self.is_exempt(&call.name);
        let call = ComparedCall {
            tool: Arc::clone(&call.name),
            arguments: call.arguments,
            text: Worded::new(Arc::clone(&call.written_arguments)),
            released_ms: call.released_ms,
            answer: Answer::default(),
            message: 0,
            kind: Kind::Useful,
            runs: OnceLock::new(),
        };
        turn.reply.push(Made { call: Arc::new(call), is_exempt, is_answered: false });
    }

    fn add_result(&self, result: &ToolResult<'_>, turn: &mut Turn) {
        for call in result.call.into_iter().flat_map(Call::as_made) {
            let Some(made) = turn.reply.get_mut(call.position) else { return };
            made.is_answered = true;
            if !made.is_exempt {
                let acting = ActingTools { patterns: &self.quiet, known: &mut turn.acting };
                self.answer(Arc::make_mut(&mut made.call), &result.view, &turn.progress.trail, acting);
            }
        }
    }

    /// Adds its result to a call.
    fn answer(&self, call: &mut ComparedCall, view: &View<'_>, trail: &Trail, mut acting: ActingTools<'_>) {
        let counts_empty = self.empty > 0 || self.empty_block > 0;
        let is_empty =
            counts_empty && is_empty(view, &self.words) && !(is_silent(view) && acting.contains(&call.tool));
        let may_run = is_empty || trail.knows_tool(&call.tool);
        let is_known = may_run && trail.knows(&call.tool, call.arguments);
        // Of all other results it is found out where one repeats another. Where the second call is blocked, the reason names
        // the kind of the only result.
        let is_asked_now = is_empty || is_known || self.block == 2;
        let runs = (is_asked_now || !may_run).then(|| may_run && says_running(view));
        (call.answer, call.message) = (Answer::of(view), view.index);
        call.runs = runs.map_or_else(OnceLock::new, OnceLock::from);
        call.kind = if is_empty {
            Kind::Empty
        } else if is_known && runs != Some(true) && has_failed(view) {
            Kind::Failed
        } else {
            Kind::Useful
        };
    }

    /// Gives a notice of the cycle that the model is in: when it becomes one, before its last round, and at intervals
    /// where it is not stopped. Else of its empty results.
    fn tell(&self, turn: &mut Turn, plan: &mut Plan) {
        if self.strict {
            return;
        }
        let (notice, block) = (self.notice, self.block);
        let turn::Progress { trail, empty, .. } = &mut turn.progress;
        let nothing_again = self.empty > 0 && empty.results >= empty.noticed + self.empty;
        if nothing_again {
            empty.noticed = empty.results;
        }
        let is_last = |rounds: usize| block > 0 && rounds + 1 >= block;
        let again = |rounds: usize, noticed| rounds + 1 == block || rounds >= noticed + notice;
        if let Some(cycle) = trail.tell(|length| enough(notice, length), again) {
            plan.notice("notice", words::notice(&self.texts, &cycle, is_last(cycle.rounds)));
        } else if nothing_again {
            plan.notice("empty", words::notice_empty(&self.texts, empty.results, &empty.tools));
        }
    }

    fn reason(&self, call: &Proposed<'_>, turn: &Turn) -> Option<Reason> {
        let next = Next::new(call.name, call.arguments_hash, call.arguments);
        let cycle = self.closed(turn).find(|cycle| cycle.goes_on(&next))?;
        let numbers = vec![("rounds", cycle.made as u64), ("calls_per_round", cycle.steps.len() as u64)];
        Some(reason(words::blocked(&self.texts, &cycle), numbers))
    }

    fn strict_reason(&self, call: &Proposed<'_>, turn: &Turn) -> Option<Reason> {
        if !self.strict {
            return None;
        }
        let equal = call.arguments_hash.map_or(0, |arguments| turn.count_of(call.name, arguments));
        if self.notice > 0 && equal + 1 >= self.notice {
            let text = words::blocked_equal(&self.texts, call.name, equal);
            return Some(reason(text, vec![("equal_calls", equal as u64)]));
        }
        None
    }

    /// The reason where the tool has found nothing so often that its next call is blocked.
    fn empty_reason(&self, call: &Proposed<'_>, turn: &Turn) -> Option<Reason> {
        let empty = &turn.progress.empty;
        let strict = self.strict && self.empty > 0 && empty.results >= self.empty;
        let often = self.empty_block > 0 && empty.results + 1 >= self.empty_block;
        if !(strict || often) || !empty.known.contains(call.name) {
            return None;
        }
        let numbers = vec![("empty_results", empty.results as u64)];
        Some(reason(words::blocked_empty(&self.texts, call.name, empty.results), numbers))
    }
}

/// The rounds of a cycle of `length` calls for a setting that is given for single calls. For two or three calls one
/// round less is enough, but never one: calls that were made once are no cycle. 0 switches off.
fn enough(setting: usize, length: usize) -> usize {
    match (setting, length) {
        (0, _) => usize::MAX,
        (_, 1) => setting,
        _ => (setting - 1).max(2),
    }
}

fn reason(message: String, numbers: Vec<(&'static str, u64)>) -> Reason {
    Reason::new(ReasonKind::LoopDetected, message).with(numbers)
}

impl Emptiness for Nothing {
    fn says_nothing(&self, text: &str) -> bool {
        // Most texts begin otherwise than every pattern, which is seen without a copy.
        let first = |text: &str| text.as_bytes().first().copied();
        let may_fit = |pattern: &Pattern| match (first(pattern.as_str()), first(text)) {
            (Some(begins @ ..=127), Some(byte @ ..=127)) => {
                begins == b'*' || begins == byte.to_ascii_lowercase()
            }
            _ => true,
        };
        if !self.texts.iter().any(may_fit) {
            return false;
        }
        let text = text.to_lowercase();
        self.texts.iter().any(|pattern| pattern.matches(&text))
    }

    fn holds_results(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{policy, read, somebody};
    use super::*;
    use crate::set::{Judge, PolicySet, Rule};
    use model::identity::Hash;
    use model::memo::{DerivedValue, Memo};
    use model::plan::Change;
    use model::testing::{SampleItem, SampleRequest, assistant, call, reply, result, user};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A call as its tool and arguments, and its result.
    type Pair = (&'static str, &'static str, &'static str);

    const RAIN: Pair = ("weather", r#"{"city":"Paris"}"#, "rain");
    const SUN: Pair = ("weather", r#"{"city":"Rome"}"#, "sun");
    const FOG: Pair = ("fog", "{}", "thick");
    const NOTHING: Pair = ("search", r#"{"q":"a"}"#, "[]");
    const THOUGHT: Pair = ("think", r#"{"t":"hm"}"#, "");

    /// Messages after a question: one reply for each item, its calls answered in order.
    fn replies(replies: &[&[Pair]]) -> Vec<SampleItem> {
        let mut messages = vec![user("q")];
        for (at, pairs) in replies.iter().enumerate() {
            let ids: Vec<String> = (0..pairs.len()).map(|place| format!("c{at}_{place}")).collect();
            let calls = ids.iter().zip(*pairs).map(|(id, (tool, arguments, _))| call(id, tool, arguments));
            messages.push(reply(calls));
            messages.extend(ids.iter().zip(*pairs).map(|(id, (.., text))| result(id, text)));
        }
        messages
    }

    fn one_by_one(pairs: &[Pair]) -> Vec<SampleItem> {
        replies(&pairs.iter().map(std::slice::from_ref).collect::<Vec<_>>())
    }

    fn read_messages(rule: &Arc<dyn Rule>, messages: &[SampleItem]) -> (Plan, Judge) {
        read(rule, &SampleRequest::new(messages), &[])
    }

    /// Each notice: the index of its message, its name, its text.
    fn notices(table: &str, messages: &[SampleItem]) -> Vec<(usize, &'static str, String)> {
        let plan = read_messages(&policy::<Loops>(table), messages).0;
        let notices = plan.edits.into_iter().map(|edit| match edit.change {
            Change::Notice { text, word } => (edit.item.index, word, text),
            other => panic!("{other:?}"),
        });
        notices.collect()
    }

    fn places(table: &str, messages: &[SampleItem]) -> Vec<(usize, &'static str)> {
        notices(table, messages).into_iter().map(|(message, word, _)| (message, word)).collect()
    }

    /// Why the next calls of one reply are blocked, one after the other.
    fn reasons(table: &str, messages: &[SampleItem], calls: &[Pair]) -> Vec<Option<Reason>> {
        let mut judge = read_messages(&policy::<Loops>(table), messages).1;
        let mut rule = |(tool, arguments, _): &Pair| {
            let arguments = judge.needs_arguments(0, tool).then_some(*arguments);
            judge.rule(0, tool, arguments, 0).objections.pop().map(|(_, reason)| reason)
        };
        calls.iter().map(&mut rule).collect()
    }

    fn allowed(table: &str, messages: &[SampleItem], calls: &[Pair]) -> Vec<bool> {
        reasons(table, messages, calls).iter().map(Option::is_none).collect()
    }

    /// Counts what is looked up.
    #[derive(Default)]
    struct CountingMemo(AtomicUsize);

    impl Memo for CountingMemo {
        fn find(&self, _key: Hash) -> Option<DerivedValue> {
            self.0.fetch_add(1, Ordering::Relaxed);
            None
        }

        fn keep(&self, _key: Hash, _value: DerivedValue, _weight: usize) {}
    }

    #[test]
    fn only_results_that_repeat_one_are_asked_whether_something_runs() {
        let pending = ("status", r#"{"job":1}"#, r#"{"status":"pending","steps":["build","test"]}"#);
        let other = ("status", r#"{"job":2}"#, "all builds of the night are listed below");
        for (pairs, asked) in [(vec![pending, other], 0), (vec![pending, pending, other], 1)] {
            let (request, memo) =
                (SampleRequest::new(&one_by_one(&pairs)), Arc::new(CountingMemo::default()));
            let identity = somebody();
            let mut transcript = request.transcript(&identity);
            transcript.memo = Arc::clone(&memo) as Arc<dyn Memo>;
            PolicySet::new(vec![policy::<Loops>("")]).read(&transcript);
            assert_eq!(memo.0.load(Ordering::Relaxed), asked, "{pairs:?}");
        }
    }

    #[test]
    fn equal_calls_with_equal_results_are_noticed_at_the_third_and_before_the_last() {
        let found = notices("", &one_by_one(&[RAIN; 4]));
        let at: Vec<_> = found.iter().map(|(message, word, _)| (*message, *word)).collect();
        assert_eq!(at, [(6, "notice"), (8, "notice")]);
        assert_eq!(
            found[0].2,
            "[toolrein] weather was called 3 times in a row with the same arguments and gave the same result each \
             time. Use the result that you have, change the arguments, use another tool, or answer."
        );
        assert!(found[1].2.ends_with("The next time the call will not be run."), "{}", found[1].2);
    }

    #[test]
    fn calls_that_are_not_a_loop_get_no_notice() {
        let other_order = ("weather", r#"{ "day":1,"city":"Paris"}"#, "rain");
        let ordered = ("weather", r#"{"city":"Paris","day":1.0}"#, "rain");
        let dry = ("weather", r#"{"city":"Paris"}"#, "dry");
        for (case, pairs, expected) in [
            ("other results", vec![RAIN, dry, RAIN, dry, RAIN], vec![(8, "notice")]),
            ("a changed result", vec![RAIN, RAIN, dry, RAIN, RAIN], vec![]),
            ("other arguments", vec![RAIN, RAIN, SUN, RAIN, RAIN], vec![]),
            ("another tool", vec![RAIN, RAIN, FOG, RAIN, RAIN], vec![]),
            ("arguments in another order", vec![ordered, other_order, ordered], vec![(6, "notice")]),
            ("thoughts", vec![THOUGHT; 9], vec![]),
            ("thoughts in between", vec![RAIN, THOUGHT, RAIN, THOUGHT, RAIN, THOUGHT, RAIN, THOUGHT], vec![]),
        ] {
            assert_eq!(places("", &one_by_one(&pairs)), expected, "{case}");
        }
        assert_eq!(places("exempt = [\"weath*\"]", &one_by_one(&[RAIN; 9])), []);
        assert_eq!(places("notice = 0", &one_by_one(&[RAIN; 9])), []);
    }

    #[test]
    fn the_fifth_equal_call_is_blocked_and_any_other_is_not() {
        for (made, fifth) in [(3, true), (4, false), (7, false)] {
            assert_eq!(allowed("", &one_by_one(&vec![RAIN; made]), &[RAIN]), [fifth], "after {made}");
        }
        assert_eq!(allowed("", &one_by_one(&[RAIN; 4]), &[SUN]), [true]);
        let table = "block = 2";
        assert_eq!(allowed(table, &one_by_one(&[RAIN]), &[RAIN]), [false]);
        assert_eq!(allowed(table, &one_by_one(&[RAIN, SUN]), &[RAIN]), [true], "no cycle yet");
        assert_eq!(allowed("block = 0", &one_by_one(&[RAIN; 9]), &[RAIN]), [true]);
    }

    #[test]
    fn the_reason_says_what_to_do_instead() {
        let failed = ("weather", r#"{"city":"Paris"}"#, "Error: no such city");
        for (pair, said) in [
            (RAIN, "Use the result that you have"),
            (failed, "Correct the arguments, use another tool, or tell the user what does not work"),
            (NOTHING, "or tell the user that nothing was found"),
        ] {
            let reason = reasons("empty_block = 0", &one_by_one(&[pair; 4]), &[pair]).remove(0).unwrap();
            assert_eq!((reason.kind, reason.retryable), (ReasonKind::LoopDetected, false));
            assert_eq!(reason.numbers, [("rounds", 4), ("calls_per_round", 1)]);
            assert!(reason.message.starts_with("The call was not run: "), "{}", reason.message);
            assert!(reason.message.contains("was called 4 times in a row"), "{}", reason.message);
            assert!(reason.message.contains(said), "{}", reason.message);
        }
    }

    #[test]
    fn cycles_of_two_and_three_are_noticed_after_two_rounds_and_blocked_from_the_fifth() {
        for (cycle, expected) in [(vec![RAIN, SUN], [8, 16]), (vec![RAIN, SUN, FOG], [12, 24])] {
            let rounds = |count: usize| one_by_one(&cycle.repeat(count));
            assert_eq!(places("", &rounds(4)), expected.map(|at| (at, "notice")), "{cycle:?}");
            assert_eq!(allowed("", &rounds(3), &cycle[..1]), [true]);
            let reason = reasons("", &rounds(4), &cycle[..1]).remove(0).unwrap();
            let length = cycle.len() as u64;
            assert_eq!(reason.numbers, [("rounds", 4), ("calls_per_round", length)]);
            assert!(
                reason.message.contains(&format!("The same {length} calls (weather")),
                "{}",
                reason.message
            );
            assert_eq!(allowed("", &rounds(4), &[NOTHING]), [true]);
        }
        let four = [RAIN, SUN, FOG, NOTHING].repeat(5);
        assert_eq!(places("", &one_by_one(&four)), [], "too long a cycle to be sure");
    }

    #[test]
    fn a_cycle_within_a_cycle_is_noticed_once() {
        assert_eq!(
            places("block = 0", &one_by_one(&[RAIN; 9])),
            [(6, "notice"), (12, "notice"), (18, "notice")]
        );
    }

    #[test]
    fn parallel_calls_are_compared_when_their_group_is_complete() {
        assert_eq!(places("", &replies(&[&[RAIN, RAIN], &[RAIN, RAIN]])), [(6, "notice")]);
        let messages = replies(&[&[RAIN, RAIN], &[RAIN, RAIN]]);
        assert_eq!(allowed("", &messages, &[RAIN, RAIN]), [false, false]);
        assert_eq!(allowed("", &messages, &[SUN, RAIN]), [true, true], "something new comes before it");
        assert_eq!(allowed("", &messages, &[RAIN, SUN]), [false, true]);
        let three = replies(&[&[RAIN], &[RAIN, RAIN]]);
        assert_eq!(
            allowed("", &three, &[RAIN, RAIN]),
            [true, true],
            "what the fourth brings is not known yet"
        );
        assert_eq!(places("", &replies(&[&[RAIN], &[RAIN], &[SUN, RAIN]])), [], "not in a row");
    }

    #[test]
    fn results_may_come_in_any_order() {
        let mut messages = replies(&[&[RAIN, SUN][..]; 2]);
        messages.swap(5, 6);
        assert_eq!(places("", &messages), [(6, "notice")]);
    }

    #[test]
    fn a_reply_of_many_calls_made_over_and_over_is_a_cycle() {
        let reply: &[Pair] = &[RAIN, SUN, FOG, NOTHING];
        let messages = replies(&[reply; 4]);
        assert_eq!(places("", &messages), [(10, "notice"), (20, "notice")]);
        assert_eq!(allowed("", &messages, reply), [false; 4]);
        assert_eq!(allowed("", &replies(&[reply; 3]), reply), [true; 4]);
        let changed: &[Pair] = &[RAIN, SUN, FOG, ("search", r#"{"q":"a"}"#, "found")];
        assert_eq!(places("", &replies(&[reply, changed, reply, changed])), []);
    }

    #[test]
    fn a_new_turn_resets_the_loop_count_but_a_user_message_after_results_does_not() {
        let after = |messages: &[SampleItem]| [&one_by_one(&[RAIN; 4]), messages].concat();
        let answer = [assistant("It rains."), user("And now?")];
        assert_eq!(allowed("", &after(&answer), &[RAIN]), [true]);
        let moved_along = [user("Respond with the fields.")];
        assert_eq!(allowed("", &after(&moved_along), &[RAIN]), [false]);
    }

    #[test]
    fn a_group_that_is_never_completed_gets_no_notice_and_breaks_the_cycle() {
        let open = [reply([call("x", RAIN.0, RAIN.1), call("y", "f", "")]), result("x", RAIN.2)];
        let again = &one_by_one(&[RAIN])[1..];
        let messages = [&one_by_one(&[RAIN, RAIN]), &open[..], again].concat();
        assert_eq!(places("", &messages), []);
    }

    #[test]
    fn empty_results_in_a_row_are_noticed_at_every_second() {
        let other = ("fetch", r#"{"u":1}"#, "No results found.");
        let third = ("search", r#"{"q":"c"}"#, r#"{"results":[],"total":0}"#);
        let found = notices("", &one_by_one(&[NOTHING, other, third, RAIN, third]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1), (4, "empty"));
        assert!(
            found[0].2.starts_with("[toolrein] The last 2 tool results were empty (search, fetch)."),
            "{}",
            found[0].2
        );
        let many: Vec<Pair> = ["1", "2", "3", "4"].map(|arguments| ("search", arguments, "")).to_vec();
        assert_eq!(places("", &one_by_one(&many)), [(4, "empty"), (8, "empty")]);
        assert_eq!(places("empty = 0", &one_by_one(&many)), []);
        assert_eq!(places("exempt = [\"search\"]", &one_by_one(&many)), []);
        let own = "empty_texts = [\"nichts*\"]\nempty_keys = [\"treffer\"]";
        let german = [("f", "1", "Nichts gefunden"), ("f", "2", r#"{"treffer":[],"zahl":0}"#)];
        assert_eq!(places(own, &one_by_one(&german)), [(4, "empty")]);
        assert_eq!(places(own, &one_by_one(&[other, third])), [], "the shipped words are replaced");
        let next = [("search", "5", "")];
        assert_eq!(allowed("", &one_by_one(&many[..3]), &next), [true], "a notice, not blocked");
        assert_eq!(allowed("", &one_by_one(&many), &next), [false], "the fifth");
        assert_eq!(allowed("empty_block = 0", &one_by_one(&many), &next), [true]);
    }

    #[test]
    fn results_that_stay_empty_close_the_tools_that_gave_them_until_something_is_found() {
        let asked = |tool: &'static str, nth: usize| {
            let arguments = ["{\"q\":\"a\"}", "{\"q\":\"b\"}", "{\"q\":\"c\"}", "{\"q\":\"d\"}"][nth];
            (tool, arguments, "[]")
        };
        let made = [asked("search", 0), asked("fetch", 1), asked("search", 2), asked("search", 3)];
        let messages = one_by_one(&made);
        let next = [("search", "{\"q\":\"e\"}", ""), ("fetch", "{\"q\":\"f\"}", ""), ("ask", "{}", "")];
        assert_eq!(allowed("", &messages, &next), [false, false, true]);
        let reason = reasons("", &messages, &next).remove(0).unwrap();
        assert_eq!((reason.kind, reason.numbers), (ReasonKind::LoopDetected, vec![("empty_results", 4)]));
        assert!(reason.message.contains("the last 4 tool results were empty, those of search among them"));
        let mut judge = read_messages(&policy::<Loops>(""), &messages).1;
        assert!(!judge.needs_arguments(0, "search"), "its name is enough");
        let found = [made.to_vec(), vec![RAIN]].concat();
        assert_eq!(allowed("", &one_by_one(&found), &next), [true; 3], "another tool has found something");
        let three = &made[..3];
        assert_eq!(allowed("empty_block = 4", &one_by_one(three), &next), [false, false, true]);
        assert_eq!(allowed("", &one_by_one(three), &next), [true; 3]);
    }

    #[test]
    fn actions_that_say_nothing_are_not_empty() {
        for (tool, result, blocked) in [
            ("bash", "", false),
            ("writeFile", "null", false),
            ("functions.create_event", "None", false),
            ("set_alarm", "{}", false),
            ("lookup", "", true),
            ("bash", "[]", true),
            ("bash", "No results found.", true),
        ] {
            let made: Vec<Pair> =
                ["1", "2", "3", "4", "5", "6"].map(|arguments| (tool, arguments, result)).to_vec();
            assert_eq!(allowed("", &one_by_one(&made), &[(tool, "7", "")]), [!blocked], "{tool} {result}");
            assert_eq!(places("", &one_by_one(&made)).is_empty(), !blocked, "{tool} {result}");
        }
        let made: Vec<Pair> = ["1", "2", "3", "4"].map(|arguments| ("bash", arguments, "")).to_vec();
        assert_eq!(allowed("quiet = []", &one_by_one(&made), &[("bash", "5", "")]), [false]);
    }

    /// `calls` calls with these arguments in turn, whose results are those of `result`.
    fn growing(
        tool: &str,
        arguments: &[&str],
        result: impl Fn(usize) -> String,
        calls: usize,
    ) -> Vec<SampleItem> {
        let own = |text: String| -> &'static str { text.leak() };
        let pair = |nth: usize| {
            (own(tool.to_owned()), own(arguments[nth % arguments.len()].to_owned()), own(result(nth)))
        };
        one_by_one(&(0..calls).map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn a_clock_a_cursor_or_an_etag_does_not_make_a_result_new() {
        for result in [
            (|nth| format!("No new messages at 12:00:{nth:02}.")) as fn(usize) -> String,
            |nth| format!(r#"{{"status":"unchanged","request_id":"r-{nth}","took_ms":{nth}}}"#),
            |nth| format!(r#"{{"items":["the same item"],"next_cursor":"c{nth}="}}"#),
            |nth| format!("ETag: \"{nth}a\"\nNothing has changed."),
            |nth| format!("The inbox is empty (attempt {nth})"),
        ] {
            let messages = |calls| growing("check", &["{}"], result, calls);
            assert_eq!(places("", &messages(4)), [(6, "notice"), (8, "notice")], "{}", result(1));
            assert_eq!(allowed("", &messages(3), &[("check", "{}", "")]), [true], "{}", result(1));
            assert_eq!(allowed("", &messages(4), &[("check", "{}", "")]), [false], "{}", result(1));
        }
        let said = notices("", &growing("check", &["{}"], |nth| format!("No news at 12:00:{nth:02}."), 3))
            .remove(0)
            .2;
        assert!(said.contains("gave the same result each time, but for times, ids or counts."), "{said}");
    }

    #[test]
    fn waiting_counts_a_twentieth_and_less_where_the_calls_are_apart() {
        let running = ("look", "{}", r#"{"state":"running"}"#);
        let pause = ("bash", r#"{"command":"sleep 5"}"#, "");
        for (pairs, calls) in [(vec![running; 61], 61), ([running, pause].repeat(61), 122)] {
            let told = places("", &one_by_one(&pairs));
            assert_eq!(told.len(), 2, "{told:?}");
            assert_eq!(allowed("", &one_by_one(&pairs), &[running]), [false], "{calls}");
            assert_eq!(allowed("", &one_by_one(&pairs[..calls - 2]), &[running]), [true], "{calls}");
        }
        // Half a minute apart.
        let released: Vec<Option<u64>> = (0..200).map(|nth| Some(1_000 + 30_000 * nth)).collect();
        let rule = policy::<Loops>("");
        let request = SampleRequest::new(&one_by_one(&vec![running; 200]));
        let (plan, mut judge) = read(&rule, &request, &released);
        assert!(plan.edits.is_empty());
        assert!(judge.rule(0, "look", Some("{}"), 0).is_allowed());
    }

    #[test]
    fn progress_paging_counters_and_tests_are_no_loops() {
        let rows = ["{\"page\":1}", "{\"page\":2}", "{\"page\":3}", "{\"page\":4}", "{\"page\":5}"];
        for (arguments, result) in [
            (
                &["{}"][..],
                (|nth| format!(r#"{{"status":"running","progress":{nth}}}"#)) as fn(usize) -> String,
            ),
            (&["{}"][..], |nth| {
                format!("{} failed, {nth} passed in {nth}.{nth}s of the suite of tests", 20 - nth)
            }),
            (&["{}"][..], |nth| format!("Counter: {nth}")),
            (&["{}"][..], |nth| format!("You rolled a {nth}")),
            (&["{}"][..], |nth| format!(r#"{{"page":{nth},"of":9,"rows":["customer"]}}"#)),
            (&["{}"][..], |nth| format!("[{nth},1{nth},2{nth}]")),
            (&["{}"][..], |nth| format!("Temperature of the boiler: {nth}.5 degrees")),
            (&rows[..], |nth| format!(r#"{{"rows":[{{"id":{nth},"name":"Customer {nth}"}}]}}"#)),
            (&rows[..], |_| "Saved.".to_owned()),
            (&rows[..], |_| "The event was created and all of its guests were invited.".to_owned()),
        ] {
            let messages = growing("step", arguments, result, 9);
            assert_eq!(places("", &messages), [], "{}", result(1));
            assert_eq!(allowed("", &messages, &[("step", arguments[0], "")]), [true], "{}", result(1));
        }
    }

    #[test]
    fn results_that_differ_in_a_few_plain_numbers_count_half() {
        let messages = |calls| {
            growing(
                "inbox",
                &["{}"],
                |nth| format!("There are {nth} messages of no importance in the inbox."),
                calls,
            )
        };
        assert_eq!(places("", &messages(4)), []);
        assert_eq!(places("", &messages(5)), [(10, "notice")]);
        assert_eq!(allowed("", &messages(6), &[("inbox", "{}", "")]), [true]);
        assert_eq!(allowed("", &messages(7), &[("inbox", "{}", "")]), [false]);
        let reason = reasons("", &messages(7), &[("inbox", "{}", "")]).remove(0).unwrap();
        assert!(
            reason.message.contains(
                "7 times in a row with the same arguments and gave the same result each time, but for numbers"
            ),
            "{}",
            reason.message
        );
    }

    #[test]
    fn reworded_arguments_with_the_same_result_are_the_same_call() {
        let queries = [
            "{\"q\":\"history of bicycles\"}",
            "{\"q\":\"Bicycles, history of\"}",
            "{\"q\":\"HISTORY of  bicycles?\"}",
        ];
        let hits = |_| "[1] The bicycle: a history in pictures".to_owned();
        let messages = |calls| growing("search", &queries, hits, calls);
        assert_eq!(places("", &messages(3)), [(6, "notice")]);
        let other = ("search", "{\"q\":\"history of cars\"}", "");
        let again = ("search", "{\"q\":\"of bicycles: history\"}", "");
        assert_eq!(allowed("", &messages(4), &[again]), [false]);
        assert_eq!(allowed("", &messages(4), &[other]), [true]);
        let said = notices("", &messages(3)).remove(0).2;
        assert!(said.contains("3 times in a row with nearly the same arguments and"), "{said}");
        let confirmed = growing("move", &MOVES, |_| "Done.".to_owned(), 9);
        assert_eq!(places("", &confirmed), [], "so short a result only confirms");
    }

    const MOVES: [&str; 5] = [
        "{\"a\":\"x y z\"}",
        "{\"a\":\"y x z\"}",
        "{\"a\":\"z x y\"}",
        "{\"a\":\"x z y\"}",
        "{\"a\":\"y z x\"}",
    ];

    #[test]
    fn one_long_result_for_all_arguments_counts_half() {
        let urls: Vec<String> =
            (0..9).map(|nth| format!("{{\"url\":\"https://example.com/{nth}\"}}")).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let wall =
            |_| format!("Please log in. {}", "You need an account to read any of our pages. ".repeat(9));
        let messages = |calls| growing("open", &urls, wall, calls);
        assert_eq!(places("", &messages(4)), []);
        assert_eq!(places("", &messages(5)), [(10, "notice")]);
        let next = [("open", "{\"url\":\"https://example.org\"}", ""), ("search", "{}", "")];
        assert_eq!(allowed("", &messages(6), &next), [true, true]);
        assert_eq!(allowed("", &messages(7), &next), [false, true]);
    }

    #[test]
    fn the_operator_s_texts_are_used() {
        let table = "[x.texts]\nnotice = \"{tools} {times}\"\nblocked = \"Halt: {tools}\"\nempty = \"{results} leer\"\nblocked_empty = \"Leer: {tools}\"";
        assert_eq!(notices(table, &one_by_one(&[RAIN; 3])).remove(0).2, "weather 3");
        assert_eq!(
            reasons(table, &one_by_one(&[RAIN; 4]), &[RAIN]).remove(0).unwrap().message,
            "Halt: weather"
        );
        let many: Vec<Pair> = ["1", "2", "3", "4"].map(|arguments| ("search", arguments, "")).to_vec();
        assert_eq!(notices(table, &one_by_one(&many)).remove(0).2, "2 leer");
        let next = [("search", "5", "")];
        assert_eq!(reasons(table, &one_by_one(&many), &next).remove(0).unwrap().message, "Leer: search");
    }

    #[test]
    fn loop_notices_keep_their_places_as_the_conversation_grows() {
        let pairs =
            [vec![RAIN; 7], [SUN, FOG].repeat(5), vec![NOTHING; 3], vec![THOUGHT, RAIN, RAIN, RAIN]].concat();
        let whole = notices("", &one_by_one(&pairs));
        for made in 0..pairs.len() {
            let found = notices("", &one_by_one(&pairs[..made]));
            let before: Vec<_> = whole.iter().filter(|(message, ..)| *message <= 2 * made).cloned().collect();
            assert_eq!(found, before, "after {made} calls");
        }
        assert_eq!(whole.len(), 8, "{whole:?}");
    }

    #[test]
    fn at_most_one_notice_is_placed_at_a_message() {
        assert_eq!(places("", &one_by_one(&[NOTHING; 4])), [(4, "empty"), (6, "notice"), (8, "notice")]);
    }

    #[test]
    fn the_strict_form_blocks_at_once_and_compares_calls_alone() {
        let table = "strict = true";
        let dry = ("weather", r#"{"city":"Paris"}"#, "dry");
        assert_eq!(places(table, &one_by_one(&[NOTHING; 4])), []);
        assert_eq!(allowed(table, &one_by_one(&[RAIN, SUN]), &[RAIN]), [true]);
        let reason = reasons(table, &one_by_one(&[RAIN, SUN, FOG, dry]), &[RAIN]).remove(0).unwrap();
        assert_eq!(reason.numbers, [("equal_calls", 2)]);
        assert!(
            reason.message.contains("weather was already called 2 times in this turn"),
            "{}",
            reason.message
        );
        assert_eq!(allowed(table, &one_by_one(&[FOG]), &[RAIN, RAIN, RAIN, SUN]), [true, true, false, true]);
        assert_eq!(allowed(table, &one_by_one(&[THOUGHT; 5]), &[THOUGHT]), [true]);
        let other = ("search", r#"{"q":"b"}"#, "");
        let reason =
            reasons(table, &one_by_one(&[NOTHING, other]), &[("search", "3", "")]).remove(0).unwrap();
        assert_eq!(reason.numbers, [("empty_results", 2)]);
        assert!(reason.message.contains("the last 2 tool results were empty"), "{}", reason.message);
        assert_eq!(allowed(table, &one_by_one(&[NOTHING, other]), &[RAIN]), [true], "another tool is open");
    }

    #[test]
    fn arguments_are_asked_for_only_where_a_call_could_close_a_cycle() {
        for (table, pairs, tool, needed) in [
            ("", vec![RAIN; 3], "weather", false),
            ("", vec![RAIN; 4], "weather", true),
            ("", vec![RAIN; 4], "fog", false),
            ("", [RAIN, FOG].repeat(4), "weather", true),
            ("strict = true", vec![], "weather", true),
            ("strict = true", vec![], "think", false),
            ("strict = true\nnotice = 0", vec![], "weather", false),
        ] {
            let mut judge = read_messages(&policy::<Loops>(table), &one_by_one(&pairs)).1;
            assert_eq!(judge.needs_arguments(0, tool), needed, "{table} {tool}");
        }
    }

    #[test]
    fn a_single_call_is_refused_as_a_loop() {
        let config: Config = toml::from_str("notice = 1\nblock = 1\nempty_block = 1").unwrap();
        let problems = Loops::new(config).err().unwrap();
        assert_eq!(
            problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(),
            ["notice", "block", "empty_block"]
        );
    }
}
