//! Token usage and cost of a reply, from every recorded form of `usage`. Providers count cache reads and reasoning within
//! or beside the prompt and the completion: here they are always within.

use serde_json::Value;
use wire::body::{Fault, Kind, Scanner};

/// The most tokens of one reply that are plausible: a hundred times what the largest model takes (10 million), and few
/// enough that no counter overflows. A larger number is a fault of the upstream (2^64 - 1 from an unsigned -1), and
/// would spoil every sum for good.
pub const MOST_TOKENS: u64 = 1 << 30;
/// The highest cost of one reply that is plausible, in dollars: [`MOST_TOKENS`] of a dear model cost more, but no reply has
/// so many.
const MOST_DOLLARS: f64 = 100_000.0;

/// The tokens in one reply's `usage`, or the sum over several replies; 0 for numbers that are missing or implausible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All tokens of the prompt, those of the provider's cache included.
    pub prompt: u64,
    /// The part of the prompt that was read from the provider's cache; never more than the prompt.
    pub cached: u64,
    /// The part of the prompt that was written to the provider's cache, which some providers bill at a higher price.
    pub cache_written: u64,
    /// The part of `cache_written` that the cache keeps for an hour; Anthropic bills it at a price of its own.
    pub cache_written_hour: u64,
    /// All tokens of the completion, reasoning included.
    pub completion: u64,
    /// The part of the completion that was spent on reasoning; never more than the completion.
    pub reasoning: u64,
    /// What the provider says that the reply cost, in billionths of a dollar; 0 where it says nothing.
    pub cost: u64,
    /// A number was left out that is more than [`MOST_TOKENS`] or no count, or a cost that no reply has.
    pub implausible: bool,
    /// The prompt's number is one of those, so that an estimate has to count instead; and the completion's.
    pub unknown_prompt: bool,
    pub unknown_completion: bool,
}

impl Usage {
    /// The usage of a reply that reported none.
    pub fn unknown() -> Self {
        Self { unknown_prompt: true, unknown_completion: true, ..Self::default() }
    }

    /// All tokens that are billed.
    pub fn billed(&self) -> u64 {
        self.prompt + self.completion
    }

    /// Reads a `usage` object from JSON text. What cannot be read counts as 0.
    pub fn parse(text: &[u8]) -> Self {
        Counts::parse(text).usage()
    }

    /// Reads a `usage` that was picked out of a tree. Anything may be missing, null or of another type.
    pub fn read(usage: &Value) -> Self {
        Self::parse(usage.to_string().as_bytes())
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            cache_written_hour: self.cache_written_hour.saturating_add(other.cache_written_hour),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            cost: self.cost.saturating_add(other.cost),
            implausible: self.implausible || other.implausible,
            unknown_prompt: self.unknown_prompt || other.unknown_prompt,
            unknown_completion: self.unknown_completion || other.unknown_completion,
        }
    }
}

/// The object that contains a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// `usage` itself.
    Usage,
    /// An element of its `iterations` (Anthropic).
    Iteration,
    /// The `cache_creation` of either (Anthropic).
    CacheCreation,
    /// Its `prompt_tokens_details`.
    Prompt,
    /// Its `completion_tokens_details`.
    Completion,
    /// Its `cost`, where that is an object (Perplexity).
    Cost,
    /// Its `cost_details` (OpenRouter).
    CostDetails,
    Other,
}

impl Within {
    /// The object that is the member `key` of `usage`.
    fn member(key: &[u8]) -> Self {
        if key == b"cache_creation" {
            Self::CacheCreation
        } else if matches!(key, b"prompt_tokens_details" | b"input_tokens_details") {
            Self::Prompt
        } else if matches!(key, b"completion_tokens_details" | b"output_tokens_details") {
            Self::Completion
        } else if key == b"cost" {
            Self::Cost
        } else if key == b"cost_details" {
            Self::CostDetails
        } else {
            Self::Other
        }
    }
}

