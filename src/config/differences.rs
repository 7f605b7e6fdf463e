//! The differences between two sets of policies, each with what it means: less is allowed, more is allowed, or neither.
//! Used for profiles that clients may choose, and for a file that was found in the current folder.

use super::direction::{Direction, direction};
use super::document::quoted_key;
use super::policy_tables::Layer;
use serde_json::{Map, Value};

/// What a change of a setting means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Less is allowed than before.
    Tighter,
    /// More is allowed than before.
    Laxer,
    /// Neither, or it is not known.
    Other,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Dotted.
    pub key: String,
    pub effect: Effect,
    /// What is different about the key: "is off", "is 500 instead of 50". No text from a file.
    pub what: String,
}

impl Difference {
    fn new(key: &str, effect: Effect, what: impl Into<String>) -> Self {
        Self { key: key.to_owned(), effect, what: what.into() }
    }
}

/// The differences of `own` to the policies of `base`. `defaults` has the settings with which a policy is compared that is
/// off in `base`.
pub(super) fn of_policies(base: &Layer<'_>, defaults: &Layer<'_>, own: &Layer<'_>) -> Vec<Difference> {
    let (base, defaults, own) = (base.settings(), defaults.settings(), own.settings());
    let mut found = Vec::new();
    for (name, settings) in &base {
        found.extend(of_policy(name, settings, own.get(name)));
    }
    for (name, settings) in own.iter().filter(|(name, _)| !base.contains_key(*name)) {
        let key = format!("policy.{name}");
        match defaults.get(name) {
            Some(default) => {
                found.push(Difference::new(&key, Effect::Tighter, "is on"));
                found.extend(of_policy(name, default, Some(settings)));
            }
            None => found.push(Difference::new(&key, Effect::Other, "is on")),
        }
    }
    found
}

/// The differences of one policy's settings; `None`: it is off.
pub(super) fn of_policy(policy: &str, base: &Value, own: Option<&Value>) -> Vec<Difference> {
    match own {
        None => vec![Difference::new(&format!("policy.{policy}"), Effect::Laxer, "is off")],
        Some(own) => Comparison::of(policy, base, own).found,
    }
}

/// The comparison of one policy's settings.
struct Comparison<'a> {
    policy: &'a str,
    /// The whole settings, for keys that depend on another one.
    base: &'a Value,
    own: &'a Value,
    found: Vec<Difference>,
}

impl<'a> Comparison<'a> {
    fn of(policy: &'a str, base: &'a Value, own: &'a Value) -> Self {
        let mut comparison = Self { policy, base, own, found: Vec::new() };
        comparison.tables("", base, own);
        comparison
    }

