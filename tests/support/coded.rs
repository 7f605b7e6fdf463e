//! An encoder of bodies in content codings, with flush points where a server would write. It only encodes; the program
//! under test decodes.

use async_compression::codecs::brotli::params::EncoderParams;
use async_compression::codecs::core::Level;
use async_compression::codecs::core::util::{PartialBuffer, WriteBuffer};
use async_compression::codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
};

/// Every coding: what `content-encoding` says, and whether `deflate` is sent raw.
pub const CODINGS: [(&str, bool); 5] =
    [("gzip", false), ("deflate", false), ("deflate", true), ("br", false), ("zstd", false)];

/// An encoder of one body.
pub struct Encoder(Box<dyn EncodeV2>);

impl Encoder {
    /// The encoder of one of [`CODINGS`].
    pub fn new((coding, raw): (&str, bool)) -> Self {
        let level = Level::Fastest;
        Self(match coding {
            "gzip" => Box::new(GzipEncoder::new(level.into())),
            "deflate" if raw => Box::new(DeflateEncoder::new(level.into())),
            "deflate" => Box::new(ZlibEncoder::new(level.into())),
            "br" => Box::new(BrotliEncoder::new(EncoderParams::default().quality(level))),
            "zstd" => Box::new(ZstdEncoder::new(1)),
            other => panic!("no coding is called {other}"),
        })
    }

    /// The next bytes, from which all of `text` can be decoded.
    pub fn piece(&mut self, text: &[u8]) -> Vec<u8> {
        let mut coded = self.write(text);
        self.end(&mut coded, |encoder, output| encoder.flush(output).unwrap());
        coded
    }

    /// The end of the body.
    pub fn finish(mut self) -> Vec<u8> {
        let mut coded = Vec::new();
        self.end(&mut coded, |encoder, output| encoder.finish(output).unwrap());
        coded
    }

    fn write(&mut self, text: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        let mut input = PartialBuffer::new(text);
        while !input.unwritten().is_empty() {
            let mut room = [0; 4096];
            let mut output = WriteBuffer::new_initialized(&mut room);
            self.0.encode(&mut input, &mut output).unwrap();
            coded.extend_from_slice(output.written());
        }
        coded
    }

    fn end(
        &mut self,
        coded: &mut Vec<u8>,
        mut step: impl FnMut(&mut dyn EncodeV2, &mut WriteBuffer<'_>) -> bool,
    ) {
        let mut is_done = false;
        while !is_done {
            let mut room = [0; 4096];
            let mut output = WriteBuffer::new_initialized(&mut room);
            is_done = step(&mut *self.0, &mut output);
            coded.extend_from_slice(output.written());
        }
    }
}

/// A whole body in one of [`CODINGS`].
pub fn encode(coding: (&str, bool), text: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding);
    let coded = encoder.write(text);
    [coded, encoder.finish()].concat()
}
