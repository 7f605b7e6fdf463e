//! One block of a message as far as it has come, and its JSON: the block of its start with what deltas added. The only joiner of
//! deltas: history, conversions and rewritten calls take the JSON from here.

use super::event::{BlockKind, Delta};
use crate::lines::one_line;
use crate::repair::is_object;
use crate::reply_choice::{ReplyCall, ReplyChoice, Visibility};
use bytes::Bytes;
use model::assembled::Assembled;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use wire::body::{Kind, Scanner, Span, Str};
use wire::json::{decode_bytes, escape_into, in_one_case, quote, unescape};
use wire::members::{Member, all_members, differs_in_case, members_of};
use wire::splice::Splices;
use wire::whole_json::Wholeness;

/// Most blocks of one reply that are read: many times what the longest recorded reply has.
pub const MOST_BLOCKS: usize = 4096;

/// The members of a call that decide what a client runs.
const OF_CALLS: [&[u8]; 4] = [b"type", b"id", b"name", b"input"];

/// See the file's head.
#[derive(Debug, Default)]
pub struct Block {
    /// The index that the upstream gave it.
    pub index: Option<u64>,
    /// The positions of its call and of its text among those of the choice.
    pub call: Option<usize>,
    pub text: Option<usize>,
    /// The block as its start or the whole message has it.
    json: Bytes,
    /// The members that deltas gave.
    added: SmallVec<[AddedMember; 1]>,
    /// The arguments in its start, and those of its deltas: escapes as in a JSON string.
    filled: Vec<u8>,
    deltas: Vec<u8>,
    has_deltas: bool,
    wholeness: Wholeness,
    pub is_stopped: bool,
    /// It came whole in the first event of a stream.
    pub is_of_head: bool,
    /// A program that runs at the provider makes the call: it comes whole in the start.
    pub is_programmatic: bool,
    /// The index under which the client has it, and whether it was stopped there.
    pub shown_as: Option<u64>,
    pub is_closed: bool,
}

/// A member that deltas gave a block.
#[derive(Debug)]
struct AddedMember {
    name: Vec<u8>,
    value: AddedValue,
}

#[derive(Debug)]
enum AddedValue {
    /// The pieces of a string, escapes as written.
    Pieces(Vec<u8>),
    /// Elements of a list, with commas.
    Elements(Vec<u8>),
    /// The last value.
    Json(Vec<u8>),
}

/// What the JSON of a block says.
#[derive(Debug)]
pub struct BlockFacts {
    pub kind: BlockKind,
    /// Its type, decoded.
    pub name: Vec<u8>,
    /// The strings between their quotes, as written.
    pub id: Vec<u8>,
    pub tool: Vec<u8>,
    pub text: Option<Str>,
    /// Members of a call that the judge does not look at.
    pub extra: Vec<(Vec<u8>, Vec<u8>)>,
    /// Readers of JSON may find another call in it, or another block.
    pub is_ambiguous: bool,
    pub has_two_types: bool,
}

/// The blocks of one reply, in the order in which they began.
#[derive(Debug, Default)]
pub struct Blocks {
    all: Vec<Block>,
    /// The newest block of the present message under each index.
    by_index: BTreeMap<Option<u64>, usize>,
    size: usize,
}

impl Blocks {
    /// Adds a block and returns its position.
    pub fn push(&mut self, block: Block) -> usize {
        let at = self.all.len();
        self.by_index.insert(block.index, at);
        self.size += block.size();
        self.all.push(block);
        at
    }

    /// The position of the block to which events with this index belong.
    pub fn find(&self, index: Option<u64>) -> Option<usize> {
        self.by_index.get(&index).copied()
    }

    /// Changes a block.
    pub fn change<T>(&mut self, at: usize, change: impl FnOnce(&mut Block) -> T) -> T {
        let before = self.all[at].size();
        let result = change(&mut self.all[at]);
        self.size = self.size + self.all[at].size() - before;
        result
    }

    /// Adds a piece of a text, in quotes, to the block at this position.
    pub fn add_text(&mut self, at: usize, piece: &[u8]) {
        match self.all[at].text_pieces().zip(inside(piece)) {
            Some((text, piece)) => {
                text.extend_from_slice(piece);
                self.size += piece.len();
            }
            None => self.change(at, |block| block.add_member(b"text", piece)),
        }
    }

    /// Another message begins: its indexes are its own.
    pub fn begin_message(&mut self) {
        self.by_index.clear();
    }

