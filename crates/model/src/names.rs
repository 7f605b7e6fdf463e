//! Names of tools as programs look them up: models write `functions.pay`, `Pay` or ` pay` for `pay`, and many
//! programs run the tool all the same. Compares names; what a match means is for others to decide.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// Namespaces that models put before a tool's name, from the prompts that providers render tools into.
const NAMESPACES: [&str; 6] = ["functions", "function", "default_api", "tools", "tool", "multi_tool_use"];
/// The separators between a namespace and the name.
const SEPARATORS: [char; 3] = ['.', ':', '/'];

/// The name without surrounding white space, without a namespace and in lower case: equal for all names under which a
/// lenient program runs the same tool.
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

/// The names under which a restricting list may know a tool: the name as programs look it up, and the same without each
/// of its namespaces. `mcp__shop__pay`, `shop.pay`, `shop:pay` and `shop/pay` are all `pay` too, since a client may keep
/// the tool in any namespace, or ignore the namespace.
pub struct RestrictedNames<'a> {
    /// With one dot for each separator.
    whole: Cow<'a, str>,
    /// The parts of it that are names too.
    inner: Vec<Range<usize>>,
}

impl<'a> RestrictedNames<'a> {
    /// The names of the tool `name`, as the model or an operator writes it.
    pub fn new(name: &'a str) -> Self {
        let whole = qualified_form(name);
        let mut inner: Vec<Range<usize>> =
            whole.match_indices('.').map(|(dot, _)| dot + 1..whole.len()).collect();
        let last = inner.last().map_or(0, |last| last.start);
        let tool = &whole[last..];
        // VS Code and Cursor write `mcp_shop_pay`: where the server's name ends is not known.
        if [&*whole, tool].iter().any(|name| name.starts_with("mcp_") || name.starts_with("mcp-")) {
            let breaks = tool.match_indices(['_', '-']).map(|(at, _)| last + at + 1..whole.len());
            inner.extend(breaks.filter(|range| !range.is_empty()));
        }
        // LibreChat writes `pay_mcp_shop`.
        if let Some(end) = tool.find("_mcp_").filter(|end| *end > 0) {
            inner.push(last..last + end);
        }
        Self { whole, inner }
    }

    /// All of them, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let inner = self.inner.iter().filter_map(|range| self.whole.get(range.clone()));
        std::iter::once(&*self.whole).chain(inner)
    }

    /// Whether a list with the name `listed` restricts the tool.
    pub fn include(&self, listed: &str) -> bool {
        let listed = qualified_form(listed);
        self.iter().any(|name| *name == *listed)
    }
}

/// The dispatch form with one dot between namespaces, whatever separates them: a character that no provider accepts in
/// a name, or two underscores. Without `mcp` before it, an index after it (`pay:0`) and a template's marks
/// (`pay<|channel|>`). A `*` is a letter, so that patterns have this form too.
pub fn qualified_form(name: &str) -> Cow<'_, str> {
    let form = dispatch_form(name);
    let is_letter = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '*');
    if form.chars().all(is_letter) && !form.contains("__") {
        return form;
    }
    let marked = form.find("<|").filter(|at| *at > 0).unwrap_or(form.len());
    let pieces = form[..marked].split(|char| !is_letter(char));
    let pieces = pieces.flat_map(|piece| piece.split("__")).map(|piece| piece.trim_matches('_'));
    let pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty()).collect();
    let mut pieces = &pieces[..];
    while let [first, rest @ ..] = pieces
        && !rest.is_empty()
        && (*first == "mcp" || NAMESPACES.contains(first))
    {
        pieces = rest;
    }
    while let [rest @ .., last] = pieces
        && !rest.is_empty()
        && last.bytes().all(|byte| byte.is_ascii_digit())
    {
        pieces = rest;
    }
    pieces.join(".").into()
}

fn without_namespace(name: &str) -> Option<&str> {
    let rest = NAMESPACES.iter().find_map(|space| name.strip_prefix(space)?.strip_prefix(SEPARATORS))?;
    // `functions::pay` has two separators.
    Some(trimmed(rest.trim_start_matches(SEPARATORS))).filter(|rest| !rest.is_empty())
}

fn trimmed(name: &str) -> &str {
    let is_blank =
        |char: char| char.is_whitespace() || char.is_control() || "\u{200b}\u{2060}\u{feff}".contains(char);
    name.trim_matches(is_blank)
}

/// The built-in tool that programs run for a call of `name`, whatever kind of call it is. OpenAI's Agents SDK takes any
/// name that begins with `apply_patch` for the built-in patch, and a call of the local shell for one of the shell; Codex
/// runs a function under the names of the shell.
fn built_in(name: &str) -> Option<&'static str> {
    match &*dispatch_form(name) {
        "shell" | "local_shell" | "shell_call" | "local_shell_call" | "container.exec" => Some("shell"),
        form if form.starts_with("apply_patch") => Some("apply_patch"),
        _ => None,
    }
}

/// The names of the declared tools in order, so that the one that a call means is found without comparing all.
pub struct DeclaredNames<N> {
    names: Vec<N>,
    /// Their dispatch forms, each with the name's index. Computed for the first call whose name is not among them.
    forms: OnceLock<Vec<(String, usize)>>,
}

