//! Links: each leads to a file, and to a heading in it; the list of contents names every page and no other.

use super::pages::{Page, page, pages, root};
use regex::Regex;
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

const CONTENTS: &str = "docs/SUMMARY.md";

/// Pages at the root that are for developers, or for readers of the code.
const FURTHER: [&str; 4] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_in_it() {
    let mut problems = Vec::new();
    for page in pages().into_iter().chain(FURTHER.map(|path| page(path.to_owned()))) {
        for link in links(&page) {
            if let Err(problem) = follow(&page, &link) {
                problems.push(format!("{}: {link}: {problem}", page.path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_contents_name_every_page_and_no_other() {
    let contents = page(CONTENTS.to_owned());
    let mut named = links(&contents);
    named.sort();
    let pages = pages().into_iter().map(|page| page.path);
    let mut there: Vec<String> = pages
        .filter(|path| path != CONTENTS)
        .filter_map(|path| path.strip_prefix("docs/").map(str::to_owned))
        .collect();
    there.sort();
    assert_eq!(named, there, "{CONTENTS} on the left, docs/ on the right");
}

/// The targets of a page's links, outside of code.
pub fn links(page: &Page) -> Vec<String> {
    let code = Regex::new("`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let prose = page.prose();
    let prose = code.replace_all(&prose, "code");
    link.captures_iter(&prose).map(|found| found[1].to_owned()).collect()
}

fn follow(page: &Page, link: &str) -> Result<(), String> {
    if let Some((scheme, _)) = link.split_once("://") {
        return if scheme == "https" { Ok(()) } else { Err("expected https".to_owned()) };
    }
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { PathBuf::from(&page.path) } else { beside(&page.path, file)? };
    let whole = root().join(&path);
    if !whole.exists() {
        return Err("there is no such file".to_owned());
    }
    let Some(heading) = heading else { return Ok(()) };
    let text = std::fs::read_to_string(&whole).map_err(|error| error.to_string())?;
    let target = Page { path: path.display().to_string(), text };
    if headings(&target).contains(heading) { Ok(()) } else { Err("there is no such heading".to_owned()) }
}

/// `link`, as it is on the page `from`, from the project's root.
fn beside(from: &str, link: &str) -> Result<PathBuf, String> {
    let mut path = Path::new(from).parent().unwrap_or_else(|| Path::new("")).to_path_buf();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return Err("it leads out of the project".to_owned()),
        }
    }
    Ok(path)
}

/// The headings and anchors of a page, as links name them.
fn headings(page: &Page) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let prose = page.prose();
    let titles = prose
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let named = titles.map(|title| {
        let kept = title.to_lowercase().replace(' ', "-");
        let name: String = kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let before = seen.entry(name.clone()).or_default();
        *before += 1;
        if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
    });
    let anchor = Regex::new(r#"<a id="([^"]+)">"#).unwrap();
    named.chain(anchor.captures_iter(&prose).map(|found| found[1].to_owned())).collect()
}
