//! Token usage of a reply, from every recorded form of `usage`. Maps each provider's member names; adds nothing up, and
//! ignores `total_tokens`, which is no sum at several providers (xAI, Gemini).

use crate::wire::body::{Fault, Kind, Scanner};
use serde_json::Value;

/// The most tokens of one reply that are plausible: a hundred times what the largest model takes (10 million), and few
/// enough that no counter overflows. A larger number is a fault of the upstream (2^64 - 1 from an unsigned -1), and
/// would spoil every sum for good.
pub const MOST_TOKENS: u64 = 1 << 30;

/// The tokens in one reply's `usage`; 0 for numbers that are missing or implausible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: u64,
    /// The part of the prompt that was read from the provider's cache; never more than the prompt.
    pub cached: u64,
    /// The part of the prompt that was written to the provider's cache, which some providers bill at a higher price.
    pub cache_written: u64,
    pub completion: u64,
    /// The part of the completion that was spent on reasoning (at xAI in addition to it).
    pub reasoning: u64,
    /// A number was left out that is more than [`MOST_TOKENS`].
    pub implausible: bool,
}

impl Usage {
    /// All tokens that are billed. xAI counts reasoning beside the completion; more of it than of the completion shows
    /// that.
    pub fn billed(&self) -> u64 {
        self.prompt + self.completion + if self.is_reasoning_beside() { self.reasoning } else { 0 }
    }

    /// Whether reasoning is not part of the completion.
    pub fn is_reasoning_beside(&self) -> bool {
        self.reasoning > self.completion
    }

    /// Reads a `usage` object from JSON text. What cannot be read counts as 0.
    pub fn parse(text: &[u8]) -> Self {
        let mut counts = Counts::default();
        // A scanner has passed it before, so that only its numbers can be wrong.
        let _ = counts.read(&mut Scanner::new(text));
        counts.usage()
    }

    /// Reads and passes the `usage` object at the position of `scanner`.
    ///
    /// # Errors
    /// A [`Fault`] as from [`Scanner::skip`].
    pub(super) fn pass(scanner: &mut Scanner<'_>) -> Result<Self, Fault> {
        let mut counts = Counts::default();
        counts.read(scanner)?;
        Ok(counts.usage())
    }

    /// Reads a `usage` that was added up or picked out of a tree. Anything may be missing, null or of another type.
    pub fn read(usage: &Value) -> Self {
        Self::parse(usage.to_string().as_bytes())
    }
}

/// The object that contains a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// `usage` itself.
    Usage,
    /// Its `prompt_tokens_details`.
    Prompt,
    /// Its `completion_tokens_details`.
    Completion,
    Other,
}

impl Within {
    /// The object that is the member `key` of `usage`.
    fn member(key: &[u8]) -> Self {
        if matches!(key, b"prompt_tokens_details" | b"input_tokens_details") {
            Self::Prompt
        } else if matches!(key, b"completion_tokens_details" | b"output_tokens_details") {
            Self::Completion
        } else {
            Self::Other
        }
    }
}

/// The values of a `usage` object for each number, by member name, in the order of precedence.
#[derive(Default)]
struct Counts {
    prompt: [u64; 2],
    cached: [u64; 6],
    cache_written: [u64; 3],
    completion: [u64; 2],
    reasoning: [u64; 2],
}

