//! The errors that toolrein answers with: one closed list, and the one place where each becomes a status, a code, a
//! text for people, and advice on retrying.
//!
//! Errors that the upstream reports itself pass through and are not here; nor are configuration errors.

use dialects::error::{ErrorShape, own_anthropic_error, own_error};
use model::plan::{Reason, details};
use model::record::RequestRecord;

/// Why a request was answered by toolrein instead of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyError {
    /// The request is longer than a governed route accepts; the limit in bytes.
    RequestTooLong { limit: u64 },
    /// The client stopped sending in the middle of its request, or took too long.
    ClientTimeout,
    /// The client went away in the middle of its request.
    ClientCut,
    /// No connection to the upstream: name, network, refused, or too slow.
    UpstreamConnect { host: String, detail: String },
    /// No TLS session with the upstream.
    UpstreamTls { host: String, detail: String, failure: TlsFailure },
    /// The upstream took the request and did not begin to answer in time.
    UpstreamTimeout { host: String, waited_ms: u64 },
    /// The upstream sent more than this many informational responses (1xx), and no answer.
    UpstreamHints { host: String, count: u32 },
    /// The upstream broke off, or its answer was not HTTP.
    UpstreamCut { host: String, detail: String },
    /// The upstream's reply cannot be judged, and a policy decides which tools may be called.
    ReplyUnjudged { why: &'static str },
    /// The request's target does not form a valid address at the upstream.
    BadTarget { target: String },
    /// A method that a proxy for one upstream does not serve (CONNECT).
    MethodNotAllowed { method: String },
    /// A WebSocket for an endpoint that is governed over HTTP.
    WebSocketNotGoverned,
    /// The operator serves known callers alone, and the request carries the key of none.
    UnknownCaller,
    /// Several credentials that differ, or several lines of the header, or several or unfit values of the member of the
    /// body that names the caller: the caller is unknown. `caller`: the setting that says how callers are identified.
    AmbiguousCredentials { caller: String },
    /// Another request of the same conversation is in flight, and the operator wants one at a time.
    ConversationBusy { waited_ms: u64 },
    /// The request cannot be read, so its reply could not be judged, and a policy that restricts calls is on. `why`:
    /// the label under which unread requests are counted. `answered`: the upstream read it nevertheless.
    RequestUnreadable { why: &'static str, answered: bool },
    /// The shared state store does not answer, and the operator's settings refuse requests without it.
    StoreAway,
    /// The bodies in memory have reached their limit.
    NoMemory,
    /// The request continues a conversation that the upstream keeps, and toolrein governs only what it is sent whole.
    ThreadNotFound,
    /// The operator's configuration refuses this request.
    Refused { code: &'static str, message: String },
    /// A limit is used up for which the operator's configuration refuses requests until it opens again.
    Exhausted { code: &'static str, reason: Box<Reason> },
    /// An internal error; the text is for the log and holds no secret.
    Internal { detail: String },
}

/// Why there is no TLS session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// The other side hung up during the handshake.
    BrokenOff,
    /// The other side does not speak TLS.
    PlainText,
    /// No trusted authority has signed the certificate.
    Untrusted,
    /// The certificate is not valid yet, or it has expired.
    OutOfTime,
    /// The certificate is for another name, or the two sides have no version or cipher in common.
    Refused,
}

impl TlsFailure {
    /// What to try.
    fn advice(self) -> &'static str {
        match self {
            Self::BrokenOff => {
                "Send the request again; if it persists, check that the upstream speaks TLS on this port."
            }
            Self::PlainText => {
                "The upstream does not speak TLS on this port: write http:// in place of https:// in upstream.url, or name \
                 its port for TLS."
            }
            Self::Untrusted => {
                "The upstream's certificate is signed by itself or by a private authority: put that certificate, or the \
                 authority's, into a file in PEM and set upstream.ca_file. If it is set, it holds another certificate."
            }
            Self::OutOfTime => {
                "The certificate has to be renewed at the upstream, or the clock of this machine is wrong."
            }
            Self::Refused => "Check that upstream.url names the right host.",
        }
    }
}

/// Whose fault an error is. A closed label for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    Client,
    Upstream,
    Us,
}

