//! A person's yes: the question that is put to them in the assistant's voice, what of their next message is an
//! answer to it, and the reply that hands the approved calls out; or the calls that wait for it. What was asked is kept
//! by the ledger, and which calls need a yes is the policies' affair.

mod handed;
pub mod held;
mod shown;

pub(in crate::rewrite) use handed::written;
pub use handed::{Handed, events, reply};

use super::restore::{Place, anchor_of, text_of};
use crate::policy::about::Confirming;
use crate::policy::plan::Reason;
use crate::transcript::Transcript;
use crate::transcript::identity::Hash;
use crate::wire::assemble::Assembled;
use crate::wire::message::{Content, Role};
use shown::{fenced, is_plain_name, pretty};
use std::time::Duration;

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// As they read it.
    pub text: String,
    /// How many calls it is about: the first so many of the reply.
    pub calls: usize,
    token: String,
    words: Vec<String>,
    /// How long it stands, in ms.
    expires_ms: u64,
}

/// Why nobody can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaskable {
    /// Nobody is there to be asked.
    Nobody,
    /// The arguments are longer than a person is shown, in characters.
    TooLong { most: usize },
    /// The arguments are not JSON, or the tool's name is none.
    Unreadable,
}

/// Calls that wait for a person's yes. Found under the name of the message that asked, and so bound to principal,
/// conversation and that very text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    token: String,
    words: Vec<String>,
    /// As they were shown.
    pub calls: Vec<Assembled>,
    /// When the question lapses, in ms since the epoch.
    pub expires_ms: u64,
}

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

/// What the model reads as the result of a call that needs a yes.
pub fn put_off(reason: &Reason, question: Option<&Result<Question, Unaskable>>) -> Reason {
    let message = match question {
        Some(Ok(_)) => {
            "The call was not run. The user is being asked to approve it; if they do, the same call follows below and \
             is run. If they do not, do not make it again unless they ask for it."
                .to_owned()
        }
        Some(Err(Unaskable::TooLong { most })) => format!(
            "The call was not run: it needs the user's yes, and its arguments are longer than the {most} characters \
             that a user is shown. Make it smaller, or do it in several calls."
        ),
        Some(Err(Unaskable::Unreadable)) => {
            "The call was not run: it needs the user's yes, and its arguments are not JSON that could be shown. Call \
             it again with valid arguments."
                .to_owned()
        }
        Some(Err(Unaskable::Nobody)) => return reason.clone(),
        None => {
            "The call was not run: it needs the user's yes, and the user is asked only where such calls stand alone \
             in a reply. Make it again alone."
                .to_owned()
        }
    };
    let retryable = !matches!(question, Some(Ok(_)));
    Reason { message, retryable, ..reason.clone() }
}

impl Confirmation {
    /// What waits once `question` was put about `calls` at `now_ms`.
    pub fn new(question: &Question, calls: &[Assembled], now_ms: u64) -> Self {
        Self {
            token: question.token.clone(),
            words: question.words.clone(),
            calls: calls.to_vec(),
            expires_ms: now_ms.saturating_add(question.expires_ms),
        }
    }

    /// The same from what was kept of it elsewhere: what approves it, its calls, and when it lapses.
    pub fn kept((token, words): (String, Vec<String>), calls: Vec<Assembled>, expires_ms: u64) -> Self {
        Self { token, words, calls, expires_ms }
    }

    /// What approves it: the token, and words.
    pub fn approvals(&self) -> (&str, &[String]) {
        (&self.token, &self.words)
    }

    /// Whether `text` is a yes: the token or one of the words, and nothing else.
    pub fn is_approved_by(&self, text: &str) -> bool {
        let said = text.trim().to_lowercase();
        said == self.token.to_lowercase() || self.words.contains(&said)
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        self.token.len() + self.calls.iter().map(Assembled::size).sum::<usize>()
    }
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
