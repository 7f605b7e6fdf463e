//! Server-sent events: a splitter from chunks of bytes to whole events, and the parser of one event's fields. Follows
//! the WHATWG grammar (LF, CRLF and CR line ends, byte order mark, several `data` lines) and the deviations recorded
//! from providers. Keeps every byte: what goes in comes out, in order; interprets no data.

use super::body::Span;
use bytes::{Bytes, BytesMut};
use memchr::memchr2;
use std::borrow::Cow;

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// One event with the blank line that ends it (or without, at the end of the stream).
    Event(Bytes),
    /// A part of an event that is longer than the bound; it cannot be judged any more.
    Oversized(Bytes),
}

/// Cuts a stream into events.
#[derive(Debug)]
pub struct Splitter {
    /// Longest event held back, in bytes.
    max: usize,
    /// The beginning of an event whose end has not come.
    partial: BytesMut,
    /// Nothing has come yet in the current line.
    line_empty: bool,
    /// The last byte was a CR, so that a LF belongs to it.
    after_cr: bool,
    /// Lines end with CR LF here.
    crlf: bool,
    /// The event has ended but for the LF of its last CR LF, which is yet to come.
    awaits_lf: bool,
    /// Inside an event that was found too long.
    oversized: bool,
}

impl Splitter {
    /// A splitter at the start of a stream; events longer than `max` bytes come out in parts.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            partial: BytesMut::new(),
            line_empty: true,
            after_cr: false,
            crlf: false,
            awaits_lf: false,
            oversized: false,
        }
    }

    /// Takes the next bytes and gives every piece that they complete.
    pub fn push(&mut self, mut chunk: Bytes, mut give: impl FnMut(Piece)) {
        while let Some(piece) = self.next(&mut chunk) {
            give(piece);
        }
    }

    /// The next piece that the bytes of `chunk` complete, which are taken from it. `None` once nothing is left of it.
    pub fn next(&mut self, chunk: &mut Bytes) -> Option<Piece> {
        if chunk.is_empty() {
            return None;
        }
        if let Some(end) = self.event_end(chunk) {
            let tail = split_off_start(chunk, end);
            return Some(self.complete(tail));
        }
        let rest = std::mem::take(chunk);
        if self.oversized {
            return Some(Piece::Oversized(rest));
        }
        if self.partial.len() + rest.len() > self.max {
            self.oversized = true;
            return Some(Piece::Oversized(self.joined(rest)));
        }
        self.partial.extend_from_slice(&rest);
        None
    }

    /// Whether an event begins with the next byte.
    pub fn is_at_event(&self) -> bool {
        self.line_empty && !self.after_cr && !self.awaits_lf && !self.oversized && self.partial.is_empty()
    }

    /// Takes the event off `chunk` which begins there, where it is known to end with a blank line after `length` bytes, whose
    /// last one is a LF. `None` if it is too long.
    pub fn take_event(&self, chunk: &mut Bytes, length: usize) -> Option<Bytes> {
        debug_assert!(self.is_at_event());
        (length <= self.max).then(|| split_off_start(chunk, length))
    }

    /// The stream is over: gives what is left, as the last event or the rest of one.
    pub fn finish(&mut self) -> Option<Piece> {
        (!self.partial.is_empty()).then(|| Piece::Event(self.partial.split().freeze()))
    }

    /// What came of an event that has not ended, and was not given out.
    pub fn rest(&self) -> &[u8] {
        &self.partial
    }

    /// Bytes of an event that has not come whole.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Whether all that came was given out, so that something else may be written to the stream here.
    pub fn at_boundary(&self) -> bool {
        !self.oversized
    }

    /// Where in `chunk` the current event ends, moving the state over the bytes up to there.
    fn event_end(&mut self, chunk: &[u8]) -> Option<usize> {
        if std::mem::take(&mut self.awaits_lf) {
            self.after_cr = false;
            return Some(usize::from(chunk[0] == b'\n'));
        }
        let mut at = 0;
        while let Some(found) = line_length(&chunk[at..]) {
            let place = at + found;
            if found > 0 {
                self.line_empty = false;
                self.after_cr = false;
            }
            at = place + 1;
            if chunk[place] == b'\n' && std::mem::take(&mut self.after_cr) {
                self.crlf = true;
                continue;
            }
            self.after_cr = chunk[place] == b'\r';
            if std::mem::replace(&mut self.line_empty, true) {
                if self.after_cr && chunk.get(at) == Some(&b'\n') {
                    (self.after_cr, self.crlf) = (false, true);
                    at += 1;
                } else if self.after_cr && self.crlf && at == chunk.len() {
                    self.awaits_lf = true;
                    return None;
                }
                return Some(at);
            }
        }
        if at < chunk.len() {
            self.line_empty = false;
            self.after_cr = false;
        }
        None
    }

    fn complete(&mut self, tail: Bytes) -> Piece {
        if std::mem::take(&mut self.oversized) {
            return Piece::Oversized(tail);
        }
        let event = self.joined(tail);
        if event.len() > self.max { Piece::Oversized(event) } else { Piece::Event(event) }
    }

    fn joined(&mut self, tail: Bytes) -> Bytes {
        if self.partial.is_empty() {
            return tail;
        }
        self.partial.extend_from_slice(&tail);
        self.partial.split().freeze()
    }
}