impl ProxyError {
    /// Whether the request, or a part of it, was sent to the upstream before this error.
    pub fn is_sent(&self) -> bool {
        matches!(
            self,
            Self::ClientTimeout
                | Self::ClientCut
                | Self::UpstreamTimeout { .. }
                | Self::UpstreamHints { .. }
                | Self::UpstreamCut { .. }
        )
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::RequestTooLong { .. } => 413,
            Self::ClientTimeout => 408,
            Self::ClientCut
            | Self::BadTarget { .. }
            | Self::RequestUnreadable { .. }
            | Self::AmbiguousCredentials { .. }
            | Self::Refused { .. } => 400,
            Self::UnknownCaller => 401,
            Self::ThreadNotFound => 404,
            Self::ConversationBusy { .. } => 409,
            Self::Exhausted { .. } => 429,
            Self::UpstreamConnect { .. }
            | Self::UpstreamTls { .. }
            | Self::UpstreamCut { .. }
            | Self::ReplyUnjudged { .. } => 502,
            Self::UpstreamTimeout { .. } | Self::UpstreamHints { .. } => 504,
            Self::MethodNotAllowed { .. } => 405,
            Self::WebSocketNotGoverned => 426,
            Self::StoreAway | Self::NoMemory => 503,
            Self::Internal { .. } => 500,
        }
    }

    /// The stable `code` of the answer's body, also a metric label.
    pub fn code(&self) -> &'static str {
        match self {
            Self::RequestTooLong { .. } => "request_too_large",
            Self::ClientTimeout => "request_timeout",
            Self::ClientCut => "request_incomplete",
            Self::UpstreamConnect { .. } => "upstream_unreachable",
            Self::UpstreamTls { .. } => "upstream_tls",
            Self::UpstreamTimeout { .. } | Self::UpstreamHints { .. } => "upstream_timeout",
            Self::UpstreamCut { .. } => "upstream_cut",
            Self::ReplyUnjudged { .. } => "reply_unjudged",
            Self::BadTarget { .. } => "bad_target",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::WebSocketNotGoverned => "websocket_not_governed",
            Self::UnknownCaller => "unknown_caller",
            Self::AmbiguousCredentials { .. } => "ambiguous_credentials",
            Self::ConversationBusy { .. } => "conversation_busy",
            Self::RequestUnreadable { .. } => "request_unreadable",
            // A code of the API's: by it clients send the whole conversation.
            Self::ThreadNotFound => "thread_not_found",
            Self::StoreAway => "store_away",
            Self::NoMemory => "out_of_memory",
            Self::Refused { code, .. } | Self::Exhausted { code, .. } => code,
            Self::Internal { .. } => "internal_error",
        }
    }

    /// Notes the error in its request's record.
    pub fn note_in(&self, record: &mut RequestRecord) {
        (record.error, record.error_detail) = (Some(self.code()), self.detail());
    }

    /// What exactly failed, for the log.
    fn detail(&self) -> Option<String> {
        match self {
            Self::UpstreamConnect { detail, .. }
            | Self::UpstreamTls { detail, .. }
            | Self::UpstreamCut { detail, .. } => Some(detail.clone()),
            Self::UpstreamTimeout { waited_ms, .. } => Some(format!("no answer within {waited_ms} ms")),
            Self::UpstreamHints { count, .. } => Some(format!("more than {count} informational responses")),
            Self::ReplyUnjudged { why } => Some((*why).to_owned()),
            _ => None,
        }
    }

    /// What happened and what to try, for people.
    pub fn message(&self) -> String {
        match self {
            Self::RequestTooLong { limit } => format!(
                "The request is longer than {limit} bytes, the most that toolrein takes. Send less, or raise \
                 limits.request_bytes."
            ),
            Self::ClientTimeout => {
                "The request's body did not arrive in time (limits.body_timeout, limits.upload_timeout). Send the \
                 request again."
                    .into()
            }
            Self::ClientCut => "The connection ended before the request's body was complete.".into(),
            Self::BadTarget { target } => format!(
                "The request's target {target} is not a valid path at the upstream. Send a path such as \
                 /v1/chat/completions."
            ),
            Self::MethodNotAllowed { method } => {
                format!("toolrein is a proxy for one upstream and does not serve {method} requests.")
            }
            Self::WebSocketNotGoverned => {
                "toolrein governs this endpoint over HTTP and cannot read WebSockets. Send POST requests to the same \
                 path, or set responses.websocket = \"pass\" to relay WebSockets without governing them."
                    .into()
            }
            Self::AmbiguousCredentials { caller } => ambiguous_credentials(caller),
            Self::UnknownCaller => {
                "toolrein serves known callers alone, and this request carries no key of any. Send the key that you \
                 got for toolrein as the API key (Authorization: Bearer ...)."
                    .into()
            }
            Self::ConversationBusy { waited_ms } => busy(*waited_ms),
            Self::RequestUnreadable { why, answered } => unreadable(why, *answered),
            Self::ThreadNotFound => {
                "toolrein governs conversations that it is sent whole, so no thread is kept. Send the whole conversation, \
                 or set messages.threads = \"relay\" to relay threads without governing them."
                    .into()
            }
            Self::StoreAway => {
                "The state store that toolrein's replicas share is unavailable or read-only, and store.strict refuses \
                 requests without it. The request was not processed; send it again later."
                    .into()
            }
            Self::NoMemory => {
                "toolrein already holds as many bytes of requests and replies as limits.total_bytes allows. Send the \
                 request again later, or raise limits.total_bytes and the memory of the machine or pod."
                    .into()
            }
            Self::Refused { message, .. } => message.clone(),
            Self::Exhausted { reason, .. } => reason.message.clone(),
            Self::Internal { .. } => {
                "toolrein failed on this request. Its log has the details; please report the problem.".into()
            }
            Self::UpstreamConnect { .. }
            | Self::UpstreamTls { .. }
            | Self::UpstreamTimeout { .. }
            | Self::UpstreamHints { .. }
            | Self::UpstreamCut { .. }
            | Self::ReplyUnjudged { .. } => self.of_the_upstream(),
        }
    }

    /// The message for callers who may not know the upstream: it has no address, and no detail that may contain one.
    pub fn public_message(&self) -> String {
        const AGAIN: &str =
            "Send the request again; if it persists, whoever runs toolrein finds the reason in its log.";
        match self {
            Self::UpstreamConnect { .. } => {
                format!(
                    "toolrein could not connect to the upstream, so the request was not processed. {AGAIN}"
                )
            }
            Self::UpstreamTls { .. } => {
                format!("toolrein could not establish TLS with the upstream. {AGAIN}")
            }
            Self::UpstreamTimeout { waited_ms, .. } => {
                format!("The upstream did not begin to answer within {waited_ms} ms. {AGAIN}")
            }
            Self::UpstreamHints { .. } => format!("The upstream did not begin to answer. {AGAIN}"),
            Self::UpstreamCut { .. } => format!("The upstream broke off before it had answered. {AGAIN}"),
            other => other.message(),
        }
    }

    /// The body of the answer, in the `shape` of the endpoint's errors: one of the error's messages, the request's id, and
    /// the numbers and times of its reason beside its code.
    pub fn body(&self, message: &str, request_id: &str, shape: ErrorShape) -> String {
        let reason = match self {
            Self::Exhausted { reason, .. } => Some(&**reason),
            _ => None,
        };
        let (code, more) = (self.code(), reason.into_iter().flat_map(details));
        match shape {
            ErrorShape::OpenAi => own_error(message, code, request_id, more),
            ErrorShape::Anthropic => own_anthropic_error(self.status(), message, code, request_id, more),
        }
    }

    /// Whether the message names the upstream's address, or may.
    pub fn names_the_upstream(&self) -> bool {
        matches!(
            self,
            Self::UpstreamConnect { .. }
                | Self::UpstreamTls { .. }
                | Self::UpstreamTimeout { .. }
                | Self::UpstreamHints { .. }
                | Self::UpstreamCut { .. }
        )
    }

    /// The message of an error that is the upstream's.
    fn of_the_upstream(&self) -> String {
        match self {
            Self::UpstreamConnect { host, detail } => format!(
                "toolrein could not connect to the upstream {host}: {detail}. Check that it runs and that \
                 upstream.url is right; the request was not processed, so it can be sent again."
            ),
            Self::UpstreamTls { host, detail, failure } => {
                let advice = failure.advice();
                format!("toolrein could not establish TLS with the upstream {host}: {detail}. {advice}")
            }
            Self::UpstreamTimeout { host, waited_ms } => format!(
                "The upstream {host} did not begin to answer within {waited_ms} ms. Send the request again, or \
                 raise the upstream's time limits in toolrein's configuration."
            ),
            Self::UpstreamHints { host, count } => format!(
                "The upstream {host} sent more than {count} informational responses (1xx) and did not begin to \
                 answer. Send the request again; if it persists, the upstream is at fault."
            ),
            Self::UpstreamCut { host, detail } => {
                format!("The upstream {host} broke off before it answered: {detail}. Send the request again.")
            }
            Self::ReplyUnjudged { why } => format!(
                "toolrein refused the upstream's reply: it could not judge the tool calls in it ({why}), and a policy \
                 decides which tools may be called. upstream.unjudged = \"pass\" lets such replies through."
            ),
            _ => String::new(),
        }
    }

    /// Whether sending the same request again may help; `None` if unknown.
    pub fn retry(&self) -> Option<bool> {
        match self {
            Self::UpstreamConnect { .. }
            | Self::UpstreamTimeout { .. }
            | Self::UpstreamHints { .. }
            | Self::UpstreamCut { .. }
            | Self::StoreAway
            | Self::NoMemory => Some(true),
            Self::UpstreamTls { failure, .. } => Some(*failure == TlsFailure::BrokenOff),
            Self::RequestTooLong { .. }
            | Self::ReplyUnjudged { .. }
            | Self::BadTarget { .. }
            | Self::MethodNotAllowed { .. }
            | Self::WebSocketNotGoverned
            | Self::UnknownCaller
            | Self::AmbiguousCredentials { .. }
            | Self::ConversationBusy { .. }
            | Self::RequestUnreadable { .. }
            | Self::ThreadNotFound
            | Self::Refused { .. }
            | Self::Exhausted { .. } => Some(false),
            Self::ClientTimeout | Self::ClientCut | Self::Internal { .. } => None,
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::RequestTooLong { .. }
            | Self::ClientTimeout
            | Self::ClientCut
            | Self::BadTarget { .. }
            | Self::MethodNotAllowed { .. }
            | Self::WebSocketNotGoverned
            | Self::UnknownCaller
            | Self::AmbiguousCredentials { .. }
            | Self::ConversationBusy { .. }
            | Self::RequestUnreadable { .. }
            | Self::ThreadNotFound
            | Self::Refused { .. }
            | Self::Exhausted { .. } => Fault::Client,
            Self::UpstreamConnect { .. }
            | Self::UpstreamTls { .. }
            | Self::UpstreamTimeout { .. }
            | Self::UpstreamHints { .. }
            | Self::UpstreamCut { .. }
            | Self::ReplyUnjudged { .. } => Fault::Upstream,
            Self::StoreAway | Self::NoMemory | Self::Internal { .. } => Fault::Us,
        }
    }
}

