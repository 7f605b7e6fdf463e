//! Unknown outcomes: results that leave open whether the tool has acted, because the request timed out, the
//! connection was lost after it was sent, the run was cancelled, or a server failed in the middle. The wordings are
//! tables with the source of each. A request that was certainly never sent (a refused connection, an unknown host) is
//! a plain failure, and a text that only mentions time limits is not a failure. Decides nothing.

use serde_json::{Map, Value};

/// How much of each end of a failure is searched, in bytes: the last line of a traceback says what happened.
pub(super) const SEARCHED: usize = 1_024;
/// The longest text that is an unknown outcome by its first words alone, in bytes: a longer one is content.
const LONGEST_BARE: usize = 400;

/// What failures of unknown outcome say, anywhere, in lower case.
const SAYS: &[(&str, &str)] = &[
    // Python: TimeoutError, asyncio, requests, httpx (`The read operation timed out`); Go's net/http; curl 28.
    ("timed out", "Error: HTTPSConnectionPool(host='a'): Read timed out. (read timeout=10)"),
    ("timeouterror", "Error: TimeoutError()"),
    ("timeoutexception", "Exception: java.net.http.HttpTimeoutException: request"),
    ("readtimeout", "Error: httpx.ReadTimeout"),
    ("read timeout", "Error: read timeout"),
    ("writetimeout", "Error: httpx.WriteTimeout"),
    ("sockettimeout", "Exception: java.net.SocketTimeoutException"),
    ("etimedout", "Error: read ETIMEDOUT"),
    ("esockettimedout", "Error: ESOCKETTIMEDOUT"),
    ("request timeout", "Error: 408 Request Timeout"),
    ("response timeout", "Error: response timeout"),
    ("gateway timeout", "Error: 504 Gateway Timeout"),
    ("gateway time-out", "Error: 504 Gateway Time-out"),
    // axios; gRPC and Go; curl 28.
    ("timeout of ", "Error: timeout of 10000ms exceeded"),
    ("deadline exceeded", "Error: context deadline exceeded"),
    ("deadline_exceeded", "Error: 4 DEADLINE_EXCEEDED"),
    ("deadlineexceeded", "Error: rpc error: code = DeadlineExceeded"),
    ("timeout was reached", "Error: curl: (28) Timeout was reached"),
    ("timeout after", "Error: timeout after 30s"),
    ("timeout while", "Error: timeout while waiting for the answer"),
    ("timeout waiting", "Error: Timeout waiting for response"),
    ("timeout awaiting", "Error: net/http: timeout awaiting response headers"),
    // Connections that were lost: sockets, urllib3, http.client, aiohttp, httpx, undici, Node, Go, curl 52 and 56.
    ("connection reset", "Error: [Errno 104] Connection reset by peer"),
    ("connectionreset", "Error: ConnectionResetError(104)"),
    ("econnreset", "Error: read ECONNRESET"),
    ("connection aborted", "Error: ('Connection aborted.', RemoteDisconnected())"),
    ("econnaborted", "Error: ECONNABORTED"),
    ("connection closed", "MCP error -32000: Connection closed"),
    ("connection was closed", "Error: The connection was closed unexpectedly"),
    ("connection lost", "Error: Connection lost"),
    ("connection was lost", "Error: the connection was lost"),
    ("lost connection", "Error: Lost connection to the server during query"),
    ("remotedisconnected", "Error: http.client.RemoteDisconnected"),
    ("remote end closed", "Error: Remote end closed connection without response"),
    ("server disconnected", "Error: aiohttp.ServerDisconnectedError: Server disconnected"),
    ("peer closed connection", "Error: peer closed connection without sending complete message body"),
    ("remoteprotocolerror", "Error: httpx.RemoteProtocolError"),
    ("chunkedencodingerror", "Error: requests.exceptions.ChunkedEncodingError"),
    ("incompleteread", "Error: IncompleteRead(0 bytes read)"),
    ("socket hang up", "Error: socket hang up"),
    ("other side closed", "Error: fetch failed: other side closed"),
    ("broken pipe", "Error: [Errno 32] Broken pipe"),
    ("write epipe", "Error: write EPIPE"),
    ("premature close", "Error: Premature close"),
    ("unexpected eof", "Error: unexpected EOF"),
    ("empty reply from server", "Error: curl: (52) Empty reply from server"),
    ("stream closed", "Error: stream closed before the response"),
    // Runs that were cancelled while they ran. A call that a person refused has not run, and says otherwise.
    ("cancellederror", "Error: asyncio.CancelledError"),
    ("operation was aborted", "Error: AbortError: This operation was aborted"),
    ("aborterror", "Error: AbortError"),
    ("operation was cancel", "Error: The operation was canceled."),
    ("request was cancel", "Error: the request was cancelled"),
    ("context canceled", "Error: context canceled"),
    ("tool execution aborted", "Tool execution aborted"),
    ("aborted by user after", "aborted by user after 1.0s"),
    // A server that failed while it worked.
    ("internal server error", "Error: 500 Internal Server Error"),
    ("bad gateway", "Error: 502 Bad Gateway"),
    ("service unavailable", "Error: 503 Service Unavailable"),
    ("status code 5", "Error: Request failed with status code 500"),
    ("status code: 5", "Error: status code: 502"),
    ("http 5", "Error: HTTP 503"),
    ("http error 5", "Error: HTTP Error 500"),
    // timeout(1), and a process that was killed.
    ("exit code 124", "Exit code 124"),
    ("exit code: 124", "Exit code: 124\nOutput:"),
    ("exit code 137", "Exit code 137\nKilled"),
    ("exit code: 137", "Exit code: 137\nOutput:"),
];

