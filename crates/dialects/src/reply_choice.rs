//! One choice of a reply as data: its calls as far as they have come, the decision on each, its text, and what the client
//! was shown. Codecs add to the calls, the engine adds the decisions, codecs write what results.

use super::accepted::AcceptedForm;
use super::reply::Form;
use model::assembled::Assembled;
use model::plan::approval::{Question, Unasked};
use model::plan::decision::Decision;
use wire::json::{escape_into, unescape};

/// The approximate memory of a call or a choice besides its text.
const CALL_BYTES: usize = 256;

/// One call of a choice.
#[derive(Clone, Debug, Default)]
pub struct ReplyCall {
    /// As far as it has come; after a decision that changes its arguments, with these.
    pub assembled: Assembled,
    pub decision: Option<Decision>,
    /// It was decided on by its arguments too.
    pub with_arguments: bool,
    /// No policy objects to its name.
    pub name_passes: bool,
    /// toolrein writes it instead of passing it on: a person has approved it as it was shown, or JSON readers see different
    /// calls in it.
    pub is_written: bool,
    /// The name and the id of a call that the client does not see, for the history.
    pub accepted: AcceptedForm,
    /// Nothing follows its name.
    pub has_whole_name: bool,
    /// Nothing of it follows.
    pub is_complete: bool,
    /// Its arguments may lack their end; `None`: they do where they are no whole JSON value.
    pub is_open: Option<bool>,
    /// Neither its complete form nor its complete arguments came before the reply ended, and these are no JSON.
    pub is_cut_off: bool,
    /// What came of it in several forms differs: it goes out as it was judged by its arguments.
    pub differs: bool,
    /// Clients run it without a name.
    pub runs_without_name: bool,
    /// No text can be its result.
    pub is_unanswerable: bool,
}

impl ReplyCall {
    /// Whether the client sees it.
    pub fn is_released(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_released)
    }

    /// Whether the decision on it is final.
    pub fn is_settled(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| !matches!(decision, Decision::Hold { .. }))
    }

    /// Whether it is a placeholder and no call: it has no name, and its arguments hold nothing. No client can run one.
    pub fn is_placeholder(&self) -> bool {
        !self.runs_without_name && self.assembled.is_placeholder()
    }

    /// Whether its arguments may have been cut.
    pub fn may_be_cut(&self) -> bool {
        self.is_open.unwrap_or_else(|| !self.assembled.custom && !self.assembled.is_whole())
    }

    /// Whether a decision has changed its arguments.
    pub fn has_new_arguments(&self) -> bool {
        matches!(self.decision, Some(Decision::Rewrite { .. } | Decision::Ask { arguments: Some(_), .. }))
    }

    /// Whether the client sees it as toolrein writes it.
    pub fn is_shown_as_written(&self) -> bool {
        let is_rewritten = matches!(self.decision, Some(Decision::Rewrite { .. }));
        self.is_released() && (is_rewritten || ((self.differs || self.is_written) && self.with_arguments))
    }

    /// The arguments that the client sees instead of its own, escapes as in JSON.
    pub fn replaced_arguments(&self) -> Option<&[u8]> {
        let is_replaced = matches!(self.decision, Some(Decision::Rewrite { .. }));
        is_replaced.then_some(self.assembled.arguments.as_slice())
    }
}

/// The calls of a choice by decision.
#[derive(Clone, Copy, Debug, Default)]
struct DecisionCounts {
    released: usize,
    hidden: usize,
    waiting: usize,
    /// Calls that are not released unchanged.
    edited: usize,
    /// Calls that toolrein writes.
    written: usize,
}

/// Whether the client sees a text. Calls that the model wrote as text may be removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    #[default]
    Shown,
    /// Not known yet: nothing has come that remains.
    Waiting,
    /// Nothing remains, or it must not be shown beside a question.
    Hidden,
}

/// A text of a choice that is apart from others, such as a message.
#[derive(Clone, Copy, Debug, Default)]
struct ApartText {
    visibility: Visibility,
    /// The client has a part of it.
    is_given: bool,
}

