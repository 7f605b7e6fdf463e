//! The fallback for a broken history: what of it to repair, after a refusal or from the start.

use super::{Fallbacks, refused};
use crate::store::ModelFacts;
use dialects::error::UpstreamError;
use dialects::refusal::{Broken, breaks, suspects};
use dialects::variant::{Repairs, Variant};
use model::record::Fallback;

/// What a model is known to refuse of histories.
fn known_repairs(known: ModelFacts) -> Repairs {
    Repairs {
        pairs: known.no_broken_pairs,
        arguments: known.no_broken_arguments,
        names: known.no_broken_names,
        ids: known.no_repeated_ids,
        id_forms: known.no_broken_ids,
        pictures: known.no_result_pictures,
        without_pictures: known.no_pictures,
    }
}

impl Fallbacks {
    /// What of a broken history to repair from the start, by what is known of the model.
    pub fn first_repairs(&self, known: ModelFacts) -> Repairs {
        if self.repair { known_repairs(known) } else { Repairs::default() }
    }

    /// The variant to try after the upstream refused a broken history, and the fallbacks' names; `None` if there is none.
    /// `broken`: which of these is broken in this history.
    pub fn after_broken(
        &mut self,
        status: u16,
        error: &UpstreamError,
        variant: &Variant,
        broken: impl Fn(Repairs) -> Repairs,
    ) -> Option<(Variant, Vec<Fallback>)> {
        if !self.repair || variant.flat {
            return None;
        }
        // An error about a history that is not broken in this way means something else.
        let refused = |of: Repairs| broken(of.without(variant.repairs)).without(variant.repairs);
        let found = stages(status, error, variant).into_iter().map(refused).find(|found| found.any())?;
        self.left = self.left.checked_sub(1)?;
        let mut next = variant.clone();
        next.repairs = next.repairs.and(found);
        Some((next, names_of(found)))
    }
}

/// What the error may refuse, the likeliest first: as known wordings say it, and then as its structure does.
fn stages(status: u16, error: &UpstreamError, variant: &Variant) -> Vec<Repairs> {
    let none = Repairs::default();
    let known = breaks(status, error).map(|broken| match broken {
        Broken::Pairs => Repairs { pairs: true, ..none },
        Broken::Arguments => Repairs { arguments: true, ..none },
    });
    // What is known to be refused otherwise is no guess.
    if known.is_none() && refused(status, error, variant).is_some() {
        return Vec::new();
    }
    let suspected = suspects(status, error);
    if suspected == Repairs::ALL {
        return vec![known.unwrap_or(none), suspected];
    }
    // A model that took no picture in a result may take none at all.
    let has_moved = suspected.pictures && variant.repairs.pictures;
    let others = Repairs { pairs: false, ids: suspected.ids && !suspected.pairs, ..suspected };
    let by_pairs = Repairs { pairs: suspected.pairs, ..none };
    let by_ids = Repairs { ids: suspected.ids, id_forms: suspected.id_forms, ..none };
    let left_out = Repairs { without_pictures: has_moved, ..none };
    let all = [known.unwrap_or(none), by_pairs, others, by_ids, left_out];
    all.into_iter().filter(|stage| stage.any()).collect()
}