/// The values of a `usage` object for each number, by member name, in the order of precedence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    prompt: [u64; 2],
    cached: [u64; 6],
    cache_written: [u64; 3],
    completion: [u64; 2],
    reasoning: [u64; 3],
    /// Tokens that Anthropic wrote to its cache for five minutes, and for an hour.
    written_for: [u64; 2],
    iterations: [u64; 5],
    /// `total_tokens`, which shows whether the parts are counted within or beside.
    total: [u64; 1],
    costs: Costs,
}

impl Counts {
    /// Reads a `usage` object from JSON text.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut counts = Self::default();
        // A scanner has passed it before, so that only its numbers can be wrong.
        let _ = counts.read(&mut Scanner::new(text));
        counts
    }

    /// These counts, where `later` has no other than 0: counts of one reply only grow, and some servers end their stream
    /// with zeros.
    #[must_use]
    pub(super) fn with_later(mut self, later: &Self) -> Self {
        for (known, later) in self.lists_mut().into_iter().zip(later.lists()) {
            for (known, later) in known.iter_mut().zip(later) {
                *known = if *later > 0 { *later } else { *known };
            }
        }
        self.costs.take(&later.costs);
        self
    }

    /// Whether it has no number but 0.
    pub(super) fn is_zero(&self) -> bool {
        self.lists().into_iter().flatten().all(|count| *count == 0) && self.costs.is_zero()
    }

    fn lists(&self) -> [&[u64]; 8] {
        [
            &self.prompt,
            &self.cached,
            &self.cache_written,
            &self.completion,
            &self.reasoning,
            &self.written_for,
            &self.iterations,
            &self.total,
        ]
    }

    fn lists_mut(&mut self) -> [&mut [u64]; 8] {
        [
            &mut self.prompt,
            &mut self.cached,
            &mut self.cache_written,
            &mut self.completion,
            &mut self.reasoning,
            &mut self.written_for,
            &mut self.iterations,
            &mut self.total,
        ]
    }

    /// Reads the object at the position of `scanner`.
    fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        if let Some(bytes) = self.read_plain(&scanner.text()[scanner.at()..]) {
            scanner.pass(bytes);
            return Ok(());
        }
        *self = Self::default();
        self.members(scanner, Within::Usage)
    }

    /// Reads the object at the start of `text` and returns its length, if it has the usual form: numbers, strings, nulls and
    /// objects of them, without white space or escapes. Most replies end in ten members of that kind, which take the
    /// scanner five times as long.
    fn read_plain(&mut self, text: &[u8]) -> Option<usize> {
        let mut within = Within::Usage;
        let mut rest = text.strip_prefix(b"{")?;
        loop {
            let key;
            (key, rest) = split_key(rest)?;
            if is_about_cost(key) {
                return None;
            }
            match rest.first()? {
                b'0'..=b'9' => {
                    let count;
                    (count, rest) = split_count(rest);
                    if let Some(known) = self.place(within, key) {
                        *known = count;
                    }
                }
                b'"' => {
                    let word;
                    (word, rest) = split_string(rest)?;
                    if let Some(known) = self.place(within, key) {
                        *known = count_in(word);
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
                Kind::Object if within == Within::Iteration && key == b"cache_creation" => {
                    self.members(scanner, Within::CacheCreation)?;
                }
                Kind::Array if within == Within::Usage && key == b"iterations" => {
                    self.read_iterations(scanner)?;
                }
                Kind::Number | Kind::String => {
                    let number = scanner.skip()?.of(scanner.text());
                    if let Some(known) = self.place(within, key) {
                        *known = count_in(unquoted(number));
                    } else {
                        self.costs.note(within, key, number);
                    }
                }
                _ => {
                    let value = scanner.skip()?.of(scanner.text());
                    self.costs.note(within, key, value);
                }
            }
        }
        Ok(())
    }

    /// Reads Anthropic's `iterations`, each with counts like those of `usage`.
    fn read_iterations(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        self.iterations = [0; 5];
        scanner.array()?;
        while scanner.element()? {
            if scanner.peek()? != Kind::Object {
                scanner.skip()?;
                continue;
            }
            let mut counts = Self::default();
            counts.members(scanner, Within::Iteration)?;
            let one = counts.usage();
            let parts = [one.prompt, one.cached, one.cache_written, one.cache_written_hour, one.completion];
            for (sum, part) in self.iterations.iter_mut().zip(parts) {
                *sum = if one.implausible { u64::MAX } else { sum.saturating_add(part) };
            }
        }
        Ok(())
    }

    /// The slot of the number `key`.
    #[inline(always)]
    fn place(&mut self, within: Within, key: &[u8]) -> Option<&mut u64> {
        let within = if within == Within::Iteration { Within::Usage } else { within };
        // Compared as a whole slice: a byte-string pattern in a `match` is compared byte by byte.
        let is = |name: &[u8]| key == name;
        Some(match within {
            Within::Usage if is(b"prompt_tokens") => &mut self.prompt[0],
            Within::Usage if is(b"completion_tokens") => &mut self.completion[0],
            Within::Usage if is(b"input_tokens") => &mut self.prompt[1],
            Within::Usage if is(b"output_tokens") => &mut self.completion[1],
            Within::Usage if is(b"reasoning_tokens") => &mut self.reasoning[1],
            Within::Usage if is(b"total_tokens") => &mut self.total[0],
            // DeepSeek; Mistral; Hugging Face and Together; Anthropic.
            Within::Usage if is(b"prompt_cache_hit_tokens") => &mut self.cached[1],
            Within::Usage if is(b"num_cached_tokens") => &mut self.cached[2],
            Within::Usage if is(b"cached_tokens") => &mut self.cached[3],
            Within::Usage if is(b"cache_read_input_tokens") => &mut self.cached[4],
            // Anthropic, and Vercel.
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
            // Anthropic.
            Within::Completion if is(b"thinking_tokens") => &mut self.reasoning[2],
            Within::CacheCreation if is(b"ephemeral_5m_input_tokens") => &mut self.written_for[0],
            Within::CacheCreation if is(b"ephemeral_1h_input_tokens") => &mut self.written_for[1],
            _ => return None,
        })
    }

    /// For each number the first value above 0: some providers write several names and fill only one.
    pub(super) fn usage(&self) -> Usage {
        let is_plausible = |count: &u64| *count <= MOST_TOKENS;
        let plausible = |count| if is_plausible(&count) { count } else { 0 };
        let first = |counts: &[u64]| {
            counts.iter().copied().find(|count| *count > 0 && is_plausible(count)).unwrap_or(0)
        };
        let lists = self.lists();
        let [prompt, cached, cache_written, completion, reasoning, _, _, total] = lists.map(first);
        let [written_5m, written_1h] = self.written_for.map(plausible);
        let cache_written = if cache_written > 0 { cache_written } else { written_5m + written_1h };
        let (cost, is_cost_plausible) = self.costs.nanodollars();
        // The total is in no sum.
        let are_plausible = lists[..7].iter().copied().flatten().all(is_plausible);
        let (unknown_prompt, unknown_completion) = self.unknown(prompt, completion);
        let implausible = !are_plausible || !is_cost_plausible;
        let parts = Parts { prompt, cached, cache_written, completion, reasoning, total };
        let prompt = prompt + self.cache_beside(&parts);
        let is_reasoning_beside = parts.is_reasoning_beside(prompt);
        let completion = if is_reasoning_beside { completion + reasoning } else { completion };
        // Gemini counts its thoughts in the total alone.
        let unnamed = total.saturating_sub(prompt + completion);
        let completion = if prompt > 0 && are_plausible { completion + unnamed } else { completion };
        // Anthropic's own sums do not contain all iterations: those of a compaction or of another model are billed too.
        let [all_prompts, all_cached, all_written, all_hours, all_completions] =
            self.iterations.map(plausible);
        let (prompt, completion) = (prompt.max(all_prompts), completion.max(all_completions));
        let cached = cached.max(all_cached).min(prompt);
        let cache_written = cache_written.max(all_written).min(prompt - cached);
        Usage {
            prompt,
            cached,
            cache_written,
            cache_written_hour: written_1h.max(all_hours).min(cache_written),
            completion,
            reasoning: reasoning.min(completion),
            cost,
            implausible,
            unknown_prompt,
            unknown_completion,
        }
    }

    /// Whether the number of the prompt, and that of the completion, was left out, where `prompt` and `completion` are those
    /// that count. A fault in one leaves no trust in a 0 of the other, since no reply has such a number.
    fn unknown(&self, prompt: u64, completion: u64) -> (bool, bool) {
        let has_fault = |counts: &[u64]| counts.iter().any(|count| *count > MOST_TOKENS);
        // By Anthropic's names a prompt is without the tokens of the cache.
        let is_part = self.prompt[0] == 0
            && [&self.cached[4..5], &self.cache_written, &self.written_for].into_iter().any(has_fault);
        let no_prompt = (prompt == 0 && has_fault(&self.prompt)) || is_part;
        let no_completion = completion == 0 && has_fault(&self.completion);
        let any = no_prompt || no_completion;
        (no_prompt || (any && prompt == 0), no_completion || (any && completion == 0))
    }

    /// How many tokens of the provider's cache are no part of the prompt as it came: all of them where a provider counts as
    /// Anthropic does.
    fn cache_beside(&self, parts: &Parts) -> u64 {
        let Parts { prompt, cached, cache_written, .. } = *parts;
        let both = cached + cache_written;
        let settled = [0, both, cached, cache_written].into_iter().find(|beside| {
            let prompt = prompt + beside;
            parts.is_total(prompt) || parts.is_total(prompt + parts.reasoning)
        });
        // Where no total settles it: by Anthropic's own names, or because a part is more than the whole.
        let has_names = self.prompt[0] == 0
            && (self.cached[4] > 0
                || self.cache_written[1] > 0
                || self.written_for.iter().any(|count| *count > 0));
        let is_beside = cached.max(cache_written) > prompt || (parts.total == 0 && has_names);
        settled.unwrap_or(if is_beside { both } else { 0 })
    }
}

/// The numbers of a `usage` as they came, each 0 where it is missing.
struct Parts {
    prompt: u64,
    cached: u64,
    cache_written: u64,
    completion: u64,
    reasoning: u64,
    total: u64,
}

impl Parts {
    /// Whether the total is the completion and so many other tokens.
    fn is_total(&self, others: u64) -> bool {
        self.total > 0 && self.total == self.completion + others
    }

    /// Whether reasoning is no part of the completion, as xAI counts; `prompt`: the whole prompt.
    fn is_reasoning_beside(&self, prompt: u64) -> bool {
        let is_more = self.reasoning > self.completion;
        !self.is_total(prompt) && (self.is_total(prompt + self.reasoning) || is_more)
    }
}

/// What the provider says that the reply cost, in dollars, by member; 0 where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// In the order of precedence.
    charged: [f64; 5],
    /// What the model's provider charges apart (OpenRouter with a key of the caller's own).
    inference: f64,
    is_own_key: bool,
}