/// How short texts of unknown outcome begin, in lower case, where no word of a failure comes first.
const BEGINS: &[(&str, &str)] = &[
    ("timed out", "Timed out."),
    ("timeout:", "Timeout: no answer within 30 s"),
    ("timeouterror", "TimeoutError: "),
    ("readtimeout", "ReadTimeout"),
    ("request timed out", "Request timed out."),
    ("the request timed out", "The request timed out."),
    ("operation timed out", "Operation timed out"),
    ("the operation timed out", "The operation timed out."),
    ("tool call timed out", "Tool call timed out after 60 seconds"),
    ("tool timed out", "Tool timed out"),
    ("tool execution timed out", "Tool execution timed out after 30s"),
    ("execution timed out", "Execution timed out"),
    ("command timed out", "command timed out after 10000 milliseconds"),
    ("connection lost", "Connection lost"),
    ("connection reset", "Connection reset by peer"),
    ("connection closed", "Connection closed"),
    ("socket hang up", "socket hang up"),
    ("read econnreset", "read ECONNRESET"),
    ("context deadline exceeded", "context deadline exceeded"),
    ("fetch failed", "fetch failed"),
    ("network error", "Network Error"),
    ("request failed with status code 5", "Request failed with status code 502"),
    ("500 internal server error", "500 Internal Server Error"),
    ("internal server error", "Internal Server Error"),
    ("502 bad gateway", "502 Bad Gateway"),
    ("503 service unavailable", "503 Service Unavailable"),
    ("504 gateway time-out", "504 Gateway Time-out"),
    ("504 gateway timeout", "504 Gateway Timeout"),
    ("http 500", "HTTP 500"),
    ("http 502", "HTTP 502"),
    ("http 503", "HTTP 503"),
    ("http 504", "HTTP 504: upstream"),
    ("<html>\r\n<head><title>50", "<html>\r\n<head><title>502 Bad Gateway</title></head>"),
    ("<html>\n<head><title>50", "<html>\n<head><title>504 Gateway Time-out</title></head>"),
    ("[request interrupted", "[Request interrupted by user for tool use]"),
    ("tool execution aborted", "Tool execution aborted"),
    ("tool execution was interrupted", "Tool execution was interrupted."),
    ("tool call interrupted", "Tool call interrupted"),
    ("tool call was cancelled", "Tool call was cancelled."),
    ("tool call was canceled", "Tool call was canceled."),
    ("the tool call was interrupted", "The tool call was interrupted"),
];

