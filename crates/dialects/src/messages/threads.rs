//! The member `thread`, by which a client continues a conversation that Anthropic keeps. toolrein makes such clients send
//! the whole conversation: `create` goes upstream without the member, and `continue` is answered by toolrein.

use model::request::Request;
use wire::json::{decode_bytes, is_named};
use wire::members::members_of;
use wire::splice::Splices;

/// What the member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thread {
    /// To keep the conversation, which the request holds whole.
    Create,
    /// Something that toolrein does not know.
    Unknown,
    /// To continue a conversation that is upstream.
    Continue,
}

/// What `thread` asks for; `None` where the request has no such member, or has it as null. Of several members of this
/// name the one counts that leaves most of the conversation upstream, since parsers differ on which one they take.
pub fn thread_of(request: &Request, body: &[u8]) -> Option<Thread> {
    let members = request.members.iter().filter(|member| is_named(member.key, body, NAME));
    let values = members.map(|member| member.value).filter(|value| value.of(body) != b"null");
    let kinds = values.map(|value| {
        let types = members_of(body, value).into_iter().filter(|member| is_named(member.key, body, "type"));
        let kinds = types.map(|member| match member.value.of(body) {
            [b'"', ..] => {
                kind(&decode_bytes(wire::body::Scanner::within(body, member.value).string().ok()?, body))
            }
            _ => None,
        });
        kinds.map(|kind| kind.unwrap_or(Thread::Unknown)).max().unwrap_or(Thread::Unknown)
    });
    kinds.max()
}

fn kind(word: &[u8]) -> Option<Thread> {
    match word {
        b"create" => Some(Thread::Create),
        b"continue" => Some(Thread::Continue),
        _ => None,
    }
}

/// Removes the member from what is sent upstream.
pub fn without_thread(request: &Request, body: &[u8], splices: &mut Splices) {
    splices.remove_members(&request.members, |member| is_named(member.key, body, NAME));
}

/// The member's name.
const NAME: &str = "thread";

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use bytes::Bytes;

    fn request(members: &str) -> (Request, Bytes) {
        let body = Bytes::from(format!(r#"{{"model":"m","messages":[]{members}}}"#));
        (parse(&body).unwrap(), body)
    }

    #[test]
    fn the_member_says_whether_the_conversation_is_upstream() {
        for (members, expected) in [
            ("", None),
            (r#","thread":null"#, None),
            (r#","threads":{"type":"create"}"#, None),
            (r#","thread":{"type":"create"}"#, Some(Thread::Create)),
            (r#", "thread" : { "type" : "cre\u0061te" }"#, Some(Thread::Create)),
            (r#","thread":{"type":"continue","previous_message_id":"msg_1"}"#, Some(Thread::Continue)),
            (r#","thr\u0065ad":{"type":"continue"}"#, Some(Thread::Continue)),
            (r#","thread":{"type":"continue"},"thread":{"type":"create"}"#, Some(Thread::Continue)),
            (r#","thread":{"type":"create","type":"continue"}"#, Some(Thread::Continue)),
            (r#","thread":{"type":"fork"}"#, Some(Thread::Unknown)),
            (r#","thread":{"type":{}}"#, Some(Thread::Unknown)),
            (r#","thread":{}"#, Some(Thread::Unknown)),
            (r#","thread":"create""#, Some(Thread::Unknown)),
        ] {
            let (request, body) = request(members);
            assert_eq!(thread_of(&request, &body), expected, "{members}");
        }
    }

    #[test]
    fn nothing_but_the_member_is_removed() {
        for (members, expected) in [
            ("", r#"{"model":"m","messages":[]}"#),
            (r#","thread":{"type":"create"}"#, r#"{"model":"m","messages":[]}"#),
            (r#", "thread": {"type": "create"} , "a": 1.0"#, r#"{"model":"m","messages":[] , "a": 1.0}"#),
            (r#","thread":null,"x":{"thread":1}"#, r#"{"model":"m","messages":[],"x":{"thread":1}}"#),
        ] {
            let (request, body) = request(members);
            let mut splices = Splices::default();
            without_thread(&request, &body, &mut splices);
            assert_eq!(splices.apply(&body).join(), expected, "{members}");
        }
    }
}
