//! The store of past responses: a bounded map from a response's id to its body and its whole conversation. The newest
//! are kept. A record never changes, so it can be continued any number of times.

use super::items::kind_of;
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most records; the oldest makes room.
const MAX_RECORDS: usize = 1_000;
/// The most bytes of all records.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Past responses, oldest first. A std mutex: held for a look-up, never across an await.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<VecDeque<Record>>);

/// One response. Texts instead of parsed JSON, so that their sizes are known.
#[derive(Debug)]
pub(super) struct Record {
    id: String,
    /// The body of the reply.
    response: Bytes,
    /// The items of the conversation, the response's own included, as a JSON array.
    conversation: Bytes,
    /// How many of these items came before the response's own.
    input: usize,
}

impl Record {
    /// The record of `response`, which continued `items`.
    pub(super) fn new(response: &Value, mut items: Vec<Value>) -> Self {
        let input = items.len();
        items.extend(response["output"].as_array().into_iter().flatten().cloned());
        Self {
            id: response["id"].as_str().unwrap_or_default().to_owned(),
            response: Bytes::from(response.to_string()),
            conversation: Bytes::from(Value::Array(items).to_string()),
            input,
        }
    }

    fn bytes(&self) -> usize {
        self.response.len() + self.conversation.len()
    }

    fn items(&self) -> Vec<Value> {
        serde_json::from_slice(&self.conversation).unwrap_or_default()
    }
}

impl Store {
    /// Keeps `record`, in place of an equal one where the request was retried.
    pub(super) fn keep(&self, record: Record) {
        let mut records = self.records();
        records.retain(|other| other.id != record.id);
        records.push_back(record);
        make_room(&mut records, MAX_RECORDS, MAX_BYTES);
    }

    /// The items of the conversation that the response `id` ended, as a JSON array.
    pub(super) fn conversation(&self, id: &str) -> Option<Bytes> {
        self.with(id, |record| record.conversation.clone())
    }

    /// The body of the response `id`.
    pub(super) fn response(&self, id: &str) -> Option<Bytes> {
        self.with(id, |record| record.response.clone())
    }

    /// The items before the response `id`, newest first.
    pub(super) fn input_items(&self, id: &str) -> Option<Vec<Value>> {
        self.with(id, |record| {
            let mut items = record.items();
            items.truncate(record.input);
            items.reverse();
            items
        })
    }

    /// The item `id` of any conversation.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let quoted = Value::from(id).to_string();
        let is_item = |item: &Value| item["id"] == id && kind_of(item) != "local_shell_call_output";
        self.records().iter().rev().find_map(|record| {
            // Most records do not hold it: only those that may are parsed.
            let text = std::str::from_utf8(&record.conversation).unwrap_or_default();
            if text.contains(&quoted) { record.items().into_iter().find(is_item) } else { None }
        })
    }

    /// Forgets the response `id`; `None` where there is none.
    pub(super) fn delete(&self, id: &str) -> Option<()> {
        let mut records = self.records();
        let at = records.iter().position(|record| record.id == id)?;
        records.remove(at).map(|_| ())
    }

    fn with<T>(&self, id: &str, read: impl FnOnce(&Record) -> T) -> Option<T> {
        self.records().iter().find(|record| record.id == id).map(read)
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the oldest records beyond a number and a sum of bytes. The newest stays.
fn make_room(records: &mut VecDeque<Record>, max_records: usize, max_bytes: usize) {
    let mut bytes: usize = records.iter().map(Record::bytes).sum();
    while records.len() > 1 && (records.len() > max_records || bytes > max_bytes) {
        bytes -= records.pop_front().map_or(0, |oldest| oldest.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(id: usize) -> Record {
        Record::new(&json!({"id": format!("resp_{id}"), "output": []}), vec![json!({"id": "msg_1"})])
    }

    #[test]
    fn the_oldest_records_are_evicted_by_number_and_bytes_but_one_always_stays() {
        let size = record(0).bytes();
        for (max_records, max_bytes, left) in [
            (5, usize::MAX, 5),
            (3, usize::MAX, 3),
            (5, 5 * size, 5),
            (5, 5 * size - 1, 4),
            (5, 2 * size, 2),
            (5, 1, 1),
        ] {
            let mut records: VecDeque<Record> = (0..5).map(record).collect();
            make_room(&mut records, max_records, max_bytes);
            assert_eq!((records.len(), records[0].id.clone()), (left, format!("resp_{}", 5 - left)));
        }
    }

    #[test]
    fn the_store_is_bounded() {
        let store = Store::default();
        for id in 0..=MAX_RECORDS {
            store.keep(record(id));
        }
        assert_eq!((store.response("resp_0"), store.records().len()), (None, MAX_RECORDS));
        assert!(store.response("resp_1").is_some());
    }

    #[test]
    fn a_retry_replaces_its_record_and_a_deleted_one_is_gone() {
        let store = Store::default();
        store.keep(record(1));
        store.keep(record(1));
        assert_eq!(store.records().len(), 1);
        assert_eq!([store.delete("resp_1"), store.delete("resp_1")], [Some(()), None]);
        assert_eq!(store.conversation("resp_1"), None);
    }
}
