//! Plausibility checks of candidates for values to hide: the checksums of cards and bank accounts, the shape of phone
//! numbers, the randomness of keys. Pure functions of the candidate.

/// Whether `text`, digits with single separators, is a payment card's number: a known issuer, a length that it uses,
/// usual groups, and the checksum of Luhn.
pub(super) fn is_card(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
    let number =
        |count: usize| digits.iter().take(count).fold(0, |number, digit| number * 10 + u32::from(*digit));
    let lengths: &[usize] = match (number(1), number(2), number(4)) {
        (4, ..) => &[13, 16, 19],
        (_, 51..=55, _) | (.., 2221..=2720) => &[16],
        (_, 34 | 37, _) => &[15],
        (_, 36 | 38, _) | (.., 3000..=3059) => &[14, 16, 19],
        (_, 60 | 62 | 64 | 65 | 35, _) => &[16, 17, 18, 19],
        _ => return false,
    };
    let varied = digits.iter().any(|digit| *digit != digits[digits.len() - 1] && *digit != 0);
    lengths.contains(&digits.len()) && varied && is_grouped(text) && luhn(&digits)
}

/// Whether the digits are in one piece, or in groups as they are printed on cards, with one kind of separator.
fn is_grouped(text: &str) -> bool {
    let Some(separator) = text.chars().find(|char| !char.is_ascii_digit()) else { return true };
    let groups: Vec<usize> = text.split(separator).map(str::len).collect();
    let is_one_kind = text.chars().all(|char| char.is_ascii_digit() || char == separator);
    let (last, others) = groups.split_last().unwrap_or((&0, &[]));
    is_one_kind
        && (matches!(groups.as_slice(), [4, 6, 4 | 5])
            || others.iter().all(|group| *group == 4) && *last <= 4)
}

fn luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| if at % 2 == 1 { doubled(u32::from(*digit)) } else { u32::from(*digit) })
        .sum();
    sum.is_multiple_of(10)
}

/// The length of account numbers by country, from the IBAN registry of SWIFT.
const IBAN_LENGTHS: &[(&str, usize)] = &[
    ("AD", 24),
    ("AE", 23),
    ("AL", 28),
    ("AT", 20),
    ("AZ", 28),
    ("BA", 20),
    ("BE", 16),
    ("BG", 22),
    ("BH", 22),
    ("BI", 27),
    ("BR", 29),
    ("BY", 28),
    ("CH", 21),
    ("CR", 22),
    ("CY", 28),
    ("CZ", 24),
    ("DE", 22),
    ("DJ", 27),
    ("DK", 18),
    ("DO", 28),
    ("EE", 20),
    ("EG", 29),
    ("ES", 24),
    ("FI", 18),
    ("FK", 18),
    ("FO", 18),
    ("FR", 27),
    ("GB", 22),
    ("GE", 22),
    ("GI", 23),
    ("GL", 18),
    ("GR", 27),
    ("GT", 28),
    ("HN", 28),
    ("HR", 21),
    ("HU", 28),
    ("IE", 22),
    ("IL", 23),
    ("IQ", 23),
    ("IS", 26),
    ("IT", 27),
    ("JO", 30),
    ("KW", 30),
    ("KZ", 20),
    ("LB", 28),
    ("LC", 32),
    ("LI", 21),
    ("LT", 20),
    ("LU", 20),
    ("LV", 21),
    ("LY", 25),
    ("MC", 27),
    ("MD", 24),
    ("ME", 22),
    ("MK", 19),
    ("MN", 20),
    ("MR", 27),
    ("MT", 31),
    ("MU", 30),
    ("NI", 28),
    ("NL", 18),
    ("NO", 15),
    ("OM", 23),
    ("PK", 24),
    ("PL", 28),
    ("PS", 29),
    ("PT", 25),
    ("QA", 29),
    ("RO", 24),
    ("RS", 22),
    ("RU", 33),
    ("SA", 24),
    ("SC", 31),
    ("SD", 18),
    ("SE", 24),
    ("SI", 19),
    ("SK", 24),
    ("SM", 27),
    ("SO", 23),
    ("ST", 25),
    ("SV", 28),
    ("TL", 23),
    ("TN", 24),
    ("TR", 26),
    ("UA", 29),
    ("VA", 22),
    ("VG", 24),
    ("XK", 20),
    ("YE", 30),
];

/// Whether account numbers of a country begin with these letters.
pub(super) fn is_country(letters: [u8; 2]) -> bool {
    IBAN_LENGTHS.iter().any(|(country, _)| country.as_bytes() == letters)
}

