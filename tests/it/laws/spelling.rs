//! A JSON writer with many forms of the same value: white space, escapes, the order of keys, unknown members. A
//! stream of choices decides, so that equal choices give equal bytes.

use serde_json::{Map, Value};

/// Represents a lone surrogate in a string before it is written.
pub const LONE: char = '\u{e000}';
/// Represents an escaped NUL.
pub const NUL: char = '\u{e001}';

/// Choices of how to write JSON, used up one by one and then repeated. No choices: the compact form.
#[derive(Clone, Debug)]
pub struct Spelling {
    choices: Vec<u8>,
    at: usize,
    /// Keys may change their order and unknown members may come in.
    pub free_members: bool,
}

impl Spelling {
    pub fn new(choices: Vec<u8>) -> Self {
        Self { choices, at: 0, free_members: true }
    }

    pub fn compact() -> Self {
        Self { choices: Vec::new(), at: 0, free_members: false }
    }

    fn choose(&mut self, among: u8) -> u8 {
        if self.choices.is_empty() {
            return 0;
        }
        self.at += 1;
        (self.choices[self.at % self.choices.len()] ^ (self.at / self.choices.len()) as u8) % among
    }

    pub fn space(&mut self, out: &mut String) {
        out.push_str(["", "", "", "", " ", "\n  ", "\t", "\r\n"][self.choose(8) as usize]);
    }

    pub fn write(&mut self, value: &Value) -> String {
        let mut out = String::new();
        self.value(value, &mut out);
        out
    }

    fn value(&mut self, value: &Value, out: &mut String) {
        match value {
            Value::String(text) => self.string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    self.space(out);
                    self.value(item, out);
                }
                self.space(out);
                out.push(']');
            }
            Value::Object(members) => self.object(members, out),
            other => out.push_str(&other.to_string()),
        }
    }

    fn object(&mut self, members: &Map<String, Value>, out: &mut String) {
        let mut members: Vec<(&String, &Value)> = members.iter().collect();
        if self.free_members && !members.is_empty() {
            let turn = self.choose(members.len().min(255) as u8) as usize;
            members.rotate_left(turn);
        }
        out.push('{');
        for (at, (key, value)) in members.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            self.space(out);
            self.string(key, out);
            self.space(out);
            out.push(':');
            self.space(out);
            self.value(value, out);
        }
        if self.free_members && !members.is_empty() && self.choose(6) == 1 {
            out.push_str(UNKNOWN[self.choose(UNKNOWN.len() as u8) as usize]);
        }
        self.space(out);
        out.push('}');
    }

    fn string(&mut self, text: &str, out: &mut String) {
        out.push('"');
        // One choice for most strings, else one for each character.
        let (plain, each) = (self.choose(4) != 1, self.choose(5));
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                LONE => out.push_str("\\ud83d"),
                NUL => out.push_str("\\u0000"),
                control if control < ' ' => out.push_str(&unicode(control)),
                '/' if !plain => out.push_str("\\/"),
                other if !plain && (each == 1 || !other.is_ascii()) => out.push_str(&unicode(other)),
                other => out.push(other),
            }
        }
        out.push('"');
    }
}

/// Members that toolrein does not know, in forms that a parser would not preserve.
const UNKNOWN: [&str; 6] = [
    r#","x_n":1.50e+05"#,
    r#","x_n":-0.0"#,
    r#", "x_\u0061":[ 1,2 , {"messages" : [{"role":"tool"}]}]"#,
    r#","x_d":1,"x_d":12345678901234567890123"#,
    r#","x_s":"a\/b\u00e9 é \ud83d\ude00""#,
    r#","x_y":null"#,
];

fn unicode(character: char) -> String {
    let mut units = [0; 2];
    character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04X}")).collect()
}
