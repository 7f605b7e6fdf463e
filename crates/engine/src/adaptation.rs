//! Adaptations: which variant of a request to try after an upstream's refusal: without tools, without `tool_choice`, with
//! the tool history as text or repaired, with notices placed elsewhere, without a member that toolrein wrote, or without
//! streaming. Chooses the variant; sends nothing.

mod facts;
mod repairs;

pub use facts::learned;

use crate::settings::{BrokenHistory, Overflow, PlacementChoice, ToolsUnsupported};
use dialects::error::UpstreamError;
use dialects::refusal::{
    alternative, classify, is_nondescript, may_be_about_the_form, misses_tools, objects_to_choice,
    objects_to_member, refuses_stream_options, refuses_streamed_tools,
};
use dialects::variant::{Added, Placement, Tools, Variant};
use model::adaptation::{Adaptation, Adaptations};
use model::message::{Message, Role};
use model::plan::Plan;
use model::request::{Choice, Request};
use policies::pattern::Pattern;

/// The most adaptations of one client request, whatever their reasons: clients retry too, and the tries multiply.
const MOST: u32 = 3;

/// What may still be tried for one client request.
#[derive(Clone, Debug)]
pub struct AdaptationTries {
    left: u32,
    /// Those that the settings allow and that change something of the request, each in its first use.
    possible: Adaptations,
    /// The choice of tool forces a call.
    is_forced: bool,
    declares_tools: bool,
    has_history: bool,
    /// toolrein's system messages are late in the conversation.
    late_system: bool,
}

/// What a request is, as far as its adaptations depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub mode: ToolsUnsupported,
    pub overflow: Overflow,
    pub broken_history: BrokenHistory,
    /// The client needs a call as its answer, so an answer without tools is of no use to it.
    pub forced: bool,
    /// A policy wants to add a notice, and may.
    pub notices: bool,
    /// Calls that the client was not shown are put back.
    pub restored: bool,
}

impl AdaptationTries {
    /// Everything that may be tried for `request`.
    pub fn new(request: &Request, subject: Subject) -> Self {
        let calls = |message: &Message| message.role == Role::Tool || !message.calls.is_empty();
        let has_history = subject.restored || request.messages.iter().any(calls);
        let is_forced = request.choice == Choice::Forced;
        let has_choice = request.choice != Choice::Auto || request.declares_tools;
        let (declares_tools, retries) = (request.declares_tools, subject.mode == ToolsUnsupported::Retry);
        let choice = if is_forced { Adaptation::ForcedChoice } else { Adaptation::ToolChoice };
        let drops_tools = retries && !subject.forced;
        let possible = [
            // Nothing is changed in a body whose structure parsers read differently, and no history is repaired that such a
            // string may have broken.
            (subject.overflow == Overflow::Retry && !request.odd, Adaptation::Overflow.into()),
            (subject.broken_history == BrokenHistory::Repair && !request.has_odd_text, Adaptation::REPAIRS),
            (retries && request.stream && declares_tools, Adaptation::Streaming.into()),
            (drops_tools && declares_tools, Adaptation::Tools.into()),
            (retries && has_choice, choice.into()),
            (drops_tools && has_history, Adaptation::Flattened.into()),
        ];
        let possible = possible.into_iter().filter(|(is_possible, _)| *is_possible);
        let possible = possible.fold(Adaptations::empty(), |all, (_, adaptations)| all | adaptations);
        let late_system = subject.notices;
        Self { left: MOST, possible, is_forced, declares_tools, has_history, late_system }
    }

