//! The size of what is sent, and the bill to be expected: the class estimate of the request as the plan changes it,
//! message by message, joined with what is known of its beginning. Counts; writes and remembers nothing.
//!
//! Who needs a count, gets one: a limit in tokens has counted what it needs by now, and what is new in a conversation is
//! always counted, since a bill is foretold from the one before and the difference of two sizes. But of a history that
//! nobody has counted only samples are read: its whole size serves a first prediction, and no byte depends on it.

use super::texts::settle;
use crate::policy::plan::{Change, Plan};
use crate::transcript::View;
use crate::transcript::identity::{Domain, Hash};
use crate::transcript::prompt::{Anchor, Histories, Prediction, Ratio, Size, predict};
use crate::transcript::tokens::{Estimate, MESSAGE_OVERHEAD, TOOL_SCHEMA, estimate_json, estimate_text};
use crate::transcript::{COUNTED, Transcript};
use crate::wire::json::decode;
use bytes::Bytes;
use std::collections::BTreeSet;

/// Of more bytes than this so small a part is counted that the size tells nothing of what tools cost. A first prompt is
/// mostly smaller: from those it is learned.
const TELLING: usize = 32 << 10;

/// A request as it goes up.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    pub transcript: &'a Transcript<'a>,
    pub plan: &'a Plan,
    pub restored: &'a [(usize, Bytes)],
}