impl Counts {
    /// Reads the object at the position of `scanner`.
    fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        if let Some(bytes) = self.read_plain(&scanner.text()[scanner.at()..]) {
            scanner.pass(bytes);
            return Ok(());
        }
        *self = Self::default();
        self.members(scanner, Within::Usage)
    }

    /// Reads the object at the start of `text` and returns its length, if it has the usual form: numbers, nulls and
    /// objects of them, without white space or escapes. Most replies end in ten members of that kind, which take the
    /// scanner five times as long.
    fn read_plain(&mut self, text: &[u8]) -> Option<usize> {
        let mut within = Within::Usage;
        let mut rest = text.strip_prefix(b"{")?;
        loop {
            let key;
            (key, rest) = split_key(rest)?;
            match rest.first()? {
                b'0'..=b'9' => {
                    let count;
                    (count, rest) = split_count(rest);
                    if let Some(known) = self.place(within, key) {
                        *known = count;
                    }
                }
                b'{' if within == Within::Usage => {
                    (within, rest) = (Within::member(key), &rest[1..]);
                    continue;
                }
                _ => rest = rest.strip_prefix(b"null")?,
            }
            while let Some(after) = rest.strip_prefix(b"}") {
                rest = after;
                if within == Within::Usage {
                    return Some(text.len() - rest.len());
                }
                within = Within::Usage;
            }
            rest = rest.strip_prefix(b",")?;
        }
    }

    /// Reads the members of an object.
    fn members(&mut self, scanner: &mut Scanner<'_>, within: Within) -> Result<(), Fault> {
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let key = key.raw(scanner.text());
            match scanner.peek()? {
                Kind::Object if within == Within::Usage => self.members(scanner, Within::member(key))?,
                Kind::Number => {
                    let number = scanner.skip()?;
                    if let Some(known) = self.place(within, key) {
                        *known = count_in(number.of(scanner.text())).unwrap_or(0);
                    }
                }
                _ => drop(scanner.skip()?),
            }
        }
        Ok(())
    }

    /// The slot of the number `key`.
    #[inline(always)]
    fn place(&mut self, within: Within, key: &[u8]) -> Option<&mut u64> {
        // Compared as a whole slice: a byte-string pattern in a `match` is compared byte by byte.
        let is = |name: &[u8]| key == name;
        Some(match within {
            Within::Usage if is(b"prompt_tokens") => &mut self.prompt[0],
            Within::Usage if is(b"completion_tokens") => &mut self.completion[0],
            Within::Usage if is(b"input_tokens") => &mut self.prompt[1],
            Within::Usage if is(b"output_tokens") => &mut self.completion[1],
            Within::Usage if is(b"reasoning_tokens") => &mut self.reasoning[1],
            // DeepSeek; Mistral; Hugging Face and Together; Anthropic through gateways.
            Within::Usage if is(b"prompt_cache_hit_tokens") => &mut self.cached[1],
            Within::Usage if is(b"num_cached_tokens") => &mut self.cached[2],
            Within::Usage if is(b"cached_tokens") => &mut self.cached[3],
            Within::Usage if is(b"cache_read_input_tokens") => &mut self.cached[4],
            // Vercel and Anthropic through gateways.
            Within::Usage if is(b"cache_creation_input_tokens") => &mut self.cache_written[1],
            Within::Usage => return None,
            _ => return self.place_of_detail(within, key),
        })
    }

    /// As [`Self::place`], within one of the inner objects.
    #[inline(always)]
    fn place_of_detail(&mut self, within: Within, key: &[u8]) -> Option<&mut u64> {
        let is = |name: &[u8]| key == name;
        Some(match within {
            // OpenAI; the two others Anthropic through gateways.
            Within::Prompt if is(b"cached_tokens") => &mut self.cached[0],
            Within::Prompt if is(b"cache_write_tokens") => &mut self.cache_written[0],
            Within::Prompt if is(b"cache_read_tokens") => &mut self.cached[5],
            Within::Prompt if is(b"cache_creation_tokens") => &mut self.cache_written[2],
            Within::Completion if is(b"reasoning_tokens") => &mut self.reasoning[0],
            _ => return None,
        })
    }

    /// For each number the first value above 0: some providers write several names and fill only one.
    fn usage(&self) -> Usage {
        let is_plausible = |count: &u64| *count <= MOST_TOKENS;
        let first = |counts: &[u64]| {
            counts.iter().copied().find(|count| *count > 0 && is_plausible(count)).unwrap_or(0)
        };
        let lists = [&self.prompt[..], &self.cached, &self.cache_written, &self.completion, &self.reasoning];
        let implausible = !lists.into_iter().flatten().all(is_plausible);
        let prompt = first(&self.prompt);
        Usage {
            prompt,
            cached: first(&self.cached).min(prompt),
            cache_written: first(&self.cache_written).min(prompt),
            completion: first(&self.completion),
            reasoning: first(&self.reasoning),
            implausible,
        }
    }
}

/// The key at the start of `text`, of at most 31 bytes, and what follows its colon.
#[inline(always)]
fn split_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (key, rest) = text.split_at(memchr::memchr2(b'"', b'\\', &text[..text.len().min(32)])?);
    Some((key, rest.strip_prefix(b"\":")?))
}

/// The count at the start of `text`, 0 for a number that is none, and what follows it.
#[inline(always)]
fn split_count(text: &[u8]) -> (u64, &[u8]) {
    let (mut count, mut digits) = (0, 0);
    // A number with more digits may be too large.
    while let Some(digit @ b'0'..=b'9') = text.get(digits).filter(|_| digits < 19) {
        count = count * 10 + u64::from(digit - b'0');
        digits += 1;
    }
    let is_more = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let (_, rest) = text.split_at(digits);
    if !rest.first().is_some_and(is_more) {
        return (count, rest);
    }
    let end = text.iter().position(|byte| !is_more(byte)).unwrap_or(text.len());
    (count_in(&text[..end]).unwrap_or(0), &text[end..])
}

