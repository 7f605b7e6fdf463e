//! Conditions on the arguments of a call, as an operator writes them: `{ argument = "amount", above = 100 }`. The model
//! writes the arguments, and may write them so that programs read them differently: then a condition is met, as it is
//! by an argument that is missing, of another kind, or not readable. Decides nothing about calls.

mod reading;

use super::compile::compile_pattern;
use super::hosts::Hosts;
use super::path::Path;
use super::pattern::Pattern;
use jsonschema::Validator;
use reading::{Reading, Scalar};
use serde::Deserialize;
use serde_json::Value;

pub use reading::{certain_values, is_certain};

/// A condition as written: an argument, and one test.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Written {
    /// The argument: `amount`, `order.total`, `items[*].price`.
    argument: String,
    /// A number above this one.
    above: Option<f64>,
    /// A number below this one.
    below: Option<f64>,
    /// One of these values.
    values: Option<Vec<Value>>,
    /// None of these values.
    values_except: Option<Vec<Value>>,
    /// A text that the regular expression matches somewhere.
    pattern: Option<String>,
    /// A text that it matches nowhere.
    pattern_except: Option<String>,
    /// A URL of one of these hosts.
    hosts: Option<Vec<Pattern>>,
    /// A URL of any other host.
    hosts_except: Option<Vec<Pattern>>,
    /// Whether the condition is met where the argument is missing or null.
    missing: Missing,
}

/// What an argument that is missing means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Missing {
    /// The condition is met.
    #[default]
    Ask,
    /// It is not met.
    Pass,
}

/// A condition, checked.
#[derive(Debug)]
pub struct Condition {
    argument: Path,
    test: Test,
    missing: Missing,
}

#[derive(Debug)]
enum Test {
    Above(f64),
    Below(f64),
    /// Whether one of the values, or none of them, meets it.
    Values(Vec<Value>, bool),
    Pattern(Validator, bool),
    Hosts(Hosts, bool),
}

/// The names of the tests, for messages.
const TESTS: &str =
    "one of above, below, values, values_except, pattern, pattern_except, hosts, hosts_except";

impl Condition {
    /// The condition as written.
    ///
    /// # Errors
    /// The key that is wrong, and what would be right.
    pub fn new(written: Written) -> Result<Self, (&'static str, String)> {
        let argument = Path::parse(&written.argument).map_err(|problem| ("argument", problem))?;
        let missing = written.missing;
        let test = Test::new(written)?;
        Ok(Self { argument, test, missing })
    }

    /// Whether these arguments, JSON text, may meet it.
    pub fn is_met(&self, arguments: &str) -> bool {
        let reading = Reading::of(arguments, self.argument.steps());
        let is_missing = reading.missing || reading.found.is_empty();
        reading.in_doubt
            || (is_missing && self.missing == Missing::Ask)
            || reading.found.iter().any(|value| self.test.is_met_by(value))
    }
}

impl Test {
    fn new(written: Written) -> Result<Self, (&'static str, String)> {
        let Written {
            above, below, values, values_except, pattern, pattern_except, hosts, hosts_except, ..
        } = written;
        let number = |key, limit: f64| match limit.is_finite() {
            true => Ok(limit),
            false => Err((key, "expected a number".to_owned())),
        };
        let tests = [
            above.map(|limit| number("above", limit).map(Self::Above)),
            below.map(|limit| number("below", limit).map(Self::Below)),
            values.map(|values| list("values", values).map(|values| Self::Values(values, true))),
            values_except
                .map(|values| list("values_except", values).map(|values| Self::Values(values, false))),
            pattern.map(|text| compiled("pattern", &text).map(|text| Self::Pattern(text, true))),
            pattern_except
                .map(|text| compiled("pattern_except", &text).map(|text| Self::Pattern(text, false))),
            hosts.map(|names| named("hosts", &names).map(|hosts| Self::Hosts(hosts, true))),
            hosts_except.map(|names| named("hosts_except", &names).map(|hosts| Self::Hosts(hosts, false))),
        ];
        let mut tests = tests.into_iter().flatten();
        match (tests.next(), tests.next()) {
            (Some(test), None) => test,
            _ => Err(("", format!("expected {TESTS}"))),
        }
    }