/// Whether a member of `usage` may be about the cost.
#[inline(always)]
fn is_about_cost(key: &[u8]) -> bool {
    key.starts_with(b"cost") || key.ends_with(b"_cost") || key == b"is_byok"
}

impl Costs {
    /// Takes the value of a member, if it is a cost.
    fn note(&mut self, within: Within, key: &[u8], value: &[u8]) {
        let charged = match (within, key) {
            (Within::Usage, b"cost") => 0,
            (Within::Cost | Within::Usage, b"total_cost") => 1,
            (Within::Usage, b"estimated_cost") => 2,
            (Within::Usage, b"cost_usd") => 3,
            (Within::Usage, b"cost_in_usd_ticks") => 4,
            (Within::CostDetails, b"upstream_inference_cost") => {
                return self.inference = dollars_in(value);
            }
            (Within::Usage, b"is_byok") => return self.is_own_key = value == b"true",
            _ => return,
        };
        // xAI: ten billion ticks are a dollar.
        let unit = if charged == 4 { 1e-10 } else { 1.0 };
        self.charged[charged] = dollars_in(value) * unit;
    }

    fn is_zero(&self) -> bool {
        self.inference <= 0.0 && self.charged.iter().all(|cost| *cost <= 0.0)
    }

    /// Takes over what `later` says, but for zeros.
    fn take(&mut self, later: &Self) {
        for (known, later) in self.charged.iter_mut().zip(later.charged) {
            *known = if later > 0.0 { later } else { *known };
        }
        self.inference = if later.inference > 0.0 { later.inference } else { self.inference };
        self.is_own_key |= later.is_own_key;
    }

