//! Instruction counts in user space per request, by valgrind's callgrind: a figure that does not depend on other load,
//! kept as a file in the repository so that a regression shows in review. Does not cover caches or the kernel.

use super::acting::{Limits, TIGHT, WIDE};
use super::bodies::Api::{self, Messages, Responses};
use super::load::Freshness::{Cold, Warm};
use super::load::{Freshness, Load, Plan};
use super::subject::{self, Subject, Way, bare};
use super::{CHUNKS, acting, bodies, bounds, upstream};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// A row of the file.
struct Case {
    name: &'static str,
    api: Api,
    /// The pass-through of hyper alone where there is none.
    mode: Option<&'static str>,
    bytes: usize,
    results: usize,
    freshness: Freshness,
    is_stream: bool,
    /// The limits under which a long result, followed by so many short ones, is sent instead.
    long: Option<(Limits, usize)>,
    watched: Watched,
    requests: u32,
}

/// What observes the requests.
#[derive(Clone, Copy)]
enum Watched {
    Nothing,
    /// A reader of the admin port's events.
    Events,
    Recorder,
    /// Every trace is kept.
    Traces,
}

impl Watched {
    /// The environment variables that switch it on.
    fn variables(self, folder: &Path, upstream: SocketAddr) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Events => {
                vec!["TOOLREIN__ADMIN__TOKEN_ENV=TOKEN".to_owned(), format!("TOKEN={TOKEN}")]
            }
            Self::Recorder => vec![format!("TOOLREIN__RECORD__DIR={}", folder.join("records").display())],
            // The upstream answers to every path.
            Self::Traces => {
                vec![format!("TOOLREIN__TELEMETRY__TRACES__ENDPOINT=http://{upstream}/v1/traces")]
            }
        }
    }
}

const TOKEN: &str = "a-token-for-the-measurement";

const fn case(
    name: &'static str,
    mode: Option<&'static str>,
    (bytes, results): (usize, usize),
    requests: u32,
) -> Case {
    Case {
        name,
        api: Api::Chat,
        mode,
        bytes,
        results,
        freshness: Warm,
        is_stream: false,
        long: None,
        watched: Watched::Nothing,
        requests,
    }
}

const KB: usize = 1 << 10;

const OFF: Option<&str> = Some("off");
const ENFORCE: Option<&str> = Some("enforce");

