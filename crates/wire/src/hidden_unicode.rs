//! Hidden Unicode: characters that a person does not see and a model reads ("ASCII smuggling"). Finds and removes those
//! that carry hidden text (tags, runs of variation selectors and of zero-width characters, overrides of direction) and
//! leaves those that carry none: emoji, flags, the joiners of Arabic and Indic scripts. Does not look at the words.

use memchr::memchr3_iter;

/// Tags of a flag between U+1F3F4 and U+E007F: a region and its subdivision, three to six as Unicode registers them.
const FLAG_TAGS: std::ops::RangeInclusive<usize> = 3..=6;

/// `text` without smuggling characters, and how many characters are gone; `None` where there are none.
pub fn strip(text: &str) -> Option<(String, usize)> {
    let mut sieve = Sieve { text, out: String::new(), kept_to: 0, gone_chars: 0, open: Vec::new() };
    let mut at = 0;
    while let Some(found) = next_candidate(text, at) {
        sieve.end_paragraphs(at, found);
        at = sieve.cluster(found);
    }
    sieve.finish()
}

/// Whether `text` has a character that turns the direction of what follows, whatever its script.
pub fn overrides_direction(text: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), b"\xe2\x80\xad").is_some()
        || memchr::memmem::find(text.as_bytes(), b"\xe2\x80\xae").is_some()
}

/// What an invisible character does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Only a flag has them.
    Tag,
    /// Chooses the form of the character before it, one for one.
    Selector,
    /// Takes no place: spaces and joiners without width, marks of direction.
    ZeroWidth,
    /// Opens or closes an override of direction.
    Override,
}

struct Sieve<'a> {
    text: &'a str,
    out: String,
    /// Up to here the text is in `out`, or gone.
    kept_to: usize,
    gone_chars: usize,
    /// The embeddings of direction that are open; true for an override.
    open: Vec<bool>,
}

impl Sieve<'_> {
    /// A paragraph's end closes what was opened in it.
    fn end_paragraphs(&mut self, from: usize, to: usize) {
        if !self.open.is_empty() && memchr::memchr(b'\n', &self.text.as_bytes()[from..to]).is_some() {
            self.open.clear();
        }
    }

    /// Takes the run of invisible characters at `start`; returns the position after them.
    fn cluster(&mut self, start: usize) -> usize {
        let base = self.text[..start].chars().next_back();
        let mut members = Vec::new();
        let mut end = start;
        for (offset, character) in self.text[start..].char_indices() {
            end = start + offset + character.len_utf8();
            // A visible character, or one that opens or closes an embedding, ends the cluster and is done with.
            let Some(class) = self.class(character) else { break };
            members.push((start + offset, character, class));
        }
        let flag = flag_len(base, &members);
        self.sift(base, &members[flag..]);
        end
    }

    /// Drops of one cluster after `base` what carries no meaning there.
    fn sift(&mut self, base: Option<char>, members: &[(usize, char, Class)]) {
        let zero_widths = members.iter().filter(|(_, _, class)| *class == Class::ZeroWidth).count();
        let mut selector_is_kept = false;
        let mut zero_width_is_kept = false;
        for (at, character, class) in members {
            let stays = match class {
                Class::Tag | Class::Override => false,
                Class::Selector => !selector_is_kept && selects_form_of(base, *character),
                Class::ZeroWidth => {
                    zero_widths == 1 || !zero_width_is_kept && has_use_after(base, *character)
                }
            };
            selector_is_kept |= stays && *class == Class::Selector;
            zero_width_is_kept |= stays && *class == Class::ZeroWidth;
            if !stays {
                self.out.push_str(&self.text[self.kept_to..*at]);
                self.kept_to = at + character.len_utf8();
                self.gone_chars += 1;
            }
        }
    }

    fn class(&mut self, character: char) -> Option<Class> {
        match character {
            '\u{e0000}'..='\u{e007f}' => Some(Class::Tag),
            '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => Some(Class::Selector),
            '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => Some(Class::ZeroWidth),
            '\u{202a}' | '\u{202b}' => {
                self.open.push(false);
                None
            }
            '\u{202d}' | '\u{202e}' => {
                self.open.push(true);
                Some(Class::Override)
            }
            '\u{202c}' => self.open.pop().filter(|overrides| *overrides).map(|_| Class::Override),
            _ => None,
        }
    }

    fn finish(mut self) -> Option<(String, usize)> {
        if self.gone_chars == 0 {
            return None;
        }
        self.out.push_str(&self.text[self.kept_to..]);
        Some((self.out, self.gone_chars))
    }
}

/// The position of the next character that may be a hidden one, from `from` on.
fn next_candidate(text: &str, from: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[from..];
    let found = memchr3_iter(0xe2, 0xef, 0xf3, bytes).find(|at| match bytes[*at..] {
        [0xe2, 0x80, last, ..] => matches!(last, 0x8b..=0x8f | 0xaa..=0xae),
        [0xe2, 0x81, last, ..] => matches!(last, 0xa0..=0xa4),
        [0xef, 0xb8, last, ..] => last <= 0x8f,
        [0xef, 0xbb, last, ..] => last == 0xbf,
        [0xf3, 0xa0, third, ..] => third <= 0x87,
        _ => false,
    });
    found.map(|at| from + at)
}

