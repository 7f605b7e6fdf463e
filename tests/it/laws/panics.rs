//! No input makes the core panic: arbitrary bytes, and recorded bodies that were broken on the way.

use super::recordings::{Kind, Recording, own};
use super::world::{Facts, NOW_MS, forms, low, policies, read, try_read};
use bytes::Bytes;
use dialects::CHAT;
use dialects::chat::completion::Reply;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::variant::Placement;
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::OnceLock;

/// How a body is broken.
#[derive(Clone, Debug)]
enum Harm {
    Flip(Index, u8),
    Cut(Index),
    /// A piece of the body once more at another place, such as a second key.
    Again(Index, Index, Index),
    Insert(Index, &'static [u8]),
    Nest(Index, u16),
}

const BURRS: [&[u8]; 14] = [
    b"\0",
    b"\\u0000",
    b"\\ud83d",
    b"\\ude00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\"",
    b"\\",
    b"{",
    b"]",
    b",",
    b"null",
    b"\"content\":null,",
    b"\"tool_calls\":[{\"index\":4294967295,\"function\":{\"arguments\":{}}}],",
];

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Harm::Flip(at, bits)),
        1 => any::<Index>().prop_map(Harm::Cut),
        3 => (any::<Index>(), any::<Index>(), any::<Index>()).prop_map(|(a, b, to)| Harm::Again(a, b, to)),
        4 => (any::<Index>(), 0..BURRS.len()).prop_map(|(at, burr)| Harm::Insert(at, BURRS[burr])),
        1 => (any::<Index>(), 100..140_u16).prop_map(|(at, depth)| Harm::Nest(at, depth)),
    ]
}

fn harmed(mut bytes: Vec<u8>, harms: &[Harm]) -> Vec<u8> {
    for harm in harms {
        let len = bytes.len();
        let place = |at: &Index| if len == 0 { 0 } else { at.index(len) };
        match harm {
            _ if bytes.is_empty() => {}
            Harm::Flip(at, bits) => bytes[place(at)] ^= bits,
            Harm::Cut(at) => bytes.truncate(place(at)),
            Harm::Again(a, b, to) => {
                let (start, end) =
                    (place(a).min(place(b)), place(a).max(place(b)).min(place(a).min(place(b)) + 300));
                let piece = bytes[start..end].to_vec();
                bytes.splice(place(to)..place(to), piece);
            }
            Harm::Insert(at, burr) => drop(bytes.splice(place(at)..place(at), burr.iter().copied())),
            Harm::Nest(at, depth) => {
                let nest = [b"[".repeat(*depth as usize), b"]".repeat(*depth as usize)].concat();
                bytes.splice(place(at)..place(at), nest);
            }
        }
    }
    bytes
}

/// The recordings that are short enough to be broken often.
fn short() -> &'static [Recording] {
    static SHORT: OnceLock<Vec<Recording>> = OnceLock::new();
    SHORT.get_or_init(|| own().into_iter().filter(|recording| recording.bytes.len() < 5_000).collect())
}

proptest! {
    #![proptest_config(crate::laws::with_cases(300))]

    #[test]
    fn recorded_bodies_broken_on_the_way_make_nothing_panic(
        at in any::<Index>(), harms in prop::collection::vec(harm(), 1..4), low_limits in any::<bool>(),
    ) {
        let recording = &short()[at.index(short().len())];
        let bytes = harmed(recording.bytes.clone(), &harms);
        match recording.kind {
            Kind::Request => as_request(&bytes, usize::from(low_limits)),
            Kind::Reply => as_reply(&bytes),
            Kind::Stream => as_stream(&bytes),
        }
    }

    #[test]
    fn arbitrary_bytes_make_nothing_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\":,\\\\ u0d8netrolcs]{0,80}") {
        for bytes in [bytes, text.clone().into_bytes(), format!("{{\"messages\":[{text}]}}").into_bytes(),
            format!("{{\"choices\":[{{\"delta\":{{{text}}}}}]}}").into_bytes()] {
            as_request(&bytes, 1);
            as_reply(&bytes);
            as_stream(&bytes);
            as_stream(&[b"data: ", bytes.as_slice(), b"\n\n"].concat());
        }
    }
}

