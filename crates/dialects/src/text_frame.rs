//! A frame of a stream that says a text and no more. The next event mostly differs from its event in that text alone: then
//! it is compared with that event and not parsed. It is parsed wherever a reader of JSON could find anything else in it.

use crate::codec::{Frame, FrameKind, FramePart, Payload, ReplyEvent, ReplyEvents};
use crate::reply_choice::{ReplyChoice, Visibility};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::body::Span;

/// Longest event that is kept, in bytes.
const MOST_BYTES: usize = 4 * 1024;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct TextFrame {
    /// Its event; empty where the frame before says more than a text.
    event: Vec<u8>,
    /// The values in which the next event may differ, in order: strings between their quotes, and numbers.
    values: Values,
    /// The position of the text among them.
    text: usize,
    /// Where the event's JSON is.
    payload: Span,
    /// What it says: the text last.
    events: ReplyEvents,
    tag: Option<u16>,
}

/// Values of an event, as spans of it.
pub(crate) type Values = SmallVec<[Span; 3]>;

/// Whether an event ends with a blank line, and its bytes with a LF: then nothing that follows can belong to it.
fn is_ended(event: &[u8]) -> bool {
    event.ends_with(b"\n\n") || event.ends_with(b"\n\r\n")
}

impl TextFrame {
    /// Whether a frame is kept.
    pub(crate) fn is_known(&self) -> bool {
        !self.event.is_empty()
    }

    /// Forgets the frame: another one follows.
    pub(crate) fn forget(&mut self) {
        self.event.clear();
    }

    /// Keeps a frame that was parsed, if it says a text and no more. `others`: further strings and numbers of its JSON in
    /// which the next one may differ.
    pub(crate) fn keep(&mut self, frame: &Frame, others: impl IntoIterator<Item = Span>) {
        self.forget();
        let Payload::Span(payload) = frame.payload else { return };
        let is_kept = frame.raw.len() <= MOST_BYTES && is_ended(&frame.raw);
        let Some(text) = text_of(frame).filter(|_| is_kept) else { return };
        let place = |value: Span| Span { start: value.start + payload.start, end: value.end + payload.start };
        self.values.clear();
        self.values.extend(others.into_iter().chain([text]).map(place));
        self.values.sort_unstable_by_key(|value| value.start);
        self.text = self.values.iter().position(|value| *value == place(text)).unwrap_or_default();
        (self.payload, self.tag) = (payload, frame.tag);
        self.events.clone_from(&frame.events);
        self.event.extend_from_slice(&frame.raw);
        // Escapes elsewhere may be those of a name, which is then another one to some readers.
        if self.has_escape_elsewhere() || self.fit(&frame.raw).is_none_or(|(_, values)| values != self.values)
        {
            self.forget();
        }
    }

    fn has_escape_elsewhere(&self) -> bool {
        let escapes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\\').count();
        let inside: usize = self.values.iter().map(|value| escapes(value.of(&self.event))).sum();
        escapes(&self.event) > inside
    }

    /// The length and the values of the event at the start of `stream`, if it differs from the one that is kept in them alone,
    /// and no reader can find anything but a text in it.
    pub(crate) fn fit(&self, stream: &[u8]) -> Option<(usize, Values)> {
        if !self.is_known() || stream.is_empty() {
            return None;
        }
        let (mut from, mut rest, mut values) = (0, stream, Values::new());
        for value in &self.values {
            rest = rest.strip_prefix(self.event.get(from..value.start as usize)?)?;
            let start = stream.len() - rest.len();
            let is_string = self.event.get(value.end as usize) == Some(&b'"');
            let length = if is_string { string_length(rest)? } else { number_length(rest)? };
            values.push(Span::new(start, start + length));
            (from, rest) = (value.end as usize, &rest[length..]);
        }
        rest = rest.strip_prefix(&self.event[from..])?;
        Some((stream.len() - rest.len(), values))
    }

