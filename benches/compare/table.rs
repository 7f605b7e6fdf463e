//! The comparison table: CPU time, requests per second, delays, memory and start of every program under test, as
//! medians of interleaved rounds. Measures and writes Markdown; starts no process itself.

use super::bodies::Api;
use super::load::Freshness::{Cold, Same, Warm};
use super::load::{self, Freshness, Load, Plan, StreamTimes};
use super::subject::Subject;
use super::{CHUNKS, acting, bodies, upstream};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Connections that are busy at once.
const CONNECTIONS: usize = 8;
const IDLE_STREAMS: usize = 1000;
/// Streams of a round whose delays are measured.
const TIMED: usize = 9;
/// How often requests come at a fixed rate for a while.
const STEADY_ROUNDS: usize = 3;

/// The subjects, in the order of the columns.
const NAMES: [&str; 6] = ["direct", "nginx", "hyper alone", "off", "observe", "enforce"];
const NGINX: usize = 1;

struct Case {
    name: &'static str,
    bytes: usize,
    results: usize,
    requests: u32,
    /// Per second, where they come at a fixed rate.
    rate: u32,
    /// Seconds for which they do: more than a hundred requests in all, or their 99th percentile would be the slowest
    /// one and show only what disturbed that.
    seconds: u64,
}

const CASES: [Case; 4] = [
    Case { name: "1 KB", bytes: 1 << 10, results: 0, requests: 4000, rate: 200, seconds: 2 },
    Case { name: "32 KB", bytes: 32 << 10, results: 10, requests: 2000, rate: 200, seconds: 2 },
    Case { name: "256 KB", bytes: 256 << 10, results: 60, requests: 480, rate: 50, seconds: 3 },
    Case { name: "1 MB", bytes: 1 << 20, results: 200, requests: 160, rate: 20, seconds: 6 },
];

/// Figures of one round: CPU time of a request in us, and requests per second.
pub type RoundFigures = (f64, f64);

