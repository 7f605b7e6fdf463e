//! The beginning of reading a request body, the same in each dialect: bounds and encoding are checked once, before its members
//! are read.

use model::checkpoint::{Checkpoint, Head};
use model::request::Request;
use std::sync::Arc;
use wire::body::{Fault, Kind, Scanner};

/// A scanner before the object that the body is.
///
/// # Errors
/// A [`Fault`] where it is too long, no UTF-8, or no object.
pub(crate) fn begin(body: &[u8]) -> Result<Scanner<'_>, Fault> {
    check(body, body)?;
    let mut scanner = Scanner::tolerant(body);
    if scanner.peek()? != Kind::Object {
        scanner.skip()?;
        return scanner.end().and(Err(Fault::Type));
    }
    Ok(scanner)
}

/// A scanner after the part of the body that is `known`, with what was read of that.
///
/// # Errors
/// A [`Fault`] where the body is too long, or the rest of it no UTF-8.
pub(crate) fn resume<'a>(
    body: &'a [u8],
    known: &Arc<Checkpoint>,
) -> Result<(Scanner<'a>, Request, Head), Fault> {
    // The known part ends after a brace, so that no character is cut.
    check(body, &body[known.bytes()..])?;
    Ok(known.resume(body))
}

/// Most tools that are read: no provider accepts more than some hundreds.
const MOST_TOOLS: usize = 8 * 1024;

/// Checks that the request does not declare too many tools.
///
/// # Errors
/// [`Fault::Crowded`] where it does.
pub(crate) fn check_tools(request: &Request) -> Result<(), Fault> {
    if request.tools.len() > MOST_TOOLS { Err(Fault::Crowded) } else { Ok(()) }
}

fn check(body: &[u8], new: &[u8]) -> Result<(), Fault> {
    // Spans have 32 bits.
    if body.len() > u32::MAX as usize {
        return Err(Fault::Size);
    }
    simdutf8::basic::from_utf8(new).map(drop).map_err(|_| Fault::Utf8)
}
