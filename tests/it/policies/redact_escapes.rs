//! `redact`: a secret is hidden to its end in every escape that documents, addresses and shells know, also in two levels of
//! them; what is put back keeps documents within documents valid.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::{Value, json};

/// A password with everything that is escaped somewhere.
const PASSWORD: &str = "aB3\"dE5\\gH7/k9$mN 1'pQ2&x";
const MAIL: &str = "anna.b@example.org";

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A JSON string with each character as an escape.
fn quoted_as_codes(text: &str) -> String {
    let codes: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    format!("\"{codes}\"")
}

fn percent(text: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// A word of a shell in double quotes, and one in single quotes.
fn in_double(text: &str) -> String {
    let escape = |letter: char| match "\"\\$`".contains(letter) {
        true => format!("\\{letter}"),
        false => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fn in_single(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A word of a shell with escapes as in C.
fn in_dollar(text: &str) -> String {
    format!("$'{}'", text.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>())
}

fn backslashed(text: &str) -> String {
    let escape = |letter: char| match letter.is_alphanumeric() {
        true => letter.to_string(),
        false => format!("\\{letter}"),
    };
    text.chars().map(escape).collect()
}

/// Documents that hold both values, in one level of escapes.
fn documents() -> Vec<String> {
    let (secret, mail) = (quoted(PASSWORD), quoted(MAIL));
    vec![
        format!("{{\"password\":{secret},\"mail\":{mail},\"n\":1.0}}"),
        format!("{{\"password\" : {} ,\"mail\":{}}}", quoted_as_codes(PASSWORD), quoted_as_codes(MAIL)),
        format!("{{\"password\":{},\"mail\":[{mail}]}}", secret.replace('/', "\\/")),
        format!("10:20 INFO login {{\"password\":{secret},\"mail\":{mail}}} done"),
        format!("{{\"n\":1}}\n{{\"password\":{secret},\"mail\":{mail}}}\n"),
        format!("export PASSWORD={}; mail {}", in_double(PASSWORD), in_double(MAIL)),
        format!("export PASSWORD={}; mail {}", in_single(PASSWORD), in_single(MAIL)),
        format!("PASSWORD={} mail {}", in_dollar(PASSWORD), in_dollar(MAIL)),
        format!("PASSWORD={} mail {}", backslashed(PASSWORD), backslashed(MAIL)),
        format!("GET /?password={}&mail={}&n=1", percent(PASSWORD), percent(MAIL)),
        format!("GET /?password={}&mail={}&n=1", percent(&percent(PASSWORD)), percent(&percent(MAIL))),
        format!("https://user:{}@db.example/x?mail={}", percent(PASSWORD), percent(MAIL)),
        format!("{{\"api_key\":[{secret}],\"list\":[{{\"to\":{mail}}}]}}"),
        format!("mysql -u root --password {} -h db {}", in_single(PASSWORD), in_single(MAIL)),
        format!("sshpass -p {} ssh h; mail {}", in_double(PASSWORD), in_double(MAIL)),
        format!("[\"mysql\",\"--password\",{secret},{mail}]"),
        format!("<password>{}</password> <m>{}</m>", in_markup(PASSWORD), in_markup(MAIL)),
        format!("<input name=\"password\" value=\"{}\"> {}", in_markup(PASSWORD), in_markup(MAIL)),
        format!("<pre>{}</pre>", in_markup(&format!("{{\"password\":{secret},\"mail\":{mail}}}"))),
    ]
}

/// Text as markup writes it, with each other character as an entity.
fn in_markup(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' => "&quot;".to_owned(),
        '&' => "&amp;".to_owned(),
        letter if letter.is_alphanumeric() || letter == ' ' => letter.to_string(),
        letter => format!("&#{};", u32::from(letter)),
    };
    text.chars().map(escape).collect()
}

/// The documents by themselves, and within another level of escapes.
fn texts() -> Vec<String> {
    let documents = documents();
    let nested = documents.iter().flat_map(|document| {
        [
            json!({"stdout": document, "code": 0}).to_string(),
            json!([{"content": [{"type": "text", "text": json!({"out": document}).to_string()}]}])
                .to_string(),
            format!("ran: {}", in_double(document)),
            format!("body={}&n=1", percent(document)),
            quoted_as_codes(document),
        ]
    });
    documents.iter().cloned().chain(nested).collect()
}

/// `text` with all escapes of one level resolved, whatever they are.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    let code = |from: usize, digits: usize| {
        let digits = std::str::from_utf8(bytes.get(from..from + digits)?).ok()?;
        u8::try_from(u32::from_str_radix(digits, 16).ok()?).ok()
    };
    while let Some(byte) = bytes.get(at) {
        let (used, meant) = match (byte, bytes.get(at + 1)) {
            (b'%', _) => code(at + 1, 2).map_or((1, *byte), |meant| (3, meant)),
            (b'\\', Some(b'x')) => code(at + 2, 2).map_or((1, *byte), |meant| (4, meant)),
            (b'\\', Some(b'u')) => code(at + 2, 4).map_or((1, *byte), |meant| (6, meant)),
            (b'\\', Some(next)) => (2, *next),
            _ => (1, *byte),
        };
        out.push(meant);
        at += used;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// No part of a value is in the text, however often it is decoded.
fn has_no_value(sent: &str, context: &str) {
    let mut read = sent.to_owned();
    for _ in 0..7 {
        for part in ["aB3", "dE5", "gH7", "k9$m", "1'pQ", "pQ2", "anna", "example.org"] {
            assert!(!read.contains(part), "{part} in {read}\nof {context}");
        }
        read = decoded(&read);
    }
}

/// What the upstream gets as the last result.
fn result_of(request: &Recorded) -> String {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let is_result = |message: &&Value| message["role"] == "tool";
    messages.iter().rfind(is_result).unwrap()["content"].as_str().unwrap().to_owned()
}

#[test]
fn secrets_are_hidden_to_their_end_in_every_escape_two_levels_deep() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Good.", request));
        let program = Toolrein::before(&upstream, "[policy.redact]\nexplain = false\n");
        for (nth, result) in texts().iter().enumerate() {
            let mut talk = Talk::new(form);
            let call = json!({"id": "call_a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
            talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            talk.messages.push(json!({"role": "tool", "tool_call_id": "call_a", "content": result}));
            talk.ask(&program).assert_coherent(form);
            let sent = result_of(&upstream.request(nth));
            has_no_value(&sent, result);
            if serde_json::from_str::<Value>(result).is_ok() {
                serde_json::from_str::<Value>(&sent).unwrap_or_else(|error| panic!("{error}: {sent}"));
            }
        }
        upstream.assert_clean();
    });
}

#[test]
fn recordings_hide_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(|_, request| text("Good.", request));
    let settings = format!("record.dir = {:?}\n", folder.path());
    let program = Toolrein::before(&upstream, &settings);
    for result in texts() {
        let messages = json!([{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": result}]);
        let body = json!({"model": "m", "messages": messages}).to_string();
        assert_eq!(crate::support::client::post(&program.chat_url(), body).status, 200);
    }
    program.stop();
    let mut lines = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            let recorded: Value = serde_json::from_str(line).unwrap();
            assert_eq!(recorded["request"]["messages"].as_array().unwrap().len(), 3, "{line}");
            has_no_value(&recorded["request"].to_string(), "a recording");
            lines += 1;
        }
    }
    assert_eq!(lines, texts().len());
}

#[test]
fn a_value_that_is_put_back_keeps_documents_within_documents_valid() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            if nth > 0 {
                return text("Done.", request);
            }
            let result = result_of(request);
            let start = result.find("[SECRET_").unwrap();
            let hidden = &result[start..=start + result[start..].find(']').unwrap()];
            let inner = json!({"k": hidden, "deeper": json!([{"k": hidden}]).to_string()}).to_string();
            let arguments = json!({"body": inner, "plain": hidden}).to_string();
            Reply::speech(request, &Speech::calls(&[("b", "search", &arguments)]))
        });
        let program = Toolrein::before(&upstream, "[policy.redact]\nrestore = [\"search\"]\n");
        let mut talk = Talk::new(form);
        let call =
            json!({"id": "call_a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let result = json!({"password": PASSWORD}).to_string();
        talk.messages.push(json!({"role": "tool", "tool_call_id": "call_a", "content": result}));
        let said = talk.ask(&program);
        let arguments: Value = serde_json::from_str(&said.calls[0].2).unwrap();
        let body: Value = serde_json::from_str(arguments["body"].as_str().unwrap()).unwrap();
        let deeper: Value = serde_json::from_str(body["deeper"].as_str().unwrap()).unwrap();
        assert_eq!([&arguments["plain"], &body["k"], &deeper[0]["k"]], [PASSWORD; 3]);
        // What the client sends back is hidden again, at each depth.
        talk.add(&said);
        talk.ask(&program);
        has_no_value(&upstream.request(1).json()["messages"].to_string(), "the arguments");
    });
}

