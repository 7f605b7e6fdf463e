#!/usr/bin/env python3
"""Writes what a release knows into the installer and the formula: fill.py REPOSITORY SHA256SUMS, into $DIST.

REPOSITORY is the address of the repository, whose releases are at REPOSITORY/releases/download. A checksum that
SHA256SUMS does not have is an error, so that no formula names a file that was not released.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    repository, checksums = sys.argv[1:]
    manifest = tomllib.loads((HERE.parent.parent / "Cargo.toml").read_text())
    about, version = manifest["package"], manifest["workspace"]["package"]["version"]
    lines = [line.split() for line in Path(checksums).read_text().splitlines()]
    digests = {name.lstrip("*"): digest for digest, name in lines}
    summary = about["description"].removeprefix("A ")
    values = {
        "VERSION": version,
        "DESCRIPTION": summary[0].upper() + summary[1:],
        "HOMEPAGE": repository,
        "DOWNLOADS": f"{repository}/releases/download",
    }

    def value(found):
        name, _, target = found[1].partition(" ")
        if not target:
            return values[name]
        archive = f"toolrein-{version}-{target}.tar.gz"
        if archive not in digests:
            raise SystemExit(f"{checksums} has no {archive}")
        return digests[archive]

    for name in ["install.sh", "toolrein.rb"]:
        text = re.sub(r"@([A-Z0-9]+(?: [a-z0-9_-]+)?)@", value, (HERE / name).read_text())
        (Path(os.environ.get("DIST", "target/dist")) / name).write_text(text)


main()
