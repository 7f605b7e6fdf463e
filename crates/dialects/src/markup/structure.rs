//! Recognition of calls by their structure: a delimiter opens, a tool that the model knows is named with arguments, and
//! the delimiter closes. Models without a format of their own, and formats that `families` does not list, write calls
//! as JSON in a code block, as a tag with any name, after a label, or bare.
//!
//! Only the names of known tools make a call here, so that an answer may show code, JSON or XML. Looks at a bounded
//! text and copies nothing.

mod code;
mod header;
mod tags;

use super::look::{Look, Rest, best, blank, literal, literal_in_any_case, name};
use super::names::ToolNames;
use super::values::{Member, is_schema, skipped, string, token_end, unprinted};

/// Most text of a structure that is looked at to decide what it is, in bytes.
pub(super) const WINDOW: usize = 2048;
/// Most delimiters within each other.
const DEPTH: usize = 4;
/// Longest name of a delimiter, and longest label before a call, in bytes.
const LABEL: usize = 64;

/// How a call ends that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the value that begins so many bytes after the beginning of the call.
    Value { at: usize, is_python: bool },
    /// With this text.
    Closer(String),
    /// With the code block that `marks` close, and whose body begins so many bytes after the beginning of the call.
    Fence { marks: String, at: usize },
    /// With the tag whose last byte is the one before this.
    Tag(usize),
    /// With the line in which this byte is.
    Line(usize),
}

/// A call that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Structure {
    pub(super) ends: Ends,
    /// What may follow its end and belongs to it: closing tags.
    pub(super) trailers: Vec<String>,
}

type Found = Result<Structure, Look>;

impl Structure {
    fn new(ends: Ends) -> Self {
        Self { ends, trailers: Vec::new() }
    }

    /// The same call within a delimiter that `closer` closes.
    fn within(mut self, closer: String) -> Self {
        match &mut self.ends {
            Ends::Closer(inner) => *inner = closer,
            Ends::Fence { .. } | Ends::Value { .. } | Ends::Tag(_) | Ends::Line(_) => {
                self.trailers.push(closer);
            }
        }
        self
    }
}

/// Where a text begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStart {
    /// Only white space is before it in the whole text.
    pub(super) text: bool,
    /// Only white space is before it in its line.
    pub(super) line: bool,
    /// Nothing follows what has come of it.
    pub(super) has_ended: bool,
}

/// The call that `text` begins with. `Err`: there is none, or it may become one.
pub(super) fn look(text: &str, beginning: BlockStart, tools: &ToolNames) -> Found {
    if tools.is_empty() {
        return Err(Look::No);
    }
    let end = text.floor_char_boundary(WINDOW);
    let has_ended = beginning.has_ended && end == text.len();
    let reader = Reader { whole: &text[..end], tools, is_in_code: false, has_ended };
    match reader.call(beginning) {
        Err(Look::More) if end < text.len() => Err(Look::No),
        found => found,
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    whole: &'a str,
    tools: &'a ToolNames,
    /// It reads a block of code, which may show how a tool is declared.
    is_in_code: bool,
    has_ended: bool,
}

/// The position of a name that may be that of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// No delimiter says that a call follows.
    Plain,
    /// One does: its name has a word for calls.
    OfCall,
}

/// The words that name a delimiter or a label of calls.
const CALL_WORDS: [&str; 6] = ["tool", "func", "call", "invoke", "action", "recipient"];

pub(super) fn has_call_word(name: &str) -> bool {
    let name = name.to_lowercase();
    CALL_WORDS.iter().any(|word| name.contains(word))
}

impl<'a> Reader<'a> {
    fn at(&self, rest: &str) -> usize {
        self.whole.len() - rest.len()
    }

    fn call(&self, beginning: BlockStart) -> Found {
        let text = self.whole;
        match text.chars().next() {
            Some('<') if beginning.line => {
                any([self.element(text), self.framed(text, DEPTH), self.header(text)])
            }
            Some('<') => any([self.framed(text, DEPTH), self.header(text)]),
            Some('[') => any([self.framed(text, DEPTH), self.bare(text, beginning)]),
            Some('{') => self.bare(text, beginning),
            Some('`' | '~') if beginning.text => any([self.fence(text, DEPTH), self.lone_code(text, DEPTH)]),
            Some('`' | '~') if beginning.line => self.fence(text, DEPTH),
            Some('>') => self.recipient(text),
            Some(_) if beginning.text => {
                any([self.heading(text), self.statement(text), self.label(text), self.header(text)])
            }
            Some(_) if beginning.line => any([self.of_namespace(text), self.label(text), self.header(text)]),
            _ => Err(Look::No),
        }
    }

    /// JSON, or a list of calls, without a delimiter.
    fn bare(&self, text: &'a str, beginning: BlockStart) -> Found {
        if beginning.line { self.json(text, Frame::Plain) } else { Err(Look::No) }
    }

