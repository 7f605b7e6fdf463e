//! Generated requests and streams of known size: conversations with tool results as agents send them, the same
//! bytes on every machine. Makes bytes; measures nothing.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::fmt::Write as _;

/// Calls per turn: too few for a notice of the shipped budget.
const CALLS_A_TURN: usize = 20;
/// The digits of a mark.
const MARK: &str = "00000000";

/// The wire protocol of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// Where requests go.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }
}

/// A request's body, and where in each message the eight digits are that make it another message.
#[derive(Clone)]
pub struct Body {
    pub api: Api,
    pub bytes: Vec<u8>,
    pub marks: Vec<usize>,
}

impl Body {
    /// Makes every message one that was never sent before.
    pub fn renew_all(&mut self, number: u32) {
        for mark in 0..self.marks.len() {
            self.write(mark, number);
        }
    }

    /// Makes the last message another one; the history stays.
    pub fn renew_last(&mut self, number: u32) {
        self.write(self.marks.len() - 1, number);
    }

    fn write(&mut self, mark: usize, number: u32) {
        let at = self.marks[mark];
        self.bytes[at..at + MARK.len()].copy_from_slice(format!("{number:08}").as_bytes());
    }
}

/// The sizes that are measured: their name, bytes, and tool results.
pub const SIZES: [(&str, usize, usize); 4] =
    [("1KB", 1 << 10, 0), ("32KB", 32 << 10, 10), ("256KB", 256 << 10, 60), ("1MB", 1 << 20, 200)];

/// The body of the size `name`.
pub fn sized(name: &str) -> Body {
    let (_, bytes, results) = SIZES.into_iter().find(|(known, ..)| *known == name).unwrap_or(SIZES[0]);
    conversation(bytes, results, false)
}

/// A request of `size` bytes whose history holds so many tool results; without any it is a plain question. The model
/// takes a million tokens, so that nothing need be cleared.
pub fn conversation(size: usize, results: usize, stream: bool) -> Body {
    of_api(Api::Chat, size, results, stream)
}

/// The same by any API. Of the Responses API it is stateless.
pub fn of_api(api: Api, size: usize, results: usize, stream: bool) -> Body {
    let mut text = Text(0x9E37_79B9_7F4A_7C15);
    let mut json = begin(api, stream, &text.prose(if results == 0 { 200 } else { 1500 }));
    if results == 0 {
        let rest = (size - 2).saturating_sub(json.len() + r#",{"role":"user","content":"00000000"}"#.len());
        message(&mut json, "user", &text.prose(rest));
    } else {
        // Each result comes with its call, about 230 bytes of framing.
        let each = (size - json.len() - TOOLS.len()).div_ceil(results).saturating_sub(300);
        for at in 0..results {
            if at % CALLS_A_TURN == 0 {
                message(&mut json, "user", &text.prose(80));
            }
            let content = match at % 3 {
                0 => text.code(each),
                1 => text.rows(each),
                _ => text.prose(each),
            };
            exchange(api, &mut json, at, text.word(), &content);
            if at % CALLS_A_TURN == CALLS_A_TURN - 1 || at == results - 1 {
                message(&mut json, "assistant", &text.prose(120));
            }
        }
        message(&mut json, "user", "and now?");
    }
    end(api, json, results > 0)
}

/// A request that goes on from the upstream's reply of [`RESPONSE_ID`].
pub fn continued() -> Body {
    let mut text = Text(17);
    let mut json = format!(r#"{{"model":"gpt-4.1-mini","previous_response_id":"{RESPONSE_ID}","input":["#);
    message(&mut json, "user", &text.prose(400));
    end(Api::Responses, json, true)
}

/// An agent at work: in one turn ten calls with short results, one whose result has so many bytes, and `then` short
/// ones.
pub fn with_long_result(api: Api, bytes: usize, then: usize) -> Body {
    let mut text = Text(13);
    let mut json = begin(api, false, &text.prose(1500));
    message(&mut json, "user", &text.prose(80));
    for at in 0..11 + then {
        let content = if at == 10 { text.code(bytes) } else { text.prose(2000) };
        exchange(api, &mut json, at, text.word(), &content);
    }
    end(api, json, true)
}

/// The kinds of [`bloated`] results.
pub const BLOATED: [&str; 6] = ["text", "log", "json", "table", "aligned", "base64"];

/// A request whose last tool result has about so many bytes of this `kind`.
pub fn bloated(kind: &str, bytes: usize) -> Vec<u8> {
    let mut text = Text(11);
    let content = match kind {
        "text" => text.prose(bytes),
        "log" => text.filled(bytes, |text, out| {
            let at = text.next(60);
            let level = if at == 7 { "ERROR" } else { "INFO" };
            let _ = write!(out, r"2024-05-01 12:00:{at:02} {level} {} took {at} ms\n", text.word());
        }),
        "json" => format!(r"[{}null]", text.rows(bytes)),
        "table" => {
            format!(r"id,name,state\n{}", text.table(bytes, |out, n, word| write!(out, r"{n},{word},open\n")))
        }
        "aligned" => format!(
            r"NAME         READY   STATUS    AGE\n{}",
            text.table(bytes, |out, n, word| write!(out, r"web-{n:<8} 1/1     {word:<9} 5d\n"))
        ),
        _ => text.filled(bytes, |text, out| {
            const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            out.push(char::from(DIGITS[text.next(64)]));
        }),
    };
    with_result(&content)
}

/// A request whose last tool result has so many bytes, after a short history.
pub fn with_bloated_result(bytes: usize) -> Vec<u8> {
    with_result(&Text(7).code(bytes))
}

fn with_result(content: &str) -> Vec<u8> {
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"readFile","arguments":"{}"}}]}"#;
    format!(
        r#"{{"model":"gpt-4o-mini","messages":[{{"role":"user","content":"q"}},{call},{{"role":"tool","tool_call_id":"c","content":"{content}"}}]{TOOLS}}}"#
    )
    .into_bytes()
}

