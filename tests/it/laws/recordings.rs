//! Recorded traffic as the laws need it: bodies, streams and conversations from `tests/data`, and from the folder
//! named by `TOOLREIN_CORPUS` where it is set. Reads files; asserts nothing about them.

#![allow(dead_code, reason = "shared by several test crates; each uses a part")]

use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    /// A whole reply, or an error in its place.
    Reply,
    Stream,
}

pub struct Recording {
    pub name: String,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

/// The recordings that the project carries.
pub fn own() -> Vec<Recording> {
    read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded"))
}

/// Those of one kind.
pub fn own_of(kind: Kind) -> Vec<Recording> {
    own().into_iter().filter(|recording| recording.kind == kind).collect()
}

/// The recordings of the corpus, if there is one.
pub fn of_corpus() -> Vec<Recording> {
    corpus().map_or_else(Vec::new, |folder| read_all(&folder.join("recorded")))
}

/// The recordings of the Responses API that the project carries, and those of the corpus.
pub fn of_responses() -> Vec<Recording> {
    own_responses().into_iter().chain(responses_of_corpus()).collect()
}

/// The recordings of the Responses API that the project carries.
pub fn own_responses() -> Vec<Recording> {
    read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/responses"))
}

/// Those of the corpus, if there is one.
pub fn responses_of_corpus() -> Vec<Recording> {
    corpus().map_or_else(Vec::new, |folder| read_all(&folder.join("responses")))
}

/// The recordings of the Messages API that the project carries, and those of the corpus.
pub fn of_messages() -> Vec<Recording> {
    own_messages().into_iter().chain(messages_of_corpus()).collect()
}

/// The recordings of the Messages API that the project carries.
pub fn own_messages() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/messages");
    ["requests.jsonl", "replies.jsonl"].iter().flat_map(|file| read_lines(&folder.join(file))).collect()
}

/// Those of the corpus, if there is one.
pub fn messages_of_corpus() -> Vec<Recording> {
    let Some(folder) = corpus().map(|folder| folder.join("messages")) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // A file of recordings has the name of its repository, `OWNER+NAME`.
    files.retain(|file| file.to_string_lossy().contains('+'));
    files.sort();
    files.iter().flat_map(|file| read_lines(file)).collect()
}

/// The requests of the Messages API, and the replies to them, of a file with one interaction a line.
fn read_lines(file: &Path) -> Vec<Recording> {
    let mut found = Vec::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let one: Value = serde_json::from_str(line).unwrap();
        let repository = file.file_stem().unwrap().to_string_lossy();
        let repository = one["repository"].as_str().unwrap_or(&repository);
        let name = format!("{repository}/{}.{}", one["unit"].as_str().unwrap(), one["n"]);
        if ["count_tokens", "models"].contains(&one["kind"].as_str().unwrap()) {
            continue;
        }
        let (request, response) = (one["request"].as_str(), one["response"].as_str());
        let request = request.map(|body| (Kind::Request, "request.json", body));
        let response = response.map(|body| match body.trim_start().starts_with('{') {
            true => (Kind::Reply, "reply.json", body),
            false => (Kind::Stream, "sse", body),
        });
        found.extend(request.into_iter().chain(response).map(|(kind, ending, body)| Recording {
            name: format!("{name}.{ending}"),
            kind,
            bytes: body.into(),
        }));
    }
    assert!(!found.is_empty(), "no recordings in {}", file.display());
    found
}

/// The folder of the corpus, if the environment names it.
pub fn corpus() -> Option<PathBuf> {
    std::env::var_os("TOOLREIN_CORPUS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The lines of the conversations that the project carries.
pub fn own_transcripts() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/transcripts/sample.jsonl");
    std::fs::read_to_string(path).unwrap()
}

fn read_all(folder: &Path) -> Vec<Recording> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        if let Some((kind, bytes)) = read(&name, std::fs::read(&path).unwrap()) {
            found.push(Recording { name, kind, bytes });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!found.is_empty(), "no recordings in {}", folder.display());
    found
}

fn read(name: &str, bytes: Vec<u8>) -> Option<(Kind, Vec<u8>)> {
    let ends = |with: &[&str]| with.iter().any(|end| name.ends_with(end));
    match name {
        _ if ends(&[".md", ".meta.json", ".jsonl"]) => None,
        _ if ends(&[".request.json"]) => Some((Kind::Request, bytes)),
        _ if ends(&[".chunks.txt"]) => Some((Kind::Stream, framed(&bytes))),
        _ if ends(&[".sse", ".txt", ".bin"]) => Some((Kind::Stream, bytes)),
        _ if ends(&[".json"]) && bytes.starts_with(b"data:") => Some((Kind::Stream, bytes)),
        _ => Some((Kind::Reply, bytes)),
    }
}

/// The data of events, one a line, as a stream again.
fn framed(lines: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(lines.to_vec()).unwrap();
    let mut out: String =
        text.lines().filter(|line| !line.is_empty()).map(|line| format!("data: {line}\n\n")).collect();
    out.push_str("data: [DONE]\n\n");
    out.into_bytes()
}
