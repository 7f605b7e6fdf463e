//! The lengths that a context overflow error names: the limit, and what was sent. Decides nothing; a wrong guess costs
//! a shorter request.

use super::super::error::UpstreamError;
use super::simple::SimpleText;

/// The least number that can be a length of a context.
const LEAST: u64 = 256;
/// Words before or after the number of a limit.
const LIMIT: &str = "max|maximum|limit|limited|window|capacity|allowed|allows|accepts|supports|only|available|most|\
    threshold|ceiling|cap|ctx";
/// Words before a number that is no length: `Error code: 400`.
const CODES: [&str; 5] = ["code", "status", "error", "http", "statuscode"];
/// Most words between such a word and the number.
const MOST_BETWEEN: usize = 4;
/// Words of what the model is to write.
const OUTPUT: &str = "completion|max tokens|max completion tokens|max output tokens|max new tokens|output";

/// The lengths in tokens that an error names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedLengths {
    pub limit: Option<u64>,
    /// What was sent, by the upstream's count.
    pub sent: Option<u64>,
    /// The error is about the sum with what the model is to write.
    pub counts_output: bool,
}

/// The lengths that the error names, from the first of its texts that names a limit.
#[must_use]
pub fn named_lengths(error: &UpstreamError) -> NamedLengths {
    let texts = error.messages.iter().take(super::MESSAGES);
    let mut read = texts.map(|text| lengths_of(text));
    read.find(|lengths| lengths.limit.is_some()).unwrap_or_default()
}

fn lengths_of(text: &str) -> NamedLengths {
    let simple = SimpleText::new(text);
    let words: Vec<&str> = simple.words().collect();
    let number = |word: &str| SimpleText::new(word).numbers().next().filter(|number| *number >= LEAST);
    let before = |at: usize| at.checked_sub(1).map_or("", |before| words[before]);
    let lengths = words.iter().enumerate().filter(|(at, _)| !CODES.contains(&before(*at)));
    let numbers: Vec<(usize, u64)> = lengths.filter_map(|(at, word)| Some((at, number(word)?))).collect();
    let longest = numbers.iter().map(|(_, number)| *number).max();
    let is_limit = |word: &str| LIMIT.split('|').any(|limit| limit == word);
    let is_named = |(at, found): &&(usize, u64)| {
        let from = words[..*at].iter().rposition(|word| number(word).is_some()).map_or(0, |other| other + 1);
        let near = &words[from.max(at.saturating_sub(MOST_BETWEEN))..*at];
        // "by 1,000 tokens" is an excess, and the longest of several numbers is what was sent.
        let is_sent = numbers.len() > 1 && Some(*found) == longest;
        before(*at) != "by" && !is_sent && near.iter().any(|word| is_limit(word))
    };
    let is_compared = |(at, _): &&(usize, u64)| {
        let is_less = |sign: usize| words.get(sign) == Some(&"<");
        // "4096 < 5120": the limit is before the sign; "must be < 4096", "5120 > 4096": after it.
        let is_before = is_less(at + 1) && words.get(at + 2).is_some_and(|word| number(word).is_some());
        let has_before = at.checked_sub(2).is_some_and(|before| number(words[before]).is_some());
        is_before || before(*at) == ">" || (before(*at) == "<" && !has_before)
    };
    let compared = numbers.iter().find(is_compared);
    let shortest = || numbers.iter().filter(|_| numbers.len() > 1).min_by_key(|(_, number)| *number);
    let limit =
        compared.or_else(|| numbers.iter().find(is_named)).or_else(shortest).map(|(_, number)| *number);
    // "178959 + 64000 > 200000": the input, what the model is to write, and the limit of both.
    let summed = || {
        let (at, limit) = compared.filter(|(at, _)| before(*at) == ">")?;
        let parts = words[..at - 1].iter().rev().map_while(|word| number(word));
        let sum = parts.fold(0, u64::saturating_add);
        (sum > *limit).then_some(sum)
    };
    let sent = longest.filter(|longest| limit.is_some_and(|limit| *longest > limit)).or_else(summed);
    NamedLengths { limit, sent, counts_output: simple.says(OUTPUT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal, the limit that it names, and the length that it names.
    type Named = (&'static str, Option<u64>, Option<u64>);

    const REFUSALS: [Named; 20] = [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 12577 tokens.",
            Some(8_192),
            Some(12_577),
        ),
        (
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion).",
            Some(16_384),
            Some(122_946),
        ),
        (
            "Please reduce the length of the messages or completion. Current length is 9001 while limit is 8192",
            Some(8_192),
            Some(9_001),
        ),
        ("prompt is too long: 200251 tokens > 200000 maximum", Some(200_000), Some(200_251)),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
            Some(200_000),
            Some(210_000),
        ),
        (
            "request (5120 tokens) exceeds the available context size (4096 tokens), try increasing it",
            Some(4_096),
            Some(5_120),
        ),
        (
            "the model is loaded with context length of only 4096 tokens, and the first 5030 tokens are kept",
            Some(4_096),
            Some(5_030),
        ),
        ("prompt too long; exceeded max context length by 1119046 tokens", None, None),
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            Some(1_048_575),
            Some(1_196_265),
        ),
        ("prompt token count of 131500 exceeds the limit of 128000", Some(128_000), Some(131_500)),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            Some(131_072),
            Some(537_812),
        ),
        (
            "The decoder prompt (length 40120) is longer than the maximum model length of 32768.",
            Some(32_768),
            Some(40_120),
        ),
        (
            "Input length 131393 exceeds the maximum allowed input length of 131040 tokens",
            Some(131_040),
            Some(131_393),
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens",
            Some(8_193),
            Some(9_000),
        ),
        ("Your request exceeded model token limit: 131072 (requested: 140310)", Some(131_072), Some(140_310)),
        ("the prompt exceeds the limit of 128000. Try using a shorter prompt", Some(128_000), None),
        ("Error code: 400 - the prompt exceeds the limit of 128000", Some(128_000), None),
        ("context 4096 < 5120 requested", Some(4_096), Some(5_120)),
        ("Input is too long for requested model.", None, None),
        ("context_length_exceeded", None, None),
    ];

    #[test]
    fn the_limit_and_what_was_sent_are_read_from_every_providers_words() {
        for (text, limit, sent) in REFUSALS {
            let lengths = lengths_of(text);
            assert_eq!((lengths.limit, lengths.sent), (limit, sent), "{text}");
        }
        assert!(lengths_of("you requested 9000 tokens (4000 in the completion) of 8192").counts_output);
    }
}
