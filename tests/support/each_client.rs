//! Tests that are played by every real client. Beside the rest of the kit, since a macro that a test program does not use
//! is a warning there; it stands before the modules that use it.

/// One test for each client, in both forms, so that a failure names all. Each case is a function of the module
/// `clients` that takes a `support::agent::Way`.
macro_rules! with_each_client {
    ($($case:ident),* $(,)?) => {
        mod python { mod whole { $(#[test] fn $case() { crate::clients::$case(crate::clients::PYTHON[0]); })* }
            mod streamed { $(#[test] fn $case() { crate::clients::$case(crate::clients::PYTHON[1]); })* } }
        mod node { mod whole { $(#[test] fn $case() { crate::clients::$case(crate::clients::NODE[0]); })* }
            mod streamed { $(#[test] fn $case() { crate::clients::$case(crate::clients::NODE[1]); })* } }
    };
}
