//! A tolerant reader of replies, which shares no code with the program: it finds whatever any client might read as a
//! call. It accepts invalid JSON (a byte order mark, `NaN`, text after the value), each of repeated members, names in
//! any case and form, `message` and `delta`, calls beside errors and after the end, and joins names and arguments as
//! three clients do: the `openai` packages of Python and Node and the Vercel AI SDK.

use std::collections::BTreeMap;

/// A call as a client may run it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub name: String,
    pub arguments: String,
}

/// A JSON value with all that is written, repeated members included.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    Text(String),
    /// Numbers and words, as written.
    Other(String),
}

impl Json {
    /// Every member whose name is `name`, in any case.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Json> {
        let members = if let Self::Object(members) = self { members.as_slice() } else { &[] };
        members.iter().filter(move |(key, _)| folded(key) == name).map(|(_, value)| value)
    }

    fn items(&self) -> &[Json] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// As arguments are read: text unchanged, anything else as JSON.
    fn arguments(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Other(word) if word == "null" => String::new(),
            other => other.written(),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Object(members) => {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("{key:?}:{}", value.written())).collect();
                format!("{{{}}}", members.join(","))
            }
            Self::Array(items) => {
                format!("[{}]", items.iter().map(Json::written).collect::<Vec<_>>().join(","))
            }
            Self::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
            Self::Other(word) => word.clone(),
        }
    }
}

fn folded(key: &str) -> String {
    key.replace('\u{17f}', "s").replace('\u{212a}', "k").to_lowercase()
}

/// Reads a value at the start of `text`; what follows it does not matter.
fn read(text: &str) -> Option<Json> {
    let mut rest = text.trim_start_matches('\u{feff}');
    value(&mut rest, 0)
}

fn value(rest: &mut &str, depth: usize) -> Option<Json> {
    if depth > 400 {
        return None;
    }
    *rest = rest.trim_start();
    match rest.chars().next()? {
        '{' => {
            *rest = &rest[1..];
            let mut members = Vec::new();
            loop {
                *rest = rest.trim_start().trim_start_matches([',', ' ', '\n', '\r', '\t']);
                if let Some(after) = rest.strip_prefix('}') {
                    *rest = after;
                    return Some(Json::Object(members));
                }
                let Json::Text(key) = value(rest, depth + 1)? else { return None };
                *rest = rest.trim_start().strip_prefix(':')?;
                members.push((key, value(rest, depth + 1)?));
            }
        }
        '[' => {
            *rest = &rest[1..];
            let mut items = Vec::new();
            loop {
                *rest = rest.trim_start().trim_start_matches([',', ' ', '\n', '\r', '\t']);
                if let Some(after) = rest.strip_prefix(']') {
                    *rest = after;
                    return Some(Json::Array(items));
                }
                items.push(value(rest, depth + 1)?);
            }
        }
        '"' => string(rest).map(Json::Text),
        _ => {
            let end = rest.find(|c: char| ",:]}\"{[".contains(c) || c.is_whitespace()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            *rest = after;
            (!word.is_empty()).then(|| Json::Other(word.to_owned()))
        }
    }
}

fn string(rest: &mut &str) -> Option<String> {
    let mut out: Vec<u16> = Vec::new();
    let mut chars = rest[1..].char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => {
                *rest = &rest[at + 2..];
                return Some(String::from_utf16_lossy(&out));
            }
            '\\' => match chars.next()?.1 {
                'u' => {
                    let digits: String =
                        (0..4).filter_map(|_| chars.next().map(|(_, digit)| digit)).collect();
                    out.push(u16::from_str_radix(&digits, 16).ok()?);
                }
                'n' => out.push(10),
                'r' => out.push(13),
                't' => out.push(9),
                'b' => out.push(8),
                'f' => out.push(12),
                other => out.extend(other.encode_utf16(&mut [0; 2]).iter()),
            },
            other => out.extend(other.encode_utf16(&mut [0; 2]).iter()),
        }
    }
    None
}

/// Every call that a client might find in a whole reply.
pub fn calls_in_reply(body: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(body);
    let mut found = Vec::new();
    if let Some(reply) = read(&text) {
        for call in holders(&reply).flat_map(|(_, holder)| whole_calls(holder)) {
            found.extend(call);
        }
    }
    // Nothing can run a call that has no name.
    found.retain(|call| !call.name.is_empty());
    expanded(found)
}

