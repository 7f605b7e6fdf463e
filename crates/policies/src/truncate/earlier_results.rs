//! Repeated results: a result that equals an earlier one is replaced by a pointer to it. Finds the earlier result and
//! writes the pointer. It does not decide what happens to a pointer whose original is cleared later: the plan names
//! the original's message, and the code that applies the plan decides.

use super::super::texts::{Text, Texts};
use model::calls::Call;
use model::identity::{Domain, Hash};
use model::source::{ItemId, SourceSpan};
use model::{ToolResult, View};
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::Arc;
use wire::body::Str;
use wire::escaped_text::EscapedText;
use wire::json::{decode, respelled};

/// A shorter result is not much longer than the pointer, and easier to read.
const MIN_BYTES: usize = 400;

/// The pointer.
pub(super) const REPEATED: Text = Text {
    key: "repeated",
    default: "[toolrein: the same {chars} {chars:character/characters} as the result of call {call} of this conversation (number {number} \
              of {tool}); see there]",
    placeholders: &["chars", "call", "number", "tool"],
};

/// The results of one conversation so far.
#[derive(Clone, Default)]
pub struct EarlierResults {
    /// Calls so far, in all and by tool.
    calls: usize,
    calls_of: BTreeMap<Arc<str>, usize>,
    /// The calls of the last reply: the ordinal among all, and the calls of the tool up to this one.
    reply: Vec<(usize, ToolCalls)>,
    reply_message: usize,
    /// The kinds so far, each with its only text, as long as that is not in `results`. Few conversations have two texts of
    /// one kind, and so most texts are neither hashed nor compared.
    kinds: BTreeMap<Kind, Option<OnlyText>>,
    /// The texts of kinds with several texts, and those with unusual escapes, by their hashes.
    results: HashMap<Hash, Original>,
}

/// The calls of one tool.
#[derive(Clone)]
struct ToolCalls {
    tool: Arc<str>,
    made: usize,
}

/// A cheap fingerprint of a text from a few of its bytes: equal texts have equal ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    bytes: usize,
    middle: u64,
    end: u64,
}

impl Kind {
    /// The kind of a text of more than [`MIN_BYTES`], as [`respelled`].
    fn of(raw: &[u8]) -> Self {
        let eight = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let end = &raw[raw.len().saturating_sub(8)..];
        Self { bytes: raw.len(), middle: eight(&raw[raw.len() / 2..]), end: eight(end) }
    }
}

/// The only text of a kind so far, written without unusual escapes.
#[derive(Clone)]
struct OnlyText {
    text: SourceSpan,
    original: Original,
}

/// A result that the model reads.
#[derive(Clone)]
struct Original {
    item: ItemId,
    /// The index of its message.
    message: usize,
    /// The longest text that is shown of it, in characters.
    limit: usize,
    /// The call's ordinal among all.
    ordinal: usize,
    /// The calls of its tool up to it.
    of_tool: ToolCalls,
}

/// The text that replaces a repeated result.
pub(super) struct Pointer {
    pub(super) text: EscapedText,
    /// Characters of the result.
    pub(super) gone_chars: usize,
    /// The item that it points to.
    pub(super) original: ItemId,
}

impl EarlierResults {
    /// A call was made.
    pub(super) fn call(&mut self, call: &Call) {
        if call.message != self.reply_message {
            self.reply.clear();
            self.reply_message = call.message;
        }
        self.calls += 1;
        let made = self.calls_of.entry(Arc::clone(&call.name)).or_default();
        *made += 1;
        self.reply.push((self.calls, ToolCalls { tool: Arc::clone(&call.name), made: *made }));
    }

