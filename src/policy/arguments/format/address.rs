//! Addresses in the network: of people, hosts and documents. What a host is found under is not asked.

use std::net::{Ipv4Addr, Ipv6Addr};

/// RFC 5321, `Mailbox`, in outline.
pub fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_plain = local.split('.').all(|part| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),:;<>@[\\]".contains(&byte))
    });
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let is_literal = literal.is_some_and(|address| match address.strip_prefix("IPv6:") {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => address.parse::<Ipv4Addr>().is_ok(),
    });
    (is_quoted || is_plain) && local.len() <= 64 && (is_literal || is_hostname(domain))
}

/// RFC 1123.
pub fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// RFC 3986, `URI`, in outline.
pub fn is_uri(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && is_relative(rest))
}

/// RFC 3986, `URI-reference`, in outline.
pub fn is_reference(text: &str) -> bool {
    // A colon in the first segment ends a scheme.
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    if first.contains(':') { is_uri(text) } else { is_relative(text) }
}

/// What may follow a scheme.
fn is_relative(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("//") else { return has_uri_characters(text) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (user, host) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
    let (address, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => (Some(address), port),
        None => (None, host.find(':').map_or("", |at| &host[at..])),
    };
    let is_literal =
        address.is_none_or(|address| address.parse::<Ipv6Addr>().is_ok() || address.starts_with('v'));
    let name = if address.is_some() { "" } else { host };
    is_literal
        && port.strip_prefix(':').unwrap_or(port).bytes().all(|byte| byte.is_ascii_digit())
        && !user.contains('@')
        && [user, name, &rest[end..]].into_iter().all(has_uri_characters)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether all characters may stand in a URI beside the address of a host, each `%` before two digits, and `#` once.
fn has_uri_characters(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.matches('#').count() <= 1
        && bytes.iter().enumerate().all(|(at, byte)| match byte {
            b'%' => is_escape(at),
            byte => byte.is_ascii_graphic() && !b"\"<>[\\]^`{|}".contains(byte),
        })
}
