//! Cases and laws of the cut.

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Bounds, Cut, How, MIN_CHARS, exceeds};
use crate::texts::Texts;

const MARKER: &str = "[toolrein: cut ";

/// The cut with the bound on base64 as shipped.
pub(super) fn cut(text: &str, max_chars: usize) -> Option<Cut> {
    super::cut(text, Bounds { max_chars, blob_chars: 4_000, how: How::Narrower, texts: &Texts::default() })
}

/// Cuts, and checks what every cut promises.
pub(super) fn cut_text(text: &str, max_chars: usize) -> String {
    let cut = cut(text, max_chars).expect("longer than the limit");
    let total = text.chars().count();
    let chars = cut.text.chars().count();
    assert!(chars <= max_chars, "{chars} characters at a limit of {max_chars}");
    assert!((1..=total).contains(&cut.gone_chars));
    assert!(total - cut.gone_chars <= chars, "no more kept than shown");
    assert_eq!(self::cut(&cut.text, max_chars), None, "our own output is left alone");
    assert_eq!(self::cut(text, max_chars).as_ref(), Some(&cut), "the same bytes each time");
    cut.text
}

/// The same for a document, which must stay valid.
fn cut_json(text: &str, max_chars: usize) -> Value {
    let cut = cut_text(text, max_chars);
    assert_eq!(cut.matches(MARKER).count(), 1, "one announcement in {cut}");
    serde_json::from_str(&cut).unwrap_or_else(|error| panic!("{error} in {cut}"))
}

fn log(lines: usize) -> String {
    (0..lines)
        .map(|n| format!("12:00:{:02} INFO worker finished job {n} in {} ms\n", n % 60, n % 313))
        .collect()
}

#[test]
fn a_result_that_fits_is_left_alone() {
    for (text, max_chars) in [("", 0), ("", 200), ("abc", 3), ("日本語", 3), ("[1,2]", 5), ("ab\r\n", 4)] {
        assert_eq!(cut(text, max_chars), None, "{text:?}");
    }
    assert_eq!(cut(&"語".repeat(1_000), 1_000), None);
}

#[test]
fn one_character_more_than_the_limit_is_cut() {
    cut_text(&"語".repeat(1_001), 1_000);
    cut_text(&format!("{}\n", "a".repeat(1_000)), 1_000);
}

#[test]
fn the_length_is_decided_without_counting_where_bytes_decide() {
    for (text, max_chars, over) in [
        ("abcd", 4, false),
        ("abcde", 4, true),
        ("語語", 2, false),
        ("語語", 1, true),
        ("🦀", 1, false),
        ("🦀a", 1, true),
    ] {
        assert_eq!(exceeds(text, max_chars), over, "{text} at {max_chars}");
    }
}

#[test]
fn a_long_log_keeps_whole_lines_of_head_and_tail_and_its_errors() {
    let mut text = log(1_000);
    text.push_str("12:30:00 ERROR disk full on /dev/sda1\n");
    text.push_str(&log(2_000));
    text.push_str("thread 'main' panicked at src/main.rs:4:5\n");
    text.push_str(&log(3_000));
    let cut = cut_text(&text, 4_000);

    let lines: Vec<&str> = cut.lines().collect();
    let marker = lines.iter().position(|line| line.starts_with(MARKER)).expect("a marker");
    assert!(
        lines[..marker].iter().chain(&lines[marker + 6..]).all(|line| text.contains(&format!("{line}\n")))
    );
    assert_eq!(
        lines[marker + 1..marker + 5],
        ["12:30:00 ERROR disk full on /dev/sda1", "…", "thread 'main' panicked at src/main.rs:4:5", "…"]
    );
    assert!(text.starts_with(&lines[..marker].join("\n")));
    assert!(cut.ends_with(&text[text.len() - 2_500..]), "four fifths are tail");
    assert!(lines[marker].contains("of this result's 6002), except what looks like errors; to see more"));
}

#[test]
fn the_marker_tells_what_is_gone() {
    let text = log(5_000);
    let result = cut(&text, 2_000).expect("long");
    let marker = result.text.lines().find(|line| line.starts_with(MARKER)).expect("a marker");
    let head = result.text.lines().position(|line| line == marker).expect("a marker");
    let tail = result.text.lines().count() - head - 1;
    assert_eq!(
        marker,
        format!(
            "[toolrein: cut {} of {} characters here (lines {} to {} of this result's 5000); to see more, ask the \
             tool for a narrower range or filter]",
            result.gone_chars,
            text.len(),
            head + 1,
            5_000 - tail
        )
    );
    assert_eq!(result.gone_chars, text.len() - (result.text.len() - marker.len() - 1));
}

