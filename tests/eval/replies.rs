//! How replies of the upstream become the client's bytes: every recorded reply, under every setting, in every chunking,
//! driven as a whole exchange without sockets. A characterization: it says what the program does and not whether that is
//! right. Of each run it holds the client's bytes, the steps of the exchange, the bodies that the upstream got, the request
//! record and what was stored: equal for every chunking, and with the hash that `tests/data/replies/expected.txt` has.
//! `UPDATE_DOCS=1` writes that file. `REPLY_TRACES=FOLDER` writes each trace as text, so that two versions of the program can be
//! compared with `diff -r`, those of the corpus that `TOOLREIN_CORPUS` names included. `REPLY_SPLITS=20` tries more chunkings.

mod dependence;
mod drive;
mod fixed;
mod material;
mod settings;
mod stored;
mod trace;

use self::dependence::compared;
use self::drive::{Chunking, Play};
use self::material::{Material, of_corpus, own};
use self::settings::{Called, SETTINGS, Setting, Settled};
use self::trace::{Counts, Trace};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What every chunking gives, setting by setting, for one reply.
struct Row {
    name: String,
    /// For each setting the hash of the trace of the whole reply at once; where that of the small chunks is another one, of
    /// both.
    hashes: Vec<u64>,
    counts: Vec<Counts>,
    /// The chunkings whose trace is another one, in a way that is not known: the setting, the chunking and the first
    /// difference.
    dependent: Vec<(&'static str, String)>,
    /// How many are other ones in known ways.
    known: usize,
    runs: usize,
}

/// The chunkings that are compared with the whole reply at once.
fn chunkings() -> Vec<Chunking> {
    let asked = std::env::var("REPLY_SPLITS").ok().and_then(|splits| splits.parse().ok());
    let random = (0..asked.unwrap_or(3)).map(Chunking::Random);
    [Chunking::Small].into_iter().chain(random).collect()
}

/// The folder for traces, where one is asked for.
fn traces() -> Option<PathBuf> {
    std::env::var_os("REPLY_TRACES").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Every setting of one reply.
fn row(material: &Material, settled: &Settled, chunkings: &[Chunking]) -> Row {
    let called = called(material, settled);
    let name = material.name.clone();
    let mut row =
        Row { name, hashes: Vec::new(), counts: Vec::new(), dependent: Vec::new(), known: 0, runs: 0 };
    for setting in &SETTINGS {
        let shared = settled.shared(setting, &called);
        let first = Play { material, setting, shared: &shared, chunking: Chunking::Whole }.run();
        let whole = first.text();
        keep(material, setting, None, &whole);
        let mut hashed = whole.clone();
        // A reply that never comes as a stream has no chunks.
        for chunking in chunkings.iter().filter(|_| first.streams) {
            let text = Play { material, setting, shared: &shared, chunking: *chunking }.run().text();
            row.runs += 1;
            if text == whole {
                continue;
            }
            keep(material, setting, Some(*chunking), &text);
            let [one, other] = [&whole, &text].map(|text| compared(&material.name, setting.name, text));
            if one == other {
                row.known += 1;
            } else {
                row.dependent.push((setting.name, format!("{chunking:?}: {}", difference(&one, &other))));
            }
            if *chunking == Chunking::Small {
                hashed.extend_from_slice(&text);
            }
        }
        row.runs += 1;
        row.hashes.push(hash(&hashed));
        row.counts.push(first.counts);
    }
    row
}

/// What the reply calls, as the program reads it.
fn called(material: &Material, settled: &Settled) -> Called {
    let setting = &SETTINGS[0];
    let shared = settled.shared(setting, &Called::default());
    let Trace { tools, .. } = Play { material, setting, shared: &shared, chunking: Chunking::Whole }.run();
    Called { tools, arguments: material.arguments.clone() }
}

/// Writes a trace, where traces are asked for.
fn keep(material: &Material, setting: &Setting, chunking: Option<Chunking>, text: &[u8]) {
    let Some(folder) = traces() else { return };
    let chunking = chunking.map(|chunking| format!(".{chunking:?}")).unwrap_or_default();
    let path = folder.join(format!("{}.{}{chunking}.txt", material.name, setting.name));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Where two traces differ first.
fn difference(one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(60)..bytes.len().min(at + 100)];
        String::from_utf8_lossy(part).into_owned()
    };
    format!("at {at}: {:?} became {:?}", around(one), around(other))
}

/// The rows of all replies, in their order, made on all cores.
fn rows(materials: &[Material]) -> Vec<Row> {
    let (settled, chunkings) = (Settled::default(), chunkings());
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, material)) = nth(materials, next.fetch_add(1, Ordering::Relaxed)) {
                    let row = row(material, &settled, &chunkings);
                    rows.lock().unwrap().insert(at, row);
                }
            });
        }
    });
    rows.into_inner().unwrap().into_values().collect()
}