/// Every choice's index with each of its messages and deltas.
fn holders(reply: &Json) -> impl Iterator<Item = (String, &Json)> {
    let choices = reply.all("choices").flat_map(Json::items);
    choices.flat_map(|choice| {
        let index = choice.all("index").last().map_or_else(|| "0".to_owned(), index_key);
        let holders = choice.all("message").chain(choice.all("delta"));
        holders.map(move |holder| (index.clone(), holder))
    })
}

/// The calls of a message: each with every name and all arguments that it may be read with.
fn whole_calls(holder: &Json) -> Vec<Vec<Call>> {
    let calls = holder.all("tool_calls").flat_map(Json::items).map(|call| {
        // Some servers leave the inner object out.
        let is_flat = call.all("function").chain(call.all("custom")).next().is_none();
        let functions = call.all("function").chain(call.all("custom")).chain(is_flat.then_some(call));
        functions.flat_map(readings).collect()
    });
    calls.chain(holder.all("function_call").map(readings)).collect()
}

fn readings(function: &Json) -> Vec<Call> {
    let arguments: Vec<String> =
        function.all("arguments").chain(function.all("input")).map(Json::arguments).collect();
    let names = function.all("name").filter_map(Json::text);
    let with_each = |name: &str| -> Vec<Call> {
        let none = [String::new()];
        let all = if arguments.is_empty() { none.as_slice() } else { &arguments };
        all.iter().map(|arguments| Call { name: name.to_owned(), arguments: arguments.clone() }).collect()
    };
    names.flat_map(with_each).collect()
}

/// An index as a key: JavaScript takes 0, 0.0 and "0" for the same.
fn index_key(index: &Json) -> String {
    let text = index.arguments();
    text.parse::<f64>().map_or(text, |number| number.to_string())
}

/// Every call that a client might put together from a stream.
pub fn calls_in_stream(bytes: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for split in [events_by_blank_lines(&text), events_by_lines(&text)] {
        let mut clients = [Client::Python, Client::Node, Client::Vercel].map(Assembly::of);
        for reply in split.iter().filter_map(|data| read(data)) {
            for (choice, holder) in holders(&reply) {
                found.extend(whole_calls(holder).into_iter().flatten());
                clients.iter_mut().for_each(|client| client.add(&choice, holder));
            }
        }
        found.extend(clients.into_iter().flat_map(Assembly::calls));
    }
    found.retain(|call| !call.name.is_empty());
    expanded(found)
}

fn events_by_blank_lines(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let events = text.split("\n\n").map(|event| {
        let data: Vec<&str> = event.lines().filter_map(data_of).collect();
        if data.is_empty() { event.to_owned() } else { data.join("\n") }
    });
    events.collect()
}

fn events_by_lines(text: &str) -> Vec<String> {
    text.split(['\n', '\r']).map(|line| data_of(line).unwrap_or(line).to_owned()).collect()
}

fn data_of(line: &str) -> Option<&str> {
    let line = line.trim_start_matches('\u{feff}').trim_start();
    line.strip_prefix("data:").or_else(|| line.strip_prefix("error:"))
}

#[derive(Clone, Copy)]
enum Client {
    /// Joins all pieces of an index.
    Python,
    /// Takes the last name of an index, and joins the arguments.
    Node,
    /// Takes the first name of an index.
    Vercel,
}

/// The calls of a stream as one client puts them together.
struct Assembly {
    client: Client,
    calls: BTreeMap<(String, String), Call>,
    /// Of each choice, the key of the call that came last.
    last: BTreeMap<String, String>,
}

impl Assembly {
    fn of(client: Client) -> Self {
        Self { client, calls: BTreeMap::new(), last: BTreeMap::new() }
    }

