//! The command that explains a run: that of the newest recorded request in which a call was blocked.

use serde::Deserialize;
use std::fs::{File, read_dir};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// What of a recorded line is read.
#[derive(Deserialize)]
struct Line {
    toolrein: Done,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Done {
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    verdict: String,
}

/// The command for the `recording` of this process, with the configuration file that it needs.
pub(super) fn command(recording: Option<&Path>, config_file: Option<&Path>) -> String {
    let mut command = "toolrein explain".to_owned();
    let mut add = |option: &str, path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        command.push_str(&format!("{option}{}", quoted(&path)));
    };
    config_file.into_iter().for_each(|file| add(" -c ", file));
    match recording.and_then(newest_stop) {
        Some((file, line)) => add(&format!(" --line {line} "), &file),
        None => recording.into_iter().for_each(|folder| add(" ", folder)),
    }
    command
}

/// The file and the line of the newest request whose reply had a blocked call.
fn newest_stop(recording: &Path) -> Option<(PathBuf, usize)> {
    let own = format!("-{}-", std::process::id());
    let entries = read_dir(recording).ok()?.flatten().map(|entry| entry.path());
    let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&own));
    let mut files: Vec<PathBuf> = entries.filter(is_own).collect();
    files.sort();
    files.into_iter().rev().find_map(|file| {
        let lines = BufReader::new(File::open(&file).ok()?).lines().map_while(Result::ok);
        let is_stop = |line: &String| {
            let line: Option<Line> = serde_json::from_str(line).ok();
            line.is_some_and(|line| line.toolrein.calls.iter().any(|call| call.verdict == "block"))
        };
        let (at, _) = lines.enumerate().filter(|(_, line)| is_stop(line)).last()?;
        Some((file, at + 1))
    })
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@:".contains(letter);
    if path.chars().all(is_plain) { path.into_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let of = |config: Option<&str>| command(Some(Path::new("/a b/c")), config.map(Path::new));
        assert_eq!(of(None), "toolrein explain '/a b/c'");
        assert_eq!(of(Some("/it's.toml")), r"toolrein explain -c '/it'\''s.toml' '/a b/c'");
    }

    #[test]
    fn it_names_the_newest_line_in_which_a_call_was_blocked() {
        let folder = tempfile::tempdir().unwrap();
        let line = |verdict: &str| {
            format!("{{\"id\":\"a\",\"toolrein\":{{\"calls\":[{{\"verdict\":\"{verdict}\"}}]}}}}\n")
        };
        let name = |pid: u32| folder.path().join(format!("toolrein-1-{pid}-0001.jsonl"));
        let own = name(std::process::id());
        std::fs::write(&own, [line("block"), line("allow"), line("block"), line("allow")].concat()).unwrap();
        std::fs::write(name(u32::MAX), line("block")).unwrap();
        let path = quoted(&own);
        assert_eq!(command(Some(folder.path()), None), format!("toolrein explain --line 3 {path}"));
    }
}
