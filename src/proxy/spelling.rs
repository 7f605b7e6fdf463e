//! Path normalisation: which paths a server may take for that of a governed endpoint, however they are written. A form
//! that a server understands and toolrein does not would bypass every policy.
//!
//! It covers percent-encoding of any depth, path parameters, backslashes, dot segments, empty segments and the case of
//! letters. It only recognises: the path is sent upstream as the client wrote it (`target`).

use percent_encoding::percent_decode;

/// An endpoint whose requests are governed. Its path is recognised by the last segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Governed {
    ChatCompletions,
    Responses,
    /// Anthropic's, also under Vertex' paths.
    Messages,
    /// Counts the tokens of a request to [`Self::Messages`]: changed like that request, and no reply of a model.
    CountTokens,
}

/// How often a path is decoded step by step. Each server on the way may decode once; three in a row are more than
/// anybody has. After that, the path is decoded as far as it can be.
const SERVERS: usize = 3;
/// The longest path, in bytes, for which every interpretation is tried. No client sends a longer one; such a path
/// counts as governed as soon as the words occur in it, so that a long path costs no more time than a short one.
const LONGEST_READ: usize = 2048;

/// The endpoint for which any server may take `path`; of two, the first of [`Governed::ALL`].
pub(super) fn governed(path: &str) -> Option<Governed> {
    if is_plain(path) {
        let segments = || path.split('/').map(str::as_bytes);
        return Governed::ALL.into_iter().find(|endpoint| endpoint.is_at_end_of(segments()));
    }
    let whole = fully_decoded(path.as_bytes());
    let folded = folded(&whole);
    let has_words = |endpoint: &Governed| endpoint.words().iter().any(|words| contains_all(&folded, words));
    let mut found = Governed::ALL.into_iter().filter(has_words);
    found.find(|endpoint| path.len() > LONGEST_READ || endpoint.is_read_in(path.as_bytes(), &whole))
}

/// The segments before the last one of Vertex' paths: `publishers/anthropic/models/MODEL:rawPredict`.
const VERTEX: [&str; 3] = ["publishers", "anthropic", "models"];
/// What follows the model in the last segment of Vertex' paths.
const VERTEX_VERBS: [&str; 2] = [":rawpredict", ":streamrawpredict"];
/// The model's place in the path by which Vertex counts tokens.
const VERTEX_COUNT: &str = "count-tokens:rawpredict";

impl Governed {
    /// In the order in which they are looked for.
    const ALL: [Self; 4] = [Self::ChatCompletions, Self::Responses, Self::Messages, Self::CountTokens];

    /// The words of the paths of this endpoint: each path has all words of one list.
    fn words(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::ChatCompletions => &[&["chat", "completions"]],
            Self::Responses => &[&["responses"]],
            Self::Messages => &[&["messages"], &["anthropic", "rawpredict"]],
            Self::CountTokens => &[&["messages", "count_tokens"], &["anthropic", VERTEX_COUNT]],
        }
    }

    /// Whether any server may find this endpoint in `path`, which is `whole` when it is fully decoded.
    fn is_read_in(self, path: &[u8], whole: &[u8]) -> bool {
        let mut text = path.to_vec();
        for _ in 0..SERVERS {
            if Reading::all().any(|reading| reading.finds(self, &text)) {
                return true;
            }
            text = decoded(&text);
        }
        Reading::all().any(|reading| reading.finds(self, &text) || reading.finds(self, whole))
    }

    /// Whether the last of these segments that are not empty are those of this endpoint.
    fn is_at_end_of<'a>(self, segments: impl DoubleEndedIterator<Item = &'a [u8]>) -> bool {
        let mut segments = segments.rev().filter(|segment| !segment.is_empty());
        let Some(last) = segments.next() else { return false };
        match self {
            Self::ChatCompletions => is_word(last, "completions") && ends_with(segments, &["chat"]),
            Self::Responses => is_word(last, "responses"),
            // The messages of a thread belong to OpenAI's Assistants API.
            Self::Messages if is_word(last, "messages") => {
                !segments.nth(1).is_some_and(|segment| is_word(segment, "threads"))
            }
            Self::Messages => {
                let names_model = |last: String| {
                    last != VERTEX_COUNT && VERTEX_VERBS.iter().any(|verb| last.ends_with(verb))
                };
                ends_with(segments, &VERTEX) && names_model(trimmed(last))
            }
            Self::CountTokens if is_word(last, "count_tokens") => ends_with(segments, &["messages"]),
            Self::CountTokens => is_word(last, VERTEX_COUNT) && ends_with(segments, &VERTEX),
        }
    }
}

