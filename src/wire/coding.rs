//! HTTP content codings (RFC 9110, section 8.4): a streaming decoder of gzip, deflate, brotli and zstd. Bytes go in, decoded
//! bytes come out in pieces of bounded size, so that a decompression bomb costs its reader no memory. It does no I/O, and is
//! for bodies of either direction.

use bytes::{Buf as _, Bytes, BytesMut};
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::zstd::params::DParameter;
use compression_codecs::{BrotliDecoder, DecodeV2, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};

/// Most that one step gives out.
const PIECE_BYTES: usize = 8 * 1024;
/// Most codings of one body. Servers use one.
const MOST_CODINGS: usize = 3;
/// 8 MiB, the largest window that RFC 9659 lets a sender use.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Why a body cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// There is no decoder for a coding, or there are too many of them.
    #[error("the content coding is unknown")]
    Unknown,
    /// The bytes are not in the coding.
    #[error("the compressed bytes are corrupt")]
    Corrupt,
    /// The bytes end before the coding does.
    #[error("the compressed bytes are cut off")]
    Truncated,
    /// More comes out than is allowed.
    #[error("the decoded bytes are too many")]
    TooLong,
}

/// A content coding that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

type Codec = Box<dyn DecodeV2 + Send + Sync>;

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

    fn codec(self, first: u8) -> Codec {
        match self {
            Self::Gzip => Box::new(GzipDecoder::new()),
            // Some servers send raw deflate where the RFC asks for zlib. The first byte tells them apart: no encoder begins
            // raw deflate with the low bits of a zlib header.
            Self::Deflate if first & 0x0f == 8 => Box::new(ZlibDecoder::new()),
            Self::Deflate => Box::new(DeflateDecoder::new()),
            Self::Brotli => Box::new(BrotliDecoder::new()),
            Self::Zstd => {
                Box::new(ZstdDecoder::new_with_params(&[DParameter::window_log_max(ZSTD_WINDOW_LOG)]))
            }
        }
    }

    /// Whether what follows the end of the coded bytes is more of them: gzip and zstd may be written in several members.
    /// Anything else there is ignored, as HTTP clients do.
    fn goes_on(self, next: u8) -> bool {
        match self {
            Self::Gzip => next == 0x1f,
            Self::Zstd => true,
            Self::Deflate | Self::Brotli => false,
        }
    }

    /// The most that its decoder keeps of what it has decoded.
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

/// A streaming decoder of one body. After an error it takes and gives nothing more.
pub struct Decoder {
    /// In the order in which the bytes pass them.
    stages: Vec<Stage>,
    has_failed: bool,
}

impl Decoder {
    /// The decoder of a body with these values of `content-encoding`, in the order of the headers; `None` where nothing is
    /// to be decoded.
    ///
    /// # Errors
    /// [`CodingError::Unknown`].
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Self>, CodingError> {
        let names = values.into_iter().flat_map(|value| value.split(|byte| *byte == b','));
        let names = names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
        let mut stages = Vec::new();
        for name in names {
            stages.extend(Coding::named(name)?.map(Stage::new));
            if stages.len() > MOST_CODINGS {
                return Err(CodingError::Unknown);
            }
        }
        // What was applied last is undone first.
        stages.reverse();
        Ok((!stages.is_empty()).then_some(Self { stages, has_failed: false }))
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: Bytes) {
        let Some(first) = self.stages.first_mut().filter(|_| !self.has_failed) else { return };
        first.input = match first.input.is_empty() {
            true => bytes,
            false => [&first.input[..], &bytes].concat().into(),
        };
    }

    /// Decodes a bounded amount of what was pushed: at most 8 KiB come out of a step, and a step may bring nothing. `None`
    /// where all that can be decoded has come out.
    pub fn step(&mut self) -> Option<Result<Bytes, CodingError>> {
        if self.has_failed {
            return None;
        }
        let step = step(&mut self.stages);
        self.has_failed = matches!(step, Some(Err(_)));
        step
    }

    /// The body has ended.
    ///
    /// # Errors
    /// [`CodingError::Truncated`] where the coded bytes have not.
    pub fn finish(&self) -> Result<(), CodingError> {
        match () {
            () if self.has_failed => Err(CodingError::Corrupt),
            () if self.stages.iter().any(|stage| stage.phase == Phase::Within) => Err(CodingError::Truncated),
            () => Ok(()),
        }
    }

    /// About how much memory is taken.
    pub fn kept_bytes(&self) -> usize {
        let kept = |stage: &Stage| stage.input.len() + stage.produced.min(stage.coding.window_bytes());
        self.stages.iter().map(kept).sum()
    }

