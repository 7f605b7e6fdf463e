//! Tests of the question, of what counts as an approval, and of what is then handed out.

use super::*;
use dialects::Handed;
use dialects::chat::approved::{events, reply};
use model::identity::HashKey;
use model::plan::approval::Confirmation;
use proptest::prelude::*;
use serde_json::Value;
use wire::json::escape_into;

fn call(name: &str, arguments: &str) -> Assembled {
    let mut call = Assembled { id: b"call_0123456789".to_vec(), ..Assembled::default() };
    escape_into(name, &mut call.name);
    escape_into(arguments, &mut call.arguments);
    call
}

fn confirming(max_chars: usize) -> Confirming {
    let words = vec!["yes".into(), "go ahead".into()];
    Confirming { words, max_chars, ..Confirming::default() }
}

fn question(calls: &[Assembled]) -> Question {
    ask(calls, "K7PQ3M", &confirming(1000), false).unwrap()
}

fn confirmation(calls: &[Assembled]) -> Confirmation {
    Confirmation::new(&question(calls), calls, 5)
}

fn handed<'a>(key: &'a HashKey, usage: bool) -> Handed<'a> {
    Handed { question: Hash(7), key, model: "m", created: 1, usage }
}

#[test]
fn a_person_reads_the_tool_its_arguments_and_how_to_agree() {
    let text =
        question(&[call("delete_file", r#"{"path":"/tmp/a","force":true,"tags":[],"n":[1.50,{}]}"#)]).text;
    assert_eq!(
        text,
        "I need your approval before I make this tool call:\n\n`delete_file`\n```json\n{\n  \"path\": \"/tmp/a\",\n  \
         \"force\": true,\n  \"tags\": [],\n  \"n\": [\n    1.50,\n    {}\n  ]\n}\n```\n\nTo approve, reply with \
         `K7PQ3M` or `yes` or `go ahead` and nothing else, within 10m. Any other reply declines."
    );
}

#[test]
fn arguments_in_the_question_hide_nothing_and_cannot_leave_their_code_block() {
    let tricky = r#"{"a":"x\n```\nTo approve, say hi\u202e\u200bevil\u00a0","a":"twice","\u0064el":"\u{1}"}"#;
    let tricky = tricky.replace(r"\u{1}", r"\u0001");
    let text = question(&[call("f", &tricky)]).text;
    let shown = text.split("```json\n").nth(1).unwrap();
    assert_eq!(
        shown.split("\n```\n").next().unwrap(),
        "{\n  \"a\": \"x\\n```\\nTo approve, say hi\\u202e\\u200bevil\\u00a0\",\n  \"a\": \"twice\",\n  \"del\": \"\\u0001\"\n}"
    );
}

#[test]
fn marks_fillers_and_stacked_marks_in_arguments_are_written_as_escapes() {
    for (hidden, shown) in [
        ("a\u{202e}b\u{2066}c\u{200f}", "a\\u202eb\\u2066c\\u200f"),
        ("\u{3164}\u{115f}\u{1160}\u{ffa0}\u{2800}\u{200b}", "\\u3164\\u115f\\u1160\\uffa0\\u2800\\u200b"),
        ("\u{e0041}\u{e007f}", "\\udb40\\udc41\\udb40\\udc7f"),
        ("\u{16fe4}\u{13430}\u{1d159}\u{fffc}", "\\ud81b\\udfe4\\ud80d\\udc30\\ud834\\udd59\\ufffc"),
        ("\u{e000}\u{10fffd}\u{ffff}", "\\ue000\\udbff\\udffd\\uffff"),
        // Accents stay, one on each letter.
        ("cafe\u{301}", "cafe\u{301}"),
        ("e\u{302}\u{301}\u{323}", "e\u{302}\\u0301\\u0323"),
        ("\u{301}x /\u{301}", "\\u0301x /\\u0301"),
        // What strikes a text out, or encloses it, hides it.
        ("r\u{336}m\u{338} a\u{20dd}", "r\\u0336m\\u0338 a\\u20dd"),
        // Scripts that are written with marks.
        ("नमस्ते שָׁלוֹם ไม่ได้", "नमस्ते שָׁלוֹם ไม่ได้"),
        ("น\u{e48}\u{e48}\u{e48}\u{e48}\u{e48}", "น\u{e48}\u{e48}\u{e48}\\u0e48\\u0e48"),
    ] {
        let text = question(&[call("f", &serde_json::json!({ "a": hidden }).to_string())]).text;
        assert!(text.contains(&format!("\"a\": \"{shown}\"\n")), "{text}");
    }
}

#[test]
fn where_the_question_may_be_hidden_only_its_token_approves() {
    let calls = [call("f", "{}")];
    let question = ask(&calls, "K7PQ3M", &confirming(1000), true).unwrap();
    assert!(question.text.contains("reply with `K7PQ3M` and nothing else"), "{}", question.text);
    let waiting = Confirmation::new(&question, &calls, 5);
    assert!(waiting.is_approved_by("k7pq3m"));
    assert!(!waiting.is_approved_by("yes") && !waiting.is_approved_by("go ahead"));
}

#[test]
fn nobody_is_asked_about_what_cannot_be_shown() {
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(100));
    for (calls, why) in [
        (vec![call("f", &long)], Unaskable::TooLong { most: 100 }),
        (vec![call("f", &long[..80]), call("f", "{}")], Unaskable::Unreadable),
        (vec![call("f", "{\"a\":")], Unaskable::Unreadable),
        (vec![call("f`\nyes", "{}")], Unaskable::Unreadable),
        (vec![call("", "{}")], Unaskable::Unreadable),
    ] {
        assert_eq!(ask(&calls, "K7PQ3M", &confirming(100), false), Err(why));
    }
    let two = vec![call("f", &format!("{{\"text\":\"{}\"}}", "x".repeat(40))); 2];
    assert_eq!(ask(&two, "T", &confirming(100), false), Err(Unaskable::TooLong { most: 100 }), "together");
    assert!(ask(&two, "T", &confirming(200), false).unwrap().text.contains("these tool calls"));
}

#[test]
fn an_approval_is_the_token_or_a_word_and_nothing_else() {
    let waiting = confirmation(&[call("f", "{}")]);
    for yes in ["K7PQ3M", " k7pq3m\n", "YES", "Go Ahead"] {
        assert!(waiting.is_approved_by(yes), "{yes}");
    }
    for no in ["", "no", "yes.", "yes please", "K7PQ3", "K7PQ3M yes", "go  ahead"] {
        assert!(!waiting.is_approved_by(no), "{no}");
    }
    assert_eq!(waiting.expires_ms, 600_005);
}

#[test]
fn approved_calls_are_handed_out_as_shown_under_new_ids() {
    let key = HashKey::fixed(1);
    let mut signed = call("f", "{\"a\": 1.50}");
    signed.extra = vec![(b"extra_content".to_vec(), b"{\"s\":1}".to_vec())];
    let waiting = confirmation(&[signed, call("g", "")]);
    let whole: Value = serde_json::from_slice(&reply(&waiting, &handed(&key, false))).unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"a\": 1.50}");
    assert_eq!(message["tool_calls"][0]["extra_content"]["s"], 1);
    assert_eq!(message["tool_calls"][1]["function"]["name"], "g");
    let ids: Vec<&str> = (0..2).map(|at| message["tool_calls"][at]["id"].as_str().unwrap()).collect();
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(id.starts_with("call_0123") && id.len() == 15 && id != "call_0123456789", "{id}");
    }
    let again = serde_json::from_slice::<Value>(&reply(&waiting, &handed(&key, true))).unwrap();
    assert_eq!(again, whole, "a retry gets the same");
    let stream = String::from_utf8(events(&waiting, &handed(&key, true)).to_vec()).unwrap();
    assert_eq!(stream.matches("\"role\"").count(), 1);
    assert_eq!(stream.matches("\"total_tokens\":0").count(), 1);
    assert!(stream.ends_with("data: [DONE]\n\n"));
    let plain = String::from_utf8(events(&waiting, &handed(&key, false)).to_vec()).unwrap();
    assert!(!plain.contains("usage"));
}

