//! The dashboard's files, embedded in the program.

use super::answer::{Answer, HTML};
use axum::extract::Path;
use bytes::Bytes;
use hyper::http::StatusCode;

/// A file below `/dashboard/`: its name, its content type and its content.
struct File(&'static str, &'static str, &'static [u8]);

const INDEX: &[u8] = include_bytes!("dashboard/index.html");
const FILES: &[File] = &[File("index.html", HTML, INDEX)];

/// The page at the top.
pub(super) async fn index() -> Answer {
    Answer(StatusCode::OK, HTML, Bytes::from_static(INDEX))
}

/// A file by its name.
pub(super) async fn file(Path(name): Path<String>) -> Answer {
    match FILES.iter().find(|File(known, ..)| *known == name) {
        Some(File(_, kind, content)) => Answer(StatusCode::OK, kind, Bytes::from_static(content)),
        None => Answer::not_found("There is nothing at this path."),
    }
}
