//! A streaming decoder of HTTP content codings (RFC 9110, section 8.4), by async-compression: compressed bytes are
//! pushed, decoded bytes are taken in pieces of bounded size, so that a decompression bomb costs no memory. It never
//! waits and reads no headers.

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{self, Sender, TryRecvError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt as _, BufReader, ReadBuf};
use tokio_util::io::StreamReader;

/// The most that is decoded at a time.
const PIECE_BYTES: usize = 8 * 1024;
/// The most codings of one body. Servers use one.
const MOST_CODINGS: usize = 3;
/// 8 MiB, the largest window that RFC 9659 lets a sender use.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Why a body cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// There is no decoder for a coding, or there are too many codings.
    #[error("the content coding is unknown")]
    Unknown,
    /// The bytes are invalid in the coding, or too many come out between two codings.
    #[error("the compressed bytes are corrupt")]
    Corrupt,
    /// The bytes end before the coding does.
    #[error("the compressed bytes are cut off")]
    Truncated,
}

/// A content coding that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

type Coded = Box<dyn AsyncBufRead + Send + Unpin>;
type Decoded = Box<dyn AsyncRead + Send + Unpin>;

impl Coding {
    /// `None` for `identity`.
    fn named(name: &[u8]) -> Result<Option<Self>, CodingError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Ok(Some(Self::Gzip)),
            () if is("deflate") => Ok(Some(Self::Deflate)),
            () if is("br") => Ok(Some(Self::Brotli)),
            () if is("zstd") => Ok(Some(Self::Zstd)),
            () if is("identity") => Ok(None),
            () => Err(CodingError::Unknown),
        }
    }

    /// The decoder of a body that begins with the byte `first`.
    fn decoder(self, first: u8, coded: Coded) -> io::Result<Decoded> {
        Ok(match self {
            Self::Gzip => {
                let mut decoder = GzipDecoder::new(coded);
                decoder.multiple_members(true);
                Box::new(decoder)
            }
            // Some servers send raw deflate where the RFC asks for zlib. The first byte distinguishes them: no encoder
            // begins raw deflate with the low bits of a zlib header.
            Self::Deflate if first & 0x0f == 8 => Box::new(ZlibDecoder::new(coded)),
            Self::Deflate => Box::new(DeflateDecoder::new(coded)),
            // Brotli with windows of up to 1 GiB, which is not the coding `br` and which no client supports.
            Self::Brotli if first & 0x7f == 0x11 => return Err(io::ErrorKind::InvalidData.into()),
            Self::Brotli => Box::new(BrotliDecoder::new(coded)),
            Self::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut decoder = ZstdDecoder::with_params(coded, &[window]);
                decoder.multiple_members(true);
                Box::new(decoder)
            }
        })
    }

    /// The most decoded data that the decoder keeps.
    fn window_bytes(self) -> usize {
        match self {
            Self::Gzip | Self::Deflate => 32 << 10,
            Self::Brotli => 16 << 20,
            Self::Zstd => 1 << ZSTD_WINDOW_LOG,
        }
    }
}

/// Whether a coding of this name can be decoded.
pub fn is_known(name: &[u8]) -> bool {
    Coding::named(name).is_ok()
}

/// A streaming decoder of one body. After an error it accepts and yields nothing more.
pub struct Decoder {
    /// Where pushed bytes go; `None` once the body has ended.
    pushed: Option<Sender<Bytes>>,
    /// `None` once nothing more comes out.
    decoded: Option<Decoded>,
    /// The bytes of the last push; all earlier ones are decoded.
    unread_bytes: usize,
    produced_bytes: usize,
    window_bytes: usize,
    codings: usize,
}

