//! A digest of the hidden exchanges that a history was sent with, so that a later request shows whether it is sent with
//! the same ones. Compares; stores nothing.

use bytes::Bytes;
use model::Transcript;
use model::fact::{Answers, Batch, Ticket};
use model::histories::Histories;
use model::identity::Domain;
use model::store::SentExchanges;

/// With which hidden exchanges the earlier histories of a conversation were sent, as it is looked up.
pub(crate) struct SentLookUp {
    pub(crate) histories: Histories,
    ticket: Ticket<SentExchanges>,
}

impl SentLookUp {
    /// Asks about the earlier ones of `histories`.
    pub fn ask(histories: Histories, batch: &mut Batch) -> Self {
        Self { ticket: batch.ask(histories.earlier.iter().map(|(_, name)| *name)), histories }
    }

    /// With which exchanges the whole history is sent, and whether its known prefix was sent with the same ones.
    pub fn compare(&self, answers: &Answers, sent: Sent<'_>) -> (SentExchanges, bool) {
        let rounds = sent.exchanges_before(sent.transcript.len());
        let keeps = sent.keeps_exchanges(&self.histories, &answers.values(&self.ticket));
        (SentExchanges { history: self.histories.whole, rounds }, keeps)
    }
}

/// A request with the hidden exchanges that are put back, each before one of its messages.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    pub transcript: &'a Transcript,
    pub restored: &'a [(usize, Bytes)],
}

impl Sent<'_> {
    /// The digest of the exchanges that are put back before the first `count` messages; 0 if there are none.
    pub fn exchanges_before(&self, count: usize) -> u64 {
        let rounds: Vec<_> = self.restored.iter().filter(|(before, _)| *before < count).collect();
        if rounds.is_empty() {
            return 0;
        }
        let places: Vec<[u8; 8]> = rounds.iter().map(|(before, _)| (*before as u64).to_le_bytes()).collect();
        let parts = rounds.iter().zip(&places).flat_map(|((_, round), place)| [&place[..], &round[..]]);
        let parts: Vec<&[u8]> = std::iter::once(&b"rounds"[..]).chain(parts).collect();
        // Half of the digest is enough: it is compared with one other.
        (self.transcript.identity.key.hash(Domain::History, &parts).0 as u64).max(1)
    }

    /// Whether the exchanges that are put back before the newest known reply are those of the request that it answered.
    /// They differ where one was added or lost since: by another process, say, or before an equal reply. `sent` holds
    /// the digests for the earlier ones of `histories`, in their order.
    fn keeps_exchanges(&self, histories: &Histories, sent: &[Option<SentExchanges>]) -> bool {
        let mut known = histories.earlier.iter().zip(sent);
        let newest = known.find_map(|((end, _), sent)| Some((*end, (*sent)?.rounds)));
        newest.is_none_or(|(end, rounds)| rounds == self.exchanges_before(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::identity::{Hash, HashKey, Identity};
    use model::memo::NoMemo;
    use std::sync::Arc;

    #[test]
    fn a_prefix_is_kept_only_if_it_is_sent_with_the_same_hidden_exchanges() {
        let body = r#"{"messages":[{"role":"user"},{"role":"assistant"},{"role":"user"},{"role":"assistant"},{"role":"user"}]}"#;
        let request = dialects::chat::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let transcript = &Transcript::read(request, body.as_bytes().to_vec(), identity, Arc::new(NoMemo));
        let histories = Histories::read(transcript, Hash(9));
        let round = |at: usize, text: &'static str| (at, Bytes::from_static(text.as_bytes()));
        let keeps = |then: &[(usize, Bytes)], now: &[(usize, Bytes)], known: bool| {
            let rounds = Sent { transcript, restored: then }.exchanges_before(3);
            let sent = known.then_some(SentExchanges { history: Hash(0), rounds });
            Sent { transcript, restored: now }.keeps_exchanges(&histories, &[sent, None])
        };
        let (first, other, last) = (round(1, "{}"), round(1, "{ }"), round(3, "{}"));
        for (then, now, kept) in [
            (vec![], vec![], true),
            (vec![first.clone()], vec![first.clone()], true),
            (vec![first.clone()], vec![first.clone(), last.clone()], true),
            (vec![], vec![last], true),
            (vec![], vec![first.clone()], false),
            (vec![first.clone()], vec![], false),
            (vec![first], vec![other], false),
        ] {
            assert_eq!(keeps(&then, &now, true), kept, "{then:?} {now:?}");
            assert!(keeps(&then, &now, false), "nothing is known");
        }
    }
}
