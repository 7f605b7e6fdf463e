//! Secrets in markup: the text of an element that a name calls a secret, its own, that of an element around it, or that of
//! the one before it; and the attribute of an element whose other attribute names a secret. In time linear in the text.

use super::named::{find_secret_in, holds_secret, holds_value, is_secret_name};
pub use model::plan::work::step;
use std::ops::Range;

/// Most bytes of a tag.
const LONGEST_TAG: usize = 2_048;
/// Most elements that are open below a secret. What is deeper is not looked for.
const MOST_OPEN: usize = 16;
/// Elements of web pages without content, in spite of their tags.
const EMPTY: [&str; 6] = ["input", "meta", "br", "hr", "img", "link"];
const OPENS_DATA: &str = "<![CDATA[";
const ENDS_DATA: &str = "]]>";

/// A tag, and where it is.
struct Tag<'t> {
    range: Range<usize>,
    is_end: bool,
    is_empty: bool,
    name: &'t str,
    /// What is between the name and the end.
    attributes: Range<usize>,
}

/// An element that is open.
struct Open<'t> {
    name: &'t str,
    /// A name calls it a secret, and not only one around it.
    is_secret: bool,
    /// How many texts were pending when it began.
    pending: usize,
}

/// What was read so far.
#[derive(Default)]
struct Reader<'t> {
    found: Vec<Range<usize>>,
    /// Texts that are secrets if the element around them ends: a type parameter (`Vec<Token>`) has no end.
    pending: Vec<Range<usize>>,
    /// The elements that are open from the one that a name calls a secret on.
    open: Vec<Open<'t>>,
    /// The text of the element that was just closed names a secret, so the next element holds it.
    is_named: bool,
    /// No `]]>` ends the section that `<![CDATA[` starts.
    is_data_open: bool,
    /// The text ends where that of a secret may begin or go on.
    is_cut: bool,
}

/// The secrets, in order, and whether there may be more whose element ends after `text`.
pub(super) fn find_in_markup(text: &str) -> (Vec<Range<usize>>, bool) {
    let mut reader = Reader::default();
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
        let start = at + next;
        at = start + 1;
        let Some(tag) = tag_at(text, start) else { continue };
        at = reader.read(text, &tag);
    }
    reader.found.sort_by_key(|range| range.start);
    (reader.found, reader.is_cut || !reader.pending.is_empty())
}

impl<'t> Reader<'t> {
    /// Reads a tag and the text after it, and returns where to go on.
    fn read(&mut self, text: &'t str, tag: &Tag<'t>) -> usize {
        if tag.is_end {
            self.close(tag.name);
            return tag.range.end;
        }
        self.open(text, tag);
        if tag.is_empty { tag.range.end } else { self.read_content(text, tag) }
    }

    fn close(&mut self, name: &str) {
        // The end of what is around the secret: its own was left out.
        let Some(at) = self.open.iter().rposition(|open| open.name == name) else {
            self.open.clear();
            self.pending.clear();
            return;
        };
        if self.open[at].is_secret {
            self.found.extend(self.pending.drain(self.open[at].pending..));
        }
        self.open.truncate(at);
        if at == 0 {
            self.pending.clear();
        }
    }

    fn open(&mut self, text: &'t str, tag: &Tag<'t>) {
        step();
        let Attributes { calls_content, names_value, value } = read_attributes(text, tag);
        if let Some(value) = value.filter(|_| names_value) {
            self.found.extend(find_secret_in(text, value));
        } else if !tag.is_empty {
            let is_secret = calls_content || self.is_named || is_secret_name(local(tag.name));
            if (is_secret || !self.open.is_empty()) && self.open.len() < MOST_OPEN {
                self.open.push(Open { name: tag.name, is_secret, pending: self.pending.len() });
            }
        }
        self.is_named = false;
    }

    /// Reads the text after a beginning tag, and returns where it ends.
    fn read_content(&mut self, text: &str, tag: &Tag<'_>) -> usize {
        let blanks = text[tag.range.end..].len() - text[tag.range.end..].trim_start().len();
        let mut start = tag.range.end + blanks;
        let length = match text[start..].strip_prefix(OPENS_DATA).filter(|_| !self.is_data_open) {
            Some(data) => {
                start += OPENS_DATA.len();
                let length = memchr::memmem::find(data.as_bytes(), ENDS_DATA.as_bytes());
                self.is_data_open = length.is_none();
                length
            }
            None => memchr::memchr(b'<', &text.as_bytes()[start..]),
        };
        let Some(length) = length else {
            self.is_cut =
                !self.open.is_empty() && (ends_document(&text[start..]) || holds_secret(&text[start..]));
            return start;
        };
        let content = text[start..start + length].trim_end();
        if !self.open.is_empty() {
            self.pending.extend(find_secret_in(text, start..start + content.len()));
        }
        self.is_named = matches!(local(tag.name), "key" | "name" | "Key" | "Name") && is_secret_name(content);
        start + length
    }
}

/// Whether `rest` is nothing, or what ends the strings, objects and lists of a JSON text.
fn ends_document(rest: &str) -> bool {
    rest.bytes().all(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\\' | b'}' | b']'))
}