    /// The pointer to an earlier result that equals this `text` of `result` and is shown no shorter; if there
    /// is none, this one is remembered. `limit`: what may be shown of it, in characters.
    pub(super) fn pointer(
        &mut self,
        result: &ToolResult<'_>,
        text: Str,
        limit: usize,
        texts: &Texts,
    ) -> Option<Pointer> {
        let view = &result.view;
        let spelled = respelled(text, view.body);
        // A result without a call cannot be named in a pointer.
        let call = result.call.filter(|_| spelled.len() > MIN_BYTES)?;
        // A text of fewer bytes is not cut.
        let limit = if spelled.len() <= limit { usize::MAX } else { limit };
        let own = || {
            let (ordinal, of_tool) = self.reply.get(call.position)?.clone();
            Some(Original { item: view.id, message: view.index, limit, ordinal, of_tool })
        };
        let content = || match &spelled {
            Cow::Borrowed(_) => view.text_digest(text),
            Cow::Owned(spelled) => digest_of(view, spelled),
        };
        match self.kinds.entry(Kind::of(&spelled)) {
            Entry::Vacant(kind) => {
                let original = own()?;
                if text.unusual {
                    self.results.insert(content(), original);
                    kind.insert(None);
                } else {
                    kind.insert(Some(OnlyText { text: SourceSpan::new(view.id, text.span), original }));
                }
                return None;
            }
            Entry::Occupied(mut kind) => {
                if let Some(first) = kind.get_mut().take() {
                    self.results.insert(digest_of(view, first.text.of(view.sources())), first.original);
                }
            }
        }
        let content = content();
        let known = self.results.get(&content);
        let Some(original) = known.filter(|known| known.message < view.index && known.limit >= limit) else {
            self.results.insert(content, own()?);
            return None;
        };
        // Counting the characters looks at all of them.
        let key = view
            .identity()
            .key
            .hash(Domain::Cut, &[&content.0.to_le_bytes(), original.sentence(0, texts).as_bytes()]);
        let pointer = view.memo().derive(key, || {
            let decoded = decode(text, view.body);
            let chars = decoded.chars().count();
            Some((EscapedText::from(original.pointer(&decoded, chars, texts)), chars))
        });
        let (text, gone_chars) = (*pointer).clone()?;
        Some(Pointer { text, gone_chars, original: original.item })
    }
}

/// As [`View::text_digest`], for a text that is none of the item's.
fn digest_of(view: &View<'_>, text: &[u8]) -> Hash {
    view.identity().key.hash(Domain::Text, &[text])
}

impl Original {
    /// Points to the result, which has so many characters.
    fn sentence(&self, chars: usize, texts: &Texts) -> String {
        let Self { ordinal, of_tool: ToolCalls { tool, made }, .. } = self;
        let values: [(&str, &dyn Display); 4] =
            [("chars", &chars), ("call", ordinal), ("number", made), ("tool", tool)];
        texts.fill(&REPEATED, &values)
    }

