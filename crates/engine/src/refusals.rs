//! Which refusals of a model count for a request, by the evidence of earlier requests, and the evidence that the request
//! adds. Upstreams refuse by account as well as by model: an account's settings can exclude every provider that takes
//! tools. So a refusal counts for the caller whose request met it, and for all callers once two have met it and no
//! request of that form was accepted. A caller whose own request was accepted keeps that form in any case.
//!
//! The first refusal counts for a tenth of `upstream.remember`. Then one request is sent in its own form again, and a
//! second refusal counts for the whole time. Pure: asks no store and reads no clock.

use model::adaptation::{Adaptation, Adaptations};
use model::fact::{Answers, Batch, Ticket};
use model::identity::Hash;
use model::record::RefusalScope;
use model::store::{Evidence, KnownEvidence, ModelKeys};
use std::time::Duration;

/// A refusal that was met once counts for this share of the time.
const FIRST_SHARE: u64 = 10;
/// Evidence that a form is accepted is renewed after this share of the time, so that it does not expire between two requests.
const RENEWAL_SHARE: u64 = 2;

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub struct ModelRefusals {
    keys: ModelKeys,
    caller: Hash,
    evidence: KnownEvidence,
    /// `upstream.remember`, in ms.
    remember_ms: u64,
    /// When the request came, in ms since the epoch.
    now_ms: u64,
    /// All refusals that count for the request.
    known: Adaptations,
    /// The part of these that other callers met.
    by_others: Adaptations,
}

/// The evidence about a model, as it is looked up.
pub struct EvidenceLookUp {
    keys: ModelKeys,
    ticket: Ticket<Evidence>,
}

impl EvidenceLookUp {
    /// Asks for the evidence of all callers, and of the request's caller.
    pub fn ask(keys: ModelKeys, batch: &mut Batch) -> Self {
        Self { keys, ticket: batch.ask([keys.all, keys.own]) }
    }

    /// What is known about a request of `caller` at `now_ms`.
    pub fn refusals(
        &self,
        answers: &Answers,
        caller: Hash,
        remember: Duration,
        now_ms: u64,
    ) -> ModelRefusals {
        let mut lists = answers.lists(&self.ticket).into_iter();
        let mut list = || lists.next().unwrap_or_default();
        let evidence = KnownEvidence { all: list(), own: list() };
        ModelRefusals::new(self.keys, caller, evidence, remember, now_ms)
    }
}

/// What the caller's own requests showed of one refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Nothing, or too long ago.
    Unknown,
    Refused,
    /// So many ms ago.
    Accepted(u64),
}

impl ModelRefusals {
    /// What `evidence` says at `now_ms` about a request of `caller`.
    pub fn new(
        keys: ModelKeys,
        caller: Hash,
        mut evidence: KnownEvidence,
        remember: Duration,
        now_ms: u64,
    ) -> Self {
        // Replicas write at the same time, so the order of a list is nearly that of the requests.
        evidence.own.sort_by_key(|it| it.at_ms);
        let remember_ms = u64::try_from(remember.as_millis()).unwrap_or(u64::MAX);
        let (known, by_others) = Default::default();
        let mut refusals = Self { keys, caller, evidence, remember_ms, now_ms, known, by_others };
        let KnownEvidence { all, own } = &refusals.evidence;
        let refused = all.iter().chain(own).fold(Adaptations::empty(), |refused, it| refused | it.refused);
        for adaptation in refused {
            let is_known = match refusals.own(adaptation) {
                Own::Refused => true,
                Own::Unknown if refusals.counts_for_all(adaptation) => refusals.by_others.insert(adaptation),
                Own::Unknown | Own::Accepted(_) => false,
            };
            if is_known {
                refusals.known.insert(adaptation);
            }
        }
        refusals
    }

    /// The refusals that count for the request.
    pub fn known(&self) -> Adaptations {
        self.known
    }

    /// Whether a refusal that counts for the request counts for other callers too.
    pub fn scope(&self, adaptation: Adaptation) -> RefusalScope {
        match self.by_others.contains(adaptation) || self.counts_for_all(adaptation) {
            true => RefusalScope::AllCallers,
            false => RefusalScope::OneCaller,
        }
    }