    /// The variant to begin with, by what is known of the model.
    pub fn first(&self, placement: Placement, known: Adaptations) -> Variant {
        let mut adapted = known & (Adaptation::OF_TOOLREIN | (self.possible & !Adaptation::REPAIRS));
        // Where a choice is refused, one that forces a call is refused too.
        if self.is_forced && known.contains(Adaptation::ToolChoice) {
            adapted |= self.possible & Adaptation::ForcedChoice;
        }
        if !self.declares_tools {
            adapted -= Adaptation::CHOICES;
        }
        if adapted.contains(Adaptation::Tools) {
            adapted -= Adaptation::CHOICES | Adaptation::Streaming;
        }
        Variant::plain(placement).with(adapted)
    }

    /// What the upstream has shown to accept by accepting `variant` of `request`, by the adaptations that it does without:
    /// those that cost something where another caller's refusal counts.
    pub fn accepted(&self, request: &Request, variant: &Variant) -> Adaptations {
        let keeps_tools = self.declares_tools && !variant.has(Adaptation::Tools);
        let has_choice = request.choice != Choice::Auto && variant.tools() == Tools::Kept;
        let accepted = [
            (keeps_tools, Adaptation::Tools),
            (has_choice && !self.is_forced, Adaptation::ToolChoice),
            (has_choice && self.is_forced, Adaptation::ForcedChoice),
            (self.has_history && !variant.has(Adaptation::Flattened), Adaptation::Flattened),
            (self.late_system && variant.placement == Placement::System, Adaptation::Placement),
            (variant.ask_usage, Adaptation::StreamOptions),
            (request.stream && keeps_tools && !variant.has(Adaptation::Streaming), Adaptation::Streaming),
        ];
        accepted.into_iter().filter_map(|(is_accepted, it)| is_accepted.then_some(it)).collect()
    }

    /// The refusals that the first `variant` of a request avoids by differing from the request's own form. What toolrein
    /// would have written itself is not among them: it may have had nothing to write.
    pub fn avoided(&self, variant: &Variant) -> Adaptations {
        let mut avoided = variant.adapted - Adaptation::OF_TOOLREIN;
        if !avoided.is_disjoint(Adaptation::CHOICES) {
            avoided |= Adaptation::CHOICES;
        }
        if self.late_system && variant.placement != Placement::System {
            avoided |= Adaptation::Placement;
        }
        avoided
    }

    /// The variant to try after the upstream answered `variant` with `error`, and the adaptation; `None` if the error is
    /// final.
    pub fn after(
        &mut self,
        status: u16,
        error: &UpstreamError,
        variant: &Variant,
        added: Added,
    ) -> Option<(Variant, Adaptation)> {
        if let Some(next) = self.take_back(status, error, variant, added) {
            return Some(next);
        }
        if refuses_streamed_tools(status, error)
            && let Some(next) = self.next(Adaptation::Streaming, variant)
        {
            return Some(next);
        }
        let refusal = refused(status, error, variant);
        if let Some(next) = refusal.and_then(|refusal| self.next(refusal, variant)) {
            return Some(next);
        }
        let is_of_choice = self.is_forced && objects_to_choice(status, error);
        if let Some(next) =
            is_of_choice.then_some(Adaptation::ToolChoice).and_then(|it| self.next(it, variant))
        {
            return Some(next);
        }
        if let Some(next) = alternative(status, error).and_then(|refusal| self.next(refusal, variant)) {
            return Some(next);
        }
        // Templates refuse a message in more wordings than are known, and the client did not write toolrein's messages.
        let is_other = matches!(refusal, None | Some(Adaptation::Flattened | Adaptation::Placement));
        if !is_other || !may_be_about_the_form(status, error) {
            return None;
        }
        self.guess((status, error), variant, added, refusal)
    }