/// The message about a request that cannot be read.
fn unreadable(why: &str, answered: bool) -> String {
    let done = if answered {
        "The upstream answered it, and that answer was not passed on."
    } else {
        "It was not sent to the upstream."
    };
    format!(
        "toolrein cannot read this request ({why}), so it cannot judge the calls in an answer to it, and a policy that \
         restricts calls is on. {done} Send one JSON object in UTF-8, plain or in gzip, deflate, br or zstd, with the \
         members that the API requires, each of them once; or set upstream.unjudged to \"pass\"."
    )
}

/// Why the caller is unknown. `caller`: the setting that says how callers are identified.
fn ambiguous_credentials(caller: &str) -> String {
    if caller.starts_with("header:") {
        return format!(
            "The request carries the header that identifies its caller more than once (conversation.caller = \
             {caller:?}). Send it once; a gateway that sets it must replace what its client sent."
        );
    }
    if caller.starts_with("body:") {
        return format!(
            "The member of the request's body that identifies its caller occurs more than once, or is neither a string \
             of whole characters nor a number (conversation.caller = {caller:?}). Send it once, as a string."
        );
    }
    format!(
        "The request carries more than one credential, so toolrein cannot identify the caller \
         (conversation.caller = {caller:?}). Send one API key, in one header. If the second one belongs to a \
         gateway, set conversation.caller = \"header:NAME\" to the header that identifies the caller."
    )
}