const CASES: [Case; 33] = [
    case("hyper alone 1 KB", None, (KB, 0), 200),
    Case { is_stream: true, ..case("hyper alone stream, per chunk", None, (KB, 0), 4) },
    case("relayed 1 KB", OFF, (KB, 0), 200),
    case("relayed 32 KB", OFF, (32 * KB, 10), 200),
    case("relayed 1 MB", OFF, (1024 * KB, 200), 20),
    Case { is_stream: true, ..case("relayed stream, per chunk", OFF, (KB, 0), 4) },
    case("governed 1 KB", ENFORCE, (KB, 0), 200),
    case("governed 32 KB", ENFORCE, (32 * KB, 10), 200),
    Case { watched: Watched::Events, ..case("governed 32 KB, events read", ENFORCE, (32 * KB, 10), 200) },
    Case { watched: Watched::Recorder, ..case("governed 32 KB, recorded", ENFORCE, (32 * KB, 10), 200) },
    Case { watched: Watched::Traces, ..case("governed 32 KB, traced", ENFORCE, (32 * KB, 10), 200) },
    case("governed 256 KB", ENFORCE, (256 * KB, 60), 50),
    case("governed 1 MB", ENFORCE, (1024 * KB, 200), 20),
    Case { freshness: Cold, ..case("governed 32 KB, first sight", ENFORCE, (32 * KB, 10), 200) },
    Case { freshness: Cold, ..case("governed 256 KB, first sight", ENFORCE, (256 * KB, 60), 50) },
    Case { freshness: Cold, ..case("governed 1 MB, first sight", ENFORCE, (1024 * KB, 200), 20) },
    Case { is_stream: true, ..case("governed stream, per chunk", ENFORCE, (KB, 0), 4) },
    Case { api: Responses, ..case("governed Responses 1 KB", ENFORCE, (KB, 0), 200) },
    Case { api: Responses, ..case("governed Responses 32 KB", ENFORCE, (32 * KB, 10), 200) },
    Case {
        api: Responses,
        freshness: Cold,
        ..case("governed Responses 32 KB, first sight", ENFORCE, (32 * KB, 10), 200)
    },
    Case { api: Responses, ..case("governed Responses 1 MB", ENFORCE, (1024 * KB, 200), 20) },
    Case {
        api: Responses,
        is_stream: true,
        ..case("governed Responses stream, per event", ENFORCE, (KB, 0), 4)
    },
    Case { api: Messages, ..case("governed Messages 1 KB", ENFORCE, (KB, 0), 200) },
    Case { api: Messages, ..case("governed Messages 32 KB", ENFORCE, (32 * KB, 10), 200) },
    Case {
        api: Messages,
        freshness: Cold,
        ..case("governed Messages 32 KB, first sight", ENFORCE, (32 * KB, 10), 200)
    },
    Case { api: Messages, ..case("governed Messages 1 MB", ENFORCE, (1024 * KB, 200), 20) },
    Case {
        api: Messages,
        is_stream: true,
        ..case("governed Messages stream, per event", ENFORCE, (KB, 0), 4)
    },
    Case { long: Some((WIDE, 0)), ..case("60 KB result, new", ENFORCE, (0, 0), 100) },
    Case { long: Some((TIGHT, 0)), ..case("60 KB result, new, cut + notice", ENFORCE, (0, 0), 100) },
    Case { long: Some((WIDE, 1)), ..case("60 KB result", ENFORCE, (0, 0), 100) },
    Case { long: Some((TIGHT, 1)), ..case("60 KB result, cut + notice", ENFORCE, (0, 0), 100) },
    Case { api: Messages, long: Some((WIDE, 1)), ..case("Messages 60 KB result", ENFORCE, (0, 0), 100) },
    Case {
        api: Messages,
        long: Some((TIGHT, 1)),
        ..case("Messages 60 KB result, cut + notice", ENFORCE, (0, 0), 100)
    },
];

/// The table as text; `only` selects rows by a part of their name. Where `kept` names a folder, the profiles stay
/// there.
pub async fn counted(program: &str, only: Option<&str>, kept: Option<&Path>) -> String {
    let upstream = upstream::start().await;
    let mut text =
        "Instructions in user space per request, one connection (make instructions).\n\n".to_owned();
    for case in CASES.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
        let counted = case.count(program, upstream, kept).await;
        let _ = writeln!(text, "{:<38}{:>12}", case.name, rounded(counted));
        eprint!("{}", text.lines().last().map(|line| format!("{line}\n")).unwrap_or_default());
    }
    text
}

/// The count of one row.
pub async fn of_row(program: &str, name: &str) -> f64 {
    let upstream = upstream::start().await;
    let case = CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no row {name}"));
    case.count(program, upstream, None).await as f64
}

/// Counts the rows of `recorded`, a table of [`counted`], again, and prints them beside the recorded ones and their
/// bounds. Returns what is wrong: rows above what is recorded, and rows above a bound that the recorded count keeps. A row
/// whose recorded count misses its bound is named as missed: it must not rise. Rows of hyper alone are left out: they count
/// this program, not `program`.
pub async fn compared(program: &str, recorded: &str) -> Vec<String> {
    let upstream = upstream::start().await;
    let is_row = |name: &str| CASES.iter().any(|case| case.name == name);
    assert!(bounds::INSTRUCTIONS.iter().all(|(name, _)| is_row(name)), "a bound of no row");
    let mut wrong = Vec::new();
    println!("{:<38}{:>12}{:>12}{:>12}", "instructions", "bound", "recorded", "now");
    for case in CASES.iter().filter(|case| case.mode.is_some()) {
        let (row, bound) =
            (recorded_count(recorded, case.name).unwrap_or(0), bounds::instructions(case.name));
        let counted = case.count(program, upstream, None).await;
        let most = row * (100 + case.noise_percent()) / 100;
        let shown = bound.map_or_else(String::new, |bound| bound.to_string());
        let is_missed = bound.is_some_and(|bound| row > bound);
        let verdict = if is_missed { "  missed" } else { "" };
        println!("{:<38}{shown:>12}{row:>12}{:>12}{verdict}", case.name, rounded(counted));
        if counted > most {
            wrong.push(format!("{}: {} is above the recorded {row}", case.name, rounded(counted)));
        }
        if let Some(bound) = bound.filter(|bound| rounded(counted) > *bound && !is_missed) {
            wrong.push(format!("{}: {} is above its bound of {bound}", case.name, rounded(counted)));
        }
    }
    wrong
}

