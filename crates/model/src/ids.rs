//! Random call ids, recognised by their form: a random id identifies one call of one conversation, however the client
//! edits or trims the history around it. Ids that are counters (`functions.search:0`, `call_1`) occur again in other
//! conversations. Looks at one id; the state store knows whether an id came twice.

/// The least bits of an id: of a million ids of this size two are equal once in two runs, and the name, the arguments
/// and the caller are part of a call's key too.
const LEAST_BITS: f64 = 40.0;
/// A run of digits alone is a counter or a time below this length (Z.ai ids have 19 of them).
const LEAST_DIGITS: usize = 16;

/// Whether `id`, of a call of the tool `name`, holds at least [`LEAST_BITS`] bits that look random. Words, counters
/// and the tool's own name hold none. If not, the key needs the conversation's content.
pub fn is_random(id: &[u8], name: &str) -> bool {
    // By windows: building a substring searcher takes longer than scanning so short a text.
    let is_name = |part: &[u8]| part.first() == name.as_bytes().first() && part == name.as_bytes();
    let has_name = !name.is_empty() && id.windows(name.len()).any(is_name);
    let text = has_name.then(|| std::str::from_utf8(id).ok()).flatten();
    let without_name = text.map(|id| id.replace(name, "-"));
    let id = without_name.as_ref().map_or(id, |id| id.as_bytes());
    let (mut bits, mut run) = (0.0, Run::default());
    for byte in id {
        match CLASSES[usize::from(*byte)] {
            OTHER => bits += std::mem::take(&mut run).bits(),
            class => run.add(class),
        }
    }
    bits + run.bits() >= LEAST_BITS
}

/// A run of letters and digits.
#[derive(Default)]
struct Run {
    length: usize,
    /// The classes in it.
    seen: u8,
    /// How often the class changes.
    changes: usize,
    last: u8,
}

impl Run {
    fn add(&mut self, class: u8) {
        self.seen |= class;
        self.changes += usize::from(self.length > 0 && (self.last ^ class) & ALL != 0);
        self.last = class;
        self.length += 1;
    }

    /// About how many bits it holds. A random run changes between digits, small and capital letters every few characters; a
    /// word with a number after it changes once.
    fn bits(&self) -> f64 {
        // The binary logarithms of the sizes of the alphabets: 10, 62, 16, 36 and 52.
        let bits_of_one = match self.seen & ALL {
            DIGIT if self.length >= LEAST_DIGITS => 3.32,
            ALL if self.changes >= 2 => 5.95,
            DIGIT_SMALL | DIGIT_LARGE if self.changes >= 2 => {
                if self.seen & NOT_HEX == 0 {
                    4.0
                } else {
                    5.17
                }
            }
            // Words in camel case change less often.
            SMALL_LARGE if self.changes * 3 >= self.length => 5.7,
            _ => return 0.0,
        };
        self.length as f64 * bits_of_one
    }
}

/// Classes of letters and digits, one bit each, and sets of them.
const DIGIT: u8 = 1;
const SMALL: u8 = 2;
const LARGE: u8 = 4;
/// It is no digit of a hexadecimal number.
const NOT_HEX: u8 = 8;
/// Neither a letter nor a digit.
const OTHER: u8 = 0;
const DIGIT_SMALL: u8 = DIGIT | SMALL;
const DIGIT_LARGE: u8 = DIGIT | LARGE;
const SMALL_LARGE: u8 = SMALL | LARGE;
const ALL: u8 = DIGIT | SMALL | LARGE;

static CLASSES: [u8; 256] = {
    let (mut classes, mut byte) = ([OTHER; 256], 0);
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'A'..=b'F' => LARGE,
            b'a'..=b'f' => SMALL,
            b'G'..=b'Z' => LARGE | NOT_HEX,
            b'g'..=b'z' => SMALL | NOT_HEX,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_provider_ids_are_distinguished_from_counted_ids() {
        for (id, name, random) in [
            ("call_Ae2Y4fDJmxZkQhWq8LbTzR1c", "search", true),
            ("call_00_Ae2Y4fDJmxZkQhWq8LbTzR1c", "search", true),
            ("toolu_01A09q90qw90lq917835lq9", "search", true),
            ("toolu_bdrk_01Kx9q90qw90lq9178", "search", true),
            ("D681PevKs", "search", true),
            ("abCdEfGhI", "search", true),
            ("call_k1b2x3d4", "search", true),
            ("call_-8263548261937465012", "search", true),
            ("chatcmpl-tool-1f0c9f2b6d3e4a7c8b5a6d7e8f901234", "search", true),
            ("550e8400-e29b-41d4-a716-446655440000", "search", true),
            ("0a1b2c3d4e5f60718293a4b5c6d7e8f9", "search", true),
            ("", "search", false),
            ("0", "search", false),
            ("call_0", "search", false),
            ("call_00000012_0", "search", false),
            ("call_1790000000000", "search", false),
            ("functions.search:0", "search", false),
            ("functions.a1b2c3d4e5:12", "a1b2c3d4e5", false),
            ("functions.searchFlightsByDestination:12", "other", false),
            ("default_api.search_web", "search_web", false),
            ("llm_version:0", "llm_version", false),
            ("tooluse00000012", "search", false),
            ("call_search_web_0001", "search_web", false),
            ("pydj", "search", false),
        ] {
            assert_eq!(is_random(id.as_bytes(), name), random, "{id} of {name}");
        }
    }
}
