//! Human approval of tool calls: the question, asked in the assistant's voice, and the user's answer in the next
//! message; or, in `held`, calls that wait for a decision. The state store keeps what was asked; policies decide which
//! calls need approval.

pub mod held;
mod open_markup;
mod shown;

use crate::restore::{HiddenPosition, text_key_of, text_of};
use model::Transcript;
use model::assembled::Assembled;
use model::identity::Hash;
use model::message::{Content, Role};
use model::plan::Extends;
use model::plan::approval::{Question, Unaskable};
use policies::about::Confirming;
use shown::{fenced, is_plain_name, pretty};

pub use open_markup::leaves_markup_open;
pub use shown::plain_words;

/// What the user said right after an assistant's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The key of the text that it answers.
    pub question: Hash,
    pub text: String,
}

/// The question about `calls`. `by_token`: only the token approves, since the question may be hidden from the person.
///
/// # Errors
/// Why no person can be asked about them.
pub fn ask(
    calls: &[Assembled],
    token: &str,
    confirming: &Confirming,
    by_token: bool,
) -> Result<Question, Unaskable> {
    let mut shown = String::new();
    let mut left = confirming.max_chars;
    for call in calls {
        let name = call.name();
        if !is_plain_name(&name) {
            return Err(Unaskable::Unreadable);
        }
        let arguments = pretty(call).ok_or(Unaskable::Unreadable)?;
        let chars = arguments.chars().count();
        left = left.checked_sub(chars).ok_or(Unaskable::TooLong { most: confirming.max_chars })?;
        shown.push_str(&format!("\n`{name}`\n{}\n", fenced(&arguments)));
    }
    let words = if by_token { Vec::new() } else { confirming.words.clone() };
    Ok(Question {
        text: confirming.question((&shown, calls.len()), token, &words),
        calls: calls.len(),
        put_off: confirming.asked(),
        token: token.to_owned(),
        words,
        extends: Extends::default(),
        expires_ms: confirming.expires_ms,
    })
}

/// The user's last message, if it is the last of the conversation and right after the assistant's text, whose position
/// is the last of `positions`. Text alone: a message with an image is more than an approval.
pub fn answer(transcript: &Transcript, positions: &[HiddenPosition]) -> Option<Answer> {
    let (last, position) = (transcript.views().next_back()?, positions.last()?);
    let is_text = match &last.message.content {
        Content::Text(_) => true,
        Content::Parts { parts, .. } => parts.iter().all(|part| part.text.is_some()),
        _ => false,
    };
    let follows = position.message + 1 == last.index && transcript.calls.made_by(position.message).is_empty();
    (last.message.role == Role::User && is_text && follows)
        .then(|| Answer { question: text_key_of(transcript, *position), text: text_of(last) })
}

/// Characters that are easy to distinguish in any common typeface: no 0 O, 1 I L, 2 Z, 5 S, 8 B.
const ALPHABET: &[u8; 25] = b"34679ACDEFGHJKMNPQRTUVWXY";
/// Characters of a token: 244 million of them, for one guess each.
const TOKEN_CHARS: usize = 6;

/// A token made of `random`.
pub fn token(random: Hash) -> String {
    let mut left = random.0;
    let mut next = || {
        let at = (left % ALPHABET.len() as u128) as usize;
        left /= ALPHABET.len() as u128;
        char::from(ALPHABET[at])
    };
    (0..TOKEN_CHARS).map(|_| next()).collect()
}

#[cfg(test)]
mod tests;
