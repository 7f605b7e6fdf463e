//! The audit log: one JSON line for each client request in which a policy acted or a call was judged, appended to its
//! own file. Names the fields and their bounds. Never contains a body or a credential, and of arguments only the texts
//! that a policy wrote anew, where the operator wants both forms recorded; no request waits for it, and lines that
//! cannot be written are counted.

use super::private_file;
use super::projection::Inclusion::{Always, IfAny};
use super::projection::MemberValue::{self, Flag, Number, Text};
use super::projection::{CallWithDecision, Column, Projection, TextBounds, calls_of, new_actions, word};
use super::queue::{LineSink, Queue, write_all_of};
use model::record::{JudgedCall, RequestRecord};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Texts as in the log. More decisions and actions than any provider's parallel calls lead to; the rest is only counted.
const BOUNDS: TextBounds = TextBounds::new(200, 200);

/// A handle on the audit log. Cheap to clone; no call waits for the disk.
#[derive(Clone)]
pub struct Audit(Option<Arc<Queue>>);

impl Audit {
    /// No audit log.
    pub fn off() -> Self {
        Self(None)
    }

    /// An audit log appended to the file at `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = Appended {
            path: path.to_owned(),
            file: private_file::append(path)?,
            torn: ends_within_a_line(path),
        };
        Ok(Self(Some(Arc::new(Queue::new("audit", file)))))
    }

    /// Opens the file at `path` as [`Self::open`] does, and closes it again.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn try_open(path: &Path) -> io::Result<()> {
        private_file::append(path).map(drop)
    }

    /// Writes the line of one request, if there is anything to report.
    pub(super) fn request(&self, record: &RequestRecord) {
        let Some(queue) = &self.0 else { return };
        if let Some(line) = line(record, SystemTime::now()) {
            queue.push(&line);
        }
    }

    /// Flushes and ends the audit log; waits a second at most. Call at the program's end, off the runtime.
    pub fn finish(&self) {
        if let Some(queue) = &self.0 {
            queue.finish();
        }
    }

    /// Lines that were lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |queue| queue.take_lost())
    }
}

/// A line. Its keys are stable; new ones may be added.
#[derive(Serialize)]
struct Entry<'a> {
    timestamp: String,
    #[serde(flatten)]
    members: Projection<'a, RequestRecord>,
}

const MEMBERS: &[Column<RequestRecord>] = &[
    ("request_id", |record, bounds| Text(bounds.text(&record.request_id)), Always),
    ("conversation", |record, bounds| bounds.optional(record.conversation.as_deref()), Always),
    ("model", |record, bounds| bounds.optional(record.model.as_deref()), Always),
    ("profile", |record, bounds| bounds.optional(record.profile.as_deref()), Always),
    ("mode", |record, _| word(record.mode), Always),
    (
        "decisions",
        |record, bounds| bounds.calls(calls_of(record).flat_map(CallWithDecision::all), DECISION),
        Always,
    ),
    ("actions", |record, bounds| bounds.actions(new_actions(record)), Always),
    ("rewritten", |record, bounds| bounds.new_texts(record), IfAny),
    ("approvals", |record, bounds| bounds.approvals(record), IfAny),
    ("left_out", |record, bounds| items_left_out(record, bounds), IfAny),
];

/// The decision of one policy on one call; for a call without decisions, that it was judged.
const DECISION: &[Column<JudgedCall>] = &[
    ("call", |call, _| Number(call.index as u64), Always),
    ("tool", |call, bounds| Text(bounds.name(&call.judged.tool)), Always),
    ("verdict", |call, _| word(call.judged.verdict.as_str()), Always),
    ("unjudged", |call, _| Flag(call.judged.unjudged), IfAny),
    ("policy", |call, _| word(call.policy()), Always),
    ("reason", |call, _| word(call.reason()), Always),
    ("spoke", |call, _| Flag(call.is_spoken()), Always),
];

/// How many decisions and actions are not listed.
fn items_left_out<'a>(record: &RequestRecord, bounds: &TextBounds) -> MemberValue<'a> {
    let decisions = record.judged.iter().map(|call| call.decisions.len().max(1)).sum();
    bounds.left_out(&[decisions, new_actions(record).count()])
}

/// The line for `record`, its end included; `None` where no policy acted and no call was judged.
fn line(record: &RequestRecord, at: SystemTime) -> Option<Vec<u8>> {
    if record.judged.is_empty() && new_actions(record).next().is_none() {
        return None;
    }
    let timestamp = humantime::format_rfc3339_micros(at.max(SystemTime::UNIX_EPOCH)).to_string();
    let members = Projection::<RequestRecord>::new(record, MEMBERS, &BOUNDS);
    let mut line = serde_json::to_vec(&Entry { timestamp, members }).ok()?;
    line.push(b'\n');
    Some(line)
}

/// The file at a path, whichever that is now: a file that was moved away or deleted is replaced by a new one.
struct Appended {
    path: PathBuf,
    file: File,
    /// A line was cut by a failed write, and the next must not continue it.
    torn: bool,
}

impl LineSink for Appended {
    fn write_lines(&mut self, lines: &[u8]) -> usize {
        if !private_file::is_at(&self.file, &self.path) {
            let Ok(file) = private_file::append(&self.path) else { return 0 };
            (self.file, self.torn) = (file, ends_within_a_line(&self.path));
        }
        if self.torn && write_all_of(&mut self.file, b"\n") == 0 {
            return 0;
        }
        let written = write_all_of(&mut self.file, lines);
        // Where nothing was written, the file ends with a line.
        self.torn = written > 0 && lines.get(written - 1) != Some(&b'\n');
        written
    }
}

/// Whether the last line of a file is incomplete: the process that wrote it was killed, or its disk was full.
fn ends_within_a_line(path: &Path) -> bool {
    let last = |path: &Path| -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [b'\n'];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    // Pipes and devices have no last byte, nor has an empty file.
    path.is_file() && last(path).is_ok_and(|last| last != b'\n')
}

#[cfg(test)]
mod tests;
