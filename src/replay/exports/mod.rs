//! Exports of other programs: log lines of OpenAI's batches and stored completions, runs of LangSmith, and traces and
//! observations of Langfuse, by their documented formats. Each is turned into requests with their replies. Anything
//! else passes as it is.

mod langchain;
mod langfuse;
mod langsmith;
mod openai;

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of batch requests that wait for their replies; beyond, the oldest are forgotten.
const MOST_BYTES: usize = 256 << 20;
/// Members of an object that hold a list of conversations, runs or traces.
const LISTS: [&str; 5] = ["data", "runs", "conversations", "traces", "observations"];
/// How deep lists may lie in each other, and runs in runs.
const DEEPEST: usize = 16;

/// Why a value of an export holds no conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoConversation {
    #[error("a batch's output holds no requests: give the batch's input file before it")]
    BatchOutput,
    #[error("a stored completion or response holds no request: export its messages too")]
    StoredReply,
}

/// A value of an export, as the text of a line.
pub type Unpacked = Result<String, NoConversation>;

/// What was read so far of batches.
#[derive(Default)]
pub struct Exports {
    /// The bodies of batch requests by their ids, and the ids, oldest first.
    batch: BTreeMap<String, Box<RawValue>>,
    order: VecDeque<String>,
    bytes: usize,
}

/// The members of an object, each as it is written.
type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Exports {
    /// The conversations in one JSON value of a file, in order; none where it is a part of a trace that holds none.
    pub fn unpack(&mut self, value: &RawValue) -> Vec<Unpacked> {
        let mut out = Vec::new();
        self.add(value, DEEPEST, &mut out);
        out
    }

    fn add(&mut self, value: &RawValue, deeper: usize, out: &mut Vec<Unpacked>) {
        let text = value.get();
        if text.starts_with('[') {
            let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
            return self.add_list(&elements, value, deeper, out);
        }
        let Ok(members) = serde_json::from_str::<Members<'_>>(text) else {
            return out.push(Ok(text.to_owned()));
        };
        if is_native(&members) {
            return out.push(Ok(text.to_owned()));
        }
        if let Some(unpacked) = self.batch_line(&members) {
            return out.push(unpacked);
        }
        if members.contains_key("run_type") {
            return self.add_run(value, &members, deeper, out);
        }
        if langfuse::is_trace_or_observation(&members) {
            return out.extend(langfuse::conversations(value).into_iter().map(Ok));
        }
        if openai::is_reply(&members) {
            return out.push(openai::stored(&members));
        }
        let list =
            LISTS.iter().find_map(|name| members.get(*name).filter(|list| list.get().starts_with('[')));
        match list.filter(|_| deeper > 0) {
            Some(list) => self.add(list, deeper - 1, out),
            None => out.push(Ok(text.to_owned())),
        }
    }

    /// A list of conversations, oldest first where all have a time; or the messages of one.
    fn add_list(&mut self, elements: &[&RawValue], list: &RawValue, deeper: usize, out: &mut Vec<Unpacked>) {
        if elements.first().and_then(|element| read(element)).is_some_and(|members| is_message(&members)) {
            return out.push(Ok(openai::of_messages(list.get())));
        }
        let mut elements: Vec<(Option<String>, &RawValue)> = elements
            .iter()
            .map(|element| (read(element).and_then(|members| started(&members)), *element))
            .collect();
        // Programs that export list the newest first.
        if elements.iter().all(|(started, _)| started.is_some()) {
            elements.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        for (_, element) in elements.iter().filter(|_| deeper > 0) {
            self.add(element, deeper - 1, out);
        }
    }

    /// A run of LangSmith and those within it.
    fn add_run(&mut self, run: &RawValue, members: &Members<'_>, deeper: usize, out: &mut Vec<Unpacked>) {
        out.extend(langsmith::conversation(run).map(Ok));
        if let Some(children) =
            members.get("child_runs").filter(|runs| deeper > 0 && runs.get().starts_with('['))
        {
            self.add(children, deeper - 1, out);
        }
    }

    /// A line of a batch: its input, which waits for its output, or its output.
    fn batch_line(&mut self, members: &Members<'_>) -> Option<Unpacked> {
        let id: String = serde_json::from_str(members.get("custom_id")?.get()).ok()?;
        if let Some(body) = members.get("body") {
            self.remember(id, (*body).to_owned());
            return Some(Ok(body.get().to_owned()));
        }
        let response = members.get("response")?;
        let Some(request) = self.batch.get(&id) else { return Some(Err(NoConversation::BatchOutput)) };
        let reply = serde_json::from_str::<Members<'_>>(response.get()).ok();
        let reply = reply.and_then(|reply| reply.get("body").map(|body| body.get().to_owned()));
        Some(Ok(openai::exchange(request.get(), reply.as_deref().unwrap_or("null"), Some(&id))))
    }

    fn remember(&mut self, id: String, body: Box<RawValue>) {
        self.bytes += body.get().len();
        match self.batch.insert(id.clone(), body) {
            Some(earlier) => self.bytes -= earlier.get().len(),
            None => self.order.push_back(id),
        }
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.batch.remove(&oldest).map_or(0, |body| body.get().len());
        }
    }
}

fn read(value: &RawValue) -> Option<Members<'_>> {
    serde_json::from_str(value.get()).ok()
}

/// Whether it is a request, a recorded conversation, or a request with its reply.
fn is_native(members: &Members<'_>) -> bool {
    let has = |name| members.contains_key(name);
    let is_request =
        has("messages") || (has("input") && has("model") && !langfuse::is_trace_or_observation(members));
    is_request || has("previous_response_id") && !has("output") || (has("request") && has("response"))
}

/// Whether it is a message or an item, and nothing more.
fn is_message(members: &Members<'_>) -> bool {
    let text =
        |name: &str| members.get(name).and_then(|value| serde_json::from_str::<String>(value.get()).ok());
    let is_item = text("type").is_some_and(|kind| kind.starts_with("function_call"));
    (text("role").is_some() || is_item) && !members.contains_key("messages")
}

/// When it began, in a form that can be compared with others of its export.
fn started(members: &Members<'_>) -> Option<String> {
    let names = ["start_time", "startTime", "timestamp", "created", "created_at"];
    let value: Value = names.iter().find_map(|name| serde_json::from_str(members.get(*name)?.get()).ok())?;
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(format!("{:020.3}", number.as_f64()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