    /// `>>>search` and a line end (Functionary).
    fn recipient(&self, text: &'a str) -> Found {
        let rest = literal(self.known(literal(text, ">>>")?)?, "\n")?;
        let inside = blank(rest)?;
        if inside.starts_with('{') { Ok(value(self.at(inside), false)) } else { Err(Look::No) }
    }

    /// A name on a line of its own and its arguments (Functionary, ChatGLM).
    fn heading(&self, text: &'a str) -> Found {
        let rest = literal(self.known(text)?, "\n")?;
        let inside = blank(rest)?;
        if inside.starts_with('{') {
            return Ok(value(self.at(inside), false));
        }
        let body = literal(inside, "```python\n")?;
        literal(body, "tool_call(")?;
        Ok(Structure::new(Ends::Fence { marks: "```".to_owned(), at: self.at(body) }))
    }

    /// The name of a known tool.
    fn known(&self, text: &'a str) -> Rest<'a> {
        let rest = name(text)?;
        if self.tools.contain(&text[..text.len() - rest.len()]) { Ok(rest) } else { Err(Look::No) }
    }

    /// A call between delimiters: a tag, a token, a code block.
    fn framed(&self, text: &'a str, depth: usize) -> Found {
        let Some(depth) = depth.checked_sub(1) else { return Err(Look::No) };
        match text.chars().next() {
            None => Err(Look::More),
            Some('`' | '~') => self.fence(text, depth),
            Some('<') => any([self.token(text, depth), self.tag(text, depth)]),
            Some('[') => self.token(text, depth),
            Some(_) => Err(Look::No),
        }
    }

    /// What a delimiter holds, if it is a call.
    fn content(&self, text: &'a str, frame: Frame, depth: usize) -> Found {
        let text = blank(text)?;
        match text.chars().next() {
            Some('{') => self.json(text, frame),
            Some('[') => any([self.json(text, frame), self.framed(text, depth)]),
            Some('<' | '`') => self.framed(text, depth),
            _ => self.named(text, frame),
        }
    }

    /// A name and its arguments.
    fn named(&self, text: &'a str, frame: Frame) -> Found {
        let inside = unprinted(text)?;
        let of_api = inside.starts_with("default_api.");
        let rest = self.known(inside)?;
        if frame == Frame::Plain && !of_api {
            return Err(Look::No);
        }
        if rest.starts_with('(') {
            return Ok(value(self.at(text), true));
        }
        let inside = blank(rest)?;
        match inside.chars().next() {
            Some('{') => Ok(value(self.at(inside), false)),
            // Another delimiter before the arguments; or the tags of arguments, which end with the call's.
            Some('<') => {
                let json = token_end(inside).and_then(|(_, rest)| blank(rest));
                match json {
                    Ok(json) if json.starts_with('{') => Ok(value(self.at(json), false)),
                    Err(Look::More) => Err(Look::More),
                    _ => Ok(Structure::new(Ends::Closer(String::new()))),
                }
            }
            _ => Err(Look::No),
        }
    }

    /// A token: `<|name|>`, `<｜name｜>`, `<<name>>`, `[NAME]`.
    fn token(&self, text: &'a str, depth: usize) -> Found {
        let (token, rest) = token_end(text)?;
        if !has_call_word(token) {
            return Err(Look::No);
        }
        let found = self.content(rest, Frame::OfCall, depth)?;
        if text.starts_with('[') {
            let name = token.to_owned();
            return Ok(found.within(format!("[END_{name}]")).within(format!("[/{name}]")));
        }
        Ok(match &found.ends {
            Ends::Closer(closer) if closer.is_empty() => Structure::new(Ends::Closer("\n\n".to_owned())),
            _ => found,
        })
    }

    /// A label and a call: `Action: search` with `Action Input: {...}`, `Tool call: {...}`.
    fn label(&self, text: &'a str) -> Found {
        const LEADS: [&str; 9] =
            ["action", "tool", "function", "call", "invoke", "invoking", "using", "use tool", "✿function"];
        let plain = text.trim_start_matches('*');
        best(LEADS.iter().map(|lead| literal_in_any_case(plain, lead)))?;
        let Some(end) = plain.find([':', '\n']) else {
            return if plain.len() <= LABEL { Err(Look::More) } else { Err(Look::No) };
        };
        if !plain[end..].starts_with(':') || end > LABEL {
            return Err(Look::No);
        }
        let inside = plain[end + 1..].trim_start_matches('*');
        let inside = blank(inside)?;
        match inside.chars().next() {
            Some('{' | '[') => self.json(inside, Frame::OfCall),
            Some('`') if inside.starts_with("```") => self.fence(inside, DEPTH),
            _ => {
                let is_action = plain[..end].to_lowercase().starts_with("action");
                self.labelled(inside.trim_start_matches(['`', '"', '[']), is_action)
            }
        }
    }

    /// A name and, under a label of their own, its arguments: JSON, or, for an action, a line of text (ReAct).
    fn labelled(&self, text: &'a str, is_action: bool) -> Found {
        let rest = self.known(text)?;
        if let Some(arguments) = rest.strip_prefix('(') {
            self.keyword_arguments(arguments)?;
            return Ok(value(self.at(text), true));
        }
        let next = blank(rest.trim_start_matches(['`', '"', ']', '.', ',']))?;
        if next.starts_with('{') {
            return Ok(value(self.at(next), false));
        }
        if !rest[..rest.len() - next.len()].contains('\n') {
            return Err(Look::No);
        }
        let Some(end) = next.find([':', '\n']) else {
            return if next.len() <= LABEL { Err(Look::More) } else { Err(Look::No) };
        };
        let label = next[..end].to_lowercase();
        let is_of_arguments = ["input", "arg", "param"].iter().any(|word| label.contains(word));
        if !next[end..].starts_with(':')
            || end > LABEL
            || !is_of_arguments
            || label.split_whitespace().count() > 3
        {
            return Err(Look::No);
        }
        let inside = next[end + 1..].trim_start_matches(['*', ' ', '\t']);
        match inside.chars().next() {
            None => Err(Look::More),
            Some('{' | '[') => Ok(value(self.at(inside), false)),
            Some(_) if is_action && label.contains("input") => {
                Ok(Structure::new(Ends::Line(self.at(inside))))
            }
            Some(_) => Err(Look::No),
        }
    }

    /// An object that is a call, or a list of calls.
    fn json(&self, text: &'a str, frame: Frame) -> Found {
        let at = self.at(text);
        if let Some(inside) = text.strip_prefix('[') {
            let inside = blank(inside)?;
            if inside.starts_with('{') {
                let is_python = self.object(inside, frame)?;
                return Ok(value(at, is_python));
            }
            self.keyword_arguments(literal(self.known(inside)?, "(")?)?;
            return Ok(value(at, true));
        }
        let is_python = self.object(literal(text, "{").map(|_| text)?, frame)?;
        Ok(value(at, is_python))
    }

    /// Whether the object is written in Python's syntax, if it is a call: it names a known tool and holds its arguments.
    fn object(&self, text: &'a str, frame: Frame) -> Result<bool, Look> {
        let (mut named, mut has_arguments) = (false, false);
        let mut rest = blank(literal(text, "{")?)?;
        let (is_python, mut is_first) = (rest.starts_with('\''), true);
        loop {
            let (key, after) = string(rest)?;
            let value = blank(literal(blank(after)?, ":")?)?;
            match self.member(key, value, is_first, frame)? {
                Part::Call { is_python: inner } => return Ok(inner || is_python),
                Part::Name => named = true,
                Part::Arguments => has_arguments = true,
                Part::Other => {}
            }
            if named && has_arguments {
                return Ok(is_python);
            }
            is_first = false;
            rest = blank(skipped(value)?)?;
            match rest.strip_prefix(',') {
                Some(next) => rest = blank(next)?,
                // A call without arguments is one only where a delimiter says so.
                None if rest.starts_with('}') && named && frame == Frame::OfCall => return Ok(is_python),
                None => return Err(Look::No),
            }
        }
    }

    /// What a member says of the object that holds it. `Err(No)`: the object is no call.
    fn member(&self, key: &str, value: &'a str, is_first: bool, frame: Frame) -> Result<Part, Look> {
        let call = |is_python| Part::Call { is_python };
        match Member::of(key) {
            Member::Name if value.starts_with('{') => self.object(value, frame).map(call),
            Member::Name if self.tools.contain(string(value)?.0) => Ok(Part::Name),
            Member::Calls => {
                let first = blank(value.strip_prefix('[').unwrap_or(value))?;
                self.object(first, frame).map(call)
            }
            Member::Arguments if !is_schema(value)? => Ok(Part::Arguments),
            // An object whose only member is a call, as `{"search": {"q": 1}}`.
            Member::Other if is_first && frame == Frame::OfCall && self.tools.contain(key) => {
                if value.starts_with('{') { Ok(call(false)) } else { Err(Look::No) }
            }
            Member::Other if !is_first => Ok(Part::Other),
            Member::Lead => Ok(Part::Other),
            Member::Name | Member::Arguments | Member::Description | Member::Other => Err(Look::No),
        }
    }
}

/// What a member says of the object that holds it.
enum Part {
    /// It holds whole calls.
    Call {
        is_python: bool,
    },
    /// It names a known tool.
    Name,
    Arguments,
    Other,
}

fn value(at: usize, is_python: bool) -> Structure {
    Structure::new(Ends::Value { at, is_python })
}

/// The first that matches; otherwise whether one may still match. One that may still match goes before later ones.
fn any<const N: usize>(found: [Found; N]) -> Found {
    found.into_iter().find(|found| !matches!(found, Err(Look::No))).unwrap_or(Err(Look::No))
}
