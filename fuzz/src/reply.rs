//! Target: a whole reply's bytes, judged; the model gives the same reply whenever it is asked again. A reply on which
//! nothing acted stays unchanged; JSON stays JSON; the client sees the released calls and no other.

use crate::world::{NOW_MS, choices, is_json, judging, lossy, observes};
use bytes::Bytes;
use dialects::CHAT;
use dialects::chat::completion::Reply;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::reply_choice::ReplyChoice;
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use model::plan::decision::Decision;
use serde_json::Value;

/// How often the model is asked again before the final-answer request.
const PATIENCE: usize = 3;
/// Most model calls of a client request: the final answer is the last.
const MOST_ROUNDS: usize = 200;

pub fn run(input: &[u8]) -> bool {
    let (choices, body) = choices(input);
    let body = Bytes::copy_from_slice(body);
    let reads = Reply::parse(&body).is_ok();
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 26 };
    let mut judge = ReplyPipeline::new(judging(choices), CHAT, Form::Whole, limits, Options::default());
    let mut rounds = 0;
    let mut out = Vec::new();
    judge.push(body.clone(), NOW_MS, &mut out);
    let mut ending = judge.finish(NOW_MS, &mut out);
    while let Ending::Reask { choice, hidden: round } = ending {
        assert!(!observes(choices), "asks again while observing");
        let valid = is_json(&[b"[", round.as_ref(), b"]"].concat());
        assert!(valid || !is_json(&body), "a round that is no JSON: {}", lossy(&round));
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "no end");
        if rounds > PATIENCE {
            judge.judging_mut().land();
        }
        judge.continue_with(choice);
        judge.push(body.clone(), NOW_MS, &mut out);
        ending = judge.finish(NOW_MS, &mut out);
    }
    // A call that two readers understand differently is rewritten, or refused; an error waits for a decision.
    if ending != Ending::Complete {
        return matches!(ending, Ending::BrokenOff(_));
    }
    let acted = has_acted(judge.judging()) || judge.choices().iter().any(ReplyChoice::is_edited);
    let out = out.concat();
    if observes(choices) || (!acted && rounds == 0) {
        assert!(!judge.is_changed(), "changed without a reason: {}", lossy(&body));
    }
    if !judge.is_changed() {
        assert_eq!(lossy(&out), lossy(&body));
        return reads;
    }
    assert!(reads);
    assert!(Reply::parse(&out).is_ok(), "not read again: {}", lossy(&out));
    assert!(out.len() <= body.len() * (2 * rounds + 14) + 4_000, "{} became {}", body.len(), out.len());
    if is_json(&body) {
        assert!(is_json(&out), "no JSON: {}\nbecame\n{}", lossy(&body), lossy(&out));
        shows_released_calls(&judge, &serde_json::from_slice(&out).unwrap(), &body);
    }
    true
}

/// Whether anything was done to any call.
pub fn has_acted(judging: &Judging) -> bool {
    judging.record.iter().any(|judged| judged.decision != Decision::Release)
}

fn shows_released_calls(judge: &ReplyPipeline, out: &Value, body: &[u8]) {
    for (at, choice) in judge.shown().iter().enumerate() {
        let message = &out["choices"][at]["message"];
        let shown = message["tool_calls"].as_array().map_or(0, Vec::len);
        let shown = shown + usize::from(message["function_call"].is_object());
        // Several members of one name, or calls that are none: other readers may see others.
        let released = choice.released().len();
        assert!(
            shown <= released || !is_plain(body),
            "{shown} shown, {released} released: {}\n{out}",
            lossy(body)
        );
    }
}

/// Whether every reader sees the same in a reply: no member of a message comes twice, and its calls are objects.
fn is_plain(body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return false };
    let same = value.to_string().len();
    // Members that come twice are lost here, and with them length.
    let tight: usize = tight_length(body);
    let calls = value["choices"].as_array().into_iter().flatten().all(|choice| {
        let calls = choice["message"]["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        calls.iter().all(|call| call["function"]["name"].is_string())
    });
    same >= tight && calls
}

/// Bytes outside of strings that are not white space, and bytes of strings: at most the length of the compact form.
fn tight_length(body: &[u8]) -> usize {
    let (mut count, mut inside, mut escaped) = (0, false, false);
    for byte in body {
        if inside {
            count += 1;
            inside = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
        } else if !byte.is_ascii_whitespace() {
            count += 1;
            inside = *byte == b'"';
        }
    }
    count
}
