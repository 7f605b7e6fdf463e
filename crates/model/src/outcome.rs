//! The outcome of a tool call, from its result: empty, a failure, or something useful; and whether two results of one
//! request are equal. A tool message has no status, so the outcome is read from its text: emptiness from short texts
//! only, failures from both ends of long ones. Whether a job runs is kept in the memo, since lines are read word by word
//! for that; everything else is read again with each request, which is cheaper than looking it up. Decides nothing.

mod answer;
mod failure;
mod likeness;
mod running;
mod state_word;
mod unknown;

pub use self::answer::{Answer, Following};
pub use self::likeness::Likeness;
pub(crate) use self::likeness::Likenesses;

use self::failure::{END_BYTES, LONGEST_JSON, json_reports_failure, object_reports_failure, reports_failure};
use super::View;
use crate::identity::Domain;

use crate::message::Content;
use serde_json::{Map, Value};
use std::borrow::Cow;
use wire::body::Str;
use wire::json::decode;

/// The longest text that can be empty, in bytes as written. The frame of a search without hits takes some 200 bytes;
/// more is content.
const LONGEST_EMPTY: usize = 512;
/// The longest text that says nothing, white space and escapes included.
const LONGEST_SILENT: usize = 64;
/// Members beside an empty list of results that only repeat the query, or say that nothing was found.
const ECHOES: [&str; 8] = ["query", "q", "status", "message", "msg", "type", "next", "cursor"];

/// Further texts and keys that count as empty.
pub trait Emptiness {
    /// Whether a trimmed text says in words that there is nothing.
    fn says_nothing(&self, text: &str) -> bool;

    /// Whether the member `key` of an object holds its results: if that is empty, so is the object.
    fn holds_results(&self, key: &str) -> bool;
}

/// Nothing but what is empty by its form.
pub struct NothingElse;

impl Emptiness for NothingElse {
    fn says_nothing(&self, _text: &str) -> bool {
        false
    }

    fn holds_results(&self, key: &str) -> bool {
        matches!(key, "results" | "items" | "data" | "hits" | "matches" | "documents" | "rows")
    }
}

/// Whether the result in `view` is empty: no content, white space, `null`, `""`, `[]`, `{}`, an object around empty
/// results, or what `emptiness` adds.
pub fn is_empty(view: &View<'_>, emptiness: &dyn Emptiness) -> bool {
    let content = &view.message.content;
    match content {
        Content::Absent | Content::Null(_) => true,
        Content::Text(_) => content.text_bytes() <= LONGEST_EMPTY && texts_are_empty(view, emptiness),
        Content::Parts { parts, .. } => {
            let text_alone = parts.iter().all(|part| part.text.is_some());
            text_alone && content.text_bytes() <= LONGEST_EMPTY && texts_are_empty(view, emptiness)
        }
        Content::Other(span) => {
            let text = std::str::from_utf8(span.of(view.body)).unwrap_or("?");
            span.len() <= LONGEST_EMPTY && text_is_empty(text, emptiness)
        }
    }
}

/// Whether the result in `view` says nothing at all, as that of an action may: no text, or a bare `null`, `None` or `{}`.
pub fn is_silent(view: &View<'_>) -> bool {
    let is_bare =
        |text: &str| ["", "null", "none", "{}", "\"\""].iter().any(|bare| text.eq_ignore_ascii_case(bare));
    match &view.message.content {
        Content::Absent | Content::Null(_) => true,
        Content::Parts { parts, .. } if parts.iter().any(|part| part.text.is_none()) => false,
        Content::Text(_) | Content::Parts { .. } => {
            view.message.content.text_bytes() <= LONGEST_SILENT
                && view.texts().all(|text| is_bare(text.trim()))
        }
        Content::Other(span) => span.of(view.body).trim_ascii() == b"{}",
    }
}

/// Whether the result in `view` reports a failure: as text that begins or ends like one, or as JSON that says so even
/// though the tool itself answered.
pub fn has_failed(view: &View<'_>) -> bool {
    let Some(first) = view.message.content.texts().next() else { return false };
    let raw = first.raw(view.body);
    if raw.len() > LONGEST_JSON {
        return reports_failure(&head_of(raw), "");
    }
    let is_object = raw.trim_ascii_start().starts_with(b"{");
    if raw.len() > END_BYTES && !is_object {
        return reports_failure(&head_of(raw), &tail_of(raw));
    }
    let text = decode(first, view.body);
    reports_failure(&text, &text) || json_reports_failure(&text)
}