#[test]
fn a_pytest_failure_keeps_its_explanation() {
    let passed: String =
        (0..300).map(|n| format!("tests/test_shop.py::test_{n} PASSED  [{:3}%]\n", n / 3)).collect();
    let failure = "    def test_total():\n>       assert total([1, 2]) == 4\nE   assert 3 == 4\nE    +  where 3 = total([1, 2])\n";
    let text = format!("{passed}{failure}{passed}FAILED tests/test_shop.py::test_total - assert 3 == 4\n");
    let cut = cut_text(&text, 3_000);
    assert!(cut.contains("\nE   assert 3 == 4\nE    +  where 3 = total([1, 2])\n"), "{cut}");
    assert!(cut.ends_with("FAILED tests/test_shop.py::test_total - assert 3 == 4\n"));
}

/// The rows of an order, as a server of MCP gives them.
fn rows(count: usize) -> Value {
    (0..count)
        .map(|id| serde_json::json!({"id": id, "name": format!("order {id}"), "note": "paid \"at once\"", "total": id * 3}))
        .collect()
}

#[test]
fn json_within_the_text_of_mcp_content_is_cut_by_its_rows_and_stays_json() {
    let text = |inner: &str| serde_json::json!([{"type": "text", "text": inner}]).to_string();
    for inner in [rows(400).to_string(), serde_json::to_string_pretty(&rows(400)).unwrap()] {
        let outer = cut_json(&text(&inner), 4_000);
        let shown = outer[0]["text"].as_str().unwrap();
        let inner: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{error} in {shown}"));
        let kept = inner.as_array().unwrap();
        let whole = kept.iter().filter(|row| row.is_object()).count();
        assert!(whole >= 20, "{whole} rows in {shown}");
        assert!(kept.iter().all(|row| row.is_string() || row.as_object().unwrap().len() == 4), "{shown}");
        assert_eq!((&kept[0]["id"], &kept[kept.len() - 1]["id"]), (&0.into(), &399.into()), "head and tail");
        assert!(shown.chars().count() > 2_000, "the room is used: {}", shown.chars().count());
    }
}

#[test]
fn json_stays_valid_in_every_string_that_holds_it() {
    let rows = rows(300);
    let twice = serde_json::json!({"content": [{"type": "text", "text": serde_json::json!({"rows": rows.to_string()}).to_string()}]});
    let outer = cut_json(&twice.to_string(), 3_000);
    let inner: Value = serde_json::from_str(outer["content"][0]["text"].as_str().unwrap()).unwrap();
    let innermost: Value = serde_json::from_str(inner["rows"].as_str().unwrap()).unwrap();
    assert!(innermost.as_array().unwrap().iter().filter(|row| row.is_object()).count() >= 5, "{innermost}");
    // A document that is a string as a whole: its announcement is within.
    let quoted = serde_json::to_string(&rows.to_string()).unwrap();
    let shown = cut_json(&quoted, 3_000);
    let inner: Value = serde_json::from_str(shown.as_str().unwrap()).unwrap();
    assert!(inner.as_array().unwrap().len() > 10, "{inner}");
    // What only begins like JSON is a text.
    let broken =
        serde_json::json!([{"type": "text", "text": format!("[{}", "not JSON ".repeat(600))}]).to_string();
    assert!(cut_json(&broken, 2_000)[0]["text"].as_str().unwrap().starts_with("[not JSON"));
}

#[test]
fn kept_error_lines_take_only_their_share_of_the_limit() {
    let text: String = (0..5_000).map(|n| format!("error: number {n} failed\n")).collect();
    let cut = cut_text(&text, 5_000);
    let (head, rest) = cut.split_once(MARKER).expect("a marker");
    let errors = rest.rsplit_once("…\n").expect("an ellipsis").0;
    assert!(errors.len() <= 1_150 && errors.len() > 300, "{}", errors.len());
    assert!((700..=1_000).contains(&head.len()));
    // First ones and last ones of the part that was cut.
    assert!(errors.contains("error: number 4") && errors.contains("error: number 48"), "{errors}");
}

