//! Lookahead after the first tag of call markup: whether the body of a call follows, or the tag is only mentioned.
//!
//! Recognises only how bodies begin: with JSON, a name, another tag. The caller limits how much is looked at.

/// What a text is, as far as is known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// No body of a call.
    No,
    /// It may become one.
    More,
    /// The body of a call.
    Yes(Value),
}

/// The start of the value whose end is the end of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// There is no value: the block ends with its closing tag, or with the text.
    None,
    /// The value begins so many bytes after the first tag.
    At(usize),
}

/// The text after the match, or why there is no match.
pub(super) type Rest<'a> = Result<&'a str, Look>;

fn decided(found: Result<Value, Look>) -> Look {
    found.map_or_else(|look| look, Look::Yes)
}

/// The first alternative that matches. An alternative that may still match takes precedence over later ones;
/// otherwise the result would depend on how the text is split.
fn any(text: &str, alternatives: &[fn(&str) -> Look]) -> Look {
    alternatives.iter().map(|look| look(text)).find(|look| *look != Look::No).unwrap_or(Look::No)
}

pub(super) fn blank(text: &str) -> Rest<'_> {
    let rest = text.trim_start();
    if rest.is_empty() { Err(Look::More) } else { Ok(rest) }
}

pub(super) fn literal<'a>(text: &'a str, wanted: &str) -> Rest<'a> {
    match text.strip_prefix(wanted) {
        Some(rest) => Ok(rest),
        None if wanted.starts_with(text) => Err(Look::More),
        None => Err(Look::No),
    }
}

/// As [`literal`], in upper or lower case.
pub(super) fn literal_in_any_case<'a>(text: &'a str, wanted: &str) -> Rest<'a> {
    let mut rest = text.chars();
    for wanted in wanted.chars() {
        match rest.next() {
            None => return Err(Look::More),
            Some(c) if c.to_lowercase().eq(std::iter::once(wanted)) => {}
            Some(_) => return Err(Look::No),
        }
    }
    Ok(rest.as_str())
}

fn one_of<'a>(text: &'a str, wanted: &[&str]) -> Rest<'a> {
    best(wanted.iter().map(|wanted| literal(text, wanted)))
}

/// A match among `found`; otherwise whether one may still match.
pub(super) fn best<'a>(found: impl Iterator<Item = Rest<'a>>) -> Rest<'a> {
    let mut best = Err(Look::No);
    for found in found {
        match found {
            Ok(_) => return found,
            Err(Look::More) => best = found,
            Err(_) => {}
        }
    }
    best
}

/// A tool's name.
pub(super) fn name(text: &str) -> Rest<'_> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/');
    let rest = text.trim_start_matches(is_part);
    match (rest.len() < text.len(), rest.is_empty()) {
        (_, true) => Err(Look::More),
        (true, false) => Ok(rest),
        (false, false) => Err(Look::No),
    }
}

/// The beginning of an object, or of a list of objects.
pub(super) fn value(text: &str) -> Result<(), Look> {
    if let Some(inside) = text.strip_prefix('[') {
        return one_of(blank(inside)?, &["{", "]"]).map(|_| ());
    }
    let inside = literal(text, "{")?;
    one_of(blank(inside)?, &["\"", "}"]).map(|_| ())
}

/// JSON, at once or after white space.
pub(super) fn json(text: &str) -> Look {
    decided((|| {
        let rest = blank(text)?;
        value(rest)?;
        Ok(Value::At(text.len() - rest.len()))
    })())
}

/// JSON or another list: `[search(q="x")]`.
pub(super) fn list(text: &str) -> Look {
    decided((|| one_of(blank(text)?, &["[", "{"]).map(|_| Value::None))())
}

fn any_tag(text: &str, tags: &[&str]) -> Look {
    decided((|| one_of(blank(text)?, tags).map(|_| Value::None))())
}

/// A tag of a call, with its attributes: `<invoke name="x">`.
fn inner_tag(text: &str) -> Look {
    any_tag(
        text,
        &["<function", "<invoke", "<antml:invoke", "<name>", "<arg_key>", "<tool_call", "<parameter"],
    )
}

/// A name and its first argument, as GLM writes them.
fn name_and_tag(text: &str) -> Look {
    decided((|| {
        // Only line ends may come between; otherwise this is prose: "between <tool_call> and </tool_call>".
        let after = name(text.trim_start_matches('\n'))?.trim_start_matches('\n');
        one_of(after, &["<arg_key>", "</tool_call>"]).map(|_| Value::None)
    })())
}

