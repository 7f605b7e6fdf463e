//! Names of tools as programs look them up: models write `functions.pay`, `Pay` or ` pay` for `pay`, and many
//! programs run the tool all the same. Compares names; what a match means is for others to decide.

use std::borrow::Cow;

/// Namespaces that models put before a tool's name, from the prompts that providers render tools into.
const NAMESPACES: [&str; 6] = ["functions", "function", "default_api", "tools", "tool", "multi_tool_use"];
/// The separators between a namespace and the name.
const SEPARATORS: [char; 3] = ['.', ':', '/'];

/// The name without white space around it, without a namespace before it, in small letters: equal for all names under
/// which a lenient program runs one tool.
pub fn dispatch_form(name: &str) -> Cow<'_, str> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let small = name.to_lowercase();
    // llama-cpp-python puts a colon after the name.
    let mut rest = trimmed(trimmed(&small).trim_end_matches(':'));
    while let Some(inner) = without_namespace(rest) {
        rest = inner;
    }
    Cow::Owned(rest.to_owned())
}

fn without_namespace(name: &str) -> Option<&str> {
    let rest = NAMESPACES.iter().find_map(|space| name.strip_prefix(space)?.strip_prefix(SEPARATORS))?;
    // `functions::pay` has two.
    Some(trimmed(rest.trim_start_matches(SEPARATORS))).filter(|rest| !rest.is_empty())
}

fn trimmed(name: &str) -> &str {
    let is_blank =
        |char: char| char.is_whitespace() || char.is_control() || "\u{200b}\u{2060}\u{feff}".contains(char);
    name.trim_matches(is_blank)
}

/// The one of the `declared` names that a call of `name` means: itself, or the only one that programs may take it
/// for. `None` where it is none of them, or may be several.
pub fn meant<'a>(name: &str, declared: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if let Some(exact) = declared.clone().find(|declared| *declared == name) {
        return Some(exact);
    }
    let form = dispatch_form(name);
    let mut near = declared.filter(|declared| dispatch_form(declared) == form);
    let one = near.next()?;
    near.all(|other| other == one).then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_under_which_programs_run_one_tool_have_one_form() {
        for name in [
            "pay_bill",
            "Pay_Bill",
            " pay_bill",
            "pay_bill\n",
            "functions.pay_bill",
            "Functions.Pay_Bill",
            "functions::pay_bill",
            "default_api.pay_bill",
            "tools/pay_bill ",
            "functions. functions.pay_bill",
            "\u{feff}pay_bill",
            "pay_bill:",
        ] {
            assert_eq!(dispatch_form(name), "pay_bill", "{name:?}");
        }
        for name in
            ["pay.bill", "paybill", "functions", "functions.", "my_functions.pay_bill", "pay_bill2", ""]
        {
            assert_ne!(dispatch_form(name), "pay_bill", "{name:?}");
        }
    }

    #[test]
    fn a_call_means_the_tool_of_its_name_or_the_only_one_near_it() {
        let declared = ["pay", "Search", "search", "functions.look"];
        for (name, meant_one) in [
            ("pay", Some("pay")),
            ("PAY", Some("pay")),
            ("functions.pay", Some("pay")),
            ("Search", Some("Search")),
            ("search", Some("search")),
            ("SEARCH", None),
            ("look", Some("functions.look")),
            ("payment", None),
        ] {
            assert_eq!(meant(name, declared.into_iter()), meant_one, "{name}");
        }
    }
}
