//! Tool call markup in plain text: a streaming filter that finds calls which models write as text, and removes them.
//!
//! An engine that is asked for an answer without calls (`tool_choice: "none"`) often does not parse what the model
//! writes, so the model's own call markup comes as text. Recognises it piece by piece, in linear time, and holds back
//! no more text than the decision needs. `families` lists delimiters that no prose contains; `structure` recognises
//! calls of known tools in any other form. Markup in backticks is an explanation and stays, and so do a code block
//! that is not a call of a known tool, and a tag that is only mentioned. Knows no JSON escapes and no events.

mod cleaner;
mod families;
mod look;
mod names;
mod structure;
mod values;

pub use self::cleaner::TextCleaner;
pub use self::names::ToolNames;

use self::families::{FAMILIES, Family, Position, TRAILERS};
use self::look::{Look, Value};
use self::structure::{BlockStart, Ends, Structure};
use std::sync::Arc;

/// Most text after the first tag of a family that is looked at to decide what it is, in bytes.
const LOOKAHEAD: usize = 256;

/// The filter of one answer's text.
#[derive(Debug, Default)]
pub struct Markup {
    /// The tools whose calls are recognised in any form.
    tools: Arc<ToolNames>,
    /// Text that cannot be decided on yet.
    pending: String,
    state: State,
    code: Code,
    /// Whether only white space came before, in the whole text and in the line.
    start: Start,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// Within a block, which is removed up to its end.
    Block { end: Arc<BlockEnd>, value: Option<Nesting> },
    /// After a block: what belongs to its end is removed too. `open`: no closing tag has come.
    After { end: Arc<BlockEnd>, open: bool },
}

/// How a block ends, besides with its value.
#[derive(Debug, Default)]
struct BlockEnd {
    /// The texts that close it.
    closers: Vec<String>,
    /// What may follow it and is removed with it, besides [`TRAILERS`].
    trailers: Vec<String>,
    /// Another value may follow the first one.
    goes_on: bool,
}

impl BlockEnd {
    fn of_family(family: &Family) -> Self {
        let closers: Vec<String> = family.closers.iter().map(|closer| (*closer).to_owned()).collect();
        Self { goes_on: !closers.is_empty(), trailers: closers.clone(), closers }
    }

    /// The end of a structure, the value that ends it, and how many bytes come before that value.
    fn of_structure(structure: Structure) -> (Self, Option<Nesting>, usize) {
        let Structure { ends, mut trailers } = structure;
        let goes_on = !trailers.is_empty();
        trailers.extend([";", "Observation:"].map(str::to_owned));
        let closed_by = |closers: Vec<String>| Self { closers, trailers: trailers.clone(), goes_on };
        match ends {
            Ends::Value { at, is_python } => {
                (closed_by(Vec::new()), Some(Nesting { is_python, ..Nesting::default() }), at)
            }
            Ends::Closer(closer) => (closed_by(vec![closer]), None, 0),
            Ends::Line(at) => (closed_by(vec!["\n".to_owned()]), None, at),
            Ends::Fence { marks, at } => {
                let body = Nesting { is_endless: true, ..Nesting::default() };
                (closed_by(vec![format!("\n{marks}"), marks]), Some(body), at)
            }
            Ends::Tag(end) => (closed_by(vec![">".to_owned()]), None, end.saturating_sub(1)),
        }
    }
}

#[derive(Debug)]
struct Start {
    text: bool,
    line: bool,
}

impl Default for Start {
    fn default() -> Self {
        Self { text: true, line: true }
    }
}

/// What a step has consumed, and whether more text is needed to go on.
struct Step {
    bytes: usize,
    waits: bool,
}

impl Step {
    fn on(bytes: usize) -> Self {
        Self { bytes, waits: false }
    }

    fn wait(bytes: usize) -> Self {
        Self { bytes, waits: true }
    }
}

impl Markup {
    /// A filter that recognises calls of `tools` in any form.
    pub fn new(tools: &Arc<ToolNames>) -> Self {
        Self { tools: Arc::clone(tools), ..Self::default() }
    }

