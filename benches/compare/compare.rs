//! toolrein beside nginx: CPU time per request and per chunk, memory, start. Starts both in front of a fast upstream of
//! its own, loads them with the same requests in turns, and prints a table. Run it by `run.sh`, which pins it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a measurement may stop")]

#[path = "../bodies/mod.rs"]
mod bodies;
mod instructions;
mod load;
mod subject;
mod upstream;

use load::Freshness::{Cold, Same, Warm};
use load::{Load, Plan};
use std::path::Path;
use std::time::Instant;
use subject::Subject;

/// The least of so many rounds counts.
const ROUNDS: u32 = 5;
/// Chunks of one stream.
pub const CHUNKS: usize = 200;
/// Connections that are busy at once.
const CONNECTIONS: usize = 8;
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
    let only = arguments.next();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if only.as_deref() == Some("instructions") {
        let only = arguments.next();
        let kept = arguments.next();
        let text = runtime.block_on(instructions::count(&program, only.as_deref(), kept.as_deref().map(Path::new)));
        print!("{text}");
        return;
    }
    runtime.block_on(compare(&program, only.as_deref()));
}

/// `only`: the name of the one row that is wanted.
async fn compare(program: &str, only: Option<&str>) {
    tokio::spawn(stay_awake());
    let upstream = upstream::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut subjects = Vec::new();
    let mut starts = Vec::new();
    for mode in [None, Some("off"), Some("enforce")] {
        let begun = Instant::now();
        subjects.push(match mode {
            None => Subject::nginx(folder.path(), upstream).await,
            Some(mode) => Subject::toolrein(program, folder.path(), upstream, mode).await,
        });
        starts.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let idle: Vec<f64> = subjects.iter().map(Subject::resident_mb).collect();

    println!("CPU us per request (stream: per chunk); the least of {ROUNDS} rounds; x: ratio to nginx");
    println!("{:<8} {:>8} {:>14} {:>14} {:>14}", "", "nginx", "relayed", "warm", "cold");
    let mut number = 1;
    for case in CASES.iter().filter(|case| only.is_none_or(|only| only == case.name)) {
        row(case.name, &requests(&subjects, case, &mut number).await);
    }
    if only.is_none_or(|only| only == "stream") {
        row("stream", &chunks(&subjects, &mut number).await);
    }

    println!("\n{:<40} {:>8} {:>8} {:>8}", "", "nginx", "relayed", "enforce");
    figures("start to first answer, ms", &starts);
    figures("memory before the first request, MB", &idle);
    figures(
        "memory after all of the above, MB",
        &subjects.iter().map(Subject::resident_mb).collect::<Vec<_>>(),
    );
    figures("more with 1,000 idle streams, MB", &memory_of_streams(&subjects).await);
    figures("size of the program, MB", &subjects.iter().map(Subject::program_mb).collect::<Vec<_>>());
}

/// Keeps the load's processor busy: where it sleeps, whoever writes to it pays to wake it, dearly in a virtual machine,
/// so that what is a little slower than the load looks a lot slower.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// CPU time per request in us: nginx, relayed, and governed with a history seen before and with one never seen.
async fn requests(subjects: &[Subject], case: &Case, number: &mut u32) -> [f64; 4] {
    let body = bodies::conversation(case.bytes, case.results, false);
    let plans = [(&subjects[0], Same), (&subjects[1], Same), (&subjects[2], Warm), (&subjects[2], Cold)];
    let mut least = [f64::MAX; 4];
    for _ in 0..ROUNDS {
        for (at, (subject, freshness)) in plans.into_iter().enumerate() {
            let mut load = Load { port: subject.port, body: body.clone(), number: *number, stream: None, connections: CONNECTIONS };
            load.run(Plan { freshness, requests: case.requests / 10 }).await;
            let spent = measured(subject, &mut load, Plan { freshness, requests: case.requests }).await;
            least[at] = least[at].min(spent);
            *number = load.number;
        }
    }
    least
}

/// CPU time per chunk of a stream in us, for each subject.
async fn chunks(subjects: &[Subject], number: &mut u32) -> [f64; 3] {
    let mut least = [f64::MAX; 3];
    for _ in 0..ROUNDS {
        for (least, subject) in least.iter_mut().zip(subjects) {
            let body = bodies::conversation(1 << 10, 0, true);
            let mut load = Load { port: subject.port, body, number: *number, stream: Some(CHUNKS), connections: CONNECTIONS };
            load.run(Plan { freshness: Warm, requests: 8 }).await;
            let spent = measured(subject, &mut load, Plan { freshness: Warm, requests: 64 }).await;
            *least = least.min(spent / CHUNKS as f64);
            *number = load.number;
        }
    }
    least
}

/// CPU time per request in us.
async fn measured(subject: &Subject, load: &mut Load, plan: Plan) -> f64 {
    let before = subject.cpu();
    load.run(plan).await;
    (subject.cpu() - before).as_secs_f64() * 1e6 / f64::from(plan.requests)
}

async fn memory_of_streams(subjects: &[Subject]) -> Vec<f64> {
    let mut more = Vec::new();
    for subject in subjects {
        let body = bodies::conversation(1 << 10, 0, true);
        let before = subject.resident_mb();
        let open = load::open_streams(subject.port, &body, IDLE_STREAMS).await;
        more.push(subject.resident_mb() - before);
        drop(open);
    }
    more
}

fn row(name: &str, spent: &[f64]) {
    let rest: String = spent[1..].iter().map(|own| format!(" {own:8.1} {:4.2}x", own / spent[0])).collect();
    println!("{name:<8} {:8.1}{rest}", spent[0]);
}

fn figures(name: &str, values: &[f64]) {
    let values: String = values.iter().map(|value| format!(" {value:8.1}")).collect();
    println!("{name:<40}{values}");
}