/// The table as Markdown.
pub async fn measured(program: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (upstream, subjects, starts) = started(program, folder.path()).await;
    let idle: Vec<f64> = subjects.iter().map(|subject| subject.memory_mb("VmRSS")).collect();
    let (mut cpu, mut rates, mut delays) = (String::new(), String::new(), String::new());
    let mut number = 1;
    for case in &CASES {
        let body = bodies::conversation(case.bytes, case.results, false);
        for freshness in [Warm, Cold] {
            let rows = requests(&subjects, case.requests, (&body, freshness), &mut number).await;
            let name = named(case, freshness);
            ratios(&mut cpu, &name, &rows);
            figures(&mut rates, &name, &rows.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
        }
        let times = steady(&subjects, case, &body, &mut number).await;
        for (at, percentile) in ["p50", "p99"].into_iter().enumerate() {
            let added = times.map(|subject| subject[at] - times[0][at]);
            milliseconds(
                &mut delays,
                &format!("{}, {percentile}, added to {:.2} ms", case.name, times[0][at]),
                &added,
            );
        }
    }
    let acting = acting::measured(program, folder.path(), upstream, &mut number).await;
    let streams = chunks(&subjects, Api::Chat, &mut number).await;
    ratios(&mut cpu, "streamed text, a chunk", &streams.map(|[cpu, ..]| (cpu, 0.0)));
    responses(&subjects, &mut cpu, &mut number).await;
    for (at, name) in STREAM_TIMES.into_iter().enumerate() {
        milliseconds(&mut delays, name, &streams.map(|figures| figures[1 + at]));
    }
    let mut foot = String::new();
    figures(&mut foot, "start to first answer, ms", &starts);
    figures(&mut foot, "memory when idle, MB", &idle);
    figures(&mut foot, "more with 1,000 idle streams, MB", &memory_of_streams(&subjects).await);
    figures(&mut foot, "peak memory of all this, MB", &each(&subjects, |subject| subject.memory_mb("VmHWM")));
    figures(&mut foot, "size of the program, MB", &each(&subjects, Subject::program_mb));
    let head = NAMES.map(|name| format!(" {name} |")).concat();
    let titled = |title: &str, rows: &str| {
        format!("{title}\n\n| |{head}\n|---|{}\n{rows}\n", "--:|".repeat(NAMES.len()))
    };
    [
        format!("{}\n\n", machine()),
        titled("CPU time in us, and its ratio to nginx's (medians of rounds):", &cpu),
        acting,
        titled("Requests per second at saturation, the program under test on one processor:", &rates),
        titled("Milliseconds (the first column: without a proxy):", &delays),
        titled("Footprint:", &foot),
    ]
    .concat()
}

/// The CPU times of the requests whose size begins with `only`, of acting, of a stream's chunk, of the Responses
/// API or of a chain of responses, as Markdown: for a
/// quick check.
pub async fn cpu(program: &str, only: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (upstream, subjects, _) = started(program, folder.path()).await;
    let (mut cpu, mut number) = (String::new(), 1);
    if only == "acting" {
        return acting::measured(program, folder.path(), upstream, &mut number).await;
    }
    if only == "responses" {
        responses(&subjects, &mut cpu, &mut number).await;
        return cpu;
    }
    if only == "chain" {
        return chain(&subjects[subjects.len() - 1], &mut number).await;
    }
    if only == "stream" {
        let streams = chunks(&subjects, Api::Chat, &mut number).await;
        ratios(&mut cpu, "streamed text, a chunk", &streams.map(|[cpu, ..]| (cpu, 0.0)));
        return cpu;
    }
    for case in CASES.iter().filter(|case| case.name.starts_with(only)) {
        let body = bodies::conversation(case.bytes, case.results, false);
        for freshness in [Warm, Cold] {
            let rows = requests(&subjects, case.requests, (&body, freshness), &mut number).await;
            ratios(&mut cpu, &named(case, freshness), &rows);
        }
    }
    cpu
}

/// The rows of the Responses API.
async fn responses(subjects: &[Subject], cpu: &mut String, number: &mut u32) {
    for case in &CASES {
        let body = bodies::of_api(Api::Responses, case.bytes, case.results, false);
        for freshness in [Warm, Cold] {
            let rows = requests(subjects, case.requests, (&body, freshness), number).await;
            ratios(cpu, &format!("Responses, {}", named(case, freshness)), &rows);
        }
    }
    for (instructions, name) in [(100, "an event"), (40_000, "an event, three of the stream's 200 of 40 KB")]
    {
        upstream::INSTRUCTIONS.store(instructions, Ordering::Relaxed);
        let streams = chunks(subjects, Api::Responses, number).await;
        ratios(cpu, &format!("Responses, {name}"), &streams.map(|[cpu, ..]| (cpu, 0.0)));
    }
}

/// How long the chain of [`chain`] is, and a part of it.
const CHAIN: [u32; 2] = [1_000, 100];

/// The CPU time of requests that each go on from the reply before, by their position, as Markdown.
async fn chain(subject: &Subject, number: &mut u32) -> String {
    let body = bodies::continued();
    let mut load = Load { port: subject.port, body, number: *number, stream: None, connections: 1 };
    let mut out = "| responses before | us |\n|--:|--:|\n".to_owned();
    for at in 0..CHAIN[0] / CHAIN[1] {
        let before = subject.cpu();
        load.run(Plan { freshness: Warm, requests: CHAIN[1] }).await;
        let us = (subject.cpu() - before).as_secs_f64() * 1e6 / f64::from(CHAIN[1]);
        let _ = writeln!(out, "| {} | {us:.0} |", at * CHAIN[1]);
    }
    out
}

/// An upstream, the subjects in front of it, and the ms that each took to its first answer.
async fn started(program: &str, folder: &Path) -> (SocketAddr, Vec<Subject>, Vec<f64>) {
    tokio::spawn(stay_awake());
    let upstream = upstream::start().await;
    let (mut subjects, mut starts) = (vec![Subject::direct(upstream)], vec![0.0]);
    for name in &NAMES[NGINX..] {
        let launched = Instant::now();
        subjects.push(match *name {
            "nginx" => Subject::nginx(folder, upstream).await,
            "hyper alone" => Subject::floor(upstream).await,
            mode => Subject::toolrein(program, folder, upstream, mode).await,
        });
        starts.push(launched.elapsed().as_secs_f64() * 1e3);
    }
    (upstream, subjects, starts)
}

fn named(case: &Case, freshness: Freshness) -> String {
    format!("{}, {}", case.name, if freshness == Cold { "first sight" } else { "seen before" })
}

/// Keeps the load's processor busy. If it slept, the program under test would pay for waking it, which is expensive in
/// a virtual machine, and a program slightly slower than the load would look much slower.
pub async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Sends `count` requests to each of the subjects in turn.
pub async fn requests(
    subjects: &[Subject],
    count: u32,
    (body, freshness): (&bodies::Body, Freshness),
    number: &mut u32,
) -> Vec<RoundFigures> {
    let mut rounds = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (subject, rounds) in subjects.iter().zip(&mut rounds) {
            // A subject that does not read bodies can get the same one each time.
            let freshness = if subject.reads() { freshness } else { Same };
            let mut load = Load {
                port: subject.port,
                body: body.clone(),
                number: *number,
                stream: None,
                connections: CONNECTIONS,
            };
            load.run(Plan { freshness, requests: count / 10 }).await;
            let (before, sent_at) = (subject.cpu(), Instant::now());
            load.run(Plan { freshness, requests: count }).await;
            let (spent, took) = (subject.cpu() - before, sent_at.elapsed());
            rounds
                .push((spent.as_secs_f64() * 1e6 / f64::from(count), f64::from(count) / took.as_secs_f64()));
            *number = load.number;
        }
    }
    let medians = rounds.iter().map(|rounds| {
        let of = |figure: fn(&RoundFigures) -> f64| median(rounds.iter().map(figure).collect());
        (of(|round| round.0), of(|round| round.1))
    });
    medians.collect()
}

