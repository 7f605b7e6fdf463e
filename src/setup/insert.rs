//! Where the line of an upstream goes into a configuration file. Text is only inserted, so that comments and formatting
//! survive, and a reader of the format says before and after whether the file means what it should.

use super::yaml;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

/// In which form a file names the upstream.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A key at the top of a TOML file, which counts where `provider` names the provider openai, or nothing.
    Toml { key: &'static str, provider: &'static str },
    /// A member of a JSON file, which may have comments; its value is the address with or without its path.
    Json { path: &'static [&'static str], with_path: bool },
    /// A key at the top of a YAML file; its value is the address with or without its path. `provider`: as above.
    Yaml { key: &'static str, with_path: bool, provider: Option<&'static str> },
    /// A key of each model of this provider, in a list of a YAML file.
    Models { list: &'static str, provider: &'static str, key: &'static str },
}

/// A text that is put into a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insertion {
    /// The byte of the file before it is changed.
    pub at: usize,
    pub text: String,
}

/// What a file says about the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamSetting {
    /// None is named: these insertions name it.
    Missing(Vec<Insertion>),
    /// It is named already, with this value.
    Named(String),
}

/// A byte order mark, before which nothing may stand.
pub(super) const MARK: &str = "\u{feff}";

impl Form {
    /// The value for the proxy at `base_url`.
    pub fn value(self, base_url: &str) -> String {
        match self {
            Self::Yaml { with_path: false, .. } | Self::Json { with_path: false, .. } => {
                base_url.trim_end_matches("/v1").to_owned()
            }
            _ => base_url.to_owned(),
        }
    }

    /// The base URL of clients for such a value.
    pub fn base_url(self, value: &str) -> String {
        match self {
            Self::Yaml { with_path: false, .. } | Self::Json { with_path: false, .. } => {
                format!("{}/v1", value.trim_end_matches('/'))
            }
            _ => value.to_owned(),
        }
    }

    /// The value that `text` has; also of a file that cannot be changed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn named(self, text: &str) -> Result<Option<String>, String> {
        match self {
            Self::Yaml { key, .. } => yaml::named(text, key),
            _ => match self.find(text, "http://127.0.0.1/v1")? {
                UpstreamSetting::Named(value) => Ok(Some(value)),
                UpstreamSetting::Missing(_) => Ok(None),
            },
        }
    }

    /// The key that chooses the agent's provider.
    pub fn provider_key(self) -> Option<&'static str> {
        match self {
            Self::Toml { provider, .. } => Some(provider),
            Self::Yaml { provider, .. } => provider,
            Self::Json { .. } | Self::Models { .. } => None,
        }
    }

    /// The provider that `text` chooses, by itself or by the profile that it chooses.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn provider(self, text: &str) -> Result<Option<String>, String> {
        match self {
            Self::Toml { provider, .. } => {
                let table = toml_table(text.strip_prefix(MARK).unwrap_or(text))?;
                let profile = table.get("profile").and_then(toml::Value::as_str);
                let profile = profile.and_then(|name| table.get("profiles")?.get(name)?.get(provider));
                let chosen = profile.or_else(|| table.get(provider));
                Ok(chosen.and_then(toml::Value::as_str).map(str::to_owned))
            }
            Self::Yaml { provider: Some(provider), .. } => yaml::named(text, provider),
            Self::Yaml { .. } | Self::Json { .. } | Self::Models { .. } => Ok(None),
        }
    }

    /// What `text` says about the upstream, and what is to be inserted for the proxy at `base_url`.
    ///
    /// # Errors
    /// The file is not in a form that can be changed.
    pub fn find(self, text: &str, base_url: &str) -> Result<UpstreamSetting, String> {
        let value = self.value(base_url);
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        match self {
            Self::Toml { key, .. } => toml(text, key, &value, line_end),
            Self::Json { path, .. } => json(text, path, &value).and_then(|found| match found {
                UpstreamSetting::Missing(insertions) => {
                    let changed = json(&insert_all(text, &insertions), path, &value)?;
                    let is_named = changed == UpstreamSetting::Named(value);
                    is_named.then_some(UpstreamSetting::Missing(insertions)).ok_or_else(not_changed)
                }
                named => Ok(named),
            }),
            Self::Yaml { key, .. } => yaml::find(text, key, &value),
            Self::Models { list, provider, key } => yaml::find_in_models(text, [list, provider, key], &value),
        }
    }
}