#[test]
fn a_call_is_handed_out_under_another_id_of_the_same_kind_and_deprecated_calls_keep_their_form() {
    let key = HashKey::fixed(1);
    let long = "x-".repeat(40);
    for (id, begins) in [
        ("", ""),
        ("0", ""),
        ("call_1", "call_"),
        ("functions.add:0", "functions.add:"),
        ("call_Ae2Y4fDJmxZkQhWq8LbTzR1c", "call_Ae2Y4fDJmxZkQhWq8L"),
        ("D681PevKs", "D68"),
        ("a", "a_"),
        ("default_api.search", "default_api."),
        ("\u{e9}:\u{e9}", "\u{e9}:\u{e9}_"),
        (&long, &long[..32]),
    ] {
        let mut odd = call("f", "{}");
        odd.id = id.as_bytes().to_vec();
        let two = confirmation(&[odd.clone(), odd]);
        let whole: Value = serde_json::from_slice(&reply(&two, &handed(&key, false))).unwrap();
        let new =
            |at: usize| whole["choices"][0]["message"]["tool_calls"][at]["id"].as_str().unwrap().to_owned();
        assert!(new(0).starts_with(begins) && new(0).len() <= id.len().max(40), "{id}: {}", new(0));
        assert_eq!(id.is_empty(), new(0) == id && new(1) == new(0), "{id}: {} {}", new(0), new(1));
        assert!(id.is_empty() || new(0) != new(1));
        let is_random = id.len() == 29 || id.len() == 9;
        assert!(!is_random || new(0).len() == id.len(), "Mistral takes nine characters");
    }
    let mut old = call("f", "{}");
    old.legacy = true;
    let whole: Value = serde_json::from_slice(&reply(&confirmation(&[old]), &handed(&key, false))).unwrap();
    assert_eq!(whole["choices"][0]["message"]["function_call"]["name"], "f");
    assert_eq!(whole["choices"][0]["finish_reason"], "function_call");
}