impl Sent<'_> {
    /// The size of it and the bill to be expected: the one place where both are reckoned. `anchors` answer for the
    /// earlier ones of `histories`, in their order.
    pub fn foretell(
        &self,
        histories: &Histories,
        anchors: &[Option<Anchor>],
        ratio: Option<Ratio>,
    ) -> (Size, Prediction) {
        let known = histories.earlier.iter().zip(anchors);
        let known = known.filter_map(|((end, _), anchor)| Some((*end, (*anchor)?)));
        let known: Vec<(usize, Anchor)> =
            known.filter(|(end, anchor)| self.edits_before(*end) == anchor.edits).collect();
        // The newest that was billed; one without a bill still saves the counting.
        let Some((end, anchor)) = known.iter().find(|(_, anchor)| anchor.prompt > 0).or(known.first()) else {
            let size = self.size();
            return (size, predict(size, None, ratio));
        };
        let messages = anchor.size.messages + self.messages_from(*end);
        let size = Size { messages, ..anchor.size };
        let reply = self.transcript.view(*end).tokens();
        (size, predict(size, Some((anchor, reply)), ratio))
    }

    /// The size of all of it; of what nobody has counted, from samples.
    pub fn size(&self) -> Size {
        let views = (0..self.transcript.request.messages.len()).map(|at| self.transcript.view(at));
        let uncounted = views.filter(|view| view.counted_tokens().is_none());
        let bytes: usize = uncounted.map(|view| view.message.span.len()).sum();
        let one_in = bytes.div_ceil(COUNTED);
        let messages = if one_in > 1 {
            self.messages(0, |view| view.sampled_tokens(one_in))
        } else {
            self.messages_from(0)
        };
        Size { tools: self.tools(), messages, sampled: bytes > TELLING }
    }

    /// The size of the messages from the one at `first` on. Messages that were counted before are not counted again.
    pub fn messages_from(&self, first: usize) -> Estimate {
        self.messages(first, |view| view.tokens())
    }

    /// The same by a count of each message as it came.
    fn messages(&self, first: usize, count: impl Fn(&View<'_>) -> Estimate) -> Estimate {
        let Self { transcript, plan, restored } = *self;
        let factor = transcript.token_factor;
        let (mut gone, mut new, mut come) = (Estimate::ZERO, Estimate::ZERO, Estimate::ZERO);
        // Messages of which nothing is sent but what stands for their text: that text need not be counted.
        let mut replaced = BTreeSet::new();
        for ((message, text), change) in settle(plan).range((first, 0)..) {
            if let Some(by) = change.by() {
                let view = transcript.view(*message);
                new += view.tokens_of_other(by);
                if view.is_one_text() {
                    replaced.insert(*message);
                } else {
                    gone += view.tokens_of_text(*text);
                }
            }
            let lines = change.around.iter();
            come += lines.map(|(before, after)| estimate_text(before) + estimate_text(after)).sum();
        }
        come += self.notices().filter(|(at, _)| *at >= first).map(|(_, text)| estimate_text(text)).sum();
        let rounds = restored.iter().filter(|(before, _)| *before >= first);
        come += rounds.map(|(_, round)| estimate_json(round)).sum();
        come += replaced.iter().map(|_| MESSAGE_OVERHEAD).sum();
        let kept = (first..transcript.request.messages.len()).filter(|at| !plan.drops(*at));
        let as_they_came: Estimate =
            kept.filter(|at| !replaced.contains(at)).map(|at| count(&transcript.view(at))).sum();
        (as_they_came + new + come.scaled(factor)).saturating_sub(gone)
    }

    /// Names what is done to the first `count` messages: empty plans agree, and so does every plan that does the same.
    pub fn edits_before(&self, count: usize) -> Hash {
        let mut done = Vec::new();
        let mut note = |numbers: [usize; 3]| {
            numbers.iter().for_each(|number| done.extend_from_slice(&(*number as u64).to_le_bytes()));
        };
        for ((message, text), change) in settle(self.plan).range(..(count, 0)) {
            note([*message, *text, change.by().map_or(0, |by| by.len())]);
            change.around.iter().for_each(|(before, after)| note([*message, before.len(), after.len()]));
        }
        let dropped = self.plan.dropped.iter().map(|dropped| &dropped.messages);
        for turns in dropped.filter(|turns| turns.start < count) {
            note([turns.start, turns.end.min(count), 0]);
        }
        self.notices().filter(|(at, _)| *at < count).for_each(|(at, text)| note([at, text.len(), 1]));
        let rounds = self.restored.iter().filter(|(before, _)| *before < count);
        rounds.for_each(|(before, round)| note([*before, round.len(), 2]));
        if done.is_empty() {
            return Hash::default();
        }
        self.transcript.identity.key.hash(Domain::History, &[b"edits", &done])
    }

    /// Names the rounds that are put back before the first `count` messages; 0 where there are none.
    pub fn rounds_before(&self, count: usize) -> u64 {
        let rounds: Vec<_> = self.restored.iter().filter(|(before, _)| *before < count).collect();
        if rounds.is_empty() {
            return 0;
        }
        let places: Vec<[u8; 8]> = rounds.iter().map(|(before, _)| (*before as u64).to_le_bytes()).collect();
        let parts = rounds.iter().zip(&places).flat_map(|((_, round), place)| [&place[..], &round[..]]);
        let parts: Vec<&[u8]> = std::iter::once(&b"rounds"[..]).chain(parts).collect();
        // Half of the name: it is compared with one other.
        (self.transcript.identity.key.hash(Domain::History, &parts).0 as u64).max(1)
    }

    /// Whether the rounds that are put back before the newest reply that is known are those that were put back when it
    /// was asked for. They are not where one was told or lost since: by another process, say, or behind an equal reply.
    /// `anchors` answer for the earlier ones of `histories`, in their order.
    pub fn keeps_rounds(&self, histories: &Histories, anchors: &[Option<Anchor>]) -> bool {
        let mut known = histories.earlier.iter().zip(anchors);
        let newest = known.find_map(|((end, _), anchor)| Some((*end, (*anchor)?)));
        newest.is_none_or(|(end, anchor)| anchor.rounds == self.rounds_before(end))
    }

    /// The notices that are placed, with their messages.
    fn notices(&self) -> impl Iterator<Item = (usize, &str)> {
        let edits = self.plan.edits.iter().filter(|edit| !self.plan.drops(edit.message));
        edits.filter_map(|edit| match &edit.change {
            Change::Notice { text, .. } => Some((edit.message, text.as_str())),
            _ => None,
        })
    }

    fn tools(&self) -> Estimate {
        // Mostly all of them are shown, and were counted before.
        if self.plan.hidden.is_empty() && self.plan.declared.is_empty() {
            return self.transcript.declared_tokens();
        }
        let body = self.transcript.body;
        let is_hidden = |name: &str| self.plan.hidden.iter().any(|(_, hidden)| hidden == name);
        let declared = self.transcript.request.tools.iter();
        let shown = declared.filter(|tool| tool.name.is_none_or(|name| !is_hidden(&decode(name, body))));
        let tools: Estimate = shown.map(|tool| TOOL_SCHEMA + estimate_json(tool.span.of(body))).sum();
        let ours: Estimate =
            self.plan.declared.iter().map(|ours| TOOL_SCHEMA + estimate_json(ours.tool.as_bytes())).sum();
        (tools + ours).scaled(self.transcript.token_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::plan::Dropped;
    use crate::policy::plan::Edit;
    use crate::transcript::identity::{HashKey, Identity};
    use crate::transcript::memo::NoMemo;
    use crate::wire::request::Request;

    /// Sizes of a request of three messages: as it came, with `edits`, and the latter from the last message on.
    fn sizes(edits: Vec<Edit>, restored: &[(usize, Bytes)]) -> [u64; 3] {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"tool","content":"{}"}},{{"role":"user","content":"q"}}],
                "tools":[{{"function":{{"name":"a"}}}},{{"function":{{"name":"b"}}}}]}}"#,
            "word ".repeat(100)
        );
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let plan = &plan(edits);
        let sent = Sent { transcript, plan, restored };
        let plain = Sent { plan: &Plan::default(), restored: &[], ..sent };
        [plain.size().messages, sent.size().messages, sent.messages_from(2)].map(Estimate::tokens)
    }

    fn plan(edits: Vec<Edit>) -> Plan {
        let mut plan = Plan::default();
        plan.edits = edits;
        plan
    }

    fn edit(message: usize, change: Change) -> Edit {
        Edit { message, decided: message, policy: "p", change }
    }

    #[test]
    fn a_cut_text_counts_as_what_stands_in_its_place() {
        let cut = Change::Shorten { text: 0, by: "word word".into(), gone_chars: 490 };
        let [plain, sent, last] = sizes(vec![edit(1, cut)], &[]);
        assert!(plain > 100 && sent < plain - 90, "{plain} {sent}");
        assert!(last < 10, "the cut stands before it: {last}");
    }

    #[test]
    fn a_text_that_is_not_sent_is_not_counted() {
        let body = format!(r#"{{"messages":[{{"role":"tool","content":"{}"}}]}}"#, "word ".repeat(2000));
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let plan = &plan(vec![edit(0, Change::Shorten { text: 0, by: "word".into(), gone_chars: 9996 })]);
        let size = Sent { transcript, plan, restored: &[] }.messages_from(0);
        assert!(size.tokens() < 10 && transcript.view(0).counted_tokens().is_none(), "{size:?}");
    }

    #[test]
    fn notices_and_restored_rounds_count_where_they_stand() {
        let notice = || Change::Notice { text: "word ".repeat(20), word: "notice" };
        for (edits, restored) in [
            (vec![edit(2, notice())], vec![]),
            (vec![], vec![(2, Bytes::from(format!(r#"{{"content":"{}"}}"#, "word ".repeat(20))))]),
        ] {
            let [plain, sent, last] = sizes(edits, &restored);
            assert!((15..40).contains(&(sent - plain)) && last > 15, "{plain} {sent} {last}");
        }
        let [plain, sent, _] = sizes(vec![edit(0, Change::Remark { word: "slow", of: None })], &[]);
        assert_eq!(plain, sent);
    }

    #[test]
    fn dropped_turns_are_not_counted_nor_what_was_done_to_them() {
        let notice = Change::Notice { text: "word ".repeat(20), word: "notice" };
        let body = r#"{"messages":[{"role":"user","content":"q q q"},{"role":"user","content":"q q q"}]}"#;
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let mut plan = plan(vec![edit(0, notice)]);
        plan.dropped.push(Dropped { policy: "history", messages: 0..1, decided: 1 });
        let of = |plan: &Plan| Sent { transcript, plan, restored: &[] }.messages_from(0);
        assert_eq!(of(&plan) + of(&plan), of(&Plan::default()));
    }

    #[test]
    fn of_a_long_history_samples_are_read_unless_it_was_counted() {
        let turn = format!(r#"{{"role":"user","content":"{}"}}"#, r#"word {\"id\": 7}\n"#.repeat(500));
        for turns in [1, 2, 5] {
            let body = format!(r#"{{"messages":[{}]}}"#, vec![&*turn; turns].join(","));
            let request = Request::parse(body.as_bytes()).unwrap();
            let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
            let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
            let sent = Sent { transcript, plan: &Plan::default(), restored: &[] };
            let first = sent.size();
            assert_eq!(first.sampled, body.len() > TELLING, "{turns}");
            let whole: Estimate = (0..turns).map(|at| transcript.view(at).tokens()).sum();
            let off = first.messages.tokens().abs_diff(whole.tokens());
            assert!(off < whole.tokens() / 20, "{first:?} {whole:?}");
            assert_eq!(sent.size(), Size { messages: whole, ..Size::default() });
        }
    }

    #[test]
    fn hidden_tools_are_not_counted() {
        let body = r#"{"messages":[],"tools":[{"function":{"name":"a"}},{"function":{"name":"b"}}]}"#;
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let mut hidden = Plan::default();
        hidden.hidden.push(("allow", "a".to_owned()));
        let tools = |plan: &Plan| Sent { transcript, plan, restored: &[] }.size().tools;
        assert_eq!(tools(&hidden) + tools(&hidden), tools(&Plan::default()));
    }

    #[test]
    fn equal_edits_of_a_history_share_a_name() {
        let body = r#"{"messages":[{"role":"user"},{"role":"user"}]}"#;
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let name = |edits: Vec<Edit>, count| {
            Sent { transcript, plan: &plan(edits), restored: &[] }.edits_before(count)
        };
        let notice = |at| edit(at, Change::Notice { text: "n".to_owned(), word: "notice" });
        assert_eq!(name(vec![], 2), name(vec![notice(1)], 1), "what comes later does not count");
        assert_eq!(name(vec![notice(0)], 1), name(vec![notice(0), notice(1)], 1));
        assert_ne!(name(vec![notice(0)], 2), name(vec![notice(1)], 2));
    }

    #[test]
    fn rounds_are_kept_where_the_known_beginning_is_sent_with_the_same_ones() {
        let body = r#"{"messages":[{"role":"user"},{"role":"assistant"},{"role":"user"},{"role":"assistant"},{"role":"user"}]}"#;
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = &Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        let histories = Histories::read(transcript, Hash(9));
        let round = |at: usize, text: &'static str| (at, Bytes::from_static(text.as_bytes()));
        let plan = Plan::default();
        let keeps = |then: &[(usize, Bytes)], now: &[(usize, Bytes)], known: bool| {
            let rounds = Sent { transcript, plan: &plan, restored: then }.rounds_before(3);
            let anchor = known.then(|| Anchor { rounds, ..Anchor::default() });
            Sent { transcript, plan: &plan, restored: now }.keeps_rounds(&histories, &[anchor, None])
        };
        let (first, other, last) = (round(1, "{}"), round(1, "{ }"), round(3, "{}"));
        for (then, now, kept) in [
            (vec![], vec![], true),
            (vec![first.clone()], vec![first.clone()], true),
            (vec![first.clone()], vec![first.clone(), last.clone()], true),
            (vec![], vec![last], true),
            (vec![], vec![first.clone()], false),
            (vec![first.clone()], vec![], false),
            (vec![first], vec![other], false),
        ] {
            assert_eq!(keeps(&then, &now, true), kept, "{then:?} {now:?}");
            assert!(keeps(&then, &now, false), "nothing is known");
        }
    }
}
