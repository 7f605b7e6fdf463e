//! The dialect of a request body whose endpoint is not known, by members that one API has and others do not. For replays and
//! imports: where the endpoint is known, it decides.

use crate::{AnyDialect, CHAT, MESSAGES, RESPONSES};
use std::borrow::Cow;
use wire::body::{Fault, Kind, Scanner};
use wire::json::decode_bytes;

/// The Responses API's where the body has an `input` or continues from a response, and no `messages`; the Messages API's
/// where it has a member or a block that only that API has, and none that only chat completions have; else chat
/// completions, which such a body means as well.
pub fn dialect_of(body: &[u8]) -> AnyDialect {
    let mut signs = Signs::default();
    if signs.read(&mut Scanner::tolerant(body)).is_err() {
        return CHAT;
    }
    match signs {
        Signs { responses: true, messages: false, .. } => RESPONSES,
        Signs { chat: false, anthropic: true, messages: true, .. } => MESSAGES,
        _ => CHAT,
    }
}

/// Members of the request that only the Messages API has.
const ANTHROPIC: [&[u8]; 10] = [
    b"system",
    b"anthropic_version",
    b"anthropic_beta",
    b"stop_sequences",
    b"output_config",
    b"output_format",
    b"context_management",
    b"mcp_servers",
    b"container",
    b"thread",
];

/// Types of content that only the Messages API has, beside those that end in `_tool_result`.
const BLOCKS: [&[u8]; 14] = [
    b"tool_use",
    b"tool_result",
    b"server_tool_use",
    b"mcp_tool_use",
    b"thinking",
    b"redacted_thinking",
    b"image",
    b"document",
    b"search_result",
    b"container_upload",
    b"compaction",
    b"fallback",
    b"tool_addition",
    b"tool_removal",
];

/// What a body shows.
#[derive(Debug, Default)]
struct Signs {
    /// A member of the Responses API.
    responses: bool,
    /// A list of messages.
    messages: bool,
    /// A form that only chat completions have.
    chat: bool,
    /// A form that only the Messages API has.
    anthropic: bool,
}

impl Signs {
    fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let key = decode_bytes(key, scanner.text());
            match &*key {
                b"input" | b"previous_response_id" => self.responses = true,
                key if ANTHROPIC.contains(&key) => self.anthropic = true,
                b"messages" => {
                    self.messages = true;
                    self.each(scanner, Self::message)?;
                    continue;
                }
                b"tools" => {
                    self.each(scanner, Self::tool)?;
                    continue;
                }
                b"tool_choice" => {
                    self.members(scanner, Self::choice)?;
                    continue;
                }
                b"thinking" => {
                    self.members(scanner, Self::thinking)?;
                    continue;
                }
                b"metadata" => {
                    self.members(scanner, Self::metadata)?;
                    continue;
                }
                _ => {}
            }
            scanner.skip()?;
        }
        Ok(())
    }

    /// Reads each element of a list; any other value is passed.
    fn each(
        &mut self,
        scanner: &mut Scanner<'_>,
        element: fn(&mut Self, &mut Scanner<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if scanner.peek()? != Kind::Array {
            return scanner.skip().map(drop);
        }
        scanner.array()?;
        while scanner.element()? {
            element(self, scanner)?;
        }
        Ok(())
    }

    /// Reads each member of an object by its name; any other value is passed.
    fn members(
        &mut self,
        scanner: &mut Scanner<'_>,
        member: fn(&mut Self, &[u8], &mut Scanner<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if scanner.peek()? != Kind::Object {
            return scanner.skip().map(drop);
        }
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let key = decode_bytes(key, scanner.text());
            member(self, &key, scanner)?;
        }
        Ok(())
    }

    fn message(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        self.members(scanner, |signs, key, scanner| {
            match key {
                b"role" => {
                    let role = text(scanner)?;
                    signs.chat |= matches!(&*role, b"tool" | b"function" | b"developer");
                    return Ok(());
                }
                b"content" => return signs.each(scanner, Self::block),
                b"tool_calls" | b"function_call" | b"tool_call_id" => signs.chat = true,
                _ => {}
            }
            scanner.skip().map(drop)
        })
    }

    fn block(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        self.members(scanner, |signs, key, scanner| {
            if key != b"type" {
                return scanner.skip().map(drop);
            }
            let kind = text(scanner)?;
            signs.anthropic |= BLOCKS.contains(&&*kind) || kind.ends_with(b"_tool_result");
            signs.chat |= matches!(&*kind, b"image_url" | b"input_audio" | b"file" | b"refusal");
            Ok(())
        })
    }

    fn tool(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        self.members(scanner, |signs, key, scanner| {
            match key {
                b"type" => {
                    signs.anthropic |= is_dated(&text(scanner)?);
                    return Ok(());
                }
                b"input_schema" => signs.anthropic = true,
                b"function" => signs.chat = true,
                _ => {}
            }
            scanner.skip().map(drop)
        })
    }

    fn choice(&mut self, key: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        match key {
            b"type" => {
                let kind = text(scanner)?;
                self.anthropic |= matches!(&*kind, b"auto" | b"any" | b"tool" | b"none");
                return Ok(());
            }
            b"function" => self.chat = true,
            _ => {}
        }
        scanner.skip().map(drop)
    }

    /// Other APIs have `thinking` with a type too.
    fn thinking(&mut self, key: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        match key {
            b"type" => self.anthropic |= &*text(scanner)? == b"adaptive",
            b"budget_tokens" | b"display" | b"block_binding" => {
                self.anthropic = true;
                scanner.skip()?;
            }
            _ => drop(scanner.skip()?),
        }
        Ok(())
    }

    fn metadata(&mut self, key: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        self.anthropic |= key == b"user_id";
        scanner.skip().map(drop)
    }
}

