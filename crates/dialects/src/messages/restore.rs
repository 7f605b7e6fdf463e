//! Hidden exchanges among the client's messages: one message of the client's is split into the replies that it came from,
//! and the blocked calls go back to their places in them. Slices of the client's bytes stay as they are.

use super::block::{Block, BlockKind};
use super::hidden_exchange::{HiddenReply, StoredBlock, is_same_block, read};
use super::message::{WireContent, WireMessage};
use bytes::Bytes;
use model::message::Role;
use wire::body::Span;
use wire::json::decode;
use wire::splice::Splices;

const HEAD: &str = r#"{"role":"assistant","content":["#;
const BETWEEN: &str = r#"]},{"role":"user","content":["#;
const TAIL: &str = "]}";

/// What is added before a block of the client's, or after its last one.
#[derive(Debug)]
enum Added {
    /// A block that the client does not have.
    Block(Bytes),
    /// The reply ends here, and these results answer it.
    EndOfReply(Vec<Bytes>),
}

/// The place of a hidden exchange in a message of the client's.
#[derive(Debug, Default)]
struct Position {
    /// Replies that the client was not shown, before its message: the blocks of each, and the results that answer it.
    before: Vec<(Vec<Bytes>, Vec<Bytes>)>,
    /// What is added before each block of the client's, and after the last one.
    gaps: Vec<Vec<Added>>,
    /// Results of blocked calls beside which the client was shown others: the id of the shown call before each.
    owed: Vec<(Option<String>, Bytes)>,
}

impl Position {
    fn has_boundary(&self) -> bool {
        self.gaps.iter().flatten().any(|added| matches!(added, Added::EndOfReply(_)))
    }
}

/// Whether the `exchange` can be put back into the client's message: each of its replies is found there as the client was
/// shown it.
pub fn fits(exchange: &Bytes, message: &WireMessage, body: &[u8]) -> bool {
    position_of(&read(exchange), message, body, true).is_some()
}

/// Puts `exchange` back into the message at `at` of `messages`. Without `keeps_thinking`, what the model thought in it stays
/// out.
pub fn restore(
    exchange: &Bytes,
    (messages, at): (&[WireMessage], usize),
    body: &[u8],
    keeps_thinking: bool,
    splices: &mut Splices,
) {
    let message = &messages[at];
    let Some(position) = position_of(&read(exchange), message, body, keeps_thinking) else { return };
    for (blocks, results) in &position.before {
        let pair =
            [HEAD.as_bytes(), &joined(blocks), BETWEEN.as_bytes(), &joined(results), TAIL.as_bytes(), b","];
        splices.insert(message.span.start, pair.concat());
    }
    if let WireContent::Blocks { list, blocks } = &message.content {
        let is_split = position.has_boundary();
        if is_split {
            splices.replace(Span { start: message.span.start, end: list.start + 1 }, HEAD);
            splices.replace(Span { start: list.end - 1, end: message.span.end }, TAIL);
        }
        for (gap, added) in position.gaps.iter().enumerate().filter(|(_, added)| !added.is_empty()) {
            fill_gap(gap, added, blocks, splices);
        }
    }
    add_owed_results(&position.owed, (messages, at), body, splices);
}

/// Writes what is added before the block `gap`, or after the last one.
fn fill_gap(gap: usize, added: &[Added], blocks: &[Block], splices: &mut Splices) {
    let (mut out, mut has_block, last) = (Vec::new(), gap > 0, added.len());
    for (at, added) in added.iter().enumerate() {
        match added {
            Added::Block(block) => {
                out.extend_from_slice(if has_block { b"," } else { b"" });
                out.extend_from_slice(block);
                has_block = true;
            }
            Added::EndOfReply(results) => {
                out.extend_from_slice(BETWEEN.as_bytes());
                out.extend_from_slice(&joined(results));
                // Nothing came after the results: they end the conversation so far.
                if gap == blocks.len() && at + 1 == last {
                    break;
                }
                out.extend_from_slice(TAIL.as_bytes());
                out.extend_from_slice(b",");
                out.extend_from_slice(HEAD.as_bytes());
                has_block = false;
            }
        }
    }
    let before = gap.checked_sub(1).map(|at| blocks[at].span.end);
    match (before, blocks.get(gap)) {
        (Some(start), Some(next)) => {
            out.extend_from_slice(if has_block { b"," } else { b"" });
            splices.replace(Span { start, end: next.span.start }, out);
        }
        (None, Some(next)) => {
            out.extend_from_slice(if has_block { b"," } else { b"" });
            splices.insert(next.span.start, out);
        }
        (Some(end), None) => splices.insert(end, out),
        (None, None) => {}
    }
}

