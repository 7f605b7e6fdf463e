//! JSON object members on which parsers differ: names that occur twice, names in another case, values of another kind.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::json::{in_one_case, unescape};
use serde_json::Value;

/// One member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: Str,
    pub value: Span,
}

impl Member {
    /// From the key's quote to the end of the value.
    pub fn span(&self) -> Span {
        Span { start: self.key.span.start - 1, end: self.value.end }
    }
}

/// The members of the JSON object at `object` in `body`, as far as they can be read.
pub fn members_of(body: &[u8], object: Span) -> Vec<Member> {
    let mut members = Vec::new();
    // What comes after a fault is no member.
    let _ = read_members(&mut Scanner::within(body, object), &mut members);
    members
}

/// The members of the JSON object at the position of `scanner`.
///
/// # Errors
/// A [`Fault`] where it is no JSON object.
pub fn all_members(scanner: &mut Scanner<'_>) -> Result<Vec<Member>, Fault> {
    // The objects that are read as a whole have about a dozen.
    let mut members = Vec::with_capacity(16);
    read_members(scanner, &mut members)?;
    Ok(members)
}

fn read_members(scanner: &mut Scanner<'_>, members: &mut Vec<Member>) -> Result<(), Fault> {
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let value = scanner.skip()?;
        members.push(Member { key, value });
    }
    Ok(())
}

/// Which of an object's decisive members were read: a second one of the same name is a fault, since parsers differ on
/// which one counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenMembers(u32);

impl SeenMembers {
    pub fn once(&mut self, member: u32) -> Result<(), Fault> {
        let bit = 1 << member;
        if self.0 & bit != 0 {
            return Err(Fault::Duplicate);
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Reads a string value; any other kind is passed and counts as absent.
pub fn string_or_skip(scanner: &mut Scanner<'_>) -> Result<Option<Str>, Fault> {
    let kind = scanner.peek()?;
    if kind == Kind::String {
        return scanner.string().map(Some);
    }
    scanner.skip_kind(kind)?;
    Ok(None)
}

/// Reads a whole number; any other value is passed and counts as absent.
pub fn whole_number_or_skip(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Fault> {
    let span = scanner.skip()?;
    Ok(std::str::from_utf8(span.of(scanner.text())).ok().and_then(|number| number.parse().ok()))
}

/// Whether a member called `key`, which is none of `names` or has a `value` of another kind, could still be taken for
/// one of them: an object where a list is expected or the other way round, unless it is empty, and names that differ in
/// case alone (Go's `encoding/json` ignores case; mappers of Java, C# and TypeScript know `toolCalls` as `tool_calls`).
pub fn may_be_read_as(key: &[u8], value: &[u8], names: &[&[u8]]) -> bool {
    let holds_anything = match value {
        [b'{' | b'[', inner @ .., _] => !inner.trim_ascii().is_empty(),
        _ => false,
    };
    holds_anything && (names.contains(&key) || differs_in_case(key, names))
}

/// Whether a member called `key` may be one of `names` whose value was written as JSON in a string: a tolerant client reads
/// it. An empty object or list holds nothing.
pub fn may_be_text_of(key: &[u8], value: &[u8], names: &[&[u8]]) -> bool {
    let Some(text) = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")) else {
        return false;
    };
    if !names.contains(&key) && !differs_in_case(key, names) {
        return false;
    }
    match serde_json::from_str(&unescape(text)) {
        Ok(Value::Object(members)) => !members.is_empty(),
        Ok(Value::Array(items)) => !items.is_empty(),
        _ => false,
    }
}

/// Whether `key` is one of `names` but for the case of its letters and the underscores that camel case leaves out.
pub fn differs_in_case(key: &[u8], names: &[&[u8]]) -> bool {
    let is_odd = key.len() <= 32 && key.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
    let is_letter = |byte: &&u8| **byte != b'_';
    is_odd && {
        let key = in_one_case(key);
        names.iter().any(|name| name.iter().filter(is_letter).eq(key.iter().filter(is_letter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_another_case_or_in_camel_case_is_known() {
        for (key, is_known) in [
            ("toolCalls", true),
            ("ToolCalls", true),
            ("TOOL_CALLS", true),
            ("Tool_calls", true),
            ("tool_calls", false),
            ("toolcalls", false),
            ("toolCall", false),
            ("Name", true),
            ("tool_call\u{17f}", true),
        ] {
            assert_eq!(differs_in_case(key.as_bytes(), &[b"tool_calls", b"name"]), is_known, "{key}");
        }
    }
}