/// The characters of a string; none of any other value, which is passed.
fn text<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, [u8]>, Fault> {
    if scanner.peek()? != Kind::String {
        return scanner.skip().map(|_| Cow::default());
    }
    Ok(decode_bytes(scanner.string()?, scanner.text()))
}

/// Whether a tool's type ends with the date of its version, as Anthropic's own tools have it: `bash_20250124`.
fn is_dated(kind: &[u8]) -> bool {
    let digits = kind.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    digits == 8 && kind.len() > 9 && kind[kind.len() - 9] == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(body: &str) -> &'static str {
        // Dialects are types without fields, which may share an address: each is told by what it makes of a call.
        let reply = dialect_of(body.as_bytes()).reply_with_call("t", "{}");
        match &*String::from_utf8_lossy(&reply) {
            reply if reply.contains("tool_calls") => "chat",
            reply if reply.contains("function_call") => "responses",
            _ => "messages",
        }
    }

    #[test]
    fn a_body_is_told_by_what_only_one_api_has() {
        for (body, expected) in [
            (r#"{"input":"q"}"#, "responses"),
            (r#"{"previous_response_id":"r"}"#, "responses"),
            (r#"{"input":"q","messages":[]}"#, "chat"),
            (r#"{"messages":[{"role":"user","content":"q"}]}"#, "chat"),
            (r#"{"max_tokens":9,"messages":[{"role":"user","content":"q"}]}"#, "chat"),
            (r#"{"system":"s","messages":[{"role":"user","content":"q"}]}"#, "messages"),
            (r#"{"anthropic_version":"vertex-2023-10-16","messages":[]}"#, "messages"),
            (r#"{"stop_sequences":["x"],"messages":[]}"#, "messages"),
            (r#"{"messages":[],"metadata":{"user_id":"u"}}"#, "messages"),
            (r#"{"messages":[],"metadata":{"session":"u"}}"#, "chat"),
            (r#"{"messages":[],"tools":[{"name":"t","input_schema":{}}]}"#, "messages"),
            (r#"{"messages":[],"tools":[{"type":"bash_20250124","name":"bash"}]}"#, "messages"),
            (r#"{"messages":[],"tools":[{"type":"function","function":{"name":"t_20250124"}}]}"#, "chat"),
            (r#"{"messages":[],"tool_choice":{"type":"any"}}"#, "messages"),
            (r#"{"messages":[],"tool_choice":{"type":"function","function":{"name":"t"}}}"#, "chat"),
            (r#"{"messages":[],"thinking":{"type":"enabled","budget_tokens":2000}}"#, "messages"),
            (r#"{"messages":[],"thinking":{"type":"adaptive"}}"#, "messages"),
            (r#"{"messages":[],"thinking":{"type":"enabled","clear_thinking":false}}"#, "chat"),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}"#,
                "messages",
            ),
            (r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t"}]}]}"#, "messages"),
            (r#"{"messages":[{"role":"user","content":[{"type":"text","text":"tool_use"}]}]}"#, "chat"),
            (r#"{"system":"s","messages":[{"role":"tool","content":"r"}]}"#, "chat"),
            (r#"{"messages":[{"role":"assistant","tool_calls":[]}],"stop_sequences":[]}"#, "chat"),
            (r#"{"system":"s"}"#, "chat"),
            (r#"{"system":"s","messages":[{"role":"us"#, "chat"),
            ("[]", "chat"),
            ("", "chat"),
        ] {
            assert_eq!(name(body), expected, "{body}");
        }
    }
}
