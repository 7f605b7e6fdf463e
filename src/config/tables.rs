//! The tables of `proxy.toml` other than policies, each with its defaults in code. Documents the meaning and the unit
//! of each key; rules between keys are checked elsewhere.

use super::caller::Caller;
use super::prices::Rates;
use super::tls::Tls;
use super::units::{address, headers, optional_address, paths, patterns, percent, share, size, span};
use engine::settings::{InFlight, PlacementChoice};
use hyper::http::HeaderName;
use policies::pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// `[listen]`. Port 0 takes any free port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// Where clients connect.
    #[serde(with = "address")]
    pub proxy: SocketAddr,
    /// Metrics, health and the effective configuration.
    #[serde(with = "address")]
    pub admin: SocketAddr,
    /// Metrics and health alone, for machines that must not reach the admin port; `None`: only that port has them.
    #[serde(with = "optional_address")]
    pub probes: Option<SocketAddr>,
    /// TLS on the port for clients.
    pub tls: Tls,
}

/// From so many within a minute on, equal requests are a storm. A client library sends a request up to three times, and an
/// agent framework around it repeats that up to three times: nine.
pub const EQUAL_REQUESTS_OF_A_STORM: u32 = 10;

/// `[limits]`: limits of memory and time. Source of the sizes: the design's section 10.14.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The longest request body on governed routes.
    #[serde(with = "size")]
    pub request_bytes: u64,
    /// The longest event of a stream that is read; longer ones pass unread.
    #[serde(with = "size")]
    pub event_bytes: usize,
    /// The most bytes of a stream held back while a call is judged.
    #[serde(with = "size")]
    pub held_bytes: usize,
    /// The longest whole reply that is judged.
    #[serde(with = "size")]
    pub reply_bytes: usize,
    /// The most bytes of bodies that are held at once, half of them of requests and half of replies.
    #[serde(with = "size")]
    pub total_bytes: u64,
    /// The most client connections at once; further ones wait.
    pub connections: usize,
    /// The most equal requests of one caller within a minute; 0: any number, and a storm of them is only warned about.
    pub equal_requests: u32,
    /// The limit for a client to send a request's head.
    #[serde(with = "span")]
    pub header_timeout: Duration,
    /// The longest silence while a request's body is read.
    #[serde(with = "span")]
    pub body_timeout: Duration,
    /// The limit for a whole request body, on governed routes.
    #[serde(with = "span")]
    pub upload_timeout: Duration,
    /// The longest time in which a client reads nothing of what is sent to it.
    #[serde(with = "span")]
    pub stall_timeout: Duration,
    /// How long running requests may take to end at shutdown; 0: they are cut.
    #[serde(with = "span")]
    pub drain_timeout: Duration,
    /// The time between the SSE comments that keep a client waiting while a reply is held.
    #[serde(with = "span")]
    pub keepalive_comment: Duration,
}

/// `[notices]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notices {
    /// Where notices go.
    pub placement: PlacementChoice,
    /// Models that accept a system message late in a conversation, for placement `auto`.
    #[serde(with = "patterns")]
    pub system_models: Vec<Pattern>,
}

/// `[conversation]`: what identifies a conversation, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conversation {
    /// What identifies the caller, to whom quotas, windows and approvals belong.
    pub caller: Caller,
    /// Request headers with a conversation id; `x-toolrein-conversation` comes first and is not listed.
    #[serde(with = "headers")]
    pub headers: Vec<HeaderName>,
    /// Members of the body with a conversation id, as paths from its top; written dotted.
    #[serde(with = "paths")]
    pub body: Vec<Vec<String>>,
    /// The share of conversations that no context policy changes, in ten-thousandths; written from 0 to 1.
    #[serde(with = "share")]
    pub holdout: u32,
    /// Whether clients may choose a profile by the header `x-toolrein-profile`.
    pub profile_header: bool,
    /// What happens to a request while another one of the same conversation id is in flight.
    pub in_flight: InFlight,
    /// The longest wait for the other request.
    #[serde(with = "span")]
    pub in_flight_wait: Duration,
}

/// `[reask]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reask {
    /// The most re-asks within one client request after all calls were blocked.
    pub max: u32,
    /// Tools that are the answer itself: never blocked for a budget, since the client waits for them.
    #[serde(with = "patterns")]
    pub answer_tools: Arc<[Pattern]>,
}

/// `[store]`: bounds of the state that is kept beside the transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateStore {
    /// Calls whose times are known.
    pub calls: u64,
    /// How long an entry lives.
    #[serde(with = "span")]
    pub ttl: Duration,
    /// Hidden exchanges: blocked calls with their synthetic results.
    #[serde(with = "size")]
    pub hidden_exchange_bytes: u64,
    /// Facts derived from single messages, such as token counts; 0: derived again each time.
    #[serde(with = "size")]
    pub memo_bytes: u64,
    /// The most conversations that are tracked.
    pub conversations: u64,
    /// The Redis that replicas share, without credentials; empty, and no `url_env`: this process's memory.
    pub url: String,
    /// The environment variable with the address, for one that contains a user or a password.
    pub url_env: String,
    /// The environment variable with the secret with which all replicas hash names.
    pub secret_env: String,
    /// The prefix of every key in the shared state store.
    pub prefix: String,
    /// The timeout of one round trip to it.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// Governed requests are refused while the shared state store is away.
    pub strict: bool,
}