/// `search(`, at once or after white space.
fn python_call(text: &str) -> Look {
    decided((|| literal(name(blank(text)?)?, "(").map(|_| Value::None))())
}

/// What follows `<tool_call>` and its like.
pub(super) fn hermes(text: &str) -> Look {
    any(text, &[json, inner_tag, name_and_tag, python_call])
}

/// What follows `[TOOL_CALLS]`.
pub(super) fn mistral(text: &str) -> Look {
    fn named(text: &str) -> Look {
        decided((|| {
            let rest = blank(name(blank(text)?)?)?;
            let rest = match literal(rest, "[CALL_ID]") {
                Ok(rest) => name(rest)?,
                Err(Look::More) => return Err(Look::More),
                Err(_) => rest,
            };
            let rest = match literal(rest, "[ARGS]") {
                Ok(rest) => blank(rest)?,
                Err(Look::More) => return Err(Look::More),
                Err(_) => rest,
            };
            value(rest)?;
            Ok(Value::At(text.len() - rest.len()))
        })())
    }
    any(text, &[json, named])
}

/// Code or JSON without anything between.
pub(super) fn glued(text: &str) -> Look {
    fn code(text: &str) -> Look {
        match text.chars().next() {
            None => Look::More,
            Some(c) if c.is_alphanumeric() || matches!(c, '_' | '"' | '#') => Look::Yes(Value::None),
            Some(_) => Look::No,
        }
    }
    any(text, &[json, code, list])
}

/// What follows `<function=`.
pub(super) fn function(text: &str) -> Look {
    decided((|| {
        let rest = blank(literal(name(text)?, ">")?)?;
        match value(rest) {
            Ok(()) => Ok(Value::At(text.len() - rest.len())),
            Err(Look::More) => Err(Look::More),
            Err(_) => one_of(rest, &["<parameter", "</function>"]).map(|_| Value::None),
        }
    })())
}

/// The rest of an attribute with a name: `x">`.
pub(super) fn attribute(text: &str) -> Look {
    decided((|| literal(name(text)?, "\"").map(|_| Value::None))())
}

/// The tags of single calls in a section of them.
pub(super) fn kimi_section(text: &str) -> Look {
    any_tag(text, &["<|tool_call_begin|>"])
}

/// A name and the tag of its arguments.
pub(super) fn kimi_call(text: &str) -> Look {
    decided((|| literal(blank(name(blank(text)?)?)?, "<|tool_call_argument_begin|>").map(|_| Value::None))())
}

/// The id of a call, which may be missing, and the tag of its name.
pub(super) fn solar(text: &str) -> Look {
    let rest = text.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'));
    decided(
        if rest.is_empty() { Err(Look::More) } else { literal(rest, "<|tool_call:name|>") }
            .map(|_| Value::None),
    )
}

pub(super) fn kimi_tools(text: &str) -> Look {
    any_tag(text, &["<|open|>call"])
}

/// The tags of single calls, as DeepSeek and StepFun write them.
pub(super) fn deepseek_section(text: &str) -> Look {
    any_tag(text, &["<｜"])
}

pub(super) fn deepseek_call(text: &str) -> Look {
    decided((|| literal(blank(name(blank(text)?)?)?, "<｜").map(|_| Value::None))())
}

pub(super) fn minimax(text: &str) -> Look {
    any(text, &[inner_tag, |text| any_tag(text, &["]<]minimax[>[<invoke"])])
}

pub(super) fn calls(text: &str) -> Look {
    any(text, &[json, inner_tag, python_call])
}

pub(super) fn plugin(text: &str) -> Look {
    any_tag(text, &["<|plugin|>", "<|interpreter|>"])
}

pub(super) fn gemma(text: &str) -> Look {
    any_tag(text, &["call:"])
}

/// The rest of a header of gpt-oss and the arguments: `search <|constrain|>json<|message|>{`.
pub(super) fn harmony(text: &str) -> Look {
    decided((|| {
        let header = name(text)?;
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '<' | '|' | '>' | ' ' | '\n');
        let rest = header.trim_start_matches(is_part);
        if rest.is_empty() {
            return Err(Look::More);
        }
        value(rest)?;
        Ok(Value::At(text.len() - rest.len()))
    })())
}

/// The rest of toolrein's own `[called search with {`.
pub(super) fn called(text: &str) -> Look {
    decided((|| {
        let rest = literal(name(text)?, " with ")?;
        value(rest)?;
        Ok(Value::At(text.len() - rest.len()))
    })())
}
