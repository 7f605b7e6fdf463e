//! The markup filter of a final answer: removes calls that the model wrote as text from stream events and whole
//! replies. `dialect::markup` recognises the markup; this module edits the JSON. Bytes without markup stay.

use crate::dialect::chat::completion::{Choice, Reply};
use crate::dialect::markup::{Markup, ToolNames};
use bytes::Bytes;
use std::sync::Arc;
use wire::json::{decode, escaped};
use wire::splice::Splices;

/// The filters of one reply's choices.
#[derive(Debug)]
pub(super) struct Cleaner {
    tools: Arc<ToolNames>,
    choices: Vec<(u32, Markup)>,
}

impl Cleaner {
    /// A filter of texts in which the model may have written calls of these tools.
    pub(super) fn new(tools: ToolNames) -> Self {
        Self { tools: Arc::new(tools), choices: Vec::new() }
    }

    /// The data of a chunk without markup, and held text that goes out before it. With a `whole` reply all text ends.
    pub(super) fn clean(&mut self, data: &Bytes, reply: &Reply, whole: bool) -> (Bytes, Vec<(u32, String)>) {
        let (mut splices, mut before) = (Splices::default(), Vec::new());
        for choice in &reply.choices {
            let mut alone = Markup::new(&self.tools);
            let markup = if whole { &mut alone } else { self.markup_of(choice.index) };
            let rest = clean(data, choice, whole || choice.finish.is_some(), markup, &mut splices);
            before.extend(rest.map(|rest| (choice.index, rest)));
        }
        let data = if splices.is_empty() { data.clone() } else { splices.apply(data).join() };
        (data, before)
    }

    /// The reply has ended: returns the held text, by choice.
    pub(super) fn finish(&mut self) -> Vec<(u32, String)> {
        let texts = self.choices.drain(..).map(|(index, mut markup)| (index, markup.finish()));
        texts.filter(|(_, text)| !text.is_empty()).collect()
    }

    fn markup_of(&mut self, index: u32) -> &mut Markup {
        let at = self.choices.iter().position(|(known, _)| *known == index).unwrap_or_else(|| {
            self.choices.push((index, Markup::new(&self.tools)));
            self.choices.len() - 1
        });
        &mut self.choices[at].1
    }
}

/// Removes markup from the texts of a choice. If it `ends`, held text goes out: in its last text, or, if it has none,
/// as the returned value.
fn clean(
    data: &[u8],
    choice: &Choice,
    ends: bool,
    markup: &mut Markup,
    splices: &mut Splices,
) -> Option<String> {
    let mut texts = choice.delta.content.texts().peekable();
    while let Some(text) = texts.next() {
        let said = decode(text, data);
        let mut kept = markup.push(&said);
        if texts.peek().is_none() && ends {
            kept += &markup.finish();
        }
        if said != kept {
            splices.replace(text.span, escaped(&kept));
        }
    }
    let rest = ends.then(|| markup.finish());
    rest.filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::chat::completion::Form;

    fn cleaned(body: &Bytes) -> Bytes {
        let reply = Reply::read(body, Form::Whole).unwrap();
        Cleaner::new(ToolNames::default()).clean(body, &reply, true).0
    }

    #[test]
    fn bytes_without_markup_stay_as_they_are() {
        let body =
            Bytes::from(r#"{"choices":[{"message":{"content":"caf\u00e9 \/ <b>"},"finish_reason":"stop"}]}"#);
        assert_eq!(cleaned(&body), body);
    }

    #[test]
    fn markup_is_cut_out_of_texts_in_every_form_and_spelling() {
        for (content, expected) in [
            (r#""A \u003ctool_call\u003e{\"name\":\"a\"}\u003c/tool_call\u003eB""#, r#""A B""#),
            (r#""[TOOL_CALLS][{\"name\":\"a\"}]""#, r#""""#),
            (
                r#"[{"type":"text","text":"A <tool_"},{"type":"text","text":"call>{\"name\":1}"}]"#,
                r#"[{"type":"text","text":"A "},{"type":"text","text":""}]"#,
            ),
            ("null", "null"),
        ] {
            let body = |content: &str| {
                Bytes::from(format!(r#"{{"choices":[{{"message":{{"content":{content}}}}}],"x":1}}"#))
            };
            assert_eq!(cleaned(&body(content)), body(expected));
        }
    }

    #[test]
    fn held_back_text_is_sent_before_the_finish_reason() {
        let mut cleaner = Cleaner::new(ToolNames::default());
        let mut event = |delta: &str, finish: &str| {
            let data = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#);
            let data = Bytes::from(data);
            let reply = Reply::parse(&data).unwrap();
            let (data, before) = cleaner.clean(&data, &reply, false);
            let delta = Reply::parse(&data).unwrap().choices[0].delta.span.of(&data).to_vec();
            (String::from_utf8(delta).unwrap(), before)
        };
        assert_eq!(event(r#"{"content":"a <to"}"#, "null"), (r#"{"content":"a "}"#.to_owned(), vec![]));
        assert_eq!(event("{}", "\"stop\""), ("{}".to_owned(), vec![(0, "<to".to_owned())]));
        let both = event(r#"{"content":"a <to"}"#, "\"stop\"");
        assert_eq!(both, (r#"{"content":"a <to"}"#.to_owned(), vec![]));
        event(r#"{"content":"b <to"}"#, "null");
        assert_eq!(cleaner.finish(), [(0, "<to".to_owned())]);
        assert_eq!(cleaner.finish(), []);
    }
}
