//! Calls in blocks of code, and calls that are written as statements of a program.

use super::{Ends, Found, Frame, LABEL, Reader, Structure, has_call_word, value};
use crate::markup::look::{Look, Rest, blank, literal, name};
use crate::markup::values::{closed, unprinted};

/// The namespaces that chat templates name for tools. No program has them.
const NAMESPACES: [&str; 2] = ["functions.", "default_api."];

/// A block of code.
struct Block<'a> {
    marks: &'a str,
    language: String,
    body: &'a str,
}

impl<'a> Reader<'a> {
    /// A block of code that holds a call and nothing before it.
    pub(super) fn fence(&self, text: &'a str, depth: usize) -> Found {
        let Block { marks, language, body } = block(text)?;
        let frame = if has_call_word(&language) { Frame::OfCall } else { Frame::Plain };
        let is_open = matches!(&*language, "" | "json" | "jsonc" | "xml" | "text" | "txt" | "plaintext");
        let fence = Structure::new(Ends::Fence { marks: marks.to_owned(), at: self.at(body) });
        if frame == Frame::Plain {
            match self.statements(body, marks, is_of_namespace) {
                Err(Look::No) if is_open => {}
                found => return found.map(|_| fence),
            }
        }
        let reader = Self { is_in_code: frame == Frame::Plain, ..*self };
        reader.content(body, frame, depth)?;
        Ok(fence)
    }

    /// A block of code that is the whole answer, and holds nothing but calls.
    pub(super) fn lone_code(&self, text: &'a str, depth: usize) -> Found {
        let Some(depth) = depth.checked_sub(1) else { return Err(Look::No) };
        let Block { marks, body, .. } = block(text)?;
        let content = blank(body)?;
        let after = if content.starts_with('<') {
            self.element(content)?;
            let Some(end) = content.find(&format!("\n{marks}")) else { return Err(Look::More) };
            &content[end + 1..]
        } else {
            self.statements(body, marks, |_| true)?
        };
        match after.trim_start_matches(['`', '~']).trim_start() {
            "" if self.has_ended => {}
            "" => return Err(Look::More),
            next if next.starts_with(['`', '~']) => drop(self.lone_code(next, depth)?),
            _ => return Err(Look::No),
        }
        Ok(Structure::new(Ends::Fence { marks: marks.to_owned(), at: self.at(body) }))
    }

    /// The marks that close a block of code, and what follows them, if it holds nothing but calls of known tools whose
    /// names are `such`.
    fn statements(&self, body: &'a str, marks: &str, is_such: fn(&str) -> bool) -> Rest<'a> {
        let mut rest = blank(body)?;
        loop {
            let (name, arguments) = self.invocation(rest)?;
            if !is_such(name) {
                return Err(Look::No);
            }
            rest = end_of_statement(closed(arguments)?);
            let next = rest.trim_start();
            match literal(next, marks) {
                Ok(_) => return Ok(next),
                // The end of the text ends the block, too.
                Err(Look::More) if next.is_empty() && self.has_ended => return Ok(next),
                Err(Look::More) => return Err(Look::More),
                Err(_) if rest.starts_with(['\n', '\r']) => rest = next,
                Err(_) => return Err(Look::No),
            }
        }
    }

    /// The name of a known tool that is called, and its arguments from the parenthesis on.
    fn invocation(&self, text: &'a str) -> Result<(&'a str, &'a str), Look> {
        let text = match literal(text, "await ") {
            Err(Look::No) => unprinted(text)?,
            rest => rest?,
        };
        let arguments = self.known(text)?;
        literal(arguments, "(")?;
        Ok((&text[..text.len() - arguments.len()], arguments))
    }

    /// A text that begins with a line that is a call in the syntax of Python or JavaScript, and nothing else.
    pub(super) fn statement(&self, text: &'a str) -> Found {
        let (_, parenthesis) = self.invocation(text)?;
        let inside = blank(&parenthesis[1..])?;
        if !inside.starts_with('{') {
            self.keyword_arguments(inside)?;
        }
        match end_of_statement(closed(parenthesis)?).chars().next() {
            None => Err(Look::More),
            Some('\n') => Ok(value(0, true)),
            Some(_) => Err(Look::No),
        }
    }

    /// As [`Self::statement`], in a name space of tools.
    pub(super) fn of_namespace(&self, text: &'a str) -> Found {
        let (name, _) = self.invocation(text)?;
        if is_of_namespace(name) { self.statement(text) } else { Err(Look::No) }
    }

    /// What follows the parenthesis of a call: none, or an argument by its name.
    pub(super) fn keyword_arguments(&self, text: &'a str) -> Rest<'a> {
        let inside = blank(text)?;
        if inside.starts_with(')') {
            return Ok(inside);
        }
        literal(blank(name(inside)?)?, "=")
    }
}

fn is_of_namespace(name: &str) -> bool {
    NAMESPACES.iter().any(|namespace| name.starts_with(namespace))
}

/// What follows a statement, and the parenthesis of a `print` around it.
fn end_of_statement(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', ';', '\r', ')'])
}

/// The block of code that `text` begins with, as far as its body.
fn block(text: &str) -> Result<Block<'_>, Look> {
    let mark = text.chars().next().unwrap_or('`');
    let inside = text.trim_start_matches(mark);
    let marks = &text[..text.len() - inside.len()];
    if inside.is_empty() {
        return Err(Look::More);
    }
    if marks.len() < 3 {
        return Err(Look::No);
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
    let body = inside.trim_start_matches(is_word);
    let language = inside[..inside.len() - body.len()].to_lowercase();
    if language.len() > LABEL {
        return Err(Look::No);
    }
    if body.is_empty() { Err(Look::More) } else { Ok(Block { marks, language, body }) }
}