    fn add(&mut self, choice: &str, holder: &Json) {
        for delta in holder.all("tool_calls").flat_map(Json::items) {
            let index = delta.all("index").last().filter(|index| **index != Json::Other("null".to_owned()));
            let id = delta.all("id").filter_map(Json::text).find(|id| !id.is_empty());
            let key = match (index, id) {
                (Some(index), _) => index_key(index),
                (None, Some(id)) => format!("id {id}"),
                (None, None) => self.last.get(choice).cloned().unwrap_or_default(),
            };
            self.last.insert(choice.to_owned(), key.clone());
            let functions = delta.all("function").chain(delta.all("custom"));
            for function in functions {
                self.piece((choice.to_owned(), key.clone()), function);
            }
        }
        for function in holder.all("function_call") {
            self.piece((choice.to_owned(), "function_call".to_owned()), function);
        }
    }

    fn piece(&mut self, key: (String, String), function: &Json) {
        let call = self.calls.entry(key).or_insert(Call { name: String::new(), arguments: String::new() });
        // JSON readers take the last of repeated members.
        if let Some(name) = function.all("name").filter_map(Json::text).last().filter(|name| !name.is_empty())
        {
            match self.client {
                Client::Python => call.name.push_str(name),
                Client::Node => call.name = name.to_owned(),
                Client::Vercel if call.name.is_empty() => call.name = name.to_owned(),
                Client::Vercel => {}
            }
        }
        if let Some(arguments) = function.all("arguments").chain(function.all("input")).last() {
            call.arguments.push_str(&arguments.arguments());
        }
    }

    fn calls(self) -> impl Iterator<Item = Call> {
        self.calls.into_values()
    }
}

/// The calls, including those inside of calls that contain several.
fn expanded(calls: Vec<Call>) -> Vec<Call> {
    let mut all = Vec::new();
    for call in calls {
        if matches!(call.name.as_str(), "multi_tool_use.parallel" | "parallel")
            && let Some(arguments) = read(&call.arguments)
        {
            for inner in arguments.all("tool_uses").flat_map(Json::items) {
                for name in inner.all("recipient_name").filter_map(Json::text) {
                    let name = name.strip_prefix("functions.").unwrap_or(name).to_owned();
                    let arguments = inner.all("parameters").last().map(Json::written).unwrap_or_default();
                    all.push(Call { name, arguments });
                }
            }
        }
        all.push(call);
    }
    all.sort();
    all.dedup();
    all
}

/// Every call that a client might find in a whole reply of the Responses API.
pub fn calls_in_response(body: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(body);
    let found: Vec<Call> = read(&text).iter().flat_map(output_calls).collect();
    expanded(found)
}

fn output_calls(response: &Json) -> Vec<Call> {
    response.all("output").flat_map(Json::items).flat_map(item_calls).collect()
}

/// The readings of an item that may be a call.
fn item_calls(item: &Json) -> Vec<Call> {
    let kinds: Vec<&str> = item.all("type").filter_map(Json::text).collect();
    let is_call = kinds.iter().any(|kind| kind.ends_with("_call") || *kind == "mcp_approval_request");
    if is_call { readings(item) } else { Vec::new() }
}

/// Every call that a client might put together from a stream of the Responses API: from each item, from the list of
/// each response, and from pieces by index or by any id.
pub fn calls_in_response_stream(bytes: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for split in [events_by_blank_lines(&text), events_by_lines(&text)] {
        let mut calls: BTreeMap<String, Call> = BTreeMap::new();
        for event in split.iter().filter_map(|data| read(data)) {
            found.extend(event.all("response").flat_map(output_calls));
            let index =
                || event.all("output_index").last().map(|index| format!("index {}", index_key(index)));
            let ids = event.all("item_id").filter_map(Json::text).map(|id| format!("id {id}"));
            for item in event.all("item") {
                let read = item_calls(item);
                let of_item = item.all("id").chain(item.all("call_id")).filter_map(Json::text);
                let keys: Vec<String> = of_item.map(|id| format!("id {id}")).chain(index()).collect();
                for call in &read {
                    keys.iter().for_each(|key| drop(calls.insert(key.clone(), call.clone())));
                }
                found.extend(read);
            }
            for key in ids.chain(index()) {
                let Some(call) = calls.get_mut(&key) else { continue };
                for delta in event.all("delta") {
                    call.arguments.push_str(&delta.arguments());
                }
                let whole = event.all("arguments").chain(event.all("input")).map(Json::arguments);
                found.extend(whole.map(|arguments| Call { arguments, ..call.clone() }));
            }
            found.extend(calls.values().cloned());
        }
    }
    found.retain(|call| !call.name.is_empty());
    expanded(found)
}

