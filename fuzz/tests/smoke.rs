//! A short run of each fuzz target: its seeds, and inputs that are made from them. `make fuzz` runs the same for as long
//! as one wants.

#![allow(clippy::panic, reason = "a test may fail by panicking")]

use toolrein_fuzz::mutate::{Numbers, mutate};
use toolrein_fuzz::{TARGETS, named, seeds};

/// Inputs of a target beyond its seeds: in a debug build at most ten seconds of work for the slowest target.
const MADE_INPUTS: usize = 400;

fn run_target(name: &str) {
    let Some(target) = named(name) else { panic!("{name} is no fuzz target") };
    let pool = seeds::of(name);
    assert!(!pool.is_empty(), "{name} has no seeds");
    let read = pool.iter().filter(|input| (target.run)(input)).count();
    assert!(read > 0, "{name} reads none of its seeds");
    let mut numbers = Numbers::of(1);
    for _ in 0..MADE_INPUTS {
        (target.run)(&mutate(&pool, &mut numbers));
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            run_target(stringify!($name));
        })*

        #[test]
        fn every_target_has_its_test() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|target| target.name), tested);
        }
    };
}

targets![
    request,
    reply,
    stream,
    leaks,
    sse,
    coding,
    config,
    replay,
    admin,
    refusal,
    confirm,
    store,
    responses_request,
    responses_reply,
    responses_rounds,
    messages_request,
    messages_reply,
    messages_exchanges,
];
