//! The list of tools that a request declares, as an earlier one declared it: an agent sends the same list with every
//! request. Responsible for reading it as if it were read again; where it is kept and how it is found is for others to
//! know.

use super::body::{Span, Str};
use super::request::{Request, Tool};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A list of tools that was read before.
#[derive(Debug)]
pub struct Declared {
    /// The list as it was written, with its brackets.
    text: Box<[u8]>,
    /// Its tools, at their places in the text.
    tools: Vec<Tool>,
    /// Its size by the count of tokens, and 1 more; 0 where nobody counted yet.
    pub counted: AtomicU64,
    /// A name of its tools.
    pub name: OnceLock<u128>,
}

/// The list that stands at the start of a text, if it is known.
pub type KnownTools<'a> = &'a dyn Fn(&[u8]) -> Option<std::sync::Arc<Declared>>;

impl Declared {
    /// The list at `value`, which holds all tools of `request`; `None` where it does not, or where something odd in the
    /// request may stand within it.
    pub fn of(request: &Request, value: Span, body: &[u8]) -> Option<Self> {
        let start = value.start;
        let is_inside = |tool: &Tool| tool.span.start >= start && tool.span.end <= value.end;
        if request.odd || !value.of(body).starts_with(b"[") || !request.tools.iter().all(is_inside) {
            return None;
        }
        let tools = request.tools.iter().map(|tool| moved(*tool, |at| at - start)).collect();
        let (counted, name) = (AtomicU64::new(0), OnceLock::new());
        Some(Self { text: value.of(body).into(), tools, counted, name })
    }

    /// Whether it stands at the start of `text`. It ends with its bracket, so nothing behind it can change it.
    pub fn begins(&self, text: &[u8]) -> bool {
        text.starts_with(&self.text)
    }

    /// Whether the request that it stands in declares no others.
    pub(super) fn is_all_of(&self, request: &Request) -> bool {
        self.tools.len() == request.tools.len()
    }

    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Its tools in a text in which it starts at `start`.
    pub(super) fn tools_at(&self, start: usize) -> impl Iterator<Item = Tool> {
        self.tools.iter().map(move |tool| moved(*tool, |at| at + start as u32))
    }

    /// Memory that it takes, about.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.tools.len() * size_of::<Tool>()
    }
}

fn moved(tool: Tool, by: impl Fn(u32) -> u32) -> Tool {
    let span = |span: Span| Span { start: by(span.start), end: by(span.end) };
    Tool {
        span: span(tool.span),
        name: tool.name.map(|name| Str { span: span(name.span), ..name }),
        parameters: tool.parameters.map(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    const LIST: &str = r#"[{"type":"function","function":{"name":"a\n","parameters":{"x":[1]}}}, {"function":{"name":"b"}}, 5]"#;

    fn body(list: &str, key: &str, behind: &str) -> String {
        format!(r#"{{"messages":[{{"role":"user","content":"{behind}"}}], "{key}" : {list}{behind}}}"#)
    }

    fn declared(body: &str) -> Option<Declared> {
        let request = Request::parse(body.as_bytes()).unwrap();
        let value = request.value(body.as_bytes(), "tools")?;
        Declared::of(&request, value, body.as_bytes())
    }

    fn shown(request: &Request) -> String {
        format!("{:?}", Request { declared: None, ..request.clone() })
    }

    #[test]
    fn a_known_list_is_read_as_if_it_were_read_again() {
        let known = Arc::new(declared(&body(LIST, "tools", "")).unwrap());
        for behind in ["", r#","n":2"#, " ", r#","functions":[{"name":"c"}]"#, r#","x":"\u0000""#] {
            for key in ["tools", "functions"] {
                let body = body(LIST, key, behind).replace(r#"\u0000"}]"#, r#"}]"#);
                let asked = Cell::new(0);
                let find = |_: &[u8]| {
                    asked.set(asked.get() + 1);
                    Some(Arc::clone(&known))
                };
                let plain = Request::parse(body.as_bytes());
                let read = Request::parse_known(body.as_bytes(), &find);
                match (plain, read) {
                    (Ok(plain), Ok(read)) => {
                        assert_eq!(shown(&read), shown(&plain), "{body}");
                        assert!(read.declared.is_some() && asked.get() > 0);
                    }
                    (plain, read) => assert_eq!(plain.err(), read.err(), "{body}"),
                }
            }
        }
    }

    #[test]
    fn another_list_is_read_as_it_is() {
        let known = Arc::new(declared(&body(LIST, "tools", "")).unwrap());
        let find = |_: &[u8]| Some(Arc::clone(&known));
        for list in [&LIST.replace("x", "y"), &LIST[..LIST.len() - 1], "[]", "null", "[5"] {
            let body = body(list, "tools", r#","n":2"#);
            let [plain, read] =
                [Request::parse(body.as_bytes()), Request::parse_known(body.as_bytes(), &find)];
            match (plain, read) {
                (Ok(plain), Ok(read)) => {
                    assert_eq!((shown(&read), read.declared.is_none()), (shown(&plain), true));
                }
                (plain, read) => assert_eq!(plain.err(), read.err(), "{body}"),
            }
        }
    }

    #[test]
    fn lists_that_are_not_all_or_hold_something_odd_are_not_kept() {
        for behind in [r#","functions":[{"name":"c"}]"#, r#","x":"\u0000""#] {
            let body = format!(r#"{{"messages":[],"tools":{LIST}{behind}}}"#);
            assert!(declared(&body).is_none(), "{body}");
        }
        assert!(declared(r#"{"messages":[],"tools":null}"#).is_none());
    }
}