    /// Whether a refusal counts for all callers once the request has met it too.
    pub fn scope_when_met(&self, adaptation: Adaptation) -> RefusalScope {
        let (refusing, is_accepted) = self.of_all(adaptation);
        match refusing.iter().flatten().any(|caller| *caller != self.caller) && !is_accepted {
            true => RefusalScope::AllCallers,
            false => RefusalScope::OneCaller,
        }
    }

    /// The evidence to add to each list, after the model refused and accepted this of the request.
    pub fn news(&self, refused: Adaptations, accepted: Adaptations) -> Vec<(Hash, Evidence)> {
        if self.remember_ms == 0 {
            return Vec::new();
        }
        let is_stale = |adaptation: &Adaptation| match self.own(*adaptation) {
            Own::Accepted(age_ms) => age_ms >= self.remember_ms / RENEWAL_SHARE,
            Own::Unknown | Own::Refused => true,
        };
        let of_own = self.evidence(refused, accepted.iter().filter(is_stale).collect());
        let is_missing = |adaptation: &Adaptation| {
            let (refusing, is_accepted) = self.of_all(*adaptation);
            let is_known = refusing.contains(&Some(self.caller)) || refusing.iter().all(Option::is_some);
            let is_disputed = refusing.iter().flatten().any(|caller| *caller != self.caller);
            (refused.contains(*adaptation) && !is_known)
                || (accepted.contains(*adaptation) && is_disputed && !is_accepted)
        };
        let missing = |all: Adaptations| all.iter().filter(is_missing).collect();
        let of_all = self.evidence(missing(refused), missing(accepted));
        let news = [(self.keys.own, of_own), (self.keys.all, of_all)];
        news.into_iter().filter(|(_, new)| !(new.refused.is_empty() && new.accepted.is_empty())).collect()
    }

    fn evidence(&self, refused: Adaptations, accepted: Adaptations) -> Evidence {
        Evidence { caller: self.caller, refused, accepted, at_ms: self.now_ms }
    }

    fn own(&self, adaptation: Adaptation) -> Own {
        let mut own = None;
        // When the refusals since the last accepted request began, and when the last one came.
        let mut run: Option<(u64, u64)> = None;
        for it in &self.evidence.own {
            if it.accepted.contains(adaptation) {
                (own, run) = (Some(it.at_ms), None);
            } else if it.refused.contains(adaptation) {
                let is_same = |(_, last): &(u64, u64)| it.at_ms.saturating_sub(*last) <= self.remember_ms;
                let first = run.filter(is_same).map_or(it.at_ms, |(first, _)| first);
                run = Some((first, it.at_ms));
            }
        }
        if let Some((first, last)) = run {
            let at_first = self.remember_ms / FIRST_SHARE;
            let lasts = if last - first >= at_first { self.remember_ms } else { at_first };
            return if self.age_ms(last) < lasts { Own::Refused } else { Own::Unknown };
        }
        let age_ms = own.map(|at_ms| self.age_ms(at_ms)).filter(|age_ms| *age_ms < self.remember_ms);
        age_ms.map_or(Own::Unknown, Own::Accepted)
    }

    fn counts_for_all(&self, adaptation: Adaptation) -> bool {
        let (refusing, is_accepted) = self.of_all(adaptation);
        refusing.iter().all(Option::is_some) && !is_accepted
    }

    /// Two callers whose requests were refused, as far as there are two, and whether a request was accepted.
    fn of_all(&self, adaptation: Adaptation) -> ([Option<Hash>; 2], bool) {
        let (mut refusing, mut is_accepted) = ([None, None], false);
        for it in self.evidence.all.iter().filter(|it| self.age_ms(it.at_ms) < self.remember_ms) {
            is_accepted |= it.accepted.contains(adaptation);
            if it.refused.contains(adaptation) {
                match refusing {
                    [None, _] => refusing[0] = Some(it.caller),
                    [Some(first), None] if first != it.caller => refusing[1] = Some(it.caller),
                    _ => {}
                }
            }
        }
        (refusing, is_accepted)
    }

