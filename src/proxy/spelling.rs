//! Path normalisation: which paths a server may take for that of chat completions, however they are written. A form
//! that a server understands and toolrein does not would bypass every policy.
//!
//! It covers percent-encoding of any depth, path parameters, backslashes, dot segments, empty segments and the case of
//! letters. It only recognises: the path is sent upstream as the client wrote it (`target`).

use percent_encoding::percent_decode;

/// The end of the governed paths.
const CHAT: [&str; 2] = ["chat", "completions"];
/// How often a path is decoded step by step. Each server on the way may decode once; three in a row are more than
/// anybody has. After that, the path is decoded as far as it can be.
const SERVERS: usize = 3;
/// The longest path, in bytes, for which every interpretation is tried. No client sends a longer one; such a path
/// counts as chat completions as soon as the words occur in it, so that a long path costs no more time than a short
/// one.
const LONGEST_READ: usize = 2048;

/// Whether any server may take `path` for that of chat completions.
pub(super) fn is_chat(path: &str) -> bool {
    if is_plain(path) {
        return ends_with_chat(path.split('/').map(str::as_bytes).filter(|segment| !segment.is_empty()));
    }
    let whole = fully_decoded(path.as_bytes());
    let folded = folded(&whole);
    if !CHAT.iter().all(|word| folded.contains(word)) {
        return false;
    }
    if path.len() > LONGEST_READ {
        return true;
    }
    let mut text = path.as_bytes().to_vec();
    for _ in 0..SERVERS {
        if Reading::all().any(|reading| reading.is_chat(&text)) {
            return true;
        }
        text = decoded(&text);
    }
    Reading::all().any(|reading| reading.is_chat(&text) || reading.is_chat(&whole))
}

/// Whether all servers split the path in the same way, as with nearly every path.
fn is_plain(path: &str) -> bool {
    path.is_ascii() && !path.contains(['%', '\\', ';']) && !path.contains("//") && !path.contains("/.")
}

/// One of the ways in which servers split a path into segments. They differ in the order of the steps, and so in what a
/// dot segment removes.
#[derive(Clone, Copy)]
struct Reading {
    /// The path ends at a decoded `?`, `#` or NUL.
    cuts: bool,
    /// A backslash separates segments (IIS, browsers).
    backslash: bool,
    /// A segment ends at a `;` (Tomcat, Jetty, Spring).
    parameters: bool,
    /// Empty segments are removed before dot segments (nginx), not after them (RFC 3986).
    merges: bool,
}

impl Reading {
    fn all() -> impl Iterator<Item = Self> {
        (0..16_u8).map(|bits| Self {
            cuts: bits & 1 != 0,
            backslash: bits & 2 != 0,
            parameters: bits & 4 != 0,
            merges: bits & 8 != 0,
        })
    }

    fn is_chat(self, path: &[u8]) -> bool {
        let path = if self.cuts { before(path, |byte| matches!(byte, b'?' | b'#' | 0)) } else { path };
        let mut segments: Vec<&[u8]> = Vec::new();
        for segment in path.split(|byte| *byte == b'/' || (self.backslash && *byte == b'\\')) {
            let segment = if self.parameters { before(segment, |byte| byte == b';') } else { segment };
            match segment {
                b"" if self.merges => {}
                b"." => {}
                b".." => drop(segments.pop()),
                _ => segments.push(segment),
            }
        }
        ends_with_chat(segments.into_iter().filter(|segment| !segment.is_empty()))
    }
}

/// The bytes before the first one that `ends` them.
fn before(text: &[u8], ends: impl Fn(u8) -> bool) -> &[u8] {
    &text[..text.iter().position(|byte| ends(*byte)).unwrap_or(text.len())]
}

fn ends_with_chat<'a>(segments: impl DoubleEndedIterator<Item = &'a [u8]>) -> bool {
    let mut segments = segments.rev();
    CHAT.iter().rev().all(|word| segments.next().is_some_and(|segment| is_word(segment, word)))
}

/// Whether a segment is `word` in any case of letters, with white space or control characters around it.
fn is_word(segment: &[u8], word: &str) -> bool {
    let is_blank = |letter: char| letter.is_whitespace() || (letter.is_control() && letter != '\0');
    folded(segment).trim_matches(is_blank) == word
}

