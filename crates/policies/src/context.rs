//! The model's context: the estimated tokens of each message as the model reads it, after everything that earlier
//! policies have planned. The arithmetic that the policies share which free context; it decides nothing and edits
//! nothing.
//!
//! Hidden exchanges count with the reply after them, and so from the request after it on: the request that made them
//! was decided before they existed, and the decision must be the same when it is history. Notices and pictures are
//! not in the sum: the former are small, the size of the latter is not known.

mod measure;

pub use measure::characters;

use super::RequestView;
use measure::Measure;
pub use model::plan::work::step;
use model::plan::{Gone, Plan, TakenIn};
use model::tokens::Estimate;
use model::{Event, ToolResult};
use std::ops::Range;

/// The assumed size of a cleared text: its marker of two lines and 200 characters, 100 tokens within a third.
pub const CLEARED: Estimate = Estimate::of_tokens(100);

/// A conversation in the model's context, as far as it was read.
#[derive(Clone, Default)]
pub struct Context {
    measure: Measure,
    /// The tokens that the model reads, the declared tools included.
    total: Estimate,
    /// The same for each message, by index.
    messages: Vec<Estimate>,
    /// The texts of results, oldest first.
    texts: Vec<ResultText>,
    /// How much of the plan is in the sums.
    taken_in: TakenIn,
    /// The tokens of the hidden exchange before the reply to come.
    hidden: Estimate,
}

/// One text of a tool's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultText {
    /// The index of its message.
    pub message: usize,
    /// Its index among the message's strings of text.
    pub text: usize,
    /// Its tokens as the model reads it.
    pub shown: Estimate,
    /// For a pointer to an earlier equal text: the message of that text, and what the model reads here when that
    /// message is cleared.
    pub points: Option<(usize, Estimate)>,
    /// It is cleared or dropped.
    pub gone: bool,
}

impl ResultText {
    /// What the model reads of it if it is not a pointer.
    pub fn alone(&self) -> Estimate {
        self.points.map_or(self.shown, |(_, alone)| alone)
    }
}

impl Context {
    /// The context with nothing in it but the declared tools.
    pub fn open(request: &RequestView<'_>) -> Self {
        Self { total: request.tools_tokens(), ..Self::default() }
    }

    /// The same by characters, each counted as a token; without the tools.
    pub fn by_characters() -> Self {
        Self { measure: Measure::Characters, ..Self::default() }
    }

    /// The tokens that the model reads.
    pub fn tokens(&self) -> u64 {
        self.total.tokens()
    }

    /// Leaves these messages out of the sum.
    pub fn forget(&mut self, messages: Range<usize>) {
        for message in &mut self.messages[messages] {
            self.total = self.total.saturating_sub(*message);
            *message = Estimate::ZERO;
        }
    }

    /// The texts of results, oldest first.
    pub fn texts(&self) -> &[ResultText] {
        &self.texts
    }

    /// Adds an event, and what was planned for it so far. Returns which of the texts are new.
    pub fn read(&mut self, event: &Event<'_>, plan: &Plan) -> Range<usize> {
        let known = self.texts.len();
        match event {
            Event::System(view) | Event::User(view) => self.add(self.measure.message(view)),
            Event::Hidden(view) => self.hidden += self.measure.message(view),
            Event::Assistant(view) => {
                let hidden = std::mem::take(&mut self.hidden);
                self.add(self.measure.message(view) + hidden);
            }
            Event::Result(result) => {
                let shown = self.read_result(result, plan);
                self.add(shown);
            }
            Event::TurnBegins(_) | Event::Call(_) | Event::ResultsComplete(_) => {}
        }
        known..self.texts.len()
    }

    /// Applies what was cleared and dropped since the last call; returns whether there was anything.
    pub fn settle(&mut self, plan: &Plan) -> bool {
        let mut any = false;
        for gone in plan.gone_since(&mut self.taken_in) {
            any = true;
            match gone {
                Gone::Text { message, text } => {
                    let place = (message, text);
                    if let Ok(at) =
                        self.texts.binary_search_by_key(&place, |known| (known.message, known.text))
                    {
                        self.texts[at].gone = true;
                        self.show(at, self.measure.cleared());
                    }
                }
                Gone::Messages(messages) => {
                    let place = |message: usize| self.texts.partition_point(|text| text.message < message);
                    let gone = place(messages.start)..place(messages.end);
                    self.forget(messages);
                    for text in &mut self.texts[gone] {
                        step();
                        text.gone = true;
                    }
                }
            }
        }
        if any {
            self.follow_pointers();
        }
        any
    }

    /// Pointers to a text that is gone become full texts again.
    fn follow_pointers(&mut self) {
        for at in 0..self.texts.len() {
            let ResultText { points: Some((original, alone)), gone: false, .. } = self.texts[at] else {
                continue;
            };
            if self.is_gone(original) {
                self.texts[at].points = None;
                self.show(at, alone);
            }
        }
    }

    /// Whether a text of the message is cleared, or the message dropped.
    fn is_gone(&self, message: usize) -> bool {
        let first = self.texts.partition_point(|text| text.message < message);
        self.texts[first..].iter().take_while(|text| text.message == message).any(|text| text.gone)
    }

    fn show(&mut self, at: usize, shown: Estimate) {
        let text = &mut self.texts[at];
        let before = std::mem::replace(&mut text.shown, shown);
        let message = &mut self.messages[text.message];
        *message = message.saturating_sub(before) + shown;
        self.total = self.total.saturating_sub(before) + shown;
    }

    fn add(&mut self, shown: Estimate) {
        self.messages.push(shown);
        self.total += shown;
    }

    /// Adds the texts of a result; returns what the model reads of the whole message.
    fn read_result(&mut self, result: &ToolResult<'_>, plan: &Plan) -> Estimate {
        let view = &result.view;
        let single = view.message.content.texts().nth(1).is_none();
        let measure = self.measure;
        let mut sum = measure.frame(view);
        let facts = plan.facts_here();
        for (at, text) in view.message.content.texts().enumerate() {
            // The whole message is counted already, for other policies too.
            let own = || match single {
                true => measure.message(view).saturating_sub(sum),
                false => measure.text(view, text),
            };
            let facts = facts.text(at);
            let replaced = facts.and_then(|facts| facts.replaced);
            let alone = || replaced.map_or_else(own, |by| measure.other(view, by));
            let pointer = facts.filter(|facts| !facts.blocked).and_then(|facts| facts.pointer);
            let (shown, points) = match pointer {
                Some((by, original)) if !self.is_gone(original) => {
                    (measure.other(view, by), Some((original, alone())))
                }
                _ => (alone(), None),
            };
            let read = ResultText { message: view.index, text: at, shown, points, gone: false };
            sum += read.shown;
            self.texts.push(read);
        }
        sum
    }
}

/// Takes those of `places`, the next one last, that are at or before the message of `event`; returns whether there were any.
/// Hidden exchanges belong to the request that ended there, so the reply after them reaches the place: its request is decided
/// on once.
pub fn reaches(places: &mut Vec<usize>, event: &Event<'_>) -> bool {
    if matches!(event, Event::Hidden(_)) {
        return false;
    }
    let known = places.len();
    places.retain(|place| *place > event.message());
    places.len() < known
}
