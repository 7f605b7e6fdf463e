//! The parser of content: a string, or a list of parts. The dialects differ in what is a part with text.

use model::call::Arguments;
use model::message::{Content, Part};
use wire::body::{Fault, Kind, Scanner, Span};

/// Most parts and most calls of one message that are read. OpenAI accepts 128 calls.
pub const MOST_PARTS: usize = 8 * 1024;

/// Reads the value of a `content` member.
///
/// # Errors
/// A [`Fault`] where it is no JSON, or has more than [`MOST_PARTS`] parts.
pub fn parse_content(
    scanner: &mut Scanner<'_>,
    parse_part: &dyn Fn(&mut Scanner<'_>) -> Result<Part, Fault>,
) -> Result<Content, Fault> {
    parse_content_of(scanner, &|scanner, parts| {
        parts.push(parse_part(scanner)?);
        Ok(())
    })
}

/// Reads one element of a content list and adds its parts.
type ParseParts<'a> = dyn Fn(&mut Scanner<'_>, &mut Vec<Part>) -> Result<(), Fault> + 'a;

/// As [`parse_content`], for a dialect in which an element of the list may be more than one part.
///
/// # Errors
/// As for [`parse_content`].
pub fn parse_content_of(scanner: &mut Scanner<'_>, parse_parts: &ParseParts<'_>) -> Result<Content, Fault> {
    match scanner.peek()? {
        Kind::String => scanner.string().map(Content::Text),
        Kind::Null => scanner.skip_kind(Kind::Null).map(Content::Null),
        Kind::Array => {
            let start = scanner.at();
            let mut parts = Vec::new();
            scanner.array()?;
            while scanner.element()? {
                parse_parts(scanner, &mut parts)?;
                if parts.len() > MOST_PARTS {
                    return Err(Fault::Crowded);
                }
            }
            Ok(Content::Parts { span: Span::new(start, scanner.at()), parts })
        }
        _ => scanner.skip().map(Content::Other),
    }
}

/// Reads the arguments of a call.
///
/// # Errors
/// A [`Fault`] where it is no JSON.
pub fn parse_arguments(scanner: &mut Scanner<'_>) -> Result<Arguments, Fault> {
    match scanner.peek()? {
        Kind::String => scanner.string().map(Arguments::Text),
        Kind::Null => scanner.skip().map(Arguments::Null),
        _ => scanner.skip().map(Arguments::Value),
    }
}