/// How many bytes of `text` are an international bank account number, by its country's length and by its checksum
/// (ISO 7064, modulo 97); `None` if it begins with none.
pub(super) fn iban(text: &str) -> Option<usize> {
    let (_, length) = IBAN_LENGTHS.iter().find(|(country, _)| text.starts_with(country))?;
    let mut places = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b' ' | b'-'));
    let (end, _) = places.clone().nth(length - 1)?;
    let account: Vec<u8> = places.by_ref().take(*length).map(|(_, byte)| byte).collect();
    let goes_on = text[end + 1..].starts_with(|char: char| char.is_ascii_alphanumeric());
    // With dashes only in groups of four, as it is printed: other names have dashes anywhere.
    let mut dashes = text[..=end].split('-').rev();
    let is_printed =
        dashes.next().is_some_and(|last| last.len() <= 4) && dashes.all(|group| group.len() == 4);
    if text[..=end].contains('-') && !is_printed {
        return None;
    }
    let turned = account[4..].iter().chain(&account[..4]);
    let remainder = turned.fold(0, |remainder, byte| match byte {
        b'0'..=b'9' => (remainder * 10 + u32::from(byte - b'0')) % 97,
        letter => (remainder * 100 + u32::from(letter - b'A') + 10) % 97,
    });
    (remainder == 1 && !goes_on).then_some(end + 1)
}

/// Whether `text`, which begins with a plus sign, is a phone number as it is dialled from abroad.
pub(super) fn is_foreign_phone(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let is_split = text.chars().skip(1).any(|char| !char.is_ascii_digit());
    let least = if is_split { 8 } else { 10 };
    let is_decimal = text[1..].split_once('.').is_some_and(|(whole, rest)| {
        whole.len() <= 3 && whole.bytes().chain(rest.bytes()).all(|byte| byte.is_ascii_digit())
    });
    (least..=15).contains(&digits.len()) && has_country(&digits) && !is_decimal && is_spaced(text)
}

/// Whether `text` is a phone number as it is dialled from abroad, with zeros in place of the plus sign. Groups of one length
/// are a dump of bytes.
pub(super) fn is_dialled_phone(text: &str) -> bool {
    let groups = || text.split([' ', '/', '-', '.']).map(str::len);
    let is_dump = groups().all(|length| length == 4) || groups().all(|length| length == 2);
    // A padded number of a row, with a date or an amount after it.
    let national = text.split_once([' ', '/']).map_or("", |(_, rest)| rest);
    let is_row = text.contains('.') || is_date(national);
    !is_dump
        && !is_row
        && text.strip_prefix("00").is_some_and(|number| is_foreign_phone(&format!("+{number}")))
}

/// Whether `text` could be a phone number, where words before it say that it is one.
pub(super) fn is_named_phone(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    (7..=15).contains(&digits) && is_spaced(text) && !is_date(text)
}

/// Country codes of one and two digits, and the beginnings of those of three (ITU E.164).
fn has_country(digits: &str) -> bool {
    const TWO: &[&str] = &[
        "20", "27", "30", "31", "32", "33", "34", "36", "39", "40", "41", "43", "44", "45", "46", "47", "48",
        "49", "51", "52", "53", "54", "55", "56", "57", "58", "60", "61", "62", "63", "64", "65", "66", "81",
        "82", "84", "86", "90", "91", "92", "93", "94", "95", "98",
    ];
    const THREE: &[&str] = &[
        "21", "22", "23", "24", "25", "26", "29", "35", "37", "38", "42", "50", "59", "67", "68", "69", "85",
        "88", "96", "97", "99",
    ];
    let is_american =
        digits.starts_with('1') && digits.len() == 11 && matches!(digits.as_bytes()[1], b'2'..=b'9');
    let begins = |codes: &[&str]| codes.iter().any(|code| digits.starts_with(code));
    is_american || digits.starts_with('7') && digits.len() == 11 || begins(TWO) || begins(THREE)
}

/// Whether separators stand alone, but for brackets with a space, and for a stroke with a space on either side.
fn is_spaced(text: &str) -> bool {
    let text = &*text.replace(" / ", "/").replace(" - ", "-");
    let is_separator = |byte: u8| !byte.is_ascii_digit() && !matches!(byte, b'(' | b')' | b'+');
    let pairs = text.as_bytes().windows(2);
    pairs.filter(|pair| is_separator(pair[0]) && is_separator(pair[1])).count() == 0
        && text.matches('(').count() == text.matches(')').count()
        && text.matches('(').count() < 2
}

