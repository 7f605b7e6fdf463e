//! The calls of the present replies: which of a choice's calls a line is about, and what it adds to that call.

use super::line::Line;
use dialects::codec::CallPiece;
use dialects::reply_choice::{ReplyCall, ReplyChoice};
use model::assembled::Assembled;

/// See the file's head.
pub struct KnownCalls {
    /// Names come in pieces; else a line has a whole one.
    has_name_pieces: bool,
    calls: Vec<KnownCall>,
}

/// The call with this number, the `at`th of its choice.
pub struct KnownCall {
    choice: u32,
    number: u64,
    pub at: usize,
    /// toolrein has written it.
    pub is_written: bool,
}

impl KnownCalls {
    pub fn new(has_name_pieces: bool) -> Self {
        Self { has_name_pieces, calls: Vec::new() }
    }

    /// The next reply goes on with this choice, or with none.
    pub fn begin_reply(&mut self, continues: Option<u32>) {
        self.calls.retain(|call| continues.is_some_and(|index| index != call.choice));
    }

    /// The call of this number in the choice.
    pub fn find(&mut self, choice: u32, number: u64) -> Option<&mut KnownCall> {
        self.calls.iter_mut().find(|known| known.choice == choice && known.number == number)
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        self.calls.len() * size_of::<KnownCall>()
    }

    /// Adds what a line says of the call of this number.
    pub fn add(&mut self, number: u64, line: &Line<'_>, choice: &mut ReplyChoice) -> CallPiece {
        let known = self.find(choice.index, number).map(|known| known.at);
        let (at, begins) = (known.unwrap_or(choice.calls().len()), known.is_none());
        if begins {
            let assembled = Assembled { id: number.to_string().into(), ..Assembled::default() };
            choice.add(ReplyCall { assembled, is_open: Some(true), ..ReplyCall::default() });
            self.calls.push(KnownCall { choice: choice.index, number, at, is_written: false });
        }
        let is_late = choice.calls()[at].is_complete;
        let arguments = line.arguments.unwrap_or_default();
        let (names, carries) = choice.change_call(at, |call| {
            let carries = line.arguments.is_some() && call.arguments.is_empty();
            call.arguments.extend_from_slice(arguments.as_bytes());
            call.wholeness.push(arguments.as_bytes());
            (self.add_name(call, line.name.unwrap_or_default().as_bytes()), carries)
        });
        let argues = !arguments.trim_ascii().is_empty();
        let known = choice.call_mut(at);
        known.has_whole_name |= names && !self.has_name_pieces;
        // Some clients act at the end of a call, and do not see what comes after it.
        known.differs |= is_late && known.decision.is_none() && (names || argues);
        known.is_complete |= line.end;
        known.is_open = Some(!known.is_complete);
        let call = at as u16;
        CallPiece { call, begins, carries, names, respells: names, argues, is_late, ..CallPiece::default() }
    }

    /// Adds a name or a piece of one; true if clients may know the call by another name then.
    fn add_name(&self, call: &mut Assembled, name: &[u8]) -> bool {
        // Where names come whole, one that is repeated says nothing new.
        if name.is_empty() || (!self.has_name_pieces && call.name == name) {
            return false;
        }
        if !call.name.is_empty() {
            let first = call.pieces.is_empty().then(|| call.name.clone());
            call.pieces.extend(first.into_iter().chain([name.to_vec()]));
        }
        call.name.extend_from_slice(name);
        true
    }
}