/// `text` with the insertions.
pub fn insert_all(text: &str, insertions: &[Insertion]) -> String {
    let mut out = String::with_capacity(text.len() + 128);
    let mut from = 0;
    for insertion in insertions {
        out.push_str(&text[from..insertion.at]);
        out.push_str(&insertion.text);
        from = insertion.at;
    }
    out.push_str(&text[from..]);
    out
}

/// `text` without what was inserted, wherever that is now. `None`: it is not there as often as it was inserted.
pub fn remove_all(text: &str, insertions: &[Insertion]) -> Option<String> {
    let mut text = text.to_owned();
    for Insertion { text: part, .. } in insertions {
        let times = insertions.iter().filter(|other| other.text == *part).count();
        let left = text.matches(part.as_str()).count();
        // Equal parts are taken out one after the other.
        if left == 0 || left > times {
            return None;
        }
        text = text.replacen(part.as_str(), "", 1);
    }
    Some(text)
}

fn toml_table(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| format!("is not TOML: {}", error.message()))
}

fn not_changed() -> String {
    "cannot be changed without being rewritten".to_owned()
}

/// A key of the root may come before everything else; one without a value is given one between its quotes.
fn toml(text: &str, key: &str, value: &str, line_end: &str) -> Result<UpstreamSetting, String> {
    let body = text.strip_prefix(MARK).unwrap_or(text);
    let start = text.len() - body.len();
    let insertion = match toml_table(body)?.get(key) {
        Some(toml::Value::String(named)) if named.is_empty() => {
            let table = DeTable::parse(body).map_err(|_| not_changed())?;
            let span = table.get_ref().get(key).map(toml::Spanned::span).ok_or_else(not_changed)?;
            Insertion { at: start + span.start + 1, text: value.to_owned() }
        }
        Some(named) => {
            let named = named.as_str().map_or_else(|| named.to_string(), str::to_owned);
            return Ok(UpstreamSetting::Named(named));
        }
        None => Insertion { at: start, text: format!("{key} = {}{line_end}", toml::Value::from(value)) },
    };
    let changed = insert_all(text, std::slice::from_ref(&insertion));
    let table = toml_table(changed.trim_start_matches(MARK)).map_err(|_| not_changed())?;
    match table.get(key).and_then(toml::Value::as_str) {
        Some(named) if named == value => Ok(UpstreamSetting::Missing(vec![insertion])),
        _ => Err(not_changed()),
    }
}

