//! Warnings about LLM traffic that is not governed, relayed or unreadable: one log line per endpoint and process. Metrics
//! and request lines count each request.

use model::record::Endpoint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The endpoints that were warned about, one bit each.
static WARNED: AtomicU32 = AtomicU32::new(0);

/// Warns about a relayed request that a model may answer with tool calls, the first time for its endpoint.
pub(super) fn warn_once(endpoint: Endpoint, path: &str) {
    if may_call_tools(endpoint) && is_first(&WARNED, endpoint) {
        tracing::warn!(
            endpoint = endpoint.as_str(),
            path,
            "requests to this endpoint are relayed without being governed: no policy sees their tool calls (reported \
             once for each endpoint)"
        );
    }
}

/// The governed endpoints with a request that could not be read, one bit each.
static UNREAD: AtomicU32 = AtomicU32::new(0);

/// Warns about a request that toolrein cannot read, `why` as in metrics, the first time for its endpoint.
pub(super) fn warn_unread_once(endpoint: Endpoint, why: &'static str) {
    if is_first(&UNREAD, endpoint) {
        tracing::warn!(
            endpoint = endpoint.as_str(),
            why,
            "a request cannot be read, and no policy sees what it says; such requests are counted as not governed \
             (reported once for each endpoint)"
        );
    }
}

/// Whether threads were reported.
static THREADS: AtomicBool = AtomicBool::new(false);

/// Reports what happens to conversations that clients want kept by the upstream, the first time.
pub(super) fn warn_threads_once(is_relayed: bool) {
    if THREADS.swap(true, Ordering::Relaxed) {
        return;
    }
    if is_relayed {
        tracing::warn!(
            "a client has its conversation kept by the upstream (thread); such requests are relayed without being \
             governed, and counted as that (reported once)"
        );
    } else {
        tracing::info!(
            "a client wants its conversation kept by the upstream (thread); toolrein has it send the whole conversation, \
             which is governed; messages.threads = \"relay\" relays such requests without governing them (reported once)"
        );
    }
}

/// Whether calls of a stored response were warned about.
static WARNED_STORED: AtomicBool = AtomicBool::new(false);

/// Warns about a stored response with calls whose verdict is not known, the first time.
pub(super) fn warn_stored_once(path: &str) {
    if !WARNED_STORED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            path,
            "a stored response was read that has, or may have, tool calls that no policy has judged, for example \
             because it was made in the background; such replies are counted as unjudged (reported once)"
        );
    }
}

/// Whether calls that are written as text were warned about.
static WARNED_TEXT: AtomicBool = AtomicBool::new(false);

/// Warns about a conversation whose calls and results are text, the first time.
pub(super) fn warn_calls_as_text_once() {
    if !WARNED_TEXT.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "an agent writes tool calls and results as text: no policy that reads the history sees them (budgets of \
             calls, loops, truncation); such requests are counted as unjudged, why=calls_as_text (reported once)"
        );
    }
}

fn may_call_tools(endpoint: Endpoint) -> bool {
    use Endpoint::{Bedrock, ChatCompletions, Completions, Messages, Realtime, Responses};
    matches!(endpoint, ChatCompletions | Responses | Completions | Messages | Bedrock | Realtime)
}

fn is_first(warned: &AtomicU32, endpoint: Endpoint) -> bool {
    let bit = 1 << endpoint as u32;
    warned.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_request_to_each_endpoint_counts_as_first() {
        let warned = AtomicU32::new(0);
        for endpoint in [Endpoint::Messages, Endpoint::Realtime] {
            assert!(is_first(&warned, endpoint));
            assert!(!is_first(&warned, endpoint));
        }
    }
}