/// Takes the first `length` bytes of `chunk`. Mostly these are all of it, since one chunk is one event.
fn split_off_start(chunk: &mut Bytes, length: usize) -> Bytes {
    if length == chunk.len() { std::mem::take(chunk) } else { chunk.split_to(length) }
}

/// The bytes before the first line end; `None` where there is none. Mostly an event is one line and an empty one.
fn line_length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'\n' | b'\r' => Some(0),
        _ => memchr2(b'\n', b'\r', text),
    }
}

/// The fields of one event that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The value of the last `event` field.
    pub name: Option<&'a [u8]>,
    /// The name of the field that carried the data: `data`, or `error` as llama.cpp wrote it.
    pub field: &'static str,
    /// The data lines joined by LF; empty where the event has none.
    pub data: Cow<'a, [u8]>,
    /// The span of the data in the event, if it is one line.
    pub place: Option<Span>,
}

/// Reads the fields of one event.
pub fn parse_fields(event: &[u8]) -> Fields<'_> {
    let mut fields = Fields { name: None, field: "data", data: Cow::Borrowed(b""), place: None };
    let text = event.strip_prefix(b"\xef\xbb\xbf").unwrap_or(event);
    if text.trim_ascii_start().first() == Some(&b'{') {
        // OpenAI once sent its errors as bare JSON under the content type of a stream. Without the line ends after it:
        // where these are mixed, their number depends on the chunks.
        fields.data = Cow::Borrowed(text.trim_ascii());
        return fields;
    }
    let mut lines = 0;
    let mut at = event.len() - text.len();
    while at < event.len() {
        let end = memchr2(b'\n', b'\r', &event[at..]).map_or(event.len(), |found| at + found);
        if let Some((name, value)) = parse_line(event, at, end) {
            match name {
                b"event" => fields.name = Some(value.of(event)),
                b"data" | b"error" => {
                    if name == b"error" {
                        fields.field = "error";
                    }
                    add_data(&mut fields, event, value, lines);
                    lines += 1;
                }
                _ => {}
            }
        }
        at = end + 1;
    }
    fields
}

fn add_data<'a>(fields: &mut Fields<'a>, event: &'a [u8], value: Span, lines: usize) {
    if lines == 0 {
        fields.data = Cow::Borrowed(value.of(event));
        fields.place = Some(value);
        return;
    }
    let data = fields.data.to_mut();
    data.push(b'\n');
    data.extend_from_slice(value.of(event));
    fields.place = None;
}

