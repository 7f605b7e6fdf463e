//! Addresses as they are shown: without credentials, without what may be a secret in path, query and fragment. Reads
//! addresses of any scheme, also such as are none.

/// Query parameters whose values are shown: they are no secrets, and say what an address is.
const SHOWN: [&str; 5] = ["api-version", "version", "v", "deployment", "region"];
/// In place of a secret.
const HIDDEN: &str = "***";
/// The shortest word of a path that may be a secret, if it has letters and digits.
const SHORTEST_MIXED: usize = 12;
/// The shortest one, whatever it has.
const SHORTEST: usize = 32;

/// `text`, which is meant to be a URL and may be none, with everything hidden that may be a secret.
pub fn without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    // A password may contain any character, so everything before the last @ is hidden.
    let rest = rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, host)| format!("{HIDDEN}@{host}"));
    without_secrets_in(&format!("{scheme}{separator}{rest}"))
}

/// `text`, in which each address is a word, with everything hidden in the addresses that may be a secret.
pub(super) fn without_secrets_in(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    let shown = |word: &str| {
        let address = word.trim_end();
        let shown = if address.contains("://") { of_address(address) } else { address.to_owned() };
        shown + &word[address.len()..]
    };
    words.map(shown).collect()
}

/// The scheme and the host of an address, whose path is a secret.
pub fn without_path(address: &str) -> String {
    let shown = of_address(address);
    let after = shown.find("://").map_or(0, |at| at + 3);
    match shown[after..].find(['/', '?', '#']) {
        Some(at) if shown.len() > after + at + 1 => format!("{}/{HIDDEN}", &shown[..after + at]),
        _ => shown,
    }
}

fn of_address(address: &str) -> String {
    let (before, rest) = address.split_once("://").unwrap_or(("", address));
    let (rest, fragment) = rest.split_once('#').map_or((rest, ""), |(rest, _)| (rest, HIDDEN));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A colon without a port may be followed by a password with a slash in it.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
    let is_cut = !is_port && path.contains('@');
    let (authority, path) = if is_cut { ("", rest) } else { (authority, path) };
    let mut shown = format!("{before}://");
    match (authority.rsplit_once('@'), path.rsplit_once('@').filter(|_| is_cut)) {
        (Some((_, host)), _) => shown.push_str(&format!("{HIDDEN}@{host}{}", of_path(path))),
        (None, Some((_, host))) => shown.push_str(&format!("{HIDDEN}@{}", of_path(host))),
        (None, None) => shown.push_str(&format!("{authority}{}", of_path(path))),
    }
    if let Some(query) = query {
        let pairs: Vec<String> = query.split('&').map(of_pair).collect();
        shown.push_str(&format!("?{}", pairs.join("&")));
    }
    if !fragment.is_empty() {
        shown.push_str(&format!("#{fragment}"));
    }
    shown
}

/// A path without the words that look like a token. Names of models and versions have shorter words.
fn of_path(path: &str) -> String {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'=' | b'+' | b'_');
    let mut shown = String::with_capacity(path.len());
    let mut rest = path;
    while !rest.is_empty() {
        let length = rest.bytes().take_while(|byte| is_of_word(*byte)).count();
        let (word, after) = rest.split_at(length);
        shown.push_str(if may_be_secret(word) { HIDDEN } else { word });
        let length = after.bytes().take_while(|byte| !is_of_word(*byte)).count();
        shown.push_str(&after[..length]);
        rest = &after[length..];
    }
    shown
}

fn may_be_secret(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.as_bytes().iter().any(is);
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    word.len() >= if is_mixed { SHORTEST_MIXED } else { SHORTEST }
}

fn of_pair(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    let is_shown = SHOWN.iter().any(|shown| shown.eq_ignore_ascii_case(name)) && of_path(value) == value;
    match (is_shown || value.is_empty(), name.is_empty()) {
        (true, _) => pair.to_owned(),
        // A query without a name may be a token itself.
        (false, true) => HIDDEN.to_owned(),
        (false, false) => format!("{}={HIDDEN}", of_path(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_hidden_and_the_rest_of_an_address_is_shown() {
        for (address, shown) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1"),
            ("https://h/@cf/v1", "https://h/@cf/v1"),
            ("http://[::1]:8000/", "http://[::1]:8000/"),
            (
                "https://h:443/v1?api-version=2024-05-01-preview",
                "https://h:443/v1?api-version=2024-05-01-preview",
            ),
            (
                "https://h/openai/deployments/gpt-4o-mini-2024-07-18/",
                "https://h/openai/deployments/gpt-4o-mini-2024-07-18/",
            ),
            ("https://u:p4ss@h/v1", "https://***@h/v1"),
            ("https://u:p4/ss@h/v1", "https://***@h/v1"),
            ("redis://:p4ss@h:6379/0", "redis://***@h:6379/0"),
            ("https://h/v1?sig=abc&code=x&v=1", "https://h/v1?sig=***&code=***&v=1"),
            ("https://h/v1?dG9rZW4#frag", "https://h/v1?***#***"),
            ("https://h/bot12345678:AAE9fkq3Lmn-x_y/send", "https://h/bot12345678:***-x_y/send"),
            (
                "https://h/services/T024BE7LD/B0G9QF9GZ/XXdkjUlHaOwQbXXzq24h7Xq1/x",
                "https://h/services/T024BE7LD/B0G9QF9GZ/***/x",
            ),
        ] {
            assert_eq!(of_address(address), shown);
            assert_eq!(without_secrets_in(&format!("see {address} .")), format!("see {shown} ."));
        }
    }

    #[test]
    fn of_a_webhook_only_the_host_is_shown() {
        for (address, shown) in [
            ("https://h.example/hooks/a", "https://h.example/***"),
            ("https://h.example:8443?t=a", "https://h.example:8443/***"),
            ("https://u:p@h.example/a", "https://***@h.example/***"),
            ("https://h.example/", "https://h.example/"),
            ("https://h.example", "https://h.example"),
        ] {
            assert_eq!(without_path(address), shown);
        }
    }
}
