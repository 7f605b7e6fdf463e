//! Calls that are written as elements: a tag of any name that holds a call, a tag for calls that names a tool, and a tag
//! that is named after one. An element that describes a tool is no call of it: its children are none of the arguments.

use super::{Ends, Found, Frame, LABEL, Reader, Structure, any, has_call_word, value};
use crate::markup::look::{Look, blank, literal};
use crate::markup::values::{is_schema, string};

/// The words that name an element of arguments.
const ARGUMENT_WORDS: [&str; 3] = ["arg", "param", "input"];

/// The opening tag of an element.
struct Tag<'a> {
    name: &'a str,
    attributes: &'a str,
    /// What follows it.
    inside: &'a str,
}

impl Tag<'_> {
    fn is_closed(&self) -> bool {
        self.attributes.trim_end().ends_with('/')
    }

    fn closer(&self) -> String {
        format!("</{}>", self.name)
    }
}

impl<'a> Reader<'a> {
    /// A tag of any name that holds a call; a tag for calls that names one; a tag that is named after a tool and that no
    /// other language has.
    pub(super) fn tag(&self, text: &'a str, depth: usize) -> Found {
        let tag = opening(text)?;
        let Tag { name, attributes, inside } = tag;
        let closer = tag.closer();
        let named = if has_call_word(name) { self.named_by(attributes) } else { None };
        if let Some(tool) = named
            && tag.is_closed()
        {
            let is_call = !describes(attributes) && (!self.is_in_code || self.has_argument(tool, attributes));
            return if is_call { Ok(Structure::new(Ends::Tag(self.at(inside)))) } else { Err(Look::No) };
        }
        let frame = if has_call_word(name) { Frame::OfCall } else { Frame::Plain };
        let is_after_tool = name.contains(['_', '-']) && self.tools.contain(name);
        if let Some(tool) = named.or(is_after_tool.then_some(name)) {
            return self.arguments(tool, &tag, named.is_some());
        }
        let json = blank(inside).and_then(|inside| self.json(inside, frame));
        let found = match (json, frame) {
            (Ok(found), _) => Ok(found),
            (_, Frame::OfCall) => {
                any([self.content(inside, frame, depth), self.named_by_child(inside, depth)])
            }
            (Err(look), Frame::Plain) => Err(look),
        };
        found.map(|found| found.within(closer))
    }

    /// An element that calls `tool`; `is_named`: its tag is one of calls.
    fn arguments(&self, tool: &str, tag: &Tag<'a>, is_named: bool) -> Found {
        let closer = tag.closer();
        if describes(tag.attributes) {
            return Err(Look::No);
        }
        let inside = blank(tag.inside)?;
        match inside.chars().next() {
            Some('{') if is_schema(inside)? => Err(Look::No),
            Some('{') => Ok(value(self.at(inside), false).within(closer)),
            Some('<') => match self.is_argument(tool, inside, &closer)? {
                true => Ok(Structure::new(Ends::Closer(closer))),
                false => Err(Look::No),
            },
            _ if is_named && !self.is_in_code => Ok(Structure::new(Ends::Closer(closer))),
            _ => Err(Look::No),
        }
    }

    /// Whether the element that `text` begins with is an argument of `tool`, or the call ends there without any. Where the
    /// tool's parameters are not known, any may be one, but not in code.
    fn is_argument(&self, tool: &str, text: &'a str, closer: &str) -> Result<bool, Look> {
        match literal(text, closer) {
            Err(Look::No) => {}
            found => return found.map(|_| true),
        }
        let Some(end) = text[1..].find(|c| !is_part(c)) else { return Err(Look::More) };
        let child = &text[1..=end];
        let lower = child.to_lowercase();
        Ok(ARGUMENT_WORDS.iter().any(|word| lower.contains(word))
            || self.tools.have_parameter(tool, child)
            || (!self.is_in_code && !self.tools.know_parameters(tool)))
    }

