//! The state store update after a reply: when its calls were handed out, what a person was asked, and the hidden
//! exchanges. A pure function of the reply's choices.

use crate::pipeline::ClientChoice;
use crate::reasks::Reasks;
use crate::restore::{RequestContext, joined, keys_without_ids, release, released_keys, remembered};
use model::fact::Writes;
use model::identity::Identity;
use model::plan::approval::Confirmation;
use std::sync::Arc;

/// What a reply belongs to: the request, its caller, and the re-asks.
pub struct ReplyContext<'a> {
    pub request: RequestContext<'a>,
    pub identity: &'a Identity,
    /// The hidden exchanges on the way to the reply.
    pub reasks: &'a Reasks,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
    /// Observe mode: nothing is changed, so nothing is hidden.
    pub observe: bool,
}

impl ReplyContext<'_> {
    /// The update that `choices` bring.
    pub fn update(&self, choices: &[ClientChoice<'_>]) -> Writes {
        let Self { request, identity, now_ms, .. } = self;
        let mut writes = Writes::default();
        // A waiting choice is reported when it is settled. A reply after which the model is asked again is not
        // reported: the next one may add no text, and then the two could not be distinguished.
        let is_asked_again = |choice: &ClientChoice<'_>| choice.is_wholly_blocked() && !choice.is_finished();
        for choice in choices.iter().filter(|choice| !choice.is_waiting() && !is_asked_again(choice)) {
            let hidden = if self.observe { Vec::new() } else { self.reasks.hidden_before(choice) };
            let hidden = joined(&hidden);
            let release = release(request, identity, &hidden, *now_ms);
            let mut keys = released_keys(request, identity, choice);
            keys.extend(keys_without_ids(request, identity, choice));
            writes.extend(keys.into_iter().map(|key| (key, release)));
            if let Some((question, calls)) = choice.asked() {
                let text = identity.text_key(request.context, &choice.text());
                writes.add(text, Arc::new(Confirmation::new(question, &calls, *now_ms)));
            }
            if !self.observe {
                writes.extend(remembered(request, identity, choice, &hidden));
            }
        }
        writes
    }
}
