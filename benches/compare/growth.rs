//! Growth benchmark: the cost as a function of the history, the tools, the policies, the open streams and the state
//! store. Measures each at some sizes, the minimum of many rounds, and draws it; compares nothing with other programs.

use super::bodies::{Api, Body, conversation};
use super::plot::Plot;
use super::subject::Subject;
use super::{load, upstream};
use dialects::prefix::read_request;
use dialects::variant::{Placement, PlannedRequest, Variant};
use engine::Now;
use model::Transcript;
use model::fact::{Batch, Writes};
use model::identity::{Hash, HashKey, Identity};
use model::memo::{Memo, NoMemo};
use model::released::{NOTHING_HIDDEN, Release};
use model::store::{Evidence, HiddenExchange, SentExchanges};
use policies::REGISTRY;
use policies::set::PolicySet;
use state::StateStore as _;
use state::memo::MemoCache;
use state::memory::{Bounds, Memory};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use toolrein::config::{Config, Overrides, Source};

/// Measures and draws everything into `folder`.
pub async fn drawn(program: &str, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let plots = [
        ("growth-history.svg", history()),
        ("growth-tools.svg", tools()),
        ("growth-policies.svg", policies()),
        ("growth-store.svg", store()),
        ("growth-streams.svg", streams(program).await),
    ];
    for (name, plot) in plots {
        for (line, points) in &plot.lines {
            println!("{name}, {line}: {points:.1?}");
        }
        fs::write(folder.join(name), plot.svg()).unwrap();
    }
}

/// Against the messages of the history, each of about 400 bytes.
fn history() -> Plot {
    let shipped = shipped("");
    let sizes = [1, 50, 100, 250, 500, 1_000, 1_500, 2_000];
    let at = |count: usize| {
        // A call and its result are two.
        let body = conversation(2_000 + count * 400, (count / 2).max(1), false);
        (body, count as f64)
    };
    let cold = sizes.map(|count| (at(count).1, cost(&shipped, &at(count).0, false)));
    let warm = sizes.map(|count| (at(count).1, cost(&shipped, &at(count).0, true)));
    Plot {
        title: "Reading, deciding and writing, by the length of the history",
        across: "messages of about 400 bytes",
        up: "microseconds a request",
        lines: vec![("first sight", cold.to_vec()), ("all but the last message seen before", warm.to_vec())],
    }
}