    /// Takes the next text; returns the part of the text so far that may go out.
    pub fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        self.run(false)
    }

    /// The text has ended: returns what was held back and is no markup. What is pushed next is a new text.
    pub fn finish(&mut self) -> String {
        let out = self.run(true);
        *self = Self::new(&self.tools);
        out
    }

    fn run(&mut self, end: bool) -> String {
        let pending = std::mem::take(&mut self.pending);
        let (mut rest, mut out) = (pending.as_str(), String::new());
        while !rest.is_empty() {
            let step = match &self.state {
                State::Text => self.text(rest, end, &mut out),
                State::Block { .. } => self.block(rest, end),
                State::After { end: block_end, open } => {
                    let (block_end, open) = (Arc::clone(block_end), *open);
                    self.after(block_end, open, rest, end)
                }
            };
            rest = &rest[step.bytes..];
            if step.waits {
                break;
            }
        }
        rest.clone_into(&mut self.pending);
        out
    }

    /// Gives out text up to the next block.
    fn text(&mut self, rest: &str, end: bool, out: &mut String) -> Step {
        let mut at = 0;
        while let Some(c) = rest[at..].chars().next() {
            let tail = &rest[at..];
            let mut length = c.len_utf8();
            let is_mark = matches!(c, '`' | '~');
            if !is_mark {
                self.code.settle();
            }
            if c == '\n' {
                self.code.inline = 0;
                self.start.line = true;
            } else if !(self.code.is_open() || is_mark && self.code.marks.is_some()) {
                match self.found(tail, end) {
                    Found::Nothing => {}
                    Found::Perhaps => {
                        out.push_str(&rest[..at]);
                        return Step::wait(at);
                    }
                    Found::Block { end, value, bytes } => {
                        out.push_str(&rest[..at]);
                        self.state = State::Block { end: Arc::new(end), value };
                        return Step::on(at + bytes);
                    }
                }
            }
            if is_mark {
                length = tail.bytes().take_while(|byte| *byte == c as u8).count();
                self.code.add(c, length, self.start.line);
            }
            if !c.is_whitespace() {
                self.start = Start { text: false, line: false };
            }
            at += length;
        }
        out.push_str(rest);
        Step::on(rest.len())
    }

    /// What begins with `tail`.
    fn found(&self, tail: &str, end: bool) -> Found {
        let mut perhaps = false;
        for family in FAMILIES.iter().filter(|family| self.allows(family.place)) {
            for opener in family.openers {
                let Some(rest) = tail.strip_prefix(opener) else {
                    perhaps |= !end && opener.starts_with(tail);
                    continue;
                };
                let seen = &rest[..rest.floor_char_boundary(LOOKAHEAD)];
                match (family.body)(seen) {
                    Look::Yes(value) => return Found::of_family(family, opener, value),
                    // Cut off after its first tag.
                    Look::More if end && self.start.line && rest.trim().is_empty() && opener.len() > 3 => {
                        return Found::of_family(family, opener, Value::None);
                    }
                    Look::More => perhaps |= !end && seen.len() == rest.len(),
                    Look::No => {}
                }
            }
        }
        if perhaps { Found::Perhaps } else { self.structure(tail, end) }
    }

    /// The call of a known tool that `tail` begins with.
    fn structure(&self, tail: &str, end: bool) -> Found {
        let beginning = BlockStart { text: self.start.text, line: self.start.line, has_ended: false };
        match structure::look(tail, beginning, &self.tools) {
            Ok(structure) => Found::of_structure(structure),
            Err(Look::More) if !end => Found::Perhaps,
            // The end of the text ends a name and a line too.
            Err(Look::More) => {
                let beginning = BlockStart { has_ended: true, ..beginning };
                match structure::look(&format!("{tail}\n"), beginning, &self.tools) {
                    Ok(structure) => Found::of_structure(structure),
                    Err(_) => Found::Nothing,
                }
            }
            Err(_) => Found::Nothing,
        }
    }

    fn allows(&self, place: Position) -> bool {
        match place {
            Position::Anywhere => true,
            Position::Line => self.start.line,
        }
    }

    /// Passes over a block.
    fn block(&mut self, rest: &str, end: bool) -> Step {
        let State::Block { end: block_end, value } = &mut self.state else { return Step::on(0) };
        let block_end = Arc::clone(block_end);
        for (at, byte) in rest.bytes().enumerate() {
            let is_text = value.as_ref().is_some_and(|value| value.quote.is_some());
            // No string goes on over a line that closes the block.
            let may_close = |closer: &&String| !is_text || closer.starts_with('\n');
            if byte.is_ascii() {
                for closer in block_end.closers.iter().filter(may_close) {
                    if rest[at..].starts_with(&**closer) {
                        self.state = State::After { end: block_end.clone(), open: false };
                        return Step::on(at + closer.len());
                    }
                    if !end && closer.starts_with(&rest[at..]) {
                        return Step::wait(at);
                    }
                }
            }
            if value.as_mut().is_some_and(|value| value.ends_with(byte)) {
                self.state = State::After { end: block_end, open: true };
                return Step::on(at + 1);
            }
        }
        Step::on(rest.len())
    }

    /// Passes over what belongs to the end of a block.
    fn after(&mut self, block_end: Arc<BlockEnd>, open: bool, rest: &str, end: bool) -> Step {
        let tail = rest.trim_start();
        let blank = rest.len() - tail.len();
        let waits = !end && blank <= LOOKAHEAD;
        if tail.is_empty() && waits {
            return Step::wait(0);
        }
        let trailers = block_end.trailers.iter().map(String::as_str).chain(TRAILERS.iter().copied());
        for trailer in trailers {
            if tail.starts_with(trailer) {
                let length = trailer.len();
                self.state = State::After { end: block_end.clone(), open: false };
                return Step::on(blank + length);
            }
            if waits && trailer.starts_with(tail) {
                return Step::wait(0);
            }
        }
        match values::token_end(tail) {
            Ok((token, next)) if structure::has_call_word(token) => {
                // The token may begin another block.
                self.start.line = true;
                match self.found(tail, end) {
                    Found::Nothing => return Step::on(rest.len() - next.len()),
                    Found::Perhaps => return Step::wait(0),
                    Found::Block { .. } => {
                        self.state = State::Text;
                        return Step::on(0);
                    }
                }
            }
            Err(Look::More) if waits => return Step::wait(0),
            _ => {}
        }
        if open && block_end.goes_on && tail.starts_with(['{', '[', ',']) {
            self.state = State::Block { end: block_end, value: Some(Nesting::default()) };
            return Step::on(blank);
        }
        self.state = State::Text;
        self.start.line = true;
        Step::on(0)
    }
}

