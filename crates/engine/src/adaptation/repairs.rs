//! The adaptations to a broken history: what of it to repair, after a refusal or from the start.

use super::{AdaptationTries, refused};
use dialects::error::UpstreamError;
use dialects::refusal::{OpenCall, breaks, suspects};
use dialects::variant::Variant;
use model::adaptation::{Adaptation, Adaptations};

impl AdaptationTries {
    /// What of a broken history to repair from the start, by what is known of the model.
    pub fn first_repairs(&self, known: Adaptations) -> Adaptations {
        known & self.possible & Adaptation::REPAIRS
    }

    /// The variant to try after the upstream refused a broken history, and its repairs; `None` if there is none.
    /// `broken`: which of these are needed in this history.
    pub fn after_broken(
        &mut self,
        status: u16,
        error: &UpstreamError,
        variant: &Variant,
        broken: impl Fn(Adaptations) -> Adaptations,
    ) -> Option<(Variant, Adaptations)> {
        if self.possible.is_disjoint(Adaptation::REPAIRS) || variant.has(Adaptation::Flattened) {
            return None;
        }
        // An error about a history that is not broken in this way means something else.
        let refused = |of: Adaptations| broken(of - variant.repairs()) - variant.repairs();
        let found =
            stages(status, error, variant).into_iter().map(refused).find(|found| !found.is_empty())?;
        self.left = self.left.checked_sub(1)?;
        Some((variant.clone().with(found), found))
    }

    /// The variant that answers a call as unknown which the upstream keeps and its refusal has named: what is known of the
    /// conversation was lost, or never seen here.
    pub fn after_open_call(&mut self, call: OpenCall, variant: &Variant) -> Option<(Variant, Adaptations)> {
        if !self.possible.contains(Adaptation::Pairs) || variant.has(Adaptation::Flattened) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let mut next = variant.clone().with(Adaptation::Pairs);
        next.open_calls.push(call);
        Some((next, Adaptation::Pairs.into()))
    }
}

/// What the error may refuse, the likeliest first: as known wordings say it, and then as its structure does.
fn stages(status: u16, error: &UpstreamError, variant: &Variant) -> Vec<Adaptations> {
    let known = breaks(status, error);
    // What is known to be refused otherwise is no guess.
    if known.is_none() && refused(status, error, variant).is_some() {
        return Vec::new();
    }
    let (known, suspected) = (known.into_iter().collect(), suspects(status, error));
    if suspected == Adaptation::SUSPECTED_REPAIRS {
        return vec![known, suspected];
    }
    let ids = Adaptation::RepeatedIds | Adaptation::IdForms;
    // An upstream that misses a result may have found it at another call of its id: that is tried later.
    let tried_later = match suspected.contains(Adaptation::Pairs) {
        true => Adaptation::Pairs | Adaptation::RepeatedIds,
        false => Adaptation::Pairs.into(),
    };
    // A model that took no picture in a result may take none at all.
    let has_moved = (suspected & variant.repairs()).contains(Adaptation::Pictures);
    let left_out = if has_moved { Adaptation::NoPictures.into() } else { Adaptations::empty() };
    let stages = [known, suspected & Adaptation::Pairs, suspected - tried_later, suspected & ids, left_out];
    stages.into_iter().filter(|stage| !stage.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptation::tests::RETRY;
    use crate::adaptation::{Subject, learned};
    use crate::settings::BrokenHistory;
    use dialects::variant::{Added, Placement};

    fn tries_of(subject: Subject, content: &str) -> AdaptationTries {
        let body = format!(r#"{{"messages":[{{"role":"tool","tool_call_id":"a","content":"{content}"}}]}}"#);
        AdaptationTries::new(&dialects::chat::parse(body.as_bytes()).unwrap(), subject)
    }

    fn said(message: &str) -> UpstreamError {
        UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() }
    }

    #[test]
    fn a_broken_history_is_repaired_once_if_it_is_broken_in_the_way_that_was_refused() {
        let (pairs, arguments) = (
            said("No tool output found for function call call_1."),
            said("Failed to parse tool call arguments as JSON"),
        );
        let plain = Variant::plain(Placement::System);
        let both = Adaptation::Pairs | Adaptation::Arguments;
        let of_both = |of: Adaptations| of & both;
        let mut tries = tries_of(RETRY, "");
        let (next, first) = tries.after_broken(400, &pairs, &plain, of_both).unwrap();
        assert_eq!(tries.after_broken(400, &pairs, &next, of_both), None, "once");
        let (last, second) = tries.after_broken(500, &arguments, &next, of_both).unwrap();
        assert_eq!([first, second], [Adaptation::Pairs, Adaptation::Arguments]);
        assert_eq!(last.repairs(), both);
        assert_eq!(learned(&[Adaptation::Pairs]), first);
        let healthy = |_| Adaptations::empty();
        assert_eq!(tries_of(RETRY, "").after_broken(400, &pairs, &plain, healthy), None);
        let flat = plain.clone().with(Adaptation::Flattened);
        assert_eq!(tries_of(RETRY, "").after_broken(400, &pairs, &flat, of_both), None, "no calls any more");
        let subject = Subject { broken_history: BrokenHistory::Pass, ..RETRY };
        assert_eq!(tries_of(subject, "").after_broken(400, &pairs, &plain, of_both), None);
        assert_eq!(tries_of(RETRY, "\\u0000").after_broken(400, &pairs, &plain, of_both), None);
    }

    #[test]
    fn calls_that_are_refused_without_tools_become_text_and_are_not_repaired() {
        let refusal =
            said("The toolConfig field must be defined when using toolUse and toolResult content blocks.");
        let broken = |of: Adaptations| of & Adaptation::RepeatedIds;
        let bare = Variant::plain(Placement::System).with(Adaptation::Tools);
        let mut tries = tries_of(RETRY, "");
        assert_eq!(tries.after_broken(400, &refusal, &bare, broken), None);
        let (next, adaptation) = tries.after(400, &refusal, &bare, Added::default()).unwrap();
        assert_eq!(
            (next.has(Adaptation::Flattened), next.repairs(), adaptation),
            (true, Adaptations::empty(), Adaptation::Flattened)
        );
    }

    #[test]
    fn pictures_are_moved_first_and_left_out_where_they_are_refused_again() {
        let refusal = said("Image URLs are only allowed for messages with role 'user'");
        let pictures = |of: Adaptations| of & (Adaptation::Pictures | Adaptation::NoPictures);
        let mut tries = tries_of(RETRY, "");
        let (next, first) =
            tries.after_broken(400, &refusal, &Variant::plain(Placement::System), pictures).unwrap();
        let (last, second) = tries.after_broken(400, &refusal, &next, pictures).unwrap();
        assert_eq!([first, second], [Adaptation::Pictures, Adaptation::NoPictures]);
        assert_eq!(tries.after_broken(400, &refusal, &last, pictures), None);
    }

    #[test]
    fn an_error_that_says_nothing_leads_to_a_repair_of_all_that_is_broken() {
        let broken = |of: Adaptations| of & (Adaptation::Names | Adaptation::RepeatedIds);
        let plain = Variant::plain(Placement::System);
        let (next, found) =
            tries_of(RETRY, "").after_broken(400, &said("Bad Request"), &plain, broken).unwrap();
        assert_eq!(found, Adaptation::Names | Adaptation::RepeatedIds);
        assert_eq!(next.repairs(), found);
        let schema = said("Invalid schema for function 'search'");
        assert_eq!(tries_of(RETRY, "").after_broken(400, &schema, &plain, broken), None);
    }
}