/// What shows that the request was never sent, or was refused before anything was done, in lower case.
const NEVER_SENT: &[&str] = &[
    "connection refused",
    "connectionrefused",
    "econnrefused",
    "connecttimeout",
    "connect timeout",
    "connect etimedout",
    "connection timeout",
    "und_err_connect_timeout",
    "pooltimeout",
    "failed to establish a new connection",
    "name or service not known",
    "temporary failure in name resolution",
    "nodename nor servname",
    "getaddrinfo",
    "enotfound",
    "no such host",
    "could not resolve host",
    "no route to host",
    "network is unreachable",
    "certificate verify failed",
    // A database that rolled back.
    "statement timeout",
    "lock wait timeout",
];

/// Whether a failure whose searched parts are these leaves open whether the tool has acted.
pub(super) fn leaves_open(parts: &[&str]) -> bool {
    let parts: Vec<String> = parts.iter().map(|part| part.to_lowercase()).collect();
    let holds = |words: &str| parts.iter().any(|part| part.contains(words));
    !NEVER_SENT.iter().any(|words| holds(words)) && SAYS.iter().any(|(words, _)| holds(words))
}

/// As [`leaves_open`], for a text that does not look like a failure otherwise.
pub(super) fn is_bare(text: &str) -> bool {
    let text =
        text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '❌' | '⚠' | '\u{fe0f}' | '*'));
    if text.len() > LONGEST_BARE {
        return false;
    }
    let text = text.to_lowercase();
    let begins = BEGINS.iter().any(|(words, _)| {
        let rest = text.strip_prefix(words);
        rest.is_some_and(|rest| !words.ends_with(char::is_alphabetic) || !rest.starts_with(is_word_part))
    });
    begins && !NEVER_SENT.iter().any(|words| text.contains(words))
}

fn is_word_part(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-')
}

/// Objects that may hold the status of a server's reply.
const WITHIN: [&str; 4] = ["error", "result", "response", "metadata"];

/// Whether the members of a failure's object hold a status that leaves open whether the tool has acted.
pub(super) fn status_leaves_open(object: &Map<String, Value>) -> bool {
    let within = WITHIN.iter().filter_map(|key| object.get(*key)?.as_object());
    std::iter::once(object).chain(within).any(|object| {
        let number = |key: &str| {
            object.get(key).and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()))
        };
        let status = ["status", "status_code", "statusCode", "code"].into_iter().find_map(number);
        let exit = ["exit_code", "exitCode", "returncode"].into_iter().find_map(number);
        status.is_some_and(|status| status == 408 || (500..600).contains(&status))
            || exit.is_some_and(|code| [124, 137].contains(&code))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_is_found() {
        for (words, example) in SAYS {
            assert!(leaves_open(&[example]), "{words}: {example}");
        }
        for (words, example) in BEGINS {
            assert!(is_bare(example), "{words}: {example}");
        }
    }

    #[test]
    fn a_request_that_never_reached_its_server_has_a_known_outcome() {
        for text in [
            "Error: [Errno 111] Connection refused",
            "Error: connect ECONNREFUSED 127.0.0.1:80",
            "Error: connect ETIMEDOUT 10.0.0.1:443",
            "Error: httpx.ConnectTimeout: timed out",
            "Error: Max retries exceeded (Caused by ConnectTimeoutError(timed out))",
            "Error: getaddrinfo ENOTFOUND shop.example, the request timed out",
            "Error: httpx.PoolTimeout: timed out waiting for a connection",
            "Error: canceling statement due to statement timeout",
            "Error: no such order",
            "Error: timeout must be a number",
            "Error: 429 Too Many Requests",
            "Error: 404 Not Found",
        ] {
            assert!(!leaves_open(&[text]), "{text}");
        }
    }

    #[test]
    fn content_that_speaks_of_time_limits_is_no_outcome() {
        let long = format!("Request timed out. {}", "x".repeat(LONGEST_BARE));
        for text in [
            "Timeouts are set in the settings.",
            "The timeout is 30 s.",
            "timed outings",
            "Connection closed-loop control",
            "Networks error-correct",
            "5 orders timed out last week",
            "HTTP 200",
            &long,
        ] {
            assert!(!is_bare(text), "{text}");
        }
    }
}