    /// The pointer in the form of the text that it replaces: a JSON object or array stays one.
    fn pointer(&self, text: &str, chars: usize, texts: &Texts) -> String {
        let sentence = self.sentence(chars, texts);
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => serde_json::json!({ "toolrein": sentence }).to_string(),
            Some(b'[') => serde_json::json!([sentence]).to_string(),
            _ => sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cases::{plan_of, policy};
    use crate::truncate::Truncate;
    use model::plan::{Change, Edit};
    use model::testing::{SampleItem, SampleRequest, call, reply, result, user};
    use serde_json::Value;

    /// Per result the pointer and its original, for results of these tools in one conversation, a reply each: the texts
    /// of each result.
    fn pointers_in_parts(config: &str, results: &[(&str, &[&str])]) -> Vec<Option<(String, usize)>> {
        let mut items = vec![user("q")];
        for (at, (tool, texts)) in results.iter().enumerate() {
            let id = format!("c{at}");
            items.push(reply([call(&id, tool, "{}")]));
            items.push(texts.iter().fold(SampleItem::result_of(&id), |item, text| item.text(text)));
        }
        let plan = plan_of(&policy::<Truncate>(config), &SampleRequest::new(&items));
        let mut found = vec![None; results.len()];
        for edit in plan.edits {
            if let Change::Point { text, by, gone_chars, original } = edit.change {
                assert_eq!(gone_chars, results[edit.item.index / 2 - 1].1[text].chars().count());
                found[edit.item.index / 2 - 1] = Some((by.to_string(), original.index));
            }
        }
        found
    }

    /// The same for results of one text.
    fn pointers(config: &str, results: &[(&str, &str)]) -> Vec<Option<(String, usize)>> {
        let texts: Vec<_> = results.iter().map(|(tool, text)| (*tool, std::slice::from_ref(text))).collect();
        pointers_in_parts(config, &texts)
    }

    fn long(word: &str) -> String {
        format!("{word} ").repeat(300)
    }

    #[test]
    fn an_equal_result_points_to_the_first_by_the_number_of_its_call() {
        let [a, b, c] = ["a", "b", "c"].map(long);
        let found = pointers("", &[("list", &b), ("read", &a), ("list", &a), ("read", &a), ("read", &c)]);
        let pointer = "[toolrein: the same 600 characters as the result of call 2 of this conversation (number 1 of \
                       read); see there]";
        assert_eq!(found, [None, None, Some((pointer.to_owned(), 4)), Some((pointer.to_owned(), 4)), None]);
    }

    #[test]
    fn equal_results_are_found_however_the_client_spells_each_of_them() {
        let words = "many words ".repeat(40);
        let spellings = [r#"é/\n\b\u001b\""#, r#"\u00e9\/\u000a\u0008\u001B\u0022"#]
            .map(|end| format!("\"{words}{end}\""));
        for [first, second] in [[0, 1], [1, 0]] {
            let item = |id, spelling: usize| SampleItem::result_of(id).raw_text(&spellings[spelling]);
            let calls = ["a", "b"].map(|id| reply([call(id, "f", "{}")]));
            let [one, other] = calls;
            let request = SampleRequest::new(&[user("q"), one, item("a", first), other, item("b", second)]);
            let edits = plan_of(&policy::<Truncate>(""), &request).edits;
            assert!(matches!(edits[..], [Edit { change: Change::Point { .. }, .. }]), "{edits:?}");
        }
    }

    #[test]
    fn no_pointer_replaces_short_changed_or_exempt_results() {
        let (short, a, other) = ("a".repeat(400), long("a"), long("A"));
        let same = [("f", a.as_str()), ("f", &a)];
        assert_eq!(pointers("", &[("f", &short), ("f", &short)]), [None, None]);
        assert_eq!(pointers("", &[("f", &a), ("f", &other)]), [None, None]);
        assert_eq!(pointers("duplicates = false", &same), [None, None]);
        assert_eq!(pointers("tools = { f = 0 }", &same), [None, None]);
    }

    #[test]
    fn results_that_differ_in_one_byte_are_not_taken_for_equal() {
        let text = |at: usize| {
            let mut text = "some words ".repeat(60);
            text.replace_range(at..=at, "X");
            text
        };
        let places = [0, 100, 340, 650, 100, 340];
        let texts = places.map(text);
        let results = texts.each_ref().map(|text| ("f", text.as_str()));
        let originals: Vec<_> =
            pointers("", &results).into_iter().map(|found| found.map(|found| found.1)).collect();
        assert_eq!(originals, [None, None, None, None, Some(4), Some(6)]);
    }

    #[test]
    fn json_is_replaced_by_json_and_parts_count_like_whole_texts() {
        let object = format!("{{\"a\":\"{}\"}}", "x".repeat(500));
        let array = format!(" [\"{}\"]", "x".repeat(500));
        let (object, array) = (object.as_str(), array.as_str());
        let found = pointers_in_parts(
            "",
            &[("f", &[object]), ("f", &[array]), ("g\"", &["s", object]), ("f", &[array])],
        );
        let value = |at: usize| serde_json::from_str::<Value>(&found[at].as_ref().unwrap().0).unwrap();
        assert!(
            value(2)["toolrein"].as_str().unwrap().contains("call 1 of this conversation (number 1 of f)")
        );
        assert!(value(3)[0].as_str().unwrap().contains("call 2 of this conversation (number 2 of f)"));
    }

    #[test]
    fn nothing_points_to_what_was_cut_shorter() {
        let text = long("many words");
        let config = "max_chars = 1000\ntools = { all = 0, much = 1500 }";
        let shown = |tools: &[&str]| -> Vec<Option<usize>> {
            let results: Vec<(&str, &str)> = tools.iter().map(|tool| (*tool, text.as_str())).collect();
            pointers(config, &results).into_iter().map(|found| found.map(|(_, original)| original)).collect()
        };
        assert_eq!(shown(&["f", "much", "f", "much"]), [None, None, Some(4), Some(4)]);
        assert_eq!(shown(&["much", "f"]), [None, Some(2)]);
        assert_eq!(shown(&["f", "all", "much"]), [None, None, Some(4)]);
    }

    #[test]
    fn equal_results_of_one_reply_point_to_the_first_of_them() {
        let text = long("a");
        let both = reply([call("a", "f", "{}"), call("b", "f", "{}")]);
        let request = SampleRequest::new(&[user("q"), both, result("b", &text), result("a", &text)]);
        let edits = plan_of(&policy::<Truncate>(""), &request).edits;
        assert_eq!(edits.len(), 1);
        let Change::Point { by, original, .. } = &edits[0].change else { panic!("{edits:?}") };
        assert_eq!(original.index, 2);
        assert!(by.contains("call 2 of this conversation (number 2 of f)"), "{by}");
    }
}
