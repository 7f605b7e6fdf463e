//! Target: an upstream's error, a status and a body, whole and as an event. An error that only concerns the caller is
//! never taken for a refusal of tools; reading is bounded; and our own error about it is JSON.

use crate::world::{is_json, lossy};
use dialects::error::{own_error_body, parse, parse_event, parse_in_200};
use dialects::refusal::{
    classify, misses_tools, objects_to_choice, open_call, overflows, refuses_stream_options, suspects,
};

pub fn run(input: &[u8]) -> bool {
    let [high, low, body @ ..] = input else { return false };
    let status = u16::from_be_bytes([*high, *low]);
    for error in [
        parse(body),
        parse_in_200(body),
        parse_event(Some("error"), "data", body),
        parse_event(None, "error", body),
    ] {
        let Some(error) = error else { continue };
        let read = (classify(status, &error), overflows(status, &error), misses_tools(&error));
        assert!(status != 401 || read.0.is_none(), "a matter of the key: {read:?}");
        assert!(status != 429 || !refuses_stream_options(status, &error));
        assert!(status != 429 || (suspects(status, &error).is_empty() && !objects_to_choice(status, &error)));
        if let Some(open) = open_call(status, &error) {
            let is_plain = |c: char| c.is_ascii_graphic() && !['"', '\\', '\'', '`'].contains(&c);
            assert!((1..=128).contains(&open.id.len()) && open.id.chars().all(is_plain), "{open:?}");
        }
        let said: usize = error.messages.iter().map(String::len).sum();
        assert!(said <= body.len() * 24 + 1_000, "{} bytes say {said}", body.len());
        let body = own_error_body(&error.messages.join("; "), "reask_failed");
        assert!(is_json(body.as_bytes()), "{body}");
    }
    assert!(is_json(own_error_body(&lossy(body), "invalid").as_bytes()));
    is_json(body)
}