    /// The frame of an event with these `values`.
    pub(crate) fn with(&self, raw: Bytes, values: &Values) -> Frame {
        let after = self.event.len() - self.payload.end as usize;
        let payload = Span::new(self.payload.start as usize, raw.len() - after);
        let text = values[self.text];
        let text = Span { start: text.start - payload.start, end: text.end - payload.start };
        let mut frame = Frame::new(raw, FrameKind::Part);
        (frame.payload, frame.tag) = (Payload::Span(payload), self.tag);
        frame.events = ReplyEvents::from_slice(&self.events);
        if let Some(ReplyEvent::Text(span) | ReplyEvent::TextPiece(span)) = frame.events.last_mut() {
            *span = text;
        }
        frame
    }

    /// The choice that it is about, if the client sees its text.
    pub(crate) fn shown_in<'a>(&self, choices: &'a mut [ReplyChoice]) -> Option<&'a mut ReplyChoice> {
        let index = self.choice()?;
        let choice = choices.iter_mut().find(|choice| choice.index == index)?;
        let is_shown = |event: &ReplyEvent| match event {
            ReplyEvent::OfText(text) => choice.visibility(*text as usize) == Visibility::Shown,
            _ => true,
        };
        self.events.iter().all(is_shown).then_some(choice)
    }

    /// Notes in its choice that the client gets an event with these `values` as it came.
    pub(crate) fn note_passed(&self, event: &[u8], values: &Values, choice: &mut ReplyChoice) {
        let (text, part) =
            (values[self.text].of(event), FramePart { choice: choice.index, events: &self.events });
        part.texts().for_each(|_| choice.add_text(text));
        part.note_given(choice, |_| text);
    }

    /// The text of an event with these `values`, with its quotes.
    pub(crate) fn quoted_text<'a>(&self, event: &'a [u8], values: &Values) -> &'a [u8] {
        let text = values[self.text].range();
        &event[text.start - 1..=text.end]
    }

    /// The value of an event with these `values` that is in place of the one at `part` of its JSON.
    pub(crate) fn same_value(&self, part: Span, values: &Values) -> Option<Span> {
        let start = part.start + self.payload.start;
        self.values.iter().position(|value| value.start == start).map(|at| values[at])
    }

    /// Where a part of its JSON is in that of an event with these `values`: one of them, or what does not differ.
    pub(crate) fn moved(&self, part: Span, values: &Values) -> Span {
        let (start, mut moved) = (part.start + self.payload.start, part);
        for (known, new) in self.values.iter().zip(values) {
            if known.start < start {
                moved = Span { start: part.start + new.end - known.end, end: part.end + new.end - known.end };
            } else if known.start == start {
                moved.end = moved.start + new.end - new.start;
            }
        }
        moved
    }

    /// Its [`Frame::tag`]; `None` where no frame is kept.
    pub(crate) fn tag(&self) -> Option<u16> {
        self.tag.filter(|_| self.is_known())
    }

    /// The choice that it is about.
    pub(crate) fn choice(&self) -> Option<u32> {
        self.events
            .first()
            .and_then(|event| if let ReplyEvent::Choice(index) = event { Some(*index) } else { None })
    }
}

/// The text of a frame that says no more, as a span of its JSON.
fn text_of(frame: &Frame) -> Option<Span> {
    let part = frame.text_alone()?;
    let is_text = |event: &&ReplyEvent| matches!(event, ReplyEvent::Text(_) | ReplyEvent::TextPiece(_));
    match part.events.last() {
        Some(ReplyEvent::Text(text) | ReplyEvent::TextPiece(text)) => {
            Some(*text).filter(|_| part.events.iter().filter(is_text).count() == 1)
        }
        _ => None,
    }
}