/// How many of `members` make a flag of `base`.
fn flag_len(base: Option<char>, members: &[(usize, char, Class)]) -> usize {
    let tags = members.iter().take_while(
        |(_, character, _)| matches!(character, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}'),
    );
    let tags = tags.count();
    let is_closed = members.get(tags).is_some_and(|(_, character, _)| *character == '\u{e007f}');
    let is_flag = base == Some('\u{1f3f4}') && FLAG_TAGS.contains(&tags) && is_closed;
    if is_flag { tags + 1 } else { 0 }
}

fn selects_form_of(base: Option<char>, selector: char) -> bool {
    match (base, selector) {
        (None, _) => false,
        (Some(base), '\u{fe00}'..='\u{fe0f}') => !base.is_whitespace() && !base.is_control(),
        // Above the sixteenth, only ideographs have any.
        (Some(base), _) => {
            matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
        }
    }
}

/// Whether one of several zero-width characters is of use after `base`.
fn has_use_after(base: Option<char>, character: char) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => base.is_some_and(joins),
        '\u{200e}' | '\u{200f}' => true,
        _ => false,
    }
}

/// Whether joiners shape what follows `base`: scripts from Arabic to Khmer, Mongolian, Balinese and their like, and
/// emoji.
fn joins(base: char) -> bool {
    matches!(base, '\u{0590}'..='\u{109f}' | '\u{1780}'..='\u{1aaf}' | '\u{1b00}'..='\u{1c4f}'
        | '\u{a800}'..='\u{abff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        | '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{10a00}'..='\u{11fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_that_hide_nothing_are_left_alone() {
        for text in [
            "",
            "plain",
            "naïve – “quoted” … 100 €",
            "family \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} and \u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "\u{1f3f4}\u{200d}\u{2620}\u{fe0f} and 1\u{fe0f}\u{20e3}",
            "England \u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f} wins",
            "\u{0645}\u{06cc}\u{200c}\u{062e}\u{0648}\u{0627}\u{0647}\u{0645}",
            "\u{0995}\u{09cd}\u{200d}\u{09b7} \u{0d28}\u{0d4d}\u{200d}",
            "\u{feff}a file with a mark at its head",
            "long\u{200b}words\u{200b}may\u{200b}break",
            "\u{845b}\u{e0100} and \u{2268}\u{fe00}",
            "\u{202b}\u{05d0}\u{05d1}\u{202c} and \u{2067}\u{05d0}\u{2069} and \u{200f}!",
        ] {
            assert_eq!(strip(text), None, "{text:?}");
        }
    }

    #[test]
    fn smuggling_characters_go_and_all_else_stays() {
        for (text, left, gone) in [
            ("a\u{e0049}\u{e0067}\u{e006e}b", "ab", 3),
            ("\u{1f3f4}\u{e0049}\u{e0067}\u{e007f}!", "\u{1f3f4}!", 3),
            ("\u{1f600}\u{fe0f}\u{e0143}\u{e0155}x", "\u{1f600}\u{fe0f}x", 2),
            ("a\u{e0143}b", "ab", 1),
            ("a\u{202e}drow\u{202c}b", "adrowb", 2),
            ("a\u{202e}b\nc\u{202c}", "ab\nc\u{202c}", 1),
            ("\u{202b}\u{202d}a\u{202c}b\u{202c}", "\u{202b}ab\u{202c}", 2),
            ("x\u{200b}\u{200c}\u{200b}\u{200b}y", "xy", 4),
            ("\u{06cc}\u{200c}\u{200c}\u{062e}", "\u{06cc}\u{200c}\u{062e}", 1),
        ] {
            assert_eq!(strip(text), Some((left.to_owned(), gone)), "{text:?}");
        }
    }

    /// Texts rich in what may be removed.
    fn texts() -> impl Strategy<Value = String> {
        let odd: Vec<char> =
            "a \n\u{1f3f4}\u{1f600}\u{2764}\u{06cc}\u{845b}\u{e0067}\u{e0062}\u{e007f}\u{fe0f}\
            \u{e0143}\u{200b}\u{200c}\u{200d}\u{200e}\u{feff}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}"
                .chars()
                .collect();
        prop::collection::vec(prop::sample::select(odd), 0..24).prop_map(|chars| chars.into_iter().collect())
    }

    fn is_invisible(character: char) -> bool {
        matches!(character, '\u{e0000}'..='\u{e01ef}' | '\u{fe00}'..='\u{fe0f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
    }

    proptest! {
        #[test]
        fn visible_characters_stay_and_the_count_of_removed_ones_is_right(text in texts()) {
            let (left, gone) = strip(&text).unwrap_or_else(|| (text.clone(), 0));
            let seen = |text: &str| text.chars().filter(|c| !is_invisible(*c)).collect::<String>();
            prop_assert_eq!(seen(&left), seen(&text));
            prop_assert_eq!(left.chars().count() + gone, text.chars().count());
        }

        #[test]
        fn stripping_twice_strips_no_more(text in texts()) {
            if let Some((left, _)) = strip(&text) {
                prop_assert_eq!(strip(&left), None);
            }
        }

        #[test]
        fn any_text_at_all_can_be_stripped(text in any::<String>()) {
            let left = strip(&text).map_or(text, |(left, _)| left);
            prop_assert!(!overrides_direction(&left));
        }
    }
}
