//! `[responses]`: settings of the Responses API.

use serde::{Deserialize, Serialize};

/// `[responses]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Responses {
    /// What happens to a client that wants a WebSocket. Only in enforce mode: else it is always relayed.
    pub websocket: WebSocket,
}

/// What happens to a client that wants a WebSocket for the Responses API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebSocket {
    /// It is answered with 426, so that it uses HTTP, which is governed.
    #[default]
    Http,
    /// The WebSocket is relayed without being governed.
    Pass,
}