enum Found {
    Nothing,
    Perhaps,
    /// A block begins, and its first `bytes` decide nothing more.
    Block {
        end: BlockEnd,
        value: Option<Nesting>,
        bytes: usize,
    },
}

impl Found {
    /// A block that begins with `opener`; with its value's beginning, whose end is the block's.
    fn of_family(family: &Family, opener: &str, value: Value) -> Self {
        let (value, bytes) = match value {
            Value::None => (None, opener.len()),
            Value::At(index) => (Some(Nesting::default()), opener.len() + index),
        };
        Self::Block { end: BlockEnd::of_family(family), value, bytes }
    }

    fn of_structure(structure: Structure) -> Self {
        let (end, value, bytes) = BlockEnd::of_structure(structure);
        Self::Block { end, value, bytes }
    }
}

/// The nesting state within a JSON value or a list of Python calls.
#[derive(Debug, Default)]
struct Nesting {
    depth: u32,
    quote: Option<u8>,
    escaped: bool,
    is_python: bool,
    /// The end of a value does not end the block.
    is_endless: bool,
}

impl Nesting {
    /// Takes the next byte; true if the value ends with it.
    fn ends_with(&mut self, byte: u8) -> bool {
        match (self.quote, byte) {
            (Some(_), _) if std::mem::take(&mut self.escaped) => {}
            (Some(_), b'\\') => self.escaped = true,
            (Some(quote), _) if quote == byte => self.quote = None,
            (Some(_), _) => {}
            (None, b'"') => self.quote = Some(byte),
            (None, b'\'') if self.is_python => self.quote = Some(byte),
            (None, b'{' | b'[') => self.depth += 1,
            (None, b'(') if self.is_python => self.depth += 1,
            (None, b'}' | b']') => return self.closes(),
            (None, b')') if self.is_python => return self.closes(),
            _ => {}
        }
        false
    }

    fn closes(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        self.depth == 0 && !self.is_endless
    }
}

/// Code in Markdown: a fenced block, or backticks within a line.
#[derive(Debug, Default)]
struct Code {
    /// The mark that opened the block, how many of it, and whether at the beginning of a line.
    fence: Option<(char, usize, bool)>,
    /// The number of backticks that opened code within the line.
    inline: usize,
    /// Marks that more of the same may follow: which, how many, and whether at the beginning of a line.
    marks: Option<(char, usize, bool)>,
}

impl Code {
    fn is_open(&self) -> bool {
        self.fence.is_some() || self.inline > 0
    }

    /// So many of the mark `c` have come.
    fn add(&mut self, c: char, count: usize, at_line_start: bool) {
        match &mut self.marks {
            Some((mark, so_far, _)) if *mark == c => *so_far += count,
            _ => {
                self.settle();
                self.marks = Some((c, count, at_line_start));
            }
        }
    }

    /// Called when something else comes: applies what the marks before it open or close.
    fn settle(&mut self) {
        let Some((c, count, at_line_start)) = self.marks.take() else { return };
        match self.fence {
            Some((mark, least, own_line)) if mark == c && count >= least && (at_line_start || !own_line) => {
                self.fence = None;
            }
            None if self.inline > 0 && c == '`' && count == self.inline => self.inline = 0,
            None if self.inline == 0 && count >= 3 && (c == '`' || at_line_start) => {
                self.fence = Some((c, count, at_line_start));
            }
            None if self.inline == 0 && c == '`' => self.inline = count,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