/// The position of the choice of this number, which is added if it is unknown. `form`: that of the client's reply.
pub fn position_of(choices: &mut Vec<ReplyChoice>, index: u32, form: Form) -> usize {
    choices.iter().position(|choice| choice.index == index).unwrap_or_else(|| {
        // Most replies have one, which is kept for as long as a stream lasts.
        choices.reserve_exact(usize::from(choices.is_empty()));
        choices.push(ReplyChoice::new(index, form == Form::Streamed));
        choices.len() - 1
    })
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct ReplyChoice {
    /// Its number as the client sees it.
    pub index: u32,
    /// It comes as a stream.
    is_streamed: bool,
    /// Its texts are messages of their own: nothing is put between them.
    has_apart_texts: bool,
    calls: Vec<ReplyCall>,
    /// Bytes of all calls.
    calls_size: usize,
    counts: DecisionCounts,
    /// So many calls at the front are decided on.
    decided: usize,
    /// Its texts, where the protocol keeps them apart.
    texts: Vec<ApartText>,
    /// What the client got of texts in pieces, decoded, where the protocol repeats them whole.
    pieces: String,
    /// The text of the present reply, escapes as written.
    text: Vec<u8>,
    /// The text of earlier replies of this client request, escapes as written.
    earlier_text: Vec<u8>,
    /// toolrein's line before the answer, escapes as written.
    preface: Vec<u8>,
    /// So much of the present reply's text was given to the client.
    given_text: usize,
    /// This is not the first reply.
    is_continued: bool,
    /// The client was shown text of this reply.
    text_shown: bool,
    /// The client was shown a finish.
    pub finish_shown: bool,
    /// The upstream has finished the choice in this reply.
    pub finish_came: bool,
    /// A finish came and was held back, since every call was blocked until then.
    finish_held: bool,
    /// toolrein has put a preface before the answer.
    prefaced: bool,
    /// It has something that is neither text nor a call: a refusal, or audio.
    pub spoke_otherwise: bool,
    /// The reply ended before the model had ended it.
    pub is_cut: bool,
    /// The question for a person about its calls, or why no person can be asked.
    pub question: Option<Result<Question, Unasked>>,
    /// The question is in its text.
    asked: bool,
}

impl ReplyChoice {
    /// An empty choice; `is_streamed`: its calls come in pieces.
    pub fn new(index: u32, is_streamed: bool) -> Self {
        Self { index, is_streamed, ..Self::default() }
    }

    /// As [`Self::new`], where the protocol keeps texts apart.
    pub fn with_apart_texts(index: u32, is_streamed: bool) -> Self {
        Self { index, is_streamed, has_apart_texts: true, ..Self::default() }
    }

    /// Whether its calls come in pieces.
    pub fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Its calls, in the order in which they began.
    pub fn calls(&self) -> &[ReplyCall] {
        &self.calls
    }

    /// A call, to note how it is decided on.
    pub fn call_mut(&mut self, at: usize) -> &mut ReplyCall {
        &mut self.calls[at]
    }

    /// Adds a call and returns its position.
    pub fn add_call(&mut self, assembled: Assembled) -> usize {
        self.add(ReplyCall { assembled, ..ReplyCall::default() })
    }

    /// As [`Self::add_call`], with what else is known of it.
    pub fn add(&mut self, call: ReplyCall) -> usize {
        self.calls_size += call.assembled.size();
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Changes what has come of a call.
    pub fn change_call<T>(&mut self, at: usize, change: impl FnOnce(&mut Assembled) -> T) -> T {
        let call = &mut self.calls[at].assembled;
        let before = call.size();
        let result = change(call);
        self.calls_size = self.calls_size + call.size() - before;
        result
    }

    /// The decision on a call.
    pub fn decision(&self, at: usize) -> Option<&Decision> {
        self.calls.get(at).and_then(|call| call.decision.as_ref())
    }

    /// Takes the decision on a call, with the arguments that it changes.
    pub fn decide(&mut self, at: usize, decision: Decision) {
        if let Decision::Rewrite { arguments } | Decision::Ask { arguments: Some(arguments), .. } = &decision
        {
            self.change_call(at, |call| {
                call.arguments.clear();
                escape_into(arguments, &mut call.arguments);
            });
        }
        self.calls[at].decision = Some(decision);
        while self.calls.get(self.decided).is_some_and(|call| call.decision.is_some()) {
            self.decided += 1;
        }
        self.recount();
    }

    /// The position of the first call that is not decided on.
    pub fn first_undecided(&self) -> usize {
        self.decided
    }

    /// Adds a text that is apart from others, and returns its number.
    pub fn add_apart_text(&mut self, visibility: Visibility) -> u32 {
        self.texts.push(ApartText { visibility, is_given: false });
        (self.texts.len() - 1) as u32
    }

    /// Whether the client sees the text of this number.
    pub fn visibility(&self, text: usize) -> Visibility {
        self.texts.get(text).map_or(Visibility::Shown, |text| text.visibility)
    }

    /// Sets whether the client sees the text of this number.
    pub fn set_visibility(&mut self, text: usize, visibility: Visibility) {
        if let Some(text) = self.texts.get_mut(text) {
            text.visibility = visibility;
        }
    }

    /// Shows the texts that wait because it is not known whether anything remains.
    pub fn show_waiting_texts(&mut self) {
        let waiting = self.texts.iter_mut().filter(|text| text.visibility == Visibility::Waiting);
        waiting.for_each(|text| text.visibility = Visibility::Shown);
    }

    /// Hides the texts that the client has no part of.
    pub fn hide_new_texts(&mut self) {
        self.texts
            .iter_mut()
            .filter(|text| !text.is_given)
            .for_each(|text| text.visibility = Visibility::Hidden);
    }

    /// Notes that the client was given a part of the text of this number.
    pub fn note_given(&mut self, text: usize) {
        if let Some(text) = self.texts.get_mut(text) {
            text.is_given |= text.visibility == Visibility::Shown;
        }
    }

    /// Notes a piece of a text that the client was given, where the text comes whole too.
    pub fn note_piece(&mut self, piece: &str) {
        self.pieces.push_str(piece);
    }

    /// What the client got of texts in pieces; empty where the protocol gives texts in pieces alone.
    pub fn pieces(&self) -> &str {
        &self.pieces
    }

    /// Has toolrein write a call instead of passing it on.
    pub fn write_call(&mut self, at: usize) {
        self.calls[at].is_written = true;
        self.recount();
    }

    /// Takes the decision on the call that waited under the number `id`.
    pub fn settle(&mut self, id: u32, decision: &Decision) {
        let waits = |call: &ReplyCall| matches!(call.decision, Some(Decision::Hold { id: own }) if own == id);
        if let Some(at) = self.calls.iter().position(waits) {
            // The call that runs must be the one that was decided on.
            self.calls[at].is_written |= decision.is_released();
            self.decide(at, decision.clone());
        }
    }

    /// Counts the decisions anew: for one who named a call that is decided on.
    pub fn recount(&mut self) {
        let mut counts = DecisionCounts::default();
        for call in &self.calls {
            counts.written += usize::from(call.is_written || call.is_shown_as_written());
            let Some(decision) = &call.decision else { continue };
            counts.hidden += usize::from(decision.is_hidden());
            counts.waiting += usize::from(matches!(decision, Decision::Hold { .. }));
            counts.edited += usize::from(*decision != Decision::Release);
            counts.released += usize::from(decision.is_released() && !call.is_placeholder());
        }
        self.counts = counts;
    }

    /// Adds a piece of its text, escapes as written. Nothing of the model's follows a question about its calls.
    pub fn add_text(&mut self, piece: &[u8]) {
        if !self.asks_approval() {
            self.text.extend_from_slice(piece);
        }
    }

    /// Whether it ends in a question to a person.
    pub fn is_asking(&self) -> bool {
        matches!(self.question, Some(Ok(_)))
    }

    /// Whether it ends in a question about its calls, which is shown alone: text of the model that the client has not got
    /// is left out.
    pub fn asks_approval(&self) -> bool {
        matches!(&self.question, Some(Ok(question)) if question.is_approval())
    }

    /// Adds the question to the text, if there is one that was not added yet, and returns it as the client is to get
    /// it. The last `after` bytes of the text, escapes as written, follow it, unless it is about calls.
    pub fn ask(&mut self, after: usize) -> Option<String> {
        let question = self.question.as_ref()?.as_ref().ok().filter(|_| !self.asked)?;
        let after = if question.is_approval() {
            self.text.truncate(self.given_text);
            if !self.is_streamed {
                self.earlier_text.clone_from(&self.preface);
            }
            0
        } else {
            after
        };
        let at = self.text.len().saturating_sub(after);
        let has_apart_texts = self.has_apart_texts;
        let apart = |nothing: bool| if nothing || has_apart_texts { "" } else { "\n\n" };
        let inner = format!("{}{}{}", apart(at == 0), question.text, apart(after == 0));
        // The text of an earlier reply is separated from this one where the two are joined, but the client has it
        // already.
        let first = at == 0 && !self.earlier_text.is_empty();
        let shown = format!("{}{inner}", apart(!first));
        let mut escaped = Vec::new();
        escape_into(&inner, &mut escaped);
        self.text.splice(at..at, escaped);
        (self.asked, self.text_shown) = (true, true);
        Some(shown)
    }

    /// Whether a call was blocked, or answered in the client's place.
    pub fn has_blocked(&self) -> bool {
        self.counts.hidden > 0
    }

    /// Whether any call was not released as it came.
    pub fn is_edited(&self) -> bool {
        self.counts.edited > 0 || self.counts.written > 0
    }

    /// Whether the client sees any call of it.
    pub fn releases(&self) -> bool {
        self.counts.released > 0
    }

    /// Whether the client gets nothing of the model's to read, and nothing to run, from this choice.
    pub fn is_silent(&self) -> bool {
        let blank = |text: &[u8]| unescape(text).trim().is_empty();
        let earlier = self.earlier_text.strip_prefix(&*self.preface).unwrap_or(&self.earlier_text);
        !self.releases() && !self.spoke_otherwise && blank(earlier) && blank(&self.text)
    }

    /// Whether an earlier reply gave text and the client was shown none of this one yet.
    pub fn begins_second_text(&self) -> bool {
        !self.earlier_text.is_empty() && !self.text_shown
    }

    /// Notes that the client was given a part of it; `text_bytes`: bytes of its text, escapes as written.
    pub fn note_shown(&mut self, text_bytes: usize, finishes: bool) {
        if !self.asks_approval() {
            self.text_shown |= text_bytes > 0;
            self.given_text += text_bytes;
        }
        let is_held = self.is_wholly_blocked();
        self.finish_shown |= finishes && !is_held;
        self.finish_held |= finishes && is_held;
    }

    /// Puts `text` before the model's text; true the first time.
    pub fn add_preface(&mut self, text: &str) -> bool {
        if !self.prefaced {
            escape_into(text, &mut self.earlier_text);
            escape_into(text, &mut self.preface);
        }
        !std::mem::replace(&mut self.prefaced, true)
    }

    /// Adds `text` in the model's place, and returns it as the client is to get it: apart from the text of an earlier reply.
    pub fn add_own_text(&mut self, text: &str) -> String {
        let is_apart = self.begins_second_text() && !self.has_apart_texts;
        escape_into(text, &mut self.text);
        self.text_shown = true;
        format!("{}{text}", if is_apart { "\n\n" } else { "" })
    }

    /// Bytes of all text that the client sees of it, escapes as written, without the separator between two replies.
    pub fn text_bytes(&self) -> usize {
        self.earlier_text.len() + self.text.len()
    }

    /// Goes on with another reply of the upstream to the same client request.
    pub fn begin_next_reply(&mut self) {
        *self = Self {
            index: self.index,
            is_streamed: self.is_streamed,
            has_apart_texts: self.has_apart_texts,
            earlier_text: self.joined_text(),
            preface: std::mem::take(&mut self.preface),
            finish_shown: self.finish_shown,
            prefaced: self.prefaced,
            pieces: std::mem::take(&mut self.pieces),
            spoke_otherwise: self.spoke_otherwise,
            asked: self.asked,
            is_continued: true,
            ..Self::default()
        };
    }

    /// Whether the client still waits for a finish: the upstream's last reply did not bring one, or it was held back
    /// before a call came that is released.
    pub fn lacks_finish(&self) -> bool {
        !self.finish_shown && (self.is_continued || self.finish_held || self.is_asking())
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let calls = self.calls_size + self.calls.len() * CALL_BYTES;
        CALL_BYTES + calls + self.text.len() + self.earlier_text.len() + self.pieces.len()
    }

    /// The text that the client has, decoded.
    pub fn shown_text(&self) -> String {
        unescape(&self.joined_text())
    }

    fn joined_text(&self) -> Vec<u8> {
        let is_alone = self.earlier_text.is_empty() || self.text.is_empty() || self.has_apart_texts;
        let blank_line: &[u8] = if is_alone { b"" } else { br"\n\n" };
        [self.earlier_text.as_slice(), blank_line, self.text.as_slice()].concat()
    }

    /// Whether this is not the first reply.
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Whether calls of it wait: for a person's decision, for time, or for another model.
    pub fn is_waiting(&self) -> bool {
        self.counts.waiting > 0
    }

    /// Whether all its calls were blocked.
    pub fn is_wholly_blocked(&self) -> bool {
        let is_hidden = self.has_blocked() && !self.is_asking() && !self.is_waiting();
        is_hidden && !self.releases()
    }

    /// Whether the question about its calls is in its text.
    pub fn has_asked(&self) -> bool {
        self.asked
    }

    /// The decisions on its calls.
    pub fn decisions(&self) -> Vec<Option<Decision>> {
        self.calls.iter().map(|call| call.decision.clone()).collect()
    }
}