/// Whether the result in `view` says that what it reports on is not finished: a job that runs, waits or is to be asked
/// about again later.
pub fn says_running(view: &View<'_>) -> bool {
    let Some(first) = view.message.content.texts().next() else { return false };
    let read = || text_says_running(first, view.body);
    let key = view.identity().key.hash(Domain::Running, &[&view.text_digest(first).0.to_le_bytes()]);
    *view.memo().derive(key, read)
}

/// As [`says_running`], for the result at `position` of the conversation of `view`.
pub fn result_says_running(view: &View<'_>, position: usize) -> bool {
    says_running(&view.item_at(position))
}

/// As [`Answer::likeness`], of results each with its position in the conversation of `view`. What an earlier request has
/// found out is not found out again.
pub fn likeness_of_results(
    view: &View<'_>,
    (position, answer): (usize, &Answer),
    (earlier, other): (usize, &Answer),
) -> Likeness {
    let compare = || answer.likeness(other, view.sources());
    view.item_at(position).likeness_to(&view.item_at(earlier), compare)
}

fn text_says_running(text: Str, body: &[u8]) -> bool {
    let raw = text.raw(body);
    if raw.len() > running::LONGEST_JSON {
        let (head, tail) = (head_of(raw), tail_of(raw));
        return !reports_failure(&head, "") && (running::says_text(&head) || running::says_text(&tail));
    }
    let text = decode(text, body);
    match running::in_json(&text) {
        Some(is_running) => is_running,
        None => !reports_failure(&text, &text) && running::says_text(&text),
    }
}

/// Whether the result in `view` leaves open whether the tool has acted: a failure that says so, such as a time limit or
/// a lost connection, or a short text that says nothing else.
pub fn is_unknown(view: &View<'_>) -> bool {
    let Some(first) = view.message.content.texts().next() else { return false };
    let raw = first.raw(view.body);
    let is_long = raw.len() > 2 * unknown::SEARCHED;
    if !has_failed(view) {
        return !is_long && unknown::is_bare(&decode(first, view.body));
    }
    if is_long {
        let read = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let (head, tail) = (read(&raw[..unknown::SEARCHED]), read(&raw[raw.len() - unknown::SEARCHED..]));
        return unknown::leaves_open(&[&head, &tail]);
    }
    let text = decode(first, view.body);
    let object = || serde_json::from_str::<Map<String, Value>>(&text);
    unknown::leaves_open(&[&text])
        || (text.trim_start().starts_with('{')
            && object().is_ok_and(|object| unknown::status_leaves_open(&object)))
}

/// The beginning of a long text, escapes as written but for line ends and quotes.
fn head_of(raw: &[u8]) -> String {
    read_part(&raw[..END_BYTES])
}

/// The end of a long text, likewise.
fn tail_of(raw: &[u8]) -> String {
    read_part(&raw[raw.len() - END_BYTES..])
}

fn read_part(part: &[u8]) -> String {
    let text = str::from_utf8(part).map_or_else(|_| String::from_utf8_lossy(part), Cow::Borrowed);
    let (mut out, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some(plain) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (meant, length) = match rest.as_bytes().get(plain + 1) {
            Some(b'n') => ('\n', 2),
            Some(b'"') => ('"', 2),
            _ => ('\\', 1),
        };
        out.push_str(&rest[..plain]);
        out.push(meant);
        rest = &rest[plain + length..];
    }
    out.push_str(rest);
    out
}

fn texts_are_empty(view: &View<'_>, emptiness: &dyn Emptiness) -> bool {
    view.texts().all(|text| text_is_empty(&text, emptiness))
}

fn text_is_empty(text: &str, emptiness: &dyn Emptiness) -> bool {
    let text = text.trim();
    if text.is_empty() || emptiness.says_nothing(text) {
        return true;
    }
    // Most texts are not JSON, which is seen without a parser.
    if !text.starts_with(['{', '[', '"', 'n']) {
        return false;
    }
    serde_json::from_str(text).is_ok_and(|value| value_is_empty(&value, emptiness))
}