/// One chunk of a streamed reply as an event: `delta` and `finish` as JSON.
pub fn event(delta: &str, finish: &str) -> Vec<u8> {
    format!(
        "data: {{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,\"model\":\"gpt-4o-mini-2024-07-18\",\"system_fingerprint\":\"fp_06737a9306\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
    )
    .into_bytes()
}

/// A whole reply of about 1 KB.
pub fn reply(api: Api) -> String {
    const TEXT: &str = "An answer of some length that a model might give to a question. An answer of some length that a \
                        model might give to a question. An answer of some length that a model might give to a question.";
    let text = TEXT.repeat(3);
    match api {
        Api::Chat => format!(
            r#"{{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion","created":1741569952,"model":"gpt-4o-mini-2024-07-18","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}","refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0}}}},"service_tier":"default","system_fingerprint":"fp_06737a9306"}}"#
        ),
        Api::Responses => response("completed", &text_item(TEXT)),
        Api::Messages => whole_message(&format!(r#"{{"type":"text","text":"{text}"}}"#), r#""end_turn""#),
    }
}

/// A streamed reply of text: so many events in all.
pub fn stream(api: Api, events: usize) -> Vec<Vec<u8>> {
    match api {
        Api::Chat => text_stream(events - 2),
        Api::Responses => response_stream(events),
        Api::Messages => message_stream(events),
    }
}

/// A streamed reply of so many chunks of text, and its end.
pub fn text_stream(chunks: usize) -> Vec<Vec<u8>> {
    let mut text = Text(3);
    let mut events = vec![event(r#"{"role":"assistant","content":"","refusal":null}"#, "null")];
    events.extend((1..chunks).map(|_| event(&format!("{{\"content\":\" {}\"}}", text.word()), "null")));
    events.push(event("{}", "\"stop\""));
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

/// The id of every reply of the Responses API.
pub const RESPONSE_ID: &str = "resp_68a1b7d1c0a481919f3f2d4b6c8e0a12";

/// A response with this `output`.
fn response(status: &str, output: &str) -> String {
    let instructions = Text(23).prose(100);
    format!(
        r#"{{"id":"{RESPONSE_ID}","object":"response","created_at":1741570283,"status":"{status}","error":null,"incomplete_details":null,"instructions":"{instructions}","model":"gpt-4.1-mini-2025-04-14","output":[{output}],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{{"effort":null,"summary":null}},"store":true,"temperature":0.2,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],"usage":{{"input_tokens":19,"input_tokens_details":{{"cached_tokens":0}},"output_tokens":10,"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":29}}}}"#
    )
}

fn text_item(text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"msg_68a1b7d2","role":"assistant","status":"completed","content":[{{"type":"output_text","text":"{text}","annotations":[],"logprobs":[]}}]}}"#
    )
}

/// A message of the Messages API with this `content`.
fn whole_message(content: &str, stop_reason: &str) -> String {
    format!(
        r#"{{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[{content}],"stop_reason":{stop_reason},"stop_sequence":null,"usage":{{"input_tokens":19,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}},"output_tokens":10,"service_tier":"standard"}}}}"#
    )
}

/// A streamed reply of the Messages API: so many events in all.
fn message_stream(events: usize) -> Vec<Vec<u8>> {
    let mut text = Text(3);
    let event = |kind: &str, members: &str| {
        format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{members}}}\n\n").into_bytes()
    };
    let mut all = vec![
        event("message_start", &format!(r#","message":{}"#, whole_message("", "null"))),
        event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
        event("ping", ""),
    ];
    all.extend((6..events).map(|_| {
        let delta = format!(r#","index":0,"delta":{{"type":"text_delta","text":" {}"}}"#, text.word());
        event("content_block_delta", &delta)
    }));
    all.extend([
        event("content_block_stop", r#","index":0"#),
        event(
            "message_delta",
            r#","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":194}"#,
        ),
        event("message_stop", ""),
    ]);
    all
}

/// A streamed reply of the Responses API: so many events in all.
fn response_stream(events: usize) -> Vec<Vec<u8>> {
    let mut text = Text(3);
    let mut number = 0;
    let mut event = |kind: &str, members: &str| {
        number += 1;
        format!(
            r#"event: {kind}
data: {{"type":"{kind}","sequence_number":{},{members}}}

"#,
            number - 1
        )
        .into_bytes()
    };
    let life = |status: &str, output: &str| format!(r#""response":{}"#, response(status, output));
    let at = r#""item_id":"msg_68a1b7d2","output_index":0,"content_index":0"#;
    let part =
        |text: &str| format!(r#"{at},"part":{{"type":"output_text","text":"{text}","annotations":[]}}"#);
    let begun = r#""output_index":0,"item":{"type":"message","id":"msg_68a1b7d2","role":"assistant","status":"in_progress","content":[]}"#;
    let mut all = vec![
        event("response.created", &life("in_progress", "")),
        event("response.in_progress", &life("in_progress", "")),
        event("response.output_item.added", begun),
        event("response.content_part.added", &part("")),
    ];
    let mut said = String::new();
    for _ in 8..events {
        let word = text.word();
        let _ = write!(said, " {word}");
        all.push(event("response.output_text.delta", &format!(r#"{at},"delta":" {word}","logprobs":[]"#)));
    }
    let item = text_item(&said);
    all.push(event("response.output_text.done", &format!(r#"{at},"text":"{said}","logprobs":[]"#)));
    all.push(event("response.content_part.done", &part(&said)));
    all.push(event("response.output_item.done", &format!(r#""output_index":0,"item":{item}"#)));
    all.push(event("response.completed", &life("completed", &item)));
    all
}

/// A streamed reply of one tool call whose arguments come in so many chunks.
pub fn call_stream(chunks: usize) -> Vec<Vec<u8>> {
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_x","type":"function","function":{"name":"writeFile","arguments":""}}]}"#;
    let piece = |text: &str| {
        event(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{text}"}}}}]}}"#), "null")
    };
    let mut text = Text(5);
    let mut events = vec![event(call, "null"), piece(r#"{\"text\":\""#)];
    events.extend((3..chunks).map(|_| piece(&format!(" {}", text.word()))));
    events.extend([piece(r#"\"}"#), event("{}", "\"tool_calls\""), b"data: [DONE]\n\n".to_vec()]);
    events
}

/// Some tools, as agents declare them with every request.
const TOOLS: &str = r#","tools":[{"type":"function","function":{"name":"readFile","description":"Reads a file of the project and gives its lines with their numbers.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"Relative to the project."},"limit":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}}},{"type":"function","function":{"name":"listFolder","description":"Lists a folder.","parameters":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}}},{"type":"function","function":{"name":"findText","description":"Finds a text in all files.","parameters":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}}}]"#;

/// A request up to its instructions.
fn begin(api: Api, stream: bool, system: &str) -> String {
    let mut json = format!(r#"{{"model":"gpt-4.1-mini","temperature":0.2,"stream":{stream},"#);
    match api {
        Api::Chat => json.push_str(r#""messages":["#),
        Api::Responses => json.push_str(r#""store":false,"input":["#),
        Api::Messages => {
            let _ = write!(json, r#""max_tokens":4096,"system":"{MARK}{system}","messages":["#);
            return json;
        }
    }
    message(&mut json, "system", system);
    json
}

fn message(json: &mut String, role: &str, content: &str) {
    let comma = if json.ends_with('[') { "" } else { "," };
    let _ = write!(json, r#"{comma}{{"role":"{role}","content":"{MARK}{content}"}}"#);
}

/// A call and its result; three tools take turns.
fn exchange(api: Api, json: &mut String, at: usize, file: &str, content: &str) {
    let tool = ["readFile", "listFolder", "findText"][at % 3];
    let arguments = format!(r#"{{"path":"src/{MARK}/{file}.rs","limit":{at}}}"#);
    let text = arguments.replace('"', r#"\""#);
    let id = format!("call_{MARK}_{at}");
    let _ = match api {
        Api::Chat => write!(
            json,
            r#",{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"{tool}","arguments":"{text}"}}}}]}},{{"role":"tool","tool_call_id":"{id}","content":"{MARK}{content}"}}"#,
        ),
        Api::Responses => write!(
            json,
            r#",{{"type":"function_call","id":"fc_{MARK}_{at}","call_id":"{id}","name":"{tool}","arguments":"{text}","status":"completed"}},{{"type":"function_call_output","call_id":"{id}","output":"{MARK}{content}"}}"#,
        ),
        Api::Messages => write!(
            json,
            r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"{tool}","input":{arguments}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{MARK}{content}"}}]}}"#,
        ),
    };
}

fn end(api: Api, mut json: String, has_tools: bool) -> Body {
    json.push(']');
    if has_tools {
        json.push_str(&tools(api));
    }
    json.push('}');
    let marks = json.match_indices(MARK).map(|(at, _)| at).collect();
    Body { api, bytes: json.into_bytes(), marks }
}

/// The declared tools: only chat completions have an object around each function.
fn tools(api: Api) -> String {
    let bare = || TOOLS.replace(r#""function":{"#, "").replace("}}}", "}}");
    match api {
        Api::Chat => TOOLS.to_owned(),
        Api::Responses => bare(),
        Api::Messages => bare().replace(r#""type":"function","#, "").replace("parameters", "input_schema"),
    }
}

/// Text out of a small generator, escaped as inside a JSON string.
struct Text(u64);

impl Text {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % below
    }

    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 24] = [
            "the",
            "request",
            "of",
            "policy",
            "and",
            "transcript",
            "a",
            "budget",
            "in",
            "result",
            "to",
            "window",
            "call",
            "is",
            "stream",
            "value",
            "with",
            "handler",
            "for",
            "error",
            "index",
            "body",
            "that",
            "limit",
        ];
        WORDS[self.next(WORDS.len())]
    }

    fn prose(&mut self, bytes: usize) -> String {
        self.filled(bytes, |text, out| {
            for _ in 0..12 {
                let _ = write!(out, "{} ", text.word());
            }
            out.push_str(r"\n");
        })
    }

    fn code(&mut self, bytes: usize) -> String {
        self.filled(bytes, |text, out| {
            let (a, b, c) = (text.word(), text.word(), text.word());
            let _ =
                write!(out, r#"    let {a} = self.{b}(\"{c}\", {}).unwrap_or_default();\n"#, text.next(1000));
        })
    }

    fn rows(&mut self, bytes: usize) -> String {
        self.filled(bytes, |text, out| {
            let (a, b) = (text.word(), text.word());
            let _ =
                write!(out, r#"{{\"id\": {}, \"name\": \"{a} {b}\", \"open\": true}},\n"#, text.next(9999));
        })
    }

    /// Whole rows of about so many bytes, each of a number and a word.
    fn table(&mut self, bytes: usize, row: impl Fn(&mut String, usize, &str) -> std::fmt::Result) -> String {
        let mut out = String::with_capacity(bytes + 200);
        while out.len() < bytes {
            let _ = row(&mut out, self.next(9999), self.word());
        }
        out
    }

    /// Lines until there are so many bytes; the last one is cut where no escape is.
    fn filled(&mut self, bytes: usize, line: impl Fn(&mut Self, &mut String)) -> String {
        let mut out = String::with_capacity(bytes + 200);
        while out.len() < bytes {
            line(self, &mut out);
        }
        out.truncate(bytes);
        while out.ends_with('\\') {
            out.pop();
        }
        out
    }
}