/// The message about another request of the conversation that has been in flight for this long.
fn busy(waited_ms: u64) -> String {
    if waited_ms == 0 {
        return "Another request of this conversation is in flight. Send the next one when it has been answered.".into();
    }
    format!(
        "Another request of this conversation was still in flight after {waited_ms} ms. Send the next one when it has \
         been answered, or raise conversation.in_flight_wait."
    )
}

/// The refusal of a request that came `count` times within a minute, where `allowed` equal ones may come.
pub fn repeated_too_often(count: u32, allowed: u32) -> ProxyError {
    let message = format!(
        "This request came {count} times within a minute, byte for byte, and limits.equal_requests allows {allowed}. It \
         was not sent to the upstream. Find what repeats it: a program that goes on unchanged gets this answer until \
         the minute is over."
    );
    ProxyError::Refused { code: "equal_requests", message }
}

impl std::fmt::Display for ProxyError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Internal { detail } => write!(formatter, "internal error: {detail}"),
            other => formatter.write_str(&other.message()),
        }
    }
}

impl std::error::Error for ProxyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::ReasonKind;

    /// One of each.
    fn every() -> Vec<ProxyError> {
        let (host, detail) = (String::new, String::new);
        vec![
            ProxyError::RequestTooLong { limit: 1 },
            ProxyError::ClientTimeout,
            ProxyError::ClientCut,
            ProxyError::UpstreamConnect { host: host(), detail: detail() },
            ProxyError::UpstreamTls { host: host(), detail: detail(), failure: TlsFailure::Untrusted },
            ProxyError::UpstreamTimeout { host: host(), waited_ms: 1 },
            ProxyError::UpstreamHints { host: host(), count: 1 },
            ProxyError::UpstreamCut { host: host(), detail: detail() },
            ProxyError::ReplyUnjudged { why: "w" },
            ProxyError::BadTarget { target: String::new() },
            ProxyError::MethodNotAllowed { method: String::new() },
            ProxyError::WebSocketNotGoverned,
            ProxyError::UnknownCaller,
            ProxyError::AmbiguousCredentials { caller: String::new() },
            ProxyError::ConversationBusy { waited_ms: 1 },
            ProxyError::RequestUnreadable { why: "w", answered: false },
            ProxyError::ThreadNotFound,
            ProxyError::StoreAway,
            ProxyError::NoMemory,
            ProxyError::Refused { code: "thread_unsupported_request", message: String::new() },
            ProxyError::Refused { code: "unknown_profile", message: String::new() },
            ProxyError::Refused { code: "history_unknown", message: String::new() },
            ProxyError::Refused { code: "budget_exceeded", message: String::new() },
            repeated_too_often(11, 10),
            ProxyError::Exhausted {
                code: "quota_exhausted",
                reason: Box::new(Reason::new(ReasonKind::RateLimit, String::new())),
            },
            ProxyError::Internal { detail: detail() },
        ]
    }

    #[test]
    fn the_page_on_errors_lists_every_code_with_its_status_and_no_other() {
        let page = include_str!("../../../docs/errors.md");
        let page = page.split_once("\n## Errors of the admin API\n").unwrap().0;
        let rows: Vec<(&str, &str)> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
            .filter_map(|(code, rest)| Some((code, rest.split_once(" |")?.0)))
            .collect();
        let mut listed: Vec<(String, String)> =
            rows.iter().map(|(code, status)| ((*code).to_owned(), (*status).to_owned())).collect();
        let mut known: Vec<(String, String)> =
            every().iter().map(|error| (error.code().to_owned(), error.status().to_string())).collect();
        listed.sort_unstable();
        known.sort_unstable();
        known.dedup();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_error_that_names_the_upstream_says_it_to_callers_on_this_machine_alone() {
        for error in every() {
            let named = error.message() != error.public_message();
            assert_eq!(named, error.names_the_upstream(), "{error:?}");
        }
    }
}