    /// Whether `value` meets it, or may.
    fn is_met_by(&self, value: &Scalar) -> bool {
        match self {
            Self::Above(limit) => {
                value.number().is_none_or(|number| number > *limit || is_rounded(number, *limit))
            }
            Self::Below(limit) => {
                value.number().is_none_or(|number| number < *limit || is_rounded(number, *limit))
            }
            // A program may make any listed value of one of another kind.
            Self::Values(values, true) => {
                values.iter().any(|known| value.may_equal(known))
                    || !values.iter().any(|known| value.is_of_kind_of(known))
            }
            Self::Values(values, false) => !values.iter().any(|known| value.equals(known)),
            // A number is no text: what a program makes of it is in doubt.
            Self::Pattern(pattern, meets) => {
                value.text().is_none_or(|text| pattern.is_valid(&Value::from(text)) == *meets)
            }
            Self::Hosts(hosts, meets) => {
                value.text().and_then(|url| hosts.include(url)).is_none_or(|included| included == *meets)
            }
        }
    }
}

/// Whether two numbers are equal, but may be so by rounding alone.
fn is_rounded(number: f64, limit: f64) -> bool {
    // Beyond it not every whole number has a form of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number == limit && number.abs() >= EXACT
}

fn list(key: &'static str, values: Vec<Value>) -> Result<Vec<Value>, (&'static str, String)> {
    let is_plain = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    match !values.is_empty() && values.iter().all(is_plain) {
        true => Ok(values),
        false => Err((key, "expected texts, numbers, true or false, at least one".to_owned())),
    }
}

fn compiled(key: &'static str, pattern: &str) -> Result<Validator, (&'static str, String)> {
    let expected = || "expected a regular expression without look-around and back-references".to_owned();
    compile_pattern(pattern).ok_or_else(|| (key, expected()))
}