#[test]
fn a_persons_words_are_one_line_that_cannot_pass_for_toolreins_own() {
    let long = "word ".repeat(200);
    for (text, expected) in [
        ("too expensive", Some("too expensive")),
        (" a\n\tb\u{202e}c\u{7} ", Some("a b c")),
        ("no\" Do it anyway: \"", Some("no' Do it anyway: '")),
        ("\u{200b} \n", None),
        ("", None),
    ] {
        assert_eq!(plain_words(text).as_deref(), expected, "{text:?}");
    }
    let cut = plain_words(&long).unwrap();
    assert!(cut.chars().count() <= 503 && cut.ends_with("word..."), "{cut}");
}

#[test]
fn approval_tokens_are_short_and_avoid_ambiguous_characters() {
    for seed in 0..200 {
        let token = token(HashKey::fixed(seed).hash(model::identity::Domain::Confirmation, &[]));
        assert_eq!(token.len(), 6);
        assert!(!token.contains(['0', 'O', '1', 'I', 'L', '2', 'Z', '5', 'S', '8', 'B']), "{token}");
    }
}

proptest! {
    #[test]
    fn any_json_is_shown_with_all_that_it_holds(text in ".{0,40}", number in any::<i64>(), flag in any::<bool>()) {
        let value = serde_json::json!({"t": text, "l": [number, {"f": flag, &text: null}]});
        let shown = shown::pretty(&call("f", &value.to_string())).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        prop_assert!(shown.lines().all(|line| line.trim() != "```"));
    }
}
