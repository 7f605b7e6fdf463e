//! Every kind of change, planned by hand and found at its message.

use super::*;
use crate::config::{Overrides, Source};
use crate::replay::one::{Which, choose};
use bytes::Bytes;
use dialects::variant::{PlannedRequest, Variant};
use model::plan::{Dropped, Edit, Frame};
use std::io::Write as _;
use wire::escaped_text::EscapedText;

const TALK: &str = r#"{"model":"m","messages":[
{"role":"system","content":"s"},
{"role":"user","content":"first question"},
{"role":"assistant","content":"first answer"},
{"role":"user","content":"second question"},
{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"read","arguments":"{}"}},{"id":"b","function":{"name":"list","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"a","content":"a long old result"},
{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"one"},{"type":"image_url"},{"type":"text","text":"two"}]},
{"role":"assistant","content":"done"}]}"#;

/// The explanation of the conversation with this plan, each message in one line.
fn lines_of(
    placement: Placement,
    changes: Vec<(usize, Change)>,
    gone: Option<std::ops::Range<usize>>,
) -> Vec<String> {
    let explained = explained(placement, changes, gone);
    explained.messages.iter().map(line_of).collect()
}

fn line_of(shown: &Shown) -> String {
    let texts = shown.pieces.iter().map(|piece| match (&piece.before, &piece.after) {
        (Some(before), Some(after)) if before == after => before.clone(),
        (before, after) => {
            format!("{}>{}", before.as_deref().unwrap_or("-"), after.as_deref().unwrap_or("-"))
        }
    });
    let acts = shown.acts.iter().map(|act| format!("{}{}", act.action, if act.applies { "" } else { "?" }));
    let texts: Vec<String> = texts.collect();
    let acts: Vec<String> = acts.collect();
    let tool = shown.tool.as_deref().unwrap_or_default();
    format!("{} {:?} {tool} [{}] {}", shown.message, shown.fate, texts.join("|"), acts.join(" "))
}

fn explained(
    placement: Placement,
    changes: Vec<(usize, Change)>,
    gone: Option<std::ops::Range<usize>>,
) -> Explained {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TALK.replace('\n', "").as_bytes()).unwrap();
    let chosen = choose(file.path(), &Which::First, 1 << 20).unwrap();
    let body = chosen.recording.body.clone();
    let body = Bytes::from(
        [&body[..body.len() - r#",{"role":"assistant","content":"done"}]}"#.len()], b"]}"].concat(),
    );
    let request = dialects::chat::parse(&body).unwrap();
    let edits = changes.into_iter().map(|(index, change)| Edit {
        item: ItemId::of_client(index),
        decided: 6,
        policy: "budget",
        change,
    });
    let mut plan = Plan::default();
    plan.edits = edits.collect();
    plan.dropped.extend(gone.map(|messages| Dropped { policy: "budget", messages, decided: 6 }));
    let sent =
        dialects::chat::write(&PlannedRequest::new(&body, &request, &plan), &Variant::plain(placement));
    let sent = Some(sent.join());
    let seen = Observations {
        history: 7,
        plan: plan.clone(),
        placement: Some(placement),
        sent,
        ..Observations::default()
    };
    let config = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    explain(&config, &chosen, &seen, None)
}

fn by(text: &str) -> EscapedText {
    text.into()
}

fn notice(text: &str) -> Change {
    Change::Notice { text: text.to_owned(), word: "notice" }
}

#[test]
fn a_conversation_that_nothing_is_done_to_is_the_same_on_both_sides() {
    let lines = lines_of(Placement::System, vec![], None);
    assert_eq!(lines[0], "0 Same  [s] ");
    assert_eq!(lines[4], "4 Same  [] ");
    assert_eq!(lines[5], "5 Same read [a long old result] ");
    assert_eq!(lines[6], r#"6 Same list [one|{"type":"image_url"}|two] "#);
    assert_eq!((&*lines[7], lines.len()), ("7 Reply  [done>-] ", 8));
}

#[test]
fn each_text_is_shown_beside_its_final_form_and_the_change_that_applied() {
    let lines = lines_of(
        Placement::System,
        vec![
            (5, Change::Shorten { text: 0, by: by("short"), gone_chars: 12 }),
            (6, Change::BlockText { text: 0, by: by("kept from you"), gone_chars: 3 }),
            (6, Change::Surround { text: 1, frame: Frame::new("<", ">") }),
            (6, Change::Remark { word: "seen", of: None }),
            (5, Change::Clear { text: 0, by: by("cleared"), gone_chars: 17 }),
        ],
        None,
    );
    assert_eq!(lines[5], "5 Changed read [a long old result>cleared] shortened? cleared");
    assert_eq!(
        lines[6],
        r#"6 Changed list [one>kept from you|{"type":"image_url"}|two><two>] text_blocked annotated seen?"#
    );
}

#[test]
fn dropped_messages_are_still_shown_and_pointers_to_them_are_replaced() {
    let changes = vec![
        (2, notice("gone with it")),
        (5, Change::Shorten { text: 0, by: by("short"), gone_chars: 12 }),
        (5, Change::Point { text: 0, by: by("see there"), gone_chars: 8, original: ItemId::of_client(1) }),
        (6, notice("turns are gone")),
    ];
    let lines = lines_of(Placement::System, changes, Some(1..3));
    assert_eq!(lines[1], "1 Dropped  [first question>-] dropped");
    assert_eq!(lines[2], "2 Dropped  [first answer>-] dropped");
    assert_eq!(lines[3], "3 Same  [second question] ");
    assert!(lines[5].starts_with("5 Changed read [a long old result>short]"), "{}", lines[5]);
    assert_eq!(lines[7], "6 Added  [->turns are gone] ");
    assert_eq!(lines.len(), 9);
}

#[test]
fn notices_are_found_wherever_they_are_placed() {
    let notices = || vec![(5, notice("five")), (6, notice("six")), (6, notice("again"))];
    let lines = lines_of(Placement::System, notices(), None);
    assert_eq!((&*lines[6], &*lines[8]), ("5 Added  [->five] ", "6 Added  [->six\n\nagain] "));
    let lines = lines_of(Placement::Suffix, notices(), None);
    assert_eq!(lines[5], "5 Changed read [a long old result>a long old result\n\nfive] notice");
    assert!(lines[6].ends_with("two>two\n\nsix\n\nagain] notice notice"), "{}", lines[6]);
    let lines = lines_of(Placement::Leading, notices(), None);
    assert_eq!(lines[0], "0 Changed  [s>s\n\nsix\n\nagain] ");
    assert_eq!(lines[5], "5 Same read [a long old result] notice?");
    assert!(lines[6].ends_with("notice notice"), "{}", lines[6]);
}

#[test]
fn the_tokens_saved_by_each_policy_add_up_to_the_total() {
    let changes = vec![
        (5, Change::Shorten { text: 0, by: by("short"), gone_chars: 12 }),
        (6, notice("a notice of some words")),
        (6, Change::Surround { text: 1, frame: Frame::new("before it", "after it") }),
    ];
    let explained = explained(Placement::System, changes, Some(1..3));
    let totals = explained.totals;
    let saved: i64 = explained.policies.iter().map(|sum| sum.saved_tokens).sum();
    let rounding = 4;
    let really = totals.tokens_before as i64 - totals.tokens_after as i64;
    assert!((saved - really).abs() <= rounding, "{saved} {really}");
    assert_eq!((totals.messages_before, totals.messages_after), (7, 6));
}
