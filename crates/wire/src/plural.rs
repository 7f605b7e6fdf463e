//! Counted nouns: the form of an English noun after a number. For every text that a person or a model reads; writes no
//! texts of its own.

use std::fmt::Display;

/// `count` and its noun, given in the singular: "1 call", "2 calls", "0 replies".
pub fn counted<N: Copy + Display + TryInto<u64>>(count: N, noun: &str) -> String {
    format!("{count} {}", noun_after(count, noun))
}

/// The noun alone, where the number is written in another way or elsewhere.
pub fn noun_after(count: impl TryInto<u64>, noun: &str) -> String {
    if is_one(count) {
        return noun.to_owned();
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    }
}

/// A number with a comma before every third digit from the right.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let lead = digits.len() % 3;
    let mut out = digits[..lead].to_owned();
    for start in (lead..digits.len()).step_by(3) {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&digits[start..start + 3]);
    }
    out
}

/// The things of a list from one number to another: "line 3", "lines 3 to 7".
pub fn range(first: usize, last: usize, noun: &str) -> String {
    if first == last {
        format!("{noun} {first}")
    } else {
        format!("{} {first} to {last}", noun_after(2, noun))
    }
}

/// Whether what is counted is in the singular.
pub fn is_one(count: impl TryInto<u64>) -> bool {
    count.try_into().is_ok_and(|count| count == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_one_takes_the_singular() {
        for (count, noun, expected) in [
            (1, "call", "1 call"),
            (0, "call", "0 calls"),
            (2, "more call", "2 more calls"),
            (1, "reply", "1 reply"),
            (11, "reply", "11 replies"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
        assert_eq!(counted(usize::MAX, "byte"), format!("{} bytes", usize::MAX));
        assert_eq!(counted(-1, "step"), "-1 steps");
        assert_eq!((range(3, 3, "line"), range(3, 7, "line")), ("line 3".into(), "lines 3 to 7".into()));
        assert_eq!(
            (noun_after(1_u64, "token"), noun_after(1_000_u64, "token")),
            ("token".into(), "tokens".into())
        );
    }
}