#[test]
fn blank_lines_beside_a_kept_error_are_kept_or_reported() {
    for (blank_lines, seam) in [(0, "\n"), (1, "\n\n"), (2, "\n\n\n"), (3, "\n…\n")] {
        let blank = "\n".repeat(blank_lines + 1);
        let errors = format!("ERROR disk full{blank}ERROR disk gone");
        let cut = cut_text(&format!("{}{errors}\n{}", log(100), log(100)), 2_000);
        assert!(cut.contains(&format!("\nERROR disk full{seam}ERROR disk gone\n…\n")), "{cut}");
    }
}

#[test]
fn a_single_huge_line_is_cut_by_characters() {
    for unit in ["QUJDREVGR0hJ", "function a(b){return c};", "漢字かな交じり文", "👩‍👩‍👧 "]
    {
        let text = unit.repeat(5_000);
        let cut = cut_text(&text, 1_000);
        let (head, rest) = cut.split_once(&format!("\n{MARKER}")).expect("a marker");
        let (marker, tail) = rest.split_once("]\n").expect("its end");
        assert!(text.starts_with(head) && text.ends_with(tail));
        assert!(tail.chars().count() >= 3 * head.chars().count());
        assert!(!marker.contains("lines"), "{marker}");
    }
}

#[test]
fn carriage_returns_are_kept() {
    let text = log(500).replace('\n', "\r\n").replace("job 250 ", "job 250 ERROR ");
    let cut = cut_text(&text, 2_000);
    assert!(cut.contains("job 250 ERROR "));
    assert_eq!(cut.matches('\n').count(), cut.matches("\r\n").count());
    assert!(!cut.contains("\r\r"));
}

#[test]
fn an_array_keeps_first_and_last_items_whole_and_those_with_errors() {
    let item = |n: usize| {
        let status = if n == 555 { "error" } else { "ok" };
        format!("{{\"id\": {n}, \"status\": \"{status}\", \"price\": {n}.50, \"error\": null}}")
    };
    let items: Vec<String> = (0..1_000).map(item).collect();
    let text = format!("[{}]", items.join(", "));
    let json = cut_json(&text, 4_000);

    let items = json.as_array().expect("an array");
    let ids: Vec<u64> = items.iter().filter_map(|item| item["id"].as_u64()).collect();
    let first = ids.iter().zip(0..).take_while(|(id, n)| **id == *n).count();
    let last = ids.iter().rev().zip(0..).take_while(|(id, n)| **id == 999 - *n).count();
    assert_eq!(ids.len(), first + 1 + last);
    assert_eq!(ids[first], 555);
    assert!(first > last && last >= 10, "{first} and {last}");
    assert!(items[..first].iter().all(|item| item.as_object().is_some_and(|item| item.len() == 4)));
    assert_eq!(items[first], format!("… {} of 1000 cut", 555 - first));
    assert!(items.last().and_then(Value::as_str).is_some_and(|marker| marker.starts_with(MARKER)));
}

#[test]
fn an_object_keeps_its_keys_in_order_and_ends_with_the_announcement() {
    let page = "A long paragraph about nothing. ".repeat(3_200);
    let text = format!(
        "{{\"url\":\"https://example.com\",\"big\":12345678901234567890123,\"page\":\"{page}\",\"meta\":{{\"z\":1.10,\"a\":[]}}}}"
    );
    let json = cut_json(&text, 2_000);
    let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["url", "big", "page", "meta", "toolrein"]);
    let out = cut_text(&text, 2_000);
    assert!(
        out.contains("\"big\":12345678901234567890123,") && out.contains("\"meta\":{\"z\":1.10,\"a\":[]}")
    );
    let cut_page = json["page"].as_str().expect("a string");
    let (head, tail) = cut_page.split_once("…[").expect("a placeholder");
    assert!(page.starts_with(head) && page.ends_with(tail.split_once("]…").expect("its end").1));
    assert!(out.chars().count() > 1_900, "the room is used");
}

#[test]
fn the_output_of_a_command_inside_json_is_cut_by_lines() {
    let text = serde_json::json!({
        "stdout": format!("{}src/a.rs:1: error: no such thing\n{}", log(900), log(900)),
        "exit_code": 1,
    });
    let json = cut_json(&text.to_string(), 4_000);
    let stdout = json["stdout"].as_str().expect("a string");
    assert!(stdout.contains("\nsrc/a.rs:1: error: no such thing\n"));
    assert!(stdout.ends_with(" ms\n") && stdout.starts_with("12:00:00 INFO worker finished job 0 in 0 ms\n"));
    assert_eq!(json["exit_code"], 1);
}

