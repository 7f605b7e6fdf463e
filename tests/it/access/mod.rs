//! Who may use the proxy and with which key, over real sockets: TLS, client certificates, keys of callers, and the
//! operator's key for the upstream.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may fail by panicking, and shows why"
)]

use crate::support;

mod callers;
mod tls;
mod tls_kit;
mod upstream_key;

use support::client::Request;

/// A request body of either dialect that no policy touches.
const QUESTION: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}],"input":"q"}"#;

/// A POST of [`QUESTION`] with these headers alone.
fn post(url: &str, headers: &[(&str, &str)]) -> Request {
    let request = Request::new("POST", url, QUESTION).header("content-type", "application/json");
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}
