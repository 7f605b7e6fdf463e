//! The shipped `proxy.toml`: the default configuration, and the defaults of every policy. Contains the text and does
//! not parse it.

/// Its name in problems.
pub(super) const NAME: &str = "proxy.toml (shipped)";

/// The file as shipped.
pub const TEXT: &str = include_str!("../../proxy.toml");

/// The file with its commented-out settings switched on: lines that begin with `#` and no space.
pub(super) fn with_all_that_is_off() -> String {
    let lines = TEXT.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with([' ', '#']) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}
