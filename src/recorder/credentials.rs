//! Credentials that a request's body holds by design: those with which the provider logs in to a tool's server. They
//! are replaced whatever else is redacted. Credentials in the request's head are never recorded at all.

use std::ops::Range;
use wire::body::Span;
use wire::json::{decode, quote};
use wire::members::members_of;

/// Members of a declared tool that hold credentials.
const CREDENTIALS: [&str; 2] = ["authorization", "headers"];
/// What is recorded in their place.
const REPLACED: &str = "[credential]";

/// A `range` of `body`, a request, without the credentials of those of its `tools` that are in it.
pub(super) fn without_credentials(body: &[u8], tools: &[Span], range: Range<usize>) -> Vec<u8> {
    let mut found = Vec::<Range<usize>>::new();
    for tool in tools.iter().filter(|tool| range.start <= tool.range().start && tool.range().end <= range.end)
    {
        for member in members_of(body, *tool) {
            if CREDENTIALS.contains(&&*decode(member.key, body).to_ascii_lowercase()) {
                found.push(member.value.range());
            }
        }
    }
    found.sort_by_key(|value| value.start);
    let (mut written, mut done) = (Vec::with_capacity(range.len()), range.start);
    for value in found {
        // Tools of one namespace may share the object that holds them.
        if value.start >= done {
            written.extend_from_slice(&body[done..value.start]);
            written.extend_from_slice(quote(REPLACED).as_bytes());
            done = value.end;
        }
    }
    written.extend_from_slice(&body[done..range.end]);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use dialects::{AnyDialect, CHAT, RESPONSES};

    #[test]
    fn the_credentials_of_tools_are_replaced_and_nothing_else() {
        let body: Bytes = r#"{"input":"q","tools":[{"type":"mcp","server_label":"s","Authorization":"t0k","headers":{"x":"s3c"}},{"type":"function","name":"headers"}]}"#.into();
        let expected = r#"{"input":"q","tools":[{"type":"mcp","server_label":"s","Authorization":"[credential]","headers":"[credential]"},{"type":"function","name":"headers"}]}"#;
        let recorded = |dialect: AnyDialect, body: &Bytes| {
            let tools: Vec<Span> = dialect.read(body).unwrap().tools.iter().map(|tool| tool.span).collect();
            Bytes::from(without_credentials(body, &tools, 0..body.len()))
        };
        assert_eq!(recorded(RESPONSES, &body), expected);
        let plain: Bytes = r#"{"messages":[{"role":"user","content":"headers"}]}"#.into();
        assert_eq!(recorded(CHAT, &plain), plain);
    }
}
