//! Events with the arguments of a call. One that no item claims is a piece of the only call that is open; otherwise it waits
//! for an item that claims it, and at the end it is never shown beside a call that the client does not see.

use super::ReplyJudge;
use super::event::Event;
use super::items::{OutItem, Veil};
use super::owner::Owner;
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::Unjudged;
use crate::dialect::responses::item::ItemKind;
use bytes::Bytes;
use model::call::Arguments;
use wire::json::decode;

/// What becomes of an event with arguments of a call.
enum Effect {
    Adds,
    /// It repeats what the client has.
    Repeats,
    /// The client may now run another call than was judged.
    Doubtful,
}

impl<J: CallJudge> ReplyJudge<J> {
    /// Handles a piece of an item: of a call, its arguments.
    pub(super) fn piece_of_item(
        &mut self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        now_ms: u64,
        out: &mut Vec<Bytes>,
    ) {
        let index = event.index.map(|(_, index)| index);
        let id = event.item_id.or(event.call_id).map(|id| decode(id, &data).into_owned());
        let mut at = match self.owner_of_piece(index, id.as_deref()) {
            Owner::At(at) => Some(at),
            Owner::Unknown => None,
            Owner::Ambiguous(_) if event.is_of_call(&data) && self.is_in_doubt() => {
                return self.break_off(Unjudged::Ambiguous);
            }
            Owner::Ambiguous(at) => Some(at),
        };
        // The provider runs the call, as a shell in a container, and what it runs comes by the same events.
        let is_carried = at.is_some_and(|at| self.items[at].kind == ItemKind::Carried);
        let is_of_call = event.is_of_call(&data);
        let is_hosted = is_carried && (!is_of_call || event.type_of(&data).contains("shell_call_command"));
        if at.is_none() && event.is_of_hosted_call(&data) {
            // OGX sends these before the item of a tool that it runs, and for calls that are none of the client's. A client
            // that takes them for its own call must not see them beside one that it does not see.
            if self.hides_call() && !self.judging.observes() {
                self.note(Unjudged::Ambiguous);
                return self.drop_event();
            }
            return self.enqueue_of(raw, event, data, None, out);
        }
        if event.is_of_arguments(&data) && !is_hosted {
            let is_owned = at.is_some_and(|at| self.items[at].call.is_some());
            let open = if is_owned || is_carried { None } else { self.only_open_call() };
            let needs_name = !is_of_call || event.is_of_named_call(&data);
            let owner = match at.filter(|_| is_owned).or(open) {
                Some(owner) => owner,
                None => self.add(OutItem::nameless(index, needs_name), now_ms),
            };
            at = Some(owner);
            self.items[owner].learn_id(id.as_deref().unwrap_or_default());
            match self.take_arguments(owner, &event, &data) {
                Effect::Adds => {}
                Effect::Repeats => return self.drop_event(),
                Effect::Doubtful => return self.break_off(Unjudged::Ambiguous),
            }
        }
        self.enqueue_of(raw, event, data, at, out);
    }

    /// Adds what an event says of the arguments of the call `at`, and of its tool.
    fn take_arguments(&mut self, at: usize, event: &Event, data: &[u8]) -> Effect {
        if let Some(tool) = event.tool.filter(|tool| !tool.span.is_empty()) {
            self.items[at].learn_name(&decode(tool, data));
        }
        if self.items[at].has_two_names() && self.is_in_doubt() {
            return Effect::Doubtful;
        }
        let observes = self.judging.observes();
        let item = &mut self.items[at];
        let says = event.delta.is_some() || event.arguments != Arguments::Absent;
        if item.done.is_some() && says && item.is_judged_whole() && !observes {
            // The client may add it to the call that was judged.
            return Effect::Doubtful;
        }
        if event.ends_arguments(data) && item.has_ended_arguments() && !observes {
            return Effect::Repeats;
        }
        if let Some(delta) = event.delta {
            item.add(delta.raw(data));
        } else if event.arguments != Arguments::Absent {
            item.end_arguments(&event.arguments.text(data));
        }
        Effect::Adds
    }

    /// Whether the client does not see a call that was decided on.
    fn hides_call(&self) -> bool {
        let decided = |item: &OutItem| item.call.as_ref().is_some_and(|call| call.decision.is_some());
        self.items.iter().any(|item| decided(item) && !item.is_shown())
    }

    /// Leaves out the pieces that no call claimed, once the reply has ended, where the client does not see a call that they
    /// may belong to. Without such a call they are pieces of a tool that the upstream runs itself, as OGX sends them. `false`
    /// if a client may know a call by another name than the one that was judged.
    pub(super) fn settles_pieces(&mut self, ended: bool) -> bool {
        if self.items.iter().any(|item| item.has_two_names() && item.is_shown()) && self.is_in_doubt() {
            return false;
        }
        let is_hidden = |item: &OutItem| item.call.is_some() && !item.is_shown();
        if !ended || self.judging.observes() || !self.items.iter().any(is_hidden) {
            return true;
        }
        let unclaimed = self.items.iter_mut().filter(|item| item.is_unclaimed && item.is_shown());
        if unclaimed.map(|item| item.veil = Veil::Empty).count() > 0 {
            self.note(Unjudged::Ambiguous);
        }
        true
    }
}
