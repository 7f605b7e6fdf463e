//! toolrein beside nginx: CPU time per request and per chunk, memory, start. Starts both in front of a fast upstream of
//! its own, loads them with the same requests in turns, and prints a table. Run it by `run.sh`, which pins it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a measurement may stop")]

#[path = "../bodies/mod.rs"]
mod bodies;
mod load;
mod subject;
mod upstream;

use load::Freshness::{Cold, Same, Warm};
use load::{Load, Plan};
use std::time::{Duration, Instant};
use subject::Subject;

/// The least of so many rounds counts.
const ROUNDS: u32 = 3;
/// Chunks of one stream.
pub const CHUNKS: usize = 200;
const IDLE_STREAMS: usize = 1000;

/// A row of the table: its name, the body, and how it is sent to each kind of subject.
struct Case {
    name: &'static str,
    bytes: usize,
    results: usize,
    requests: u32,
}

const CASES: [Case; 3] = [
    Case { name: "1 KB", bytes: 1 << 10, results: 0, requests: 6000 },
    Case { name: "32 KB", bytes: 32 << 10, results: 10, requests: 3000 },
    Case { name: "1 MB", bytes: 1 << 20, results: 200, requests: 200 },
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_else(|| panic!("usage: compare PATH_OF_TOOLREIN [ROW]"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare(&program, arguments.next().as_deref()));
}

/// `only`: the name of the one row that is wanted.
async fn compare(program: &str, only: Option<&str>) {
    let upstream = upstream::start().await;
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let nginx = Subject::nginx(folder.path(), upstream).await;
    let mut starts = vec![begun.elapsed()];
    let begun = Instant::now();
    let off = Subject::toolrein(program, folder.path(), upstream, "off").await;
    starts.push(begun.elapsed());
    let begun = Instant::now();
    let enforce = Subject::toolrein(program, folder.path(), upstream, "enforce").await;
    starts.push(begun.elapsed());
    let idle: Vec<f64> = [&nginx, &off, &enforce].map(Subject::resident_mb).into();

    println!("CPU us per request (stream: per chunk); the least of {ROUNDS} rounds; x: ratio to nginx");
    println!("{:<8} {:>8} {:>14} {:>14} {:>14}", "", "nginx", "relayed", "warm", "cold");
    let mut number = 1;
    for case in CASES.iter().filter(|case| only.is_none_or(|only| only == case.name)) {
        let body = bodies::conversation(case.bytes, case.results, false);
        let plans = [(&nginx, Same), (&off, Same), (&enforce, Warm), (&enforce, Cold)];
        let mut least = [f64::MAX; 4];
        for _ in 0..ROUNDS {
            for (at, (subject, freshness)) in plans.iter().enumerate() {
                let mut load = Load { port: subject.port, body: body.clone(), number, stream: None };
                let plan = Plan { freshness: *freshness, requests: case.requests / 10 };
                load.run(plan).await;
                let before = subject.cpu();
                load.run(Plan { requests: case.requests, ..plan }).await;
                let spent = (subject.cpu() - before).as_secs_f64() * 1e6 / f64::from(case.requests);
                least[at] = least[at].min(spent);
                number = load.number;
            }
        }
        row(case.name, &least);
    }
    let mut least = [f64::MAX; 3];
    for _ in 0..if only.is_none_or(|only| only == "stream") { ROUNDS } else { 0 } {
        for (at, subject) in [&nginx, &off, &enforce].into_iter().enumerate() {
            let body = bodies::conversation(1 << 10, 0, true);
            let mut load = Load { port: subject.port, body, number, stream: Some(CHUNKS) };
            load.run(Plan { freshness: Warm, requests: 8 }).await;
            let before = subject.cpu();
            load.run(Plan { freshness: Warm, requests: 64 }).await;
            least[at] = least[at].min((subject.cpu() - before).as_secs_f64() * 1e6 / (64.0 * CHUNKS as f64));
            number = load.number;
        }
    }
    row("stream", &least);

    println!("\n{:<40} {:>8} {:>8} {:>8}", "", "nginx", "relayed", "enforce");
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    figures("start to first answer, ms", &starts.iter().map(ms).collect::<Vec<_>>());
    figures("memory before the first request, MB", &idle);
    let subjects = [&nginx, &off, &enforce];
    figures("memory after all of the above, MB", &subjects.map(Subject::resident_mb));
    let mut streaming = Vec::new();
    for subject in subjects {
        let body = bodies::conversation(1 << 10, 0, true);
        let before = subject.resident_mb();
        let open = load::open_streams(subject.port, &body, IDLE_STREAMS).await;
        streaming.push(subject.resident_mb() - before);
        drop(open);
    }
    figures("more with 1,000 idle streams, MB", &streaming);
    figures("size of the program, MB", &subjects.map(|subject| subject.program_mb()));
}

fn row(name: &str, spent: &[f64]) {
    let rest: String = spent[1..].iter().map(|own| format!(" {own:8.1} {:4.2}x", own / spent[0])).collect();
    println!("{name:<8} {:8.1}{rest}", spent[0]);
}

fn figures(name: &str, values: &[f64]) {
    let values: String = values.iter().map(|value| format!(" {value:8.1}")).collect();
    println!("{name:<40}{values}");
}