/// A member goes to the beginning of the innermost object on its path that is there.
fn json(text: &str, path: &[&str], value: &str) -> Result<UpstreamSetting, String> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    let parsed = parsed.map_err(|error| format!("is not JSON: {error}"))?;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let nested = |path: &[&str]| {
        path.iter().rev().fold(quoted(value), |inner, key| format!("{{{}: {inner}}}", quoted(key)))
    };
    let mut object: &Object<'_> = match &parsed.value {
        Some(Value::Object(object)) => object,
        Some(_) => return Err("does not hold an object".to_owned()),
        None => {
            let text = format!(
                "{{\n  {}\n}}\n",
                nested(path).trim_start_matches('{').trim_end_matches('}').to_owned()
                    + &"}".repeat(path.len() - 1)
            );
            return Ok(UpstreamSetting::Missing(vec![Insertion { at: 0, text }]));
        }
    };
    let mut rest = path;
    while let Some((key, deeper)) = rest.split_first() {
        // Of two members of one name the last counts.
        let mut members = object.properties.iter().rev();
        match members.find(|property| property.name.as_str() == *key).map(|property| &property.value) {
            Some(Value::Object(inner)) if !deeper.is_empty() => (object, rest) = (inner, deeper),
            Some(Value::StringLit(named)) if deeper.is_empty() && named.value.is_empty() => {
                let insertion = Insertion { at: named.range.start + 1, text: value.to_owned() };
                return Ok(UpstreamSetting::Missing(vec![insertion]));
            }
            Some(Value::StringLit(named)) if deeper.is_empty() => {
                return Ok(UpstreamSetting::Named(named.value.to_string()));
            }
            Some(_) => return Err(format!("has another kind of value at {key}")),
            None => break,
        }
    }
    let Some((key, deeper)) = rest.split_first() else { return Err("cannot be changed".to_owned()) };
    let member = match deeper.is_empty() {
        true => format!("{}: {}", quoted(key), quoted(value)),
        false => format!("{}: {}", quoted(key), nested(deeper)),
    };
    let at = object.range.start + 1;
    // As the first member of the object is set apart from its brace.
    let text = match object.properties.first() {
        Some(first) => {
            let space = &text[at..first.range.start];
            let space = if space.trim().is_empty() { space.to_owned() } else { " ".to_owned() };
            let after = if space.is_empty() { " " } else { "" };
            format!("{space}{member},{after}")
        }
        None => member,
    };
    Ok(UpstreamSetting::Missing(vec![Insertion { at, text }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:4242/v1";
    const TOML: Form = Form::Toml { key: "openai_base_url", provider: "model_provider" };
    const JSON: Form = Form::Json { path: &["provider", "openai", "options", "baseURL"], with_path: true };
    const GOOSE: Form = Form::Yaml { key: "OPENAI_HOST", with_path: false, provider: Some("GOOSE_PROVIDER") };
    const MODELS: Form = Form::Models { list: "models", provider: "openai", key: "apiBase" };

    fn changed(form: Form, text: &str) -> String {
        match form.find(text, URL) {
            Ok(UpstreamSetting::Missing(insertions)) => {
                let changed = insert_all(text, &insertions);
                assert_eq!(remove_all(&changed, &insertions).as_deref(), Some(text), "{changed}");
                // What was written is found.
                assert_eq!(
                    form.find(&changed, URL),
                    Ok(UpstreamSetting::Named(form.value(URL))),
                    "{changed}"
                );
                changed
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_key_of_toml_goes_to_the_top_and_all_else_stays() {
        let line = "openai_base_url = \"http://127.0.0.1:4242/v1\"\n";
        for text in ["", "# mine\n", "model = \"m\" # why\n\n[a]\nb = 1\n", "[a.openai_base_url]\nb = 1\n"] {
            assert_eq!(changed(TOML, text), format!("{line}{text}"));
        }
        assert_eq!(
            changed(TOML, "\u{feff}a = 1\r\n"),
            format!("\u{feff}{}a = 1\r\n", line.replace('\n', "\r\n"))
        );
        let named = TOML.find("openai_base_url = 'https://x/v1'\n", URL);
        assert_eq!(named, Ok(UpstreamSetting::Named("https://x/v1".to_owned())));
        assert!(TOML.find("a = \n", URL).unwrap_err().starts_with("is not TOML"));
    }

    #[test]
    fn a_member_of_json_goes_into_the_objects_that_are_there_with_comments_kept() {
        for (text, expected) in [
            ("{}", r#"{"provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:4242/v1"}}}}"#),
            (
                "{\n  // mine\n  \"a\": 1,\n}\n",
                "{ \"provider\": {\"openai\": {\"options\": {\"baseURL\": \"http://127.0.0.1:4242/v1\"}}},\n  // mine\n  \"a\": 1,\n}\n",
            ),
            (
                "{\n\t\"provider\": {\n\t\t\"openai\": {\"models\": {}}\n\t}\n}",
                "{\n\t\"provider\": {\n\t\t\"openai\": {\"options\": {\"baseURL\": \"http://127.0.0.1:4242/v1\"}, \"models\": {}}\n\t}\n}",
            ),
            (
                "{\n  \"provider\": {\"openai\": {\"options\": {\n    \"timeout\": 1\n  }}}\n}",
                "{\n  \"provider\": {\"openai\": {\"options\": {\n    \"baseURL\": \"http://127.0.0.1:4242/v1\",\n    \"timeout\": 1\n  }}}\n}",
            ),
            (
                "",
                "{\n  \"provider\": {\"openai\": {\"options\": {\"baseURL\": \"http://127.0.0.1:4242/v1\"}}}\n}\n",
            ),
        ] {
            assert_eq!(changed(JSON, text), expected, "{text}");
        }
        for (text, why) in
            [("[]", "does not hold an object"), ("{", "is not JSON"), (r#"{"provider": 3}"#, "another kind")]
        {
            assert!(JSON.find(text, URL).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn an_empty_value_is_filled_and_of_two_equal_members_the_last_counts() {
        for (form, text, expected) in [
            (
                TOML,
                "a = 1\nopenai_base_url = \"\" # mine\n",
                "a = 1\nopenai_base_url = \"http://127.0.0.1:4242/v1\" # mine\n",
            ),
            (TOML, "openai_base_url = ''\n", "openai_base_url = 'http://127.0.0.1:4242/v1'\n"),
            (
                JSON,
                r#"{"provider": {"openai": {"options": {"baseURL": ""}}}}"#,
                r#"{"provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:4242/v1"}}}}"#,
            ),
            (
                JSON,
                r#"{"provider": {"openai": {"options": {"baseURL": "http://x"}}}, "provider": {"openai": {"options": {"a": 1}}}}"#,
                r#"{"provider": {"openai": {"options": {"baseURL": "http://x"}}}, "provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:4242/v1", "a": 1}}}}"#,
            ),
        ] {
            assert_eq!(changed(form, text), expected, "{text}");
        }
    }

    #[test]
    fn the_provider_is_the_one_that_the_file_chooses() {
        for (form, text, expected) in [
            (TOML, "", None),
            (TOML, "model_provider = \"azure\"\n", Some("azure")),
            (
                TOML,
                "model_provider = \"azure\"\nprofile = \"p\"\n[profiles.p]\nmodel_provider = \"openai\"\n",
                Some("openai"),
            ),
            (TOML, "profile = \"p\"\n[profiles.q]\nmodel_provider = \"azure\"\n", None),
            (GOOSE, "GOOSE_PROVIDER: anthropic\n", Some("anthropic")),
            (GOOSE, "{GOOSE_PROVIDER: openai}\n", Some("openai")),
            (JSON, "{}", None),
        ] {
            assert_eq!(form.provider(text), Ok(expected.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn a_key_of_yaml_goes_before_the_first_one() {
        for (text, expected) in [
            ("", "OPENAI_HOST: http://127.0.0.1:4242\n"),
            ("# mine", "# mine\nOPENAI_HOST: http://127.0.0.1:4242\n"),
            (
                "---\n# mine\nGOOSE_MODE: auto\nextensions:\n  developer:\n    type: builtin\nlist:\n- a\n",
                "---\n# mine\nOPENAI_HOST: http://127.0.0.1:4242\nGOOSE_MODE: auto\nextensions:\n  developer:\n    type: builtin\nlist:\n- a\n",
            ),
        ] {
            assert_eq!(changed(GOOSE, text), expected);
        }
        for (text, value) in
            [("OPENAI_HOST: 'https://x' # mine\n", "https://x"), ("\"OPENAI_HOST\": y # mine\n", "y")]
        {
            assert_eq!(GOOSE.find(text, URL), Ok(UpstreamSetting::Named(value.to_owned())), "{text}");
        }
        for text in ["{a: 1}\n", "- a\n", "a: 1\n---\nb: 2\n", "just text\n"] {
            assert!(GOOSE.find(text, URL).is_err(), "{text}");
        }
    }

    #[test]
    fn each_model_of_the_provider_gets_the_address() {
        let text = "name: mine\nmodels:\n  - name: a\n    provider: openai # the one\n    model: m\n    \
                    requestOptions:\n      provider: openai\n  - name: b\n    provider: ollama\n  - provider: \"openai\"\nrules: []\n";
        let expected = "name: mine\nmodels:\n  - name: a\n    provider: openai # the one\n    apiBase: http://127.0.0.1:4242/v1\n    \
                        model: m\n    requestOptions:\n      provider: openai\n  - name: b\n    provider: ollama\n  \
                        - provider: \"openai\"\n    apiBase: http://127.0.0.1:4242/v1\nrules: []\n";
        assert_eq!(changed(MODELS, text), expected);
        assert_eq!(
            changed(MODELS, "models:\n- provider: openai"),
            "models:\n- provider: openai\n  apiBase: http://127.0.0.1:4242/v1"
        );
        for (text, why) in [
            ("name: a\n", "has no list of models"),
            ("models:\n- provider: ollama\n", "has no model with the provider openai"),
        ] {
            assert!(MODELS.find(text, URL).unwrap_err().contains(why), "{text}");
        }
        let by_hand = "models:\n  - provider: openai\n    apiBase: https://x/v1\n";
        assert_eq!(MODELS.find(by_hand, URL), Ok(UpstreamSetting::Named("https://x/v1".to_owned())));
    }

    #[test]
    fn what_was_inserted_is_taken_out_wherever_it_is_now_and_only_if_it_is_there_once() {
        let insertions = [Insertion { at: 0, text: "b\n".to_owned() }];
        assert_eq!(remove_all("a\nb\nc\n", &insertions).as_deref(), Some("a\nc\n"));
        assert_eq!(remove_all("b\nb\n", &insertions), None);
        assert_eq!(remove_all("a\n", &insertions), None);
    }
}
