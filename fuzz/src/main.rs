//! The fuzzer for a stable toolchain: inputs made from recorded traffic by a seed, without coverage guidance. Reports
//! how many ran, keeps failing inputs, and runs a single one again.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "a program for developers"
)]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toolrein_fuzz::mutate::{Numbers, mutate};
use toolrein_fuzz::{TARGETS, Target, named, seeds};

const USAGE: &str = "toolrein-fuzz run [--seconds N] [--jobs N] [--seed N] [TARGET...]\n\
    toolrein-fuzz seed FOLDER       fills FOLDER/TARGET with the inputs to begin with\n\
    toolrein-fuzz one TARGET FILE   runs one input\n\
    toolrein-fuzz list              the targets";
/// The longest time for an input: a thousand times that of the slowest seed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most inputs kept to make others from.
const POOL: usize = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", rest @ ..] => run(rest),
        ["seed", folder] => seed(Path::new(folder)),
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            ExitCode::SUCCESS
        }
        ["one", target, file] => {
            let target = named(target).expect("a target's name");
            (target.run)(&std::fs::read(file).expect("a readable file"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn seed(folder: &Path) -> ExitCode {
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder).expect("a folder that can be made");
        for input in seeds::of(target.name) {
            std::fs::write(folder.join(name_of(&input)), input).expect("a file that can be written");
        }
    }
    ExitCode::SUCCESS
}

fn name_of(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn run(words: &[&str]) -> ExitCode {
    let (mut seconds, mut jobs, mut seed) =
        (60, std::thread::available_parallelism().map_or(1, usize::from), 1);
    let mut targets = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number after it");
        match *word {
            "--seconds" => seconds = number(),
            "--jobs" => jobs = number() as usize,
            "--seed" => seed = number(),
            name => targets.push(named(name).expect("a target's name")),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    // Each panic is reported once, by us.
    std::panic::set_hook(Box::new(|_| {}));
    let queue = Arc::new(Mutex::new(targets));
    let workers: Vec<_> = (0..jobs.max(1))
        .map(|_| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
                let mut found = 0;
                while let Some(target) = next(&queue) {
                    found += fuzz(target, Duration::from_secs(seconds), seed);
                }
                found
            })
        })
        .collect();
    let found: usize = workers.into_iter().map(|worker| worker.expect("a thread").join().unwrap_or(1)).sum();
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn next(queue: &Mutex<Vec<Target>>) -> Option<Target> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.is_empty() { None } else { Some(queue.remove(0)) }
}

/// Runs one target and prints a summary; returns how many inputs broke it.
fn fuzz(target: Target, time: Duration, seed: u64) -> usize {
    let mut pool = seeds::of(target.name);
    let mut numbers = Numbers::of(seed);
    let (started, mut runs, mut found) = (Instant::now(), 0_u64, 0);
    let mut read = 0_u64;
    let watched = watch(target.name);
    let seeds = pool.len();
    while started.elapsed() < time && found < 5 {
        let input = match pool.get(runs as usize).filter(|_| (runs as usize) < seeds) {
            Some(seed) => seed.clone(),
            None => mutate(&pool, &mut numbers),
        };
        *watched.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.clone()));
        let ran = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let was_read = ran.as_ref().is_ok_and(|read| *read);
        if let Err(why) = ran {
            found += 1;
            let why = why
                .downcast_ref::<String>()
                .cloned()
                .or(why.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            report(target.name, &input, &why.unwrap_or_default());
        }
        runs += 1;
        read += u64::from(was_read);
        // Some inputs that could be parsed are kept, so that later ones differ more from the seeds.
        if was_read && numbers.below(20) == 0 {
            let place = seeds + numbers.below(POOL);
            if place < pool.len() { pool[place] = input } else { pool.push(input) }
        }
    }
    *watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let took = started.elapsed().as_secs_f64();
    println!(
        "{:8} {seeds:4} seeds, {runs:9} inputs in {took:.0} s, {read} of them read, {found} broke it (seed {seed})",
        target.name
    );
    found
}

fn report(target: &str, input: &[u8], why: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target);
    let path = folder.join(name_of(input));
    let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
    let why: String = why.chars().take(1_200).collect();
    eprintln!("{target}: {why}\n{target}: kept in {} ({kept:?})\n", path.display());
}

type Watched = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Ends the program where an input takes too long; it is kept.
fn watch(target: &'static str) -> Watched {
    let watched = Watched::default();
    let seen = Arc::downgrade(&watched);
    std::thread::spawn(move || {
        while let Some(watched) = seen.upgrade() {
            let now = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            drop(watched);
            if let Some((started, input)) = now.filter(|(started, _)| started.elapsed() > PATIENCE) {
                report(target, &input, &format!("no end after {:?}", started.elapsed()));
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    watched
}
