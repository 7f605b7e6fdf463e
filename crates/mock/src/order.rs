//! OpenAI's rule of message order: every tool call is answered directly after the assistant message that
//! made it, and nothing else is a tool message. The texts are OpenAI's own, including the misspelling "preceeding";
//! the shape of the messages has been checked before.

use super::refusal::Refusal;
use serde_json::Value;

/// Refuses a conversation in which a call lacks its result or a result its call.
pub(super) fn check(messages: &[Value]) -> Result<(), Refusal> {
    let mut group = Group::default();
    for (index, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            group.answer(index, message)?;
        } else {
            group.close(&format!("messages.[{index}].role"))?;
            group = Group::opened_by(message);
        }
    }
    group.close("messages")
}

/// The calls of one assistant message and those of them that are not answered yet.
#[derive(Default)]
struct Group<'a> {
    calls: Vec<&'a str>,
    open: Vec<&'a str>,
}

impl<'a> Group<'a> {
    fn opened_by(message: &'a Value) -> Self {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls: Vec<&str> = calls.filter_map(|call| call["id"].as_str()).collect();
        Self { open: calls.clone(), calls }
    }

    fn answer(&mut self, index: usize, message: &Value) -> Result<(), Refusal> {
        let param = format!("messages.[{index}].tool_call_id");
        let Some(id) = message["tool_call_id"].as_str() else {
            let text =
                "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.";
            return Err(Refusal::invalid(text, param));
        };
        if self.calls.is_empty() {
            let text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding \
                        message with 'tool_calls'.";
            return Err(Refusal::invalid(text, format!("messages.[{index}].role")));
        }
        let Some(found) = self.open.iter().position(|open| *open == id) else {
            let text = format!(
                "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
            );
            return Err(Refusal::invalid(text, param));
        };
        self.open.remove(found);
        Ok(())
    }

    fn close(&self, param: &str) -> Result<(), Refusal> {
        if self.open.is_empty() {
            return Ok(());
        }
        let text = format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            self.open.join(", ")
        );
        Err(Refusal::invalid(text, param))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(messages: &Value) -> Option<(String, String)> {
        check(messages.as_array().unwrap()).err().map(|refusal| (refusal.message, refusal.param.unwrap()))
    }

    fn calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        json!({"role": "assistant", "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": ""})
    }

    #[test]
    fn complete_groups_of_calls_and_results_are_accepted_in_any_result_order() {
        let user = json!({"role": "user", "content": "q"});
        for messages in [
            json!([user]),
            json!([user, calls(&["a", "b"]), result("b"), result("a")]),
            json!([user, calls(&["0"]), result("0"), calls(&["0"]), result("0"), user]),
            json!([user, calls(&["", ""]), result(""), result("")]),
        ] {
            assert_eq!(refused(&messages), None, "{messages}");
        }
    }

    #[test]
    fn a_call_without_its_result_is_refused_with_its_id() {
        let user = json!({"role": "user", "content": "q"});
        for (messages, ids, param) in [
            (json!([calls(&["a"])]), "a", "messages"),
            (json!([calls(&["a", "b", "c"]), result("b"), user]), "a, c", "messages.[2].role"),
            (json!([calls(&["a"]), user, result("a")]), "a", "messages.[1].role"),
            (json!([calls(&["a"]), calls(&["b"]), result("b")]), "a", "messages.[1].role"),
        ] {
            let (message, blamed) = refused(&messages).unwrap();
            assert!(message.ends_with(&format!("did not have response messages: {ids}")), "{message}");
            assert_eq!(blamed, param);
        }
    }

    #[test]
    fn a_result_without_its_call_is_refused() {
        let user = json!({"role": "user", "content": "q"});
        for (messages, words, param) in [
            (json!([user, result("a")]), "must be a response to a preceeding message", "messages.[1].role"),
            (
                json!([calls(&["a"]), result("a"), user, result("a")]),
                "must be a response",
                "messages.[3].role",
            ),
            (
                json!([calls(&["a"]), result("b")]),
                "'tool_call_id' of 'b' not found",
                "messages.[1].tool_call_id",
            ),
            (
                json!([calls(&["a"]), result("a"), result("a")]),
                "of 'a' not found",
                "messages.[2].tool_call_id",
            ),
            (
                json!([calls(&["a"]), {"role": "tool", "content": ""}]),
                "must have a 'tool_call_id'",
                "messages.[1].tool_call_id",
            ),
        ] {
            let (message, blamed) = refused(&messages).unwrap();
            assert!(message.contains(words), "{message}");
            assert_eq!(blamed, param);
        }
    }
}