/// A count of tokens; `None` for what is no count, and the largest count for what is larger. Gateways in languages
/// without integers write 12.0.
fn count_in(number: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(number).ok()?;
    // A float beyond all counts becomes the largest.
    let float = || number.parse().ok().filter(|count: &f64| *count >= 0.0).map(|count| count as u64);
    number.parse().ok().or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cached_part_is_found_under_every_recorded_spelling() {
        for (provider, usage, cached) in [
            ("OpenAI", json!({"prompt_tokens_details": {"cached_tokens": 384}}), 384),
            ("DeepSeek", json!({"prompt_cache_hit_tokens": 384, "prompt_cache_miss_tokens": 67}), 384),
            ("Mistral", json!({"num_cached_tokens": 43}), 43),
            ("Hugging Face", json!({"cached_tokens": 2}), 2),
            ("a gateway to Anthropic", json!({"cache_read_input_tokens": 9}), 9),
            ("both", json!({"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 7}), 7),
            ("none", json!({"prompt_tokens_details": null}), 0),
            ("another type", json!({"prompt_tokens_details": "x", "cached_tokens": "12"}), 0),
            ("more than the prompt", json!({"cached_tokens": 99_999}), 1_000),
        ] {
            let mut usage = usage;
            usage["prompt_tokens"] = json!(1_000);
            assert_eq!(Usage::read(&usage).cached, cached, "{provider}");
        }
    }

    #[test]
    fn tokens_written_to_a_cache_are_reported_by_openai_and_vercel() {
        let openai = json!({"prompt_tokens": 4020, "prompt_tokens_details": {"cache_write_tokens": 4012}});
        let vercel = json!({"prompt_tokens": 4020, "cache_creation_input_tokens": 4012});
        for usage in [openai, vercel] {
            assert_eq!(Usage::read(&usage).cache_written, 4012);
        }
    }

    #[test]
    fn totals_are_ignored_and_invalid_values_count_as_zero() {
        let xai = json!({"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 100,
            "completion_tokens_details": {"reasoning_tokens": 28}});
        let expected = Usage { prompt: 66, completion: 6, reasoning: 28, ..Usage::default() };
        assert_eq!(Usage::read(&xai), expected);
        let floats = json!({"prompt_tokens": 66.0, "completion_tokens": -1, "cost": {"total": 0.1}});
        assert_eq!(Usage::read(&floats), Usage { prompt: 66, ..Usage::default() });
        for nothing in [json!(null), json!("x"), json!([]), json!({"prompt_tokens": null})] {
            assert_eq!(Usage::read(&nothing), Usage::default(), "{nothing}");
        }
    }

    #[test]
    fn implausible_token_counts_are_ignored_and_flagged() {
        for (usage, prompt, completion, implausible) in [
            (r#"{"prompt_tokens":18446744073709551615,"completion_tokens":7}"#, 0, 7, true),
            (r#"{"prompt_tokens":99999999999999999999,"completion_tokens":7}"#, 0, 7, true),
            (r#"{"prompt_tokens":9e14,"completion_tokens":7}"#, 0, 7, true),
            (r#"{"prompt_tokens":-1,"completion_tokens":7.0}"#, 0, 7, false),
            (r#"{"prompt_tokens":1e999,"completion_tokens":-0.5}"#, 0, 0, true),
            (r#"{"prompt_tokens":1073741824,"completion_tokens":1073741825}"#, 1 << 30, 0, true),
            (r#"{"prompt_tokens":18446744073709551615,"input_tokens":5}"#, 5, 0, true),
        ] {
            let expected = Usage { prompt, completion, implausible, ..Usage::default() };
            assert_eq!(Usage::parse(usage.as_bytes()), expected, "{usage}");
        }
    }

    #[test]
    fn an_object_without_spaces_counts_as_the_same_with_spaces() {
        let openai = r#"{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":7,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}}"#;
        for text in [
            openai,
            r#"{"prompt_tokens":66.0,"completion_tokens":007,"cost":1.5e-7}"#,
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":99999999999999999999}"#,
            r#"{"prompt_tokens":1-2,"completion_tokens":3}"#,
            r#"{"prompt_tokens":5,"prompt_tokens":null,"output_tokens":"9","completion_tokens":6}"#,
            r#"{"prompt_tokens":5,"a_key_as_long_as_no_provider_has_one":{"a":{"prompt_tokens":4}},"completion_tokens":6}"#,
            r#"{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":2,"more":{"cached_tokens":3}}}"#,
            r#"{"prompt_tokens":5,"prompt_tokens_details":{},"completion_tokens":true}"#,
            r#"{"prompt_tokens":5,"input\u005ftokens":6,"completion_tokens":}"#,
            "{}",
        ] {
            let spaced = text.replace(':', ": ");
            assert_eq!(Usage::parse(text.as_bytes()), Usage::parse(spaced.as_bytes()), "{text}");
            // After it the scanner goes on at the same position.
            let ends = [text, &spaced].map(|usage| {
                let whole = format!("[{usage},1]");
                let mut scanner = Scanner::new(whole.as_bytes());
                scanner.array().and_then(|()| scanner.element()).unwrap();
                Usage::pass(&mut scanner).map(|_| whole[scanner.at()..].to_owned())
            });
            assert_eq!(ends[0], ends[1], "{text}");
        }
        let expected = Usage { prompt: 19, cached: 7, completion: 10, reasoning: 3, ..Usage::default() };
        assert_eq!(Usage::parse(openai.as_bytes()), expected);
    }

    #[test]
    fn a_truncated_usage_object_counts_as_far_as_it_was_read() {
        let broken = br#"{"prompt_tokens": 66, "completion_tokens": "#;
        assert_eq!(Usage::parse(broken), Usage { prompt: 66, ..Usage::default() });
    }
}