    /// The variant to try where the error may be about something that toolrein wrote and does not name it.
    fn guess(
        &mut self,
        (status, error): (u16, &UpstreamError),
        variant: &Variant,
        added: Added,
        refusal: Option<Adaptation>,
    ) -> Option<(Variant, Adaptation)> {
        if self.places_late_system(variant) {
            return self.next(Adaptation::Placement, variant);
        }
        // Too many tools, or one whose name or schema is not accepted: the client's own may be sound.
        if added.tools && refusal.is_none() && objects_to_member(status, error, "tool|function") {
            self.left = self.left.checked_sub(1)?;
            return Some((variant.clone().with(Adaptation::OwnTools), Adaptation::OwnTools));
        }
        // Few servers know the lists of allowed tools by which hidden ones are kept from the model.
        if added.choice && !variant.has(Adaptation::HiddenTools) {
            return self.keep_hidden(variant);
        }
        match is_nondescript(status, error) {
            true if variant.ask_usage => self.next(Adaptation::StreamOptions, variant),
            true if added.parallel && !variant.has(Adaptation::ParallelMember) => {
                self.allow_parallel(variant)
            }
            _ => None,
        }
    }

    /// The variant in which the model is not asked for one call at a time.
    fn allow_parallel(&mut self, variant: &Variant) -> Option<(Variant, Adaptation)> {
        self.left = self.left.checked_sub(1)?;
        Some((variant.clone().with(Adaptation::ParallelMember), Adaptation::ParallelMember))
    }

    /// The variant without a member that toolrein had written and the error objects to.
    fn take_back(
        &mut self,
        status: u16,
        error: &UpstreamError,
        variant: &Variant,
        added: Added,
    ) -> Option<(Variant, Adaptation)> {
        const PARALLEL: &str = "parallel tool call|parallel call|parallel function|parallel tool use";
        const CHOICE: &str = "tool choice|allowed tools";
        if added.parallel
            && !variant.has(Adaptation::ParallelMember)
            && objects_to_member(status, error, PARALLEL)
        {
            return self.allow_parallel(variant);
        }
        let is_choice = || objects_to_member(status, error, CHOICE) || objects_to_choice(status, error);
        if added.choice && is_choice() { self.keep_hidden(variant) } else { None }
    }

