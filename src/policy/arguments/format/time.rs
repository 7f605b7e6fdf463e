//! Dates, times and durations as RFC 3339 writes them.

/// Two or four digits and no more.
fn number(text: &str, digits: usize) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// `full-date`.
pub fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut part = |digits| parts.next().and_then(|part| number(part, digits));
    let (Some(year), Some(month), Some(day)) = (part(4), part(2), part(2)) else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// `full-time`, with its offset.
pub fn is_time(text: &str) -> bool {
    let (clock, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let Some((at, sign)) = text.char_indices().rfind(|(_, c)| matches!(c, '+' | '-')) else {
                return false;
            };
            let Some((hours, minutes)) = text[at + 1..].split_once(':') else { return false };
            let (Some(hours), Some(minutes)) = (number(hours, 2), number(minutes, 2)) else { return false };
            if hours > 23 || minutes > 59 {
                return false;
            }
            let offset = (hours * 60 + minutes).cast_signed();
            (&text[..at], if sign == '-' { -offset } else { offset })
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.splitn(3, ':').map(|part| number(part, 2));
    let (Some(Some(hour)), Some(Some(minute)), Some(Some(second))) =
        (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // A leap second is the last of a day in UTC.
    let utc = ((hour * 60 + minute).cast_signed() - offset).rem_euclid(24 * 60);
    let is_second = second < 60 || (second == 60 && utc == 24 * 60 - 1);
    hour < 24
        && minute < 60
        && is_second
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// A duration as in appendix A, though parts may be left out between others.
pub fn is_duration(text: &str) -> bool {
    let Some(text) = text.strip_prefix('P') else { return false };
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    match time {
        Some(time) => (date.is_empty() || are_amounts(date, "YMD")) && are_amounts(time, "HMS"),
        None => are_amounts(date, "YMD") || are_amounts(date, "W"),
    }
}

/// Whether `text` is numbers with a unit each, in the order of `units`.
fn are_amounts(text: &str, units: &str) -> bool {
    let mut units = units.chars();
    let mut digits = 0;
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits += 1;
        } else if digits == 0 || !units.any(|unit| unit == c) {
            return false;
        } else {
            digits = 0;
        }
    }
    digits == 0 && !text.is_empty()
}
