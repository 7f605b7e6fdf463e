//! The audit log: one JSON line for each client request in which a policy acted or a call was judged, appended to its
//! own file. Defines the fields and bounds them. Never contains a body or a credential, and of arguments only the texts
//! that a policy wrote anew, where the operator wants both forms recorded; no request waits for it, and lines that
//! cannot be written are counted.

use super::bounded;
use super::private_file;
use super::queue::{LineSink, Queue, write_all_of};
use model::record::{Action, ApprovalRecord, JudgedCall, NewText, On, RequestRecord};
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The longest text, in characters; as in the log.
const MAX_TEXT_CHARS: usize = 200;
/// The most decisions and the most actions of a line; the rest is only counted. More than any provider's parallel
/// calls.
const MAX_ITEMS: usize = 200;
/// The most texts of a line that were written anew, and the longest form of one, in characters.
const MAX_TEXTS: usize = 20;
const MAX_REWRITTEN_CHARS: usize = 400;

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
    request_id: Cow<'a, str>,
    conversation: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    profile: Option<Cow<'a, str>>,
    mode: &'static str,
    decisions: Vec<Decision<'a>>,
    actions: Vec<Deed<'a>>,
    /// Texts of arguments that were written anew, up to [`MAX_TEXTS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rewritten: Vec<Rewritten<'a>>,
    /// What people decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<Approval<'a>>,
    /// How many decisions and actions are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

/// The decision of one policy on one call; for a call without decisions, that it was judged.
#[derive(Clone, Serialize)]
struct Decision<'a> {
    /// Its index among the calls judged in this request, from 0.
    call: usize,
    tool: Cow<'a, str>,
    /// The verdict on the call: `allow`, `block`, `modify`, `answer` or `ask`.
    verdict: &'static str,
    /// It was allowed because it could not be judged.
    #[serde(skip_serializing_if = "is_false")]
    unjudged: bool,
    policy: Option<&'static str>,
    reason: Option<&'static str>,
    /// The model gets this policy's text.
    spoke: bool,
}

/// A text of a call's arguments in both forms.
#[derive(Serialize)]
struct Rewritten<'a> {
    policy: &'static str,
    tool: Cow<'a, str>,
    before: Cow<'a, str>,
    after: Cow<'a, str>,
}

/// A person's decision on a call.
#[derive(Serialize)]
struct Approval<'a> {
    tool: Cow<'a, str>,
    outcome: &'static str,
    /// The person or system that decided, as reported with the decision.
    approver: Option<Cow<'a, str>>,
    reason: Option<Cow<'a, str>>,
}

/// What a policy did, `count` times.
#[derive(Serialize)]
struct Deed<'a> {
    policy: &'static str,
    action: Cow<'a, str>,
    count: u64,
}

/// The line for `record`, its end included; `None` where no policy acted and no call was judged.
fn line(record: &RequestRecord, at: SystemTime) -> Option<Vec<u8>> {
    // Actions of a resent request were recorded before; its reply is new.
    let is_new = |action: &&Action| !record.repeated || action.on == On::Reply;
    let actions: Vec<&Action> = record.actions.iter().filter(is_new).collect();
    if actions.is_empty() && record.judged.is_empty() {
        return None;
    }
    let decisions: usize = record.judged.iter().map(|call| call.decisions.len().max(1)).sum();
    let text = |raw| bounded::text(raw, MAX_TEXT_CHARS);
    let entry = Entry {
        timestamp: humantime::format_rfc3339_micros(at.max(SystemTime::UNIX_EPOCH)).to_string(),
        request_id: text(&record.request_id),
        conversation: record.conversation.as_deref().map(text),
        model: record.model.as_deref().map(text),
        profile: record.profile.as_deref().map(text),
        mode: record.mode,
        decisions: record.judged.iter().enumerate().flat_map(decisions_on).take(MAX_ITEMS).collect(),
        actions: actions.iter().take(MAX_ITEMS).map(|action| deed(action)).collect(),
        rewritten: record.new_texts.iter().take(MAX_TEXTS).map(rewritten).collect(),
        approvals: record.approvals.iter().take(MAX_ITEMS).map(approval).collect(),
        left_out: decisions.saturating_sub(MAX_ITEMS) + actions.len().saturating_sub(MAX_ITEMS),
    };
    let mut line = serde_json::to_vec(&entry).ok()?;
    line.push(b'\n');
    Some(line)
}

fn decisions_on((call, judged): (usize, &JudgedCall)) -> Vec<Decision<'_>> {
    let verdict = judged.verdict.as_str();
    let silent = Decision {
        call,
        tool: bounded::name(&judged.tool),
        verdict,
        unjudged: judged.unjudged,
        policy: None,
        reason: None,
        spoke: false,
    };
    if judged.decisions.is_empty() {
        return vec![silent];
    }
    let said = judged.decisions.iter().enumerate();
    let decisions = said.map(|(at, said)| Decision {
        policy: Some(said.policy),
        reason: Some(said.reason),
        spoke: at == 0 && judged.is_spoken,
        ..silent.clone()
    });
    decisions.collect()
}

fn deed(action: &Action) -> Deed<'_> {
    Deed { policy: action.policy, action: bounded::text(&action.action, MAX_TEXT_CHARS), count: action.count }
}

fn rewritten(text: &NewText) -> Rewritten<'_> {
    let NewText { policy, tool, before, after } = text;
    let bounded = |raw| bounded::text(raw, MAX_REWRITTEN_CHARS);
    Rewritten { policy, tool: bounded::name(tool), before: bounded(before), after: bounded(after) }
}

fn approval(record: &ApprovalRecord) -> Approval<'_> {
    let text = |raw| bounded::text(raw, MAX_TEXT_CHARS);
    Approval {
        tool: bounded::name(&record.tool),
        outcome: record.outcome.as_str(),
        approver: record.approver.as_deref().map(text),
        reason: record.reason.as_deref().map(text),
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
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