impl<N: AsRef<str>> DeclaredNames<N> {
    /// These names, in any order.
    pub fn new(names: impl IntoIterator<Item = N>) -> Self {
        let mut names: Vec<N> = names.into_iter().collect();
        names.sort_by(|name, other| name.as_ref().cmp(other.as_ref()));
        Self { names, forms: OnceLock::new() }
    }

    /// The declared name that a call of `name` means: the same name, or the only one that programs may take it for.
    /// `None` if no declared name matches, or several may.
    pub fn meant(&self, name: &str) -> Option<&str> {
        if let Ok(exact) = self.names.binary_search_by(|known| known.as_ref().cmp(name)) {
            return Some(self.names[exact].as_ref());
        }
        self.near(name).or_else(|| {
            let built_in_tool = built_in(name)?;
            // Their own names, not every name that programs would take for them.
            let is_it = |known: &&str| match built_in_tool {
                "shell" => matches!(*known, "shell" | "local_shell"),
                tool => *known == tool,
            };
            self.names.iter().map(AsRef::as_ref).rfind(is_it)
        })
    }

    /// The only declared name with the same form.
    fn near(&self, name: &str) -> Option<&str> {
        let form = dispatch_form(name);
        let near = self.forms();
        let near = &near[near.partition_point(|(other, _)| **other < *form)..];
        let near = &near[..near.partition_point(|(other, _)| **other == *form)];
        let ((_, first), (_, last)) = near.first().zip(near.last())?;
        let (first, last) = (self.names[*first].as_ref(), self.names[*last].as_ref());
        (first == last).then_some(first)
    }

    fn forms(&self) -> &[(String, usize)] {
        self.forms.get_or_init(|| {
            let formed = self.names.iter().map(|name| dispatch_form(name.as_ref()).into_owned());
            let mut forms: Vec<(String, usize)> = formed.zip(0..).collect();
            // Names with the same form stay in the order of the names.
            forms.sort();
            forms
        })
    }
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
    fn a_restricting_list_knows_a_tool_under_its_bare_name_in_every_namespace() {
        for name in [
            "pay",
            "Pay",
            "functions.pay",
            "shop.pay",
            "Shop:Pay",
            "shop::pay",
            "shop/pay",
            "shop\\pay",
            "shop->pay",
            "shop#pay",
            "shop__pay",
            "mcp__shop__pay",
            "mcp__my_shop__pay",
            "mcp__shop__.pay",
            "functions.mcp__shop__pay",
            "eu.shop.pay",
            "shop.functions.pay",
            "mcp_shop_pay",
            "mcp-shop-pay",
            "pay_mcp_shop",
            "shop.pay:0",
            "pay<|channel|>commentary",
            "shop.\u{200b}pay",
            "__pay",
        ] {
            assert!(RestrictedNames::new(name).include("pay"), "{name}");
        }
        for name in
            ["payment", "repay", "auto_pay", "auto-pay", "pay_all", "pay.history", "pay__history", "mcp", ""]
        {
            assert!(!RestrictedNames::new(name).include("pay"), "{name}");
        }
    }

    #[test]
    fn a_listed_namespace_restricts_its_own_tools_alone_however_it_is_written() {
        for (listed, name, restricts) in [
            ("shop.pay", "shop.pay", true),
            ("shop.pay", "mcp__shop__pay", true),
            ("mcp__shop__pay", "shop/pay", true),
            ("shop.pay", "eu.shop.pay", true),
            ("shop.pay", "crm.pay", false),
            ("shop.pay", "pay", false),
        ] {
            assert_eq!(RestrictedNames::new(name).include(listed), restricts, "{listed} {name}");
        }
    }

    #[test]
    fn a_call_under_a_name_that_programs_dispatch_to_a_built_in_tool_means_that_tool() {
        for (declared, name, meant_one) in [
            (&["shell"][..], "local_shell", Some("shell")),
            (&["shell"], "container.exec", Some("shell")),
            (&["local_shell"], "shell", Some("local_shell")),
            (&["local_shell", "shell"], "local_shell", Some("local_shell")),
            (&["local_shell", "shell"], "shell_call", Some("shell")),
            (&["apply_patch"], " Apply_Patch_v2", Some("apply_patch")),
            (&["apply_patch"], "patch", None),
            (&["apply_patch_fast"], "apply_patch", None),
            (&["run_shell"], "shell", None),
            (&["look"], "shell", None),
        ] {
            assert_eq!(DeclaredNames::new(declared.iter().copied()).meant(name), meant_one, "{name}");
        }
    }

    #[test]
    fn a_call_means_the_tool_of_its_name_or_the_only_one_near_it() {
        let declared = DeclaredNames::new(["pay", "Search", "search", "functions.look", "Sum", "Sum"]);
        for (name, meant_one) in [
            ("pay", Some("pay")),
            ("PAY", Some("pay")),
            ("functions.pay", Some("pay")),
            ("Search", Some("Search")),
            ("search", Some("search")),
            ("SEARCH", None),
            ("look", Some("functions.look")),
            ("payment", None),
            ("sum", Some("Sum")),
            ("", None),
        ] {
            assert_eq!(declared.meant(name), meant_one, "{name}");
        }
        assert_eq!(DeclaredNames::<&str>::new([]).meant("pay"), None);
    }
}
