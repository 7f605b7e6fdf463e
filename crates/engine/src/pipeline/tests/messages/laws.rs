//! Laws over made replies: any chunking gives the same bytes, no client finds a blocked call, and a stream that is in order stays
//! in order. Also over streams whose events are lost, repeated or swapped.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;

const INPUTS: [&str; 6] = [
    r#"{"city":"berlin"}"#,
    r#"{"city":"paris"}"#,
    r#"{"city":"rome"}"#,
    "{}",
    "",
    r#"{"city":"caf\u00e9 \ud83d\ude00"#,
];

/// How a block is made.
#[derive(Clone, Debug)]
enum SampleBlock {
    Text(&'static str),
    Thinking,
    Hosted,
    Programmatic(&'static str),
    Call(&'static str, usize),
}

fn arb_block() -> impl Strategy<Value = SampleBlock> {
    prop_oneof![
        2 => select(&["", "I look.", "caf\u{e9} \\ \"x\""][..]).prop_map(SampleBlock::Text),
        1 => Just(SampleBlock::Thinking),
        1 => Just(SampleBlock::Hosted),
        1 => select(&INPUTS[..4]).prop_map(SampleBlock::Programmatic),
        4 => (select(&INPUTS[..]), 1..9usize).prop_map(|(input, size)| SampleBlock::Call(input, size)),
    ]
}

/// The events of a reply with these blocks.
fn stream_of(made: &[SampleBlock], reason: &str) -> Vec<String> {
    let block = |(at, made): (usize, &SampleBlock)| {
        let at = at as u64;
        match made {
            SampleBlock::Text(text) => text_block(at, &[text]),
            SampleBlock::Thinking => block(
                at,
                &json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[json!({"type": "signature_delta", "signature": "c2ln"})],
            ),
            SampleBlock::Hosted => block(
                at,
                &json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
                &[json!({"type": "input_json_delta", "partial_json": "{\"query\":\"x\"}"})],
            ),
            SampleBlock::Programmatic(input) => {
                let mut call =
                    tool_use(&format!("toolu_{at}"), "get_weather", &serde_json::from_str(input).unwrap());
                call["caller"]["type"] = "code_execution_20260120".into();
                block(at, &call, &[])
            }
            SampleBlock::Call(input, size) => {
                let characters: Vec<char> = input.chars().collect();
                let pieces: Vec<String> =
                    characters.chunks(*size).map(|piece| piece.iter().collect()).collect();
                call_block(at, "get_weather", &pieces.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    };
    let blocks: Vec<String> = made.iter().enumerate().map(block).collect();
    let stream = message("msg_1", &blocks, Some(reason));
    stream.split_inclusive("\n\n").map(str::to_owned).collect()
}

fn arb_stream() -> impl Strategy<Value = Vec<String>> {
    let reason = select(&["tool_use", "end_turn", "max_tokens", "pause_turn"][..]);
    (prop::collection::vec(arb_block(), 0..6), reason).prop_map(|(made, reason)| stream_of(&made, reason))
}

/// What comes out of a stream in chunks of these sizes, and of the re-asks after it.
fn outcome_of(stream: &str, sizes: &[usize]) -> (String, Ending) {
    let mut judge = judge(PARIS);
    let (mut rest, mut chunks) = (stream.as_bytes(), Vec::new());
    for size in sizes.iter().cycle() {
        let (chunk, left) = rest.split_at((*size).min(rest.len()));
        chunks.push(chunk);
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
    let (mut out, mut ending) = run(&mut judge, chunks);
    if matches!(ending, Ending::Reask { .. }) {
        judge.continue_with(0);
        let (more, end) = whole(&mut judge, &text_reply("It is sunny."));
        (out, ending) = (out + &more, end);
    }
    (out, ending)
}

fn assert_no_paris(out: &str) -> Result<(), TestCaseError> {
    for reading in readings(out) {
        prop_assert!(!reading.contains("paris"), "{reading} in {out}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_bytes_and_no_client_finds_a_blocked_call(
        stream in arb_stream(),
        sizes in prop::collection::vec(1..200usize, 1..6),
    ) {
        let stream = stream.concat();
        let (out, ending) = outcome_of(&stream, &[stream.len()]);
        prop_assert_eq!(&outcome_of(&stream, &sizes), &(out.clone(), Ending::Complete));
        prop_assert_eq!(ending, Ending::Complete);
        assert_no_paris(&out)?;
        let flaws = flaws(&out);
        prop_assert!(flaws.is_empty(), "{flaws:?} in {out}");
        let has_calls = !calls(&out).is_empty();
        prop_assert_eq!(reasons(&out).len(), 1);
        prop_assert!(has_calls || reasons(&out)[0] != "tool_use");
        let is_expected = |call: &&(String, String)| call.1.contains("berlin");
        let expected = calls(&stream);
        prop_assert_eq!(calls(&out).iter().filter(is_expected).count(), expected.iter().filter(is_expected).count());
    }

    #[test]
    fn no_client_finds_a_blocked_call_where_events_are_lost_repeated_or_swapped(
        stream in arb_stream(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4u8), 1..4),
        sizes in prop::collection::vec(1..200usize, 1..6),
    ) {
        let mut events = stream;
        for (one, other, change) in changes {
            if events.is_empty() {
                break;
            }
            let (one, other) = (one.index(events.len()), other.index(events.len()));
            match change {
                0 => drop(events.remove(one)),
                1 => events.insert(other, events[one].clone()),
                2 => events.swap(one, other),
                _ => events[one] = events[one].replace("\"index\":1", "\"index\":0"),
            }
        }
        let stream = events.concat();
        let (out, ending) = outcome_of(&stream, &[stream.len().max(1)]);
        prop_assert_eq!(&outcome_of(&stream, &sizes), &(out.clone(), ending));
        assert_no_paris(&out)?;
    }

    #[test]
    fn a_whole_reply_and_the_stream_that_says_the_same_become_each_other(stream in arb_stream()) {
        let stream = stream.concat();
        let mut to_whole = pipeline(judging(None, false), Form::Whole, Options::default());
        to_whole.begin(Form::Streamed, 200);
        let (body, ending) = whole(&mut to_whole, &stream);
        prop_assert_eq!(ending, Ending::Complete);
        let mut to_stream = pipeline(judging(None, false), Form::Streamed, Options::default());
        to_stream.begin(Form::Whole, 200);
        let (again, ending) = whole(&mut to_stream, &body);
        prop_assert_eq!(ending, Ending::Complete);
        prop_assert_eq!(flaws(&again), flaws(&stream));
        prop_assert_eq!(texts(&again), texts(&stream));
        prop_assert_eq!(reasons(&again), reasons(&stream));
        let spelled = |calls: Vec<(String, String)>| {
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
            calls.iter().map(|(tool, text)| (tool.clone(), value(text))).collect::<Vec<_>>()
        };
        prop_assert_eq!(spelled(calls(&again)), spelled(calls(&stream)));
        prop_assert_eq!(spelled(calls(&body)), spelled(calls(&stream)));
    }
}
