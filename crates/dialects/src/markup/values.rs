//! Values in a call that a model writes as text: the members of its object, strings in either quotes, brackets, and
//! tokens. Reads no further than the value.

use super::look::{Look, Rest, blank, literal};

/// Longest name of a token, in bytes.
const LONGEST_TOKEN: usize = 64;

/// What a member of a call's object is.
pub(super) enum Member {
    Name,
    Arguments,
    /// It holds whole calls.
    Calls,
    /// It may come before them.
    Lead,
    /// It describes a tool: the object is no call.
    Description,
    Other,
}

impl Member {
    pub(super) fn of(key: &str) -> Self {
        match key {
            "name" | "tool" | "tool_name" | "toolName" | "function" | "function_name" | "action"
            | "recipient_name" => Self::Name,
            "arguments" | "parameters" | "args" | "params" | "input" | "tool_input" | "action_input"
            | "tool_arguments" | "tool_args" | "toolArgs" | "kwargs" => Self::Arguments,
            "tool_calls" | "tool_call" | "function_call" | "function_calls" | "tool_uses" | "calls"
            | "actions" => Self::Calls,
            "id" | "type" | "index" | "tool_call_id" | "call_id" | "thought" | "thoughts" | "reasoning"
            | "explanation" => Self::Lead,
            "description" | "strict" | "inputSchema" | "input_schema" => Self::Description,
            _ => Self::Other,
        }
    }
}

/// Whether a value describes arguments and holds none.
pub(super) fn is_schema(value: &str) -> Result<bool, Look> {
    let Some(inside) = value.strip_prefix('{') else { return Ok(false) };
    let inside = blank(inside)?;
    if inside.starts_with('}') {
        return Ok(false);
    }
    let (key, after) = string(inside)?;
    if key == "properties" || key == "$schema" {
        return Ok(true);
    }
    let value = blank(literal(blank(after)?, ":")?)?;
    if key != "type" || !value.starts_with(['"', '\'']) {
        return Ok(false);
    }
    string(value).map(|(kind, _)| kind == "object")
}

/// A string in quotes of either kind, as it is written, and what follows it.
pub(super) fn string(text: &str) -> Result<(&str, &str), Look> {
    let Some(quote) = text.chars().next() else { return Err(Look::More) };
    if !matches!(quote, '"' | '\'') {
        return Err(Look::No);
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            c if c == quote => return Ok((&text[1..at], &text[at + 1..])),
            _ => {}
        }
    }
    Err(Look::More)
}

/// What follows the value that `text` begins with.
pub(super) fn skipped(text: &str) -> Rest<'_> {
    match text.chars().next() {
        Some('{' | '[') => closed(text),
        Some('"' | '\'') => string(text).map(|(_, rest)| rest),
        _ => match text.find([',', '}', ']']) {
            Some(at) => Ok(&text[at..]),
            None => Err(Look::More),
        },
    }
}

/// What follows the bracket that closes the one that `text` begins with.
pub(super) fn closed(text: &str) -> Rest<'_> {
    let (mut rest, mut depth) = (text, 0_usize);
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '"' | '\'' => string(rest)?.1,
            c => &rest[c.len_utf8()..],
        };
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Ok(rest);
        }
    }
    Err(Look::More)
}

/// What `print(` holds; without it, the whole.
pub(super) fn unprinted(text: &str) -> Rest<'_> {
    match literal(text, "print(") {
        Err(Look::No) => Ok(text),
        found => found,
    }
}

/// The name of the token that `text` begins with, and what follows it.
pub(super) fn token_end(text: &str) -> Result<(&str, &str), Look> {
    const FORMS: [(&str, &str); 4] = [("<|", "|>"), ("<｜", "｜>"), ("<<", ">>"), ("[", "]")];
    let mut may_match = false;
    for (open, close) in FORMS {
        let Some(inside) = text.strip_prefix(open) else {
            may_match |= open.starts_with(text);
            continue;
        };
        let is_part = |c: char| match open {
            "[" => c.is_ascii_uppercase() || c == '_',
            _ => c.is_alphanumeric() || matches!(c, '_' | ':' | '/' | '▁' | '.' | ' '),
        };
        let Some(end) = inside.find(close) else {
            let begun = inside.trim_end_matches(|c: char| close.starts_with(c));
            let is_short = begun.len() <= LONGEST_TOKEN && inside.len() < LONGEST_TOKEN + close.len();
            let may_be = is_short && begun.chars().all(is_part);
            return Err(if may_be { Look::More } else { Look::No });
        };
        let name = &inside[..end];
        let is_token = !name.is_empty() && name.len() <= LONGEST_TOKEN && name.chars().all(is_part);
        return if is_token { Ok((name, &inside[end + close.len()..])) } else { Err(Look::No) };
    }
    if may_match { Err(Look::More) } else { Err(Look::No) }
}