    pub fn all(&self) -> &[Block] {
        &self.all
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Block {
    /// The block at `at` of `data`.
    pub fn begin(index: Option<u64>, at: Span, data: &Bytes) -> (Self, BlockFacts) {
        let members = members_of(data, at);
        let (mut facts, mut input) = (BlockFacts::new(), None);
        // Of a stream only the block is kept, and not the bytes that it came with.
        let json = if index.is_some() { Bytes::copy_from_slice(at.of(data)) } else { data.slice(at.range()) };
        let mut block = Self { index, json, ..Self::default() };
        for member in &members {
            let value = member.value.of(data);
            let string = || inside(value).map_or_else(Vec::new, <[u8]>::to_vec);
            match &*decode_bytes(member.key, data) {
                b"type" => {
                    facts.name = inside(value).map_or_else(Vec::new, |name| unescape(name).into_bytes());
                }
                b"id" => facts.id = string(),
                b"name" => facts.tool = string(),
                b"input" => input = Some(value),
                b"text" => facts.text = Scanner::within(data, member.value).string().ok(),
                b"caller" => block.is_programmatic = !is_direct(value),
                _ => {}
            }
        }
        facts.kind = BlockKind::named(&facts.name);
        facts.note_repeated(&members, data);
        if facts.kind == BlockKind::Call {
            block.filled = input.map_or_else(Vec::new, arguments_of);
            facts.extra = members.iter().filter_map(|member| extra(member, data)).collect();
            if facts.is_ambiguous {
                block.json = rewritten(&block.json);
            }
        }
        (block, facts)
    }

    /// Takes a delta of the block; true if it brought arguments.
    pub fn add(&mut self, delta: &Delta, data: &[u8]) -> bool {
        for member in &delta.members {
            let name = decode_bytes(member.key, data);
            if *name == *b"partial_json" && delta.partial_json.is_some() {
                continue;
            }
            self.add_member(&name, member.value.of(data));
        }
        let piece = delta.partial_json.map_or(&b""[..], |piece| piece.raw(data));
        self.deltas.extend_from_slice(piece);
        self.wholeness.push(piece);
        let argues = !piece.trim_ascii().is_empty();
        self.has_deltas |= argues;
        argues
    }

    /// Its text as far as it has come in pieces.
    fn text_pieces(&mut self) -> Option<&mut Vec<u8>> {
        self.added.iter_mut().find(|member| member.name == b"text").and_then(|member| {
            match &mut member.value {
                AddedValue::Pieces(text) => Some(text),
                _ => None,
            }
        })
    }

    fn add_member(&mut self, name: &[u8], value: &[u8]) {
        // Citations come one by one and are kept as a list.
        let (name, is_element) = if name == b"citation" { (&b"citations"[..], true) } else { (name, false) };
        let known = self.added.iter().position(|member| member.name == name).unwrap_or_else(|| {
            let own = || inside(own_value(&self.json, name)?).map(<[u8]>::to_vec);
            let start = match inside(value) {
                _ if is_element => AddedValue::Elements(elements_of(own_value(&self.json, name))),
                Some(_) => AddedValue::Pieces(own().unwrap_or_default()),
                None => AddedValue::Json(Vec::new()),
            };
            self.added.push(AddedMember { name: name.to_vec(), value: start });
            self.added.len() - 1
        });
        let known = &mut self.added[known].value;
        match (known, inside(value)) {
            (AddedValue::Pieces(text), Some(piece)) => text.extend_from_slice(piece),
            (AddedValue::Elements(list), _) => {
                list.extend_from_slice(if list.is_empty() { b"" } else { b"," });
                list.extend_from_slice(value);
            }
            (known, _) => *known = AddedValue::Json(value.to_vec()),
        }
    }

    /// The arguments that clients run, escapes as in a JSON string: those of the deltas, if there are any, and `{}` where none
    /// came.
    pub fn arguments(&self) -> &[u8] {
        match (self.has_deltas, self.filled.is_empty() && self.is_stopped) {
            (true, _) => &self.deltas,
            (false, true) => b"{}",
            (false, false) => &self.filled,
        }
    }

    /// Whether deltas brought arguments.
    pub fn has_deltas(&self) -> bool {
        self.has_deltas
    }

    /// Whether its arguments may lack their end.
    pub fn is_open(&self) -> bool {
        let is_empty = !self.has_deltas && self.filled.is_empty();
        !self.is_stopped || !(is_empty || self.has_whole_arguments())
    }

    /// Whether arguments came, and are whole JSON.
    pub fn has_whole_arguments(&self) -> bool {
        if self.has_deltas {
            return self.wholeness.is_whole();
        }
        let mut wholeness = Wholeness::default();
        wholeness.push(&self.filled);
        wholeness.is_whole()
    }

    /// Whether its start and its deltas say different arguments.
    pub fn has_two_inputs(&self) -> bool {
        self.has_deltas && !self.filled.is_empty() && unescape(&self.filled) != unescape(&self.deltas)
    }

    /// Its JSON on one line, with all that deltas gave. Arguments that are no JSON are a string in it.
    pub fn json(&self) -> Bytes {
        let deltas = self.has_deltas.then(|| {
            let text = unescape(&self.deltas);
            if is_object(&text) { text } else { quote(&text) }
        });
        self.with(deltas.into_iter().map(|input| (&b"input"[..], input.into_bytes())))
    }

    /// As [`Self::json`], as this call, with this `input`.
    pub fn json_of(&self, call: &Assembled, input: &str) -> Bytes {
        let string = |text: &[u8]| [b"\"", text, b"\""].concat();
        let (id, name) = (string(&call.id), string(&call.name));
        self.with([(&b"id"[..], id), (b"name", name), (b"input", input.as_bytes().to_vec())].into_iter())
    }

    fn with<'a>(&'a self, more: impl Iterator<Item = (&'a [u8], Vec<u8>)>) -> Bytes {
        let added = self.added.iter().map(|member| (&*member.name, member.value.json()));
        let new: NewMembers<'_> = added.chain(more).collect();
        let mut splices = Splices::default();
        set_members(&mut splices, &self.json, Span::new(0, self.json.len()), new);
        one_line(&splices.apply(&self.json).join())
    }

    /// Whether the client sees it.
    pub fn is_visible(&self, choice: &ReplyChoice) -> bool {
        let is_released = |call: usize| choice.calls().get(call).is_some_and(ReplyCall::is_released);
        let is_shown = |text| choice.visibility(text) != Visibility::Hidden;
        self.call.is_none_or(is_released) && self.text.is_none_or(is_shown)
    }

    /// Whether the client gets its call as toolrein writes it.
    pub fn is_written(&self, choice: &ReplyChoice) -> bool {
        self.call.and_then(|call| choice.calls().get(call)).is_some_and(ReplyCall::is_shown_as_written)
    }

    /// Its JSON as the client gets it from toolrein; `None` if the client gets it as it came. Of a call that a program makes the
    /// arguments are in the start.
    pub fn written(&self, choice: &ReplyChoice) -> Option<Bytes> {
        let call = choice.calls().get(self.call?).filter(|call| call.is_shown_as_written())?;
        let arguments = call.assembled.arguments();
        let is_json = serde_json::from_str::<IgnoredAny>(&arguments).is_ok();
        Some(self.json_of(&call.assembled, &if is_json { arguments } else { quote(&arguments) }))
    }

    /// Its bytes in memory.
    pub fn size(&self) -> usize {
        let added: usize = self.added.iter().map(|member| member.name.len() + member.value.len()).sum();
        size_of::<Self>() + self.json.len() + added + self.filled.len() + self.deltas.len()
    }

    /// Whether its text or its thinking is empty, so that no upstream takes it back.
    pub fn is_empty_text(&self) -> bool {
        let text = self.added.iter().find(|member| member.name == b"text").map(|member| member.value.len());
        let own = || own_value(&self.json, b"text").and_then(inside).map_or(0, <[u8]>::len);
        self.text.is_some() && text.unwrap_or_else(own) == 0
    }

    /// Whether it is the model's reasoning, which must stand beside what followed it.
    pub fn is_reasoning(&self) -> bool {
        let kind = own_value(&self.json, b"type").and_then(inside);
        matches!(kind, Some(b"thinking" | b"redacted_thinking"))
    }
}

impl AddedValue {
    fn json(&self) -> Vec<u8> {
        match self {
            Self::Pieces(text) => [b"\"", &text[..], b"\""].concat(),
            Self::Elements(list) => [b"[", &list[..], b"]"].concat(),
            Self::Json(value) => value.clone(),
        }
    }

    fn len(&self) -> usize {
        let (Self::Pieces(bytes) | Self::Elements(bytes) | Self::Json(bytes)) = self;
        bytes.len()
    }
}

impl BlockFacts {
    fn new() -> Self {
        Self {
            kind: BlockKind::Other,
            name: Vec::new(),
            id: Vec::new(),
            tool: Vec::new(),
            text: None,
            extra: Vec::new(),
            is_ambiguous: false,
            has_two_types: false,
        }
    }

    /// Notes whether a member that decides what a client runs occurs twice, be it in another case of letters.
    fn note_repeated(&mut self, members: &[Member], data: &[u8]) {
        let mut seen = [0; OF_CALLS.len()];
        for member in members {
            let key = decode_bytes(member.key, data);
            self.is_ambiguous |= differs_in_case(&key, &OF_CALLS);
            let key = in_one_case(&key);
            let known = OF_CALLS.iter().position(|name| **name == *key);
            known.into_iter().for_each(|known| seen[known] += 1);
        }
        self.has_two_types = seen[0] > 1;
        self.is_ambiguous |= seen.iter().any(|count| *count > 1);
    }

    /// What it is called where it is carried unjudged, of [`CARRIED`](crate::CARRIED); `None` where it is judged or read, or
    /// the result of such a block.
    pub fn carried(&self) -> Option<&'static str> {
        if self.kind != BlockKind::Other || self.name.ends_with(b"_result") {
            return None;
        }
        Some(match (&*self.name, &*self.tool) {
            (b"thinking" | b"redacted_thinking", _) => "reasoning",
            (b"server_tool_use", b"web_search" | b"web_fetch") => "web_search_call",
            (b"server_tool_use", tool) if tool.ends_with(b"code_execution") => "code_interpreter_call",
            (b"server_tool_use", tool) if tool.starts_with(b"tool_search_tool") => "tool_search_call",
            (b"mcp_tool_use", _) => "mcp_call",
            (b"mcp_tool_listing", _) => "mcp_list_tools",
            (b"compaction", _) => "compaction",
            _ => "other",
        })
    }
}

/// A member of a call that is none of those that decide what runs, and that a history may hold.
fn extra(member: &Member, data: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let is_read = OF_CALLS.contains(&&*decode_bytes(member.key, data));
    (!is_read).then(|| (member.key.raw(data).to_vec(), member.value.of(data).to_vec()))
}

/// The bytes between the quotes of a JSON string.
pub fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// The last value of the member with this name of the object `json`.
pub fn own_value<'a>(json: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let members = members_of(json, Span::new(0, json.len()));
    let found = members.iter().rfind(|member| *decode_bytes(member.key, json) == *name)?;
    Some(found.value.of(json))
}

