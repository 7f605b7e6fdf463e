//! What the ledger is told of a reply: when its calls were handed out, what a person was asked, and which rounds the
//! client was not shown. A function from the choices of a reply; tells nobody by itself.

use super::News;
use crate::conversation::identity::Identity;
use crate::dialect::reply::ShownChoice;
use crate::exchange::reasks::Reasks;
use crate::exchange::restore::{Asked, joined, release, released_keys, remembered};
use crate::plan::approval::Confirmation;

/// What a reply answers to.
pub struct Answered<'a> {
    pub asked: Asked<'a>,
    pub identity: &'a Identity,
    /// The rounds that were hidden on the way to the reply.
    pub reasks: &'a Reasks,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
    /// Nothing is changed, so nothing is hidden.
    pub observe: bool,
}

impl News {
    /// What `choices` bring.
    pub fn of_choices(choices: &[&dyn ShownChoice], answered: &Answered<'_>) -> Self {
        let Answered { asked, identity, now_ms, .. } = answered;
        let mut news = Self::default();
        // What waits is reported when it is settled; and a reply after which the model is asked again is none yet: the next
        // one may say no more, and then nothing would tell the two apart.
        let is_asked_again = |choice: &dyn ShownChoice| choice.is_wholly_withheld() && !choice.is_finished();
        for choice in choices.iter().filter(|choice| !choice.is_waiting() && !is_asked_again(**choice)) {
            let hidden = if answered.observe { Vec::new() } else { answered.reasks.hidden_behind(*choice) };
            let hidden = joined(&hidden);
            let release = release(asked, identity, &hidden, *now_ms);
            let keys = released_keys(asked, identity, *choice);
            news.released.extend(keys.into_iter().map(|key| (key, release)));
            if let Some((question, calls)) = choice.asked() {
                let text = identity.text_anchor(asked.context, &choice.text());
                news.asked.push((text, Confirmation::new(question, calls, *now_ms)));
            }
            if !answered.observe {
                news.rounds.extend(remembered(asked, identity, *choice, &hidden));
            }
        }
        news
    }
}
