//! The targets under libFuzzer, with inputs guided by coverage. Runs the target that FUZZ_TARGET names.

#![no_main]

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|input: &[u8]| -> libfuzzer_sys::Corpus {
    static TARGET: OnceLock<fn(&[u8]) -> bool> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        toolrein_fuzz::named(&name).expect("a target of this name").run
    });
    if target(input) { libfuzzer_sys::Corpus::Keep } else { libfuzzer_sys::Corpus::Reject }
});
