//! Arguments without the members that harm: everything else as it was written, white space between members aside.
//! Takes out; which keys harm is its caller's affair.

use wire::body::{Fault, Kind, Scanner};
use wire::json::decode;

/// `text`, a JSON object, without the members whose keys `harm`, at any depth; `None` where there are none, or where
/// it is no JSON.
pub(super) fn strip(text: &str, harms: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut stripper =
        Stripper { scanner: Scanner::new(text.as_bytes()), text, harms, out: String::new(), gone: 0 };
    stripper.value().ok()?;
    (stripper.gone > 0).then_some(stripper.out)
}

struct Stripper<'a> {
    scanner: Scanner<'a>,
    text: &'a str,
    harms: &'a dyn Fn(&str) -> bool,
    out: String,
    gone: usize,
}

impl Stripper<'_> {
    fn value(&mut self) -> Result<(), Fault> {
        match self.scanner.peek()? {
            Kind::Object => self.object(),
            Kind::Array => self.array(),
            _ => {
                let span = self.scanner.skip()?;
                self.out.push_str(&self.text[span.range()]);
                Ok(())
            }
        }
    }

    fn object(&mut self) -> Result<(), Fault> {
        self.scanner.object()?;
        self.out.push('{');
        let mut is_first = true;
        while let Some(key) = self.scanner.member()? {
            if (self.harms)(&decode(key, self.text.as_bytes())) {
                self.scanner.skip()?;
                self.gone += 1;
                continue;
            }
            if !std::mem::replace(&mut is_first, false) {
                self.out.push(',');
            }
            self.out.push_str(&self.text[key.quoted().range()]);
            self.out.push(':');
            self.value()?;
        }
        self.out.push('}');
        Ok(())
    }

    fn array(&mut self) -> Result<(), Fault> {
        self.scanner.array()?;
        self.out.push('[');
        let mut is_first = true;
        while self.scanner.element()? {
            if !std::mem::replace(&mut is_first, false) {
                self.out.push(',');
            }
            self.value()?;
        }
        self.out.push(']');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_members_are_removed_and_all_others_stay_unchanged() {
        let harms = |key: &str| key == "__proto__";
        for (text, expected) in [
            (r#"{"a":1.50,"b":"\u0041"}"#, None),
            (r#"{"__proto__":{"a":1}}"#, Some("{}")),
            (r#"{ "a" : 1.50, "\u005f_proto__":{}, "b":"\u0041" }"#, Some(r#"{"a":1.50,"b":"\u0041"}"#)),
            (r#"{"a":[{"__proto__":1,"b":[]},{"c":{"__proto__":2}}]}"#, Some(r#"{"a":[{"b":[]},{"c":{}}]}"#)),
            (r#"{"a":"__proto__"}"#, None),
            (r#"{"__proto__":1"#, None),
        ] {
            assert_eq!(strip(text, &harms).as_deref(), expected, "{text}");
        }
    }
}
