//! The client's view of the replies to its request, and what goes back to the model if calls are blocked. Writes no
//! bytes to the client.

use super::hidden::{elements, results};
use super::items::{CHOICE, OutItem, Veil};
use super::last::Last;
use super::written;
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::ShownChoice;
use crate::dialect::responses::item::{ItemKind, parse_item};
use crate::dialect::responses::rounds::{Element, write};
use bytes::Bytes;
use model::assembled::Assembled;
use model::message::Content;
use model::plan::approval::{Question, Unasked};
use model::plan::decision::{Decision, Next, dropped_result};
use wire::body::Scanner;
use wire::json::decode;

/// See the file's head.
#[derive(Default)]
pub struct Shown {
    /// The items of earlier replies that the client has, as JSON.
    pub earlier: Vec<Bytes>,
    earlier_text: String,
    /// The text of the present reply.
    text: String,
    /// The text that the client got in pieces, of all replies.
    given: String,
    /// The calls of the present reply that the client has.
    released: Vec<Assembled>,
    /// The client has at least part of one of its calls.
    releases: bool,
    /// All its calls, where a person is asked about them.
    calls: Vec<Assembled>,
    decisions: Vec<Option<Decision>>,
    /// The present reply's hidden exchange; empty where nothing is hidden.
    hidden: Vec<Element>,
    /// The results that the upstream waits for, where it keeps the reply.
    pub owed: Vec<Bytes>,
    /// The calls of the present reply whose results the model reads, and nobody else.
    hidden_calls: Vec<(Assembled, Decision)>,
    question: Option<Result<Question, Unasked>>,
    asked: bool,
    /// The id of the present reply.
    pub reply_id: Option<String>,
    pub is_finished: bool,
    continued: bool,
    /// A call is not released as it came.
    edited: bool,
}

impl Shown {
    /// Brings it up to date with the items of the present reply. Texts and arguments are copied once, however often
    /// that happens.
    pub fn update(&mut self, items: &mut [OutItem], judging: &dyn CallJudge) {
        for item in items.iter_mut().filter(|item| !item.counted) {
            let (Some(done), true) = (&item.done, item.is_settled()) else { continue };
            item.counted = true;
            match &item.call {
                Some(call) if call.is_released() && !call.is_placeholder() => {
                    self.released.push(call.assembled.clone());
                }
                Some(_) => {}
                None => self.text.push_str(&text_of(done)),
            }
        }
        let calls =
            || items.iter().filter_map(|item| item.call.as_ref()).filter(|call| !call.is_placeholder());
        self.decisions = calls().map(|call| call.decision.clone()).collect();
        self.releases = calls().any(|call| call.is_released());
        self.edited = items.iter().any(|item| item.own && !item.is_reserved())
            || calls().any(|call| {
                call.decision.as_ref().is_some_and(|it| *it != Decision::Release) || call.is_written()
            });
        self.hidden.clear();
        self.owed.clear();
        self.hidden_calls.clear();
        let is_unseen = |decision: &Decision| decision.is_hidden() || *decision == Decision::Drop;
        if !judging.observes() && self.decisions.iter().flatten().any(is_unseen) {
            self.hide(items, judging);
            let calls = items.iter().filter_map(|item| item.call.as_ref());
            let decided = calls.filter_map(|call| Some((call, call.decision.as_ref()?)));
            let hidden = decided.filter(|(_, decision)| decision.is_hidden());
            self.hidden_calls =
                hidden.map(|(call, decision)| (call.assembled.clone(), decision.clone())).collect();
        }
    }

    /// Writes the hidden exchange. A call that was dropped goes into it beside reasoning alone, which would be refused
    /// without the call.
    fn hide(&mut self, items: &[OutItem], judging: &dyn CallJudge) {
        let question = self.question.as_ref();
        let result = |decision: &Decision| match decision {
            Decision::Drop => Some(dropped_result()),
            decision => decision.hidden_result(question),
        };
        self.owed = results(items, &result);
        let reasons = items.iter().any(|item| item.kind == ItemKind::Reasoning);
        if reasons || self.decisions.iter().flatten().any(Decision::is_hidden) {
            let shown =
                |decision: &Decision| result(decision).filter(|_| reasons || *decision != Decision::Drop);
            self.hidden = elements(self.reply_id.as_deref(), items, judging, &shown);
        }
    }

