//! The table of `make bench`: toolrein beside nginx and beside hyper alone in one run, with the bound of each row.
//! Measures and writes Markdown; starts no process itself.

use super::acting::{self, TIGHT, WIDE};
use super::bodies::{self, Api, Body};
use super::bounds::{self, Bound};
use super::load::Freshness::{Cold, Same, Warm};
use super::load::{self, Freshness, Load, Plan};
use super::subject::Subject;
use super::{CHUNKS, growth, instructions, upstream};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interleaved rounds of requests whose processor time is measured; a figure is their median.
const ROUNDS: usize = 9;
/// Connections that are busy at once.
const CONNECTIONS: usize = 8;
/// Streams that are open at once. With two descriptors each they fit into 20,000.
const IDLE_STREAMS: usize = 9_900;
/// Streams of a round whose delays are measured.
const TIMED: usize = 9;
/// Requests at a fixed rate come in so many rounds of so many, so that what disturbs the machine disturbs all subjects.
const STEADY: (usize, u32) = (25, 20);
/// How often a program is started.
const STARTS: usize = 5;

struct Size {
    name: &'static str,
    bytes: usize,
    results: usize,
    requests: u32,
    /// Per second, where they come at a fixed rate.
    rate: u32,
}

const SIZES: [Size; 4] = [
    Size { name: "1 KB", bytes: 1 << 10, results: 0, requests: 800, rate: 200 },
    Size { name: "32 KB", bytes: 32 << 10, results: 10, requests: 640, rate: 200 },
    Size { name: "256 KB", bytes: 256 << 10, results: 60, requests: 200, rate: 100 },
    Size { name: "1 MB", bytes: 1 << 20, results: 200, requests: 80, rate: 50 },
];

/// A row of the table.
struct Row {
    name: String,
    unit: &'static str,
    toolrein: f64,
    hyper: Option<f64>,
    /// What it is compared with, by its name.
    other: Option<(&'static str, f64)>,
}

impl Row {
    fn beside(name: String, unit: &'static str, [nginx, hyper, toolrein]: [f64; 3]) -> Self {
        Self { name, unit, toolrein, hyper: Some(hyper), other: Some(("nginx", nginx)) }
    }

    fn without(name: &str, unit: &'static str, without: f64, with: f64) -> Self {
        Self { name: name.to_owned(), unit, toolrein: with, hyper: None, other: Some(("without", without)) }
    }

    fn alone(name: &str, unit: &'static str, toolrein: f64) -> Self {
        Self { name: name.to_owned(), unit, toolrein, hyper: None, other: None }
    }

    fn misses(&self, bound: Bound, value: f64) -> bool {
        let other = self.other.map_or(0.0, |(_, other)| other);
        match bound {
            Bound::Times(most) => value > most * other,
            Bound::More(most) => value > most + other,
            Bound::Most(most) => value > most,
        }
    }

    /// How the bound fares, in a word or two; empty where it is kept or there is none.
    fn verdict(&self) -> &'static str {
        let Some(bound) = bounds::of(&self.name) else { return "" };
        match (self.misses(bound, self.toolrein), self.hyper) {
            (false, _) => "",
            (true, Some(hyper)) if self.misses(bound, hyper) => "hyper alone misses it too",
            (true, _) => "missed",
        }
    }

    fn markdown(&self) -> String {
        let (unit, bound) = (self.unit, bounds::of(&self.name));
        let other = self.other.map_or(0.0, |(_, other)| other);
        let cell = |value: f64| match bound {
            Some(Bound::Times(_)) => format!("**{:.2} x** {} {unit}", value / other, digits(value)),
            Some(Bound::More(_)) => format!("**{:+.2} {unit}** {} {unit}", value - other, digits(value)),
            Some(Bound::Most(_)) | None => format!("{} {unit}", digits(value)),
        };
        let most = bound.map_or_else(String::new, |bound| match bound {
            Bound::Times(most) => format!("{most} x"),
            Bound::More(most) => format!("+{most} {unit}"),
            Bound::Most(most) => format!("{most} {unit}"),
        });
        let hyper = self.hyper.map_or_else(String::new, cell);
        let other =
            self.other.map_or_else(String::new, |(who, other)| format!("{who} {} {unit}", digits(other)));
        let (name, cell, verdict) = (&self.name, cell(self.toolrein), self.verdict());
        format!("| {name} | {most} | {cell} | {hyper} | {other} | {verdict} |\n")
    }
}