#[test]
fn what_looks_like_an_escape_and_holds_no_secret_is_not_touched() {
    let upstream = Scripted::start(|_, request| text("Good.", request));
    let program = Toolrein::before(&upstream, "[policy.redact]\n");
    for (nth, result) in [
        r#"{"password":"must have at least 8 characters","token":null,"errors":{"password":["is too short"]}}"#,
        r#"{"next_page_token":"aB3dE5gH7jK9mN1","pageToken":"CAUQAA9x7Yz81q","nextToken":"eyJ2IjoiMiIsImMiOiJ9"}"#,
        r"C:\Users\anna\new\table100\u1 100%25 and \d+\.\d{2}\b",
        r#"{"re":"^\\d{3}-[a-z]+\\.js$","path":"a\/b\/c"}"#,
        r#"if token == "abc" and password != '' { return "%d%%" }"#,
        "mkdir -p build/release2024 && ssh -p 2222 host && docker run -p 8080:80 web && cp -p a b",
        "usage: tool --password FILE --token <token> --api-key $API_KEY -p PORT",
        r#"<label for="password">Password: 8 characters</label><input name="password" value=""> a &lt; b &amp;amp; c"#,
        "tokens:\n  - one\n  - two\npasswords: [weak, strong]",
    ]
    .iter()
    .enumerate()
    {
        let messages = json!([{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": result}]);
        let body = json!({"model": "m", "messages": messages}).to_string();
        crate::support::client::post(&program.chat_url(), &body);
        assert_eq!(String::from_utf8(upstream.request(nth).body).unwrap(), body);
    }
}