fn contains_all(text: &str, words: &[&str]) -> bool {
    words.iter().all(|word| text.contains(word))
}

/// Whether the segments, which come last one first, end with `words`.
fn ends_with<'a>(mut segments: impl Iterator<Item = &'a [u8]>, words: &[&str]) -> bool {
    words.iter().rev().all(|word| segments.next().is_some_and(|segment| is_word(segment, word)))
}

/// Whether all servers split the path in the same way, as with nearly every path.
pub(super) fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii() && !matches!(byte, b'%' | b'\\' | b';' | b'?' | b'#' | 0);
    path.bytes().all(is_plain) && !path.as_bytes().windows(2).any(|pair| matches!(pair, b"//" | b"/."))
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

    fn finds(self, endpoint: Governed, path: &[u8]) -> bool {
        endpoint.is_at_end_of(self.segments(path).into_iter())
    }

    /// The segments that a server takes from `path`.
    fn segments(self, path: &[u8]) -> Vec<&[u8]> {
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
        segments
    }
}

/// Whether any server may take `path` for one that stored replies are read under: with the segment `responses`,
/// `conversations` or `chat/completions` in it, and perhaps more after it. A longer path counts as soon as a word is in it.
pub(super) fn may_show_stored(path: &str) -> bool {
    let is_long = path.len() > LONGEST_READ;
    if !is_long && is_plain(path) {
        return has_stored(path.split('/').map(str::as_bytes));
    }
    let whole = fully_decoded(path.as_bytes());
    let folded = folded(&whole);
    if !STORED.iter().any(|words| contains_all(&folded, words)) {
        return false;
    }
    if is_long {
        return true;
    }
    let shows = |reading: Reading, path: &[u8]| has_stored(reading.segments(path).into_iter());
    let mut text = path.as_bytes().to_vec();
    for _ in 0..SERVERS {
        if Reading::all().any(|reading| shows(reading, &text)) {
            return true;
        }
        text = decoded(&text);
    }
    Reading::all().any(|reading| shows(reading, &text) || shows(reading, &whole))
}

/// Whether the words of one of [`STORED`] follow each other in these segments, empty ones left out.
fn has_stored<'a>(segments: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut before: &[u8] = b"";
    segments.filter(|segment| !segment.is_empty()).any(|segment| {
        let last_first = [segment, std::mem::replace(&mut before, segment)];
        let are_words = |words: &&[&str]| {
            words.iter().rev().zip(last_first).all(|(word, segment)| is_word(segment, word))
        };
        STORED.iter().any(are_words)
    })
}

/// The segments under which upstreams keep replies: one, or two that follow each other.
const STORED: [&[&str]; 3] = [&["responses"], &["conversations"], &["chat", "completions"]];

/// The bytes before the first one that `ends` them.
fn before(text: &[u8], ends: impl Fn(u8) -> bool) -> &[u8] {
    &text[..text.iter().position(|byte| ends(*byte)).unwrap_or(text.len())]
}

/// Whether a segment is `word` in any case of letters, with white space or control characters around it.
fn is_word(segment: &[u8], word: &str) -> bool {
    if segment.eq_ignore_ascii_case(word.as_bytes()) {
        return true;
    }
    // No character becomes more ASCII letters than it has bytes.
    segment.len() >= word.len() && !segment.iter().all(u8::is_ascii_graphic) && trimmed(segment) == word
}

/// A segment in one case, without white space and control characters around it.
fn trimmed(segment: &[u8]) -> String {
    let is_blank = |letter: char| letter.is_whitespace() || (letter.is_control() && letter != '\0');
    folded(segment).trim_matches(is_blank).to_owned()
}

