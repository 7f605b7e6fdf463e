//! The dashboard's files, embedded in the program.

use super::answer::{Answer, HTML, TEXT};
use axum::extract::Path;
use bytes::Bytes;
use hyper::http::StatusCode;

/// A file of the dashboard: its path below `dashboard/` and its content.
struct File(&'static str, &'static [u8]);

/// Embeds the files with these paths.
macro_rules! embedded {
    ($($path:literal),+ $(,)?) => { &[$(File($path, include_bytes!(concat!("dashboard/", $path)))),+] };
}

const INDEX: &[u8] = include_bytes!("dashboard/index.html");

/// Everything that the page loads.
const FILES: &[File] = embedded![
    "announcer.js",
    "api.js",
    "chart.js",
    "dashboard.css",
    "dashboard.js",
    "dom.js",
    "events.js",
    "explain.js",
    "format.js",
    "icon.svg",
    "icons.js",
    "parts.js",
    "router.js",
    "session.js",
    "table.js",
    "theme.js",
    "uplot/LICENSE",
    "uplot/uPlot.iife.min.js",
    "uplot/uPlot.min.css",
    "views/approvals.js",
    "views/attention.js",
    "views/conversation.js",
    "views/conversations.js",
    "views/health.js",
    "views/limits.js",
    "views/overview.js",
    "views/savings.js",
    "views/sign_in.js",
    "views/stops.js",
    "views/tools.js",
];

/// The page at the top.
pub(super) async fn index() -> Answer {
    Answer(StatusCode::OK, HTML, Bytes::from_static(INDEX))
}

/// A file by its name.
pub(super) async fn file(Path(name): Path<String>) -> Answer {
    at(&name)
}

/// A file of a folder.
pub(super) async fn file_in(Path((folder, name)): Path<(String, String)>) -> Answer {
    at(&format!("{folder}/{name}"))
}

fn at(path: &str) -> Answer {
    match FILES.iter().find(|File(known, _)| *known == path) {
        Some(File(_, content)) => Answer(StatusCode::OK, kind_of(path), Bytes::from_static(content)),
        None => Answer::not_found("There is nothing at this path."),
    }
}

/// The content type by the name's ending.
fn kind_of(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => TEXT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard");
        let in_folder = |below: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder.join(below)).unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
            files.map(|entry| format!("{below}{}", entry.file_name().to_str().unwrap())).collect()
        };
        let there: BTreeSet<String> = ["", "uplot/", "views/"].into_iter().flat_map(in_folder).collect();
        let mut embedded = BTreeSet::from(["index.html".to_owned()]);
        embedded.extend(FILES.iter().map(|File(path, _)| (*path).to_owned()));
        assert_eq!(embedded, there);
    }
}