#[test]
fn a_top_level_json_string_stays_a_json_string() {
    for text in [log(900), "語".repeat(9_000), "\"\\\u{7}".repeat(4_000)] {
        let json = cut_json(&serde_json::to_string(&text).expect("a string"), 1_500);
        let inner = json.as_str().expect("a string");
        assert!(inner.contains(MARKER));
        assert_eq!(inner.chars().next(), text.chars().next());
        assert_eq!(inner.chars().last(), text.chars().last());
    }
}

#[test]
fn indentation_goes_before_any_value() {
    let value: Value = (0..40).map(|n| serde_json::json!({ "id": n, "tags": ["a b", "c\n  d"] })).collect();
    let text = serde_json::to_string_pretty(&value).expect("a document");
    let compact = value.to_string();
    assert!(text.len() > 2_500 && compact.len() < 1_600, "{} {}", text.len(), compact.len());
    let mut json = cut_json(&text, 1_800);
    let marker = json.as_array_mut().and_then(Vec::pop).expect("a marker");
    assert_eq!(json, value);
    assert!(
        marker
            .as_str()
            .is_some_and(|marker| marker.ends_with("characters of this JSON, all of them layout]"))
    );
}

#[test]
fn needless_escapes_go_before_any_line() {
    let page = "漢字かな\n".repeat(500);
    let text = format!("{{\"page\": \"{}\"}}", "\\u6f22\\u5b57\\u304b\\u306a\\n".repeat(500));
    let json = cut_json(&text, 4_000);
    assert_eq!(json["page"], page);
    assert!(
        json["toolrein"].as_str().is_some_and(|marker| marker.ends_with(", all of them layout]")),
        "{json}"
    );
    let json = cut_json(&text, 1_500);
    assert!(json["page"].as_str().is_some_and(|page| page.chars().count() > 1_000));
    assert!(json["toolrein"].as_str().is_some_and(|marker| marker.contains(" of them layout); to see more")));
}

#[test]
fn json_padded_with_white_space_is_still_cut_to_valid_json() {
    for (open, close) in [("[", "]"), ("{", "}")] {
        cut_json(&format!("{open}{}{close}", "\n".repeat(900)), 300);
        cut_json(&format!("{open} {close}{}", "\n".repeat(900)), 300);
        cut_json(&format!("{open}{}{close}", " ".repeat(900)), 300);
    }
}

#[test]
fn a_name_that_is_taken_is_not_written_twice() {
    let text = format!("{{\"toolrein\":\"{}\"}}", "x".repeat(900));
    let json = cut_json(&text, 400);
    assert!(json["toolrein"].as_str().is_some_and(|own| own.starts_with('x')));
    assert!(json["toolrein_cut"].as_str().is_some_and(|marker| marker.starts_with(MARKER)));
}

#[test]
fn a_marker_already_in_the_text_exempts_nothing_and_is_kept() {
    let earlier = cut_text(&log(5_000), 4_000);
    let again = cut_text(&earlier, 1_500);
    assert_eq!(again.matches(MARKER).count(), 2, "the earlier loss is still reported: {again}");
    cut_text(&format!("{MARKER}1 of 2 characters here]{}", "x".repeat(500)), 300);
}

#[test]
fn no_escape_and_no_pair_of_surrogates_is_torn() {
    for unit in ["\\ud83e\\udd80", "\\u4e2d\\n", "\\\\\\\"", "a\\ud800", "é\\/"] {
        for max_chars in 250..275 {
            let text = format!("{{\"a\":\"{}\"}}", unit.repeat(300));
            let out = cut_text(&text, max_chars);
            serde_json::from_str::<&RawValue>(&out).expect("valid");
            assert_eq!(
                serde_json::from_str::<Value>(&text).is_ok(),
                serde_json::from_str::<Value>(&out).is_ok()
            );
        }
    }
}

#[test]
fn what_is_nested_too_deep_is_cut_as_text() {
    let deep = |depth: usize| format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(900), "]".repeat(depth));
    cut_json(&deep(100), 700);
    assert!(cut_text(&deep(101), 700).contains("\n[toolrein: "));
}

