//! Missing reasoning: what a model thought and the client did not send back. DeepSeek and Moonshot refuse a history with calls
//! whose messages lack `reasoning_content`; most clients drop it, since the API of OpenAI has no such member.

use model::message::{Message, Role};
use model::request::Request;
use wire::body::{Kind, Scanner, Span};
use wire::splice::Splices;

const MEMBER: &[u8] = b"reasoning_content";

/// In place of what the model thought, which is not known here. DeepSeek V4 refuses an empty text and takes a blank, as
/// agents report that add the same (NousResearch/hermes-agent#17341); Moonshot takes it too (bestruirui/octopus#251).
const BLANK: &str = "\" \"";

/// The member with that text, after others.
const ADDED: &str = ",\"reasoning_content\":\" \"";

/// Whether a message of the model's lacks its reasoning.
pub fn is_missing(request: &Request, body: &[u8]) -> bool {
    places(request, body).next().is_some()
}

/// Adds a blank to each message of the model's that lacks its reasoning, with or without calls: once a conversation has
/// calls, DeepSeek wants it of all. Depends on each message alone, so that it stays the same in every later request.
pub fn add_blanks(request: &Request, body: &[u8], splices: &mut Splices) {
    for place in places(request, body) {
        match place {
            Place::Value(span) => splices.replace(span, BLANK),
            Place::End(at) => splices.insert(at, ADDED),
        }
    }
}

/// Where a message lacks its reasoning.
enum Place {
    /// The member is there, with this value, and says nothing.
    Value(Span),
    /// The member is to be written before the end of the message: the position of its closing brace.
    End(u32),
}

fn places(request: &Request, body: &[u8]) -> impl Iterator<Item = Place> {
    let messages = request.messages.iter().filter(|message| message.role == Role::Assistant);
    messages.filter_map(|message| place_in(message, body))
}

/// Where `message` lacks its reasoning; `None` where it has it or cannot be read.
fn place_in(message: &Message, body: &[u8]) -> Option<Place> {
    let mut scanner = Scanner::within(body, message.span);
    scanner.object().ok()?;
    while let Some(key) = scanner.member().ok()? {
        let kind = scanner.peek().ok()?;
        let span = scanner.skip_kind(kind).ok()?;
        if key.raw(body) == MEMBER {
            let says_nothing = kind == Kind::Null || span.of(body) == b"\"\"";
            return says_nothing.then_some(Place::Value(span));
        }
    }
    Some(Place::End(message.span.end - 1))
}
