//! A state machine over the conversation: which tools may be called now and what must happen first.
//!
//! # What it does
//! The conversation is always in one state. In each state the tools of its list may be called; other calls are
//! blocked, and the reason says what may be called now and what must happen first. What people, the model and its
//! tools do moves the machine on, by the first of the state's transitions that fits. When a state is entered the
//! model reads the state's text, at the next position where a notice is allowed.
//!
//! # Why
//! Models follow an order of steps in a prompt until it is inconvenient: they skip steps, and make a call twice in
//! one reply. A state that ends with the call itself cannot be used twice.
//!
//! # State
//! The state, how often each of its transitions' events has come since it was entered, and whether the model has read
//! its text. All from the conversation, so a restart or another replica changes nothing; a client that leaves out the
//! beginning of the conversation starts from the first state. A call that was let through moves the machine before
//! the next call of the reply is judged. Blocked calls do not count: they are not in any client's history.
//!
//! # Example
//! With `award = { tools = ["award_points"], on = [{ event = "tool_called", tool = "award_points", to = "next" }] }`
//! the second of two parallel calls of `award_points` is blocked with `STATE_RESTRICTED`.

mod check;
mod diagram;
mod machine;
#[cfg(test)]
mod tests;
mod text;
mod words;
mod written;

use super::about::{About, Explanation};
use super::texts::{Text, Texts};
use super::{ConfigError, Policy, RequestView};
use machine::{Happening, Machine, Position, Said};
use model::Event;
use model::plan::{Finding, Plan, Proposed, Reason, ReasonKind, Verdict};
use std::sync::Arc;

/// See the module.
pub struct States {
    machine: Machine,
    texts: Texts,
}

/// The machine's state in one conversation.
#[derive(Clone)]
pub struct MachineState {
    position: Position,
    /// The state was entered and the model has not read its text yet.
    untold: bool,
    /// Calls of the last reply that are not answered: no text may come between them and their results.
    open: usize,
    /// The tools that the request declares, where any is ever blocked.
    declared: Arc<[String]>,
}

impl Default for MachineState {
    fn default() -> Self {
        Self { position: Position::default(), untold: true, open: 0, declared: Arc::default() }
    }
}

impl Policy for States {
    const NAME: &'static str = "states";
    const SUMMARY: &'static str = "a state machine over the conversation: which tools may be called when";
    const TEXTS: &'static [Text] = &[words::BLOCKED, words::STATE];
    type Config = written::Config;
    type State = MachineState;

    fn new(config: written::Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        match check::check(&config) {
            Ok(machine) if problems.is_empty() => Ok(Self { machine, texts }),
            checked => Err(checked.err().into_iter().flatten().chain(problems).collect()),
        }
    }

    fn about(&self) -> About {
        About {
            named_tools: self.machine.named_tools(),
            callable: self.machine.callable(),
            restricts_calls: true,
            explanation: Explanation {
                diagram: Some(diagram::mermaid(&self.machine)),
                ..Explanation::default()
            },
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut MachineState, _plan: &mut Plan) {
        if self.machine.restricts() {
            state.declared = Arc::clone(&request.names);
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut MachineState, plan: &mut Plan) {
        match event {
            Event::User(view) => {
                self.step(&Happening::User(Said::new(view)), state);
                if state.open == 0 {
                    self.tell(state, plan);
                }
            }
            Event::Assistant(view) => {
                state.open = view.message.calls.len();
                // Beside calls a text is no answer yet. So calls are judged in the same state when they are history.
                if state.open == 0 {
                    self.step(&Happening::Assistant(Said::new(view)), state);
                }
            }
            Event::Hidden(_) => {}
            Event::Call(call) => self.step(&Happening::Called(&call.name), state),
            Event::Result(result) => {
                state.open -= usize::from(result.call.is_some() && state.open > 0);
                self.step(&Happening::Answered(result), state);
            }
            Event::ResultsComplete(_) => self.tell(state, plan),
            Event::TurnBegins(_) | Event::System(_) => {}
        }
    }

    fn close(&self, state: &MachineState, plan: &mut Plan) {
        if let Some(state) = self.machine.states.get(state.position.state) {
            plan.report(Finding::State(state.name.as_str().into()));
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &MachineState) -> Verdict {
        if self.machine.allows(state.position.state, call.name) {
            return Verdict::Allow;
        }
        let route = self.machine.route(state.position.state, call.name);
        Verdict::Block(Reason {
            retryable: route.is_some(),
            ..Reason::new(
                ReasonKind::StateRestricted,
                words::blocked(
                    (&self.machine, &self.texts),
                    &state.position,
                    call.name,
                    (&state.declared, route.as_deref()),
                ),
            )
        })
    }

    fn release(&self, call: &Proposed<'_>, state: &mut MachineState) {
        self.step(&Happening::Called(call.name), state);
    }
}

impl States {
    fn step(&self, happening: &Happening<'_>, state: &mut MachineState) {
        state.untold |= self.machine.step(happening, &mut state.position);
    }

    /// Gives the text of the current state, once for each time that it is entered.
    fn tell(&self, state: &mut MachineState, plan: &mut Plan) {
        let is_news = std::mem::take(&mut state.untold);
        if let Some(text) =
            words::notice((&self.machine, &self.texts), state.position.state).filter(|_| is_news)
        {
            plan.notice("state", text);
        }
    }
}