/// Every call that a client might find in a whole reply of the Messages API.
pub fn calls_in_message(body: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(body);
    let mut found: Vec<Call> = read(&text).iter().flat_map(content_calls).collect();
    found.retain(|call| !call.name.is_empty());
    expanded(found)
}

fn content_calls(message: &Json) -> Vec<Call> {
    message.all("content").flat_map(Json::items).flat_map(block_calls).collect()
}

/// The readings of a block that may be a call of the client's: what the provider runs is run by nobody else.
fn block_calls(block: &Json) -> Vec<Call> {
    let is_call = block.all("type").filter_map(Json::text).any(|kind| folded(kind) == "tool_use");
    if is_call { readings(block) } else { Vec::new() }
}

/// Every call that a client might put together from a stream of the Messages API: from the head, from the start of a block,
/// and from pieces by the index of a block or by its position, whether the block is stopped or not. The lines that name an
/// event are not read.
pub fn calls_in_message_stream(bytes: &[u8]) -> Vec<Call> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for split in [events_by_blank_lines(&text), events_by_lines(&text)] {
        // The calls that began under an index, and those of each block in the order of the blocks.
        let mut by_index: BTreeMap<String, Vec<Call>> = BTreeMap::new();
        let mut by_position: Vec<Vec<Call>> = Vec::new();
        for event in split.iter().filter_map(|data| read(data)) {
            found.extend(event.all("message").chain([&event]).flat_map(content_calls));
            let index = event.all("index").last().map_or_else(String::new, index_key);
            for block in event.all("content_block") {
                let read = block_calls(block);
                let begun: Vec<Call> = read
                    .iter()
                    .map(|call| Call { name: call.name.clone(), arguments: String::new() })
                    .collect();
                by_index.entry(index.clone()).or_default().extend(begun.iter().cloned());
                by_position.push(begun);
                found.extend(read);
            }
            let at: Option<usize> = index.parse().ok();
            let pieces = event.all("delta").flat_map(|delta| delta.all("partial_json")).map(Json::arguments);
            for piece in pieces {
                let of_index = by_index.get_mut(&index).into_iter().flatten();
                let of_position = at.and_then(|at| by_position.get_mut(at)).into_iter().flatten();
                of_index.chain(of_position).for_each(|call| call.arguments.push_str(&piece));
            }
        }
        found.extend(by_index.into_values().flatten().chain(by_position.into_iter().flatten()));
    }
    found.retain(|call| !call.name.is_empty());
    expanded(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cities(calls: &[Call]) -> Vec<&str> {
        let known = |call: &&Call| call.name == "get_weather";
        calls.iter().filter(known).map(|call| call.arguments.as_str()).collect()
    }

    #[test]
    fn a_call_of_the_messages_api_is_found_at_each_of_its_places() {
        let start = |index: &str, input: &str| {
            format!(
                "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"get_weather\",\"input\":{input}}}}}\n\n"
            )
        };
        let delta = |index: &str, json: &str| {
            format!(
                "data: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{json}\"}}}}\n\n"
            )
        };
        for (stream, expected) in [
            (start("0", "{}") + &delta("0", "x"), vec!["x", "{}"]),
            (start("0", "{\"a\":1}"), vec!["", "{\"a\":1}"]),
            // By position, the pieces of index 0 belong to the block that began first.
            (start("3", "{}") + &delta("0", "x"), vec!["", "x", "{}"]),
            (
                "event: ping\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":\"get_weather\",\"input\":{}}]}}\n\n".to_owned(),
                vec!["{}"],
            ),
            (start("0", "{}").replace("\"tool_use\"", "\"server_tool_use\""), vec![]),
        ] {
            assert_eq!(cities(&calls_in_message_stream(stream.as_bytes())), expected, "{stream}");
        }
        let whole = br#"{"content":[{"type":"text"},{"type":"tool_use","name":"get_weather","input":{}}]}"#;
        assert_eq!(cities(&calls_in_message(whole)), ["{}"]);
    }
}