    /// Asks a person, if the reply ends in a question. One about calls is shown alone: text of the model that the client
    /// has not got is left out. `streamed`: it got what came before.
    pub fn ask(&mut self, items: &mut [OutItem], judging: &dyn CallJudge, streamed: bool) {
        if self.question.is_some() {
            return;
        }
        let is_text = |item: &&OutItem| item.call.is_none() && item.shown_as.is_some();
        let texts = items.iter().filter(is_text).filter_map(|item| item.done.as_ref());
        let shown: String = texts.map(text_of).collect();
        let earlier = if streamed { self.earlier_text.as_str() } else { "" };
        let before = format!("{earlier}{shown}");
        // Programs show a text by its pieces, or as it is when it is complete.
        let by_pieces = &self.given;
        let (calls, decisions) = (&mut self.calls, &self.decisions);
        self.question = Question::of(decisions, || {
            let made =
                items.iter().filter_map(|item| item.call.as_ref()).filter(|call| !call.is_placeholder());
            *calls = made.map(|call| call.assembled.clone()).collect();
            let whole = judging.question(calls, &before)?;
            let pieces = judging.question(calls, by_pieces)?;
            // The one that fewer words answer.
            Ok(if pieces.words.len() < whole.words.len() { pieces } else { whole })
        });
        if self.question.is_none() {
            return;
        }
        if matches!(&self.question, Some(Ok(question)) if question.is_approval()) {
            self.text = shown;
            let is_message = |item: &OutItem| matches!(item.kind, ItemKind::Message(_)) && !item.own;
            for item in items.iter_mut().filter(|item| is_message(item) && item.shown_as.is_none()) {
                item.veil = Veil::Empty;
                item.counted = true;
            }
            if !streamed {
                self.earlier_text.clear();
                self.earlier.retain(|item| text_of(item).is_empty());
            }
        }
        self.update(items, judging);
    }

    /// Notes text that the client gets in a piece.
    pub fn give(&mut self, text: &str) {
        self.given.push_str(text);
    }

    /// The question that the client has not got yet.
    pub fn take_question(&mut self) -> Option<String> {
        let question = self.question.as_ref()?.as_ref().ok().filter(|_| !self.asked)?;
        self.asked = true;
        Some(question.text.clone())
    }

    /// Whether it ends in a question to a person.
    fn is_asking(&self) -> bool {
        matches!(self.question, Some(Ok(_)))
    }

    /// Whether the client sees anything else than what came.
    pub fn is_edited(&self) -> bool {
        self.edited
    }

    /// Whether the client gets nothing to read and nothing to run.
    pub fn is_silent(&self) -> bool {
        let texts = [&self.earlier_text, &self.text];
        !self.releases && texts.iter().all(|text| text.trim().is_empty())
    }

    /// Goes on with another reply.
    pub fn begin_next_reply(&mut self, items: &mut Vec<OutItem>, last: Option<&Last>) {
        let ended = std::mem::take(items);
        let is_kept = |item: &&OutItem| item.is_shown() && item.done.is_some();
        let copies = ended.iter().filter(is_kept).filter_map(|item| {
            let copy = last.and_then(|last| last.copy_of(item, &ended)).or_else(|| item.done.clone())?;
            Some(match &item.call {
                Some(call) if call.is_written() => {
                    written::judged_call(call.kind, &call.assembled, Some(&copy))
                }
                _ => copy,
            })
        });
        self.earlier.extend(copies);
        self.earlier_text.push_str(&self.text);
        let earlier = (std::mem::take(&mut self.earlier), std::mem::take(&mut self.earlier_text));
        let given = std::mem::take(&mut self.given);
        *self =
            Self { earlier: earlier.0, earlier_text: earlier.1, given, continued: true, ..Self::default() };
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let earlier: usize = self.earlier.iter().map(Bytes::len).sum();
        let calls: usize = self.calls.iter().chain(&self.released).map(Assembled::size).sum();
        earlier + calls + self.text.len() + self.given.len() + self.earlier_text.len()
    }
}

/// The text of a message; empty for another item.
pub(super) fn text_of(item: &Bytes) -> String {
    let read = parse_item(&mut Scanner::new(item)).ok().filter(|item| item.call.name.is_none());
    let content = read.and_then(|item| item.content).unwrap_or(Content::Absent);
    content.texts().map(|text| decode(text, item).into_owned()).collect()
}

impl ShownChoice for Shown {
    fn index(&self) -> u32 {
        CHOICE
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn is_continued(&self) -> bool {
        self.continued
    }

    fn is_waiting(&self) -> bool {
        self.decisions.iter().any(|decision| matches!(decision, Some(Decision::Hold { .. })))
    }

    fn calls(&self) -> usize {
        self.decisions.len()
    }

    fn released(&self) -> Vec<&Assembled> {
        self.released.iter().collect()
    }

    fn text(&self) -> String {
        format!("{}{}", self.earlier_text, self.text)
    }

    fn asked(&self) -> Option<(&Question, &[Assembled])> {
        let question = self.question.as_ref()?.as_ref().ok()?;
        let is_put = self.asked && question.is_approval();
        is_put.then(|| (question, &self.calls[..question.calls.min(self.calls.len())]))
    }

    fn is_wholly_blocked(&self) -> bool {
        let is_hidden = self.decisions.iter().flatten().any(Decision::is_hidden);
        is_hidden && !self.releases && !self.is_asking() && !self.is_waiting()
    }

    fn hidden_calls(&self) -> Vec<(&Assembled, &Decision)> {
        self.hidden_calls.iter().map(|(call, decision)| (call, decision)).collect()
    }

    fn hidden_exchange(&self) -> Option<Bytes> {
        (!self.hidden.is_empty()).then(|| write(&self.hidden))
    }

    fn next(&self) -> Next {
        Next::of(&self.decisions)
    }
}
