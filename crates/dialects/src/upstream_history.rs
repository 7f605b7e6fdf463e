//! What is known of the items that the upstream keeps: those before the client's items, where the client continues from a
//! reply, or those to which the client's items refer. Policies read them as sources of the conversation; the upstream has
//! them, so they are not sent again.

use bytes::Bytes;
use model::source::{CLIENT, Order, Source};
use std::sync::Arc;
use wire::body::Span;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct UpstreamHistory {
    /// As the state store keeps it.
    pub record: Bytes,
    /// Its items. The number of the first source is 1.
    pub sources: Vec<Arc<Source>>,
    /// The order of its items and the client's.
    pub order: Order,
    /// The upstream's id of what the client continues from, where that differs from the client's id.
    pub upstream_id: Option<String>,
    /// Synthetic results that the upstream still waits for, as items joined by commas.
    pub owed: Bytes,
    /// The place of each source in the client's body, ascending; none where the sources precede the client's items.
    pub references: Vec<ResolvedReferences>,
    /// How many references are to items that are not known.
    pub unknown: u64,
}

/// Items of the client that follow each other, with a reference among them. One source holds all of them in full.
#[derive(Clone, Debug)]
pub struct ResolvedReferences {
    /// All of them in the client's body, from the first to the last.
    pub span: Span,
    pub pieces: Vec<Piece>,
}

/// One of these items.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub kind: PieceKind,
    /// Where the item is in the source.
    pub item: Span,
    /// Where the item, or the reference to it, is in the client's body.
    pub sent: Span,
}

/// How an item is sent to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// As the client wrote it.
    Written,
    /// By reference.
    Reference,
    /// In full in place of the reference: toolrein wrote the item, so that the upstream does not know it.
    Own,
}

impl UpstreamHistory {
    /// The place of a source in the client's body, if the client refers to its items.
    pub fn references_of(&self, source: usize) -> Option<&ResolvedReferences> {
        self.references.get(source.checked_sub(CLIENT + 1)?)
    }

    /// The sources with a place in the client's body, each with its number. Each has one item.
    pub fn referenced(&self) -> impl Iterator<Item = (usize, &Source, &ResolvedReferences)> {
        let numbered = self.sources.iter().zip(&self.references).enumerate();
        numbered.map(|(at, (source, references))| (at + CLIENT + 1, &**source, references))
    }

    /// The item that the reference at this place in the client's body names, as JSON.
    pub fn item_at(&self, sent: Span) -> Option<&[u8]> {
        let at = self.references.partition_point(|references| references.span.end <= sent.start);
        let (references, source) = (self.references.get(at)?, self.sources.get(at)?);
        let piece = references.pieces.partition_point(|piece| piece.sent.end <= sent.start);
        let piece = references.pieces.get(piece)?;
        let is_it = piece.sent == sent && piece.kind != PieceKind::Written;
        is_it.then(|| piece.item.of(&source.bytes))
    }
}