fn nth(materials: &[Material], at: usize) -> Option<(usize, &Material)> {
    materials.get(at).map(|material| (at, material))
}

/// The counts of each setting over all replies.
fn totals(rows: &[Row]) -> Vec<Counts> {
    let sum = |at| rows.iter().map(|row: &Row| row.counts[at]).fold(Counts::default(), Counts::plus);
    (0..SETTINGS.len()).map(sum).collect()
}

/// The table of what was done in each setting.
fn report(rows: &[Row]) -> String {
    let runs: usize = rows.iter().map(|row| row.runs).sum();
    let known: usize = rows.iter().map(|row| row.known).sum();
    let (replies, settings) = (rows.len(), SETTINGS.len());
    let mut out = format!(
        "{replies} replies, {settings} settings, {runs} runs; {known} depend on chunks in known ways\n"
    );
    for (setting, counts) in SETTINGS.iter().zip(totals(rows)) {
        let _ = writeln!(out, "{:14} {counts}", setting.name);
    }
    out
}

/// The golden file's text.
fn golden(rows: &[Row]) -> String {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let mut out = format!(
        "# What becomes of each reply: the hash of its trace in each setting. Written by UPDATE_DOCS=1 cargo test --test eval \
         replies\nreply\t{}\n",
        names.join("\t")
    );
    for Row { name, hashes, .. } in rows {
        let hashes: Vec<String> = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
        let _ = writeln!(out, "{name}\t{}", hashes.join("\t"));
    }
    out
}

/// What differs between two golden files: the reply and the setting.
fn differences(expected: &str, found: &str) -> Vec<String> {
    let rows = |text: &str| -> BTreeMap<String, Vec<String>> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let cells = lines.map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
        cells.map(|mut cells| (cells.remove(0), cells)).collect()
    };
    let (expected, found) = (rows(expected), rows(found));
    let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
    let mut differences = Vec::new();
    for name in names {
        let (Some(before), Some(now)) = (expected.get(name), found.get(name)) else {
            differences.push(format!("{name}: in one of them alone"));
            continue;
        };
        let columns = SETTINGS.iter().zip(before.iter().zip(now));
        let changed: Vec<&str> =
            columns.filter(|(_, (before, now))| before != now).map(|(setting, _)| setting.name).collect();
        if !changed.is_empty() || before.len() != now.len() {
            differences.push(format!("{name}: {}", changed.join(" ")));
        }
    }
    differences
}

/// Asserts that no trace depends on how the stream was cut in a way that is not known.
fn assert_any_chunking(rows: &[Row]) {
    let found: Vec<String> = rows
        .iter()
        .flat_map(|row| row.dependent.iter().map(|(setting, how)| format!("{} {setting} {how}", row.name)))
        .collect();
    assert!(found.is_empty(), "{} traces depend on chunks:\n{}", found.len(), found.join("\n"));
}

/// Asserts that no setting is idle.
fn assert_at_work(rows: &[Row]) {
    for (setting, counts) in SETTINGS.iter().zip(totals(rows)) {
        assert!((setting.works)(&counts), "{} is idle: {counts}", setting.name);
    }
}

fn expected_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/replies/expected.txt")
}

#[test]
fn every_reply_of_the_project_becomes_what_it_became_before_in_any_chunks() {
    let rows = rows(&own());
    println!("{}", report(&rows));
    let found = golden(&rows);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(expected_path().parent().unwrap()).unwrap();
        fs::write(expected_path(), &found).unwrap();
    }
    assert_any_chunking(&rows);
    assert_at_work(&rows);
    let differences = differences(&fs::read_to_string(expected_path()).unwrap(), &found);
    assert!(
        differences.is_empty(),
        "{} replies became others:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn every_reply_of_the_corpus_becomes_the_same_in_any_chunks() {
    let materials = of_corpus();
    if materials.is_empty() {
        return;
    }
    let rows = rows(&materials);
    println!("{}", report(&rows));
    assert_any_chunking(&rows);
}
