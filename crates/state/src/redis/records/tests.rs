//! Records written, read, and broken.

use super::*;
use crate::claims::ClaimRecord;
use crate::tallies::Part;
use bytes::Bytes;
use model::Stopped;
use model::account::{Carried, Tally};
use model::adaptation::{Adaptation, Adaptations};
use model::assembled::Assembled;
use model::pins::Pinned;
use model::plan::approval::Confirmation;
use model::released::Release;
use model::store::{Evidence, HiddenExchange, LengthRefusal, SentExchanges, Stop};
use model::uses::Use;
use std::fmt::Debug;
use std::sync::Arc;

const ABOUT: (RecordKind, Hash) = (RecordKind::HiddenExchange, Hash(7));

fn keys(seed: u8) -> StoreKeys {
    StoreKeys { names: HashKey::fixed(seed.into()), records: [seed; 32] }
}

fn seals() -> Seals {
    Seals::new(&keys(1))
}

fn comes_back<R: Record + PartialEq + Debug>(record: &R) {
    let forms = seals().forms(ABOUT, record);
    assert_eq!(forms[0], seals().seal(ABOUT, record), "always the same bytes");
    forms.iter().for_each(|sealed| comes_back_from(record, sealed));
}

fn comes_back_from<R: Record + PartialEq + Debug>(record: &R, sealed: &[u8]) {
    assert_eq!(seals().open::<R>(ABOUT, sealed).as_ref(), Some(record));
    let others = [(RecordKind::Question, Hash(7)), (RecordKind::HiddenExchange, Hash(8))];
    assert!(others.iter().all(|about| seals().open::<R>(*about, sealed).is_none()), "under another name");
    assert_eq!(Seals::new(&keys(2)).open::<R>(ABOUT, sealed), None, "under another secret");
    for at in 0..sealed.len() {
        let mut broken = sealed.to_vec();
        broken[at] ^= 1;
        assert_eq!(seals().open::<R>(ABOUT, &broken), None, "one bit of byte {at}");
        assert_eq!(seals().open::<R>(ABOUT, &sealed[..at]), None, "cut at {at}");
    }
}

fn round() -> HiddenExchange {
    let messages = br#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","n":1.50}]},{"role":"tool","tool_call_id":"a","content":"no"}"#;
    HiddenExchange { message_key: Hash(u128::MAX - 5), messages: Bytes::from_static(messages) }
}