    /// A whole body decoded.
    ///
    /// # Errors
    /// Any [`CodingError`]; more than `limit` bytes between two codings are too long as well.
    pub fn decode(mut self, body: Bytes, limit: usize) -> Result<Bytes, CodingError> {
        self.push(body);
        let mut decoded = BytesMut::new();
        while let Some(piece) = self.step() {
            if self.stages.iter().any(|stage| stage.produced > limit) {
                return Err(CodingError::TooLong);
            }
            decoded.extend_from_slice(&piece?);
        }
        self.finish().map(|()| decoded.freeze())
    }
}

/// One step of the last of `stages`; where it wants for input, of the one before it.
fn step(stages: &mut [Stage]) -> Option<Result<Bytes, CodingError>> {
    let (last, before) = stages.split_last_mut()?;
    if last.can_work() {
        return Some(last.work());
    }
    let input = step(before)?;
    Some(input.map(|input| {
        last.input = input;
        Bytes::new()
    }))
}

/// One coding of a body.
struct Stage {
    coding: Coding,
    /// Made when the first byte is here.
    codec: Option<Codec>,
    input: Bytes,
    phase: Phase,
    /// The last step filled its piece, so that there may be more without further input.
    is_full: bool,
    produced: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has come.
    Fresh,
    Within,
    /// At the end of the coded bytes, or of one member of them.
    Ended,
}

impl Stage {
    fn new(coding: Coding) -> Self {
        let input = Bytes::new();
        Self { coding, codec: None, input, phase: Phase::Fresh, is_full: false, produced: 0 }
    }

    fn can_work(&self) -> bool {
        self.is_full || !self.input.is_empty()
    }

    /// Calls the codec once.
    fn work(&mut self) -> Result<Bytes, CodingError> {
        let first = self.input.first().copied();
        if let Some(next) = first.filter(|_| self.phase == Phase::Ended)
            && !self.coding.goes_on(next)
        {
            self.input.clear();
            return Ok(Bytes::new());
        }
        let coding = self.coding;
        let codec = self.codec.get_or_insert_with(|| coding.codec(first.unwrap_or_default()));
        if self.phase == Phase::Ended {
            codec.reinit().map_err(|_| CodingError::Corrupt)?;
        }
        let mut room = [0; PIECE_BYTES];
        let mut output = WriteBuffer::new_initialized(&mut room);
        let mut input = PartialBuffer::new(&self.input[..]);
        let done = codec.decode(&mut input, &mut output);
        let (taken, given) = (input.written_len(), output.written_len());
        let piece = Bytes::copy_from_slice(output.written());
        let is_stuck = first.is_some() && taken == 0 && given == 0;
        match done {
            Ok(done) if done || !is_stuck => {
                self.phase = if done { Phase::Ended } else { Phase::Within };
                self.is_full = !done && given == PIECE_BYTES;
            }
            // Codecs do not like to be asked when they have nothing: the piece before was full by chance.
            Err(_) if first.is_none() => self.is_full = false,
            _ => return Err(CodingError::Corrupt),
        }
        self.input.advance(taken);
        self.produced += given;
        Ok(piece)
    }
}

#[cfg(test)]
#[path = "../../tests/support/coded.rs"]
mod coded;

#[cfg(test)]
mod tests {
    use super::coded::{CODINGS, Encoder, encode};
    use super::*;

    fn decoder(coding: &str) -> Decoder {
        Decoder::new([coding.as_bytes()]).unwrap().unwrap()
    }

    fn decode(coding: &str, coded: &[u8], limit: usize) -> Result<Bytes, CodingError> {
        decoder(coding).decode(Bytes::copy_from_slice(coded), limit)
    }

