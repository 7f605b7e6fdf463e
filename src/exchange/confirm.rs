//! A person's yes: the question that is put to them in the assistant's voice, what of their next message is an
//! answer to it, and the reply that hands the approved calls out; or the calls that wait for it. What was asked is kept
//! by the ledger, and which calls need a yes is the policies' affair.

pub mod held;
mod shown;

use crate::conversation::Transcript;
use crate::conversation::assembled::Assembled;
use crate::conversation::identity::Hash;
use crate::conversation::message::{Content, Role};
use crate::exchange::restore::{Place, anchor_of, text_of};
use crate::plan::approval::{Question, Unaskable};
use crate::policy::about::Confirming;
use shown::{fenced, is_plain_name, pretty};
use std::time::Duration;

/// What a person said right behind an assistant's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name of the text that it answers.
    pub anchor: Hash,
    pub text: String,
}

/// The question about `calls`.
///
/// # Errors
/// Why nobody can be asked about them.
pub fn ask(calls: &[Assembled], token: &str, confirming: &Confirming) -> Result<Question, Unaskable> {
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
    let what = if calls.len() == 1 { "this tool call" } else { "these tool calls" };
    let words: Vec<String> = confirming.words.iter().map(|word| format!(" or `{word}`")).collect();
    let lasts = humantime::format_duration(Duration::from_millis(confirming.expires_ms));
    let text = format!(
        "I need your approval before I make {what}:\n{shown}\nTo approve, reply with `{token}`{} and nothing else, \
         within {lasts}. Any other reply declines.",
        words.concat()
    );
    Ok(Question {
        text,
        calls: calls.len(),
        token: token.to_owned(),
        words: confirming.words.clone(),
        expires_ms: confirming.expires_ms,
    })
}

/// What the user says at the end of the conversation right behind the assistant's text, whose place is the last of
/// `places`. Text alone: who sends an image with it means more than yes.
pub fn answer(transcript: &Transcript<'_>, places: &[Place]) -> Option<Answer> {
    let messages = &transcript.request.messages;
    let (last, place) = (messages.last()?, places.last()?);
    let is_text = match &last.content {
        Content::Text(_) => true,
        Content::Parts { parts, .. } => parts.iter().all(|part| part.text.is_some()),
        _ => false,
    };
    let follows = place.message + 2 == messages.len() && transcript.calls.made_by(place.message).is_empty();
    (last.role == Role::User && is_text && follows)
        .then(|| Answer { anchor: anchor_of(transcript, *place), text: text_of(last, transcript.body) })
}

/// Characters that are not taken for one another, in any common type: no 0 O, 1 I L, 2 Z, 5 S, 8 B.
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