fn question() -> Confirmation {
    let call = Assembled {
        id: b"call_1".to_vec(),
        name: b"pay".to_vec(),
        arguments: br#"{\"to\" :\"\u00e9\"}"#.to_vec(),
        extra: vec![(b"extra_content".to_vec(), br#"{"a":1.0}"#.to_vec())],
        custom: true,
        ..Assembled::default()
    };
    Confirmation {
        token: "3K7PQR".to_owned(),
        words: vec!["yes".to_owned()],
        calls: vec![call],
        expires_ms: 1_700_000_000_000,
        ..Confirmation::default()
    }
}

#[test]
fn every_record_is_read_back_as_written_and_a_broken_one_is_refused() {
    comes_back(&Release { context: Hash(8), hidden: Hash(u128::MAX - 3), at_ms: 1_700_000_000_123 });
    comes_back(&round());
    comes_back(&Arc::new(question()));
    comes_back(&Arc::new(Confirmation { extends: [false, true, false], ..question() }));
    comes_back(&ClaimRecord { request: Hash(3), at_ms: 9 });
    comes_back(&LengthRefusal { messages: 40, history: Hash(4), most_chars: None });
    comes_back(&LengthRefusal { messages: 40, history: Hash(4), most_chars: Some(900) });
    comes_back(&SeenMarker);
    comes_back(&SentExchanges { history: Hash(6), rounds: 7 });
    comes_back(&Stop { what: Stopped::Conversation, id: "talk 1".to_owned() });
    comes_back(&Stop { what: Stopped::Caller, id: Hash(5).to_hex() });
    let used = Use { call: Hash(1), request: Hash(8), nth: 2, at_ms: 1_780_000_000_000, tries: 3, calls: 4 };
    comes_back(&used);
    let older = format!("{}1780000000000 2 3 4", Hash(1));
    assert_eq!(
        Use::from_body(older.as_bytes()),
        Some(Use { request: Hash(0), ..used }),
        "as an older version wrote it"
    );
}

#[test]
fn a_record_shows_nothing_of_what_it_holds_but_its_length_and_is_another_one_under_another_key() {
    let (exchange, other) = (round(), HiddenExchange { message_key: Hash(1), ..round() });
    let sealed = seals().seal(ABOUT, &exchange);
    let body = exchange.to_body().unwrap();
    // The version, and a tag of 16 bytes.
    assert_eq!(sealed.len(), body.len() + 17);
    let shares = |one: &[u8], with: &[u8]| one.windows(4).any(|four| with.windows(4).any(|it| it == four));
    assert!(!shares(&sealed, &body));
    assert!(!shares(&sealed[1..], &seals().seal(ABOUT, &other)[1..]), "nor what two have in common");
    assert!(!shares(&sealed[1..], &seals().seal((ABOUT.0, Hash(8)), &exchange)[1..]));
}

#[test]
fn evidence_about_a_model_is_read_back_and_an_unknown_refusal_is_none() {
    let refused = Adaptation::Tools | Adaptation::Placement;
    let accepted = Adaptation::StreamOptions.into();
    let evidence = Evidence { caller: Hash(u128::MAX - 9), refused, accepted, at_ms: 1_700_000_000_123 };
    comes_back(&evidence);
    comes_back(&Evidence { refused: Adaptations::all() - Adaptation::Overflow, ..evidence });
    comes_back(&Evidence { refused: Adaptations::empty(), accepted: Adaptations::empty(), ..evidence });
    let caller = "0".repeat(DIGITS);
    for (rest, is_evidence) in [
        ("5 tools ", true),
        ("5 tools choice", true),
        ("5 kindness ", false),
        ("5 tools", false),
        ("5  x y", false),
    ] {
        assert_eq!(
            Evidence::from_body(format!("{caller}{rest}").as_bytes()).is_some(),
            is_evidence,
            "{rest}"
        );
    }
}

#[test]
fn a_stored_question_with_invalid_json_is_not_read() {
    let mut body = String::from_utf8(Arc::new(question()).to_body().unwrap()).unwrap();
    assert!(Arc::<Confirmation>::from_body(body.as_bytes()).is_some());
    for (good, bad) in
        [("\"pay\"", r#""pay\",\"x\":\"""#), (r#"{\"a\":1.0}"#, "nonsense"), ("[\"yes\"]", "{}")]
    {
        assert!(body.contains(good), "{body}");
        let broken = body.replace(good, bad);
        assert!(Arc::<Confirmation>::from_body(broken.as_bytes()).is_none(), "{broken}");
    }
    body.truncate(body.len() / 2);
    assert!(Arc::<Confirmation>::from_body(body.as_bytes()).is_none());
    let mut odd = question();
    odd.calls[0].id = vec![0xff];
    assert_eq!(Arc::new(odd).to_body(), None, "not UTF-8: not shared");
}

#[test]
fn numbers_are_plain_digits() {
    for wrong in ["", "+1", "-1", "1.0", " 1", "18446744073709551616"] {
        assert_eq!(Release::from_body(format!("{0}{0}{wrong}", Hash(1)).as_bytes()), None, "{wrong:?}");
    }
    for wrong in ["5 1", "5 1 2", "5 1 2 3 4", "5 1 2 ", "5 4294967296 1 1", "5 1 1 4294967296"] {
        let body = format!("{}{wrong}", Hash(1));
        assert_eq!(Use::from_body(body.as_bytes()), None, "{wrong:?}");
    }
}

/// Processes of another version read these bodies, before and after an update: a body that changes needs a new version of the
/// format, and a reader of both.
#[test]
fn bodies_are_the_bytes_that_other_versions_read() {
    let (one, two) = ("00000000000000000000000000000001", "00000000000000000000000000000002");
    let text = |record: &dyn Fn() -> Option<Vec<u8>>| String::from_utf8(record().unwrap()).unwrap();
    let release = Release { context: Hash(1), hidden: Hash(2), at_ms: 5 };
    assert_eq!(text(&|| release.to_body()), format!("{one}{two}5"));
    let exchange = HiddenExchange { message_key: Hash(1), messages: Bytes::from_static(b"{}") };
    assert_eq!(text(&|| exchange.to_body()), format!("{one}{{}}"));
    let (refused, accepted) = (Adaptation::Tools | Adaptation::Placement, Adaptation::StreamOptions.into());
    let evidence = Evidence { caller: Hash(1), refused, accepted, at_ms: 5 };
    assert_eq!(text(&|| evidence.to_body()), format!("{one}5 tools,late_system usage_in_streams"));
    let overflow = LengthRefusal { messages: 40, history: Hash(1), most_chars: Some(900) };
    assert_eq!(text(&|| overflow.to_body()), format!("{one}40:900"));
    assert_eq!(text(&|| SentExchanges { history: Hash(1), rounds: 7 }.to_body()), format!("{one}7"));
    let used = Use { call: Hash(1), request: Hash(2), nth: 3, at_ms: 4, tries: 5, calls: 6 };
    assert_eq!(text(&|| used.to_body()), format!("{one}{two}4 3 5 6"));
    let pinned = Pinned { tool: Hash(1), definition: Hash(2) };
    assert_eq!(text(&|| pinned.to_body()), format!("{one}{two}"));
    assert_eq!(text(&|| ClaimRecord { request: Hash(1), at_ms: 5 }.to_body()), format!("{one}5"));
    let stop = Stop { what: Stopped::Caller, id: "a".to_owned() };
    assert_eq!(text(&|| stop.to_body()), "pa");
    let asked = Confirmation { token: "T".to_owned(), calls: vec![Assembled::default()], ..question() };
    assert_eq!(
        text(&|| Arc::new(asked.clone()).to_body()),
        r#"{"token":"T","words":["yes"],"calls":[{"id":"","name":"","arguments":"","extra":[],"legacy":false,"custom":false}],"expires_ms":1700000000000}"#
    );
    let carried = Arc::new(Carried { at_ms: 5, left: vec![("images".into(), 2)], ..Carried::default() });
    assert_eq!(
        text(&|| carried.to_body()),
        r#"{"turn":[0,0,0,0,0,0],"conversation":[0,0,0,0,0,0],"at_ms":5,"day":0,"marks":[[0,0,0,0,0,0],[0,0,0,0,0,0],[0,0,0,0,0,0]],"bought":[0,0,0],"once":[0,[0,0,0],0],"pins":[],"left":[["images",2]]}"#
    );
    let part = Part { of: Hash(1), tally: Tally { bought: 7, ..Tally::default() } };
    let nothing = "[0,0,0,0,0,0]";
    assert_eq!(text(&|| part.to_body()), format!("[\"{one}\",{nothing},{nothing},7,{nothing},0]"));
}
