//! End-to-end tests of the policies, each over real sockets, streamed and whole: what the model reads, what the
//! client gets. Their unit tests are with the policies; what all policies share is tested in `rulings`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

mod allow;
mod arguments;
mod ask_user;
mod budget;
mod clients;
mod compact;
mod confirm;
mod customers;
mod definitions;
mod duplicates;
mod fresh;
mod held;
mod injection;
mod intents;
mod kill;
mod loops;
mod min_conversation;
mod money;
mod namespaces;
mod progress;
mod question;
mod quota;
mod rate_limit;
mod read_more;
mod redact;
mod redact_escapes;
mod redact_shapes;
mod repeats;
mod rewrite_query;
mod serial;
mod states;
mod summary;
mod taint;
mod truncate;
mod turn_limits;
mod twofold;
mod wrapper;