#[test]
fn an_array_of_scalars_stays_valid_json_up_to_the_bound() {
    // The array itself is one more.
    for (count, is_document) in [(499_999, true), (500_000, false)] {
        let cut = cut(&format!("[{}]", vec!["7"; count].join(",")), 1_000).expect("long");
        assert_eq!(serde_json::from_str::<Value>(&cut.text).is_ok(), is_document);
    }
}

#[test]
fn the_smallest_limit_leaves_room_for_marker_and_document() {
    for text in [
        log(90_000),
        format!("[{}0]", "1234567,".repeat(90_000)),
        format!("{{\"a\":\"{}\"}}", "x".repeat(900_000)),
    ] {
        let out = cut_text(&text, MIN_CHARS);
        assert!(out.contains(MARKER) && out.contains("narrower range or filter]"), "{out}");
        assert_eq!(text.starts_with('1'), serde_json::from_str::<Value>(&out).is_err());
    }
}

/// A text made of up to `count` of these.
fn pieces(these: &[&'static str], count: usize) -> impl Strategy<Value = String> + use<> {
    prop::collection::vec(prop::sample::select(these.to_vec()), 0..count).prop_map(|pieces| pieces.concat())
}

/// Raw JSON of every kind: odd numbers, odd escapes, lone surrogates, layouts.
fn json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        pieces(&["a", "é", "語", " ", "."], 40),
        pieces(&["\\n", "\\\\", "\\\"", "\\u4e2d", "\\ud83e\\udd80", "ab c", "語"], 150),
        pieces(&["error: ", "\\n", "x y z "], 120),
        pieces(&["\\ud800", "\\udc00", "lone"], 20),
        pieces(
            &[
                "\\n",
                "\\/",
                "\\u00e9",
                "\\\\",
                "iVBORw0KGgoAAAANSUhEUgAA+bCdEfGhIjKlMnOpQrStUvWxYz0123456789Z/zX"
            ],
            90
        ),
    ];
    let string = string.prop_map(|inner| format!("\"{inner}\""));
    let scalar =
        prop_oneof!["-?[1-9][0-9]{0,60}", "0\\.[0-9]{1,30}", "[1-9]e[-+]?[0-9]{1,2}", "true|false|null"];
    let key = prop::sample::select(vec!["a", "語", "error", "toolrein", "…", "a key that is rather long"]);
    prop_oneof![2 => string, 1 => scalar].prop_recursive(5, 200, 20, move |inner| {
        let comma = prop_oneof![Just(","), Just(", "), Just(",\n    "), Just(" \t, ")];
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..20), comma.clone())
                .prop_map(|(items, comma)| format!("[{}]", items.join(comma))),
            (prop::collection::vec((key.clone(), inner), 0..20), comma).prop_map(|(members, comma)| {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", members.join(comma))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_text_is_cut_within_the_limit(
        text in pieces(
            &["Error: ", "x", "é", "語", "\t", "\u{1}", "\r\n", "\n", "{", "[", "\"", " ", "some words"], 1_500,
        ),
        max_chars in 0_usize..1_500,
    ) {
        if exceeds(&text, max_chars) {
            cut_text(&text, max_chars);
        } else {
            prop_assert_eq!(cut(&text, max_chars), None);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), lead in "[\\[{\" ]{0,3}", max_chars in 0_usize..60) {
        let _ = cut(&format!("{lead}{text}"), max_chars);
    }

    #[test]
    fn head_and_tail_come_from_the_text(
        text in pieces(&["\n", "é", "some words", "more ", "\nError: disk full"], 1_500),
        max_chars in MIN_CHARS..2_000,
    ) {
        if exceeds(&text, max_chars) {
            let out = cut_text(&text, max_chars);
            let (head, rest) = out.split_once(MARKER).expect("a marker");
            let (_, rest) = rest.split_once("]\n").expect("its end");
            let tail = rest.rsplit_once("…\n").map_or(rest, |(_, tail)| tail);
            prop_assert!(text.starts_with(head) || text.starts_with(&head[..head.len() - 1]));
            prop_assert!(text.ends_with(tail));
            let own = |line: &&str| !line.is_empty() && *line != "…" && !line.starts_with(MARKER);
            prop_assert!(out.lines().filter(own).all(|line| text.contains(line)));
        }
    }

    #[test]
    fn json_stays_json(text in json(), max_chars in MIN_CHARS..1_500) {
        serde_json::from_str::<&RawValue>(&text).expect("the generator writes JSON");
        if exceeds(&text, max_chars) && text.starts_with(['[', '{', '"']) {
            let out = cut_text(&text, max_chars);
            let valid = serde_json::from_str::<&RawValue>(&out);
            prop_assert!(valid.is_ok(), "{}", out);
            prop_assert_eq!(out.chars().next(), text.chars().next());
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&out).is_ok(), "{}", out);
            }
        }
    }

    #[test]
    fn broken_json_is_cut_like_any_text(text in json(), at in any::<prop::sample::Index>(), max_chars in 0_usize..700) {
        let broken: String = text.chars().take(at.index(text.chars().count() + 1)).collect();
        if exceeds(&broken, max_chars) {
            cut_text(&broken, max_chars);
        }
    }
}

