//! The replies that are played, each with the request that it answers: the recorded one, or one of its wire protocol that
//! declares the tools which it calls. Reads files and decides nothing.

use crate::recorded::{answers_create, declaring, declaring_items, is_error, unit};
use crate::recordings::{self, Kind, Recording};
use bytes::Bytes;
use dialects::dialect_of;
use mock::tolerant::{Call, calls_in_reply, calls_in_response, calls_in_response_stream, calls_in_stream};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
}

/// A reply as an upstream sends it.
#[derive(Clone, Debug)]
pub struct UpstreamReply {
    /// As events; else as one body.
    pub streams: bool,
    pub status: u16,
    pub bytes: Bytes,
}

/// A recorded reply, and what it answers.
pub struct Material {
    pub name: String,
    pub api: Api,
    pub said: UpstreamReply,
    /// The same with one argument renamed.
    renamed: UpstreamReply,
    /// The request as it was recorded or made, with whatever it says of streaming.
    request: Bytes,
    /// A request that declares the tools which the reply calls, and one more.
    declaring: Value,
    /// The names of the arguments of its calls.
    pub arguments: BTreeSet<String>,
}

/// A tool that every request declares that was not recorded, so that some tool is left where those of the reply are blocked.
const LEFT: &str = "look_up";

impl Material {
    /// `api`: what the reply is where neither the request nor the reply itself says it.
    fn new(name: String, api: Api, mut reply: Recording, recorded: Option<Bytes>) -> Self {
        // Streams are recorded under any name.
        if reply.bytes.starts_with(b"event:") {
            reply.kind = Kind::Stream;
        }
        let reply = &reply;
        let recorded = recorded.filter(|body| dialect_of(body).read(body).is_ok());
        let of_reply = if is_response(reply) { Api::Responses } else { api };
        let api = recorded.as_ref().map_or(of_reply, |body| api_of(body));
        let declaring = declaring_all(api, reply);
        let request = recorded.unwrap_or_else(|| declaring.to_string().into());
        let bytes = reply.bytes.clone().into();
        let said = UpstreamReply { streams: reply.kind == Kind::Stream, status: status(reply), bytes };
        let arguments = argument_names(&calls_of(api, reply));
        let renamed = renamed(&said, &arguments);
        Self { name, api, said, renamed, request, declaring, arguments }
    }

    /// The recorded reply, or the one in which a call's argument has a name that harms programs.
    pub fn said(&self, renames: bool) -> &UpstreamReply {
        if renames { &self.renamed } else { &self.said }
    }

    /// The request, which asks for a stream or not.
    pub fn request(&self, streams: bool) -> Bytes {
        let request: Value = serde_json::from_slice(&self.request).unwrap();
        if (request["stream"] == true) == streams { self.request.clone() } else { asking(request, streams) }
    }

    /// A request without schemas, in which the harmful name is as good as any.
    pub fn request_without_schemas(&self, streams: bool) -> Bytes {
        asking(self.declaring.clone(), streams)
    }

    /// A request in the middle of a turn: the model has called a tool, and the result is there.
    pub fn request_in_turn(&self, streams: bool) -> Bytes {
        let mut request = self.declaring.clone();
        if self.api == Api::Chat {
            let call = json!({"id": "call_before", "type": "function", "function": {"name": LEFT, "arguments": "{}"}});
            request["messages"] = json!([
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_before", "content": "r"},
            ]);
        } else {
            request["input"] = json!([
                {"type": "message", "role": "user", "content": "q"},
                {"type": "function_call", "call_id": "call_before", "name": LEFT, "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_before", "output": "r"},
            ]);
        }
        asking(request, streams)
    }
}

/// The request with a member that says whether it asks for a stream.
fn asking(mut request: Value, streams: bool) -> Bytes {
    let members = request.as_object_mut().unwrap();
    if streams {
        members.insert("stream".to_owned(), true.into());
    } else {
        members.remove("stream");
        members.remove("stream_options");
    }
    request.to_string().into()
}

/// Whether the reply itself shows that it is one of the Responses API.
fn is_response(reply: &Recording) -> bool {
    let text = String::from_utf8_lossy(&reply.bytes);
    match reply.kind {
        Kind::Stream => text.contains("\"type\":\"response.") || text.contains("\"type\": \"response."),
        _ => serde_json::from_str::<Value>(&text).is_ok_and(|body| body["object"] == "response"),
    }
}

/// A request that declares the tools which `reply` calls, and [`LEFT`].
fn declaring_all(api: Api, reply: &Recording) -> Value {
    let (body, left) = match api {
        Api::Chat => (declaring(reply), json!({"type": "function", "function": {"name": LEFT}})),
        Api::Responses => (declaring_items(reply), json!({"type": "function", "name": LEFT})),
    };
    let mut request: Value = serde_json::from_slice(&body).unwrap();
    request["tools"].as_array_mut().unwrap().push(left);
    request
}

fn api_of(request: &[u8]) -> Api {
    let request: Value = serde_json::from_slice(request).unwrap();
    if request.get("messages").is_some() { Api::Chat } else { Api::Responses }
}

