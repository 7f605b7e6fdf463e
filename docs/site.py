#!/usr/bin/env python3
"""Puts every page as Markdown and llms.txt into a site: docs/site.py PAGES SITE. `make site` runs it.

llms.txt is the list of contents for programs: each page of SUMMARY.md with its address, its title, and its first sentence.
"""

import re
import shutil
import sys
from pathlib import Path


def first_sentence(text):
    """The first sentence of a page's first paragraph, without marks."""
    without_code = re.sub(r"(?ms)^```.*?^```$", "", text)
    paragraphs = [part.strip() for part in without_code.split("\n\n")]
    prose = next((part for part in paragraphs if part and part[0] not in "#|!<-"), "")
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.?]) ", prose)[0].rstrip(":")


def main():
    pages, site = map(Path, sys.argv[1:])
    site.mkdir(parents=True, exist_ok=True)
    lines = []
    for title, name in re.findall(r"\[([^\]]+)\]\(([^)]+\.md)\)", (pages / "SUMMARY.md").read_text()):
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pages / name, target)
        lines.append(f"- [{title}]({name}): {first_sentence((pages / name).read_text())}\n")
    description = re.search(r'(?m)^description = "(.*)"$', (pages / "book.toml").read_text())[1]
    (site / "llms.txt").write_text(f"# toolrein\n\n> {description}\n\n## Pages\n\n{''.join(lines)}")


main()
