//! States: a machine over the conversation that says which tools may be called now and what must happen first.
//!
//! # What it does
//! The conversation is always in one state. In each state the tools of its list may be called, others are
//! withheld with what may be called now and what must happen first. What people, the model and its tools do moves
//! the machine on, by the first of the state's transitions that fits. When a state is entered the model reads the
//! state's text, at the next place where a notice may stand.
//!
//! # Why
//! Told in a prompt, an order of steps is kept until it is inconvenient: models skip steps, and make a call twice in
//! one reply. A state that ends with the call itself cannot be used twice.
//!
//! # State
//! The state, how often each of its transitions' events has come since it was entered, and whether the model knows
//! of it. All from the transcript, so a restart or another replica changes nothing; a client that leaves out the
//! beginning of the conversation begins anew. A call that was let through moves the machine before the next call of
//! the reply is judged. Withheld calls do not count: they are in no client's history.
//!
//! # Example
//! With `award = { tools = ["award_points"], on = [{ event = "tool_called", tool = "award_points", to = "next" }] }`
//! the second of two parallel calls of `award_points` is withheld with `STATE_RESTRICTED`.

mod check;
mod diagram;
mod machine;
#[cfg(test)]
mod tests;
mod text;
mod words;
mod written;

use super::about::About;
use super::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use super::{ConfigError, Policy, RequestFacts};
use crate::transcript::Event;
use machine::{Happening, Machine, Position, Said};
use std::sync::Arc;

/// See the file's head.
pub struct States(Machine);

/// Where a conversation stands.
#[derive(Clone)]
pub struct Standing {
    position: Position,
    /// The state was entered and the model does not know it yet.
    untold: bool,
    /// Calls of the last reply that are not answered: nothing may stand between them and their results.
    open: usize,
    /// The tools that the request declares, where any is ever withheld.
    declared: Arc<[String]>,
}

impl Default for Standing {
    fn default() -> Self {
        Self { position: Position::default(), untold: true, open: 0, declared: Arc::default() }
    }
}

impl Policy for States {
    const NAME: &'static str = "states";
    const SUMMARY: &'static str = "a state machine over the conversation: which tools may be called when";
    type Config = written::Config;
    type State = Standing;

    fn new(config: written::Config) -> Result<Self, Vec<ConfigError>> {
        check::check(&config).map(Self)
    }

    fn about(&self) -> About {
        About {
            named_tools: self.0.named_tools(),
            callable: self.0.callable(),
            restricts_calls: true,
            diagram: Some(diagram::mermaid(&self.0)),
            ..About::default()
        }
    }

    fn open(&self, request: &RequestFacts<'_>, standing: &mut Standing, _plan: &mut Plan) {
        if self.0.restricts() {
            standing.declared = request.tools.iter().map(|tool| tool.name.to_string()).collect();
        }
    }

    fn read(&self, event: &Event<'_>, standing: &mut Standing, plan: &mut Plan) {
        match event {
            Event::User(view) => {
                self.step(&Happening::User(Said::new(view)), standing);
                if standing.open == 0 {
                    self.tell(standing, plan);
                }
            }
            Event::Assistant(view) => {
                standing.open = view.message.calls.len();
                // Beside calls a text is no answer yet. So calls are judged in the state that they are read in later.
                if standing.open == 0 {
                    self.step(&Happening::Assistant(Said::new(view)), standing);
                }
            }
            Event::Hidden { .. } => {}
            Event::Call(call) => self.step(&Happening::Called(&call.name), standing),
            Event::Result(result) => {
                standing.open -= usize::from(result.call.is_some() && standing.open > 0);
                self.step(&Happening::Answered(result), standing);
            }
            Event::ResultsComplete(_) => self.tell(standing, plan),
            Event::TurnBegins(_) | Event::System(_) => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, standing: &Standing) -> Verdict {
        if self.0.allows(standing.position.state, call.name) {
            return Verdict::Allow;
        }
        let route = self.0.route(standing.position.state, call.name);
        Verdict::Block(Reason {
            retryable: route.is_some(),
            ..Reason::new(
                ReasonKind::StateRestricted,
                words::withheld(
                    &self.0,
                    &standing.position,
                    call.name,
                    (&standing.declared, route.as_deref()),
                ),
            )
        })
    }

    fn release(&self, call: &Proposed<'_>, standing: &mut Standing) {
        self.step(&Happening::Called(call.name), standing);
    }
}

impl States {
    fn step(&self, happening: &Happening<'_>, standing: &mut Standing) {
        standing.untold |= self.0.step(happening, &mut standing.position);
    }

    /// Tells the model of the state that it is in, once for each time that it is entered.
    fn tell(&self, standing: &mut Standing, plan: &mut Plan) {
        let is_news = std::mem::take(&mut standing.untold);
        if let Some(text) = words::notice(&self.0, standing.position.state).filter(|_| is_news) {
            plan.notice("state", text);
        }
    }
}
