//! A copy of an upstream's error without what looks like a secret, an address, an internal host, a file's path or a stack
//! trace, and bounded. For people who are not meant to know the upstream from within.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// Longest text that is kept.
const TEXT_BYTES: usize = 1024;
/// How much of a text is looked at.
const READ_BYTES: usize = 16 * 1024;
/// Most members, elements and texts that are kept.
const MOST_VALUES: usize = 64;
/// How deep values may nest.
const MOST_DEPTH: usize = 6;

/// A pattern, and what takes its place.
struct Rule {
    pattern: Regex,
    by: &'static str,
}

/// The order matters: what may be part of something longer, such as credentials in an address, comes first.
const RULES: [(&str, &str); 9] = [
    // Credentials in an address, after a word for one, by their form, and long words of letters and digits mixed.
    (r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/@]*:[^\s/@]*@", "[secret]@"),
    (
        r#"(?i)\b(bearer|basic|api[_ -]?key|access[_ -]?token|token|secret|password|passwd|authorization|key provided)(["']?\s*[:=]\s*["']?)((?:bearer|basic)\s+)?[A-Za-z0-9+/=_.*~-]{8,}"#,
        "$1$2[secret]",
    ),
    (
        r"\b(?:(?:sk|pk|rk|gsk|xai|hf|ghp|gho|glpat|org|proj|pplx|nvapi|fw|key)[-_][A-Za-z0-9_*-]*[A-Za-z0-9*]{8,}|(?:AKIA|ASIA|AIza)[A-Za-z0-9_-]{8,})",
        "[secret]",
    ),
    (r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,2}", "[secret]"),
    // E-mail addresses.
    (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", "[address]"),
    // Addresses of machines: IPv4, those of network cards, internal names, names without a dot but with a port.
    (r"(?:[a-z][a-z0-9+.-]*://)?\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d{1,5})?(?:/[^\s,;)]*)?", "[address]"),
    (r"\[?\b(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{0,4}\]?(?::\d{1,5})?", "[address]"),
    (
        r"(?i)(?:[a-z][a-z0-9+.-]*://)?(?:\b(?:[a-z0-9_-]+\.)+(?:local|internal|lan|corp|intra|intranet|private|home|svc|localdomain)\b(?::\d{1,5})?|\blocalhost\b(?::\d{1,5})?|\b[a-z][a-z0-9_-]*:(?:[1-9]\d{3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])\b)(?:/[^\s,;)]*)?",
        "[address]",
    ),
    (
        r"(?:[A-Za-z]:\\|/)(?:usr|home|opt|var|root|app|srv|Users|mnt|tmp|etc|workspace|data|code)[/\\][^\s,;:)'\x22]*",
        "[path]",
    ),
];

/// What follows a word for a credential without a sign between them: the credential itself, or simply the next word
/// of the sentence.
const NEXT_WORD: &str = r"(?i)\b((?:bearer|basic|api[_ -]?key|access[_ -]?token|token|secret|password|passwd|authorization|key provided)\s+)([A-Za-z0-9+/=_.*~-]{8,})";

/// What may be an address of IPv6, shortened or not, with its zone, its brackets and its port.
const IPV6: &str = r"\[?(?:[0-9A-Fa-f]{0,4}:){2,8}[0-9A-Fa-f]{0,4}(?:\.[0-9]{1,3}){0,3}(?:%[A-Za-z0-9_.-]+)?\]?(?::[0-9]{1,5}\b)?";

/// Where a stack trace begins.
const TRACE: &str = r#"(?m)Traceback \(most recent call last\)|^\s{2,}at \S.*:\d+|^\s*File "[^"]*", line \d+|\bgoroutine \d+ \[|stack backtrace:|\n\s+at [\w.$<>]+\("#;

/// Runs that may be keys.
const RUN: &str = r"[A-Za-z0-9+/]{20,}={0,2}";

struct Patterns {
    rules: Vec<Rule>,
    next_word: Regex,
    ipv6: Regex,
    trace: Regex,
    run: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let rule = |(pattern, by): &(&str, &'static str)| Some(Rule { pattern: Regex::new(pattern).ok()?, by });
    let [next_word, ipv6, trace, run] = [NEXT_WORD, IPV6, TRACE, RUN].map(|pattern| Regex::new(pattern).ok());
    let rules = RULES.iter().map(rule).collect::<Option<_>>()?;
    Some(Patterns { rules, next_word: next_word?, ipv6: ipv6?, trace: trace?, run: run? })
});

/// Names of members whose values are secrets or traces, whatever they look like.
const DROPPED: [&str; 12] = [
    "traceback",
    "stack",
    "stacktrace",
    "stack_trace",
    "trace",
    "api_key",
    "apikey",
    "authorization",
    "headers",
    "token",
    "password",
    "secret",
];

/// The copy of `value`.
pub fn sanitised(value: &Value) -> Value {
    let mut left = MOST_VALUES;
    copy(value, 0, &mut left)
}

fn copy(value: &Value, depth: usize, left: &mut usize) -> Value {
    if *left == 0 || depth > MOST_DEPTH {
        return "[left out]".into();
    }
    *left -= 1;
    match value {
        Value::String(text) => sanitised_text(text).into(),
        Value::Array(items) => items.iter().take(*left).map(|item| copy(item, depth + 1, left)).collect(),
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, value) in members.iter().take(*left) {
                let is_dropped = DROPPED.contains(&name.to_lowercase().as_str());
                let value = if is_dropped { "[left out]".into() } else { copy(value, depth + 1, left) };
                kept.insert(sanitised_text(name), value);
            }
            kept.into()
        }
        other => other.clone(),
    }
}

