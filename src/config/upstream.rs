//! The table `[upstream]` of `proxy.toml`: where requests go, and what happens to what the upstream refuses or reports.
//! Documents the meaning and the unit of each key; rules between keys are checked elsewhere.

use super::target::{ProxyUrl, Target};
use super::units::{ask_usage, proxy, span, target};
use engine::settings::{
    AskUsage, BrokenHistory, ErrorIn200, Errors, Overflow, Tell, ToolsUnsupported, Unjudged,
};
use hyper::http::Uri;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// `[upstream]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// The upstream's URL; a client's `/v1/...` maps to its path.
    #[serde(with = "target")]
    pub url: Target,
    /// The environment variable with the API key that takes the place of the clients'; empty: theirs are sent on.
    pub api_key_env: String,
    /// The header in which the upstream wants that key.
    pub api_key_header: KeyHeader,
    /// What happens when a model refuses tools.
    pub tools_unsupported: ToolsUnsupported,
    /// How the user is informed that tools were dropped.
    pub tools_unsupported_tell: Tell,
    /// What happens when a request is longer than the model's context window.
    pub overflow: Overflow,
    /// What happens when a history is refused because its calls and results do not belong together, or because
    /// arguments of a call are no JSON.
    pub broken_history: BrokenHistory,
    /// What of the upstream's errors people read.
    pub errors: Errors,
    /// What status an error has that comes inside a successful reply.
    pub error_in_200: ErrorIn200,
    /// What happens to requests and replies that cannot be judged, where a policy that restricts calls is on.
    pub unjudged: Unjudged,
    /// How long what a model refuses is remembered; 0: not at all.
    #[serde(with = "span")]
    pub remember: Duration,
    /// Whether streams are asked for `usage` that the client did not request; it is removed again.
    #[serde(with = "ask_usage")]
    pub ask_usage: AskUsage,
    /// The limit for a connection to be made, TLS included.
    #[serde(with = "span")]
    pub connect_timeout: Duration,
    /// The limit from the request's end to the response's head; reasoning models are slow.
    #[serde(with = "span")]
    pub first_byte_timeout: Duration,
    /// The longest silence within a response.
    #[serde(with = "span")]
    pub idle_timeout: Duration,
    /// Certificates (PEM) trusted besides the system's; a relative path starts at the working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The forward proxy on the way to the upstream.
    #[serde(with = "proxy")]
    pub proxy: ProxyChoice,
    /// Whether HTTP/2 is spoken to an `http://` upstream without negotiation (prior knowledge).
    pub http2: bool,
}

/// The header of the operator's API key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyHeader {
    /// With the scheme `Bearer`.
    #[default]
    Authorization,
    /// Azure's.
    ApiKey,
    /// Anthropic's.
    XApiKey,
    /// Google's.
    XGoogApiKey,
}

impl KeyHeader {
    /// As written, which is the header's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authorization => "authorization",
            Self::ApiKey => "api-key",
            Self::XApiKey => "x-api-key",
            Self::XGoogApiKey => "x-goog-api-key",
        }
    }
}

/// Which forward proxy leads to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// `"auto"`: the one that the environment names for `https` upstreams.
    Environment,
    /// `"none"`: none.
    None,
    /// The one at this address.
    Url(ProxyUrl),
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: Target::Url(Uri::from_static("https://api.openai.com/v1")),
            api_key_env: String::new(),
            api_key_header: KeyHeader::Authorization,
            tools_unsupported: ToolsUnsupported::Retry,
            tools_unsupported_tell: Tell::Header,
            overflow: Overflow::Retry,
            broken_history: BrokenHistory::Repair,
            errors: Errors::Plain,
            error_in_200: ErrorIn200::Pass,
            unjudged: Unjudged::Refuse,
            remember: Duration::from_secs(3_600),
            ask_usage: AskUsage::Auto,
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            ca_file: None,
            proxy: ProxyChoice::Environment,
            http2: false,
        }
    }
}
