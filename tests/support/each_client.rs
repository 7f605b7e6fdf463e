//! A macro for tests that every real client runs. Separate from the rest of the kit, since an unused macro is a warning
//! in a test program; it must come before the modules that use it.

/// One test for each client, in both forms, so that a failure names all. Each case is a function of the module
/// `clients` that takes a `support::agent::Way`.
macro_rules! with_each_client {
    ($($case:ident),* $(,)?) => {
        mod python { mod whole { $(#[test] fn $case() { super::super::$case(super::super::PYTHON[0]); })* }
            mod streamed { $(#[test] fn $case() { super::super::$case(super::super::PYTHON[1]); })* } }
        mod node { mod whole { $(#[test] fn $case() { super::super::$case(super::super::NODE[0]); })* }
            mod streamed { $(#[test] fn $case() { super::super::$case(super::super::NODE[1]); })* } }
    };
}