#[test]
fn a_stack_trace_in_the_middle_is_kept_whole_and_one_that_is_too_long_by_its_last_line() {
    let trace = |frames: usize| {
        let frames: String =
            (0..frames).map(|n| format!("  File \"a.py\", line {n}, in f{n}\n    g()\n")).collect();
        format!("Traceback (most recent call last):\n{frames}ValueError: no such shop\n")
    };
    for (frames, is_whole) in [(8, true), (400, false)] {
        let out = cut_text(&format!("{}{}{}", log(900), trace(frames), log(2_000)), 6_000);
        assert_eq!(out.contains(&trace(frames)), is_whole, "{out}");
        assert!(out.contains("\nTraceback (most recent call last):\n"));
        assert!(out.contains("\nValueError: no such shop\n"));
    }
}

#[test]
fn a_trace_that_reaches_into_the_tail_is_shown_once() {
    let frames: String = (0..20).map(|n| format!("\tat shop.Cart.f{n}(Cart.java:{n})\n")).collect();
    for rest in (20..120).step_by(3) {
        let text = format!("{}java.io.IOException: disk full\n{frames}{}", log(900), log(rest));
        let out = cut_text(&text, 4_000);
        let shown = out.matches("\tat shop.").count();
        assert!(shown <= 20 && out.matches("IOException").count() == 1, "{out}");
        if out.contains("Exception: disk full\n\tat shop.Cart.f0(") {
            assert!(out.contains(&frames), "{out}");
        }
    }
}

#[test]
fn base64_goes_first_and_often_is_enough() {
    let blob: String = (0..30_000_u32)
        .map(|n| char::from(b"aB3dE6gH9+/kLmNoPqRsTuVwXyZ0124578cCfFiIjJ"[(n * n % 1013 % 42) as usize]))
        .collect();
    let text = format!("{{\"title\":\"a photo\",\"data\":\"{blob}\",\"width\":640}}");
    let whole = cut(&text, 16_000).expect("long");
    assert_eq!(
        whole.text,
        "{\"title\":\"a photo\",\"data\":\"[toolrein: data, 21 KiB, base64, left out]\",\"width\":640}"
    );
    assert_eq!(whole.gone_chars, 30_000);
    let with_log = serde_json::json!({ "log": log(900), "data": blob }).to_string();
    let json = cut_json(&with_log, 4_000);
    assert_eq!(json["data"], "[toolrein: data, 21 KiB, base64, left out]");
    let note_in_log = cut_text(&format!("{}{blob}\n{}", log(10), log(900)), 4_000);
    assert!(note_in_log.contains("\n[toolrein: data, 21 KiB, base64, left out]\n"), "{note_in_log}");
}

#[test]
fn base64_in_a_result_that_fits_goes_above_its_own_bound_alone() {
    let blob = |chars: usize| {
        "iVBORw0KGgoAAAANSUhEUgAA+bCdEfGhIjKlMnOpQrStUvWxYz0123456789Z/zX".repeat(90)[..chars].to_owned()
    };
    assert_eq!(cut(&blob(4_000), 16_000), None);
    assert_eq!(
        cut(&blob(4_001), 16_000).expect("a blob").text,
        "[toolrein: image/png, 3000 bytes, base64, left out]"
    );
    let long = format!("{}\n{}", blob(1_500), log(900));
    assert!(
        cut(&long, 16_000)
            .expect("long")
            .text
            .starts_with("[toolrein: image/png, 1125 bytes, base64, left out]\n")
    );
}
