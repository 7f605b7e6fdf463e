//! The shipped `proxy.toml`: the default configuration, and the defaults of every policy. Holds the text;
//! reads none of it.

/// What stands in problems for its name.
pub(super) const NAME: &str = "proxy.toml (shipped)";

/// The file as shipped.
pub const TEXT: &str = include_str!("../../proxy.toml");

/// The file with the settings that are off in it switched on: lines that begin with `#` and no space.
pub(super) fn with_all_that_is_off() -> String {
    let lines = TEXT.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with([' ', '#']) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}