/// The copy of a text. If the patterns cannot be compiled, nothing of the text is kept.
pub fn sanitised_text(text: &str) -> String {
    let Some(Patterns { rules, next_word, ipv6, trace, run }) = &*PATTERNS else {
        return "[left out]".to_owned();
    };
    let mut text = text[..text.floor_char_boundary(READ_BYTES)].to_owned();
    if let Some(found) = trace.find(&text) {
        text.truncate(found.start());
        text = format!("{} [stack trace left out]", text.trim_end());
    }
    text = without_ipv6(&text, ipv6);
    text = next_word.replace_all(&text, next_word_or_secret).into_owned();
    for Rule { pattern, by } in rules {
        text = pattern.replace_all(&text, *by).into_owned();
    }
    text = run.replace_all(&text, |run: &Captures<'_>| mixed(&run[0])).into_owned();
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push_str(" [the rest is left out]");
    }
    text
}

/// A word with digits or signs is a credential; one of letters is a part of the sentence ("Basic authentication").
fn next_word_or_secret(found: &Captures<'_>) -> String {
    let is_secret = found[2].bytes().any(|byte| byte.is_ascii_digit() || b"*+/=~".contains(&byte));
    format!("{}{}", &found[1], if is_secret { "[secret]" } else { &found[2] })
}

/// `text` without IPv6 addresses. The standard parser decides which of the matches are addresses; the others are
/// times or paths.
fn without_ipv6(text: &str, pattern: &Regex) -> String {
    let (mut out, mut done) = (String::new(), 0);
    let is_of_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    for found in pattern.find_iter(text) {
        let goes_on = is_of_word(text[..found.start()].chars().next_back())
            || is_of_word(text[found.end()..].chars().next());
        if !goes_on && is_ipv6(found.as_str()) {
            out.push_str(&text[done..found.start()]);
            out.push_str("[address]");
            done = found.end();
        }
    }
    out + &text[done..]
}

fn is_ipv6(text: &str) -> bool {
    let address = text.trim_start_matches('[').split([']', '%']).next().unwrap_or_default();
    // Without a digit it is a path of names (`a::b`), or no address of a machine (`::`).
    address.parse::<Ipv6Addr>().is_ok() && address.bytes().any(|byte| byte.is_ascii_digit())
}