/// The status of a reply: none was recorded with it.
fn status(reply: &Recording) -> u16 {
    let body = || serde_json::from_slice::<Value>(&reply.bytes).unwrap_or_default();
    let refuses = |body: Value| is_error(&body) && body.get("choices").is_none();
    if reply.kind == Kind::Reply && refuses(body()) { 400 } else { 200 }
}

fn calls_of(api: Api, reply: &Recording) -> Vec<Call> {
    match (api, reply.kind) {
        (Api::Chat, Kind::Stream) => calls_in_stream(&reply.bytes),
        (Api::Chat, _) => calls_in_reply(&reply.bytes),
        (Api::Responses, Kind::Stream) => calls_in_response_stream(&reply.bytes),
        (Api::Responses, _) => calls_in_response(&reply.bytes),
    }
}

/// The members of all arguments that are JSON.
fn argument_names(calls: &[Call]) -> BTreeSet<String> {
    let values = calls.iter().filter_map(|call| serde_json::from_str::<Value>(&call.arguments).ok());
    let names = values.filter_map(|value| Some(value.as_object()?.keys().cloned().collect::<Vec<_>>()));
    names.flatten().filter(|name| !name.is_empty()).collect()
}

/// A name of an argument that harms programs in JavaScript.
const HARMFUL: &str = "constructor";
/// Names of arguments that are members of replies too.
const MEMBERS: [&str; 10] =
    ["name", "type", "content", "text", "input", "arguments", "model", "index", "status", "role"];

/// The reply with a harmful name in place of that of one argument.
fn renamed(said: &UpstreamReply, arguments: &BTreeSet<String>) -> UpstreamReply {
    let is_apart = |name: &&String| name.len() > 3 && !MEMBERS.contains(&name.as_str());
    let Some(name) = arguments.iter().find(is_apart) else { return said.clone() };
    let text = String::from_utf8_lossy(&said.bytes).replace(name.as_str(), HARMFUL);
    UpstreamReply { bytes: text.into(), ..said.clone() }
}

/// The replies that the project carries.
pub fn own() -> Vec<Material> {
    let chat = answered("recorded", Api::Chat, recordings::own());
    let responses = of_responses("responses", recordings::own_responses());
    let found: Vec<Material> = chat.chain(responses).chain(fuzzed()).chain(errors_in_200()).collect();
    assert!(found.len() > 100, "only {} replies", found.len());
    found
}

/// Those of the corpus, if there is one.
pub fn of_corpus() -> Vec<Material> {
    let chat = answered("corpus/recorded", Api::Chat, recordings::of_corpus());
    chat.chain(of_responses("corpus/responses", recordings::responses_of_corpus())).collect()
}

/// Of the Responses API other routes were recorded too.
fn of_responses(folder: &'static str, mut found: Vec<Recording>) -> impl Iterator<Item = Material> {
    found.retain(|one| one.kind == Kind::Request || answers_create(one));
    answered(folder, Api::Responses, found)
}

/// The replies among recordings, with their requests.
fn answered(folder: &'static str, api: Api, found: Vec<Recording>) -> impl Iterator<Item = Material> {
    let (requests, replies): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.kind == Kind::Request);
    let bodies: BTreeMap<String, Bytes> =
        requests.into_iter().map(|one| (unit(&one), one.bytes.into())).collect();
    replies.into_iter().map(move |one| {
        let recorded = bodies.get(&unit(&one)).cloned();
        Material::new(format!("{folder}/{}", one.name), api, one, recorded)
    })
}

fn data(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Replies that once broke something, without the choices that precede them.
fn fuzzed() -> Vec<Material> {
    let inputs = [
        ("fuzzed/reply/only-calls", Kind::Reply, "{"),
        ("fuzzed/reply/same-index", Kind::Reply, "{"),
        ("fuzzed/stream/unended-event", Kind::Stream, "data:"),
    ];
    let material = |(name, kind, begin): (&str, Kind, &str)| {
        let text = fs::read_to_string(data(name)).unwrap();
        let bytes = text.as_bytes()[text.find(begin).unwrap()..].to_vec();
        Material::new(name.to_owned(), Api::Chat, Recording { name: name.to_owned(), kind, bytes }, None)
    };
    inputs.into_iter().map(material).collect()
}

/// Errors inside of replies with status 200.
fn errors_in_200() -> Vec<Material> {
    let text = fs::read_to_string(data("refusals/error_in_200.jsonl")).unwrap();
    let material = |(at, line): (usize, &str)| {
        let case: Value = serde_json::from_str(line).unwrap();
        let kind = if case["kind"] == "sse" { Kind::Stream } else { Kind::Reply };
        let (name, bytes) = (format!("refusals/error_in_200.{at:02}"), case["body"].as_str().unwrap().into());
        let mut material = Material::new(name.clone(), Api::Chat, Recording { name, kind, bytes }, None);
        material.said.status = 200;
        material
    };
    text.lines().enumerate().map(material).collect()
}
