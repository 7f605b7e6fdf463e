//! The upstream that an agent has by its own configuration: which places name one, the strongest first, and whether it is a
//! toolrein already. Changes nothing.

use super::agents::{AGENTS, Agent, Stronger, Way};
use super::file::ConfigFile;
use super::insert::Form;
use super::record;
use crate::config::{Listen, Target, without_secrets};
use hyper::Uri;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The only provider whose base URL is set up.
const PROVIDER: &str = "openai";

type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What a place names as the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUpstream {
    /// A file or a variable, as it is shown.
    pub place: String,
    /// In the form of the agent's file.
    pub value: String,
}

/// The upstream that the agent whose program this is has without toolrein, as a base URL. `None`: it is no such agent,
/// or it names none.
pub fn own_upstream(program: &str) -> Option<Result<NamedUpstream, String>> {
    let agent = AGENTS.iter().find(|agent| agent.program == program)?;
    let folder = std::env::current_dir().unwrap_or_default();
    of_agent(agent, &folder, &|name| std::env::var_os(name)).transpose()
}

fn of_agent(agent: &Agent, folder: &Path, variable: Variables<'_>) -> Result<Option<NamedUpstream>, String> {
    let Way::File { form, .. } = agent.way else { return Ok(None) };
    let name = agent.name;
    let unknown = |problem: String| {
        format!("{problem}, so it is not known where {name} sends its requests: name that with --upstream")
    };
    let Some(NamedUpstream { place, value }) = named(agent, form, folder, variable).map_err(unknown)? else {
        return Ok(None);
    };
    let url = form.base_url(value.trim());
    if leads_to(&url, &shipped()) || record::has_written(name, &value) {
        return Err(format!(
            "{place}: toolrein is in front of {name} already, at {}: start {name} without toolrein run, or name the \
             upstream with --upstream",
            without_secrets(&value)
        ));
    }
    Target::parse(&url).map_err(|problem| unknown(format!("{place}: {problem}")))?;
    Ok(Some(NamedUpstream { place, value: url }))
}

/// What the strongest place names that names something.
fn named(
    agent: &Agent,
    form: Form,
    folder: &Path,
    variable: Variables<'_>,
) -> Result<Option<NamedUpstream>, String> {
    // Without a home directory there is no file.
    let own = agent.file("", variable).ok().map(|(path, _)| path);
    let text = own.as_deref().map(ConfigFile::read).transpose()?.and_then(|file| file.text);
    let shown = own.as_deref().unwrap_or(Path::new("")).display().to_string();
    check_provider(form, text.as_deref().unwrap_or_default(), variable)
        .map_err(|problem| format!("{shown}: {problem}"))?;
    if let Some(found) = before_file(agent, own.as_deref(), folder, variable)? {
        return Ok(Some(found));
    }
    let value = text.as_deref().map(|text| form.named(text)).transpose();
    let value = value.map_err(|problem| format!("{shown}: {problem}"))?.flatten();
    Ok(value.map(|value| NamedUpstream { place: shown, value }))
}

/// Checks that the agent's provider is the one whose base URL is set.
///
/// # Errors
/// It is another one, or the file cannot be read.
pub(super) fn check_provider(form: Form, text: &str, variable: Variables<'_>) -> Result<(), String> {
    let Some(key) = form.provider_key() else { return Ok(()) };
    let by_variable = variable(key).map(|value| value.to_string_lossy().into_owned());
    let chosen = match by_variable.filter(|value| !value.is_empty()) {
        Some(chosen) => Some(chosen),
        None => form.provider(text)?,
    };
    match chosen.filter(|chosen| chosen != PROVIDER) {
        Some(other) => {
            Err(format!("{key} is {other:?}, and the base URL is set for the provider {PROVIDER} alone"))
        }
        None => Ok(()),
    }
}

/// What a place names that counts before the agent's own file.
///
/// # Errors
/// Such a place cannot be read.
pub(super) fn before_file(
    agent: &Agent,
    own: Option<&Path>,
    folder: &Path,
    variable: Variables<'_>,
) -> Result<Option<NamedUpstream>, String> {
    let Way::File { form, stronger, .. } = agent.way else { return Ok(None) };
    for (place, held) in places(&stronger, own, folder, variable) {
        let value = match held {
            PlaceContent::Value(value) => Ok(Some(value)),
            PlaceContent::Text(text) => form.named(&text).map_err(|problem| format!("{place}: {problem}")),
            PlaceContent::File(path) => ConfigFile::read(&path).and_then(|file| {
                let named = file.text.map(|text| form.named(&text)).transpose();
                named.map(Option::flatten).map_err(|problem| format!("{place}: {problem}"))
            }),
        };
        if let Some(value) = value?.filter(|value| !value.trim().is_empty()) {
            return Ok(Some(NamedUpstream { place, value }));
        }
    }
    Ok(None)
}

/// What a place holds.
enum PlaceContent {
    Value(String),
    Text(String),
    File(PathBuf),
}