    /// The differences within a table at `path`.
    fn tables(&mut self, path: &str, base: &Value, own: &Value) {
        let none = Map::new();
        let (base, own) = (base.as_object().unwrap_or(&none), own.as_object().unwrap_or(&none));
        let more = own.keys().filter(|key| !base.contains_key(*key));
        for key in base.keys().chain(more) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let (base, own) = (base.get(key).unwrap_or(&Value::Null), own.get(key).unwrap_or(&Value::Null));
            if base != own {
                self.values(&path, base, own);
            }
        }
    }

    /// The difference at the key `path`, whose values are not equal.
    fn values(&mut self, path: &str, base: &Value, own: &Value) {
        let key = format!("policy.{}.{path}", self.policy);
        let direction = direction(self.policy, path);
        let goes_deeper = base.is_object() || own.is_object();
        // A number that a table leaves out is the same as no limit.
        let is_same = || number(base).is_some_and(|base| number(own) == Some(base));
        let is_number =
            matches!(direction, Some(Direction::Limit | Direction::Lower | Direction::InPlaceOf(_)));
        if is_number && is_same() {
            return;
        }
        let (effect, what) = match direction {
            None | Some(Direction::Neither) if goes_deeper => return self.tables(path, base, own),
            None | Some(Direction::Neither) => (Effect::Other, "is another".to_owned()),
            Some(Direction::ByName(default)) => return self.by_name(&key, (base, own), default, limit),
            Some(Direction::Rates(default)) => return self.by_name(&key, (base, own), default, rate),
            Some(Direction::Entries) => return self.entries(&key, base, own),
            Some(Direction::InPlaceOf(other)) => {
                let other = self.base.get(other).unwrap_or(&Value::Null);
                let base = if limit(base).is_some_and(|it| it.is_none()) { other } else { base };
                numbers(base, own, limit)
            }
            Some(Direction::Limit) => numbers(base, own, limit),
            Some(Direction::Lower) => numbers(base, own, plain_number),
            Some(Direction::Rate) => (rates(base, own), "is another rate".to_owned()),
            Some(Direction::Restricted) => lists(base, own, Effect::Laxer),
            Some(Direction::Exempt) => lists(base, own, Effect::Tighter),
            Some(Direction::Only) => only(base, own),
            Some(Direction::Switch) => match own.as_bool() {
                Some(true) => (Effect::Tighter, "is true".to_owned()),
                Some(false) => (Effect::Laxer, "is false".to_owned()),
                None => (Effect::Other, "is another".to_owned()),
            },
            Some(Direction::Words(words)) => ranks(base, own, words),
        };
        self.found.push(Difference { key, effect, what });
    }

    /// The differences of limits by name.
    fn by_name(
        &mut self,
        key: &str,
        (base, own): (&Value, &Value),
        default: &str,
        read: fn(&Value) -> Option<Bound>,
    ) {
        let none = Map::new();
        let (base, own) = (base.as_object().unwrap_or(&none), own.as_object().unwrap_or(&none));
        let common = |settings: &Value| settings.get(default).and_then(read).unwrap_or_default();
        // A new pattern may take the place of any limit that was there, and any limit that of one that is gone.
        let lowest = base.values().filter_map(read).fold(common(self.base), Bound::lower_of);
        let highest = own.values().filter_map(read).fold(common(self.own), Bound::higher_of);
        for (name, value) in own.iter().filter(|(name, value)| base.get(*name) != Some(value)) {
            let before = base.get(name).map_or(Some(lowest), read);
            let effect = match (before, read(value)) {
                (Some(before), Some(own)) => own.effect_after(before),
                _ => Effect::Other,
            };
            self.entry(
                key,
                name,
                effect,
                if base.contains_key(name) { "is another limit" } else { "is a further limit" },
            );
        }
        for (name, value) in base.iter().filter(|(name, _)| !own.contains_key(*name)) {
            let effect = read(value).map_or(Effect::Other, |before| highest.effect_after(before));
            self.entry(key, name, effect, "is missing");
        }
    }

    /// The differences of restrictions by name.
    fn entries(&mut self, key: &str, base: &Value, own: &Value) {
        let none = Map::new();
        let (base, own) = (base.as_object().unwrap_or(&none), own.as_object().unwrap_or(&none));
        for (name, _) in own.iter().filter(|(name, value)| base.get(*name) != Some(value)) {
            match base.contains_key(name) {
                false => self.entry(key, name, Effect::Tighter, "is a further rule"),
                true => self.entry(key, name, Effect::Other, "is another rule"),
            }
        }
        for name in base.keys().filter(|name| !own.contains_key(*name)) {
            self.entry(key, name, Effect::Laxer, "is missing");
        }
    }

    /// Notes the difference at the entry `name` of the table `key`.
    fn entry(&mut self, key: &str, name: &str, effect: Effect, what: &str) {
        self.found.push(Difference::new(&format!("{key}.{}", quoted_key(name)), effect, what));
    }
}

/// How much a limit allows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bound {
    /// `None`: any number.
    most: Option<f64>,
    /// Seconds within which so many are allowed; 0 where the limit has no time.
    per: f64,
}

impl Bound {
    fn is_none(self) -> bool {
        self.most.is_none()
    }

    /// The limit that is no higher than either of two.
    fn lower_of(self, other: Self) -> Self {
        let most = match (self.most, other.most) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { most, per: self.per.max(other.per) }
    }

    /// The limit that is no lower than either of two.
    fn higher_of(self, other: Self) -> Self {
        Self {
            most: self.most.zip(other.most).map(|(one, other)| one.max(other)),
            per: self.per.min(other.per),
        }
    }

    /// What it means that this limit takes the place of `base`.
    fn effect_after(self, base: Self) -> Effect {
        match (base.most, self.most) {
            (None, _) => Effect::Tighter,
            (Some(base_most), Some(most)) if most <= base_most && self.per >= base.per => Effect::Tighter,
            _ => Effect::Laxer,
        }
    }
}

/// A limit, zero being none.
fn limit(value: &Value) -> Option<Bound> {
    let number = number(value)?;
    Some(Bound { most: (number != 0.0).then_some(number), per: 0.0 })
}

/// A number that zero does not lift.
fn plain_number(value: &Value) -> Option<Bound> {
    Some(Bound { most: Some(number(value)?), per: 0.0 })
}

/// A rate; no calls are no limit.
fn rate(value: &Value) -> Option<Bound> {
    let calls = number(value.get("calls")?)?;
    Some(Bound { most: (calls != 0.0).then_some(calls), per: number(value.get("per")?)? })
}

