//! The shipped `proxy.toml`: the default configuration, and the defaults of every policy. Contains the text and does
//! not parse it.

/// Its name in problems.
pub(super) const NAME: &str = "built-in defaults";

/// The file as shipped.
pub const TEXT: &str = include_str!("../../proxy.toml");

/// The file with its commented-out settings switched on: lines that begin with `#` and no space, and the lines after such
/// a line to the end of its list.
pub(super) fn with_all_that_is_off() -> String {
    let mut is_open = false;
    let lines = TEXT.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if is_open || (!setting.is_empty() && !setting.starts_with([' ', '#'])) => {
            let count = |brackets: [char; 2]| setting.matches(brackets).count();
            let (opened, closed) = (count(['[', '{']), count([']', '}']));
            is_open = if is_open { closed == 0 } else { opened > closed };
            setting
        }
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The part of the file about the policy `name`, with its comments: what it does, its keys, and their defaults.
pub fn of_policy(name: &str) -> Option<String> {
    let paragraphs: Vec<&str> = TEXT.split("\n\n").collect();
    // A paragraph is the policy's if it has its table or one within that.
    let table = |paragraph: &str| {
        let headers =
            paragraph.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix("[policy."));
        headers.filter_map(|header| header.split([']', '.']).next().map(str::to_owned)).next()
    };
    let own: Vec<&str> =
        paragraphs.into_iter().filter(|paragraph| table(paragraph).as_deref() == Some(name)).collect();
    (!own.is_empty()).then(|| own.join("\n\n"))
}
