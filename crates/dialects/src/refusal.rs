//! A classifier of upstream refusals: of tools, a choice of tool, tool calls in the history, a system message in a late
//! position; in `overflow`, of a request that is too long; in `broken`, of a broken history; in `streams`, of tools in
//! streams.
//!
//! Recognises, by its wording, a refusal that a changed request can avoid; statuses are no guide (400, 404, 405, 500
//! and 200 all occur). Deliberately ignores everything that dropping tools would only hide: a bad schema, a missing
//! result, too many tools, one kind of tool, tools beside a feature that excludes them. Does not decide whether to try
//! again: a [`Adaptation::Placement`] matters only where toolrein placed such a notice, a [`Adaptation::Flattened`] only
//! where the history holds tool calls.

use crate::error::UpstreamError;
use model::adaptation::Adaptation;

mod broken;
mod choice;
mod foreign;
mod form;
mod groups;
mod history;
mod lack;
mod length;
mod lengths;
mod open_call;
mod overflow;
mod pattern;
mod rules;
mod simple;
mod streams;
mod thinking;
mod words;

pub use broken::breaks;
pub use choice::{objects_to_choice, objects_to_member};
pub use form::may_be_about_the_form;
pub use history::{is_nondescript, suspects};
pub use lengths::{NamedLengths, named_lengths};
pub use open_call::{OpenCall, open_call};
pub use overflow::overflows;
use rules::{MISSED, RULES, Rule, STREAM_OPTIONS};
pub use streams::refuses_streamed_tools;
pub use thinking::refuses_signed_thinking;
use words::{COMMA, STOP, normalise};

/// How many messages of one error are judged.
const MESSAGES: usize = 8;

/// The adaptation that the error asks for; `None` for every other error.
///
/// `status` is the HTTP status that the error came with, 200 inside a stream. It is used only to exclude errors about
/// the caller's key, credit or rate, which no change of the request avoids.
#[must_use]
pub fn classify(status: u16, error: &UpstreamError) -> Option<Adaptation> {
    if is_about_the_caller(status) || no_form_helps(error) {
        return None;
    }
    let texts: Vec<String> = texts(error).collect();
    let english = rule_for(&texts);
    let known =
        english.map(|rule| rule.refusal).or_else(|| texts.iter().find_map(|text| foreign::classify(text)));
    known.or_else(|| texts.iter().any(|text| lack::lacks_tools(text)).then_some(Adaptation::Tools))
}

/// What else the error may refuse, where [`classify`] finds one refusal: a list of the roles that a model accepts may
/// be a refusal of a late system message or of a tool message.
#[must_use]
pub fn alternative(status: u16, error: &UpstreamError) -> Option<Adaptation> {
    if is_about_the_caller(status) || no_form_helps(error) {
        return None;
    }
    let texts: Vec<String> = texts(error).collect();
    rule_for(&texts).and_then(|rule| rule.or)
}

/// The first rule that applies to one of the texts.
fn rule_for(texts: &[String]) -> Option<&'static Rule> {
    let normal: Vec<String> = texts.iter().map(|text| normalise(text)).collect();
    let rows: Vec<Vec<&str>> = normal.iter().map(|text| text.split(' ').collect()).collect();
    RULES.iter().find(|rule| rows.iter().any(|words| rule.applies(words)))
}

/// Errors about the caller's key, credit or rate.
fn is_about_the_caller(status: u16) -> bool {
    matches!(status, 401 | 402 | 407 | 408 | 429)
}

/// Errors that no form of the request avoids: about what the user wrote, which they may quote, and about signed thinking.
fn no_form_helps(error: &UpstreamError) -> bool {
    is_about_content(error) || refuses_signed_thinking(error)
}