/// The elements of a JSON list, without its brackets.
fn elements_of(list: Option<&[u8]>) -> Vec<u8> {
    let inner = list.and_then(|list| list.strip_prefix(b"[")?.strip_suffix(b"]"));
    inner.map_or_else(Vec::new, |inner| inner.trim_ascii().to_vec())
}

/// The `input` of a call as the text of arguments, escaped: some servers write an object as a string. An empty object is a
/// placeholder of what deltas bring.
fn arguments_of(input: &[u8]) -> Vec<u8> {
    if let Some(text) = inside(input) {
        return text.to_vec();
    }
    let inner = input.strip_prefix(b"{").and_then(|input| input.strip_suffix(b"}"));
    if inner.is_some_and(|inner| inner.trim_ascii().is_empty()) {
        return Vec::new();
    }
    let mut escaped = Vec::with_capacity(input.len() + input.len() / 8);
    escape_into(&String::from_utf8_lossy(input), &mut escaped);
    escaped
}

/// Whether `caller` is the model itself.
pub fn is_direct(caller: &[u8]) -> bool {
    !caller.starts_with(b"{") || own_value(caller, b"type").and_then(inside) == Some(b"direct")
}

/// An object in which each name occurs once.
fn rewritten(json: &Bytes) -> Bytes {
    let members: Option<Map<String, Value>> = serde_json::from_slice(json).ok();
    members.map_or_else(|| json.clone(), |members| Value::from(members).to_string().into())
}