impl StateStore {
    /// Whether the state store is shared by replicas.
    pub fn is_shared(&self) -> bool {
        !(self.url.is_empty() && self.url_env.is_empty())
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The format of lines.
    pub format: LogFormat,
    /// A level, or levels by module: `info,toolrein::proxy=debug`.
    pub level: String,
}

/// `[audit]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// The file to which the audit log is appended; empty: none. A relative path starts at the working directory.
    pub file: PathBuf,
}

impl Audit {
    /// The audit log's file, where one is configured.
    pub fn path(&self) -> Option<&Path> {
        (!self.file.as_os_str().is_empty()).then_some(&self.file)
    }
}

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// The environment variable with the bearer token for pages that show conversations or change anything; empty:
    /// there are no such pages.
    pub token_env: String,
    /// A token that the program made itself, for a demonstration that needs no set-up. In no file and in no output.
    #[serde(skip)]
    pub own_token: Option<OwnToken>,
    /// The newest conversations that the admin server shows.
    pub conversations: u32,
    /// Most bytes of the newest request bodies of these conversations. Without a token none is kept.
    #[serde(with = "size")]
    pub bodies_bytes: u64,
    /// What is shown of them is redacted as in recordings.
    pub redact: bool,
}

impl Admin {
    /// Whether there is a token, and thus pages that require it.
    pub fn has_token(&self) -> bool {
        self.own_token.is_some() || !self.token_env.is_empty()
    }
}

/// A bearer token; hidden in `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnToken(pub String);

impl fmt::Debug for OwnToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OwnToken(hidden)")
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            token_env: String::new(),
            own_token: None,
            conversations: 1_000,
            bodies_bytes: 32 << 20,
            redact: true,
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `Text` on a terminal, else `Json`.
    Auto,
    Text,
    Json,
}

/// `[model.PATTERN]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// The factor for the token estimate, in percent; written as a factor.
    #[serde(with = "percent")]
    pub token_factor: u32,
    /// The model's context window in tokens; 0: the known one, else the policies' own `context_window`.
    pub context_window: u32,
    /// What it costs; left out: the known price, else none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Rates>,
}

impl Default for Listen {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { proxy: local(4242), admin: local(4243), probes: None, tls: Tls::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes: 32 << 20,
            event_bytes: 1 << 20,
            held_bytes: 4 << 20,
            reply_bytes: 32 << 20,
            total_bytes: 512 << 20,
            connections: 16_384,
            equal_requests: 0,
            header_timeout: Duration::from_secs(100),
            body_timeout: Duration::from_secs(60),
            // The limit of Node's http server for a whole request (`requestTimeout`); nginx bounds pauses alone. The
            // longest accepted body needs a megabit a second.
            upload_timeout: Duration::from_secs(300),
            stall_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(30),
            keepalive_comment: Duration::from_secs(15),
        }
    }
}

impl Default for Notices {
    /// OpenAI's chat models: bare, fine-tuned, or through a router. Not o1-mini, which refuses system messages, and not
    /// gpt-oss, whose template drops late ones without an error (raullenchai/Rapid-MLX#1765).
    fn default() -> Self {
        let models = [
            "gpt-3.5*",
            "gpt-4*",
            "gpt-5*",
            "o3*",
            "o4*",
            "ft:gpt-*",
            "openai/gpt-3.5*",
            "openai/gpt-4*",
            "openai/gpt-5*",
            "openai/o3*",
            "openai/o4*",
        ];
        Self { placement: PlacementChoice::Auto, system_models: models.map(Pattern::new).into() }
    }
}

impl Default for Conversation {
    fn default() -> Self {
        let headers = [
            "x-session-id",
            "x-conversation-id",
            "helicone-session-id",
            "x-litellm-session-id",
            "x-claude-code-session-id",
        ];
        let body: [&[&str]; 2] = [&["metadata", "session_id"], &["metadata", "conversation_id"]];
        Self {
            caller: Caller::Credential,
            headers: headers.map(HeaderName::from_static).into(),
            body: body.map(|path| path.iter().map(|&step| step.to_owned()).collect()).into(),
            holdout: 0,
            profile_header: true,
            in_flight: InFlight::Pass,
            in_flight_wait: Duration::from_secs(30),
        }
    }
}

impl Default for Reask {
    /// The answer tools of smolagents, pydantic-ai, dspy and OpenHands.
    fn default() -> Self {
        let tools = ["final_answer*", "final_result*", "submit", "finish"];
        Self { max: 3, answer_tools: tools.map(Pattern::new).into() }
    }
}

impl Default for StateStore {
    fn default() -> Self {
        Self {
            calls: 1_000_000,
            ttl: Duration::from_secs(24 * 3_600),
            hidden_exchange_bytes: 64 << 20,
            memo_bytes: 64 << 20,
            conversations: 100_000,
            url: String::new(),
            url_env: String::new(),
            secret_env: String::new(),
            prefix: "toolrein:".to_owned(),
            timeout: Duration::from_millis(50),
            strict: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self { token_factor: 100, context_window: 0, price: None }
    }
}
