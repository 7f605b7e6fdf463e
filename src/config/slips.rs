//! Common slips in a configuration: a key in the wrong table, a value of the wrong kind, text that is almost TOML. Only
//! suggests; what is wrong is found elsewhere.

use super::error::nearest;
use super::shipped;
use super::variables::PREFIX;
use toml::{Table, Value};

/// The most places of a key that a suggestion lists.
const MOST_PLACES: usize = 3;

/// What was found where a value of another kind is wanted.
pub(super) enum Misfit {
    /// A table with these keys.
    Table(Vec<String>),
    /// A list of these texts.
    List(Vec<String>),
    Text(String),
    Other,
}

/// Where the key `name`, which is unknown at its place, is known: as a policy, or in other tables.
pub(super) fn known_elsewhere(name: &str) -> Option<String> {
    let known: Table = shipped::with_all_that_is_off().parse().ok()?;
    let policies = known.get("policy").and_then(Value::as_table)?;
    if policies.contains_key(name) {
        return Some(format!("did you mean [policy.{name}]?"));
    }
    if known.get(name).is_some_and(|value| !value.is_table()) {
        return Some(format!(
            "did you mean the key `{name}` of the file itself? Write it above the first [table]"
        ));
    }
    let of_policies = policies.iter().map(|(policy, table)| (format!("policy.{policy}"), table));
    let of_file = known.iter().filter(|(table, _)| *table != "policy");
    let tables = of_file.map(|(table, value)| (table.clone(), value)).chain(of_policies);
    let places: Vec<String> = tables
        .filter(|(_, value)| value.as_table().is_some_and(|table| table.contains_key(name)))
        .map(|(table, _)| format!("`{table}.{name}`"))
        .collect();
    let is_few = (1..=MOST_PLACES).contains(&places.len());
    is_few.then(|| format!("did you mean {}?", places.join(" or ")))
}

/// The variables that hold the values of flags.
pub const FLAG_VARIABLES: [&str; 6] = [
    "TOOLREIN_CONFIG",
    "TOOLREIN_LISTEN",
    "TOOLREIN_ADMIN",
    "TOOLREIN_UPSTREAM",
    "TOOLREIN_MODE",
    "TOOLREIN_LOG_LEVEL",
];

/// A warning for each variable of `names` that has no effect and is probably a misspelt one: near to that of a flag, or
/// the name of a key with single underscores. `is_used`: whether the configuration itself names that variable.
pub(super) fn misspelt_variables(
    names: impl Iterator<Item = String>,
    is_used: impl Fn(&str) -> bool,
) -> Vec<String> {
    let keys = keys();
    let warning = |name: String| {
        let own = name.strip_prefix("TOOLREIN_").filter(|own| !own.starts_with('_'))?;
        if FLAG_VARIABLES.contains(&name.as_str()) || is_used(&name) {
            return None;
        }
        let key = keys.iter().find(|key| key.replace('.', "_").eq_ignore_ascii_case(own));
        let meant = match key {
            Some(key) => format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase()),
            None => {
                let flags = FLAG_VARIABLES.iter().filter_map(|flag| flag.strip_prefix("TOOLREIN_"));
                format!("TOOLREIN_{}", nearest(own, flags)?)
            }
        };
        Some(format!("the variable {name} has no effect; did you mean {meant}?"))
    };
    names.filter_map(warning).collect()
}

/// The keys of the shipped file that hold a value, dotted, those within tables of policies included.
fn keys() -> Vec<String> {
    fn collect(table: &Table, prefix: &str, keys: &mut Vec<String>) {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            if let Value::Table(inner) = value {
                collect(inner, &format!("{key}."), keys);
            } else {
                keys.push(key);
            }
        }
    }
    let mut keys = Vec::new();
    if let Ok(known) = shipped::with_all_that_is_off().parse::<Table>() {
        collect(&known, "", &mut keys);
    }
    keys
}

/// How `key` is written as a list, or as a table, where `problem` wants one and `found` is of another kind.
pub(super) fn as_wanted(problem: &str, key: &str, found: &Misfit) -> Option<String> {
    // `policy.confirm.when.TOOL`, `policy.fresh.rules`: their entries are tables.
    let lists_tables = key.contains(".when.") || key.ends_with(".rules") || key.ends_with(".on");
    let key = key.rsplit('.').next().unwrap_or(key);
    let list = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        format!("write {key} = [{}]", names.join(", "))
    };
    match found {
        Misfit::Table(names) if problem.starts_with("expected a list, found ") && lists_tables => {
            let members: Vec<String> =
                names.iter().map(|name| format!("{} = ...", super::document::quoted_key(name))).collect();
            Some(format!("write {key} = [{{ {} }}]", members.join(", ")))
        }
        Misfit::Table(names) if problem.starts_with("expected a list, found ") => Some(list(names)),
        Misfit::Text(text) if problem.starts_with("expected a list, found ") => {
            Some(list(std::slice::from_ref(text)))
        }
        Misfit::List(names) if problem == "expected a table, found a list" => {
            let name = names.first()?;
            Some(format!("write {key} = {{ {} = ... }}", super::document::quoted_key(name)))
        }
        _ => None,
    }
}

/// Signs that people write before an amount of money.
const CURRENCIES: [char; 3] = ['$', '€', '£'];

