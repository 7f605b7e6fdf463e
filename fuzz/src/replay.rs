//! Target: lines of recorded conversations as `replay` and `explain` read them. Each form is written, JSON is JSON, a
//! page carries no markup from the recording, and a terminal gets no control characters.

use crate::world::{SETS, choices, config, is_json, lossy};
use std::cell::RefCell;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::NamedTempFile;
use toolrein::explain::{self, Form, Which};
use toolrein::replay;

thread_local! {
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().unwrap());
}

pub fn run(input: &[u8]) -> bool {
    let (first, lines) = choices(input);
    let config = config(usize::from(first) % SETS);
    let path = written(lines);
    let text = explained(config, &path, Form::Text { colour: false });
    let control = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    assert!(!text.contains(control), "control characters: {text:?}");
    let page = explained(config, &path, Form::Html);
    // The page has only its own markup.
    let foreign = ["<script", "<img", "<iframe", "<svg", "onerror=", "javascript:"];
    let found = foreign.iter().find(|markup| {
        page.to_lowercase().contains(**markup)
            && lossy(lines).to_lowercase().contains(**markup)
            && !escaped(&page, markup)
    });
    assert!(found.is_none(), "{found:?} in the page");
    let json = explained(config, &path, Form::Json);
    assert!(json.lines().all(|line| is_json(line.as_bytes())), "no JSON: {json}");
    for verbose in [false, true] {
        let options =
            replay::Options { pace: Duration::from_secs(2), verbose, json: true, threads: 1, profile: None };
        let mut out = Vec::new();
        replay::run(config, std::slice::from_ref(&path), &options, &mut out, None).unwrap();
        assert!(
            out.split(|byte| *byte == b'\n').all(|line| line.is_empty() || is_json(line)),
            "{}",
            lossy(&out)
        );
    }
    !json.is_empty()
}

/// Whether the page has the markup as text only: a string that begins with a bracket never appears unescaped.
fn escaped(page: &str, markup: &str) -> bool {
    !markup.starts_with('<') || !page.to_lowercase().contains(markup)
}

fn explained(config: &replay::Enforced, path: &std::path::Path, form: Form) -> String {
    let which = Which::First;
    let options = explain::Options { which, form, full: true, profile: None, pace: Duration::from_secs(2) };
    let (mut out, mut aside) = (Vec::new(), Vec::new());
    explain::run(config, path, &options, &mut out, &mut aside).unwrap();
    assert!(std::str::from_utf8(&aside).is_ok());
    String::from_utf8(out).unwrap()
}

fn written(lines: &[u8]) -> PathBuf {
    FILE.with_borrow_mut(|file| {
        let path = file.path().to_owned();
        let file = file.as_file_mut();
        file.set_len(0).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(lines).unwrap();
        path
    })
}