pub(super) fn names_of(found: Repairs) -> Vec<Fallback> {
    let all = [
        (found.pairs, Fallback::Pairs),
        (found.arguments, Fallback::Arguments),
        (found.names, Fallback::Names),
        (found.ids, Fallback::RepeatedIds),
        (found.id_forms, Fallback::IdForms),
        (found.pictures, Fallback::Pictures),
        (found.without_pictures, Fallback::NoPictures),
    ];
    all.into_iter().filter(|(is_found, _)| *is_found).map(|(_, fallback)| fallback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fallback::{Subject, learned};
    use crate::settings::{BrokenHistory, Overflow, ToolsUnsupported};
    use dialects::variant::{Added, Placement, Tools};

    const RETRY: Subject = Subject {
        mode: ToolsUnsupported::Retry,
        overflow: Overflow::Retry,
        broken_history: BrokenHistory::Repair,
        forced: false,
        notices: true,
        restored: false,
    };

    fn fallbacks(subject: Subject, content: &str) -> Fallbacks {
        let body = format!(r#"{{"messages":[{{"role":"tool","tool_call_id":"a","content":"{content}"}}]}}"#);
        Fallbacks::new(&dialects::chat::parse(body.as_bytes()).unwrap(), subject)
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
        let of_both =
            |of: Repairs| Repairs { pairs: of.pairs, arguments: of.arguments, ..Repairs::default() };
        let mut tries = fallbacks(RETRY, "");
        let (next, first) = tries.after_broken(400, &pairs, &plain, of_both).unwrap();
        assert_eq!(tries.after_broken(400, &pairs, &next, of_both), None, "once");
        let (last, second) = tries.after_broken(500, &arguments, &next, of_both).unwrap();
        assert_eq!((&*first, &*second), (&[Fallback::Pairs][..], &[Fallback::Arguments][..]));
        assert_eq!(last.repairs, of_both(Repairs::ALL));
        assert!(learned(&first).no_broken_pairs && !learned(&first).no_broken_arguments);
        let healthy = |_| Repairs::default();
        assert_eq!(fallbacks(RETRY, "").after_broken(400, &pairs, &plain, healthy), None);
        let flat = Variant { flat: true, ..plain.clone() };
        assert_eq!(fallbacks(RETRY, "").after_broken(400, &pairs, &flat, of_both), None, "no calls any more");
        let subject = Subject { broken_history: BrokenHistory::Pass, ..RETRY };
        assert_eq!(fallbacks(subject, "").after_broken(400, &pairs, &plain, of_both), None);
        assert_eq!(fallbacks(RETRY, "\\u0000").after_broken(400, &pairs, &plain, of_both), None);
    }

    #[test]
    fn calls_that_are_refused_without_tools_become_text_and_are_not_repaired() {
        let refusal =
            said("The toolConfig field must be defined when using toolUse and toolResult content blocks.");
        let broken = |of: Repairs| Repairs { ids: of.ids, ..Repairs::default() };
        let bare = Variant { tools: Tools::Dropped, ..Variant::plain(Placement::System) };
        let mut tries = fallbacks(RETRY, "");
        assert_eq!(tries.after_broken(400, &refusal, &bare, broken), None);
        let (next, fallback) = tries.after(400, &refusal, &bare, Added::default()).unwrap();
        assert_eq!((next.flat, next.repairs, fallback), (true, Repairs::default(), Fallback::Flattened));
    }

    #[test]
    fn pictures_are_moved_first_and_left_out_where_they_are_refused_again() {
        let refusal = said("Image URLs are only allowed for messages with role 'user'");
        let pictures = |of: Repairs| Repairs {
            pictures: of.pictures,
            without_pictures: of.without_pictures,
            ..Repairs::default()
        };
        let mut tries = fallbacks(RETRY, "");
        let (next, first) =
            tries.after_broken(400, &refusal, &Variant::plain(Placement::System), pictures).unwrap();
        let (last, second) = tries.after_broken(400, &refusal, &next, pictures).unwrap();
        assert_eq!((&*first, &*second), (&[Fallback::Pictures][..], &[Fallback::NoPictures][..]));
        assert_eq!(tries.after_broken(400, &refusal, &last, pictures), None);
        assert_eq!(known_repairs(learned(&second)), Repairs { without_pictures: true, ..Repairs::default() });
    }

    #[test]
    fn an_error_that_says_nothing_leads_to_a_repair_of_all_that_is_broken() {
        let broken = |of: Repairs| Repairs { names: of.names, ids: of.ids, ..Repairs::default() };
        let plain = Variant::plain(Placement::System);
        let (next, found) =
            fallbacks(RETRY, "").after_broken(400, &said("Bad Request"), &plain, broken).unwrap();
        assert_eq!(found, [Fallback::Names, Fallback::RepeatedIds]);
        assert!(next.repairs.names && next.repairs.ids && !next.repairs.pairs);
        let schema = said("Invalid schema for function 'search'");
        assert_eq!(fallbacks(RETRY, "").after_broken(400, &schema, &plain, broken), None);
    }
}