/// What is probably wrong with a line that is not TOML.
pub(super) fn not_toml(line: &str, message: &str) -> Option<String> {
    let key = line.split(['=', ':']).next().unwrap_or_default().trim();
    if line.contains(['“', '”', '„', '‘', '’', '«', '»']) {
        Some("write straight quotes (\") in place of curly ones".to_owned())
    } else if message.contains("expected `=`") && line.contains(':') {
        Some(format!("write {key} = ... in place of {key}: ..."))
    } else if message.contains("must be quoted") {
        let value = line.split_once('=').map_or("", |(_, value)| value).trim();
        Some(match value.to_ascii_lowercase().as_str() {
            "yes" | "on" => format!("write {key} = true"),
            "no" | "off" => format!("write {key} = false"),
            amount if amount.starts_with(CURRENCIES) => {
                format!("write {key} = {}", amount.trim_start_matches(CURRENCIES).trim())
            }
            _ => format!("write {key} = \"...\""),
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_wrong_table_is_found_where_it_belongs() {
        for (name, expected) in [
            ("budget", Some("did you mean [policy.budget]?")),
            ("confirm", Some("did you mean [policy.confirm]?")),
            ("url", Some("did you mean `store.url` or `upstream.url`?")),
            ("api_key_env", Some("did you mean `upstream.api_key_env`?")),
            ("spend_usd", Some("did you mean `policy.budget.spend_usd`?")),
            ("context_tokens", Some("did you mean `policy.budget.context_tokens`?")),
            (
                "mode",
                Some("did you mean the key `mode` of the file itself? Write it above the first [table]"),
            ),
            // Many policies have these.
            ("tools", None),
            ("colour", None),
        ] {
            assert_eq!(known_elsewhere(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_misspelt_variable_is_named_with_the_one_that_was_meant() {
        for (name, expected) in [
            ("TOOLREIN_UPSTREM", Some("TOOLREIN_UPSTREAM")),
            ("TOOLREIN_LOGLEVEL", Some("TOOLREIN_LOG_LEVEL")),
            ("TOOLREIN_POLICY_BUDGET_TOOL_CALLS", Some("TOOLREIN__POLICY__BUDGET__TOOL_CALLS")),
            ("TOOLREIN_UPSTREAM_URL", Some("TOOLREIN__UPSTREAM__URL")),
            ("TOOLREIN_CONFIG", None),
            ("TOOLREIN__POLICY__BUDGET__TOOL_CALLS", None),
            // Names of secrets are the operator's own.
            ("TOOLREIN_TOKEN", None),
            ("TOOLREIN_ADMIN_TOKEN", None),
            ("TOOLREIN_ADMIN_TOKE", Some("TOOLREIN_ADMIN")),
            ("TOOLREIN_POLICY_BUDGET", None),
            ("TOOLREIN_STORE_SECRET", None),
            ("OPENAI_API_KEY", None),
        ] {
            let warnings =
                misspelt_variables(std::iter::once(name.to_owned()), |used| used == "TOOLREIN_ADMIN_TOKEN");
            match (warnings.as_slice(), expected) {
                ([], None) => {}
                ([warning], Some(meant)) => {
                    assert!(warning.ends_with(&format!("did you mean {meant}?")), "{warning}");
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_shown_as_it_is_written() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (problem, found, expected) in [
            (
                "expected a list, found a table",
                Misfit::Table(texts(&["pay"])),
                Some(r#"write tools = ["pay"]"#),
            ),
            ("expected a list, found \"pay\"", Misfit::Text("pay".into()), Some(r#"write tools = ["pay"]"#)),
            (
                "expected a table, found a list",
                Misfit::List(texts(&["a b"])),
                Some(r#"write tools = { "a b" = ... }"#),
            ),
            ("expected a number, found \"pay\"", Misfit::Text("pay".into()), None),
            // It may be a key.
            ("expected a list of hashes of keys", Misfit::Text("sk-1".into()), None),
            ("expected a list, found 5", Misfit::Other, None),
        ] {
            assert_eq!(as_wanted(problem, "policy.confirm.tools", &found).as_deref(), expected, "{problem}");
        }
    }

    #[test]
    fn a_list_of_tables_is_shown_as_one() {
        let found = Misfit::Table(["argument", "above"].map(str::to_owned).to_vec());
        assert_eq!(
            as_wanted("expected a list, found a table", "policy.confirm.when.pay", &found).as_deref(),
            Some("write pay = [{ argument = ..., above = ... }]")
        );
    }

    #[test]
    fn a_line_that_is_almost_toml_is_put_right() {
        for (line, message, expected) in [
            (
                "url = “https://h/v1”",
                "string values must be quoted, expected literal string",
                Some("straight quotes"),
            ),
            (
                "url: \"https://h/v1\"",
                "key with no value, expected `=`",
                Some("write url = ... in place of url: ..."),
            ),
            (
                "url = https://h/v1",
                "string values must be quoted, expected literal string",
                Some("write url = \"...\""),
            ),
            (
                "strict = yes",
                "string values must be quoted, expected literal string",
                Some("write strict = true"),
            ),
            (
                "hide = Off",
                "string values must be quoted, expected literal string",
                Some("write hide = false"),
            ),
            (
                "spend_usd = $2",
                "string values must be quoted, expected literal string",
                Some("write spend_usd = 2"),
            ),
            ("[upstream", "unclosed table, expected `]`", None),
        ] {
            let found = not_toml(line, message);
            assert_eq!(found.is_some(), expected.is_some(), "{line}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{line}");
        }
    }
}
