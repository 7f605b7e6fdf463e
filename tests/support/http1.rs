//! HTTP/1.1 heads and bodies on a buffered reader, for both ends of a test: enough of the protocol to see what
//! arrives and in which pieces. No pooling, no compression, no leniency.

use std::io::{self, BufRead, ErrorKind, Read};

/// The first line of a message and its headers, names in lower case, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Head {
    /// `POST /v1/x HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub first_line: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head; `None` where the peer closed instead of sending one.
    ///
    /// # Errors
    /// If the connection fails or ends within the head.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(first_line) = line(from)? else { return Ok(None) };
        let mut headers = Vec::new();
        loop {
            let text = line(from)?.ok_or(ErrorKind::UnexpectedEof)?;
            if text.is_empty() {
                return Ok(Some(Self { first_line, headers }));
            }
            let (name, value) = text.split_once(':').ok_or(ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The word at `index` of the first line, empty if there is none.
    pub fn word(&self, index: usize) -> &str {
        self.first_line.split(' ').nth(index).unwrap_or_default()
    }

    /// The first header called `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// How the body after this head is framed; `otherwise` if the head does not say.
    pub fn framing(&self, otherwise: Framing) -> Framing {
        if self.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return Framing::Chunked;
        }
        let length = self.header("content-length").and_then(|text| text.parse().ok());
        length.map_or(otherwise, Framing::Length)
    }
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many more bytes.
    Length(u64),
    /// At the empty chunk.
    Chunked,
    /// Where the connection ends.
    Close,
    /// Nothing more comes.
    Over,
}

impl Framing {
    /// The next piece of the body as it arrives (a chunk where the body is chunked), `None` at its proper end.
    ///
    /// # Errors
    /// `UnexpectedEof` where the body was cut off.
    pub fn next(&mut self, from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
        match *self {
            Self::Over | Self::Length(0) => Ok(None),
            Self::Length(left) => {
                let piece = arrived(from, left)?;
                if piece.is_empty() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                *self = Self::Length(left - piece.len() as u64);
                Ok(Some(piece))
            }
            Self::Close => {
                let piece = arrived(from, u64::MAX)?;
                Ok((!piece.is_empty()).then_some(piece))
            }
            Self::Chunked => {
                let piece = chunk(from)?;
                if piece.is_none() {
                    *self = Self::Over;
                }
                Ok(piece)
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`Framing::next`].
    pub fn read_all(mut self, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.next(from)? {
            body.extend(piece);
        }
        Ok(body)
    }
}

fn arrived(from: &mut impl BufRead, most: u64) -> io::Result<Vec<u8>> {
    let ready = from.fill_buf()?;
    let piece = ready[..ready.len().min(usize::try_from(most).unwrap_or(usize::MAX))].to_vec();
    from.consume(piece.len());
    Ok(piece)
}

fn chunk(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let size = line(from)?.ok_or(ErrorKind::UnexpectedEof)?;
    let digits = size.split(';').next().unwrap_or_default();
    let length = usize::from_str_radix(digits.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
    let mut data = vec![0; length];
    from.read_exact(&mut data)?;
    // The line end after the data; after the last, empty chunk it ends the empty trailers.
    line(from)?.ok_or(ErrorKind::UnexpectedEof)?;
    Ok((length > 0).then_some(data))
}

fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.by_ref().take(64 * 1024).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map(Some).map_err(|_| ErrorKind::InvalidData.into())
}