/// A number, or a duration in seconds; a setting that is left out limits nothing.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Null => Some(0.0),
        Value::String(text) => humantime::parse_duration(text).ok().map(|duration| duration.as_secs_f64()),
        value => value.as_f64(),
    }
}

fn numbers(base: &Value, own: &Value, read: fn(&Value) -> Option<Bound>) -> (Effect, String) {
    let effect = match (read(base), read(own)) {
        (Some(base), Some(own)) => own.effect_after(base),
        _ => Effect::Other,
    };
    let shown = |value: &Value| match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) if humantime::parse_duration(text).is_ok() => text.clone(),
        _ => "none".to_owned(),
    };
    if own.is_null() {
        return (Effect::Laxer, "is missing".to_owned());
    }
    (effect, format!("is {} instead of {}", shown(own), shown(base)))
}

fn rates(base: &Value, own: &Value) -> Effect {
    match (rate(base), rate(own)) {
        (Some(base), Some(own)) => own.effect_after(base),
        _ => Effect::Other,
    }
}

/// Two lists: what it means that entries are `missing`; further entries mean the opposite.
fn lists(base: &Value, own: &Value, missing: Effect) -> (Effect, String) {
    let (Some(base), Some(own)) = (base.as_array(), own.as_array()) else {
        return (Effect::Other, "is another".to_owned());
    };
    let lacks = base.iter().any(|entry| !own.contains(entry));
    let adds = own.iter().any(|entry| !base.contains(entry));
    let (less, more) = ("lacks names".to_owned(), "has more names".to_owned());
    match (missing, lacks, adds) {
        (Effect::Laxer, true, _) => (Effect::Laxer, less),
        (Effect::Laxer, false, _) => (Effect::Tighter, more),
        (_, _, true) => (Effect::Laxer, more),
        (_, _, false) => (Effect::Tighter, less),
    }
}

/// Two lists of all that is permitted.
fn only(base: &Value, own: &Value) -> (Effect, String) {
    let is_empty = |list: &Value| list.as_array().is_some_and(Vec::is_empty);
    match (is_empty(base), is_empty(own)) {
        (_, true) => (Effect::Laxer, "is empty".to_owned()),
        (true, false) => (Effect::Tighter, "names what is allowed".to_owned()),
        (false, false) => lists(base, own, Effect::Tighter),
    }
}

