//! The replies that a request with `thread` can continue: a bounded map from a reply's id to its whole conversation. The newest
//! are kept; each is continued once.
//!
//! Source: the tool runners of anthropic-sdk-python 2.14.0. At Anthropic a reply is also forgotten five minutes after its last use.

use super::error::MessagesError;
use super::thread::{CREATE_ONLY, fingerprint_mismatch};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most records; the oldest makes room.
const MAX_RECORDS: usize = 1_000;
/// The most bytes of all records.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Replies, oldest first. A std mutex: held for a look-up, never across an await.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<VecDeque<ThreadRecord>>);

/// One reply with the conversation that it ended.
#[derive(Debug)]
struct ThreadRecord {
    /// The reply's id.
    id: String,
    /// The request that got the reply, with the reply as its last message.
    body: Bytes,
    is_continued: bool,
}

impl Threads {
    /// Keeps the reply `id` to the request `body`.
    pub(super) fn keep(&self, id: &str, mut body: Value, content: &[Value]) {
        if let Some(messages) = body["messages"].as_array_mut() {
            messages.push(json!({"role": "assistant", "content": content}));
        }
        let record =
            ThreadRecord { id: id.to_owned(), body: Bytes::from(body.to_string()), is_continued: false };
        let mut records = self.records();
        records.push_back(record);
        let mut bytes: usize = records.iter().map(|record| record.body.len()).sum();
        while records.len() > 1 && (records.len() > MAX_RECORDS || bytes > MAX_BYTES) {
            bytes -= records.pop_front().map_or(0, |oldest| oldest.body.len());
        }
    }

    /// The request `body`, which continues the reply `id`, with the whole conversation and without `thread`.
    pub(super) fn conversation(&self, id: &str, mut body: Value) -> Result<Value, MessagesError> {
        let stored = self.with(id, |record| record.body.clone())?;
        let mut stored: Value = serde_json::from_slice(&stored).unwrap_or_default();
        if stored["model"] != body["model"] {
            return Err(fingerprint_mismatch());
        }
        let mut messages = stored["messages"].as_array().cloned().unwrap_or_default();
        messages.extend(body["messages"].as_array().into_iter().flatten().cloned());
        body["messages"] = Value::Array(messages);
        if let (Some(members), Some(stored)) = (body.as_object_mut(), stored.as_object_mut()) {
            members.remove("thread");
            members.extend(CREATE_ONLY.iter().filter_map(|name| stored.remove_entry(*name)));
        }
        Ok(body)
    }

    /// Notes that the reply `id` was continued.
    pub(super) fn set_continued(&self, id: &str) -> Result<(), MessagesError> {
        self.with(id, |record| record.is_continued = true)
    }

    /// Reads the record of a reply that can be continued.
    fn with<T>(&self, id: &str, read: impl FnOnce(&mut ThreadRecord) -> T) -> Result<T, MessagesError> {
        let mut records = self.records();
        match records.iter_mut().find(|record| record.id == id) {
            None => Err(MessagesError::not_found("Thread not found.").coded("thread_not_found")),
            Some(record) if record.is_continued => {
                let text = "The thread was already continued.";
                Err(MessagesError::unrecorded(text).coded("thread_already_continued"))
            }
            Some(record) => Ok(read(record)),
        }
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<ThreadRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_replies_are_forgotten_by_number_and_by_bytes() {
        let threads = Threads::default();
        let keep = |id: &str, text: &str| threads.keep(id, json!({"messages": [], "system": text}), &[]);
        for number in 0..=MAX_RECORDS {
            keep(&format!("msg_{number}"), "s");
        }
        assert_eq!(threads.records().len(), MAX_RECORDS);
        assert!(threads.with("msg_0", |_| ()).is_err() && threads.with("msg_1", |_| ()).is_ok());
        for (id, part) in [("msg_a", 2), ("msg_b", 3), ("msg_c", 3)] {
            keep(id, &"s".repeat(MAX_BYTES / part));
        }
        assert!(threads.with("msg_a", |_| ()).is_err() && threads.with("msg_b", |_| ()).is_ok());
        keep("msg_d", &"s".repeat(MAX_BYTES));
        assert_eq!(threads.records().len(), 1, "the newest stays, however long");
    }
}