    /// The variant in which hidden tools are kept from the model without a choice of tool.
    fn keep_hidden(&mut self, variant: &Variant) -> Option<(Variant, Adaptation)> {
        if variant.has(Adaptation::HiddenTools) || variant.tools() != Tools::Kept {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some((variant.clone().with(Adaptation::HiddenTools), Adaptation::HiddenTools))
    }

    /// The variant to try after `refusal` of `variant`, and the adaptation; `None` if the refusal is final.
    fn next(&mut self, refusal: Adaptation, variant: &Variant) -> Option<(Variant, Adaptation)> {
        let may = |adaptation| self.possible.contains(adaptation) && !variant.has(adaptation);
        let choice = if self.is_forced { Adaptation::ForcedChoice } else { Adaptation::ToolChoice };
        let mut next = variant.clone();
        let adaptation = match refusal {
            Adaptation::Tools if may(Adaptation::Tools) => {
                next.adapted -= Adaptation::Streaming;
                Adaptation::Tools
            }
            Adaptation::ToolChoice if may(choice) && variant.tools() == Tools::Kept => choice,
            // Where no tools are declared, the refusal can only mean those of the history.
            Adaptation::Tools if self.declares_tools => return None,
            Adaptation::Tools | Adaptation::Flattened if may(Adaptation::Flattened) => Adaptation::Flattened,
            Adaptation::Placement if self.places_late_system(variant) => {
                next.placement = Placement::Suffix;
                Adaptation::Placement
            }
            Adaptation::Streaming if may(Adaptation::Streaming) && !variant.has(Adaptation::Tools) => {
                Adaptation::Streaming
            }
            Adaptation::StreamOptions if variant.ask_usage => {
                next.ask_usage = false;
                Adaptation::StreamOptions
            }
            _ => return None,
        };
        self.left = self.left.checked_sub(1)?;
        // Where these two are is written in the variant itself.
        let is_written = matches!(adaptation, Adaptation::Placement | Adaptation::StreamOptions);
        Some((if is_written { next } else { next.with(adaptation) }, adaptation))
    }

    /// Whether a request that was refused for its length may be sent once more in a shorter form.
    pub fn may_shorten(&self) -> bool {
        self.possible.contains(Adaptation::Overflow) && self.left > 0
    }

    /// Notes that a shorter request is sent, by `plan`.
    pub fn shorten(&mut self, plan: &Plan) {
        self.possible -= Adaptation::Overflow;
        // A notice says to the model what is gone.
        self.late_system |= plan.has_notices();
        self.left = self.left.saturating_sub(1);
    }

    fn places_late_system(&self, variant: &Variant) -> bool {
        variant.placement == Placement::System && (self.late_system || variant.has(Adaptation::Tools))
    }
}

/// What the upstream's error refuses of a request in the form `variant`.
fn refused(status: u16, error: &UpstreamError, variant: &Variant) -> Option<Adaptation> {
    if variant.ask_usage && refuses_stream_options(status, error) {
        return Some(Adaptation::StreamOptions);
    }
    // A request without its tools may be refused for the calls left in its history.
    let bare = variant.has(Adaptation::Tools) && !variant.has(Adaptation::Flattened);
    classify(status, error).or_else(|| (bare && misses_tools(error)).then_some(Adaptation::Flattened))
}

/// Where notices go for `model`.
pub fn placement(
    choice: PlacementChoice,
    system_models: &[Pattern],
    model: &str,
    known: Adaptations,
) -> Placement {
    match choice {
        PlacementChoice::Leading => Placement::Leading,
        PlacementChoice::Suffix => Placement::Suffix,
        _ if known.contains(Adaptation::Placement) => Placement::Suffix,
        PlacementChoice::System => Placement::System,
        PlacementChoice::Auto if system_models.iter().any(|pattern| pattern.matches(model)) => {
            Placement::System
        }
        PlacementChoice::Auto => Placement::Suffix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::Change;

    pub(super) const RETRY: Subject = Subject {
        mode: ToolsUnsupported::Retry,
        overflow: Overflow::Retry,
        broken_history: BrokenHistory::Repair,
        forced: false,
        notices: true,
        restored: false,
    };

    fn request(body: &str) -> Request {
        dialects::chat::parse(body.as_bytes()).unwrap()
    }

    fn with_tools() -> Request {
        request(
            r#"{"messages":[{"role":"user","content":"q"},{"role":"tool","tool_call_id":"a","content":""}],"tools":[{}]}"#,
        )
    }

    #[test]
    fn the_retry_after_a_refusal_leaves_out_what_was_refused() {
        let plain = Variant::plain(Placement::System);
        for (refusal, expected, adaptation) in [
            (Adaptation::Tools, plain.clone().with(Adaptation::Tools), Adaptation::Tools),
            (Adaptation::ToolChoice, plain.clone().with(Adaptation::ToolChoice), Adaptation::ToolChoice),
            (Adaptation::Flattened, plain.clone().with(Adaptation::Flattened), Adaptation::Flattened),
            (
                Adaptation::Placement,
                Variant { placement: Placement::Suffix, ..plain.clone() },
                Adaptation::Placement,
            ),
        ] {
            let mut tries = AdaptationTries::new(&with_tools(), RETRY);
            let (next, name) = tries.next(refusal, &plain).unwrap();
            assert_eq!((&next, name), (&expected, adaptation));
            assert_eq!(tries.next(refusal, &next), None, "each once");
        }
    }

    #[test]
    fn a_request_that_declares_no_tools_is_never_tried_without_them() {
        let plain = Variant::plain(Placement::System);
        let talk = request(r#"{"messages":[{"role":"user","content":"q"}]}"#);
        assert_eq!(AdaptationTries::new(&talk, RETRY).next(Adaptation::Tools, &plain), None);
        let results = request(r#"{"messages":[{"role":"tool","tool_call_id":"a","content":""}]}"#);
        let (next, adaptation) =
            AdaptationTries::new(&results, RETRY).next(Adaptation::Tools, &plain).unwrap();
        assert_eq!((next, adaptation), (plain.with(Adaptation::Flattened), Adaptation::Flattened));
    }

    #[test]
    fn an_error_that_lists_accepted_roles_leads_to_a_retry_for_each_meaning() {
        let messages = vec!["Only user and assistant roles are supported!".to_owned()];
        let error = UpstreamError { messages, ..UpstreamError::default() };
        let plain = Variant::plain(Placement::System);
        let mut tries = AdaptationTries::new(&with_tools(), RETRY);
        let (next, first) = tries.after(500, &error, &plain, Added::default()).unwrap();
        let (last, second) = tries.after(500, &error, &next, Added::default()).unwrap();
        assert_eq!((first, second), (Adaptation::Placement, Adaptation::Flattened));
        assert_eq!(tries.after(500, &error, &last, Added::default()), None);
        let mut tries = AdaptationTries::new(&with_tools(), Subject { notices: false, ..RETRY });
        assert_eq!(tries.after(500, &error, &plain, Added::default()).unwrap().1, Adaptation::Flattened);
    }

    #[test]
    fn restored_hidden_exchanges_count_as_tool_history() {
        let talk = request(r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}]}"#);
        let plain = Variant::plain(Placement::System);
        for restored in [false, true] {
            let mut tries = AdaptationTries::new(&talk, Subject { restored, ..RETRY });
            let known = Adaptation::Flattened.into();
            assert_eq!(tries.first(Placement::System, known).has(Adaptation::Flattened), restored);
            assert_eq!(tries.next(Adaptation::Flattened, &plain).is_some(), restored);
        }
    }

    #[test]
    fn a_refused_usage_request_is_dropped_even_if_tools_are_forced() {
        let asking = Variant { ask_usage: true, ..Variant::plain(Placement::System) };
        let mut tries = AdaptationTries::new(
            &with_tools(),
            Subject { forced: true, mode: ToolsUnsupported::Pass, ..RETRY },
        );
        let (next, adaptation) = tries.next(Adaptation::StreamOptions, &asking).unwrap();
        assert_eq!((&next, adaptation), (&Variant::plain(Placement::System), Adaptation::StreamOptions));
        assert_eq!(tries.next(Adaptation::StreamOptions, &next), None, "once");
        assert_eq!(
            [learned(&[adaptation]), learned(&[])],
            [Adaptation::StreamOptions.into(), Adaptations::empty()]
        );
    }

    fn said(message: &str) -> UpstreamError {
        UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() }
    }

    #[test]
    fn a_refusal_of_tools_in_streams_is_retried_as_a_whole_reply_with_tools() {
        let refusal = said("This model doesn't support tool use in streaming mode.");
        let streamed = request(r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}],"stream":true}"#);
        let plain = Variant::plain(Placement::System);
        for forced in [false, true] {
            let mut tries = AdaptationTries::new(&streamed, Subject { forced, notices: false, ..RETRY });
            let (next, adaptation) = tries.after(400, &refusal, &plain, Added::default()).unwrap();
            assert_eq!(
                (&next, adaptation),
                (&plain.clone().with(Adaptation::Streaming), Adaptation::Streaming)
            );
            assert_eq!(tries.after(400, &refusal, &next, Added::default()), None, "once");
        }
        let known = learned(&[Adaptation::Streaming]);
        assert!(
            AdaptationTries::new(&streamed, RETRY).first(Placement::System, known).has(Adaptation::Streaming)
        );
        for other in [with_tools(), request(r#"{"messages":[],"stream":true}"#)] {
            let mut tries = AdaptationTries::new(&other, RETRY);
            assert!(!tries.first(Placement::System, known).has(Adaptation::Streaming));
            let next = tries.after(400, &refusal, &plain, Added::default()).map(|(_, adaptation)| adaptation);
            assert_ne!(next, Some(Adaptation::Streaming));
        }
    }