fn ranks(base: &Value, own: &Value, words: &[&str]) -> (Effect, String) {
    let rank = |value: &Value| words.iter().position(|word| value == word);
    let what =
        words.iter().find(|word| own == *word).map_or("is another".to_owned(), |word| format!("is {word:?}"));
    match (rank(base), rank(own)) {
        (Some(base), Some(own)) if own > base => (Effect::Tighter, what),
        (Some(_), Some(_)) => (Effect::Laxer, what),
        _ => (Effect::Other, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shipped;
    use serde_json::json;

    fn effects(policy: &str, base: &Value, own: &Value) -> Vec<Effect> {
        of_policy(policy, base, Some(own)).into_iter().map(|difference| difference.effect).collect()
    }

    /// The settings of each policy as shipped, on or off.
    fn policies() -> Map<String, Value> {
        let all: toml::Table = shipped::with_all_that_is_off().parse().unwrap();
        let Value::Object(policies) = serde_json::to_value(&all["policy"]).unwrap() else { panic!() };
        policies
    }

    /// Every setting that can be reached, changed by `change`, is given to `look` with the policy.
    fn each_change(
        settings: &Value,
        change: &dyn Fn(&Value) -> Option<Value>,
        look: &mut dyn FnMut(Value, String),
    ) {
        fn go(
            whole: &Value,
            at: &str,
            change: &dyn Fn(&Value) -> Option<Value>,
            look: &mut dyn FnMut(Value, String),
        ) {
            if let Some(new) = change(whole.pointer(at).unwrap()) {
                let mut own = whole.clone();
                *own.pointer_mut(at).unwrap() = new;
                look(own, at.to_owned());
            }
            if let Some(Value::Object(inner)) = whole.pointer(at) {
                for key in inner.keys() {
                    go(whole, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), change, look);
                }
            }
        }
        go(settings, "", change, look);
    }

    #[test]
    fn no_number_of_any_policy_that_is_raised_and_no_limit_that_is_lifted_allows_less() {
        let mut seen = 0;
        for (policy, base) in &policies() {
            let raised =
                |value: &Value| value.as_f64().filter(|it| *it != 0.0).map(|it| json!(it * 3.0 + 1.0));
            each_change(base, &raised, &mut |own, at| {
                // The window of a rate is the one number of which a higher one allows less; it is a duration.
                assert!(!effects(policy, base, &own).contains(&Effect::Tighter), "{policy}{at}");
                seen += 1;
            });
            let lifted = |value: &Value| value.as_f64().filter(|it| *it > 1.0).map(|_| json!(0));
            each_change(base, &lifted, &mut |own, at| {
                let is_limit = direction(policy, at.trim_start_matches('/')) == Some(Direction::Limit);
                assert!(!is_limit || effects(policy, base, &own) == [Effect::Laxer], "{policy}{at}");
            });
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn no_text_and_no_table_of_any_policy_that_becomes_another_allows_less() {
        for (policy, base) in &policies() {
            let other = |value: &Value| value.is_string().then(|| json!("https://evil.example"));
            each_change(base, &other, &mut |own, at| {
                assert!(!effects(policy, base, &own).contains(&Effect::Tighter), "{policy}{at}");
            });
            let texts =
                |value: &Value| value.as_object().filter(|it| it.is_empty()).map(|_| json!({"x": "do this"}));
            each_change(base, &texts, &mut |own, at| {
                let is_rule =
                    matches!(direction(policy, at.trim_start_matches('/')), Some(Direction::Entries));
                assert!(is_rule || !effects(policy, base, &own).contains(&Effect::Tighter), "{policy}{at}");
            });
        }
    }

    #[test]
    fn a_change_is_judged_by_the_direction_of_its_key() {
        use Effect::{Laxer, Other, Tighter};
        for (policy, base, own, expected) in [
            ("budget", json!({"tool_calls": 50}), json!({"tool_calls": 20}), Tighter),
            ("budget", json!({"tool_calls": 0}), json!({"tool_calls": 20}), Tighter),
            ("budget", json!({"tool_calls": 50}), json!({"tool_calls": 0}), Laxer),
            ("budget", json!({"time": "10m"}), json!({"time": "90s"}), Tighter),
            ("budget", json!({"time": "10m"}), json!({"time": "0s"}), Laxer),
            ("budget", json!({"time": "10m"}), json!({"time": "soon"}), Other),
            ("confirm", json!({"tools": ["a"]}), json!({"tools": ["b", "a"]}), Tighter),
            ("confirm", json!({"tools": ["a"]}), json!({"tools": ["b"]}), Laxer),
            ("allow", json!({"only": []}), json!({"only": ["a"]}), Tighter),
            ("allow", json!({"only": ["a"]}), json!({"only": []}), Laxer),
            ("allow", json!({"only": ["a"]}), json!({"only": ["a", "b"]}), Laxer),
            ("allow", json!({"only": ["a", "b"]}), json!({"only": ["a"]}), Tighter),
            ("loops", json!({"exempt": ["a", "b"]}), json!({"exempt": ["a"]}), Tighter),
            ("loops", json!({"strict": true}), json!({"strict": false}), Laxer),
            ("arguments", json!({"unsafe_keys": "strip"}), json!({"unsafe_keys": "refuse"}), Tighter),
            ("arguments", json!({"tools": {}}), json!({"tools": {"a": {"x": {"max_chars": 3}}}}), Tighter),
            ("arguments", json!({"tools": {"a": 1}}), json!({"tools": {"a": 2}}), Other),
            ("arguments", json!({"tools": {"a": 1}}), json!({"tools": {}}), Laxer),
            (
                "truncate",
                json!({"max_chars": 9, "tools": {}}),
                json!({"max_chars": 9, "tools": {"a": 8}}),
                Tighter,
            ),
            (
                "truncate",
                json!({"max_chars": 9, "tools": {}}),
                json!({"max_chars": 9, "tools": {"a": 10}}),
                Laxer,
            ),
            ("kill", json!({"message": "a"}), json!({"message": "b"}), Other),
            ("no_policy", json!({"a": 2}), json!({"a": 1}), Other),
        ] {
            assert_eq!(effects(policy, &base, &own), [expected], "{policy} {base} {own}");
        }
        let rate = |calls: u32, per: &str| json!({"default": {"calls": calls, "per": per}, "tools": {}});
        for (own, expected) in [
            (rate(5, "60s"), Tighter),
            (rate(10, "2m"), Tighter),
            (rate(10, "30s"), Laxer),
            (rate(0, "60s"), Laxer),
        ] {
            assert_eq!(effects("rate_limit", &rate(10, "60s"), &own), [expected], "{own}");
        }
    }
}