/// The table as Markdown. Its last line says which bounds are missed.
pub async fn measured(program: &str) -> String {
    let started = Instant::now();
    // First, while this process holds no memory that could be used again.
    let known_calls = growth::known_calls_mb();
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench {
        program,
        folder: folder.path(),
        upstream: upstream::start().await,
        number: 1,
        rows: Vec::new(),
    };
    let per = [
        instructions::of_row(program, "governed 32 KB").await,
        instructions::of_row(program, "governed 32 KB, events read").await,
        instructions::of_row(program, "governed 32 KB, traced").await,
    ];
    tokio::spawn(stay_awake());
    bench.requests_and_streams().await;
    bench.acting().await;
    bench.recorder().await;
    bench.push(Row::without("32 KB, events read", "instructions", per[0], per[1]));
    bench.push(Row::without("32 KB, traced", "instructions", per[0], per[2]));
    bench.footprint().await;
    bench.push(Row::alone("memory of 1,000,000 known calls", "MB", known_calls));
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    // The others come last.
    bench.rows.sort_by_key(|row| bounds::of(&row.name).is_none());
    let head = "| | bound | toolrein | hyper alone | compared with | |\n|---|--:|--:|--:|--:|---|";
    let rows: String = bench.rows.iter().map(Row::markdown).collect();
    format!("{}\n\n{head}\n{rows}\n{}\n", machine(minutes), summary(&bench.rows))
}

/// Which bounds are missed, in one line.
fn summary(rows: &[Row]) -> String {
    let bounded = rows.iter().filter(|row| bounds::of(&row.name).is_some()).count();
    let of = |verdict: &str| -> Vec<&str> {
        rows.iter().filter(|row| row.verdict() == verdict).map(|row| &*row.name).collect()
    };
    let (missed, out_of_reach) = (of("missed"), of("hyper alone misses it too"));
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join("; ") };
    match missed.len() + out_of_reach.len() {
        0 => format!("Each of {bounded} bounds is kept."),
        count => format!(
            "{count} of {bounded} bounds missed: {}. By hyper alone too: {}.",
            list(missed),
            list(out_of_reach)
        ),
    }
}

/// What a run has and what it found so far.
struct Bench<'a> {
    program: &'a str,
    folder: &'a Path,
    upstream: SocketAddr,
    /// The next number that no message had yet.
    number: u32,
    rows: Vec<Row>,
}