fn joined(blocks: &[Bytes]) -> Vec<u8> {
    blocks.join(&b","[..])
}

/// Adds the results of blocked calls to those of the calls that the client was shown, in the order of the calls.
fn add_owed_results(
    owed: &[(Option<String>, Bytes)],
    (messages, at): (&[WireMessage], usize),
    body: &[u8],
    splices: &mut Splices,
) {
    if owed.is_empty() {
        return;
    }
    let next = messages.get(at + 1).filter(|next| next.has_results());
    let Some(next) = next else {
        let results: Vec<Bytes> = owed.iter().map(|(_, result)| result.clone()).collect();
        let message = [br#",{"role":"user","content":["#, &joined(&results)[..], b"]}"].concat();
        return splices.insert(messages[at].span.end, message);
    };
    let answers = |block: &&Block, id: &str| block.answers.is_some_and(|answers| decode(answers, body) == id);
    for (after, result) in owed {
        let after = after.as_deref().and_then(|id| next.blocks().iter().find(|block| answers(block, id)));
        match (after, next.blocks().first()) {
            (Some(block), _) => splices.insert(block.span.end, [b",", &result[..]].concat()),
            (None, Some(first)) => splices.insert(first.span.start, [&result[..], b","].concat()),
            (None, None) => {}
        }
    }
}

/// Where the rounds belong in the message; `None` where it does not hold what the client was shown of them.
fn position_of(
    rounds: &[HiddenReply],
    message: &WireMessage,
    body: &[u8],
    keeps_thinking: bool,
) -> Option<Position> {
    if message.role != Role::Assistant || rounds.is_empty() {
        return None;
    }
    let blocks = message.blocks();
    let mut position =
        Position { gaps: (0..=blocks.len()).map(|_| Vec::new()).collect(), ..Position::default() };
    let is_sent = |block: &&StoredBlock| keeps_thinking || block.block.kind != BlockKind::Thinking;
    let mut cursor = 0;
    for (nth, round) in rounds.iter().enumerate() {
        let is_whole = !round.blocks.iter().any(|block| block.is_shown);
        let nothing_yet = cursor == 0 && position.gaps[0].is_empty();
        if is_whole && nothing_yet {
            let hidden = round.blocks.iter().filter(is_sent).map(|block| block.json.clone());
            position.before.push((hidden.collect(), round.results.clone()));
            continue;
        }
        let end = place_blocks(round, blocks, body, cursor, &is_sent, &mut position)?;
        if round.is_partly_shown() {
            // It was not asked again, so it is the last.
            if nth + 1 < rounds.len() {
                return None;
            }
            position.owed = owed_results(round);
            return Some(position);
        }
        position.gaps[end].push(Added::EndOfReply(round.results.clone()));
        cursor = end;
    }
    // A message without blocks holds no reply that anything could be put back into.
    (!blocks.is_empty() || position.gaps[0].is_empty()).then_some(position)
}

/// Places the hidden blocks of a reply among the client's blocks from `cursor` on; returns where the reply ends there. `None`
/// where a block that the client was shown is not found: a client that joins texts has no place for what was between them.
fn place_blocks(
    reply: &HiddenReply,
    blocks: &[Block],
    body: &[u8],
    cursor: usize,
    is_sent: &dyn Fn(&&StoredBlock) -> bool,
    position: &mut Position,
) -> Option<usize> {
    let mut at = cursor;
    for stored in &reply.blocks {
        if stored.is_shown {
            let own = (&stored.block, &stored.json[..]);
            match (at..blocks.len()).find(|next| is_same_block(own, (&blocks[*next], body))) {
                Some(next) => at = next + 1,
                // A client may leave out what the model thought.
                None if stored.block.kind == BlockKind::Thinking => {}
                None => return None,
            }
        } else if is_sent(&stored) {
            position.gaps[at].push(Added::Block(stored.json.clone()));
        }
    }
    Some(at)
}

/// The results of the blocked calls of a partly shown reply, each with the id of the shown call before it.
fn owed_results(round: &HiddenReply) -> Vec<(Option<String>, Bytes)> {
    let mut results = round.results.iter();
    let mut before = None;
    let mut owed = Vec::new();
    for stored in round.blocks.iter().filter(|stored| stored.block.kind == BlockKind::Call) {
        if stored.is_shown {
            before = stored.block.call.id.map(|id| decode(id, &stored.json).into_owned());
        } else if let Some(result) = results.next() {
            owed.push((before.clone(), result.clone()));
        }
    }
    owed
}