/// The text in one case. By way of capitals, since some servers compare those: the capitals of `ı` and `ſ` are `I` and
/// `S`.
fn folded(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The text with its `%xx` decoded, once.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

/// The text decoded again and again, until no escape is left. In one pass: a decoded byte may end an escape that began
/// before it.
fn fully_decoded(text: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    for byte in text {
        out.push(*byte);
        while let Some(at) = out.len().checked_sub(3)
            && out[at] == b'%'
            && let Ok([escaped]) = <[u8; 1]>::try_from(decoded(&out[at..]))
        {
            out.truncate(at);
            out.push(escaped);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    #[test]
    fn every_spelling_of_the_governed_path_is_known_and_no_other_path_is() {
        for path in [
            "/v1/chat/completions",
            "/chat/completions/",
            "/V1/Chat/COMPLETIONS",
            "/v1/chat//completions",
            "/v1/%63hat%2Fcompletions",
            "/a/../chat/./completions/.",
            "/v1/chat/x/%2e%2E/completions",
            "/v1/chat/completions;a=b",
            "/v1;x/chat;y=1/completions;",
            "/v1/x/..;/chat/completions",
            "/v1\\chat\\completions",
            "/v1/chat%5ccompletions",
            "/v1/chat%252Fcompletions",
            "/v1/chat/%25252563ompletions",
            "/v1/chat/%25%36%33ompletions",
            "/v1/chat/completions%00.json",
            "/v1/chat/completions%3Fa=b",
            "/v1/chat/completions%20",
            "/v1/chat/complet%C4%B1on%C5%BF",
            // Servers that take `;` for a letter, empty segments for segments, and no backslash for a separator.
            "/v1/chat/completions/x;/..",
            "/v1/chat/completions//..",
            "/v1/chat/completions/x\\../..",
        ] {
            assert!(is_chat(path), "{path}");
        }
        for path in [
            "/v1/chat/completions/id",
            "/v1/chat/completions-x",
            "/v1/chat/completions/..",
            "/v1/completions",
            "/v1/xchat/completions",
            "/v1/chat/x/completions",
            "/v1/completions/chat",
            "/v1/chat/completions%",
            "/v1/chat/completions%2",
            "/v1/chat/completions%25",
            "/v1/chat/completions%2520x",
            "/v1/chat-completions;/chat/completion",
            "/%",
            "/..",
            "/",
            "",
        ] {
            assert!(!is_chat(path), "{path}");
        }
    }

    #[test]
    fn a_long_path_is_decided_on_without_every_reading() {
        let long = |end: &str| format!("/{}/{end}", "%2561/".repeat(LONGEST_READ));
        assert!(is_chat(&long("chat/completions")));
        assert!(is_chat(&long("chat/completions/..")), "in doubt");
        assert!(!is_chat(&long("embeddings")));
        assert!(is_chat(&format!("/v1/chat/{}63ompletions", "%25".repeat(10_000))));
    }

    /// A character as it is, or under as many layers of percent-encoding.
    fn encoded(letter: char, layers: usize) -> String {
        let mut text = letter.to_string();
        for layer in 0..layers {
            let escape = |byte: u8| format!("%{byte:02X}");
            text = match layer {
                0 => text.bytes().map(escape).collect(),
                // At least the percent sign of an escape, or it would not be one any more.
                _ => text.replace('%', "%25"),
            };
        }
        text
    }

    /// How one character is written: in which case, and under how many layers of encoding.
    fn letters(word: &'static str) -> impl Strategy<Value = String> {
        prop::collection::vec((any::<bool>(), prop_oneof![4 => Just(0_usize), 1 => 0_usize..5]), word.len())
            .prop_map(move |choices| {
                let any_spelling = word.chars().zip(choices).map(|(letter, (upper, layers))| {
                    encoded(if upper { letter.to_ascii_uppercase() } else { letter }, layers)
                });
                any_spelling.collect()
            })
    }

    /// A slash, with what may be written between two segments or after the last.
    fn separator() -> impl Strategy<Value = String> {
        let slash = prop_oneof![3 => Just("/"), 1 => Just("\\")];
        let slash = (slash, 0_usize..4).prop_map(|(slash, layers)| {
            let layers = if slash == "/" || layers > 0 { layers } else { 0 };
            slash.chars().map(|letter| encoded(letter, layers)).collect::<String>()
        });
        let filling =
            select(vec!["", "", "", ".", "./.", "x/..", "%2e", "a/%2E%2e", "b/.%252e", ";p=q", "y;z/..;"]);
        (slash.clone(), filling, slash).prop_map(|(before, filling, after)| match filling {
            "" => before,
            ";p=q" => format!("{filling}{before}"),
            filling => format!("{before}{filling}{after}"),
        })
    }

    /// A path of these segments, in any form.
    fn any_spelling(segments: &'static [&'static str]) -> BoxedStrategy<String> {
        let mut path = Just(String::from("/v1")).boxed();
        for segment in segments {
            path = (path, separator(), letters(segment))
                .prop_map(|(path, separator, segment)| path + &separator + &segment)
                .boxed();
        }
        let end = prop_oneof![Just(String::new()), Just(";a=b".to_owned()), separator()];
        (path, end).prop_map(|(path, end)| path + &end).boxed()
    }

    /// A server that normalises a path in the order of `steps`, each a letter: `d`ecodes once, takes `b`ackslashes for
    /// slashes, drops `p`arameters, cuts at a `q`uery, `m`erges slashes, resolves `.` segments.
    fn served(path: &str, steps: &str) -> bool {
        let mut path = path.to_owned();
        for step in steps.chars() {
            path = match step {
                'd' => percent_decoded(&path),
                'b' => path.replace('\\', "/"),
                'p' => {
                    let plain = |segment: &str| segment.split(';').next().unwrap().to_owned();
                    path.split('/').map(plain).collect::<Vec<_>>().join("/")
                }
                'q' => path.split(['?', '#', '\0']).next().unwrap().to_owned(),
                'm' => {
                    while path.contains("//") {
                        path = path.replace("//", "/");
                    }
                    path
                }
                _ => {
                    let mut out: Vec<&str> = Vec::new();
                    for segment in path.split('/') {
                        match segment {
                            "." => {}
                            ".." => _ = out.pop(),
                            segment => out.push(segment),
                        }
                    }
                    out.join("/")
                }
            };
        }
        let path = format!("/{}", path.to_ascii_lowercase());
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        segments.ends_with(&CHAT)
    }

    fn percent_decoded(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let escape = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match escape.filter(u8::is_ascii) {
                Some(byte) => {
                    out.push(char::from(byte));
                    rest = &rest[at + 3..];
                }
                None => {
                    out.push('%');
                    rest = &rest[at + 1..];
                }
            }
        }
        out + rest
    }

    /// Every server that decodes none to many times, and then does some of the other steps.
    fn servers() -> Vec<String> {
        let mut servers = Vec::new();
        for decodes in [0, 1, 2, 3, 64] {
            for others in 0..16_u8 {
                let step = |bit: u8, step: &'static str| if others & bit != 0 { step } else { "" };
                let decoding = "d".repeat(decodes);
                let (query, back, parameters) = (step(1, "q"), step(2, "b"), step(4, "p"));
                servers.push(format!("{decoding}{query}{back}{parameters}{}.", step(8, "m")));
            }
        }
        servers
    }

    proptest! {
        #[test]
        fn the_governed_path_is_known_in_any_spelling(path in any_spelling(&["chat", "completions"])) {
            prop_assert!(is_chat(&path), "{}", path);
        }

        #[test]
        fn no_spelling_of_another_path_is_taken_for_it(
            path in prop_oneof![
                any_spelling(&["chat", "completions-x"]),
                any_spelling(&["xchat", "completions"]),
                any_spelling(&["completions"]),
                any_spelling(&["chat"]),
                any_spelling(&["completions", "chat"]),
                any_spelling(&["embeddings"]),
            ],
        ) {
            prop_assert!(!is_chat(&path), "{}", path);
        }

        #[test]
        fn a_path_is_governed_exactly_if_one_of_many_servers_takes_it_for_chat_completions(
            parts in prop::collection::vec(
                select(vec![
                    "/", "/", "\\", "%2f", "%5C", "%252F", "chat", "chat/completions", "completions", "ChaT", "%63hat",
                    "complet%2569ons", ";", ";a", ".", "..", "/../", "%2e%2e", "x", "?", "%3f", "%23", "%00", "%25",
                    "%", "2f", "%2525252f",
                ]),
                0..9,
            ),
        ) {
            let path = format!("/{}", parts.concat()).replace('?', "%3F");
            let taken: Vec<String> = servers().into_iter().filter(|steps| served(&path, steps)).collect();
            prop_assert_eq!(is_chat(&path), !taken.is_empty(), "{} by {:?}", path, taken);
        }
    }
}
