//! One choice of a reply in the client's view.

use bytes::Bytes;
use dialects::codec::{KnownIds, ReplyCodec};
use dialects::reply_choice::{ReplyCall, ReplyChoice};
use model::assembled::Assembled;
use model::plan::approval::Question;
use model::plan::decision::{Decision, Next};

/// See the file's head.
#[derive(Clone, Copy)]
pub struct ClientChoice<'a> {
    choice: &'a ReplyChoice,
    codec: &'a dyn ReplyCodec,
    ids: &'a KnownIds,
}

impl<'a> ClientChoice<'a> {
    /// A choice as its codec writes it.
    pub fn new(choice: &'a ReplyChoice, codec: &'a dyn ReplyCodec, ids: &'a KnownIds) -> Self {
        Self { choice, codec, ids }
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.choice.index
    }

    /// Whether the client has its finish.
    pub fn is_finished(&self) -> bool {
        self.choice.finish_shown
    }

    /// Whether a further reply of the upstream goes on with it.
    pub fn is_continued(&self) -> bool {
        self.choice.is_continued()
    }

    /// Whether calls of it wait for a person's decision.
    pub fn is_waiting(&self) -> bool {
        self.choice.is_waiting()
    }

    /// How many calls the model made.
    pub fn calls(&self) -> usize {
        self.choice.calls().len()
    }

    /// The calls that the client has.
    pub fn released(&self) -> Vec<&'a Assembled> {
        let is_shown = |call: &&ReplyCall| call.is_released() && !call.is_placeholder();
        self.choice.calls().iter().filter(is_shown).map(|call| &call.assembled).collect()
    }

    /// The text that the client has.
    pub fn text(&self) -> String {
        self.choice.shown_text()
    }

    /// What a person was asked in it, and about which calls.
    pub fn asked(&self) -> Option<(&'a Question, Vec<Assembled>)> {
        let question = self.choice.question.as_ref()?.as_ref().ok()?;
        let calls =
            || self.choice.calls()[..question.calls].iter().map(|call| call.assembled.clone()).collect();
        (self.choice.has_asked() && question.is_approval()).then(|| (question, calls()))
    }

    /// Whether all its calls were blocked.
    pub fn is_wholly_blocked(&self) -> bool {
        self.choice.is_wholly_blocked()
    }

    /// The calls of the present reply that the client does not see, and whose results the model reads.
    pub fn hidden_calls(&self) -> Vec<(&'a Assembled, &'a Decision)> {
        let calls = self.choice.calls().iter();
        let decided = calls.filter_map(|call| Some((&call.assembled, call.decision.as_ref()?)));
        decided.filter(|(_, decision)| decision.is_hidden()).collect()
    }

    /// The blocked calls with their results, as items of the history; `None` where there are none.
    pub fn hidden_exchange(&self) -> Option<Bytes> {
        self.codec.hidden_exchange(self.choice, self.ids)
    }

    /// The next step, if all its calls were blocked.
    pub fn next(&self) -> Next {
        Next::of(&self.choice.decisions())
    }
}

/// The next step for the choice of this number.
pub fn next_of(choices: &[ClientChoice<'_>], index: u32) -> Next {
    let choice = choices.iter().find(|choice| choice.index() == index);
    choice.map_or(Next::OtherCalls, ClientChoice::next)
}