impl Bench<'_> {
    fn push(&mut self, row: Row) {
        eprint!("{}", row.markdown());
        self.rows.push(row);
    }

    async fn nginx(&self) -> Subject {
        Subject::nginx(self.folder, self.upstream).await
    }

    async fn hyper(&self) -> Subject {
        Subject::floor(self.upstream).await
    }

    async fn toolrein(&self, mode: &str) -> Subject {
        Subject::toolrein(self.program, self.folder, self.upstream, mode).await
    }

    /// Processor time and delays, by each API.
    async fn requests_and_streams(&mut self) {
        let direct = Subject::direct(self.upstream);
        let (nginx, hyper) = (self.nginx().await, self.hyper().await);
        let (relay, toolrein) = (self.toolrein("off").await, self.toolrein("enforce").await);
        for api in Api::ALL {
            for size in &SIZES {
                let body = bodies::of_api(api, size.bytes, size.results, false);
                // A subject that does not read bodies can get the same one each time.
                let ways =
                    [(&nginx, Same), (&hyper, Same), (&relay, Same), (&toolrein, Warm), (&toolrein, Cold)];
                let [nginx, hyper, relay, warm, cold] =
                    requests(ways, size.requests, &body, &mut self.number).await;
                for (name, figure) in [("relayed", relay), ("seen before", warm), ("first sight", cold)] {
                    let name = format!("{api:?}: {name}, {}", size.name);
                    self.push(Row::beside(name, "us", [nginx.us, hyper.us, figure.us]));
                }
                if api == Api::Chat {
                    let name = format!("requests a second on one processor, seen before, {}", size.name);
                    self.push(Row::beside(name, "/s", [nginx.rate, hyper.rate, warm.rate]));
                }
            }
            let streams = self.chunks([&nginx, &hyper, &toolrein], api).await;
            let figures = |at: usize| streams.map(|stream| stream[at]);
            self.push(Row::beside(format!("{api:?}: a streamed chunk"), "us", figures(0)));
            self.push(Row::beside(
                format!("{api:?}: a stream's first byte, after its arrival"),
                "ms",
                figures(1),
            ));
            self.delays([&direct, &nginx, &hyper, &toolrein], api).await;
        }
    }

    /// Delays of requests at a low, fixed rate, by this API.
    async fn delays(&mut self, subjects: [&Subject; 4], api: Api) {
        for size in &SIZES {
            let name = format!("{api:?}: p99, {}", size.name);
            let is_bounded = bounds::of(&name).is_some();
            if api != Api::Chat && !is_bounded {
                continue;
            }
            let [direct, others @ ..] = self.steady(subjects, api, size).await;
            if is_bounded {
                self.push(Row::beside(name, "ms", others.map(|times| times[1])));
            }
            if api == Api::Chat {
                let name = format!("the median added to {:.2} ms, {}", direct[0], size.name);
                self.push(Row::beside(name, "ms", others.map(|times| times[0] - direct[0])));
            }
        }
    }

    /// Of a stream: processor time of a chunk in us, and how much later than it came its first chunk goes on, in ms.
    async fn chunks(&mut self, subjects: [&Subject; 3], api: Api) -> [[f64; 2]; 3] {
        let mut rounds: [[Vec<f64>; 2]; 3] = Default::default();
        for _ in 0..ROUNDS {
            for (subject, [cpu, delays]) in subjects.iter().zip(&mut rounds) {
                let mut load = Load {
                    port: subject.port,
                    body: bodies::of_api(api, 1 << 10, 0, true),
                    number: self.number,
                    stream: Some(CHUNKS),
                    connections: CONNECTIONS,
                };
                load.run(Plan { freshness: Warm, requests: 8 }).await;
                let before = subject.cpu();
                load.run(Plan { freshness: Warm, requests: 64 }).await;
                cpu.push((subject.cpu() - before).as_secs_f64() * 1e6 / 64.0 / CHUNKS as f64);
                for _ in 0..TIMED {
                    delays.push(load.first_delay().await);
                }
                self.number = load.number;
            }
        }
        rounds.map(|figures| figures.map(median))
    }

    /// The median and the 99th percentile of a request's time in ms at a low, fixed rate.
    async fn steady(&mut self, subjects: [&Subject; 4], api: Api, size: &Size) -> [[f64; 2]; 4] {
        let body = bodies::of_api(api, size.bytes, size.results, false);
        let mut all: [Vec<f64>; 4] = Default::default();
        for _ in 0..STEADY.0 {
            for (subject, times) in subjects.iter().zip(&mut all) {
                let (port, body, number) = (subject.port, body.clone(), self.number);
                let mut load = Load { port, body, number, stream: None, connections: 1 };
                times.extend(load.steady(size.rate, STEADY.1).await);
                self.number = load.number;
            }
        }
        all.map(|mut times| {
            times.sort_by(f64::total_cmp);
            [times[times.len() / 2], times[times.len() * 99 / 100]]
        })
    }

    /// A result of 60 KB is cut and a notice added, compared with the same bodies where nothing acts.
    async fn acting(&mut self) {
        let (folder, upstream) = (self.folder, self.upstream);
        let quiet = acting::started(self.program, &folder.join("wide"), upstream, WIDE).await;
        let acts = acting::started(self.program, &folder.join("tight"), upstream, TIGHT).await;
        for api in Api::ALL {
            for (name, then) in [("seen before", 1), ("new", 0)] {
                let ways = [(&quiet, Warm), (&acts, Warm)];
                let [quiet, acts] = requests(ways, 500, &acting::body(api, then), &mut self.number).await;
                let name = format!("{api:?}: 60 KB cut and a notice, {name}");
                self.push(Row::without(&name, "us", quiet.us, acts.us));
            }
        }
        acting::check(&quiet, &acts).await;
    }

    async fn recorder(&mut self) {
        let variable = format!("TOOLREIN__RECORD__DIR={}", self.folder.join("records").display());
        let quiet = self.toolrein("enforce").await;
        let records = Subject::with_variable(self.program, self.folder, self.upstream, &variable).await;
        let body = bodies::conversation(32 << 10, 10, false);
        // Fewer than the recorder's queue holds, so that none is lost.
        let ways = [(&quiet, Warm), (&records, Warm)];
        let [quiet, recorded] = requests(ways, 800, &body, &mut self.number).await;
        assert!(records.metric("toolrein_recordings_lost_total", "").await == 0.0, "recordings are lost");
        self.push(Row::without("32 KB, recorded", "us", quiet.us, recorded.us));
    }

    /// Start, size and memory, each of a program that did nothing before.
    async fn footprint(&mut self) {
        let mut starts: [Vec<f64>; 3] = Default::default();
        let (mut idle, mut open, mut size) = ([0.0; 3], [0.0; 3], 0.0);
        for (at, starts) in starts.iter_mut().enumerate() {
            for left in (0..STARTS).rev() {
                let launched = Instant::now();
                let subject = match at {
                    0 => self.nginx().await,
                    1 => self.hyper().await,
                    _ => self.toolrein("enforce").await,
                };
                starts.push(launched.elapsed().as_secs_f64() * 1e3);
                if left == 0 {
                    (idle[at], size) = (subject.memory_mb(), subject.program_mb());
                    open[at] = with_idle_streams(&subject).await;
                }
            }
        }
        let rows = [
            ("memory when idle", "MB", idle),
            ("memory with 10,000 idle streams", "MB", open),
            ("start to first answer", "ms", starts.map(median)),
        ];
        for (name, unit, figures) in rows {
            self.push(Row::beside(name.to_owned(), unit, figures));
        }
        self.push(Row::alone("size of the program, stripped", "MB", size));
    }
}

