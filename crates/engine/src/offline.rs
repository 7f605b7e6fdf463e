//! An exchange without sockets, for replays and validations: the answers of the state store, of other requests and of
//! other models are fixed here or given by the caller. Sends nothing and waits for nothing.

use super::store::{Facts, News, StoreQuery};
use super::{Admission, Answer, Exchange, Input, Now, Outgoing, Output};
use bytes::Bytes;
use model::identity::Hash;

/// Takes the place of the state store.
pub trait OfflineStore {
    /// The facts for this query.
    fn facts(&mut self, _query: &StoreQuery) -> Facts {
        Facts::default()
    }

    /// What is known of the conversation that the upstream keeps under this name.
    fn history(&mut self, _name: Hash) -> Option<Bytes> {
        None
    }

    /// Takes an update.
    fn learn(&mut self, _news: News) {}
}

/// A state store that is empty and stays so.
pub struct EmptyStore;

impl OfflineStore for EmptyStore {}

/// What an exchange waits for, other than the state store.
pub enum Pending {
    /// The upstream's reply: give [`Input::Reply`].
    Send(Outgoing),
    /// A person's decision on the call of this number: give [`Input::Decided`].
    Approval(u32),
    /// Another model's answer about the call of this number: give [`Input::Answered`].
    Model(u32),
    /// So many ms for the call of this number: give [`Input::Decided`].
    Wait { id: u32, ms: u64 },
    /// Nothing: this is the reply to the client, where it is whole.
    Answer(Answer),
}

/// Goes on with `exchange` until it asks something of others; `None`: it asks for nothing more.
pub fn advance(exchange: &mut Exchange, known: &mut dyn OfflineStore, now: Now) -> Option<Pending> {
    while let Some(output) = exchange.next_output() {
        let input = match output {
            Output::Admit { .. } => Input::Admitted(Admission::Free),
            Output::FindHistory(name) => Input::History(known.history(name)),
            Output::LookUp(query) => Input::Facts(Box::new(known.facts(&query))),
            Output::Claim { .. } => Input::Claimed(false),
            Output::Summarise { .. } => Input::Summarised(None),
            Output::Store(news) => {
                known.learn(news);
                continue;
            }
            Output::Send(outgoing) => return Some(Pending::Send(outgoing)),
            Output::AskApproval(request) => return Some(Pending::Approval(request.call.id)),
            Output::AskModel(asked) => return Some(Pending::Model(asked.id)),
            Output::Wait { id, ms } => return Some(Pending::Wait { id, ms }),
            Output::Answer(answer) => return Some(Pending::Answer(answer)),
            Output::SummariesLost(_)
            | Output::Dismiss
            | Output::WithdrawApproval(_)
            | Output::BeginStream { .. }
            | Output::BeginStreamOf(_)
            | Output::Emit(_)
            | Output::BreakOff(_)
            | Output::Done => continue,
        };
        exchange.on(input, now);
    }
    None
}
