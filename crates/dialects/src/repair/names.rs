//! Names of called tools that providers refuse in a history: the empty one, those over 64 characters, and those with
//! other characters than letters, digits, `_` and `-`. Results that name their tool follow.

use super::Pairing;
use model::message::Role;
use model::request::Request;
use wire::body::Str;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// The longest name that OpenAI and Bedrock accept.
const LONGEST: usize = 64;
/// The name of a tool whose own name has no accepted letter or digit.
const NAMELESS: &str = "unknown_tool";

/// The name that every provider accepts in place of `name`; `None` where that is `name` itself.
pub fn accepted_name(name: &str) -> Option<String> {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_accepted) {
        return None;
    }
    if !name.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Some(NAMELESS.to_owned());
    }
    Some(name.chars().map(|c| if is_accepted(c) { c } else { '_' }).take(LONGEST).collect())
}

/// The names in the history that are not accepted, each with the one that takes its place.
pub(super) fn new_names(request: &Request, body: &[u8], pairing: &dyn Pairing) -> Vec<(Str, String)> {
    let calls = request.messages.iter().flat_map(|message| &message.calls);
    let called = calls.filter(|call| pairing.may_rename(call)).filter_map(|call| call.name);
    let answered = request.messages.iter().filter(|message| message.role == Role::Tool);
    let all = called.chain(answered.filter_map(|result| result.name));
    all.filter_map(|name| Some((name, accepted_name(&decode(name, body))?))).collect()
}

/// Writes the accepted names.
pub(super) fn rename(request: &Request, body: &[u8], pairing: &dyn Pairing, splices: &mut Splices) {
    for (name, new) in new_names(request, body, pairing) {
        splices.replace(name.quoted(), quote(&new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_name_becomes_one_that_every_provider_accepts_and_others_stay() {
        for (name, expected) in [
            ("search", None),
            ("open_tab-2", None),
            ("", Some("unknown_tool")),
            ("  ", Some("unknown_tool")),
            ("...", Some("unknown_tool")),
            ("browser.tabs.open", Some("browser_tabs_open")),
            (" pay\n", Some("_pay_")),
            ("suche_für", Some("suche_f_r")),
            ("搜索", Some("unknown_tool")),
        ] {
            assert_eq!(accepted_name(name).as_deref(), expected, "{name:?}");
        }
        let long = "a".repeat(65);
        assert_eq!(accepted_name(&long).as_deref(), Some(&long[..64]));
        assert_eq!(accepted_name(&long[..64]), None);
    }
}
