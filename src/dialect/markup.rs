//! Tool call markup in plain text: a streaming filter that finds calls which models write as text, and removes them.
//!
//! An engine that is asked for an answer without calls (`tool_choice: "none"`) often does not parse what the model
//! writes, so the model's own call markup comes as text. Recognises it piece by piece, in linear time, and holds back
//! no more text than the decision needs. Markup in a code block or in backticks is an explanation and stays, and so
//! does a tag that is only mentioned. Knows no JSON escapes and no events; the table of models is in `families`.

mod families;
mod look;

use self::families::{FAMILIES, Family, Position, TRAILERS};
use self::look::{Look, Value};

/// Most text after the beginning of a block that is looked at to decide what it is, in bytes.
const LOOKAHEAD: usize = 256;

/// The filter of one answer's text.
#[derive(Debug, Default)]
pub struct Markup {
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
    Block { family: &'static Family, value: Option<Nesting> },
    /// After a block: what belongs to its end is removed too. `open`: no closing tag has come.
    After { family: &'static Family, open: bool },
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
    /// Takes the next text; returns the part of the text so far that may go out.
    pub fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        self.run(false)
    }

    /// The text has ended: returns what was held back and is no markup. What is pushed next is a new text.
    pub fn finish(&mut self) -> String {
        let out = self.run(true);
        *self = Self::default();
        out
    }

    fn run(&mut self, end: bool) -> String {
        let pending = std::mem::take(&mut self.pending);
        let (mut rest, mut out) = (pending.as_str(), String::new());
        while !rest.is_empty() {
            let step = match self.state {
                State::Text => self.text(rest, end, &mut out),
                State::Block { .. } => self.block(rest, end),
                State::After { family, open } => self.after(family, open, rest, end),
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
            if matches!(c, '`' | '~') {
                length = tail.bytes().take_while(|byte| *byte == c as u8).count();
                self.code.add(c, length, self.start.line);
            } else {
                self.code.settle();
            }
            if c == '\n' {
                self.code.inline = 0;
                self.start.line = true;
            } else if !matches!(c, '`' | '~') && !self.code.is_open() {
                match self.found(tail, end) {
                    Found::Nothing => {}
                    Found::Perhaps => {
                        out.push_str(&rest[..at]);
                        return Step::wait(at);
                    }
                    Found::Block { family, value, bytes } => {
                        out.push_str(&rest[..at]);
                        self.state = State::Block { family, value };
                        return Step::on(at + bytes);
                    }
                }
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
                match (family.body)(rest) {
                    Look::Yes(value) => return Found::block(family, opener, value),
                    // Cut off after its first tag.
                    Look::More if end && self.start.line && rest.trim().is_empty() && opener.len() > 3 => {
                        return Found::block(family, opener, Value::None);
                    }
                    Look::More => perhaps |= !end && rest.len() <= LOOKAHEAD,
                    Look::No => {}
                }
            }
        }
        if perhaps { Found::Perhaps } else { Found::Nothing }
    }

    fn allows(&self, place: Position) -> bool {
        match place {
            Position::Anywhere => true,
            Position::Line => self.start.line,
            Position::Text => self.start.text,
        }
    }

    /// Passes over a block.
    fn block(&mut self, rest: &str, end: bool) -> Step {
        let State::Block { family, value } = &mut self.state else { return Step::on(0) };
        let family = *family;
        for (at, byte) in rest.bytes().enumerate() {
            let is_text = value.as_ref().is_some_and(|value| value.quote.is_some());
            if byte.is_ascii() && !is_text {
                for closer in family.closers {
                    if rest[at..].starts_with(closer) {
                        self.state = State::After { family, open: false };
                        return Step::on(at + closer.len());
                    }
                    if !end && closer.starts_with(&rest[at..]) {
                        return Step::wait(at);
                    }
                }
            }
            if value.as_mut().is_some_and(|value| value.ends_with(byte)) {
                self.state = State::After { family, open: true };
                return Step::on(at + 1);
            }
        }
        Step::on(rest.len())
    }

    /// Passes over what belongs to the end of a block.
    fn after(&mut self, family: &'static Family, open: bool, rest: &str, end: bool) -> Step {
        let tail = rest.trim_start();
        let blank = rest.len() - tail.len();
        let waits = !end && blank <= LOOKAHEAD;
        if tail.is_empty() && waits {
            return Step::wait(0);
        }
        for closer in family.closers.iter().chain(TRAILERS) {
            if tail.starts_with(closer) {
                self.state = State::After { family, open: false };
                return Step::on(blank + closer.len());
            }
            if waits && closer.starts_with(tail) {
                return Step::wait(0);
            }
        }
        if open && !family.closers.is_empty() && tail.starts_with(['{', '[', ',']) {
            self.state = State::Block { family, value: Some(Nesting::default()) };
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
    Block { family: &'static Family, value: Option<Nesting>, bytes: usize },
}

impl Found {
    /// A block that begins with `opener`; with its value's beginning, whose end is the block's.
    fn block(family: &'static Family, opener: &str, value: Value) -> Self {
        let nesting = |is_python| Some(Nesting { is_python, ..Nesting::default() });
        let (value, bytes) = match value {
            Value::None => (None, opener.len()),
            Value::At(place) => (nesting(false), opener.len() + place),
            Value::Whole => (nesting(false), 0),
            Value::Python => (nesting(true), 0),
        };
        Self::Block { family, value, bytes }
    }
}

/// The nesting state within a JSON value or a list of Python calls.
#[derive(Debug, Default)]
struct Nesting {
    depth: u32,
    quote: Option<u8>,
    escaped: bool,
    is_python: bool,
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
            (None, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
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
