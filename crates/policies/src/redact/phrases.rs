//! Secrets after what announces them and is no assignment: a header with its scheme, a cookie, an instruction of a file or a
//! database, a sentence. In time linear in the text.

use super::expressions::is_words;
use super::named::{NAMES, is_secret, value_at};
pub use model::plan::work::step;
use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::LazyLock;

/// A header that lets its sender in, up to its value.
const HEADER: &str = r#"\b(?:proxy-)?authorization[\x22'\\]{0,4}\s{0,2}[:=]\s{0,2}"#;
/// The header before what it names, in a form of several parts.
const PART: &str = r#"\bname=[\x22'\\]{1,4}(?:[a-z0-9]{1,16}[\[_.-]){0,3}"#;
const OF_PART: &str = r#"\]?[\x22'\\]{1,4}[^\n]{0,80}?\r?\n(?:[^\r\n]{1,80}\r?\n){0,2}\r?\n"#;
/// Instructions that set a secret: of container files and shells, of files of logins, of databases.
const SETS: &str = r"(?m:^)\s{0,16}(?:env|arg|setx)\s{1,4}(?:[a-z0-9]{1,16}_){0,4}";
const INSTRUCTIONS: &str = r"\blogin\s{1,4}\S{1,64}\s{1,4}password\s{1,4}|\b(?:user|role|to)\s{1,4}\S{1,64}\s{1,4}identified\s{1,4}(?:with\s{1,4}\S{1,40}\s{1,4})?(?:by|as)\s{1,4}(?:password\s{1,4})?|\bwith\s{1,4}(?:encrypted\s{1,4})?password\s{1,4}|\b(?:pwd|password)\s?=\s?\{";
/// Words for a password in other languages, and what says that a value follows.
const SENTENCES: &str = r"\b(?:password|passphrase|passcode|secret|api key|access key|token)\s{1,2}(?:is|was)\s?:?\s{1,2}|(?:\b(?:passwort|kennwort|mot de passe|contraseña|contrasena|senha|wachtwoord|hasło|пароль|şifre|lösenord|salasana|jelszó|heslo)|密码|密碼|口令|密钥|パスワード|비밀번호)(?:\s{0,2}[:：=]|\s{1,2}(?:ist|lautet|est|es|é|это)\b\s?:?|\s{0,2}(?:是|为|は)\s?:?)\s{0,3}";

/// Where a cookie's header begins.
const COOKIE: &str = r#"(?i)\b(?:set-)?cookie[\x22'\\]{0,4}\s{0,2}:\s{0,2}"#;
/// Parts of the names of cookies that let their sender in.
const OF_SESSIONS: [&str; 11] =
    ["sess", "sid", "token", "auth", "jwt", "csrf", "xsrf", "login", "remember", "secret", "identity"];

/// A pattern that does not compile finds nothing; a test holds that it does.
pub(super) static PHRASES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let pattern = format!(
        "(?i)(?P<header>{HEADER})|{PART}{NAMES}{OF_PART}|{SETS}{NAMES}\\s{{1,4}}|{INSTRUCTIONS}|(?P<sentence>{SENTENCES})"
    );
    Regex::new(&pattern).ok()
});
pub(super) static COOKIES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(COOKIE).ok());

/// The secrets, in order. A value is never looked at for a further phrase, so that the time is linear.
pub(super) fn find_after_phrases(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let phrase = PHRASES.as_ref()?.captures_at(text, from)?;
            step();
            from = phrase.get(0)?.end();
            if let Some(value) = find_value(text, &phrase) {
                from = from.max(value.end);
                return Some(value);
            }
        }
    })
}

/// The secret that a phrase announces, if what follows it is one.
fn find_value(text: &str, phrase: &Captures<'_>) -> Option<Range<usize>> {
    let whole = phrase.get(0)?;
    let at = whole.end();
    if phrase.name("header").is_some() {
        return find_in_header(text, at);
    }
    if whole.as_str().ends_with('{') {
        let length = text[at..].bytes().take(256).position(|byte| matches!(byte, b'}' | b'\n'))?;
        // A name in braces is a variable.
        return is_secret(&text[at - 1..at + length + 1], true).then(|| at..at + length);
    }
    let value = value_at(text, at, "")?;
    if phrase.name("sentence").is_none() {
        return Some(value);
    }
    let word = text[value.clone()].trim_end_matches(['.', '!', '?', ':', '*']);
    (!is_words(word)).then(|| value.start..value.start + word.len())
}