/// Against the declared tools, each of about 300 bytes.
fn tools() -> Plot {
    let shipped = shipped("");
    let points = [1, 16, 32, 48, 64, 80, 96, 112, 128].map(|count| {
        let mut json = String::from(r#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":"00000000"}],"tools":["#);
        for at in 0..count {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(
                json,
                r#"{comma}{{"type":"function","function":{{"name":"tool_{at}","description":"Does what number {at} does, at length, with some words more than it takes.","parameters":{{"type":"object","properties":{{"path":{{"type":"string","description":"Relative to the project."}},"limit":{{"type":"integer","minimum":1}}}},"required":["path"]}}}}}}"#
            );
        }
        json.push_str("]}");
        let marks = vec![json.find("00000000").unwrap_or(0)];
        (f64::from(count), cost(&shipped, &Body { api: Api::Chat, bytes: json.into_bytes(), marks }, true))
    });
    Plot {
        title: "The same, by the tools that the request declares",
        across: "tools of about 300 bytes",
        up: "microseconds a request",
        lines: vec![("seen before", points.to_vec())],
    }
}

/// Against the policies that are on, in registry order, for a history of 32 KB. Policies that do nothing without
/// settings are left out.
fn policies() -> Plot {
    let body = conversation(32 << 10, 10, false);
    let mut text = "base = \"none\"\n[upstream]\nurl = \"http://127.0.0.1:1/v1\"\n".to_owned();
    let mut points = Vec::new();
    for name in std::iter::once(None).chain(REGISTRY.iter().map(|entry| Some(entry.name))) {
        let more = name.map_or_else(|| text.clone(), |name| format!("{text}[policy.{name}]\n"));
        let source = Source::Text { name: "growth".to_owned(), text: more.clone() };
        let Ok(config) = Config::load(source, &Overrides::default(), REGISTRY) else { continue };
        text = more;
        points.push((points.len() as f64, cost(&config.policies, &body, true)));
    }
    Plot {
        title: "The same, by the policies that are on (32 KB)",
        across: "policies, each with its defaults",
        up: "microseconds a request",
        lines: vec![("seen before", points)],
    }
}

/// Against the calls in the state store: the time of a look-up, and the memory.
fn store() -> Plot {
    let sizes = [1_u64, 1_000, 10_000, 100_000, 250_000, 500_000, 750_000, 1_000_000];
    let memory = empty_store();
    let before = resident_mb();
    let (mut known, mut times, mut held) = (0, Vec::new(), Vec::new());
    for size in sizes {
        release(&memory, known..size);
        known = size;
        let calls: Vec<Hash> = (0..20).map(|at| name(at * size / 20)).collect();
        let mut at = 0;
        let spent = least(200, || {
            at += 1;
            let now = Now { at: Instant::now(), ms: at };
            let mut batch = Batch::new(now);
            (batch.request, batch.conversation) = (Some(name(at % 50)), Some(name(at % 50)));
            let released = batch.ask::<Release>(calls.iter().copied());
            batch.ask::<HiddenExchange>(calls[..10].iter().copied());
            batch.ask::<Evidence>([Hash(1), Hash(2)]);
            batch.ask::<SentExchanges>(calls[..3].iter().copied());
            futures_util::FutureExt::now_or_never(memory.look_up(batch))
                .map_or(0, |answers| answers.find(&released).count())
        });
        times.push((size as f64, spent));
        held.push((size as f64, (resident_mb() - before) / 10.0));
    }
    Plot {
        title: "The state store, by the calls that it knows",
        across: "known calls",
        up: "microseconds; 10 MB",
        lines: vec![("a request's look-up, us", times), ("memory, in 10 MB", held)],
    }
}

/// The memory that a million known calls take in the state store.
pub fn known_calls_mb() -> f64 {
    let (before, memory) = (resident_mb(), empty_store());
    release(&memory, 0..1_000_000);
    resident_mb() - before
}

fn empty_store() -> Memory {
    let hour = std::time::Duration::from_secs(3600);
    Memory::new(&Bounds {
        calls: 4_000_000,
        hidden_exchange_bytes: 1 << 20,
        conversations: 4_000_000,
        lifetime: hour,
        refusals: hour,
    })
}

fn release(memory: &Memory, calls: std::ops::Range<u64>) {
    for at in calls {
        let release = Release { context: name(at), hidden: NOTHING_HIDDEN, at_ms: at };
        memory.record(Writes::from_fact(name(at), release));
    }
}

/// The name of a call.
fn name(at: u64) -> Hash {
    HashKey::fixed(1).hash(model::identity::Domain::Call, &[&at.to_le_bytes()])
}

/// Against the open streams: the memory that they take.
async fn streams(program: &str) -> Plot {
    let upstream = upstream::start().await;
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::unpinned(program, folder.path(), upstream).await;
    let body = conversation(1 << 10, 0, true);
    let mut points = vec![(0.0, subject.memory_mb())];
    let mut open = Vec::new();
    // With two descriptors each they fit into 20,000.
    for count in [1, 1_000, 2_500, 5_000, 7_500, 9_900] {
        open.extend(load::open_streams(subject.port, &body, count - open.len()).await);
        points.push((count as f64, subject.memory_mb()));
    }
    Plot {
        title: "Memory, by the streams that are open",
        across: "streams, each after its first chunk",
        up: "MB",
        lines: vec![("held", points)],
    }
}

fn shipped(more: &str) -> PolicySet {
    let text = format!("{}{more}", include_str!("../../proxy.toml"));
    let source = Source::Text { name: "growth".to_owned(), text };
    Config::load(source, &Overrides::default(), REGISTRY).unwrap().policies
}

/// Microseconds to read, decide and write a request; `warm`: all but its last message was seen before.
fn cost(policies: &PolicySet, body: &Body, warm: bool) -> f64 {
    let memo: Arc<dyn Memo> = if warm { Arc::new(MemoCache::new(256 << 20)) } else { Arc::new(NoMemo) };
    let identity = Arc::new(Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None });
    let (mut body, mut number) = (body.clone(), 0);
    least(30, || {
        number += 1;
        body.renew_last(number);
        let request = read_request(&dialects::chat::Chat, &body.bytes, &identity.key, &*memo).unwrap();
        let shared = bytes::Bytes::copy_from_slice(&body.bytes);
        let request = Arc::new(request);
        let transcript =
            Transcript::read(Arc::clone(&request), shared.clone(), Arc::clone(&identity), Arc::clone(&memo));
        let (plan, judge) = policies.read(&transcript);
        let source = PlannedRequest::new(&shared, &request, &plan);
        let pieces = dialects::chat::write(&source, &Variant::plain(Placement::Suffix)).into_pieces();
        drop(judge);
        pieces.len()
    })
}

/// The least time of so many rounds, in microseconds.
fn least(rounds: usize, mut work: impl FnMut() -> usize) -> f64 {
    let times = (0..rounds).map(|_| {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed().as_secs_f64() * 1e6
    });
    times.fold(f64::MAX, f64::min)
}

fn resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}