/// A long word is a key only if it mixes letters and digits.
fn mixed(run: &str) -> String {
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    let letters = run.bytes().filter(u8::is_ascii_alphabetic).count();
    if digits >= 2 && letters >= 2 { "[secret]".to_owned() } else { run.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn secrets_and_internal_names_are_removed_from_error_texts() {
        for (text, gone) in [
            ("Incorrect API key provided: sk-proj-abcDEF123456789_xyz.", "abcDEF123456789"),
            ("Incorrect API key provided: sk-****************************1234.", "1234"),
            ("invalid x-api-key gsk_9fKe82hdYwq71Lmn", "9fKe82"),
            ("Authorization: Bearer abcdefghij.klmnop", "abcdefghij"),
            ("bad token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJ"),
            ("password=hunter2hunter2", "hunter2"),
            ("redis://user:pa55word@cache:6379/0", "pa55word"),
            ("key AKIAIOSFODNN7EXAMPLE is not known", "IOSFODNN7"),
            ("id 3f1b9a7c2d4e5f60718293a4b5c6d7e8", "3f1b9a7c"),
            ("organization org-AbCdEf123456 has no access", "AbCdEf123456"),
            ("connect to 10.1.2.3:8000 refused", "10.1.2.3"),
            ("http://192.168.0.9:8080/v1/models failed", "192.168"),
            ("fe80:0:0:1::1 is away, and so is [2001:db8:0:0:1::2]:443", "db8"),
            ("dial tcp vllm-0.models.svc.cluster.local:8000", "vllm-0"),
            ("lookup gpu7.corp.internal failed", "gpu7"),
            ("http://llm-backend:8000/v1 timed out", "llm-backend"),
            ("localhost:11434 refused", "11434"),
            ("connect to [2001:db8::17]:443 refused", "db8"),
            ("host fe80::1%eth0 is away", "fe80"),
            ("dial ::ffff:192.0.2.7", "ffff"),
            ("at fd00:1::2.", "fd00"),
            ("https://[2001:db8::1]/v1", "db8"),
            ("vllm:65000 refused", "65000"),
            ("bearer 8f14e45fceea167a refused", "8f14"),
            ("key-abcdefgh12345 is wrong", "abcdefgh"),
            ("ask ops@example.com", "ops@"),
            ("open /home/alice/models/x.gguf: no such file", "alice"),
            (
                "boom\nTraceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\nKeyError: 'x'",
                "KeyError",
            ),
            ("boom\n    at Object.f (/app/x.js:3:4)\n    at g (/app/y.js:5:6)", "Object.f"),
            ("panic\n\ngoroutine 1 [running]:\nmain.main()", "main.main"),
            ("fail\n\tat com.acme.Gate.call(Gate.java:41)", "com.acme"),
        ] {
            let out = sanitised_text(text);
            assert!(!out.contains(gone), "{text} -> {out}");
        }
    }

    #[test]
    fn useful_details_stay_in_error_texts() {
        for text in [
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000. Please try again in 6s.",
            "You exceeded your current quota. See https://platform.openai.com/docs/guides/error-codes/api-errors.",
            "The model `claude-3-5-sonnet-20241022` does not exist",
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens.",
            "Error code: 400 at 2024-05-01T10:20:30Z",
            "model mistralai/Mixtral-8x7B-Instruct-v0.1 is overloaded",
            "Your organization must be verified to use the model `o3`. Keyboards and projections are fine.",
            "Basic authentication is not supported; use bearer authentication",
            "password authentication failed, token required_here, authorization required",
            "model llama3:70000 is not known",
            "std::vec::Vec a::b at 10:20:30, 3:4, https://[::]/",
        ] {
            assert_eq!(sanitised_text(text), text);
        }
    }

    #[test]
    fn members_that_hold_traces_and_credentials_are_left_out_and_everything_is_bounded() {
        let out =
            sanitised(&json!({"error": {"message": "x", "code": 5, "api_key": "abc", "Stack": ["f", "g"]}}));
        assert_eq!(out["error"]["code"], 5);
        assert_eq!(out["error"]["api_key"], "[left out]");
        assert_eq!(out["error"]["Stack"], "[left out]");
        let mut deep = json!("end");
        for _ in 0..100 {
            deep = json!([deep, "x".repeat(5_000)]);
        }
        assert!(sanitised(&deep).to_string().len() < 20_000);
        assert!(sanitised(&json!(vec!["y".repeat(2_000); 1_000])).to_string().len() < 100_000);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_none_grows_beyond_its_bound(text in any::<String>()) {
            prop_assert!(sanitised_text(&text.repeat(50)).len() < TEXT_BYTES + 64);
        }
    }
}