#[test]
fn nesting_beyond_every_bound_is_refused_without_recursion() {
    for open in ["[", "{\"a\":", "[{\"content\":", "{\"messages\":["] {
        let deep = open.repeat(10_000);
        for body in [deep.clone(), format!("{{\"messages\":[{deep}"), format!("{{\"choices\":[{deep}")] {
            assert!(dialects::chat::parse(body.as_bytes()).is_err());
            as_request(body.as_bytes(), 0);
            as_reply(body.as_bytes());
            as_stream(format!("data: {body}\n\n").as_bytes());
        }
    }
    // Deep arguments are deep only once they are decoded.
    for depth in [100, 127, 128, 129, 10_000] {
        let arguments = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let result = format!("{}{}", "{\\\"a\\\":".repeat(depth), "1}".repeat(depth));
        as_request(format!(r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"f","arguments":"{arguments}"}}}}]}},{{"role":"tool","tool_call_id":"a","content":"{result}"}}]}}"#).as_bytes(), 1);
        as_reply(format!(r#"{{"choices":[{{"message":{{"tool_calls":[{{"id":"a","function":{{"name":"f","arguments":"{arguments}"}}}}]}}}}]}}"#).as_bytes());
    }
}

/// Everything that is done with a request; what was whole before stays JSON.
fn as_request(bytes: &[u8], set: usize) {
    let body = Bytes::copy_from_slice(bytes);
    let Some(reading) = try_read(&body, policies(set), &Facts::default()) else { return };
    let rounds = [Bytes::from_static(b"{\"role\":\"user\",\"content\":\"\"}")];
    for placement in [Placement::System, Placement::Suffix, Placement::Leading] {
        for (form, variant) in forms(placement, &rounds) {
            let out = reading.write(&variant);
            assert!(dialects::chat::parse(&out).is_ok(), "{form}\n{}", super::world::lossy(&out));
        }
    }
}

fn strict_judging() -> Judging {
    let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b"},{"id":"c"}]}]}"#;
    read(&body.into(), low(), &Facts::default()).judging()
}

fn as_reply(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    let parses = Reply::parse(bytes).is_ok();
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 26 };
    let mut judge = ReplyPipeline::new(strict_judging(), CHAT, Form::Whole, limits, Options::default());
    let mut out = Vec::new();
    judge.push(body.clone(), NOW_MS, &mut out);
    let mut ending = judge.finish(NOW_MS, &mut out);
    if let Ending::Reask { choice, .. } = ending {
        judge.judging_mut().land();
        judge.continue_with(choice);
        judge.push(body, NOW_MS, &mut out);
        ending = judge.finish(NOW_MS, &mut out);
    }
    if judge.is_changed() {
        assert!(Reply::parse(&out.concat()).is_ok(), "{}", super::world::lossy(&out.concat()));
    } else if ending == Ending::Complete {
        assert_eq!(super::world::lossy(&out.concat()), super::world::lossy(bytes));
    }
    assert!(parses || !judge.is_changed());
}

fn as_stream(bytes: &[u8]) {
    for held in [1 << 20, 600] {
        let limits = Limits { event: held * 2, held, reply: held * 2 };
        let mut judge =
            ReplyPipeline::new(strict_judging(), CHAT, Form::Streamed, limits, Options::default());
        let mut out = Vec::new();
        for chunk in bytes.chunks(97) {
            judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
        }
        if let Ending::Reask { choice, .. } = judge.finish(NOW_MS, &mut out) {
            judge.judging_mut().land();
            judge.continue_with(choice);
            judge.push(Bytes::copy_from_slice(bytes), NOW_MS, &mut out);
            judge.finish(NOW_MS, &mut out);
        }
    }
}