fn value_is_empty(value: &Value, emptiness: &dyn Emptiness) -> bool {
    match value {
        Value::Null => true,
        // 0 and false are answers.
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text_is_empty(text, emptiness),
        Value::Array(items) => items.iter().all(|item| value_is_empty(item, emptiness)),
        Value::Object(object) => object_is_empty(object, emptiness),
    }
}

fn object_is_empty(object: &Map<String, Value>, emptiness: &dyn Emptiness) -> bool {
    if object_reports_failure(object) {
        return false;
    }
    let (results, others): (Vec<_>, Vec<_>) =
        object.iter().partition(|(key, _)| emptiness.holds_results(key));
    if !results.iter().all(|(_, value)| value_is_empty(value, emptiness)) {
        return false;
    }
    if results.is_empty() {
        // An empty list of errors or warnings is good news, not a missing result.
        let reports = |key: &str| key.contains("error") || key.contains("warning");
        return others.iter().all(|(key, value)| !reports(key) && value_is_empty(value, emptiness));
    }
    others.iter().all(|(key, value)| is_bare(value) || (value.is_string() && ECHOES.contains(&key.as_str())))
}

/// Whether a value holds no text: numbers, flags, and lists and objects of them.
fn is_bare(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(is_bare),
        Value::Object(object) => object.values().all(is_bare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transcript;
    use crate::identity::{Hash, HashKey, Identity};
    use crate::memo::{DerivedValue, Memo, NoMemo};
    use crate::source::{ItemId, Order, Origin};
    use crate::testing::{SampleItem, SampleRequest, result, source};
    use std::sync::Arc;

    struct Words;

    impl Emptiness for Words {
        fn says_nothing(&self, text: &str) -> bool {
            text == "Nothing here."
        }

        fn holds_results(&self, key: &str) -> bool {
            ["results", "data", "content", "text"].contains(&key)
        }
    }

    /// The result of `ask` for the view of each of the messages.
    fn with_views<T>(messages: &[SampleItem], ask: impl Fn(&[View<'_>]) -> T) -> T {
        let request = SampleRequest::new(messages);
        let identity = Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None };
        let transcript = request.transcript(&identity);
        let views: Vec<View<'_>> = (0..messages.len()).map(|index| transcript.view(index)).collect();
        ask(&views)
    }

    fn text(text: &str) -> SampleItem {
        result("a", text)
    }

    fn parts() -> SampleItem {
        SampleItem::result_parts("a")
    }

    /// A result whose content is this JSON.
    fn value(json: &str) -> SampleItem {
        SampleItem::result_of("a").value(json)
    }

    fn empty(result: SampleItem) -> bool {
        with_views(&[result], |views| is_empty(&views[0], &Words))
    }

    fn failed(message: &str) -> bool {
        with_views(&[text(message)], |views| has_failed(&views[0]))
    }

    #[test]
    fn the_likeness_of_two_results_is_kept_where_both_are_the_clients() {
        let (one, other) = (text("a cat sat here"), text("a dog sat here"));
        for origin in [None, Some(Origin::Upstream)] {
            let record = origin.map(|origin| source(origin, [&one]));
            let sent = SampleRequest::new(if record.is_some() { vec![&other] } else { vec![&one, &other] });
            let mut order = Order::default();
            record.iter().for_each(|_| order.add(ItemId { source: 1, index: 0 }, 1));
            let identity = Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None };
            let body = sent.body().to_vec();
            let transcript = Transcript::with_sources(
                (Arc::new(sent.request), body.into()),
                (record.into_iter().map(Arc::new).collect(), order),
                identity,
                Arc::new(NoMemo),
            );
            let [first, second] = [0, 1].map(|at| Answer::of(&transcript.view(at)));
            let likeness = |answer| likeness_of_results(&transcript.view(1), (1, answer), (0, &first));
            assert_eq!(likeness(&second), Likeness::None);
            let expected = if origin.is_none() { Likeness::None } else { Likeness::Equal };
            assert_eq!(likeness(&first), expected, "found out {origin:?}");
        }
    }

    #[test]
    fn every_form_of_an_empty_result_is_recognised() {
        for text in [
            "",
            " \n\t",
            "null",
            "\"\"",
            "\" \"",
            "[]",
            "{}",
            " [ ] ",
            "{\n}",
            "[[], {}]",
            "[null]",
            "Nothing here.",
            "\"Nothing here.\"",
            r#"{"results":[]}"#,
            r#"{"results": null, "total": 0, "query": "bicycles"}"#,
            r#"{"data":{"results":[]},"took_ms":3,"shards":{"failed":0,"total":5}}"#,
            r#"{"data":{"search":{"nodes":[]}}}"#,
            r#"{"name":"","tags":[]}"#,
            r#"{"results":"Nothing here."}"#,
            r#"{"content":[{"type":"text","text":"[]"}],"isError":false}"#,
            r#"{"status":"ok","results":[]}"#,
            r#"{"results":[],"errors":[]}"#,
        ] {
            assert!(empty(result("a", text)), "{text}");
        }
        for message in [SampleItem::result_of("a"), value("null"), parts(), value(r#"{"results":[]}"#)] {
            assert!(empty(message.clone()), "{message:?}");
        }
        assert!(empty(parts().text("").text("[]")));
    }

    #[test]
    fn results_with_usable_content_are_not_empty() {
        for text in [
            "0",
            "false",
            "[0]",
            "none of it",
            "nullable",
            "[",
            r#"{"results":[1]}"#,
            r#"{"total":0}"#,
            r#"{"results":[],"summary":"They rode on."}"#,
            r#"{"name":"x","tags":[]}"#,
            r#"{"errors":[]}"#,
            r#"{"results":[],"error":"quota"}"#,
            r#"{"ok":false,"data":null}"#,
            r#"{"warnings":[]}"#,
        ] {
            assert!(!empty(result("a", text)), "{text}");
        }
        assert!(!empty(value("7")));
        assert!(!empty(parts().other(r#"{"picture":"u"}"#)));
        let long = format!("[{}]", "[],".repeat(200) + "[]");
        assert!(!empty(text(&long)), "too long to be nothing");
    }

    #[test]
    fn parts_of_long_texts_are_read_with_line_ends_and_quotes() {
        for (part, read) in [
            (r"one\ntwo\n", "one\ntwo\n"),
            (r#"a \"b\" \t \u00e9"#, r#"a "b" \t \u00e9"#),
            (r"\\n \\\n", "\\\n \\\\\n"),
            (r#"\\""#, r#"\""#),
            (r"é \", r"é \"),
        ] {
            assert_eq!(read_part(part.as_bytes()), read, "{part}");
            assert_eq!(part.replace("\\n", "\n").replace("\\\"", "\""), read, "{part}");
        }
        assert_eq!(read_part(&"é\\n".as_bytes()[1..]), "\u{fffd}\n");
    }

    #[test]
    fn failures_are_recognised_by_their_first_word_or_by_a_member() {
        for text in [
            "Error: no such file",
            "  error\n",
            "Traceback (most recent call last):\n...",
            "FAILED (3 tests)",
            r#"{"error":"no"}"#,
            r#"{"error":{"code":1}}"#,
            r#"{"isError":true}"#,
            r#"{"ok":false,"data":null}"#,
            r#"{"success":false}"#,
            r#"{"status":"Error"}"#,
            r#"{"status":404}"#,
            r#"{"errors":["x"],"data":null}"#,
        ] {
            assert!(failed(text), "{text}");
        }
        let long = "x".repeat(2 * END_BYTES);
        for text in [
            format!("Error: {long}"),
            format!("An error occurred while running the tool. Please try again. Error: {long}"),
            format!("{long}\n\nFix the errors and try again."),
            format!(r#"{{"success":false,"data":"{long}"}}"#),
            format!(r#"{{"data":"{long}","success":false}}"#),
            format!(r#" {{"content":[{{"type":"text","text":"{long}"}}],"isError":true}}"#),
            format!(r#"{{"data":["{long}"],"error":{{"message":"{long}"}}}}"#),
            r#"[{"type":"text","text":"Error: no such file"}]"#.to_owned(),
            r#"{"result":{"content":[],"isError":true}}"#.to_owned(),
            r#"{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}"#.to_owned(),
            r#"{"error_message":"no"}"#.to_owned(),
        ] {
            assert!(failed(&text), "{}", &text[..60.min(text.len())]);
        }
        for text in [
            long.clone(),
            format!("{long}\nError: no such file"),
            format!(r#"{{"success":true,"data":"{long}"}}"#),
            format!(r#"{{"data":"{long}","text":"\"success\": false"}}"#),
            format!(r#"{{"data":"{long}","items":[{{"success":false}}]}}"#),
            r#"[{"type":"text","text":"The error is fixed"}]"#.to_owned(),
            r#"{"output":"x","metadata":{"exit_code":0}}"#.to_owned(),
            r#"{"result":{"errors":[]}}"#.to_owned(),
        ] {
            assert!(!failed(&text), "{}", &text[..60.min(text.len())]);
        }
        for text in [
            "",
            "Errors are human",
            "error_log.txt",
            "The error is fixed",
            r#"{"error":null,"data":1}"#,
            r#"{"error":""}"#,
            r#"{"errors":[]}"#,
            r#"{"ok":true}"#,
            r#"{"status":200}"#,
            r#"["error"]"#,
            "{",
        ] {
            assert!(!failed(text), "{text}");
        }
        assert!(!with_views(&[value("null")], |views| has_failed(&views[0])));
    }

    #[test]
    fn an_outcome_is_unknown_where_the_tool_may_have_acted_and_did_not_say_so() {
        let long = "x".repeat(2 * END_BYTES);
        let traceback =
            format!("Traceback (most recent call last):\n{long}\nrequests.exceptions.ReadTimeout: slow");
        for (text, unknown) in [
            ("Error: HTTPSConnectionPool(host='a', port=443): Read timed out.", true),
            ("Tool call timed out after 60 seconds", true),
            (r#"{"error":"The operation was aborted due to a timeout: AbortError"}"#, true),
            (r#"{"error":{"code":502,"message":"no"}}"#, true),
            (r#"{"status":504}"#, true),
            (r#"{"ok":false,"status":"500"}"#, true),
            (r#"{"output":"","metadata":{"exit_code":124}}"#, true),
            (r#"[{"type":"text","text":"Error: connection reset by peer"}]"#, true),
            (&traceback, true),
            (&long, false),
            ("ok", false),
            ("", false),
            ("Error: no such order", false),
            ("Error: [Errno 111] Connection refused", false),
            (r#"{"ok":true,"timeout":"timed out sessions end after 30 s"}"#, false),
            (r#"{"status":404,"error":"no"}"#, false),
            ("The user doesn't want to proceed with this tool use.", false),
            ("Order 7 was created. The session timed out.", false),
        ] {
            let found = with_views(&[result("a", text)], |views| is_unknown(&views[0]));
            assert_eq!(found, unknown, "{}", &text[..80.min(text.len())]);
        }
    }

    #[test]
    fn answers_are_the_same_where_their_texts_and_other_parts_are() {
        let image = |url: &str| parts().text("a").other(&format!(r#"{{"picture":"{url}"}}"#));
        for (one, other, same) in [
            (text("a"), text("a"), true),
            (text("a"), text("b"), false),
            (text("a"), parts().text_beside("a", r#""cache_control":{"type":"x"}"#), true),
            (text("ab"), parts().text("a").text("b"), false),
            (image("u"), image("u"), true),
            (image("u"), image("v"), false),
            (value("null"), value("null"), true),
            (value("null"), text("a"), false),
            (value("7"), value("7"), true),
        ] {
            let found = with_views(&[one.clone(), other.clone()], |views| {
                Answer::of(&views[0]).likeness(&Answer::of(&views[1]), views[0].sources()) == Likeness::Equal
            });
            assert_eq!(found, same, "{one:?} {other:?}");
        }
    }

    /// Knows of every text that a job runs, so that its answer shows that it was asked.
    struct SaysRunning;

    impl Memo for SaysRunning {
        fn find(&self, _key: Hash) -> Option<DerivedValue> {
            Some(Arc::new(true))
        }

        fn keep(&self, _key: Hash, _value: DerivedValue, _weight: usize) {}
    }

    #[test]
    fn a_text_that_was_seen_before_is_not_read_for_running_jobs_again() {
        let request = SampleRequest::new(&[text("Anna lives in Kyoto.")]);
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let read = |memo: Arc<dyn Memo>| {
            let body = request.body().to_vec();
            Transcript::read(request.request.clone(), body, identity.clone(), memo)
        };
        assert!(!says_running(&read(Arc::new(NoMemo)).view(0)));
        assert!(says_running(&read(Arc::new(SaysRunning)).view(0)));
    }
}