    /// All that comes out of what was pushed.
    fn drain(decoder: &mut Decoder) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = decoder.step() {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            all.extend_from_slice(&piece);
        }
        all
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
                assert!(decode(name, &coded, length).unwrap() == text, "{name} {raw} {length}");
                for step in [1, 7, 4096] {
                    let mut decoder = decoder(name);
                    let mut decoded = Vec::new();
                    for part in coded.chunks(step) {
                        decoder.push(Bytes::copy_from_slice(part));
                        decoded.extend(drain(&mut decoder));
                    }
                    assert!(decoded == text, "{name} {raw} {length} in steps of {step}");
                    assert_eq!(decoder.finish(), Ok(()));
                }
            }
        }
        assert_eq!(decode("X-GZip", &encode(("gzip", false), b"x"), 1).unwrap(), "x");
    }

    #[test]
    fn what_a_sender_flushed_comes_out_before_anything_else_comes_in() {
        for coding in CODINGS {
            let (mut encoder, mut decoder) = (Encoder::new(coding), decoder(coding.0));
            for text in [&b"data: 1\n\n"[..], b"x", &text(20_000), b"data: 2\n\n"] {
                decoder.push(encoder.piece(text).into());
                assert!(drain(&mut decoder) == text, "{coding:?}");
                assert_eq!(decoder.finish(), Err(CodingError::Truncated));
            }
            decoder.push(encoder.finish().into());
            assert_eq!((drain(&mut decoder), decoder.finish()), (vec![], Ok(())), "{coding:?}");
        }
    }

    #[test]
    fn several_codings_are_undone_in_the_opposite_order_of_the_headers() {
        let [gzip, br, zstd] = ["gzip", "br", "zstd"].map(|name| (name, false));
        let coded = encode(zstd, &encode(br, &encode(gzip, &text(50_000))));
        let all = |values: &[&'static str]| Decoder::new(values.iter().map(|value| value.as_bytes()));
        for values in [&["gzip, br, zstd"][..], &["gzip,, identity ,br", "zstd"]] {
            let decoder = all(values).unwrap().unwrap();
            assert!(decoder.decode(coded.clone().into(), 100_000).unwrap() == text(50_000));
        }
        assert!(all(&["identity", ""]).unwrap().is_none());
        for unknown in ["compress", "gzip, dcb", "gzip, gzip, gzip, gzip", "gzip;q=1"] {
            assert_eq!(all(&[unknown]).err(), Some(CodingError::Unknown), "{unknown}");
        }
    }

    #[test]
    fn members_behind_one_another_are_one_body_and_what_else_is_there_is_ignored() {
        for name in ["gzip", "zstd"] {
            let member = encode((name, false), b"one ");
            assert_eq!(decode(name, &member.repeat(3), 100).unwrap(), "one one one ", "{name}");
            let cut = [&member[..], &member[..5]].concat();
            assert_eq!(decode(name, &cut, 100), Err(CodingError::Truncated), "{name}");
        }
        let coded = |coding| encode(coding, b"text");
        for coding in CODINGS.into_iter().filter(|(name, _)| *name != "zstd") {
            for behind in [&b"\0\0"[..], b"garbage"] {
                assert_eq!(decode(coding.0, &[&coded(coding)[..], behind].concat(), 100).unwrap(), "text");
            }
        }
        let damaged = [&coded(("gzip", false))[..], b"\x1f\x8b\x09"].concat();
        assert_eq!(decode("gzip", &damaged, 100), Err(CodingError::Corrupt));
        let garbage = [&coded(("zstd", false))[..], b"garbage"].concat();
        assert_eq!(decode("zstd", &garbage, 100), Err(CodingError::Corrupt));
    }

    #[test]
    fn what_is_cut_or_damaged_is_an_error_and_nothing_follows_it() {
        for (name, raw) in CODINGS {
            let coded = encode((name, raw), &text(30_000));
            for cut in [1, coded.len() / 2, coded.len() - 1] {
                assert_eq!(decode(name, &coded[..cut], 1 << 20), Err(CodingError::Truncated), "{name}");
            }
            assert_eq!(decode(name, b"", 0).unwrap(), "", "nothing is nothing");
            let mut decoder = decoder(name);
            decoder.push(Bytes::from_static(b"\xff no coding at all \xff\xff\xff\xff\xff\xff\xff\xff\xff"));
            while let Some(step) = decoder.step() {
                assert!(step.is_err() || !decoder.has_failed);
            }
            decoder.push(coded.into());
            assert_eq!((decoder.step(), decoder.finish().is_err()), (None, true), "{name}");
        }
        let mut checked = encode(("gzip", false), b"text");
        *checked.last_mut().unwrap() ^= 1;
        assert_eq!(decode("gzip", &checked, 100), Err(CodingError::Corrupt));
    }

    #[test]
    fn a_bomb_comes_out_in_small_pieces_and_no_further_than_the_limit() {
        for coding in CODINGS {
            let bomb = encode(coding, &vec![0; 4 << 20]);
            assert!(bomb.len() < 40_000, "{coding:?}: {}", bomb.len());
            assert_eq!(decode(coding.0, &bomb, 100_000), Err(CodingError::TooLong), "{coding:?}");
            let mut decoder = decoder(coding.0);
            decoder.push(bomb.into());
            for _ in 0..10 {
                assert!(decoder.step().unwrap().unwrap().len() <= PIECE_BYTES);
                assert!(decoder.kept_bytes() < 200_000);
            }
        }
        let within = encode(("gzip", false), &encode(("gzip", false), &vec![0; 4 << 20]));
        let twice = Decoder::new([&b"gzip, gzip"[..]]).unwrap().unwrap();
        assert_eq!(twice.decode(within.into(), 1 << 20), Err(CodingError::TooLong));
    }
}
