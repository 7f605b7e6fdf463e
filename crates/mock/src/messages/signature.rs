//! The signature of a thinking block of the simulated upstream: what the block is bound to, with a keyed hash over it. The
//! upstream keeps nothing: a later request brings all that is compared.

use super::prefix::hash;

/// The beginning of every signature. It distinguishes an altered signature from one of another upstream.
const MARK: &str = "EqQBdemo";
/// The digits of one number.
const DIGITS: usize = 16;

/// What a thinking block is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThinkingSignature {
    /// The hash of the conversation before the block.
    pub prefix: u64,
    /// The hash of the block's text.
    pub text: u64,
    /// The tag of the last thinking block in the request that got the reply; 0 if it had none.
    pub previous: u64,
}

/// Which upstream made a signature that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureOrigin {
    /// Made by this upstream.
    Own(ThinkingSignature),
    /// Begins as this upstream's signatures do, but its hash is wrong.
    Altered,
    /// Made by another upstream.
    Foreign,
}

/// Where a thinking block is to be: all that its signature has beside the hash of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThinkingSigner {
    /// See [`ThinkingSignature::prefix`].
    pub prefix: u64,
    /// See [`ThinkingSignature::previous`].
    pub previous: u64,
}

impl ThinkingSigner {
    /// The member `signature` of a block with this text.
    pub(super) fn sign(self, text: &str) -> String {
        let Self { prefix, previous } = self;
        ThinkingSignature { prefix, text: hash([text]), previous }.write()
    }
}

impl ThinkingSignature {
    /// The hash over all of it, which also names the block.
    pub(super) fn tag(self) -> u64 {
        let numbers = [self.prefix, self.text, self.previous].map(|number| number.to_string());
        hash(numbers.iter().map(String::as_str).chain(["tag"]))
    }

    /// The text of the member `signature`.
    fn write(self) -> String {
        let numbers = [self.prefix, self.text, self.previous, self.tag()];
        let digits = numbers.map(|number| format!("{number:0DIGITS$x}"));
        format!("{MARK}{}", digits.concat())
    }
}

impl SignatureOrigin {
    /// Reads the text of a member `signature` or `data`.
    pub(super) fn read(text: &str) -> Self {
        let Some(digits) = text.strip_prefix(MARK) else { return Self::Foreign };
        let number = |index: usize| {
            let digits = digits.get(index * DIGITS..(index + 1) * DIGITS)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let numbers = || Some([number(0)?, number(1)?, number(2)?, number(3)?]);
        match numbers() {
            Some([prefix, text, previous, tag]) if digits.len() == 4 * DIGITS => {
                let signature = ThinkingSignature { prefix, text, previous };
                if signature.tag() == tag { Self::Own(signature) } else { Self::Altered }
            }
            _ => Self::Altered,
        }
    }
}