/// The field in `event[at..end]`: its name, and the span of its value without the one optional space.
fn parse_line(event: &[u8], at: usize, end: usize) -> Option<(&[u8], Span)> {
    let line = &event[at..end];
    let indent = line.len() - line.trim_ascii_start().len();
    if line.get(indent) == Some(&b'{') {
        // Not a field, but clients that go by lines read it as data.
        return Some((b"data", Span::new(at + indent, end)));
    }
    let colon = memchr::memchr(b':', line)?;
    let name = line.get(indent..colon)?;
    let space = usize::from(line.get(colon + 1) == Some(&b' '));
    Some((name, Span::new(at + colon + 1 + space, end)))
}

/// The lines of an event, without their ends.
pub fn lines(event: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(event);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr2(b'\n', b'\r', text);
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// The lines of an event that are no part of its data.
pub fn other_lines(event: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = event.strip_prefix(b"\xef\xbb\xbf").unwrap_or(event);
    let is_bare = text.trim_ascii_start().first() == Some(&b'{');
    lines(text).filter(move |_| !is_bare).filter(|line| {
        !parse_line(line, 0, line.len()).is_some_and(|(name, _)| matches!(name, b"data" | b"error"))
    })
}

/// An event cut into parts that have one data line each; what is between two of them goes with the former.
pub fn data_lines(event: &Bytes) -> Vec<Bytes> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < event.len() {
        let end = memchr2(b'\n', b'\r', &event[at..]).map_or(event.len(), |found| at + found);
        if parse_line(event, at, end).is_some_and(|(name, _)| matches!(name, b"data" | b"error")) {
            starts.push(if starts.is_empty() { 0 } else { at });
        }
        at = end + 1;
    }
    let ends = starts.iter().skip(1).copied().chain([event.len()]);
    starts.iter().zip(ends).map(|(start, end)| event.slice(*start..end)).collect()
}

/// An event that carries `data`, which has no line breaks.
pub fn write_event(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 8);
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
    out.freeze()
}

