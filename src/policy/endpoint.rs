//! Endpoints of other models as an operator writes them: checks of addresses and of names of environment variables.
//! Connects to nothing.

/// Whether it looks like an address that `upstream.url` accepts.
pub(super) fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':']));
    has_host && url.chars().all(|letter| letter.is_ascii_graphic() && !"@?#".contains(letter))
}

/// Whether it can be a variable's name. Keys of providers contain dashes.
pub(super) fn is_variable(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
}