/// The table of `text`, a table of [`counted`], as Markdown with the bounds.
pub fn markdown(text: &str) -> String {
    let mut out = "| | bound | instructions | |\n|---|--:|--:|---|\n".to_owned();
    for case in &CASES {
        let Some(count) = recorded_count(text, case.name) else { continue };
        let bound = bounds::instructions(case.name);
        let verdict = if bound.is_some_and(|bound| count > bound) { "missed" } else { "" };
        let bound = bound.map(thousands).unwrap_or_default();
        let _ = writeln!(out, "| {} | {bound} | {} | {verdict} |", case.name, thousands(count));
    }
    out
}

fn recorded_count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// With commas between thousands.
fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

impl Case {
    /// How far a count may be above the recorded one, in percent: it differs by less from run to run.
    fn noise_percent(&self) -> u64 {
        match (self.watched, self.mode) {
            // How much of what the recorder's thread does falls into the count is chance.
            (Watched::Recorder, _) => 30,
            // A long body comes in more pieces on a busy machine, and relaying is little else.
            (_, OFF) if self.bytes >= 1024 * KB => 10,
            _ => 4,
        }
    }

    /// The instructions of one of its requests, or of one chunk of a stream.
    async fn count(&self, program: &str, upstream: SocketAddr, kept: Option<&Path>) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let out = kept.unwrap_or(folder.path()).join(format!("{}.out", self.name.replace([' ', ','], "_")));
        let limits = self.long.map_or(acting::LIMITS, |(limits, _)| limits);
        let config = acting::limited(limits);
        let url = bare(upstream);
        let way = self.mode.map(|mode| Way { url: &url, mode, config: &config });
        let variables = self.watched.variables(folder.path(), upstream);
        let subject = Subject::counted(program, folder.path(), upstream, way, &out, &variables).await;
        if matches!(self.watched, Watched::Events) {
            subject.read_events(TOKEN).await;
        }
        let body = match self.long {
            Some((_, then)) => acting::body(self.api, then),
            None => bodies::of_api(self.api, self.bytes, self.results, self.is_stream),
        };
        let stream = self.is_stream.then_some(CHUNKS);
        let mut load = Load { port: subject.port, body, number: 1, stream, connections: 1 };
        let plan = Plan { freshness: self.freshness, requests: self.requests };
        load.run(Plan { requests: self.requests / 2, ..plan }).await;
        subject::control(&subject, &["-i", "on"]);
        load.run(plan).await;
        subject::control(&subject, &["-i", "off"]);
        subject::control(&subject, &["-d"]);
        let per = self.requests as usize * if self.is_stream { CHUNKS } else { 1 };
        total(&out) / per as u64
    }
}

/// Three significant digits: the rest differs from run to run.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(2));
    (number + unit / 2) / unit * unit
}

/// What callgrind summed up in the profiles whose names begin with `out`.
fn total(out: &Path) -> u64 {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files = fs::read_dir(out.parent().unwrap_or(Path::new("."))).unwrap().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!("{name}.")));
    let sums = files.map(|file| {
        let text = fs::read_to_string(file.path()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
        line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or(0)
    });
    sums.sum()
}