    #[test]
    fn a_request_avoids_each_refusal_for_which_its_choice_of_tool_is_left_out() {
        let forced =
            request(r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}],"tool_choice":"required"}"#);
        for known in [Adaptation::ToolChoice, Adaptation::ForcedChoice] {
            let tries = AdaptationTries::new(&forced, Subject { notices: false, ..RETRY });
            let first = tries.first(Placement::System, known | Adaptation::OwnTools);
            assert_eq!(tries.avoided(&first), Adaptation::CHOICES);
        }
    }

    #[test]
    fn there_are_three_second_tries_at_most() {
        let mut tries = AdaptationTries::new(&with_tools(), RETRY);
        let mut variant = Variant::plain(Placement::System);
        for refusal in [Adaptation::ToolChoice, Adaptation::Tools, Adaptation::Flattened] {
            variant = tries.next(refusal, &variant).unwrap().0;
        }
        assert_eq!(tries.next(Adaptation::Placement, &variant), None);
    }

    #[test]
    fn a_request_is_shortened_once_and_within_the_three_tries() {
        let mut tries = AdaptationTries::new(&with_tools(), RETRY);
        assert!(tries.may_shorten());
        tries.shorten(&Plan::default());
        assert!(!tries.may_shorten());
        let mut variant = Variant::plain(Placement::System);
        for refusal in [Adaptation::ToolChoice, Adaptation::Tools] {
            variant = tries.next(refusal, &variant).unwrap().0;
        }
        assert_eq!(tries.next(Adaptation::Flattened, &variant), None);
        let passing = AdaptationTries::new(&with_tools(), Subject { overflow: Overflow::Pass, ..RETRY });
        assert!(!passing.may_shorten());
    }

    #[test]
    fn a_refused_notice_about_dropped_turns_may_be_placed_differently() {
        let mut plan = Plan::default();
        for refused in [None, Some(Adaptation::Placement)] {
            let mut tries = AdaptationTries::new(&with_tools(), Subject { notices: false, ..RETRY });
            tries.shorten(&plan);
            let next = tries.next(Adaptation::Placement, &Variant::plain(Placement::System));
            assert_eq!(next.map(|(_, adaptation)| adaptation), refused);
            plan.edit_earlier(0, Change::Notice { text: "gone".to_owned(), word: "notice" });
        }
    }

    #[test]
    fn tools_are_never_dropped_for_forced_answers_or_with_tools_unsupported_pass() {
        let plain = Variant::plain(Placement::System);
        for subject in [Subject { forced: true, ..RETRY }, Subject { mode: ToolsUnsupported::Pass, ..RETRY }]
        {
            let mut tries = AdaptationTries::new(&with_tools(), subject);
            for refusal in [Adaptation::Tools, Adaptation::Flattened] {
                assert_eq!(tries.next(refusal, &plain), None);
            }
            let no_tools = Adaptation::Tools | Adaptation::Flattened;
            assert_eq!(tries.first(Placement::System, no_tools), plain);
        }
    }

    #[test]
    fn a_forced_choice_that_is_refused_goes_and_the_tools_stay() {
        let forced =
            request(r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}],"tool_choice":"required"}"#);
        let plain = Variant::plain(Placement::System);
        let refusal = said("tool_choice 'required' is incompatible with thinking enabled");
        let subject = Subject { forced: true, notices: false, ..RETRY };
        let (next, adaptation) =
            AdaptationTries::new(&forced, subject).after(400, &refusal, &plain, Added::default()).unwrap();
        assert_eq!((next.tools(), adaptation), (Tools::WithoutChoice, Adaptation::ForcedChoice));
        let known = learned(&[adaptation]);
        assert_eq!(known, Adaptation::ForcedChoice);
        let first = |request: &Request, forced| {
            AdaptationTries::new(request, Subject { forced, ..RETRY }).first(Placement::System, known).tools()
        };
        assert_eq!((first(&forced, true), first(&with_tools(), false)), (Tools::WithoutChoice, Tools::Kept));
        let passing = Subject { mode: ToolsUnsupported::Pass, ..subject };
        assert_eq!(
            AdaptationTries::new(&forced, passing).after(400, &refusal, &plain, Added::default()),
            None
        );
    }

    #[test]
    fn a_refused_member_that_toolrein_wrote_is_taken_back_once() {
        let plain = Variant::plain(Placement::System);
        let subject = Subject { mode: ToolsUnsupported::Pass, notices: false, ..RETRY };
        let parallel = said("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.");
        let choice = said("Invalid value: 'allowed_tools'. Supported values are: 'function'.");
        let other = said("'dict' has no member");
        let tools = said("Invalid 'tools': array too long. Expected an array with maximum length 128.");
        for (error, added, expected) in [
            (&parallel, Added { parallel: true, ..Added::default() }, Some(Adaptation::ParallelMember)),
            (&parallel, Added::default(), None),
            (&choice, Added { choice: true, ..Added::default() }, Some(Adaptation::HiddenTools)),
            (&other, Added { choice: true, ..Added::default() }, Some(Adaptation::HiddenTools)),
            (&choice, Added::default(), None),
            (&tools, Added { tools: true, ..Added::default() }, Some(Adaptation::OwnTools)),
            (&tools, Added::default(), None),
        ] {
            let mut tries = AdaptationTries::new(&with_tools(), subject);
            let next = tries.after(400, error, &plain, added);
            assert_eq!(next.as_ref().map(|(_, adaptation)| *adaptation), expected, "{error:?}");
            if let Some((next, _)) = next {
                // What was taken back is no longer there.
                assert_eq!(tries.after(400, error, &next, Added::default()), None, "once");
            }
        }
    }

    #[test]
    fn a_refusal_of_the_clients_own_late_system_message_is_not_retried() {
        let mut tries = AdaptationTries::new(&with_tools(), Subject { notices: false, ..RETRY });
        assert_eq!(tries.next(Adaptation::Placement, &Variant::plain(Placement::System)), None);
        let mut tries = AdaptationTries::new(&with_tools(), RETRY);
        assert_eq!(tries.next(Adaptation::Placement, &Variant::plain(Placement::Suffix)), None);
    }

    #[test]
    fn known_refusals_of_a_model_shape_the_first_request() {
        let tries = AdaptationTries::new(&with_tools(), RETRY);
        let no_tools = Adaptation::Tools.into();
        assert_eq!(tries.first(Placement::System, no_tools).tools(), Tools::Dropped);
        let plain_chat = request(r#"{"messages":[{"role":"user","content":"q"}]}"#);
        let tries = AdaptationTries::new(&plain_chat, RETRY);
        assert_eq!(
            tries.first(Placement::System, no_tools),
            Variant::plain(Placement::System),
            "a request without tools stays as it is"
        );
    }

    #[test]
    fn notices_go_where_the_model_takes_them() {
        let late = Adaptation::Placement.into();
        let models = [Pattern::new("gpt-*")];
        for (choice, model, known, expected) in [
            (PlacementChoice::Auto, "gpt-5", Adaptations::empty(), Placement::System),
            (PlacementChoice::Auto, "claude", Adaptations::empty(), Placement::Suffix),
            (PlacementChoice::Auto, "gpt-5", late, Placement::Suffix),
            (PlacementChoice::System, "claude", Adaptations::empty(), Placement::System),
            (PlacementChoice::System, "claude", late, Placement::Suffix),
            (PlacementChoice::Leading, "gpt-5", late, Placement::Leading),
            (PlacementChoice::Suffix, "gpt-5", Adaptations::empty(), Placement::Suffix),
        ] {
            assert_eq!(placement(choice, &models, model, known), expected);
        }
    }
}
