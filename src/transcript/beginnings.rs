//! What is known behind the beginning of a conversation: an agent sends all of it again with every request, and what
//! comes of reading it up to some message is the same each time. Responsible for the names under which that is found
//! and kept; what it is, and what else it depends on, is for those to say who ask.

use super::identity::{Domain, Hash, HashKey};
use super::memo::{Derived, Memo};
use crate::wire::begun::Beginning;
use crate::wire::request::Request;
use std::any::Any;
use std::sync::Arc;

/// The beginnings of one request, for one who asks.
#[derive(Clone, Copy)]
pub struct Beginnings<'a> {
    pub request: &'a Request,
    pub memo: &'a dyn Memo,
    pub key: &'a HashKey,
    /// What is known there.
    pub what: &'static str,
    /// What it depends on beside the bytes.
    pub owner: Hash,
}

impl Beginnings<'_> {
    /// What is known behind the longest beginning of which anything is.
    pub fn find<T: Any + Send + Sync>(&self) -> Option<(Beginning, Arc<T>)> {
        self.request.beginnings.iter().flatten().find_map(|at| match self.memo.find(self.name(*at))? {
            Derived::Behind(known, _) => Some((*at, known.downcast().ok()?)),
            _ => None,
        })
    }

    /// The beginning behind which something should be kept, where the best that was found stands at `found`.
    pub fn news(&self, found: Option<Beginning>) -> Option<Beginning> {
        self.request.beginnings[0].filter(|longest| found != Some(*longest))
    }

    /// Keeps what is known behind `at`; it takes `bytes` of memory, about.
    pub fn keep<T: Any + Send + Sync>(&self, at: Beginning, known: T, bytes: usize) {
        self.memo.keep(self.name(at), Derived::Behind(Arc::new(known), bytes));
    }

    fn name(&self, at: Beginning) -> Hash {
        let (name, owner) = (at.name.to_le_bytes(), self.owner.0.to_le_bytes());
        self.key.hash(Domain::Behind, &[&name, self.what.as_bytes(), &owner])
    }
}
