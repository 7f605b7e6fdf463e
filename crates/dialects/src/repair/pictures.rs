//! Results that hold more than text, such as a screenshot, for upstreams that take only text in them: the text stays in
//! the result, and the pictures go into a user's message after the group of results, or a note takes their place.

use model::message::{Content, Message, Part, Role};
use model::request::Request;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// The note in a result whose picture follows.
const FOLLOWS: &str = "[an image, which is in the user's message after the results]";
/// The note in a result whose picture is left out, since the model takes none.
const LEFT_OUT: &str = "[an image was here, which this model cannot be shown]";

/// How a dialect writes a user's message of content parts.
pub struct PartsForm {
    /// The message up to the first part.
    pub head: &'static str,
    /// The type of a part that is text.
    pub text_type: &'static str,
}

/// Whether a result of the history holds more than text.
pub(super) fn has_pictures(request: &Request) -> bool {
    request.messages.iter().any(|message| pictures(message).next().is_some())
}

/// The parts of a result that are no text.
fn pictures(message: &Message) -> impl Iterator<Item = &Part> {
    let parts = match &message.content {
        Content::Parts { parts, .. } if message.role == Role::Tool => parts.as_slice(),
        _ => &[],
    };
    parts.iter().filter(|part| part.text.is_none())
}

/// Takes the pictures out of the results; unless they are `left_out`, a user's message after each group has them.
pub fn move_pictures(
    request: &Request,
    body: &[u8],
    form: &PartsForm,
    left_out: bool,
    splices: &mut Splices,
) {
    let messages = &request.messages;
    let mut at = 0;
    while at < messages.len() {
        let count = messages[at..].iter().take_while(|message| message.role == Role::Tool).count();
        let group = &messages[at..at + count];
        at += count.max(1);
        let mut parts: Vec<String> = Vec::new();
        for result in group.iter().filter(|result| pictures(result).next().is_some()) {
            if let Content::Parts { span, .. } = &result.content {
                splices.replace(*span, quote(&text_of(result, body, left_out)));
            }
            parts.push(heading(result, body, form));
            parts.extend(
                pictures(result).map(|part| String::from_utf8_lossy(part.span.of(body)).into_owned()),
            );
        }
        if let Some(last) = group.last().filter(|_| !parts.is_empty() && !left_out) {
            splices.insert(last.span.end, format!(",{}{}]}}", form.head, parts.join(",")));
        }
    }
}

/// The texts of a result, with a note where a picture was.
fn text_of(result: &Message, body: &[u8], left_out: bool) -> String {
    let Content::Parts { parts, .. } = &result.content else { return String::new() };
    let note = if left_out { LEFT_OUT } else { FOLLOWS };
    let text =
        |part: &Part| part.text.map_or_else(|| note.to_owned(), |text| decode(text, body).into_owned());
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// The text part that names the result before its pictures.
fn heading(result: &Message, body: &[u8], form: &PartsForm) -> String {
    let id = result.tool_call_id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
    let text = quote(&format!("[image from the result of the call {id}]"));
    format!(r#"{{"type":"{}","text":{text}}}"#, form.text_type)
}
