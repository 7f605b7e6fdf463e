//! Store keys of a request's calls, and the release times that calls with unknown ids take over: clients that need ids
//! invent some where the upstream gave none, and some number their calls anew in every request.
//! No I/O.

use super::MOST_LOOKED_UP;
use model::Transcript;
use model::fact::{Answers, Batch, RecordList, Ticket, Writes};
use model::identity::{CallKey, Hash};
use model::released::{NOTHING_HIDDEN, Release, Releases};
use std::sync::Arc;

/// See the file's head.
pub struct CallNames {
    /// How many are the calls' own keys.
    named: usize,
    /// The calls' own keys, newest first; then as many keys without ids, in the same order; then the keys that the
    /// newest calls have if their upstream gave them no ids.
    ticket: Ticket<Release>,
}

impl CallNames {
    /// Asks for the releases of the newest calls of a request.
    pub fn ask(transcript: &Transcript, batch: &mut Batch) -> Self {
        let newest = || transcript.newest_calls(MOST_LOOKED_UP);
        let named = newest().count();
        let mut keys: Vec<CallKey> = Vec::with_capacity(3 * named);
        keys.extend(newest().map(|call| call.key));
        keys.extend(newest().map(|call| call.key_without_id));
        keys.extend(transcript.calls.nameless(&transcript.identity).into_iter().take(named));
        let ticket = batch.ask(keys);
        Self { named, ticket }
    }

    /// What is known under each key.
    pub fn released(&self, answers: &Answers) -> Vec<Option<Releases>> {
        answers.find(&self.ticket).map(Option::<&_>::cloned).collect()
    }

    /// Gives calls with unknown ids the releases of the same calls under other ids, or of the calls that were handed out
    /// without ids. Returns the update for the state store, which is asked by the new keys of the latter from now on.
    pub fn adopt(&self, released: &mut Vec<Option<Releases>>, transcript: &Transcript) -> Writes {
        let mut others = released.split_off(self.named.min(released.len()));
        let nameless = others.split_off(self.named.min(others.len()));
        let mut writes = Writes::default();
        let newest = transcript.newest_calls(self.named).zip(&mut *released).zip(nameless);
        for ((call, known), nameless) in newest.filter(|((_, known), _)| known.is_none()) {
            let Some(nameless) = nameless else { continue };
            let own = of_context(&nameless, call.context);
            writes.extend(own.iter().map(|release| (call.key, *release)));
            *known = Some(own);
        }
        // After those without ids, which are stored under their new ids: these are found by what was before them alone.
        let renumbered = transcript.newest_calls(self.named).zip(&mut *released).zip(others);
        for ((call, known), same) in renumbered.filter(|((_, known), _)| known.is_none()) {
            let own = |release: &Release| Release { context: call.context, ..*release };
            *known = same.map(|same| Arc::new(same.iter().map(own).collect()));
        }
        writes
    }
}

/// The releases of a call without an id after `context`. Where there are none, since the client has edited its history,
/// the call counts as handed out at the latest time that may be its own, with nothing hidden before it.
fn of_context(nameless: &Releases, context: Hash) -> Releases {
    let own: RecordList<Release> =
        nameless.iter().filter(|release| release.context == context).copied().collect();
    let latest = || nameless.iter().map(|release| release.at_ms).max();
    let guess = || latest().map(|at_ms| Release { context, hidden: NOTHING_HIDDEN, at_ms });
    Arc::new(if own.is_empty() { guess().into_iter().collect() } else { own })
}