    /// The cost in billionths of a dollar, and whether every number was plausible.
    fn nanodollars(&self) -> (u64, bool) {
        let is_plausible = |dollars: f64| (0.0..=MOST_DOLLARS).contains(&dollars);
        let mut all = self.charged.into_iter().chain([self.inference]);
        let first = self.charged.into_iter().find(|cost| *cost > 0.0 && is_plausible(*cost)).unwrap_or(0.0);
        let inference = if is_plausible(self.inference) { self.inference } else { 0.0 };
        let is_apart = self.is_own_key || first <= 0.0;
        let dollars = if is_apart { first + inference } else { first };
        ((dollars * 1e9).round() as u64, all.all(is_plausible))
    }
}

/// The dollars in a JSON number, or in a string that is one; 0 for anything else.
fn dollars_in(value: &[u8]) -> f64 {
    let number = std::str::from_utf8(unquoted(value)).ok().and_then(|number| number.parse().ok());
    number.filter(|number: &f64| !number.is_nan()).unwrap_or(0.0)
}

/// What is between the quotes of a JSON string; other values as they are.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(value)
}

/// The key at the start of `text`, of at most 31 bytes, and what follows its colon.
#[inline(always)]
fn split_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (key, rest) = text.split_at(memchr::memchr2(b'"', b'\\', &text[..text.len().min(32)])?);
    Some((key, rest.strip_prefix(b"\":")?))
}

