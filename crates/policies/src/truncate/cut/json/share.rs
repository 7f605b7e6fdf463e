//! The division of a container's space among its members or elements: which of them stay and how many characters each
//! gets. Writing them is not its task.
//!
//! Everything stays while it fits in its useful size; an object gives up the contents of its values before its keys;
//! beyond that the first ones, half as many last ones, and what looks like an error are kept. Then all of them are
//! raised to one common height, so that short values stay whole and only the longest are cut.

use super::super::trouble::{Picks, Rank, Sign};
use super::scan::{Kind, Outline};

/// One kept member or element.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Share {
    /// Its position in the container, from 0.
    pub(in super::super) ordinal: usize,
    pub(in super::super) node: usize,
    /// Characters of comma, key and colon.
    pub(in super::super) fixed: usize,
    /// Characters granted to the value.
    pub(in super::super) room: usize,
    /// Characters of the whole value.
    pub(in super::super) full: usize,
}

/// Of the space of a sampled container, one part in five is for what looks like an error.
const ERROR_PART: usize = 5;
/// A sampled element gets no more than half of the room before others are shown.
const LARGEST_PART: usize = 2;

/// The shares of `parent` in a room of `inner` characters between its brackets; empty if nothing fits.
pub(super) fn divide(outline: &Outline<'_>, parent: usize, inner: usize, signs: &[Sign]) -> Vec<Share> {
    let comma = outline.comma.len();
    let mut wants: Vec<Share> = Vec::with_capacity(outline.nodes[parent].kids as usize);
    for (ordinal, node) in outline.kids(parent).enumerate() {
        let (value, key) = (&outline.nodes[node], outline.nodes[node].key);
        let is_member = key.0 < key.1;
        let key_chars = outline.text(key.0, key.1).chars().count();
        let fixed = comma + if is_member { key_chars + outline.colon.len() } else { 0 };
        wants.push(Share { ordinal, node, fixed, room: value.slim as usize, full: value.chars as usize });
    }
    if sum(&wants) <= inner {
        raise(&mut wants, inner);
        return wants;
    }
    let least = |share: &Share| outline.nodes[share.node].least();
    if outline.nodes[parent].kind == Kind::Object
        && wants.iter().map(|share| share.fixed + least(share)).sum::<usize>() <= inner
    {
        keep_all_keys(outline, &mut wants, inner);
        return wants;
    }
    for share in &mut wants {
        share.room = share.room.min(inner / LARGEST_PART).max(least(share));
    }
    let kind = outline.nodes[parent].kind;
    let is_object = kind == Kind::Object;
    let gap = comma + placeholder(kind, wants.len(), wants.len()).chars().count();
    let rank_of = |share: &Share| {
        let node = &outline.nodes[share.node];
        let from = if is_object { node.key.0 } else { node.start };
        strongest(signs, from as usize, node.end as usize)
    };
    let mut kept = sample(&wants, inner, gap, rank_of);
    // An object says once how many are gone, an array at each gap.
    let gaps = if is_object { 1 } else { gaps(&kept, wants.len()) };
    raise(&mut kept, inner.saturating_sub(gaps * gap));
    kept
}

/// Every member at its least, then the leaves and the first containers at their useful size as far as the room goes.
fn keep_all_keys(outline: &Outline<'_>, wants: &mut [Share], inner: usize) {
    let is_leaf = |share: &Share| outline.nodes[share.node].kids == 0;
    let slim = |share: &Share| outline.nodes[share.node].slim as usize;
    wants.iter_mut().for_each(|share| share.room = outline.nodes[share.node].least());
    let mut left = inner - sum(wants);
    for leaves in [true, false] {
        for share in wants.iter_mut().filter(|share| is_leaf(share) == leaves) {
            let more = slim(share) - share.room;
            if more <= left {
                left -= more;
                share.room += more;
            }
        }
    }
    raise(wants, inner);
}

/// The placeholder of the members or elements that were cut.
pub(super) fn placeholder(parent: Kind, cut: usize, of: usize) -> String {
    let key = if parent == Kind::Object { "\"…\":" } else { "" };
    format!("{key}\"… {cut} of {of} cut\"")
}

fn sum(shares: &[Share]) -> usize {
    shares.iter().map(|share| share.fixed + share.room).sum()
}

/// How many runs of a container of `count` are not kept.
fn gaps(kept: &[Share], count: usize) -> usize {
    let mut next = 0;
    let mut gaps = 0;
    for share in kept {
        gaps += usize::from(share.ordinal > next);
        next = share.ordinal + 1;
    }
    gaps + usize::from(next < count)
}

/// The first and last ones, two to one, and between them those that look like errors, in order. `gap`: the cost of a
/// placeholder; there is one at each position where some are left out.
pub(in super::super) fn sample(
    wants: &[Share],
    inner: usize,
    gap: usize,
    rank_of: impl Fn(&Share) -> Option<Rank>,
) -> Vec<Share> {
    let room = inner.saturating_sub(gap);
    let error_room = room / ERROR_PART;
    let ends_room = room - error_room;
    let (first, first_cost) = fitting(wants.iter(), ends_room * 2 / 3);
    let (last, last_cost) = fitting(wants[first..].iter().rev(), ends_room / 3);
    let between = &wants[first..wants.len() - last];

    let mut picks = Picks::new(error_room);
    for share in between {
        if let Some(rank) = rank_of(share) {
            // It is separate, so it has a placeholder of its own.
            picks.offer(rank, *share, share.fixed + share.room + gap);
        }
    }
    let mut errors = picks.into_chosen();
    errors.sort_unstable_by_key(|share| share.ordinal);
    let left = room - first_cost - last_cost - errors.iter().map(|e| e.fixed + e.room + gap).sum::<usize>();
    let (more, _) = fitting(between.iter(), left);
    errors.retain(|share| share.ordinal >= first + more);

    let mut kept = wants[..first + more].to_vec();
    kept.append(&mut errors);
    kept.extend_from_slice(&wants[wants.len() - last..]);
    kept.dedup_by_key(|share| share.ordinal);
    kept
}

/// How many of the shares fit into `room`, in their order up to the first that does not, and what they cost.
fn fitting<'a>(shares: impl Iterator<Item = &'a Share>, room: usize) -> (usize, usize) {
    let (mut number, mut cost) = (0, 0);
    for share in shares {
        let with = cost + share.fixed + share.room;
        if with > room {
            break;
        }
        cost = with;
        number += 1;
    }
    (number, cost)
}

/// Raises the rooms to the greatest common height that fits: none below what it has, none above what it can use.
fn raise(shares: &mut [Share], inner: usize) {
    let total = |height: usize| {
        shares.iter().map(|s| s.fixed + height.clamp(s.room, s.full.max(s.room))).sum::<usize>()
    };
    let (mut low, mut high) = (0, inner);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= inner { low = middle } else { high = middle - 1 }
    }
    for share in shares {
        share.room = low.clamp(share.room, share.full.max(share.room));
    }
}

/// The most certain sign in a span of the document. `signs` are in order.
fn strongest(signs: &[Sign], start: usize, end: usize) -> Option<Rank> {
    let from = signs.partition_point(|sign| sign.at < start);
    let within = signs[from..].iter().take_while(|sign| sign.at < end);
    within.map(|sign| sign.rank).max()
}