/// New values of members of an object, each with the name of its member.
pub type NewMembers<'a> = Vec<(&'a [u8], Vec<u8>)>;

/// Gives members of the object at `object` in `data` new values; those that it does not have come at its end.
pub fn set_members(splices: &mut Splices, data: &[u8], object: Span, new: NewMembers<'_>) {
    if new.is_empty() {
        return;
    }
    let Ok(members) = all_members(&mut Scanner::within(data, object)) else { return };
    let mut has_members = !members.is_empty();
    for (name, value) in new {
        match members.iter().rfind(|member| *decode_bytes(member.key, data) == *name) {
            Some(member) => {
                if member.value.of(data) != value {
                    splices.replace(member.value, value);
                }
            }
            None => {
                let comma: &[u8] = if has_members { b"," } else { b"" };
                let quoted = quote(&String::from_utf8_lossy(name));
                splices.insert(object.end - 1, [comma, quoted.as_bytes(), b":", &value].concat());
                has_members = true;
            }
        }
    }
}

/// The elements of a JSON list at `list` in `data`, as far as they can be read; `None` where it is no list.
pub fn elements(data: &[u8], list: Span) -> Option<Vec<Span>> {
    let (mut scanner, mut found) = (Scanner::within(data, list), Vec::new());
    if scanner.peek().ok()? != Kind::Array {
        return None;
    }
    scanner.array().ok()?;
    while scanner.element().ok()? {
        found.push(scanner.skip().ok()?);
    }
    Some(found)
}
