//! Credentials that a request's body holds by design: those with which the provider logs in to a tool's server. They
//! are replaced whatever else is redacted. Credentials in the request's head are never recorded at all.

use bytes::Bytes;
use dialects::AnyDialect;
use wire::body::Span;
use wire::json::{decode, quote};
use wire::members::members_of;
use wire::splice::Splices;

/// Members of a declared tool that hold credentials.
const CREDENTIALS: [&str; 2] = ["authorization", "headers"];
/// What is recorded in their place.
const REPLACED: &str = "[credential]";

/// `body`, a request, without the credentials of its tools.
pub(super) fn without_credentials(dialect: AnyDialect, body: &Bytes) -> Bytes {
    let Ok(request) = dialect.read(body) else { return body.clone() };
    let mut splices = Splices::default();
    let mut seen = Vec::<Span>::new();
    for tool in &request.tools {
        for member in members_of(body, tool.span) {
            let is_credential = CREDENTIALS.contains(&&*decode(member.key, body).to_ascii_lowercase());
            // Tools of one namespace may share the object that holds them.
            if is_credential && !seen.contains(&member.value) {
                splices.replace(member.value, quote(REPLACED));
                seen.push(member.value);
            }
        }
    }
    if splices.is_empty() { body.clone() } else { splices.apply(body).join() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialects::{CHAT, RESPONSES};

    #[test]
    fn the_credentials_of_tools_are_replaced_and_nothing_else() {
        let body: Bytes = r#"{"input":"q","tools":[{"type":"mcp","server_label":"s","Authorization":"t0k","headers":{"x":"s3c"}},{"type":"function","name":"headers"}]}"#.into();
        let expected = r#"{"input":"q","tools":[{"type":"mcp","server_label":"s","Authorization":"[credential]","headers":"[credential]"},{"type":"function","name":"headers"}]}"#;
        assert_eq!(without_credentials(RESPONSES, &body), expected);
        let plain: Bytes = r#"{"messages":[{"role":"user","content":"headers"}]}"#.into();
        assert_eq!(without_credentials(CHAT, &plain), plain);
    }
}