    fn age_ms(&self, at_ms: u64) -> u64 {
        self.now_ms.saturating_sub(at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::fact::{Fact as _, RecordList};

    const REMEMBER: Duration = Duration::from_secs(3_600);
    const MINUTE: u64 = 60_000;
    const START: u64 = 1_000 * MINUTE;

    fn no_tools() -> Adaptations {
        Adaptation::Tools.into()
    }

    /// A store with the two kinds of lists.
    #[derive(Default)]
    struct Lists(std::collections::BTreeMap<Hash, RecordList<Evidence>>);

    impl Lists {
        fn refusals(&self, caller: u128, minute: u64) -> ModelRefusals {
            let list = |key| self.0.get(&key).map_or_else(Vec::new, |known| known.to_vec());
            let keys = ModelKeys { all: Hash(0), own: Hash(caller) };
            let evidence = KnownEvidence { all: list(keys.all), own: list(keys.own) };
            ModelRefusals::new(keys, Hash(caller), evidence, REMEMBER, START + minute * MINUTE)
        }

        /// A request with tools by an upstream that takes them or not; returns whether they were sent at once.
        fn ask(&mut self, caller: u128, minute: u64, takes_tools: bool) -> bool {
            let refusals = self.refusals(caller, minute);
            let sends_tools = !refusals.known().contains(Adaptation::Tools);
            let none = Adaptations::empty();
            let (refused, accepted) = match (sends_tools, takes_tools) {
                (true, true) => (none, no_tools()),
                (true, false) => (no_tools(), none),
                (false, _) => (none, none),
            };
            for (key, evidence) in refusals.news(refused, accepted) {
                evidence.add_to(self.0.entry(key).or_default());
            }
            sends_tools
        }
    }

    /// Requests as caller, minute, whether its account may use tools, and whether the tools are sent at once.
    fn check(name: &str, requests: &[(u128, u64, bool, bool)]) {
        let mut lists = Lists::default();
        for (nth, (caller, minute, takes_tools, expected)) in requests.iter().enumerate() {
            assert_eq!(lists.ask(*caller, *minute, *takes_tools), *expected, "{name}, request {nth}");
        }
    }

    #[test]
    fn a_refusal_counts_for_its_caller_and_for_all_once_two_have_met_it() {
        const ALICE: u128 = 1;
        const BOB: u128 = 2;
        const CAROL: u128 = 3;
        check("one caller", &[(ALICE, 0, false, true), (ALICE, 1, false, false), (BOB, 1, true, true)]);
        check("two callers", &[(ALICE, 0, false, true), (BOB, 1, false, true), (CAROL, 2, false, false)]);
        check("one caller twice", &[(ALICE, 0, false, true), (ALICE, 7, false, true), (BOB, 8, true, true)]);
        let disputed =
            [(ALICE, 0, false, true), (BOB, 1, true, true), (CAROL, 2, false, true), (9, 3, true, true)];
        check("accepted in between", &disputed);
        let before =
            [(BOB, 0, true, true), (ALICE, 1, false, true), (CAROL, 2, false, true), (BOB, 3, true, true)];
        check("the caller's own was accepted before", &before);
        let late =
            [(ALICE, 0, false, true), (BOB, 59, false, true), (9, 59, false, false), (9, 61, true, true)];
        check("the first of two is forgotten", &late);
    }

    #[test]
    fn a_first_refusal_is_tried_again_soon_and_a_second_one_counts_for_the_whole_time() {
        let again = [(1, 0, false, true), (1, 5, false, false), (1, 6, false, true), (1, 65, false, false)];
        check("refused again", &again);
        check("and later", &[&again[..], &[(1, 66, true, true), (1, 67, true, true)]].concat());
        check("accepted again", &[(1, 0, false, true), (1, 6, true, true), (1, 7, true, true)]);
        check("at once twice", &[(1, 0, false, true), (1, 5, true, false), (1, 6, true, true)]);
    }

    #[test]
    fn evidence_is_not_repeated() {
        let mut lists = Lists::default();
        for minute in 0..29 {
            lists.ask(1, minute, true);
        }
        assert_eq!(lists.0[&Hash(1)].len(), 1, "no more than one write in half of the time");
        assert!(!lists.0.contains_key(&Hash(0)), "nobody disputes it");
        for caller in 2..100 {
            lists.ask(caller, 30, false);
        }
        assert_eq!(lists.0[&Hash(0)].len(), 2);
    }

    #[test]
    fn nothing_is_remembered_where_the_operator_does_not_want_that() {
        let keys = ModelKeys::default();
        let refusals = ModelRefusals::new(keys, Hash(1), KnownEvidence::default(), Duration::ZERO, START);
        assert!(refusals.news(no_tools(), Adaptations::empty()).is_empty());
    }
}
