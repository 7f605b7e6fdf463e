//! Target: a stream's bytes under any chunking, judged; the model gives the same stream whenever it is asked again. Any
//! chunking gives the same bytes and verdicts; a stream on which nothing acted is unchanged; events that were JSON stay
//! JSON.

use crate::reply::has_acted;
use crate::world::{NOW_MS, choices, is_json, judging, lossy, observes};
use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::reply_choice::ReplyChoice;
use engine::judging::Judged;
use engine::pipeline::ReplyPipeline;
use wire::sse::{Piece, Splitter, parse_fields};

const PATIENCE: usize = 3;
const MOST_ROUNDS: usize = 200;

/// The result of judging a stream.
#[derive(PartialEq)]
struct StreamOutcome {
    out: Vec<u8>,
    record: Vec<Judged>,
    rounds: Vec<Bytes>,
    unjudged: usize,
    spoiled: bool,
    errored: bool,
}

pub fn run(input: &[u8]) -> bool {
    let (first, input) = choices(input);
    let (cutting, stream) = choices(input);
    let limits = limits(cutting);
    let whole = judged(first, limits, &[stream]);
    let pieces = cut(stream, cutting);
    let parts = judged(first, limits, &pieces);
    // Where an event is too long for the bounds, the bytes that are held depend on the chunks.
    if whole.unjudged == 0 && parts.unjudged == 0 {
        let both = || format!("whole\n{}\nin parts\n{}", lossy(&whole.out), lossy(&parts.out));
        assert!(whole.record == parts.record, "{:?}\n{:?}\n{}", whole.record, parts.record, both());
        assert!(whole == parts, "{}", both());
    }
    for seen in [&whole, &parts] {
        check(first, stream, seen);
    }
    all_json(stream)
}

fn check(first: u8, stream: &[u8], seen: &StreamOutcome) {
    if observes(first) && !seen.errored {
        assert_eq!(lossy(&seen.out), lossy(stream), "changed while observing");
    }
    let most = (stream.len() + 400) * (2 * seen.rounds.len() + 14) + 4_000;
    assert!(seen.out.len() <= most, "{} became {}", stream.len(), seen.out.len());
    if all_json(stream) && !seen.spoiled {
        assert!(all_json(&seen.out), "no JSON: {}\nbecame\n{}", lossy(stream), lossy(&seen.out));
        for round in &seen.rounds {
            assert!(is_json(&[b"[", round.as_ref(), b"]"].concat()), "a round: {}", lossy(round));
        }
    }
}

/// Whether every event's data is JSON, except that of the end.
fn all_json(stream: &[u8]) -> bool {
    let mut splitter = Splitter::new(usize::MAX);
    let mut pieces = Vec::new();
    splitter.push(Bytes::copy_from_slice(stream), |piece| pieces.push(piece));
    pieces.extend(splitter.finish());
    pieces.iter().all(|piece| {
        let Piece::Event(event) = piece else { return true };
        let fields = parse_fields(event);
        let data = fields.data.trim_ascii();
        data.is_empty() || data == b"[DONE]" || is_json(data)
    })
}

fn limits(cutting: u8) -> Limits {
    if cutting >= 240 {
        Limits { event: 1200, held: 600, reply: 1200 }
    } else {
        Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 }
    }
}

/// The stream in pieces whose lengths a byte decides.
fn cut(stream: &[u8], cutting: u8) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = stream;
    let mut state = u32::from(cutting) + 1;
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = match cutting % 4 {
            0 => 1,
            1 => (state >> 24) as usize % 7,
            2 => (state >> 24) as usize,
            _ => (state >> 22) as usize,
        };
        let (piece, after) = rest.split_at(length.clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn judged(first: u8, limits: Limits, pieces: &[&[u8]]) -> StreamOutcome {
    let mut judge = ReplyPipeline::new(judging(first), CHAT, Form::Streamed, limits, Options::default());
    let mut out = Vec::new();
    let mut rounds = Vec::new();
    let mut errored = false;
    loop {
        for piece in pieces {
            push(&mut judge, piece, &mut out, &mut errored);
        }
        let mut ending = judge.finish(NOW_MS, &mut out);
        while ending == Ending::Refused {
            errored |= takes_error(&mut judge, &mut out);
            ending = judge.finish(NOW_MS, &mut out);
        }
        let Ending::Reask { choice, hidden: round } = ending else { break };
        if observes(first) {
            break;
        }
        rounds.push(round);
        assert!(rounds.len() < MOST_ROUNDS, "no end");
        if rounds.len() > PATIENCE {
            judge.judging_mut().land();
        }
        judge.continue_with(choice);
    }
    // A call that two readers understand differently is rewritten.
    let is_edited = judge.choices().iter().any(ReplyChoice::is_edited);
    let spoiled = judge.broken_off().is_some();
    let untouched = !has_acted(judge.judging()) && !is_edited && rounds.is_empty() && !errored && !spoiled;
    let out = out.concat();
    if untouched && judge.unjudged().is_empty() {
        assert_eq!(lossy(&out), lossy(&pieces.concat()), "changed without a reason");
    }
    let unjudged = judge.unjudged().len();
    StreamOutcome { out, record: judge.judging().record.clone(), rounds, unjudged, spoiled, errored }
}

fn push(judge: &mut ReplyPipeline, piece: &[u8], out: &mut Vec<Bytes>, errored: &mut bool) {
    judge.push(Bytes::copy_from_slice(piece), NOW_MS, out);
    *errored |= takes_error(judge, out);
}

/// As the program does where no other form of the request is worth a try.
fn takes_error(judge: &mut ReplyPipeline, out: &mut Vec<Bytes>) -> bool {
    let is_error = judge.refusal().is_some();
    judge.let_refusal_stand(NOW_MS, out);
    is_error
}