/// Whether it begins like a date, such as 2024-01-31.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(3, ['-', '/', '.']).collect();
    let is_year = |part: &&str| part.len() == 4 && (part.starts_with("19") || part.starts_with("20"));
    let is_short = |part: &str| (1..=2).contains(&part.len());
    matches!(parts.as_slice(), [year, month, rest] if is_year(year) && is_short(month)
        && rest.starts_with(|char: char| char.is_ascii_digit()))
}

/// Whether `text` looks made by chance: letters and digits, and at least `bits` of entropy in each character.
pub(super) fn is_random(text: &str, bits: f64) -> bool {
    let bytes = text.as_bytes();
    let has = |is: fn(&u8) -> bool| bytes.iter().any(is);
    has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) && entropy(bytes) >= bits && !is_example(text)
}

/// Words of examples, in which nothing is secret.
fn is_example(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["example", "your", "xxxx", "placeholder", "changeme", "redacted", "dummy", "****", "..."]
        .iter()
        .any(|word| text.contains(word))
}

/// Shannon's entropy of the bytes, in bits for each.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let all = bytes.len() as f64;
    let part = |count: &u32| f64::from(*count) / all;
    counts.iter().filter(|count| **count > 0).map(|count| -part(count) * part(count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_an_issuer_a_length_groups_and_a_checksum() {
        for (text, is) in [
            ("4111111111111111", true),
            ("4111 1111 1111 1111", true),
            ("4111-1111-1111-1111", true),
            ("5555555555554444", true),
            ("2223003122003222", true),
            ("378282246310005", true),
            ("3782 822463 10005", true),
            ("6011111111111117", true),
            ("3530111333300000", true),
            ("30569309025904", true),
            ("4111111111111112", false),
            ("4111-1111 1111-1111", false),
            ("41 11 11 11 11 11 11 11", false),
            ("1234567812345670", false),
            ("4000000000000000", false),
            ("0000000000000000", false),
            ("411111111111111", false),
        ] {
            assert_eq!(is_card(text), is, "{text}");
        }
    }

    #[test]
    fn accounts_have_their_countrys_length_and_a_checksum() {
        for (text, length) in [
            ("DE89370400440532013000", Some(22)),
            ("DE89 3704 0044 0532 0130 00", Some(27)),
            ("GB82 WEST 1234 5698 7654 32 THE", Some(27)),
            ("BE68 5390 0754 7034 ABCD", Some(19)),
            ("NO9386011117947", Some(15)),
            ("DE89-3704-0044-0532-0130-00", Some(27)),
            ("DE8937-04004405-32013000", None),
            ("DE89370400440532013001", None),
            ("DE893704004405320130000", None),
            ("DE8937040044053201300", None),
            ("XX89370400440532013000", None),
        ] {
            assert_eq!(iban(text), length, "{text}");
        }
    }

    #[test]
    fn phones_are_dialled_from_abroad_or_named_as_such() {
        for (text, is) in [
            ("+4915112345678", true),
            ("+49 151 12345678", true),
            ("+44 (0)20 7946 0958", true),
            ("+1 212-555-0123", true),
            ("+1.212.555.0123", true),
            ("+33 1 23 45 67 89", true),
            ("+49 (0)170 / 123 45 67", true),
            ("+20240131", false),
            ("+1234567890", false),
            ("+52.520006599", false),
            ("+49 -- 15112345678", false),
            ("+80 1234567890", false),
            ("+491511234567890123", false),
        ] {
            assert_eq!(is_foreign_phone(text), is, "{text}");
        }
        for (text, is) in [
            ("0049 170 1234567", true),
            ("0033 1 23 45 67 89", true),
            ("0045 2024-01-31", false),
            ("0045 12.50 1999.00", false),
            ("0020 3031 3233 3435", false),
            ("0080 170 1234567", false),
        ] {
            assert_eq!(is_dialled_phone(text), is, "{text}");
        }
        for (text, is) in
            [("030 1234567", true), ("0151/12345678", true), ("2024-01-31", false), ("12 34", false)]
        {
            assert_eq!(is_named_phone(text), is, "{text}");
        }
    }

    #[test]
    fn random_looking_keys_are_distinguished_from_words_and_counters() {
        for (text, is) in [
            ("aK3jd92LLm4xQ7", true),
            ("hunter2hunter2", false),
            ("12345678901234", false),
            ("configuration", false),
            ("your_api_key_1234", false),
        ] {
            assert_eq!(is_random(text, 3.0), is, "{text}");
        }
    }
}
