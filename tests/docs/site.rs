//! The site for programs that read: every page as Markdown, and llms.txt, which lists them all. And the picture of the
//! README, which shows what the demonstration prints.

use super::pages::{page, pages, root};
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