/// The length of the string at the start of `text`, which goes on with its quote. `None` where it is empty, or where readers
/// may differ on it: `\u` may be half of a character, and what is before a colon may be a field to some.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return (at > 0).then_some(at),
            b'\\' if text.get(at + 1).is_some_and(|letter| br#""\/bfnrt"#.contains(letter)) => at += 2,
            b'\\' | b':' | 0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// The length of the whole number at the start of `text`; `None` where it is none, or one that JavaScript may round.
fn number_length(text: &[u8]) -> Option<usize> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_plain = text.first() != Some(&b'0') || length == 1;
    ((1..=15).contains(&length) && is_plain).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{NextReply, ReplyCodec, WriteContext};
    use crate::reply::{Form, Limits};
    use crate::{AnyDialect, CHAT, MESSAGES, RESPONSES};
    use proptest::prelude::*;

    const FIRST: &str = r#"data: {"id":"a","n":1,"text":"one"}"#;
    /// What ends an event.
    const END: &str = "\n\n";

    fn span_of(text: &str, part: &str) -> Span {
        let at = text.find(part).unwrap() - "data: ".len();
        Span::new(at, at + part.len())
    }

    fn frame(event: &str, text: &str) -> Frame {
        frame_ended_by(event, END, text)
    }

    fn frame_ended_by(event: &str, end: &str, text: &str) -> Frame {
        let mut frame = Frame::new(format!("{event}{end}").into(), FrameKind::Part);
        frame.payload = Payload::Span(Span::new(6, event.len()));
        frame.events.extend([ReplyEvent::Choice(0), ReplyEvent::Text(span_of(event, text))]);
        frame
    }

    /// What the text of `event` is, by the frame of [`FIRST`].
    fn text_by_first(event: &str) -> Option<String> {
        let mut known = TextFrame::default();
        known.keep(&frame(FIRST, "one"), [span_of(FIRST, "1")]);
        let event = Bytes::from(format!("{event}{END}"));
        let (length, values) = known.fit(&event)?;
        assert_eq!(length, event.len());
        let frame = known.with(event, &values);
        let Some(ReplyEvent::Text(text)) = frame.events.last() else { panic!("a text") };
        Some(String::from_utf8(text.of(frame.payload()).to_vec()).unwrap())
    }

    #[test]
    fn an_event_that_differs_in_its_values_alone_has_the_frame_of_the_one_before() {
        for (event, text) in [
            (FIRST, "one"),
            (r#"data: {"id":"a","n":12,"text":"t"}"#, "t"),
            (r#"data: {"id":"a","n":2,"text":"say \"two\"\n"}"#, r#"say \"two\"\n"#),
            (r#"data: {"id":"a","n":2,"text":"zwölf"}"#, "zwölf"),
        ] {
            assert_eq!(text_by_first(event).as_deref(), Some(text), "{event}");
        }
        for event in [
            r#"data: {"id":"b","n":1,"text":"one"}"#,
            r#"data: {"id":"a","n":1,"text":""}"#,
            r#"data: {"id":"a","n":1,"text":"one"} "#,
            r#"data: {"id":"a","n":1,"text":"one","x":"y"}"#,
            r#"data: {"id":"a","n":1,"text":"one\"}"#,
            r#"data: {"id":"a","n":1,"text":"\u0061"}"#,
            r#"data: {"id":"a","n":1,"text":"\x"}"#,
            "data: {\"id\":\"a\",\"n\":1,\"text\":\"\tone\"}",
            r#"data: {"id":"a","n":1,"text":"data: x"}"#,
            r#"data: {"id":"a","n":-1,"text":"one"}"#,
            r#"data: {"id":"a","n":01,"text":"one"}"#,
            r#"data: {"id":"a","n":1.5,"text":"one"}"#,
            r#"data: {"id":"a","n":,"text":"one"}"#,
            r#"data: {"id":"a","n":9999999999999999,"text":"one"}"#,
            r#"data: {"id":"a","n":1"#,
            "",
        ] {
            assert_eq!(text_by_first(event), None, "{event}");
        }
    }

    #[test]
    fn an_event_at_the_start_of_a_stream_is_known_by_its_end() {
        for (end, is_kept) in [(END, true), ("\r\n\r\n", true), ("\n", false), ("\r\r", false), ("", false)] {
            let mut known = TextFrame::default();
            known.keep(&frame_ended_by(FIRST, end, "one"), []);
            assert_eq!(known.is_known(), is_kept, "{end:?}");
            let next = r#"data: {"id":"a","n":1,"text":"the second"}"#;
            let stream = format!("{next}{end}data: {{}}\n\n");
            let length = known.fit(stream.as_bytes()).map(|(length, _)| length);
            assert_eq!(length, is_kept.then_some(next.len() + end.len()), "{end:?}");
            assert_eq!(known.fit(next.as_bytes()), None);
        }
    }

    #[test]
    fn a_frame_that_says_more_than_a_text_is_not_kept() {
        let keeps = |event: &str, text: &str, change: fn(&mut Frame)| {
            let mut known = TextFrame::default();
            known.keep(&frame(FIRST, "one"), []);
            let mut frame = frame(event, text);
            change(&mut frame);
            known.keep(&frame, []);
            known.is_known()
        };
        assert!(keeps(FIRST, "one", |_| {}));
        assert!(keeps(FIRST, "one", |frame| frame.events.insert(1, ReplyEvent::OfText(0))));
        assert!(!keeps(FIRST, "one", |frame| frame.is_doubtful = true));
        assert!(!keeps(FIRST, "one", |frame| frame.usage = Some(Box::default())));
        assert!(!keeps(FIRST, "one", |frame| frame.events.push(ReplyEvent::Finish { is_cut: false })));
        assert!(!keeps(FIRST, "one", |frame| frame.events.insert(1, ReplyEvent::Choice(1))));
        assert!(!keeps(r#"data: {"\u0069d":1,"text":"one"}"#, "one", |_| {}));
        assert!(!keeps(r#"data: {"text":"\u006fne"}"#, r"\u006fne", |_| {}));
        let long = format!(r#"data: {{"id":"{}","text":"one"}}"#, "a".repeat(MOST_BYTES));
        assert!(!keeps(&long, "one", |_| {}));
    }

    const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

    /// Texts as they are in an event.
    const TEXTS: [&str; 20] = [
        "one",
        "two words",
        r"\n",
        r#"\"quoted\""#,
        "zw\u{f6}lf",
        "",
        r"\u0061",
        r"\ud83d",
        "a:b",
        "data: {}",
        "\u{2028}data: {}",
        "error",
        "response.failed",
        "function_call",
        "tool_calls",
        "tool_use",
        "call_id",
        "\t",
        r"\x",
        r"\/",
    ];

    /// Data of events of chat completions; `T` is a text, `N` a number.
    const CHAT_DATA: [&str; 12] = [
        r#"{"id":"x","choices":[{"index":0,"delta":{"content":"T"},"finish_reason":null}]}"#,
        r#"{"id":"x","choices":[{"index":0,"delta":{"content":"T"}}],"obfuscation":"T"}"#,
        r#"{"obfuscation":"T","choices":[{"index":0,"delta":{"role":"assistant","content":"T"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"T","reasoning_content":null}}],"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T","reasoning_content":"T"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T"}}],"\u0065rror":{"message":"m"}}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T"}}],"error":{"message":"T"}}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T"}}],"usage":{"total_tokens":N}}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T","tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T","function_call":{"name":"f","arguments":"T"}}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T"}}],"data":[{"id":"T"}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"T"},"finish_reason":"stop"}]}"#,
    ];

    /// Those of the Responses API.
    const RESPONSES_DATA: [&str; 10] = [
        r#"{"type":"response.output_text.delta","sequence_number":N,"item_id":"m","output_index":0,"delta":"T"}"#,
        r#"{"delta":"T","type":"response.output_text.delta","sequence_number":N,"output_index":0,"obfuscation":"T"}"#,
        r#"{"type":"response.output_text.delta","sequence_number":N,"output_index":7,"delta":"T"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"T","x":{"type":"T"}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"T","\u0078":0}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f","call_id":"c","name":"g","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"sequence_number":N,"delta":"T"}"#,
        r#"{"type":"response.mcp_call_arguments.delta","output_index":2,"sequence_number":N,"delta":"T"}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"mcp_call","id":"p","name":"h"}}"#,
    ];

    /// Those of the Messages API.
    const MESSAGES_DATA: [&str; 9] = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"T"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"T"},"x":{"id":"T"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"T"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"text":"T","more":"T"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"T"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"T"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"T"}}"#,
    ];

    /// The codec of a stream.
    fn codec_of(dialect: AnyDialect, is_strict: bool) -> Box<dyn ReplyCodec> {
        let mut codec = dialect.codec(Form::Streamed, LIMITS);
        codec.begin(NextReply {
            form: Form::Streamed,
            status: 200,
            continues: None,
            is_strict,
            observes: false,
            markup: None,
            tools: None,
            hosts_shell: false,
        });
        codec
    }

    /// What the client gets of a stream of these events, and what is known of it then. `passes`: texts are passed on where no
    /// choice has a call.
    fn give(dialect: AnyDialect, events: &[String], is_strict: bool, passes: bool) -> String {
        let mut codec = codec_of(dialect, is_strict);
        let (mut choices, mut out): (Vec<ReplyChoice>, _) = (Vec::new(), Vec::new());
        for event in events {
            codec.push(Bytes::copy_from_slice(event.as_bytes()));
            loop {
                let has_calls = choices.iter().any(|choice| !choice.calls().is_empty());
                if passes && !has_calls && codec.pass_text(&mut choices, &mut out) {
                    continue;
                }
                let Some(frame) = codec.next(&mut choices, false) else { break };
                codec.forward(&frame, &choices, &WriteContext::default(), &mut out);
                for part in frame.parts() {
                    let known = choices.iter_mut().filter(|choice| choice.index == part.choice);
                    known.for_each(|choice| {
                        let text_at = |text: Span| text.of(frame.payload());
                        part.texts().for_each(|text| choice.add_text(text_at(text)));
                        part.note_given(choice, text_at);
                    });
                }
            }
        }
        format!("{:?} {choices:?} {} {}", out.concat(), codec.known_bytes(), codec.is_changed())
    }

    /// The events of a dialect with these data, texts and numbers, each by its position; mostly the first data, and mostly with
    /// its number.
    fn events_of(dialect: usize, events: &[(usize, usize, u32)]) -> (AnyDialect, Vec<String>) {
        let (dialect, all): (_, &[&str]) =
            [(CHAT, &CHAT_DATA[..]), (RESPONSES, &RESPONSES_DATA[..]), (MESSAGES, &MESSAGES_DATA[..])]
                [dialect];
        let event = |(data, text, number): &(usize, usize, u32)| {
            let data = all.get(data.saturating_sub(16)).unwrap_or(&all[0]);
            let text = TEXTS.get(*text).unwrap_or(&TEXTS[0]);
            let data = data.replace("\"T\"", &format!("\"{text}\"")).replace(":N", &format!(":{number}"));
            format!("event: x\ndata: {data}\n\n")
        };
        (dialect, events.iter().map(event).collect())
    }

    /// What is read of a stream of these events and written again. `apart`: with a comment before each event, so that each is
    /// parsed.
    fn read(dialect: AnyDialect, events: &[String], is_strict: bool, apart: bool) -> Vec<String> {
        let mut codec = codec_of(dialect, is_strict);
        let (mut choices, mut read) = (Vec::new(), Vec::new());
        for event in events {
            if apart {
                codec.push(Bytes::from_static(b": a comment\n\n"));
                while codec.next(&mut choices, false).is_some() {}
            }
            codec.push(Bytes::copy_from_slice(event.as_bytes()));
            while let Some(frame) = codec.next(&mut choices, false) {
                let mut out = Vec::new();
                codec.forward(&frame, &choices, &WriteContext::default(), &mut out);
                read.push(format!("{:?}", (Frame { number: 0, ..frame }, out)));
            }
        }
        read.push(format!("{choices:?} {}", codec.known_bytes()));
        read
    }

    proptest! {
        #[test]
        fn every_event_is_read_as_if_the_one_before_were_unknown(
            dialect in 0..3_usize,
            events in prop::collection::vec((0..40_usize, 0..40_usize, 0..200_u32), 1..12),
            is_strict in any::<bool>(),
        ) {
            let (dialect, events) = events_of(dialect, &events);
            let (together, apart) =
                (read(dialect, &events, is_strict, false), read(dialect, &events, is_strict, true));
            prop_assert_eq!(together, apart, "{:#?}", events);
        }

        #[test]
        fn a_text_that_passes_gives_the_client_and_leaves_known_what_its_frame_would(
            dialect in 0..3_usize,
            events in prop::collection::vec((0..40_usize, 0..40_usize, 0..200_u32), 1..12),
            is_strict in any::<bool>(),
        ) {
            // Texts pass in an item or a block that has begun.
            let mut all = vec![([16, 21, 20][dialect], 0, 0)];
            all.extend(events);
            let (dialect, events) = events_of(dialect, &all);
            let (passed, read) =
                (give(dialect, &events, is_strict, true), give(dialect, &events, is_strict, false));
            prop_assert_eq!(passed, read, "{:#?}", events);
        }
    }
}
