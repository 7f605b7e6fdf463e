//! Options of Codex's command line that say where its model requests go. Codex takes the last address that it is given, so
//! one of the user's would lead around the proxy.

use std::ffi::OsString;

/// The setting that names the address of the provider `openai`.
const BASE_URL: &str = "openai_base_url";
/// The setting that chooses another provider, which has an address of its own.
const PROVIDER: &str = "model_provider";
/// The option that chooses a provider on this machine.
const OWN_MODELS: &str = "--oss";

/// A setting among the arguments: `-c KEY=VALUE`.
struct CodexSetting<'a> {
    /// The position of the argument that holds it, and the text before it there: none, `-c` or `--config=`.
    index: usize,
    option: &'a str,
    key: &'a str,
    value: &'a str,
}

/// The address that the user gave to Codex, which is the upstream.
pub(super) fn upstream(arguments: &[OsString]) -> Option<String> {
    let mut addresses = settings(arguments).into_iter().filter(|setting| setting.key == BASE_URL);
    addresses.next_back().map(|setting| text_of(setting.value)).filter(|url| !url.trim().is_empty())
}

/// The arguments with the proxy's address: in place of the user's, and before everything else, since Codex reads no
/// variable.
pub(super) fn with_base_url(arguments: &[OsString], base_url: &str) -> Vec<OsString> {
    let address = format!("{BASE_URL}={}", toml::Value::from(base_url));
    let mut changed = arguments.to_vec();
    for setting in settings(arguments).into_iter().filter(|setting| setting.key == BASE_URL) {
        changed[setting.index] = format!("{}{address}", setting.option).into();
    }
    changed.splice(0..0, ["-c".into(), address.into()]);
    changed
}

/// What among the arguments leads around the proxy: a provider other than `openai`.
pub(super) fn detour(arguments: &[OsString]) -> Option<String> {
    let settings = settings(arguments);
    let provider = settings.iter().rfind(|setting| setting.key == PROVIDER).map(|it| text_of(it.value));
    let provider = provider.filter(|provider| provider != "openai");
    let is_own = before_dashes(arguments).iter().any(|word| word == OWN_MODELS);
    let option = match provider {
        Some(provider) => format!("-c {PROVIDER}={provider}"),
        None if is_own => OWN_MODELS.to_owned(),
        None => return None,
    };
    Some(format!(
        "codex {option} leads around toolrein, since that provider has an address of its own: leave it out, and name that \
         address with toolrein run --upstream"
    ))
}

/// The settings, in their order. What follows `--` is no option.
fn settings(arguments: &[OsString]) -> Vec<CodexSetting<'_>> {
    let words: Vec<&str> =
        before_dashes(arguments).iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let mut settings = Vec::new();
    let mut is_value = false;
    for (index, word) in words.into_iter().enumerate() {
        let is_whole = std::mem::replace(&mut is_value, ["-c", "--config"].contains(&word));
        let option = match word {
            _ if is_whole => "",
            _ if word.starts_with("--config=") => "--config=",
            _ if word.starts_with("-c=") => "-c=",
            _ if word.starts_with("-c") => "-c",
            _ => continue,
        };
        if let Some((key, value)) = word[option.len()..].split_once('=') {
            settings.push(CodexSetting { index, option, key: key.trim(), value });
        }
        is_value &= !is_whole;
    }
    settings
}

fn before_dashes(arguments: &[OsString]) -> &[OsString] {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    &arguments[..end]
}

/// A value as Codex reads it: as TOML where it is TOML, and otherwise as it is.
fn text_of(value: &str) -> String {
    let parsed = format!("value = {value}").parse::<toml::Table>().ok();
    let text = parsed.as_ref().and_then(|table| table.get("value")?.as_str());
    text.map_or_else(|| value.trim().to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "openai_base_url=\"http://127.0.0.1:9/v1\"";

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn an_address_of_the_users_is_the_upstream_and_the_proxys_takes_its_place_in_every_spelling() {
        for (arguments, upstream_url, changed) in [
            ("exec hi", None, "exec hi"),
            ("-c openai_base_url=\"https://a/v1\" exec hi", Some("https://a/v1"), "-c OURS exec hi"),
            ("exec --config openai_base_url=https://a/v1 hi", Some("https://a/v1"), "exec --config OURS hi"),
            ("exec -copenai_base_url='https://a/v1'", Some("https://a/v1"), "exec -cOURS"),
            ("exec -c=openai_base_url=https://a/v1", Some("https://a/v1"), "exec -c=OURS"),
            (
                "-c openai_base_url=https://a/v1 exec --config=openai_base_url=https://b/v1 -c model=x",
                Some("https://b/v1"),
                "-c OURS exec --config=OURS -c model=x",
            ),
            ("exec -- -c openai_base_url=https://a/v1", None, "exec -- -c openai_base_url=https://a/v1"),
            ("exec --color openai_base_url=https://a/v1", None, "exec --color openai_base_url=https://a/v1"),
            ("exec -c openai_base_url=\"\"", None, "exec -c OURS"),
        ] {
            let arguments = words(arguments);
            assert_eq!(upstream(&arguments).as_deref(), upstream_url, "{arguments:?}");
            let expected = words(&format!("-c OURS {changed}").replace("OURS", OURS));
            assert_eq!(with_base_url(&arguments, "http://127.0.0.1:9/v1"), expected, "{arguments:?}");
        }
    }

    #[test]
    fn a_provider_of_its_own_leads_around_the_proxy() {
        for (arguments, option) in [
            ("exec -c model_provider=\"azure\" hi", Some("-c model_provider=azure")),
            ("exec -c model_provider=azure -c model_provider=openai hi", None),
            ("exec --oss hi", Some("--oss")),
            ("exec -c model_providers.azure.name=a hi", None),
            ("exec -- --oss", None),
        ] {
            let found = detour(&words(arguments));
            let expected = option.map(|option| format!("codex {option} leads around toolrein"));
            assert_eq!(found.is_some(), expected.is_some(), "{arguments}");
            assert!(found.unwrap_or_default().starts_with(&expected.unwrap_or_default()), "{arguments}");
        }
    }
}