impl Decoder {
    /// The decoder of a body with these values of `content-encoding`, in the order of the headers; `None` where nothing
    /// needs decoding. Where there are several codings, at most `limit` bytes may come out between two of them.
    ///
    /// # Errors
    /// [`CodingError::Unknown`].
    pub fn new<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
        limit: usize,
    ) -> Result<Option<Self>, CodingError> {
        let names = values.into_iter().flat_map(|value| value.split(|byte| *byte == b','));
        let names = names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
        let mut codings = Vec::new();
        for name in names {
            codings.extend(Coding::named(name)?);
            if codings.len() > MOST_CODINGS {
                return Err(CodingError::Unknown);
            }
        }
        // The coding applied last is undone first.
        let mut undone = codings.iter().rev();
        let Some(first) = undone.next() else { return Ok(None) };
        let (pushed, received) = mpsc::channel();
        let received = stream::poll_fn(move |_| match received.try_recv() {
            Ok(bytes) => Poll::Ready(Some(Ok::<Bytes, io::Error>(bytes))),
            // No waker is needed: it is polled again after the next push.
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        });
        let first = Stage::new(*first, Box::new(StreamReader::new(received)));
        let last = undone.fold(first, |stage, coding| {
            let limited = Stage { limit, ..stage };
            Stage::new(*coding, Box::new(BufReader::new(limited)))
        });
        Ok(Some(Self {
            pushed: Some(pushed),
            decoded: Some(Box::new(last)),
            unread_bytes: 0,
            produced_bytes: 0,
            window_bytes: codings.iter().map(|coding| coding.window_bytes()).sum(),
            codings: codings.len(),
        }))
    }

    /// How many codings are undone.
    pub fn codings(&self) -> usize {
        self.codings
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: Bytes) {
        if let Some(pushed) = &self.pushed
            && self.decoded.is_some()
        {
            self.unread_bytes = bytes.len();
            // Sending fails once everything is decoded. Further bytes are ignored, as HTTP clients do.
            let _ = pushed.send(bytes);
        }
    }

    /// The body has ended.
    pub fn end(&mut self) {
        self.pushed = None;
    }

    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.pushed.is_none()
    }

    /// The next decoded bytes, at most 8 KiB; `None` where more must be pushed first, or where all has come out.
    pub fn decode(&mut self) -> Option<Result<Bytes, CodingError>> {
        let mut room = [0; PIECE_BYTES];
        let decoded = self.decoded.as_mut()?.read(&mut room).now_or_never()?;
        if !matches!(decoded, Ok(1..)) {
            self.decoded = None;
        }
        match decoded {
            Ok(0) => None,
            Ok(bytes) => {
                self.produced_bytes += bytes;
                Some(Ok(Bytes::copy_from_slice(&room[..bytes])))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Err(CodingError::Truncated)),
            Err(_) => Some(Err(CodingError::Corrupt)),
        }
    }

    /// About how much memory is in use.
    pub fn kept_bytes(&self) -> usize {
        self.unread_bytes + self.produced_bytes.min(self.window_bytes)
    }
}

/// One coding of a body. Its decoder is made when the first byte arrives.
struct Stage {
    coding: Coding,
    coded: Option<Coded>,
    /// `None` before the first byte, and for an empty body, which is empty in any coding.
    decoded: Option<Decoded>,
    /// How many bytes may still come out.
    limit: usize,
}

impl Stage {
    fn new(coding: Coding, coded: Coded) -> Self {
        Self { coding, coded: Some(coded), decoded: None, limit: usize::MAX }
    }
}

impl AsyncRead for Stage {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stage = &mut *self;
        if let Some(coded) = &mut stage.coded {
            let first = ready!(Pin::new(coded).poll_fill_buf(context))?.first().copied();
            if let (Some(first), Some(coded)) = (first, stage.coded.take()) {
                stage.decoded = Some(stage.coding.decoder(first, coded)?);
            }
        }
        let Some(decoded) = &mut stage.decoded else { return Poll::Ready(Ok(())) };
        let before = room.filled().len();
        ready!(Pin::new(decoded).poll_read(context, room))?;
        let left = stage.limit.checked_sub(room.filled().len() - before);
        stage.limit = left.ok_or(io::ErrorKind::InvalidData)?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[path = "../../tests/support/coded.rs"]
pub(super) mod coded;

#[cfg(test)]
mod tests {
    use super::coded::{CODINGS, Encoder, encode};
    use super::*;

    const FAR: usize = 1 << 30;

    fn decoder(coding: &str) -> Decoder {
        Decoder::new([coding.as_bytes()], FAR).unwrap().unwrap()
    }

