//! Which call an error names as the one whose result the upstream misses: "No tool output found for function call call_1."

use super::super::error::UpstreamError;
use super::simple::SimpleText;
use super::words::cut;
use super::{MESSAGES, breaks, suspects};
use model::adaptation::Adaptation;

/// Longer ids are not taken from an error. Those of OpenAI have 29 characters.
const MOST: usize = 128;

/// A call that the upstream keeps, and whose result it misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    pub id: String,
    /// Of a custom tool, which gets another kind of result.
    pub is_custom: bool,
}

/// The call that the error names as open; `None` where it means something else or names none.
pub fn open_call(status: u16, error: &UpstreamError) -> Option<OpenCall> {
    let is_pair = breaks(status, error) == Some(Adaptation::Pairs)
        || suspects(status, error).contains(Adaptation::Pairs);
    let mut texts = error.messages.iter().take(MESSAGES).filter(|_| is_pair);
    texts.find_map(|text| {
        let simple = SimpleText::new(text);
        let id = Some(id_in(cut(text))?).filter(|_| misses_result(&simple))?;
        Some(OpenCall { id: id.to_owned(), is_custom: simple.says("custom tool call|custom call") })
    })
}

/// Whether a result is what is missing, and not a call: it is named within a few words of the denial.
fn misses_result(simple: &SimpleText) -> bool {
    const DENIALS: [&str; 7] = ["no", "missing", "without", "lacks", "lacking", "needs", "requires"];
    const RESULTS: [&str; 8] =
        ["output", "outputs", "result", "results", "response", "responses", "reply", "answer"];
    let words: Vec<&str> = simple.words().take(32).collect();
    let is_denied = |at: usize| words[at.saturating_sub(3)..at].iter().any(|word| DENIALS.contains(word));
    let is_missed = |at: usize| words[at + 1..].iter().take(8).any(|word| ["missing", "not"].contains(word));
    (0..words.len()).any(|at| RESULTS.contains(&words[at]) && (is_denied(at) || is_missed(at)))
}

/// The id of a call: the word after `call` or `id` that no ordinary word is.
fn id_in(text: &str) -> Option<&str> {
    let is_around = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let mut words = text.split_whitespace().map(|word| word.trim_matches(is_around));
    let mut before = words.next()?;
    words.find(|word| {
        let owner = std::mem::replace(&mut before, word).to_ascii_lowercase();
        let is_owner = ["call", "id", "call_id", "tool_call_id"].contains(&owner.as_str());
        let is_id = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        let is_word = word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_member = ["call_id", "tool_call_id"].contains(word);
        is_owner && !is_word && !is_member && word.len() <= MOST && word.chars().all(is_id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_whose_result_is_missing_is_found_in_the_error() {
        for (message, id, is_custom) in [
            ("No tool output found for function call call_0a1b2c.", "call_0a1b2c", false),
            ("No tool output found for tool call call-a.", "call-a", false),
            ("No tool output found for custom tool call 'call_x1'.", "call_x1", true),
            ("Missing output for function call `fc_12`", "fc_12", false),
            ("The result of tool call call_9 is missing", "call_9", false),
            ("function call with call_id \"t:0\" has no response", "t:0", false),
        ] {
            let error = UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() };
            let expected = OpenCall { id: id.to_owned(), is_custom };
            assert_eq!(open_call(400, &error), Some(expected), "{message}");
            assert_eq!(open_call(429, &error), None);
        }
    }

    #[test]
    fn errors_that_name_no_call_or_miss_the_call_itself_name_none() {
        let long = format!("No tool output found for function call call_{}", "a".repeat(MOST));
        for message in [
            "No tool call found for function call output with call_id call_0a1b2c.",
            "No tool output found for function call.",
            "No tool output found for function call something",
            "An assistant message with 'tool_calls' must be followed by tool messages",
            "Tool choice 'f_1' not found in 'tools'",
            "The output of call call_1 is too long",
            &long,
        ] {
            let error = UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() };
            assert_eq!(open_call(400, &error), None, "{message}");
        }
    }
}
