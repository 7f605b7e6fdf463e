//! Governed requests over real sockets: a scripted upstream, the built program, and a client that sees every byte.
//! The decisions of policies are tested with the policies; these tests are about how requests and replies are passed
//! on, above all the untouched ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests, but not the helpers that they call"
)]

mod accepted;
mod audit;
mod bad_input;
mod bills;
mod callers;
mod coded_requests;
mod codings;
mod counting;
mod counts;
mod drains;
mod friendly;
mod headers;
mod hidden;
mod in_flight;
mod kept;
mod kinds;
mod leaving;
mod live;
mod logs;
mod modes;
mod nameless;
mod odd_replies;
mod parallel;
mod placeholders;
mod recording;
mod refusing;
mod reload;
mod repair;
mod responses;
mod responses_blocked;
mod responses_budget;
mod responses_builtins;
mod responses_chains;
mod responses_context;
mod responses_cut;
mod responses_indexes;
mod responses_kinds;
mod responses_markup;
mod responses_references;
mod responses_refused;
mod responses_transparency;
mod responses_trouble;
mod stored;
mod storms;
mod talk;
mod told;
mod transparency;
mod trouble;
mod upstream_history;