/// The text in one case. By way of capitals, since some servers compare those: the capitals of `ı` and `ſ` are `I` and
/// `S`.
fn folded(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The text with its `%xx` decoded, once.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

/// The text decoded again and again, until no escape is left. In one pass: a decoded byte may end an escape that began
/// before it.
fn fully_decoded(text: &[u8]) -> Vec<u8> {
    if memchr::memchr(b'%', text).is_none() {
        return text.to_vec();
    }
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
    fn every_spelling_of_the_path_of_chat_completions_is_known() {
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
            assert_eq!(governed(path), Some(Governed::ChatCompletions), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_of_stored_replies_is_known() {
        for path in [
            "/v1/responses/resp_1",
            "/v1/Responses/resp_1/",
            "/v1/responses//resp_1",
            "/v1/%72esponses/resp_1",
            "/v1/response%2573/resp_1",
            "/v1/responses%2Fresp_1",
            "/v1\\responses\\resp_1",
            "/v1/responses;a=b/resp_1",
            "/v1/x/../responses/resp_1/input_items",
            "/v1/conversations/conv_1/items",
            "/v1/chat/completions",
            "/v1/chat//completions/chatcmpl_1",
            "/v1/re\u{17f}ponses/resp_1",
        ] {
            assert!(may_show_stored(path), "{path}");
        }
        for path in
            ["/v1/models", "/v1/files/responses.jsonl", "/v1/chat", "/v1/completions", "/responses_of/x"]
        {
            assert!(!may_show_stored(path), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_the_path_of_responses_is_known() {
        for path in [
            "/v1/responses",
            "/responses/",
            "/openai/v1/responses//",
            "/backend-api/codex/Responses",
            "/v1/%72esponses",
            "/v1%2Fresponses",
            "/v1/response%2573",
            "/v1/responses;a=b",
            "/v1\\responses",
            "/v1/responses/x/..",
            "/v1/responses/x/%2e%2E/.",
            "/v1/responses%3Fa=b",
            "/v1/re%C5%BFpon%C5%BFes%20",
            "/v1/chat/completions/responses",
            "/v1/chat/completions/..;/responses",
        ] {
            assert_eq!(governed(path), Some(Governed::Responses), "{path}");
        }
        // A server that cuts the decoded path at its `?` takes it for the one, any other for the other.
        assert_eq!(governed("/v1/responses%3F/chat/completions"), Some(Governed::ChatCompletions));
    }

    #[test]
    fn every_spelling_of_the_path_of_messages_is_known_and_threads_have_another_api() {
        const VERTEX: &str = "/v1/projects/p/locations/l/publishers/anthropic/models";
        let vertex = |last: &str| format!("{VERTEX}/{last}");
        for path in [
            "/v1/messages",
            "/messages/",
            "/api/v1/messages",
            "/anthropic/v1/Messages",
            "/apps/anthropic/v1/messages",
            "/v1/%6dessages",
            "/v1%2Fmessages",
            "/v1/message%2573",
            "/v1/messages;a=b",
            "/v1\\messages",
            "/v1/messages/x/..",
            "/v1/messages%3Fbeta=true",
            "/v1/me%C5%BF%C5%BFage%C5%BF%20",
            "/v1/threads/messages",
            "/v1/threads/t/x/messages",
            // A server that resolves the segment finds no thread.
            "/v1/threads/%2e%2e/messages",
            "/v1/threads/t/..%2f../messages",
            &vertex("claude-sonnet-4-5@20250929:rawPredict"),
            &vertex("claude:streamRawPredict"),
            &vertex("claude%3ArawPredict"),
            &vertex("claude:rawPredict;a=b"),
            &vertex("CLAUDE:RAWPREDICT/"),
            &vertex("count-tokens:streamRawPredict"),
        ] {
            assert_eq!(governed(path), Some(Governed::Messages), "{path}");
        }
        for path in [
            "/v1/messages/count_tokens",
            "/anthropic/v1/messages/count_tokens/",
            "/v1/messages%2Fcount_tokens",
            "/v1/Messages/%63ount_tokens",
            &vertex("count-tokens:rawPredict"),
            &vertex("count%2Dtokens%3ArawPredict"),
        ] {
            assert_eq!(governed(path), Some(Governed::CountTokens), "{path}");
        }
        for path in [
            "/v1/threads/thread_1/messages",
            "/v1/threads/thread_1/messages/",
            "/v1/Threads/thread_1/%6dessages",
            "/v1/messages/batches",
            "/v1/messages/batches/b/results",
            "/v1/messages/msg_1",
            "/v1/count_tokens",
            "/v1/xmessages",
            "/v1/projects/p/locations/l/publishers/google/models/gemini:rawPredict",
            &vertex("claude:generateContent"),
            &vertex("claude/rawPredict"),
            "/v1/models/claude:rawPredict",
            "/model/anthropic.claude/invoke",
            "/model/anthropic.claude/converse-stream",
            "/api/hello",
        ] {
            assert_eq!(governed(path), None, "{path}");
        }
    }

    #[test]
    fn no_other_path_is_taken_for_a_governed_one() {
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
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/v1/responses/compact",
            "/v1/responses/input_tokens",
            "/v1/responses/resp%2F1",
            "/v1/responses/..",
            "/v1/responses-x",
            "/v1/xresponses",
            "/v1/response",
            "/v1/response/s",
            "/%",
            "/..",
            "/",
            "",
        ] {
            assert_eq!(governed(path), None, "{path}");
        }
    }

    #[test]
    fn a_very_long_path_is_classified_without_trying_every_decoding() {
        let long = |end: &str| format!("/{}/{end}", "%2561/".repeat(LONGEST_READ));
        for (end, expected) in [
            ("chat/completions", Some(Governed::ChatCompletions)),
            ("chat/completions/..", Some(Governed::ChatCompletions)),
            ("responses", Some(Governed::Responses)),
            ("responses/..", Some(Governed::Responses)),
            ("responses/chat/completions", Some(Governed::ChatCompletions)),
            ("messages", Some(Governed::Messages)),
            ("embeddings", None),
        ] {
            assert_eq!(governed(&long(end)), expected, "{end}");
        }
        let layers = "%25".repeat(10_000);
        assert_eq!(governed(&format!("/v1/chat/{layers}63ompletions")), Some(Governed::ChatCompletions));
        assert_eq!(governed(&format!("/v1/{layers}72esponses")), Some(Governed::Responses));
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
    fn served(path: &str, steps: &str) -> Option<Governed> {
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
        match segments[..] {
            [.., "chat", "completions"] => Some(Governed::ChatCompletions),
            [.., "responses"] => Some(Governed::Responses),
            [.., "threads", _, "messages"] => None,
            [.., "messages"] => Some(Governed::Messages),
            [.., "messages", "count_tokens"] => Some(Governed::CountTokens),
            [.., "publishers", "anthropic", "models", "count-tokens:rawpredict"] => {
                Some(Governed::CountTokens)
            }
            [.., "publishers", "anthropic", "models", last]
                if last.ends_with(":rawpredict") || last.ends_with(":streamrawpredict") =>
            {
                Some(Governed::Messages)
            }
            _ => None,
        }
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
        fn the_path_of_chat_completions_is_known_in_any_spelling(path in any_spelling(&["chat", "completions"])) {
            prop_assert_eq!(governed(&path), Some(Governed::ChatCompletions), "{}", path);
        }

        #[test]
        fn the_path_of_responses_is_known_in_any_spelling(path in any_spelling(&["responses"])) {
            prop_assert_eq!(governed(&path), Some(Governed::Responses), "{}", path);
        }

        #[test]
        fn the_path_of_messages_is_known_in_any_spelling(path in any_spelling(&["messages"])) {
            prop_assert_eq!(governed(&path), Some(Governed::Messages), "{}", path);
        }

        #[test]
        fn no_spelling_of_another_path_is_taken_for_a_governed_one(
            path in prop_oneof![
                any_spelling(&["chat", "completions-x"]),
                any_spelling(&["xchat", "completions"]),
                any_spelling(&["completions"]),
                any_spelling(&["chat"]),
                any_spelling(&["completions", "chat"]),
                any_spelling(&["embeddings"]),
                any_spelling(&["responses-x"]),
                any_spelling(&["xresponses"]),
                any_spelling(&["response"]),
                any_spelling(&["message"]),
            ],
        ) {
            prop_assert_eq!(governed(&path), None, "{}", path);
        }

        #[test]
        fn a_path_is_governed_exactly_if_one_of_many_servers_takes_it_for_a_governed_one(
            parts in prop::collection::vec(
                select(vec![
                    "/", "/", "\\", "%2f", "%5C", "%252F", "chat", "chat/completions", "completions", "ChaT", "%63hat",
                    "complet%2569ons", "responses", "responses", "Re%73ponses", "messages", "message%2573", "threads", "count_tokens",
                    ";", ";a", ".", "..", "/../", "%2e%2e", "x", "?", "%3f", "%23", "%00", "%25",
                    "%", "2f", "%2525252f",
                ]),
                0..9,
            ),
        ) {
            let path = format!("/{}", parts.concat()).replace('?', "%3F");
            let takes = |steps: String| served(&path, &steps).map(|endpoint| (endpoint, steps));
            let taken: Vec<(Governed, String)> = servers().into_iter().filter_map(takes).collect();
            let expected = taken.iter().map(|(endpoint, _)| *endpoint).min();
            prop_assert_eq!(governed(&path), expected, "{} by {:?}", path, taken);
        }
    }
}
