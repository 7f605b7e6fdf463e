//! The site for programs that read: every page as Markdown, and llms.txt, which lists them all. And the picture of the
//! README, which shows what the demonstration prints.

use super::links::links;
use super::pages::{Page, page, pages, root};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

#[test]
fn the_site_has_every_page_as_markdown_and_lists_them_in_llms_txt() {
    let site = tempfile::tempdir().unwrap();
    let mut make = Command::new("python3");
    make.arg(root().join("docs/site.py")).arg(root().join("docs")).arg(site.path());
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = std::fs::read_to_string(site.path().join("llms.txt")).unwrap();
    assert!(list.starts_with("# toolrein\n\n> "), "{list}");
    let mut listed = 0;
    for page in pages() {
        let Some(name) = page.path.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md") else {
            continue;
        };
        let line = list.lines().find(|line| line.contains(&format!("]({name}): ")));
        let line = line.unwrap_or_else(|| panic!("llms.txt lacks {name}:\n{list}"));
        let (_, sentence) = line.split_once("): ").unwrap();
        assert!(sentence.split_whitespace().count() > 3 && sentence.len() < 400, "{line}");
        assert_eq!(std::fs::read_to_string(site.path().join(name)).unwrap(), page.text, "{name}");
        listed += 1;
    }
    assert!(listed > 40 && list.lines().filter(|line| line.starts_with("- [")).count() == listed, "{list}");
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    assert!(makefile.contains("docs/site.py target/book \"$(CURDIR)/target/site\""), "make site runs it");
}

/// Only what mdBook does to the pages is left out: a stand-in makes the folder.
#[test]
fn every_link_of_the_sites_pages_leads_to_a_page_of_it_or_into_the_repository() {
    let tools = tempfile::tempdir().unwrap();
    let mdbook = tools.path().join("mdbook");
    std::fs::write(&mdbook, "#!/bin/sh\nfor word; do :; done\nmkdir -p \"$word\"\n").unwrap();
    std::fs::set_permissions(&mdbook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let mut make = Command::new("make");
    make.args(["site", "SITE_REPOSITORY=https://code.example/toolrein"])
        .env("PATH", path)
        .current_dir(root());
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let book = root().join("target/book");
    let mut problems = Vec::new();
    let mut pages = 0;
    for folder in [book.clone(), book.join("policies")] {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "md")) {
            pages += 1;
            let text = std::fs::read_to_string(&file).unwrap();
            for link in links(&Page { path: file.display().to_string(), text }) {
                let target = link.split('#').next().unwrap();
                if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                    problems.push(format!("{}: {link}", file.display()));
                }
            }
        }
    }
    assert!(problems.is_empty() && pages > 40, "{}", problems.join("\n"));
}

#[test]
fn the_recording_shows_what_the_demonstration_prints() {
    assert!(page("README.md".to_owned()).text.contains("](docs/images/demo.svg)"));
    let picture = std::fs::read_to_string(root().join("docs/images/demo.svg")).unwrap();
    let mark = regex::Regex::new("<[^>]*>").unwrap();
    let shown: Vec<String> = picture
        .lines()
        .filter(|line| line.starts_with("<text id=\"l"))
        .map(|line| {
            mark.replace_all(line, "").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
        })
        .collect();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let output = demo.args(["demo", "--once"]).args(free).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<&str> = printed.trim().lines().map(str::trim_end).collect();
    assert_eq!(shown, printed, "make recording");
}

#[test]
fn the_recording_is_whole_where_nothing_moves_and_begins_with_its_end() {
    let picture = std::fs::read_to_string(root().join("docs/images/demo.svg")).unwrap();
    // Without CSS: only states of the command that is being typed are hidden.
    let hidden = picture.lines().filter(|line| line.starts_with("<text") && line.contains("opacity=\"0\""));
    assert!(hidden.clone().count() > 10 && hidden.clone().all(|line| line.contains("&#9608;")));
    // With reduced motion, or without animations: nothing outside of them hides anything.
    let (_, style) = picture.split_once("<style>").unwrap();
    let (style, moving) = style
        .split_once("</style>")
        .unwrap()
        .0
        .split_once("@media (prefers-reduced-motion:no-preference){")
        .unwrap();
    let frames = regex::Regex::new(r"@keyframes \w+\{(?:[^{}]*\{[^{}]*\})*\}").unwrap();
    let still = frames.replace_all(style, "");
    assert!(!still.contains("opacity") && !still.contains("animation"), "{still}");
    // A preview shows the first frame, which is a moment after the last line came.
    let (delay, _) = moving.split_once("animation-delay:-").unwrap().1.split_once("s}").unwrap();
    let (length, _) = moving.split_once("animation-duration:").unwrap().1.split_once("s;").unwrap();
    let begins = 100.0 * delay.parse::<f64>().unwrap() / length.parse::<f64>().unwrap();
    let last =
        regex::Regex::new(r"@keyframes l\d+\{0%,[\d.]+%\{opacity:0\}([\d.]+)%,100%\{opacity:1\}\}").unwrap();
    let shown: Vec<f64> = last.captures_iter(style).map(|it| it[1].parse().unwrap()).collect();
    assert!(shown.len() > 15 && shown.iter().all(|at| *at < begins), "{begins} {shown:?}");
}