/// The places that are there, the strongest first.
fn places(
    stronger: &Stronger,
    own: Option<&Path>,
    folder: &Path,
    variable: Variables<'_>,
) -> Vec<(String, PlaceContent)> {
    let set = |name: Option<&'static str>| {
        let value = variable(name?)?.to_string_lossy().into_owned();
        (!value.trim().is_empty()).then(|| (name.unwrap_or_default().to_owned(), value))
    };
    let mut places = Vec::new();
    places.extend(set(stronger.text).map(|(name, text)| (name, PlaceContent::Text(text))));
    places.extend(set(stronger.value).map(|(name, value)| (name, PlaceContent::Value(value))));
    for folder in folder.ancestors() {
        let files = stronger.files.iter().map(|file| folder.join(file));
        let files = files.filter(|file| Some(file.as_path()) != own && file.is_file());
        places.extend(files.map(|file| (file.display().to_string(), PlaceContent::File(file))));
        if folder.join(".git").exists() {
            break;
        }
    }
    let path = set(stronger.path).map(|(_, path)| PathBuf::from(path));
    places.extend(path.map(|path| (path.display().to_string(), PlaceContent::File(path))));
    places
}

/// The address of a toolrein as shipped.
pub(super) fn shipped() -> String {
    format!("http://{}/v1", Listen::default().proxy)
}

/// Whether both addresses are of one server, as far as is visible without resolving names.
pub(super) fn leads_to(url: &str, other: &str) -> bool {
    let server = |url: &str| {
        let uri: Uri = url.trim().parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        Some((if is_here { "localhost".to_owned() } else { host }, uri.port_u16().unwrap_or(default)))
    };
    server(url).is_some_and(|found| Some(found) == server(other))
}

/// Whether both addresses are of one server, and of one path.
pub(super) fn is_same(url: &str, other: &str) -> bool {
    let path = |url: &str| {
        let uri: Option<Uri> = url.trim().parse().ok();
        uri.map(|uri| uri.path().trim_end_matches('/').to_owned())
    };
    leads_to(url, other) && path(url) == path(other)
}

#[cfg(test)]
mod tests {
    use super::super::agents::named as agent;
    use super::*;

    #[test]
    fn the_strongest_place_that_names_an_upstream_counts() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project/deep");
        std::fs::create_dir_all(home.path().join("project/.git")).unwrap();
        std::fs::create_dir_all(home.path().join(".config/opencode")).unwrap();
        std::fs::create_dir_all(&project).unwrap();
        let json = |url: &str| {
            format!("{{\"provider\": {{\"openai\": {{\"options\": {{\"baseURL\": \"{url}\"}}}}}}}}")
        };
        let found = |variables: &[(&str, String)]| {
            let set = |name: &str| match name {
                "HOME" => Some(home.path().into()),
                _ => variables.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value)),
            };
            of_agent(agent("opencode").unwrap(), &project, &set).unwrap().map(|found| found.value)
        };
        assert_eq!(found(&[]), None);
        std::fs::write(home.path().join("opencode.json"), json("http://above/v1")).unwrap();
        assert_eq!(found(&[]), None, "it is above the repository");
        std::fs::write(home.path().join(".config/opencode/opencode.json"), json("http://own/v1")).unwrap();
        assert_eq!(found(&[]).as_deref(), Some("http://own/v1"));
        let path = home.path().join("opencode.json").display().to_string();
        let path = ("OPENCODE_CONFIG", path);
        assert_eq!(found(std::slice::from_ref(&path)).as_deref(), Some("http://above/v1"));
        std::fs::write(home.path().join("project/opencode.jsonc"), json("http://project/v1")).unwrap();
        assert_eq!(found(std::slice::from_ref(&path)).as_deref(), Some("http://project/v1"));
        let text = ("OPENCODE_CONFIG_CONTENT", json("http://text/v1"));
        assert_eq!(found(&[path.clone(), text]).as_deref(), Some("http://text/v1"));
        let other = ("OPENCODE_CONFIG_CONTENT", "{}".to_owned());
        assert_eq!(found(&[path, other]).as_deref(), Some("http://project/v1"));
    }

    #[test]
    fn addresses_of_one_server_are_one_however_they_are_written() {
        for (url, other, expected) in [
            ("http://localhost:4242/v1", "http://127.0.0.1:4242/v1", [true, true]),
            ("http://[::1]:4242", "http://127.0.0.1:4242/v1", [true, false]),
            ("http://LOCALHOST:80/v1/", "http://127.0.0.1/v1", [true, true]),
            ("http://127.0.0.1:5555/v1", "http://127.0.0.1:4242/v1", [false, false]),
            ("https://Gate.example/v1", "https://gate.example:443/v1", [true, true]),
            ("no url", "no url", [false, false]),
        ] {
            assert_eq!([leads_to(url, other), is_same(url, other)], expected, "{url}");
        }
    }
}