/// A name without its prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// The tag that begins at `start`.
fn tag_at(text: &str, start: usize) -> Option<Tag<'_>> {
    let bytes = text.as_bytes();
    let is_end = bytes.get(start + 1) == Some(&b'/');
    let from = start + 1 + usize::from(is_end);
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b":_.-".contains(byte);
    let length = bytes[from..].iter().take(64).take_while(|byte| is_of_name(byte)).count();
    let name = &text[from..from + length];
    let window = &bytes[from + length..bytes.len().min(from + length + LONGEST_TAG)];
    let end = memchr::memchr2(b'<', b'>', window).filter(|end| window[*end] == b'>')?;
    let attributes = from + length..from + length + end;
    let is_attributes = text[attributes.clone()].is_empty()
        || text[attributes.clone()].starts_with(|first: char| first.is_whitespace() || first == '/');
    let is_tag = name.starts_with(|first: char| first.is_ascii_alphabetic()) && is_attributes;
    let is_empty = text[attributes.clone()].ends_with('/') || EMPTY.contains(&name);
    is_tag.then(|| Tag { range: start..attributes.end + 1, is_end, is_empty, name, attributes })
}

/// What the attributes of a tag say of secrets.
#[derive(Default)]
struct Attributes {
    /// One of them calls the content of the element a secret.
    calls_content: bool,
    /// One of them calls the value of another attribute a secret.
    names_value: bool,
    /// Where that value is.
    value: Option<Range<usize>>,
}

fn read_attributes(text: &str, tag: &Tag<'_>) -> Attributes {
    const OF_CONTENT: [&str; 4] = ["name", "key", "field", "property"];
    // Anchors and fields have these, and what they contain is text about the secret.
    const OF_VALUE: [&str; 2] = ["id", "type"];
    let mut read = Attributes::default();
    let mut at = tag.attributes.start;
    while let Some((name, range)) = next_attribute(text, &mut at, tag.attributes.end) {
        let names_secret = is_secret_name(text[range.clone()].trim_end_matches(']'));
        let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        read.calls_content |= names_secret && is_one_of(&OF_CONTENT);
        read.names_value |= names_secret && (is_one_of(&OF_CONTENT) || is_one_of(&OF_VALUE));
        if holds_value(name) {
            read.value = Some(range);
        }
    }
    read
}

/// The next attribute with a value from `at` on.
fn next_attribute<'t>(text: &'t str, at: &mut usize, end: usize) -> Option<(&'t str, Range<usize>)> {
    let rest = &text[*at..end];
    let equals = rest.find('=')?;
    let before = rest[..equals].trim_end();
    let name = before.rsplit(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'')).next()?;
    let after = rest[equals + 1..].trim_start();
    let start = end - after.len();
    let value = match after.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            start + 1..start + 1 + after[1..].find(quote).unwrap_or(after.len() - 1)
        }
        _ => start..start + after.find(char::is_whitespace).unwrap_or(after.len()),
    };
    *at = (value.end + 1).min(end);
    *at = text.ceil_char_boundary(*at);
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_place_of_markup_that_a_name_calls_one() {
        const S: &str = "Xq7Zp2Lm9Rt4Vw8K";
        for markup in [
            "<password><![CDATA[@]]></password>",
            "<password><value>@</value></password>",
            "<c:password>\n  <v a='1'>\n    @\n  </v>\n</c:password>",
            "<add key=\"ApiKey\" value=\"@\"/>",
            "<add value = '@' key = 'ApiKey' />",
            "<input type=\"password\" name=\"pw\" value=\"@\">",
            "<input value=\"@\" type=password>",
            "<key>Password</key><string>@</string>",
            "<name>DB_PASSWORD</name>\n<value>@</value>",
            "<entry key=\"password\">@</entry>",
            "<input name=\"user[password]\" value=\"@ with words\">",
        ] {
            let text = markup.replace('@', S);
            let found: Vec<&str> = find_in_markup(&text).0.into_iter().map(|range| &text[range]).collect();
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(S) && !found[0].contains(['<', '\n', '"']), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_beside_a_secret_and_markup_about_one_are_none() {
        for text in [
            "<input type=\"password\" name=\"password\" placeholder=\"Your password\" data-id=\"aB3dE5gH7jK9\">",
            "<password>secret</password><id>Xq7Zp2Lm9Rt4Vw8K</id>",
            "<a><password></password></a><b>Xq7Zp2Lm9Rt4Vw8K</b>",
            "<password><created>2026-11-28T16:50:03Z</created></password>",
            "<input type=\"password\"> Xq7Zp2Lm9Rt4Vw8K",
            "let all: Vec<Token> = read(Xq7Zp2Lm9Rt4Vw8K);\nlet x: Option<u8> = None;",
            "<label for=\"password\">Password</label><input id=\"aB3dE5gH7jK9\" value=\"anna\">",
            "<key>Name</key><string>Xq7Zp2Lm9Rt4Vw8K</string>",
            "<section id=\"access-token\"><p>Read Xq7Zp2Lm9Rt4Vw8K first.</p></section>",
            "<password><file>./secrets/Xq7Zp2Lm9Rt4Vw8K</file></password>",
        ] {
            assert!(find_in_markup(text).0.is_empty(), "{text}");
        }
    }
}
