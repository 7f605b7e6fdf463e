//! Families of tools by their names: which tools show whether a call of another one was done. `get_order` and
//! `list_orders` do for `create_order`: they retrieve, and share a word that names a thing. Compares names; what a
//! check allows is for the policy to decide.

/// First words of tools that retrieve and change nothing.
const RETRIEVES: [&str; 19] = [
    "get", "list", "find", "search", "check", "read", "fetch", "lookup", "look", "query", "show", "view",
    "retrieve", "describe", "count", "verify", "has", "is", "status",
];
/// Last words of such tools.
const ENDS: [&str; 4] = ["status", "history", "list", "exists"];
/// Words that name what is done or how, and no thing.
const NO_THING: [&str; 44] = [
    "create", "make", "add", "new", "send", "submit", "place", "order", "book", "pay", "transfer", "award",
    "post", "put", "set", "update", "insert", "start", "run", "do", "execute", "issue", "process", "cancel",
    "delete", "remove", "by", "for", "to", "of", "the", "a", "an", "all", "my", "id", "ids", "with", "from",
    "in", "up", "info", "details", "data",
];

/// The words of a tool's name in lower case, plurals as singulars: of `listOpen_orders` list, open, order.
pub fn words(tool: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut was_small = false;
    // Without the name of a server or a namespace before it.
    let name = tool.rsplit("__").next().unwrap_or(tool);
    let name = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    for char in name.chars() {
        if !char.is_alphanumeric() {
            words.push(String::new());
        } else if (char.is_uppercase() && was_small) || words.is_empty() {
            words.push(char.to_lowercase().collect());
        } else if let Some(word) = words.last_mut() {
            word.extend(char.to_lowercase());
        }
        was_small = char.is_lowercase() || char.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(singular).collect()
}

fn singular(word: String) -> String {
    match word.strip_suffix("ies") {
        Some(stem) if stem.len() > 1 => format!("{stem}y"),
        _ if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") => {
            word[..word.len() - 1].to_owned()
        }
        _ => word,
    }
}

/// Whether the tool retrieves, by its name.
fn retrieves(words: &[String]) -> bool {
    let is_one_of =
        |word: Option<&String>, list: &[&str]| word.is_some_and(|word| list.contains(&word.as_str()));
    is_one_of(words.first(), &RETRIEVES) || (words.len() > 1 && is_one_of(words.last(), &ENDS))
}

/// Whether a call of `check` shows whether one of `tool` was done, by their names.
pub fn shows(check: &str, tool: &str) -> bool {
    let (check, tool) = (words(check), words(tool));
    if !retrieves(&check) || check == tool {
        return false;
    }
    // The word that says that it retrieves names no thing.
    let shown = &check[usize::from(RETRIEVES.contains(&check[0].as_str()))..];
    let things: Vec<&String> =
        tool.iter().skip(1).filter(|word| !NO_THING.contains(&word.as_str())).collect();
    if !things.is_empty() {
        return things.iter().any(|thing| shown.contains(thing));
    }
    // A name without a thing names it by what is done: `list_payments` shows `pay`, `get_order` shows `create_order`.
    tool.iter()
        .rev()
        .take(1)
        .any(|word| shown.iter().any(|shown| word.len() > 2 && shown.starts_with(word.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_retrieves_the_same_object_can_check_an_action() {
        for (check, tool, expected) in [
            ("get_order", "create_order", true),
            ("list_orders", "create_order", true),
            ("getOrders", "createOrder", true),
            ("order_status", "create_order", true),
            ("search_flights", "book_flight", true),
            ("list_bookings", "book", true),
            ("list_payments", "pay", true),
            ("get-invoices-by-id", "pay_invoice", true),
            ("find_categories", "create_category", true),
            ("get_user_reservations", "cancel_reservation", true),
            ("get_order", "send_mail", false),
            ("create_order", "create_order", false),
            ("update_order", "create_order", false),
            ("delete_orders", "create_order", false),
            ("get_weather", "create_order", false),
            ("get", "create_order", false),
            ("list_mails", "send_message", false),
            ("", "create_order", false),
            ("get_order", "", false),
            ("mcp__shop__get_order", "mcp__shop__create_order", true),
            ("mcp__shop__get_price", "mcp__shop__create_order", false),
        ] {
            assert_eq!(shows(check, tool), expected, "{check} {tool}");
        }
    }

    #[test]
    fn tool_names_are_split_into_words_in_every_naming_style() {
        for (name, expected) in [
            ("createOrder", vec!["create", "order"]),
            ("list_openOrders2", vec!["list", "open", "orders2"]),
            ("HTTPGet", vec!["httpget"]),
            ("get-addresses", vec!["get", "addresse"]),
            ("mcp__shop__get_order", vec!["get", "order"]),
            ("functions.get_order", vec!["get", "order"]),
            ("status", vec!["status"]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }
}