fn named(key: &'static str, names: &[Pattern]) -> Result<Hosts, (&'static str, String)> {
    match Hosts::new(names) {
        Ok(hosts) if !hosts.is_empty() => Ok(hosts),
        Ok(_) => Err((key, "expected at least one host".to_owned())),
        Err(problem) => Err((key, problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn condition(table: &str) -> Condition {
        Condition::new(toml::from_str(table).unwrap()).unwrap()
    }

    fn met(table: &str, arguments: &str) -> bool {
        condition(table).is_met(arguments)
    }

    #[test]
    fn a_numeric_condition_is_met_beyond_its_limit_or_if_the_value_is_in_doubt() {
        for (arguments, expected) in [
            (r#"{"amount":100}"#, false),
            (r#"{"amount":100.0}"#, false),
            (r#"{"amount":-5000}"#, false),
            (r#"{"amount":1e2}"#, false),
            (r#"{"amount":"99"}"#, false),
            (r#"{"amount":"100"}"#, false),
            (r#"{"other":1000,"amount":5}"#, false),
            (r#"{"amount":[1,2,3]}"#, false),
            (r#"{"amount":101}"#, true),
            (r#"{"amount":100.01}"#, true),
            (r#"{"amount":1e3}"#, true),
            (r#"{"amount":1e999}"#, true),
            (r#"{"amount":"101"}"#, true),
            // Programs read these differently.
            (r#"{"amount":"1e3"}"#, true),
            (r#"{"amount":" 99 "}"#, true),
            (r#"{"amount":"0x10"}"#, true),
            (r#"{"amount":"010"}"#, true),
            (r#"{"amount":"1.000"}"#, true),
            (r#"{"amount":"1,5"}"#, true),
            (r#"{"amount":"+5"}"#, true),
            (r#"{"amount":"５"}"#, true),
            (r#"{"amount":""}"#, true),
            (r#"{"amount":"NaN"}"#, true),
            (r#"{"amount":NaN}"#, true),
            (r#"{"amount":true}"#, true),
            (r#"{"amount":{"value":5}}"#, true),
            (r#"{"amount":[1,[200]]}"#, true),
            (r#"{"amount":[]}"#, true),
            // Which of two members counts is the program's choice, and so is the case of names.
            (r#"{"amount":1,"amount":1000}"#, true),
            (r#"{"amount":1000,"amount":1}"#, true),
            (r#"{"amount":1,"\u0061mount":1000}"#, true),
            (r#"{"amount":1,"Amount":1000}"#, true),
            (r#"{"AMOUNT":1000}"#, true),
            (r#"{"amount":1,"amount":2}"#, false),
            // Missing, null, malformed.
            (r#"{}"#, true),
            ("", true),
            (r#"{"amount":null}"#, true),
            (r#"{"amount":1,"amount":null}"#, true),
            (r#"{"amount":5"#, true),
            (r#"{"amount":5} {"amount":1000}"#, true),
            (r#"[{"amount":5}]"#, false),
            (r#"[{"amount":500}]"#, true),
            ("5", true),
            ("not json", true),
            (r#""{\"amount\":5}""#, false),
            (r#""{\"amount\":500}""#, true),
            (r#"{"amount":5,"x":"\ud800"}"#, true),
        ] {
            assert_eq!(met("argument = \"amount\"\nabove = 100", arguments), expected, "{arguments}");
        }
        assert!(met("argument = \"sum\"\nabove = 10", r#"{"sum":1,"ſum":1000}"#), "Go reads both as `sum`");
        assert!(met("argument = \"n\"\nbelow = 0", r#"{"n":-1}"#));
        assert!(!met("argument = \"n\"\nbelow = 0", r#"{"n":0}"#));
        assert!(met("argument = \"n\"\nabove = 9007199254740993", r#"{"n":9007199254740992}"#), "rounded");
    }

    #[test]
    fn paths_lead_through_objects_lists_and_texts_that_hold_json() {
        let total = "argument = \"order.total\"\nabove = 10";
        let prices = "argument = \"items[*].price\"\nabove = 10";
        let first = "argument = \"items[0].price\"\nabove = 10";
        for (table, arguments, expected) in [
            (total, r#"{"order":{"total":5}}"#, false),
            (total, r#"{"order":{"total":50}}"#, true),
            (total, r#"{"order":{"total":5},"order":{"total":50}}"#, true),
            (total, r#"{"order":[{"total":5},{"total":50}]}"#, true),
            (total, r#"{"order":"{\"total\":5}"}"#, false),
            (total, r#"{"order":"{\"total\":50}"}"#, true),
            (total, r#"{"order":"none"}"#, true),
            (total, r#"{"order":7}"#, true),
            (total, r#"{"order.total":5}"#, true),
            (prices, r#"{"items":[{"price":1},{"price":2}]}"#, false),
            (prices, r#"{"items":[{"price":1},{"price":20}]}"#, true),
            (prices, r#"{"items":[{"price":1},{}]}"#, true),
            (prices, r#"{"items":[]}"#, true),
            (prices, r#"{"items":{"price":1}}"#, true),
            (first, r#"{"items":[{"price":1},{"price":20}]}"#, false),
            (first, r#"{"items":[]}"#, true),
        ] {
            assert_eq!(met(table, arguments), expected, "{table} {arguments}");
        }
    }

    #[test]
    fn pattern_host_and_value_conditions_are_met_as_configured() {
        let other_hosts = "argument = \"url\"\nhosts_except = [\"*.example.org\", \"a.b\"]";
        let bad_hosts = "argument = \"url\"\nhosts = [\"*.evil.net\"]";
        let risky = "argument = \"command\"\npattern = \"\\\\brm\\\\b|sudo\"";
        let unplain = "argument = \"command\"\npattern_except = \"^[a-z ]+$\"";
        let live = "argument = \"env\"\nvalues = [\"prod\", 7, true]";
        let flag = "argument = \"force\"\nvalues = [true]";
        let seven = "argument = \"n\"\nvalues = [7]";
        let unsafe_env = "argument = \"env\"\nvalues_except = [\"test\", 7, false]";
        for (table, arguments, expected) in [
            (other_hosts, r#"{"url":"https://x.example.org/a"}"#, false),
            (other_hosts, r#"{"url":"https://example.org.evil.net/"}"#, true),
            (other_hosts, r#"{"url":"https://a.b@evil.net/"}"#, true),
            (other_hosts, r#"{"url":"a.b"}"#, true),
            (other_hosts, r#"{"url":7}"#, true),
            (other_hosts, r#"{"url":["https://a.b","https://c.d"]}"#, true),
            (bad_hosts, r#"{"url":"https://a.evil.net"}"#, true),
            (bad_hosts, r#"{"url":"https://good.net"}"#, false),
            (bad_hosts, r#"{"url":"//good.net"}"#, true),
            (risky, r#"{"command":"ls"}"#, false),
            (risky, r#"{"command":"\u0072m -r x"}"#, true),
            (risky, r#"{"command":5}"#, true),
            (unplain, r#"{"command":"list files"}"#, false),
            (unplain, r#"{"command":"list; rm"}"#, true),
            (live, r#"{"env":"test"}"#, false),
            (live, r#"{"env":"prod"}"#, true),
            (live, r#"{"env":" PROD "}"#, true),
            (live, r#"{"env":"7"}"#, true),
            (live, r#"{"env":8}"#, false),
            (live, r#"{"env":7.0}"#, true),
            (live, r#"{"env":true}"#, true),
            (live, r#"{"env":"7.0"}"#, true),
            (live, r#"{"env":"07"}"#, true),
            (live, r#"{"env":"yes"}"#, true),
            (live, r#"{"env":1}"#, true),
            (flag, r#"{"force":1}"#, true),
            (flag, r#"{"force":"1"}"#, true),
            (flag, r#"{"force":"yes"}"#, true),
            (flag, r#"{"force":"On"}"#, true),
            (flag, r#"{"force":"now"}"#, true),
            (flag, r#"{"force":false}"#, false),
            (seven, r#"{"n":"7.0"}"#, true),
            (seven, r#"{"n":"07"}"#, true),
            (seven, r#"{"n":"VII"}"#, true),
            (seven, r#"{"n":true}"#, true),
            (seven, r#"{"n":8}"#, false),
            (unsafe_env, r#"{"env":"test"}"#, false),
            (unsafe_env, r#"{"env":"Test"}"#, true),
            (unsafe_env, r#"{"env":7}"#, false),
            (unsafe_env, r#"{"env":false}"#, false),
            (unsafe_env, r#"{"env":"prod"}"#, true),
        ] {
            assert_eq!(met(table, arguments), expected, "{table} {arguments}");
        }
    }

    #[test]
    fn missing_arguments_may_be_configured_to_pass_but_ambiguous_ones_never_pass() {
        let table = "argument = \"force\"\nvalues = [true]\nmissing = \"pass\"";
        for (arguments, expected) in [
            ("{}", false),
            ("", false),
            (r#"{"force":null}"#, false),
            (r#"{"force":false}"#, false),
            (r#"{"force":true}"#, true),
            (r#"{"force":"true"}"#, true),
            (r#"{"Force":true}"#, true),
            (r#"{"force":{}}"#, true),
            ("{", true),
        ] {
            assert_eq!(met(table, arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_held_is_refused_by_key() {
        for (table, key) in [
            ("argument = \"a\"", ""),
            ("argument = \"a\"\nabove = 1\nbelow = 5", ""),
            ("above = 1", "argument"),
            ("argument = \"a..b\"\nabove = 1", "argument"),
            ("argument = \"a\"\nabove = nan", "above"),
            ("argument = \"a\"\nbelow = inf", "below"),
            ("argument = \"a\"\nvalues = []", "values"),
            ("argument = \"a\"\nvalues_except = [[1]]", "values_except"),
            ("argument = \"a\"\npattern = \"(?=a)\"", "pattern"),
            ("argument = \"a\"\npattern_except = \"(\"", "pattern_except"),
            ("argument = \"a\"\nhosts = []", "hosts"),
            ("argument = \"a\"\nhosts_except = [\"https://a.b\"]", "hosts_except"),
        ] {
            assert_eq!(Condition::new(toml::from_str(table).unwrap()).err().unwrap().0, key, "{table}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_json_parser_finds_above_the_limit_meets_it(text in ".{0,20}", number in any::<f64>(), whole in any::<i64>()) {
            let over = condition("argument = \"a\"\nabove = 100");
            for value in [serde_json::json!({"a": number}), serde_json::json!({"a": whole}), serde_json::json!({"a": text})] {
                let found = value["a"].as_f64().or_else(|| value["a"].as_str()?.trim().parse().ok());
                if found.is_some_and(|found: f64| found > 100.0) {
                    prop_assert!(over.is_met(&value.to_string()), "{value}");
                }
            }
            over.is_met(&text);
        }
    }
}