/// A comment of one line. No blank line follows it, so that it becomes a part of the next event: some clients make an
/// event of each blank line as soon as an event had an id, and fail on its empty data.
pub fn write_comment(text: &str) -> Bytes {
    format!(": {text}\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], max: usize) -> Vec<Piece> {
        let mut splitter = Splitter::new(max);
        let mut pieces = Vec::new();
        for chunk in chunks {
            splitter.push(Bytes::copy_from_slice(chunk), |piece| pieces.push(piece));
        }
        pieces.extend(splitter.finish());
        pieces
    }

    fn events(stream: &str) -> Vec<String> {
        split(&[stream.as_bytes()], 1 << 20)
            .into_iter()
            .map(|piece| match piece {
                Piece::Event(bytes) | Piece::Oversized(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            })
            .collect()
    }

    #[test]
    fn bare_json_is_the_same_data_whatever_line_ends_follow_it_and_however_it_is_cut() {
        let stream: &[u8] = b"{\"error\":{}}\n\r\ndata: b";
        for cut in 0..stream.len() {
            let pieces = split(&[&stream[..cut], &stream[cut..]], 1 << 20);
            let data = pieces.iter().map(|piece| match piece {
                Piece::Event(event) | Piece::Oversized(event) => parse_fields(event).data.into_owned(),
            });
            let said: Vec<Vec<u8>> = data.filter(|data| !data.is_empty()).collect();
            assert_eq!(said, [b"{\"error\":{}}".to_vec(), b"b".to_vec()], "cut at {cut}");
        }
    }

    #[test]
    fn events_end_at_blank_lines_of_every_kind() {
        assert_eq!(events("data: a\n\ndata: b\n\n"), ["data: a\n\n", "data: b\n\n"]);
        assert_eq!(events("data: a\r\n\r\ndata: b\r\n\r\n"), ["data: a\r\n\r\n", "data: b\r\n\r\n"]);
        assert_eq!(events("data: a\r\rdata: b\r\r"), ["data: a\r\r", "data: b\r\r"]);
        assert_eq!(events(": ping\n\ndata: b"), [": ping\n\n", "data: b"]);
        assert_eq!(events("data: a\ndata: b\n\n"), ["data: a\ndata: b\n\n"]);
        assert_eq!(events("\n\n"), ["\n", "\n"]);
        assert_eq!(events("data: a\n\rdata: b\r\n\n"), ["data: a\n\r", "data: b\r\n\n"], "mixed");
        assert_eq!(events("\u{feff}data: a\n\ndata: b"), ["\u{feff}data: a\n\n", "data: b"]);
        assert_eq!(events("data: a\n"), ["data: a\n"], "no blank line at the end");
    }

    #[test]
    fn an_event_of_known_length_is_taken_where_one_begins() {
        for (before, is_at_event) in [
            ("", true),
            ("data: a\n\n", true),
            ("data: a\r\n\r\n", true),
            ("data: a", false),
            ("data: a\n", false),
            ("\n\n", true),
            ("data: a\r\r", false),
            ("data: a\r\n\r\ndata: b\r\n\r", false),
            ("data: longer than the bound", false),
        ] {
            let mut splitter = Splitter::new(16);
            splitter.push(Bytes::from_static(before.as_bytes()), |_| {});
            assert_eq!(splitter.is_at_event(), is_at_event, "{before:?}");
        }
        let splitter = Splitter::new(9);
        let mut chunk = Bytes::from_static(b"data: b\n\ndata: cd\n\n");
        assert_eq!(splitter.take_event(&mut chunk, 9).as_deref(), Some(&b"data: b\n\n"[..]));
        assert_eq!(splitter.take_event(&mut chunk, 10), None, "too long");
        assert_eq!(chunk, "data: cd\n\n");
    }

    #[test]
    fn an_event_comes_out_with_its_last_byte() {
        let mut splitter = Splitter::new(1 << 20);
        for (bytes, expected) in
            [("data: a\r\n", 0), ("\r", 0), ("\ndata: b\r\n\r\n", 2), ("data: c\r\r", 0), ("data: d\n\n", 2)]
        {
            let mut count = 0;
            splitter.push(Bytes::from_static(bytes.as_bytes()), |_| count += 1);
            assert_eq!(count, expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_blank_line_of_cr_lf_may_be_split_between_chunks_after_one_that_was_whole() {
        let pieces = split(&[b"data: a\r\n\r\ndata: b\r\n\r", b"\ndata: c\r\n\r\n"], 1 << 20);
        let expected = ["data: a\r\n\r\n", "data: b\r\n\r\n", "data: c\r\n\r\n"];
        assert_eq!(pieces, expected.map(|event| Piece::Event(Bytes::from_static(event.as_bytes()))));
    }

    #[test]
    fn events_over_the_bound_come_in_parts_and_the_next_is_whole_again() {
        let pieces = split(&[b"data: 123456", b"7890\n\nda", b"ta: x\n\n"], 10);
        assert_eq!(
            pieces,
            [
                Piece::Oversized(Bytes::from_static(b"data: 123456")),
                Piece::Oversized(Bytes::from_static(b"7890\n\n")),
                Piece::Event(Bytes::from_static(b"data: x\n\n")),
            ]
        );
    }

    #[test]
    fn fields_are_read_in_every_known_spelling() {
        for (event, name, field, data) in [
            ("data: {}\n\n", None, "data", "{}"),
            ("data:{}\n\n", None, "data", "{}"),
            ("data:[DONE]\r\n\r\n", None, "data", "[DONE]"),
            (" data: {}\n\n", None, "data", "{}"),
            ("event:error\ndata: {}\n\n", Some("error"), "data", "{}"),
            ("error: {\"a\":1}\n\n", None, "error", "{\"a\":1}"),
            ("data: {\"a\":\ndata: 1}\n\n", None, "data", "{\"a\":\n1}"),
            (": ping\n\n", None, "data", ""),
            ("\u{feff}data: x", None, "data", "x"),
            ("data:  two\n\n", None, "data", " two"),
            ("{\n\"error\":1}\n", None, "data", "{\n\"error\":1}"),
            ("data\n\n", None, "data", ""),
            ("data:\n\n", None, "data", ""),
            ("event: ping\n\n", Some("ping"), "data", ""),
            ("event: a\nevent: b\ndata: x\n\n", Some("b"), "data", "x"),
            ("id: 1\nretry: 5\nunknown: 2\nalone\ndata: x\n\n", None, "data", "x"),
            (":data: x\n: data: y\n\n", None, "data", ""),
            ("Data: x\n\n", None, "data", ""),
            ("data : x\n\n", None, "data", ""),
            ("data:\tx: y\n\n", None, "data", "\tx: y"),
            ("data: a\rdata: b\r\r", None, "data", "a\nb"),
            ("data: a\r\ndata: b\r\n\r\n", None, "data", "a\nb"),
            ("data: a\n: between\ndata:\ndata: b\n\n", None, "data", "a\n\nb"),
            ("\u{feff}data: \u{feff}x\n\n", None, "data", "\u{feff}x"),
        ] {
            let fields = parse_fields(event.as_bytes());
            assert_eq!(
                fields.name.map(|name| String::from_utf8(name.to_vec()).unwrap()).as_deref(),
                name,
                "{event:?}"
            );
            assert_eq!((fields.field, &*fields.data), (field, data.as_bytes()), "{event:?}");
            if let Some(place) = fields.place {
                assert_eq!(place.of(event.as_bytes()), data.as_bytes());
            }
        }
    }

    #[test]
    fn the_other_lines_of_an_event_are_those_that_are_no_data() {
        let others = |event: &'static str| -> Vec<&str> {
            let lines = other_lines(event.as_bytes()).map(|line| std::str::from_utf8(line).unwrap());
            lines.filter(|line| !line.is_empty()).collect()
        };
        assert_eq!(others("\u{feff}data: a\n data:b\r\n{c}\nerror: d\n\n"), [""; 0]);
        assert_eq!(others("{\n\"a\": 1\n}\n"), [""; 0]);
        let odd = ["Data: a", "data : b", ": c", "[d]", "id: e"];
        assert_eq!(others("Data: a\ndata : b\n: c\r[d]\ndata: x\nid: e\n\n"), odd);
    }

    #[test]
    fn an_event_of_several_data_lines_is_cut_before_each() {
        for (event, parts) in [
            ("data: a\n\n", vec!["data: a\n\n"]),
            (": c\ndata: a\nid: 1\ndata: b\r\n\r\n", vec![": c\ndata: a\nid: 1\n", "data: b\r\n\r\n"]),
            ("event: x\ndata:a\rdata:b", vec!["event: x\ndata:a\r", "data:b"]),
            (": c\n\n", vec![]),
        ] {
            assert_eq!(data_lines(&Bytes::from_static(event.as_bytes())), parts, "{event:?}");
        }
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_bytes_and_events(
            stream in "(data: [a-z\u{e9}]{0,6}|: c|\n|\r\n|\r|\n\n|\r\n\r\n){0,24}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = stream.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            at.push(bytes.len());
            let mut chunks = Vec::new();
            let mut from = 0;
            for to in at {
                chunks.push(&bytes[from..to]);
                from = to;
            }
            let data = |pieces: &[Piece]| {
                let mut all = Vec::new();
                let mut data = Vec::new();
                for piece in pieces {
                    let (Piece::Event(event) | Piece::Oversized(event)) = piece;
                    all.extend_from_slice(event);
                    let fields = parse_fields(event);
                    if !fields.data.is_empty() {
                        data.push(fields.data.to_vec());
                    }
                }
                (all, data)
            };
            let whole = data(&split(&[bytes], 1 << 20));
            prop_assert_eq!(&whole.0, bytes);
            prop_assert_eq!(data(&split(&chunks, 1 << 20)), whole);
        }
    }
}