/// What is between the quotes of the string at the start of `text`, and what follows it; `None` where it has escapes.
fn split_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (inside, rest) = text.split_at(memchr::memchr2(b'"', b'\\', text)?);
    Some((inside, rest.strip_prefix(b"\"")?))
}

/// The count at the start of `text` and what follows it.
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
    (count_in(&text[..end]), &text[end..])
}

/// A count of tokens. What is none (a negative number, a word) and what is larger than any is the largest, which is
/// implausible. Gateways in languages without integers write 12.0; some write numbers as strings.
fn count_in(number: &[u8]) -> u64 {
    let number = std::str::from_utf8(number).unwrap_or("?").trim();
    if number.is_empty() {
        return 0;
    }
    // A float beyond all counts becomes the largest.
    let float = || number.parse().ok().filter(|count: &f64| *count >= 0.0).map(|count| count as u64);
    number.parse().ok().or_else(float).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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
            ("another type", json!({"prompt_tokens_details": "x", "cached_tokens": [12]}), 0),
            ("a number as a string", json!({"cached_tokens": "12"}), 12),
            ("more than the prompt, so beside it", json!({"cached_tokens": 99_999}), 99_999),
            (
                "more than the prompt, in its total",
                json!({"cached_tokens": 99_999, "total_tokens": 1_000}),
                1_000,
            ),
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
    fn the_total_settles_whether_cache_and_reasoning_are_counted_within_or_beside() {
        let details = |reasoning: u64| json!({"reasoning_tokens": reasoning});
        for (provider, usage, expected) in [
            (
                "Anthropic, through a gateway",
                json!({"prompt_tokens": 12, "completion_tokens": 300, "total_tokens": 40_812,
                    "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 500}),
                (40_512, 40_000, 500, 300, 0),
            ),
            (
                "the same, within",
                json!({"prompt_tokens": 40_512, "completion_tokens": 300, "total_tokens": 40_812,
                    "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 500}),
                (40_512, 40_000, 500, 300, 0),
            ),
            (
                "Anthropic's own names without a total",
                json!({"input_tokens": 2_000, "output_tokens": 5, "cache_read_input_tokens": 1_000}),
                (3_000, 1_000, 0, 5, 0),
            ),
            (
                "OpenAI's names without a total",
                json!({"input_tokens": 2_000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 1_000}}),
                (2_000, 1_000, 0, 5, 0),
            ),
            (
                "only what was read is beside",
                json!({"prompt_tokens": 700, "completion_tokens": 3, "total_tokens": 803,
                    "cache_read_input_tokens": 100, "cache_creation_input_tokens": 600}),
                (800, 100, 600, 3, 0),
            ),
            (
                "xAI",
                json!({"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 100,
                    "completion_tokens_details": details(28)}),
                (66, 0, 0, 34, 28),
            ),
            (
                "xAI, less reasoning than completion",
                json!({"prompt_tokens": 10, "completion_tokens": 60, "total_tokens": 98,
                    "completion_tokens_details": details(28)}),
                (10, 0, 0, 88, 28),
            ),
            (
                "OpenAI",
                json!({"prompt_tokens": 10, "completion_tokens": 60, "total_tokens": 70,
                    "completion_tokens_details": details(28)}),
                (10, 0, 0, 60, 28),
            ),
            (
                "more reasoning than completion, no total",
                json!({"prompt_tokens": 10, "completion_tokens": 6, "completion_tokens_details": details(28)}),
                (10, 0, 0, 34, 28),
            ),
            (
                "both beside",
                json!({"prompt_tokens": 10, "completion_tokens": 60, "total_tokens": 198,
                    "completion_tokens_details": details(28), "cache_read_input_tokens": 100}),
                (110, 100, 0, 88, 28),
            ),
            (
                "Gemini, thoughts in the total alone",
                json!({"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 100}),
                (66, 0, 0, 34, 0),
            ),
            (
                "a total that is too small",
                json!({"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 6}),
                (66, 0, 0, 6, 0),
            ),
        ] {
            let Usage { prompt, cached, cache_written, completion, reasoning, .. } = Usage::read(&usage);
            assert_eq!((prompt, cached, cache_written, completion, reasoning), expected, "{provider}");
        }
    }

    #[test]
    fn anthropics_counts_are_those_of_all_parts_of_the_prompt_and_of_all_iterations() {
        let plain = Usage { prompt: 45, cached: 5, cache_written: 30, completion: 9, ..Usage::default() };
        for (reported, usage, expected) in [
            (
                "a cache that lasts five minutes and one that lasts an hour",
                json!({"input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 5, "output_tokens": 9,
                    "cache_creation": {"ephemeral_5m_input_tokens": 12, "ephemeral_1h_input_tokens": 18}}),
                Usage { cache_written_hour: 18, ..plain },
            ),
            (
                "the parts of what was written alone",
                json!({"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 9,
                    "cache_creation": {"ephemeral_5m_input_tokens": 12, "ephemeral_1h_input_tokens": 18}}),
                Usage { cache_written_hour: 18, ..plain },
            ),
            (
                "nothing that is not cached",
                json!({"input_tokens": 0, "cache_read_input_tokens": 45, "output_tokens": 9,
                    "output_tokens_details": {"thinking_tokens": 4}}),
                Usage { cached: 45, cache_written: 0, reasoning: 4, ..plain },
            ),
            (
                "no more for the hour than in all",
                json!({"input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 5, "output_tokens": 9,
                    "cache_creation": {"ephemeral_1h_input_tokens": 99}}),
                Usage { cache_written_hour: 30, ..plain },
            ),
            (
                "an advisor beside two messages, and a kind that is not known",
                json!({"input_tokens": 30, "output_tokens": 4, "iterations": [
                    {"type": "message", "input_tokens": 10, "output_tokens": 3, "iterations": [{"input_tokens": 1000}]},
                    {"type": "advisor_message", "input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 5,
                        "cache_creation": {"ephemeral_1h_input_tokens": 2}},
                    {"type": "message", "input_tokens": 20, "output_tokens": 1}, 5, null, [],
                    {"type": "new", "input_tokens": 1, "output_tokens": 3}]}),
                Usage { cached: 5, cache_written: 2, cache_written_hour: 2, ..plain },
            ),
            (
                "iterations that say less than the whole",
                json!({"input_tokens": 45, "output_tokens": 9, "iterations": [{"input_tokens": 1, "output_tokens": 1}]}),
                Usage { cached: 0, cache_written: 0, ..plain },
            ),
            (
                "an iteration that none has",
                json!({"input_tokens": 45, "output_tokens": 9, "iterations": [{"input_tokens": -1}, {"input_tokens": 9}]}),
                Usage { cached: 0, cache_written: 0, implausible: true, ..plain },
            ),
        ] {
            assert_eq!(Usage::read(&usage), expected, "{reported}");
        }
    }

    #[test]
    fn the_providers_own_cost_is_found_under_every_recorded_spelling() {
        for (provider, usage, nanodollars, implausible) in [
            (
                "OpenRouter",
                json!({"cost": 0.0015, "is_byok": false, "cost_details": {"upstream_inference_cost": 0.0015}}),
                1_500_000,
                false,
            ),
            (
                "OpenRouter, a key of one's own",
                json!({"cost": 0.0001, "is_byok": true, "cost_details": {"upstream_inference_cost": 0.0015}}),
                1_600_000,
                false,
            ),
            (
                "nothing charged but by the provider",
                json!({"cost": 0, "cost_details": {"upstream_inference_cost": 0.0015}}),
                1_500_000,
                false,
            ),
            (
                "Perplexity",
                json!({"cost": {"input_tokens_cost": 0.001, "output_tokens_cost": 0.0, "request_cost": 0.005, "total_cost": 0.006}}),
                6_000_000,
                false,
            ),
            ("xAI", json!({"cost_in_usd_ticks": 3_196_500}), 319_650, false),
            ("DeepInfra", json!({"estimated_cost": 2.5e-7}), 250, false),
            ("in a string", json!({"cost": "0.0000879"}), 87_900, false),
            ("none", json!({"cost": null, "cost_details": null}), 0, false),
            ("zero", json!({"cost": 0.0}), 0, false),
            ("negative", json!({"cost": -3.5}), 0, true),
            ("more than any reply costs", json!({"cost": 1e12, "estimated_cost": 0.5}), 500_000_000, true),
            ("no number", json!({"cost": "NaN", "total_cost": [1], "cost_usd": true}), 0, false),
        ] {
            let found = Usage::read(&usage);
            assert_eq!((found.cost, found.implausible), (nanodollars, implausible), "{provider}");
        }
    }

    #[test]
    fn zeros_do_not_replace_the_numbers_before_them() {
        let counts = |usage: serde_json::Value| Counts::parse(usage.to_string().as_bytes());
        let known =
            counts(json!({"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21, "cost": 0.5}));
        let grown = known
            .with_later(&counts(json!({"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 25})));
        let ended = grown.with_later(&counts(json!({"prompt_tokens": 0, "completion_tokens": 0, "cost": 0})));
        let expected = Usage { prompt: 20, completion: 5, cost: 500_000_000, ..Usage::default() };
        assert_eq!((grown.usage(), ended.usage()), (expected, expected));
        assert!(!known.is_zero() && counts(json!({"prompt_tokens": 0})).is_zero());
    }

    #[test]
    fn invalid_values_count_as_zero() {
        let floats = json!({"prompt_tokens": 66.0, "completion_tokens": false, "cost": {"total": 0.1}});
        assert_eq!(Usage::read(&floats), Usage { prompt: 66, ..Usage::default() });
        for nothing in [json!(null), json!("x"), json!([]), json!({"prompt_tokens": null})] {
            assert_eq!(Usage::read(&nothing), Usage::default(), "{nothing}");
        }
    }

    #[test]
    fn implausible_token_counts_are_ignored_and_flagged() {
        for (usage, prompt, completion, [unknown_prompt, unknown_completion]) in [
            (r#"{"prompt_tokens":18446744073709551615,"completion_tokens":7}"#, 0, 7, [true, false]),
            (r#"{"prompt_tokens":99999999999999999999,"completion_tokens":7}"#, 0, 7, [true, false]),
            (r#"{"prompt_tokens":9e14,"completion_tokens":7}"#, 0, 7, [true, false]),
            (
                r#"{"prompt_tokens":4294967295,"completion_tokens":0,"total_tokens":4294967295}"#,
                0,
                0,
                [true, true],
            ),
            (r#"{"prompt_tokens":-1,"completion_tokens":7.0}"#, 0, 7, [true, false]),
            (r#"{"prompt_tokens":"-1","completion_tokens":"7"}"#, 0, 7, [true, false]),
            (r#"{"prompt_tokens":"NaN","completion_tokens":7}"#, 0, 7, [true, false]),
            (r#"{"prompt_tokens":5,"completion_tokens":"many"}"#, 5, 0, [false, true]),
            (r#"{"prompt_tokens":1e999,"completion_tokens":-0.5}"#, 0, 0, [true, true]),
            (r#"{"prompt_tokens":1073741824,"completion_tokens":1073741825}"#, 1 << 30, 0, [false, true]),
            (r#"{"prompt_tokens":18446744073709551615,"input_tokens":5}"#, 5, 0, [false, false]),
            (r#"{"input_tokens":5,"output_tokens":7,"cache_read_input_tokens":1e15}"#, 5, 7, [true, false]),
        ] {
            let expected = Usage {
                prompt,
                completion,
                implausible: true,
                unknown_prompt,
                unknown_completion,
                ..Usage::default()
            };
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
                Counts::default().read(&mut scanner).map(|()| whole[scanner.at()..].to_owned())
            });
            assert_eq!(ends[0], ends[1], "{text}");
        }
        let expected = Usage { prompt: 19, cached: 7, completion: 10, reasoning: 3, ..Usage::default() };
        assert_eq!(Usage::parse(openai.as_bytes()), expected);
    }

    /// A usage object of the Messages API, or an iteration of one, with any numbers.
    fn any_usage() -> impl Strategy<Value = Value> {
        let count = prop_oneof![0..2_000_u64, any::<u64>()];
        prop::collection::vec(count, 7).prop_map(|counts| {
            json!({"input_tokens": counts[0], "cache_read_input_tokens": counts[1], "cache_creation_input_tokens": counts[2],
                "output_tokens": counts[3], "output_tokens_details": {"thinking_tokens": counts[4]},
                "cache_creation": {"ephemeral_5m_input_tokens": counts[5], "ephemeral_1h_input_tokens": counts[6]}})
        })
    }

    proptest! {
        #[test]
        fn every_part_is_at_most_its_whole_and_no_sum_is_beyond_all_bounds(
            usage in any_usage(),
            iterations in prop::collection::vec(any_usage(), 0..4),
        ) {
            let mut usage = usage;
            usage["iterations"] = iterations.into();
            let Usage { prompt, cached, cache_written, cache_written_hour, completion, reasoning, .. } = Usage::read(&usage);
            prop_assert!(cached + cache_written <= prompt && cache_written_hour <= cache_written && reasoning <= completion);
            prop_assert!(prompt <= 5 * MOST_TOKENS && completion <= 2 * MOST_TOKENS, "{prompt} {completion}");
        }
    }

    #[test]
    fn a_usage_of_the_usual_form_reads_the_same_as_any_other() {
        for text in [
            r#"{"input_tokens":19,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":0},"output_tokens":10,"service_tier":"standard"}"#,
            r#"{"input_tokens":"19","output_tokens":" 10 ","inference_geo":"","server_tool_use":null}"#,
            r#"{"input_tokens":"x","output_tokens":"12.0","cache_creation":{"ephemeral_5m_input_tokens":"7"}}"#,
            r#"{"input_tokens":4,"service_tier":"a\"}","output_tokens":9}"#,
            r#"{"input_tokens":4,"service_tier":"a\\","output_tokens":9}"#,
            r#"{"input_tokens":4,"service_tier":"a"#,
        ] {
            let spaced = text.replacen('{', "{ ", 1);
            assert_eq!(Usage::parse(text.as_bytes()), Usage::parse(spaced.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_truncated_usage_object_counts_as_far_as_it_was_read() {
        let broken = br#"{"prompt_tokens": 66, "completion_tokens": "#;
        assert_eq!(Usage::parse(broken), Usage { prompt: 66, ..Usage::default() });
    }
}
