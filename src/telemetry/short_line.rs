//! The line of a request for people at a terminal: what came, how it ended, what was stopped and why. Shorter than the
//! line of fields, which has everything.

use super::bounded;
use super::line::MAX_VALUE_CHARS;
use model::record::{JudgedCall, RequestRecord, Verdict};

/// The most calls and acts that a line names.
const MOST_NAMED: usize = 6;

/// What the model's text about a blocked call begins with.
const NOT_RUN: &str = "The call was not run: ";

/// Reasons whose sentence may hold arguments or a person's words, which no line may: what is written instead.
const PRIVATE: [(&str, &str); 3] = [
    ("STALE_REFERENCE", "an argument is not the value that it must be"),
    ("CONFIRMATION_REQUIRED", "it needs a person's approval"),
    ("VALIDATION", "its arguments do not fit"),
];

/// The line, without its end.
pub(super) fn short_line(record: &RequestRecord) -> String {
    let mut parts = vec![bounded::name(&record.method).into_owned()];
    let is_governed = record.route.is_governed();
    parts.push(if is_governed { record.route.as_str().to_owned() } else { text(&record.path) });
    parts.extend(record.model.as_deref().map(text));
    parts.push(record.status.to_string());
    parts.extend(record.error.map(str::to_owned));
    parts.push(format!("{} ms", record.times.total.as_millis()));
    let line = parts.join(" ");
    let mut happened = outcome(record);
    let more = happened.len().saturating_sub(MOST_NAMED);
    happened.truncate(MOST_NAMED);
    happened.extend((more > 0).then(|| format!("and {more} more")));
    if happened.is_empty() { line } else { format!("{line}  {}", happened.join("; ")) }
}

/// What happened to the request and to the calls of its reply, each once.
fn outcome(record: &RequestRecord) -> Vec<String> {
    let mut happened: Vec<String> = Vec::new();
    let ungoverned = record.ungoverned.or(record.partly_ungoverned);
    happened.extend(ungoverned.map(|why| format!("NOT GOVERNED: {why}")));
    happened.extend(record.client_gone.then(|| "the client left".to_owned()));
    happened.extend(record.error_detail.as_deref().map(text));
    let acts = record.actions.iter().filter(|act| !act.action.starts_with("blocked"));
    happened.extend(acts.map(|act| format!("{} {}", act.policy, text(&act.action))));
    happened.extend(record.judged.iter().map(call));
    happened.extend(record.unjudged.iter().map(|why| format!("PASSED UNJUDGED: {why}")));
    let mut once: Vec<(String, usize)> = Vec::new();
    for text in happened {
        match once.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => once.push((text, 1)),
        }
    }
    once.into_iter()
        .map(|(text, count)| if count > 1 { format!("{text} ({count} times)") } else { text })
        .collect()
}

/// A call and its verdict.
fn call(call: &JudgedCall) -> String {
    let tool = bounded::name(&call.tool);
    let Some(first) = call.decisions.first() else { return tool.into_owned() };
    let verdict = match call.verdict {
        Verdict::Block => "BLOCKED",
        Verdict::Modify => "CHANGED",
        Verdict::Answer => "ANSWERED",
        Verdict::Ask => "WAITS FOR APPROVAL",
        Verdict::Allow => "would be stopped",
    };
    let private = PRIVATE.iter().find(|(reason, _)| *reason == first.reason).map(|(_, text)| *text);
    let reason = private.or_else(|| call.message().map(first_sentence));
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", text(reason)));
    format!("{tool} {verdict} by {}{reason}", first.policy)
}

/// The first sentence of what the model reads about a blocked call.
pub fn first_sentence(message: &str) -> &str {
    let message = message.strip_prefix(NOT_RUN).unwrap_or(message);
    message.split_once(". ").map_or(message, |(first, _)| first).trim_end_matches('.')
}

fn text(raw: &str) -> String {
    bounded::text(raw, MAX_VALUE_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::cases::rich;
    use super::*;
    use model::record::{PolicyDecision, Route};
    use std::time::Duration;

    fn blocked(policy: &'static str, reason: &'static str, message: &str) -> RequestRecord {
        let message = Some(message.to_owned());
        let decision =
            PolicyDecision { policy, reason, is_objection: true, message, ..PolicyDecision::default() };
        let call = JudgedCall {
            tool: "web_search".to_owned(),
            id: String::new(),
            verdict: Verdict::Block,
            unjudged: false,
            decisions: vec![decision],
            is_spoken: true,
            new_arguments: None,
        };
        let mut record = RequestRecord::new(Route::Chat);
        (record.method, record.model, record.status) = ("POST".to_owned(), Some("gpt-4o".to_owned()), 200);
        (record.times.total, record.judged) = (Duration::from_millis(167), vec![call]);
        record
    }

    #[test]
    fn a_blocked_call_is_a_sentence_with_its_reason() {
        let message = "The call was not run: the same call gave the same result 4 times. Use what you have.";
        let expected = "POST chat gpt-4o 200 167 ms  web_search BLOCKED by loops: the same call gave the same result 4 times";
        assert_eq!(short_line(&blocked("loops", "LOOP_DETECTED", message)), expected);
    }

    #[test]
    fn no_argument_and_no_persons_word_is_in_the_line() {
        for (policy, reason) in
            [("fresh", "STALE_REFERENCE"), ("confirm", "CONFIRMATION_REQUIRED"), ("arguments", "VALIDATION")]
        {
            let line =
                short_line(&blocked(policy, reason, "The call was not run: card is s3cret. Use another."));
            assert!(!line.contains("s3cret") && line.contains(" BLOCKED by "), "{line}");
        }
    }

    #[test]
    fn a_rich_record_is_one_line_and_hostile_texts_stay_in_it() {
        let line = short_line(&rich());
        let expected = "POST chat gpt-4o 200 1500 ms  truncate shortened; budget notice; search (2 times); \
                        weather BLOCKED by rate_limit; weather; PASSED UNJUDGED: event_too_long";
        assert_eq!(line, expected);
        let mut hostile = blocked("loops", "LOOP_DETECTED", "a\nb\u{1b}[2J\u{202e}. c");
        (hostile.route, hostile.path) = (Route::Relay, "/v1/\u{1b}x\n".to_owned());
        let line = short_line(&hostile);
        assert!(line.chars().all(|letter| !letter.is_control() && letter != '\u{202e}'), "{line:?}");
    }
}