/// The secret in a header's value: the first word, or the one after a scheme.
fn find_in_header(text: &str, at: usize) -> Option<Range<usize>> {
    if let Some(value) = value_at(text, at, "") {
        let scheme = text[value.clone()].split(' ').next().unwrap_or_default();
        let is_scheme = scheme.len() < value.len() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
        return Some(if is_scheme { value.start + scheme.len() + 1..value.end } else { value });
    }
    let window = text.floor_char_boundary(at + 48);
    let begins = &text[at..window];
    let begins = begins.trim_start_matches(['"', '\'', '\\']);
    let (scheme, rest) = begins.split_once([' ', '\t'])?;
    let is_scheme =
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let blanks = rest.len() - rest.trim_start_matches(' ').len();
    let start = window - rest.len() + blanks;
    let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '\\' | ',' | '`');
    let length = text[start..].find(is_end).unwrap_or(text.len() - start);
    (is_scheme && is_secret(&text[start..start + length], false)).then(|| start..start + length)
}

/// The values of cookies that let their sender in, in order.
pub(super) fn find_cookies(text: &str) -> Vec<Range<usize>> {
    let Some(pattern) = COOKIES.as_ref() else { return Vec::new() };
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(header) = pattern.find_at(text, from) {
        let line = &text[header.end()..];
        let line = &line[..line.find(['\n', '\r', '"', '\'']).unwrap_or(line.len())];
        let mut at = header.end();
        for pair in line.split(';') {
            if let Some((name, value)) = pair.split_once('=') {
                let name = name.to_ascii_lowercase();
                let is_of_session = OF_SESSIONS.iter().any(|part| name.contains(part));
                let value = value.trim();
                if is_of_session && is_secret(value, true) {
                    let start = at + pair.find('=').map_or(0, |equals| equals + 1);
                    let blanks = text[start..].len() - text[start..].trim_start().len();
                    found.push(start + blanks..start + blanks + value.len());
                }
            }
            at += pair.len() + 1;
        }
        from = header.end() + line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: &str = "Xq7Zp2Lm9Rt4Vw8K";

    fn found(text: &str) -> Vec<&str> {
        let cookies = find_cookies(text);
        find_after_phrases(text).chain(cookies).map(|range| &text[range]).collect()
    }

    #[test]
    fn every_pattern_of_a_phrase_compiles() {
        assert!(PHRASES.is_some() && COOKIES.is_some());
    }

    #[test]
    fn a_secret_is_found_after_what_announces_it() {
        for written in [
            "Authorization: token @",
            "Authorization: ApiKey @",
            "Authorization: @",
            "proxy-authorization: Custom-Scheme @\r\n",
            "curl -H 'Authorization: Splunk @' https://x",
            "Set-Cookie: session=@; Path=/",
            "Cookie: theme=dark; PHPSESSID=@",
            "FROM x\nENV DB_PASSWORD @\n",
            "machine h login u password @",
            "Driver=x;PWD={@};",
            "CREATE USER a IDENTIFIED BY '@'",
            "ALTER USER a WITH PASSWORD '@'",
            "Content-Disposition: form-data; name=\"password\"\r\n\r\n@\r\n",
            "The password is @.",
            "Passwort: @",
            "Das Passwort lautet @!",
            "mot de passe : @",
            "contraseña: @",
            "密码：@",
            "пароль: @",
        ] {
            let text = written.replace('@', S);
            assert_eq!(found(&text), [S], "{text}");
        }
    }

    #[test]
    fn what_announces_no_secret_is_none() {
        for text in [
            "Authorization: Bearer <token>",
            "authorization: process.env.TOKEN_1",
            "The password is required_field2 here, the token is deprecated_v2.",
            "The password must contain 8 characters.",
            "Cookie: theme=Xq7Zp2Lm9Rt4Vw8K",
            "Cookie: session=none; id=Xq7Zp2Lm9Rt4Vw8K",
            "ENV BUILD_ID Xq7Zp2Lm9Rt4Vw8K",
            "PWD={password_1}",
            "Passwort: bitte_eingeben2",
            "It was identified as CVE-2024-30941 by them.",
            "A resource is identified by 3f2504e0-4f89-41d3-9a0c-0305e82c3301.",
            "Des Passwortes3dE5gH7jK9 wegen",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }
}
