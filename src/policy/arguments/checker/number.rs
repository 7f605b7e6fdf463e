//! Numbers of JSON by their value, whatever form they are written in: `1` is `1.0`. Compares and divides exactly;
//! reads no text from outside.

use serde_json::Number;
use std::cmp::Ordering;

/// The powers of two between which every integer of JSON lies as we read it.
const BEYOND_U64: f64 = 18_446_744_073_709_551_616.0;
const LEAST_I64: f64 = -9_223_372_036_854_775_808.0;

/// The most decimal digits in the mantissa of a number that is not zero, with one to spare.
const MOST_DIGITS: i32 = 21;

/// Which of two numbers is greater.
pub fn compare(left: &Number, right: &Number) -> Ordering {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_to_float(left, float(right)),
        (None, Some(right)) => compare_to_float(right, float(left)).reverse(),
        (None, None) => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    }
}

/// Whether `number` has no fraction.
pub fn is_integer(number: &Number) -> bool {
    whole(number).is_some() || float(number).fract() == 0.0
}

/// Whether `number` divided by `divisor`, which is greater than zero, is an integer. Numbers with a fraction count
/// as the decimals that they are written as, so that 0.07 is a multiple of 0.01.
pub fn is_multiple(number: &Number, divisor: &Number) -> bool {
    if let (Some(number), Some(divisor)) = (whole(number), whole(divisor)) {
        return divisor != 0 && number % divisor == 0;
    }
    let (Some(number), Some(divisor)) = (Decimal::of(number), Decimal::of(divisor)) else { return false };
    if number.digits == 0 || divisor.digits == 0 {
        return number.digits == 0;
    }
    let shift = number.exponent - divisor.exponent;
    if shift < -MOST_DIGITS {
        return false;
    }
    if shift < 0 {
        // A divisor that is too large to be held is larger than the number.
        let divisor = 10_u128.pow(shift.unsigned_abs()).checked_mul(divisor.digits);
        return divisor.is_some_and(|divisor| number.digits % divisor == 0);
    }
    // Below 10^22, so no step overflows; at most some 650 of them.
    let rest = (0..shift).fold(number.digits % divisor.digits, |rest, _| rest * 10 % divisor.digits);
    rest == 0
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

fn compare_to_float(left: i128, right: f64) -> Ordering {
    if right >= BEYOND_U64 {
        return Ordering::Less;
    }
    if right < LEAST_I64 {
        return Ordering::Greater;
    }
    // Within the bounds above, so exact.
    let below = right.floor();
    left.cmp(&(below as i128)).then(if right > below { Ordering::Less } else { Ordering::Equal })
}

/// A number without its sign: `digits` times ten to the power of `exponent`.
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// The shortest decimal that reads as `number`: at most 20 digits.
    fn of(number: &Number) -> Option<Self> {
        let text = number.to_string();
        let text = text.trim_start_matches('-');
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let after = after.trim_end_matches('0');
        let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(after.len()).ok()?)?;
        // Floats are written with up to 16 zeros behind their digits.
        Some(Self { digits: format!("{before}{after}").parse().ok()?, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_str;

    fn number(text: &str) -> Number {
        from_str(text).unwrap()
    }

    #[test]
    fn numbers_compare_by_value_across_their_forms() {
        for (left, right, expected) in [
            ("1", "1.0", Ordering::Equal),
            ("-0.0", "0", Ordering::Equal),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("9223372036854775807", "9223372036854775808.0", Ordering::Less),
            ("18446744073709551615", "18446744073709551616.0", Ordering::Less),
            ("18446744073709551615", "-1", Ordering::Greater),
            ("-9223372036854775808", "-9223372036854775808.0", Ordering::Equal),
            ("-9223372036854775808", "-1e300", Ordering::Greater),
            ("0", "1e-320", Ordering::Less),
            ("-1", "-1.5", Ordering::Greater),
            ("-2", "-1.5", Ordering::Less),
            ("1.5", "1", Ordering::Greater),
        ] {
            assert_eq!(compare(&number(left), &number(right)), expected, "{left} {right}");
            assert_eq!(compare(&number(right), &number(left)), expected.reverse(), "{right} {left}");
        }
    }

    #[test]
    fn multiples_are_told_as_one_would_on_paper() {
        for (multiple, divisor, expected) in [
            ("7", "2", false),
            ("-8", "2", true),
            ("8.0", "2", true),
            ("0.07", "0.01", true),
            ("0.075", "0.01", false),
            ("19.99", "0.01", true),
            ("4.5", "1.5", true),
            ("3", "1.5", true),
            ("4", "1.5", false),
            ("0", "0.1", true),
            ("0.0", "1e300", true),
            ("1e300", "0.1", true),
            ("1e308", "123456789.123456789", false),
            ("1e-300", "1e300", false),
            ("1e300", "1e-300", true),
            ("18446744073709551615", "18446744073709551615", true),
            ("18446744073709551615", "0.5", true),
            ("18446744073709551615", "1e25", false),
            ("1.7976931348623157e308", "5e-324", true),
            ("5e-324", "1.7976931348623157e308", false),
            ("1e22", "7", false),
            ("7e22", "7", true),
        ] {
            assert_eq!(is_multiple(&number(multiple), &number(divisor)), expected, "{multiple} {divisor}");
        }
    }

    #[test]
    fn an_integer_has_no_fraction() {
        for (text, expected) in [("1", true), ("1.0", true), ("1e300", true), ("-0.0", true), ("1.5", false)]
        {
            assert_eq!(is_integer(&number(text)), expected, "{text}");
        }
    }
}