    /// A tag that is named after a tool and holds what the tool has as parameters, as elements, as members of an object,
    /// or as attributes (Cline, Roo Code). A tag of another language has other children.
    pub(super) fn element(&self, text: &'a str) -> Found {
        let tag = opening(text)?;
        if !self.tools.contain(tag.name) {
            return Err(Look::No);
        }
        if tag.is_closed() && self.has_argument(tag.name, tag.attributes) {
            return Ok(Structure::new(Ends::Tag(self.at(tag.inside))));
        }
        let inside = blank(tag.inside)?;
        let first = match inside.chars().next() {
            Some('<') => match inside[1..].find(|c| !is_part(c)) {
                Some(end) => &inside[1..=end],
                None => return Err(Look::More),
            },
            Some('{') => string(blank(&inside[1..])?)?.0,
            _ => return Err(Look::No),
        };
        if !self.tools.have_parameter(tag.name, first) {
            return Err(Look::No);
        }
        Ok(match inside.starts_with('{') {
            true => value(self.at(inside), false).within(tag.closer()),
            false => Structure::new(Ends::Closer(tag.closer())),
        })
    }

    /// Whether one of the attributes is a parameter of `tool`.
    fn has_argument(&self, tool: &str, attributes: &str) -> bool {
        names_of(attributes).any(|name| self.tools.have_parameter(tool, name))
    }

    /// The known tool that is a value of these attributes: `name="search"`, `=search`.
    fn named_by(&self, attributes: &'a str) -> Option<&'a str> {
        let values = attributes.split('=').skip(1).map(|value| {
            let value = value.trim_start().trim_start_matches(['"', '\'']);
            value.split(['"', '\'', ' ', '/']).next().unwrap_or_default()
        });
        let mut values = values.filter(|value| self.tools.contain(value));
        values.next()
    }

    /// One of the first tags within a tag for calls holds the name of a known tool: `<name>search</name>`.
    fn named_by_child(&self, text: &'a str, depth: usize) -> Found {
        let mut rest = text;
        for _ in 0..depth {
            rest = literal(blank(rest)?, "<")?;
            let Some(open) = rest.find('>') else { return Err(Look::More) };
            let (tag, inside) = (&rest[..open], &rest[open + 1..]);
            if tag.len() > LABEL || tag.contains(['<', '\n', '/']) {
                return Err(Look::No);
            }
            let closer = format!("</{tag}>");
            let found = Structure::new(Ends::Closer(String::new()));
            if self.tools.contain(tag) {
                return Ok(found);
            }
            let Some(end) = inside.find(&closer) else { return Err(Look::More) };
            if self.tools.contain(inside[..end].trim()) {
                return self
                    .is_call_of_child(&inside[end + closer.len()..], inside[..end].trim())
                    .map(|()| found);
            }
            rest = &inside[end + closer.len()..];
        }
        Err(Look::No)
    }

    /// In code, what follows the name of the tool must be its arguments: a declaration has a description there.
    fn is_call_of_child(&self, text: &'a str, tool: &str) -> Result<(), Look> {
        if !self.is_in_code {
            return Ok(());
        }
        let next = blank(text)?;
        let is_argument =
            next.starts_with('{') || (next.starts_with('<') && self.is_argument(tool, next, "</")?);
        if is_argument { Ok(()) } else { Err(Look::No) }
    }
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.')
}

/// Whether the attributes describe a tool.
fn describes(attributes: &str) -> bool {
    names_of(attributes).any(|name| matches!(name, "description" | "doc" | "summary"))
}

/// The names of attributes.
fn names_of(attributes: &str) -> impl Iterator<Item = &str> {
    let ends = attributes.match_indices('=').map(|(end, _)| attributes[..end].trim_end());
    ends.map(|name| name.rsplit(|c| !is_part(c)).next().unwrap_or_default())
}

/// The opening tag that `text` begins with.
fn opening(text: &str) -> Result<Tag<'_>, Look> {
    let rest = literal(text, "<")?;
    if !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return Err(Look::No);
    }
    let after = rest.trim_start_matches(is_part);
    let name = &rest[..rest.len() - after.len()];
    if name.len() > LABEL {
        return Err(Look::No);
    }
    let Some(end) = after.find(['>', '<', '\n']) else {
        return if after.len() <= 4 * LABEL { Err(Look::More) } else { Err(Look::No) };
    };
    if !after[end..].starts_with('>') || end > 4 * LABEL {
        return Err(Look::No);
    }
    Ok(Tag { name, attributes: &after[..end], inside: &after[end + 1..] })
}