    /// All output of what was pushed.
    fn drain(decoder: &mut Decoder) -> Result<Vec<u8>, CodingError> {
        let mut all = Vec::new();
        while let Some(piece) = decoder.decode() {
            let piece = piece?;
            assert!((1..=PIECE_BYTES).contains(&piece.len()));
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    fn decode(coding: &str, coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut decoder = decoder(coding);
        decoder.push(Bytes::copy_from_slice(coded));
        decoder.end();
        drain(&mut decoder)
    }

    /// A text in which little repeats.
    fn text(length: usize) -> Vec<u8> {
        (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 % 64 + 32).collect()
    }

    #[test]
    fn every_coding_is_decoded_in_pieces_of_any_size() {
        for (name, raw) in CODINGS {
            for length in [0, 1, 100, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES, 300_000] {
                let text = text(length);
                let coded = encode((name, raw), &text);
                assert!(decode(name, &coded).unwrap() == text, "{name} {raw} {length}");
                for step in [1, 7, 4096] {
                    let mut decoder = decoder(name);
                    let mut decoded = Vec::new();
                    for part in coded.chunks(step) {
                        decoder.push(Bytes::copy_from_slice(part));
                        decoded.extend(drain(&mut decoder).unwrap());
                    }
                    decoder.end();
                    decoded.extend(drain(&mut decoder).unwrap());
                    assert!(decoded == text, "{name} {raw} {length} in steps of {step}");
                }
            }
        }
        assert_eq!(decode("X-GZip", &encode(("gzip", false), b"x")).unwrap(), b"x");
    }

    #[test]
    fn what_a_sender_flushed_comes_out_before_anything_else_comes_in() {
        for coding in CODINGS {
            let (mut encoder, mut decoder) = (Encoder::new(coding), decoder(coding.0));
            for text in [&b"data: 1\n\n"[..], b"x", &text(20_000), b"data: 2\n\n"] {
                decoder.push(encoder.piece(text).into());
                assert!(drain(&mut decoder).unwrap() == text, "{coding:?}");
            }
            decoder.push(encoder.finish().into());
            decoder.end();
            assert_eq!(drain(&mut decoder), Ok(vec![]), "{coding:?}");
        }
    }

    #[test]
    fn several_codings_are_undone_in_the_opposite_order_of_the_headers() {
        let [gzip, br, zstd] = ["gzip", "br", "zstd"].map(|name| (name, false));
        let coded = encode(zstd, &encode(br, &encode(gzip, &text(50_000))));
        let all = |values: &[&'static str]| Decoder::new(values.iter().map(|value| value.as_bytes()), FAR);
        for values in [&["gzip, br, zstd"][..], &["gzip,, identity ,br", "zstd"]] {
            for step in [1, 100, 100_000] {
                let mut decoder = all(values).unwrap().unwrap();
                let mut decoded = Vec::new();
                for part in coded.chunks(step) {
                    decoder.push(Bytes::copy_from_slice(part));
                    decoded.extend(drain(&mut decoder).unwrap());
                }
                decoder.end();
                decoded.extend(drain(&mut decoder).unwrap());
                assert!(decoded == text(50_000), "{values:?} in steps of {step}");
            }
        }
        assert!(all(&["identity", ""]).unwrap().is_none());
        for unknown in ["compress", "gzip, dcb", "gzip, gzip, gzip, gzip", "gzip;q=1"] {
            assert_eq!(all(&[unknown]).err(), Some(CodingError::Unknown), "{unknown}");
        }
    }

    #[test]
    fn concatenated_gzip_and_zstd_members_are_decoded_as_one_body() {
        for name in ["gzip", "zstd"] {
            let member = encode((name, false), b"one ");
            assert_eq!(decode(name, &member.repeat(3)).unwrap(), b"one one one ", "{name}");
            let cut = [&member[..], &member[..5]].concat();
            assert_eq!(decode(name, &cut), Err(CodingError::Truncated), "{name}");
            assert_eq!(decode(name, &[&member[..], b"garbage"].concat()), Err(CodingError::Corrupt));
        }
        for (name, raw) in CODINGS.into_iter().filter(|(name, _)| ["deflate", "br"].contains(name)) {
            let coded = [&encode((name, raw), b"text")[..], b"garbage"].concat();
            assert_eq!(decode(name, &coded).unwrap(), b"text", "what follows is ignored");
        }
    }

    #[test]
    fn truncated_or_corrupt_input_is_an_error_and_gives_no_further_output() {
        for (name, raw) in CODINGS {
            let coded = encode((name, raw), &text(30_000));
            for cut in [1, coded.len() / 2, coded.len() - 1] {
                assert!(decode(name, &coded[..cut]).is_err(), "{name} {cut}");
            }
            assert_eq!(decode(name, b"").unwrap(), b"", "nothing is nothing");
            let mut decoder = decoder(name);
            decoder.push(Bytes::from_static(b"\xff no coding at all \xff\xff\xff\xff\xff\xff\xff\xff\xff"));
            decoder.end();
            assert!(drain(&mut decoder).is_err(), "{name}");
            decoder.push(coded.into());
            assert_eq!(decoder.decode(), None, "{name}");
        }
        let mut checked = encode(("gzip", false), b"text");
        *checked.last_mut().unwrap() ^= 1;
        assert_eq!(decode("gzip", &checked), Err(CodingError::Corrupt));
    }

    #[test]
    fn a_bomb_comes_out_in_small_pieces_and_no_further_than_the_limit_between_codings() {
        for coding in CODINGS {
            let bomb = encode(coding, &vec![0; 4 << 20]);
            assert!(bomb.len() < 40_000, "{coding:?}: {}", bomb.len());
            let mut decoder = decoder(coding.0);
            decoder.push(bomb.into());
            for _ in 0..10 {
                assert!(decoder.decode().unwrap().unwrap().len() <= PIECE_BYTES);
                assert!(decoder.kept_bytes() < 200_000);
            }
        }
        // Empty members: nothing comes out of the last coding, however much goes in.
        let empty = encode(("gzip", false), b"").repeat(100_000);
        let coded = Bytes::from(encode(("gzip", false), &empty));
        for (limit, expected) in [(empty.len(), Ok(vec![])), (100_000, Err(CodingError::Corrupt))] {
            let mut twice = Decoder::new([&b"gzip, gzip"[..]], limit).unwrap().unwrap();
            twice.push(coded.clone());
            twice.end();
            assert_eq!(drain(&mut twice), expected, "{limit}");
        }
    }

    #[test]
    fn windows_that_clients_do_not_read_are_refused() {
        // The header of large-window brotli with a window of 1 GiB.
        assert_eq!(decode("br", &[0x11, 0x9e, 0x0b, 0x00]), Err(CodingError::Corrupt));
        // A frame of zstd with a window of 1 GiB.
        assert_eq!(decode("zstd", &[0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3, 1, 0, 0]), Err(CodingError::Corrupt));
    }
}