/// The median and the 99th percentile of a request's time in ms at a low, fixed rate: medians of interleaved rounds.
async fn steady(
    subjects: &[Subject],
    case: &Case,
    body: &bodies::Body,
    number: &mut u32,
) -> [[f64; 2]; NAMES.len()] {
    let mut all: [Vec<[f64; 2]>; NAMES.len()] = Default::default();
    for _ in 0..STEADY_ROUNDS {
        for (subject, rounds) in subjects.iter().zip(&mut all) {
            let mut load = Load {
                port: subject.port,
                body: body.clone(),
                number: *number,
                stream: None,
                connections: 1,
            };
            let mut taken = load.steady(case.rate, Duration::from_secs(case.seconds)).await;
            taken.sort_by(f64::total_cmp);
            rounds.push([taken[taken.len() / 2], taken[taken.len() * 99 / 100]]);
            *number = load.number;
        }
    }
    all.map(|rounds| [0, 1].map(|at| median(rounds.iter().map(|times| times[at]).collect())))
}

/// The delays of a stream that are reported.
const STREAM_TIMES: [&str; 3] =
    ["time to first byte of a stream", "delay of a stream's first chunk, after the head", "delay of a chunk"];

/// Of a stream: CPU time per chunk in us, and in ms what `STREAM_TIMES` names.
async fn chunks(subjects: &[Subject], api: Api, number: &mut u32) -> [[f64; 4]; NAMES.len()] {
    let mut rounds: [Vec<[f64; 4]>; NAMES.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (subject, rounds) in subjects.iter().zip(&mut rounds) {
            let mut load = Load {
                port: subject.port,
                body: bodies::of_api(api, 1 << 10, 0, true),
                number: *number,
                stream: Some(CHUNKS),
                connections: CONNECTIONS,
            };
            load.run(Plan { freshness: Warm, requests: 8 }).await;
            let before = subject.cpu();
            load.run(Plan { freshness: Warm, requests: 64 }).await;
            let cpu = (subject.cpu() - before).as_secs_f64() * 1e6 / 64.0 / CHUNKS as f64;
            let mut times = Vec::new();
            for _ in 0..TIMED {
                times.push(load.timed_stream().await);
            }
            let of = |figure: fn(&StreamTimes) -> f64| median(times.iter().map(figure).collect());
            rounds.push([
                cpu,
                of(|times| times.first),
                of(|times| times.first_delay),
                of(|times| times.delay),
            ]);
            *number = load.number;
        }
    }
    rounds.map(|rounds| [0, 1, 2, 3].map(|at| median(rounds.iter().map(|round| round[at]).collect())))
}

async fn memory_of_streams(subjects: &[Subject]) -> Vec<f64> {
    let mut more = vec![0.0];
    for subject in &subjects[NGINX..] {
        let body = bodies::conversation(1 << 10, 0, true);
        let before = subject.memory_mb("VmRSS");
        let open = load::open_streams(subject.port, &body, IDLE_STREAMS).await;
        more.push(subject.memory_mb("VmRSS") - before);
        drop(open);
    }
    more
}

fn each(subjects: &[Subject], figure: impl Fn(&Subject) -> f64) -> Vec<f64> {
    subjects.iter().map(figure).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ratios(out: &mut String, name: &str, rounds: &[RoundFigures]) {
    let nginx = rounds[NGINX].0;
    let cell = |(at, (cpu, _)): (usize, &RoundFigures)| match at {
        0 => " |".to_owned(),
        NGINX => format!(" {cpu:.1} |"),
        _ => format!(" **{:.2}x** {cpu:.1} |", cpu / nginx),
    };
    let cells: String = rounds.iter().enumerate().map(cell).collect();
    let _ = writeln!(out, "| {name} |{cells}");
}

fn figures(out: &mut String, name: &str, values: &[f64]) {
    let cell = |value: &f64| match *value {
        0.0 => " |".to_owned(),
        value if value >= 100.0 => format!(" {value:.0} |"),
        value => format!(" {value:.1} |"),
    };
    let _ = writeln!(out, "| {name} |{}", values.iter().map(cell).collect::<String>());
}

fn milliseconds(out: &mut String, name: &str, values: &[f64]) {
    let _ = writeln!(
        out,
        "| {name} |{}",
        values.iter().map(|value| format!(" {value:.3} |")).collect::<String>()
    );
}

/// The machine that it was measured on.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy.split(' ').next().unwrap_or("?").to_owned();
    format!(
        "{count} processors, {}, Linux. One for the program under test, one for load and upstream; {ROUNDS} \
         interleaved rounds. The machine's load at the end: {busy} (2 are its own).",
        model.unwrap_or(" unknown").trim()
    )
}