/// The memory that it would have with 10,000 idle streams, in MB.
async fn with_idle_streams(subject: &Subject) -> f64 {
    let body = bodies::conversation(1 << 10, 0, true);
    let before = subject.memory_mb();
    let open = load::open_streams(subject.port, &body, IDLE_STREAMS).await;
    let more = subject.memory_mb() - before;
    drop(open);
    // The upstream's ends close.
    tokio::time::sleep(Duration::from_secs(1)).await;
    before + more * 10_000.0 / IDLE_STREAMS as f64
}

/// Figures of a kind of requests: processor time of each in us, and how many a second were answered.
#[derive(Clone, Copy)]
struct Figures {
    us: f64,
    rate: f64,
}

/// Sends `count` requests to each of the subjects in turn: the medians of the rounds.
async fn requests<const N: usize>(
    ways: [(&Subject, Freshness); N],
    count: u32,
    body: &Body,
    number: &mut u32,
) -> [Figures; N] {
    let mut rounds = [const { (Vec::new(), Vec::new()) }; N];
    for _ in 0..ROUNDS {
        for ((subject, freshness), (spent, rates)) in ways.iter().zip(&mut rounds) {
            let (port, body, freshness) = (subject.port, body.clone(), *freshness);
            let mut load = Load { port, body, number: *number, stream: None, connections: CONNECTIONS };
            load.run(Plan { freshness, requests: count / 10 }).await;
            let (before, sent_at) = (subject.cpu_at_rest().await, Instant::now());
            load.run(Plan { freshness, requests: count }).await;
            rates.push(f64::from(count) / sent_at.elapsed().as_secs_f64());
            spent.push((subject.cpu_at_rest().await - before).as_secs_f64() * 1e6 / f64::from(count));
            *number = load.number;
        }
    }
    rounds.map(|(spent, rates)| Figures { us: median(spent), rate: median(rates) })
}

/// Keeps the load's processor busy. If it slept, the program under test would pay for waking it, which is expensive in
/// a virtual machine, and a program slightly slower than the load would look much slower.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// How long the chain of [`chain`] is, and a part of it.
const CHAIN: [u32; 2] = [1_000, 100];

/// The processor time of requests that each go on from the reply before, by their position, as Markdown.
pub async fn chain(program: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let upstream = upstream::start().await;
    tokio::spawn(stay_awake());
    let subject = Subject::toolrein(program, folder.path(), upstream, "enforce").await;
    let mut load =
        Load { port: subject.port, body: bodies::continued(), number: 1, stream: None, connections: 1 };
    let mut out = "| responses before | us |\n|--:|--:|\n".to_owned();
    for at in 0..CHAIN[0] / CHAIN[1] {
        let before = subject.cpu();
        load.run(Plan { freshness: Warm, requests: CHAIN[1] }).await;
        let us = (subject.cpu() - before).as_secs_f64() * 1e6 / f64::from(CHAIN[1]);
        let _ = writeln!(out, "| {} | {us:.0} |", at * CHAIN[1]);
    }
    out
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// No more digits than a figure is accurate to.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// The machine that it was measured on.
fn machine(minutes: f64) -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy.split(' ').next().unwrap_or("?").to_owned();
    format!(
        "Measured in {minutes:.1} minutes on {count} processors, {}, Linux; medians of {ROUNDS} interleaved rounds. \
         The machine's load at the end: {busy} (2 are its own).",
        model.unwrap_or(" unknown").trim()
    )
}