/// Errors about what the user wrote.
fn is_about_content(error: &UpstreamError) -> bool {
    // `invalid_prompt` is none of them: OpenRouter gives it to every request that it cannot read.
    const CODES: [&str; 7] = [
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "moderation",
        "moderation_blocked",
        "responsibleaipolicyviolation",
        "sensitive_content",
    ];
    const WORDS: [&str; 12] = [
        "flagged",
        "content management policy",
        "content policy",
        "content filter",
        "usage policy",
        "usage policies",
        "acceptable use",
        "safety system",
        "requires moderation",
        "invalid prompt",
        "inappropriate content",
        "prompt was blocked",
    ];
    let is_code = |code: &String| CODES.iter().any(|known| code.eq_ignore_ascii_case(known));
    let says = |text: &String| {
        let text = words::cut(text).to_lowercase();
        WORDS.iter().any(|known| text.contains(known))
    };
    error.code.as_ref().is_some_and(is_code) || error.messages.iter().take(MESSAGES).any(says)
}

/// Whether the error refuses a request, whose tools toolrein had dropped, for the tool calls left in its history.
///
/// Only for the answer to such a request: in the answer to a client's own request it means an error of the client.
#[must_use]
pub fn misses_tools(error: &UpstreamError) -> bool {
    error.messages.iter().take(MESSAGES).any(|message| {
        let normal = normalise(message);
        let words: Vec<&str> = normal.split(' ').collect();
        MISSED.iter().any(|(says, _)| pattern::find(says, &words).is_some())
    })
}

/// Whether the error refuses a request because toolrein added a request for the stream's usage.
///
/// Only for such requests: the name of the member is enough, since the client did not write it.
#[must_use]
pub fn refuses_stream_options(status: u16, error: &UpstreamError) -> bool {
    let mut texts = error.messages.iter().take(MESSAGES).chain(&error.param);
    let names = |text: &String| STREAM_OPTIONS.iter().any(|(name, _)| text.contains(name));
    !is_about_the_caller(status)
        && (texts.any(names) || objects_to_member(status, error, "stream options|include usage"))
}

/// The texts to classify: the messages, a `code` that is a phrase, and both again with the parameter that they blame
/// without naming it. Quotations from the request are left out.
fn texts(error: &UpstreamError) -> impl Iterator<Item = String> {
    let messages = error.messages.iter().take(MESSAGES).map(String::as_str);
    let code = error.code.as_deref().filter(|code| code.contains(|c: char| c.is_alphabetic()));
    let blamed =
        error.param.as_deref().filter(|param| matches!(*param, "tools" | "functions" | "tool_choice"));
    let with_param = blamed.into_iter().flat_map(move |param| {
        let first = error.messages.first();
        let first = first.map(|message| format!("{param}: {}", words::without_quotes(message)));
        first.into_iter().chain(code.map(|code| format!("{code}: {param}")))
    });
    messages.chain(code).map(words::without_quotes).chain(with_param)
}

impl Rule {
    fn applies(&self, words: &[&str]) -> bool {
        let mut from = 0;
        while let Some((start, end)) = pattern::find(self.says, &words[from..]) {
            let (start, end) = (from + start, from + end);
            if !self.is_vetoed(words, start, end) {
                return true;
            }
            from = start + 1;
        }
        false
    }

    fn is_vetoed(&self, words: &[&str], start: usize, end: usize) -> bool {
        let is_break = |word: &&&str| **word == STOP || **word == COMMA;
        let before = words[..start].iter().rev().take(3).take_while(|word| !is_break(word)).count();
        let after = words[end..].iter().take(6).take_while(|word| !is_break(word)).count();
        let sentence = sentence_around(words, start, end);
        let says = |patterns: &[&str], words: &[&str]| {
            patterns.iter().any(|says| pattern::find(says, words).is_some())
        };
        says(self.not_before, &words[start - before..start])
            || says(self.not_after, &words[start..end + after])
            || says(self.not_beside, sentence)
    }
}

fn sentence_around<'w, 'a>(words: &'w [&'a str], start: usize, end: usize) -> &'w [&'a str] {
    let from = words[..start].iter().rposition(|word| *word == STOP).map_or(0, |at| at + 1);
    let to = words[end..].iter().position(|word| *word == STOP).map_or(words.len(), |at| end + at);
    &words[from..to]
}

#[cfg(test)]
mod tests;
