//! The texts of a chunk or of a whole reply of chat completions, for the filter of final answers.

use crate::chat::completion::Reply;
use crate::markup::TextCleaner;
use bytes::Bytes;
use wire::body::Str;
use wire::splice::Splices;

/// The data of a chunk without call markup, and held text that goes out before it, by choice. In a `whole` reply all text
/// ends; else a text ends with the finish of its choice.
pub(super) fn clean(
    cleaner: &mut TextCleaner<u32>,
    data: &Bytes,
    reply: &Reply,
    whole: bool,
) -> (Bytes, Vec<(u32, String)>) {
    let (mut splices, mut before) = (Splices::default(), Vec::new());
    for choice in &reply.choices {
        let texts: Vec<Str> = choice.delta.content.texts().collect();
        if whole {
            cleaner.clean_whole(&texts, data, &mut splices);
            continue;
        }
        let ends = choice.finish.is_some();
        for (nth, text) in texts.iter().enumerate() {
            let is_last = nth + 1 == texts.len();
            cleaner.clean_piece(choice.index, *text, is_last && ends, data, &mut splices);
        }
        if ends {
            before.extend(cleaner.end(|index| *index == choice.index));
        }
    }
    let data = if splices.is_empty() { data.clone() } else { splices.apply(data).join() };
    (data, before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::completion::Form;
    use crate::markup::ToolNames;

    fn cleaner() -> TextCleaner<u32> {
        TextCleaner::new(ToolNames::default())
    }

    fn cleaned(body: &Bytes) -> Bytes {
        let reply = Reply::read(body, Form::Whole).unwrap();
        clean(&mut cleaner(), body, &reply, true).0
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
        let mut cleaner = cleaner();
        let mut event = |delta: &str, finish: &str| {
            let data = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#);
            let data = Bytes::from(data);
            let reply = Reply::parse(&data).unwrap();
            let (data, before) = clean(&mut cleaner, &data, &reply, false);
            let delta = Reply::parse(&data).unwrap().choices[0].delta.span.of(&data).to_vec();
            (String::from_utf8(delta).unwrap(), before)
        };
        assert_eq!(event(r#"{"content":"a <to"}"#, "null"), (r#"{"content":"a "}"#.to_owned(), vec![]));
        assert_eq!(event("{}", "\"stop\""), ("{}".to_owned(), vec![(0, "<to".to_owned())]));
        let both = event(r#"{"content":"a <to"}"#, "\"stop\"");
        assert_eq!(both, (r#"{"content":"a <to"}"#.to_owned(), vec![]));
        event(r#"{"content":"b <to"}"#, "null");
        assert_eq!(cleaner.end(|_| true), [(0, "<to".to_owned())]);
        assert_eq!(cleaner.end(|_| true), []);
    }
}
