#!/usr/bin/env python3
"""Packs a program that is already built, and compiles nothing: an archive, a wheel for pip and packages for npm.

From the project's root, with Python 3.11 or later; `make packages` builds first.

    deploy/pack.py PROGRAM TARGET [--kinds archive,wheel,npm] [--pages FOLDER] [--fast]

into $DIST, target/dist without it.

TARGET is the one that PROGRAM was built for, as Rust names it. What is promised about a platform (the oldest glibc, no libc
at all) is read from the program itself. Equal inputs give equal files, byte for byte.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import struct
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The oldest glibc that the tags of wheels name for Rust's programs: that of CentOS 7.
OLDEST_GLIBC = (2, 17)
# What every Linux with that glibc has, by PEP 600; a program that needs another library needs no wheel but a package.
OF_EVERY_LINUX = re.compile(r"lib(c|m|dl|rt|pthread|util|gcc_s)\.so\.\d+|ld-linux.*\.so\.\d+")
# 1 January 1980, the first day that a zip file can name.
TIMES = {"tar": 315_532_800, "zip": (1980, 1, 1, 0, 0, 0)}

# By target: npm's name of the platform, and what the first bytes of its programs say.
TARGETS = {
    "x86_64-unknown-linux-gnu": ("linux-x64", "elf x86_64"),
    "x86_64-unknown-linux-musl": ("linux-x64", "elf x86_64"),
    "aarch64-unknown-linux-gnu": ("linux-arm64", "elf aarch64"),
    "aarch64-unknown-linux-musl": ("linux-arm64", "elf aarch64"),
    "x86_64-apple-darwin": ("darwin-x64", "mach-o x86_64"),
    "aarch64-apple-darwin": ("darwin-arm64", "mach-o aarch64"),
    "x86_64-pc-windows-msvc": ("win32-x64", "pe x86_64"),
}


class Program:
    """A built program: its bytes, and what they say of the platform that it needs."""

    def __init__(self, path, target):
        self.bytes = Path(path).read_bytes()
        self.target = target
        self.npm, expected = TARGETS[target]
        if (found := self.format()) != expected:
            raise SystemExit(f"{path} is no program for {target}: {found}, not {expected}")
        self.name = "toolrein.exe" if self.npm.startswith("win32") else "toolrein"
        self.needed, self.glibc = self.linked() if expected.startswith("elf") else ([], None)
        if foreign := [name for name in self.needed if not OF_EVERY_LINUX.fullmatch(name)]:
            raise SystemExit(f"{path} needs {', '.join(foreign)}, which not every Linux has")

    def format(self):
        """The kind of executable file and the processor."""
        start = self.bytes[:4096].ljust(4096, b"\0")
        if start[:6] == b"\x7fELF\x02\x01":
            (machine,) = struct.unpack_from("<H", start, 18)
            return f"elf {({62: 'x86_64', 183: 'aarch64'}).get(machine, machine)}"
        if start[:4] == b"\xcf\xfa\xed\xfe":
            (machine,) = struct.unpack_from("<I", start, 4)
            return f"mach-o {({0x1000007: 'x86_64', 0x100000C: 'aarch64'}).get(machine, machine)}"
        if start[:2] == b"MZ":
            (header,) = struct.unpack_from("<I", start, 60)
            (machine,) = struct.unpack_from("<H", self.bytes, header + 4)
            return f"pe {({0x8664: 'x86_64', 0xAA64: 'aarch64'}).get(machine, machine)}"
        return "an unknown format"

    def linked(self):
        """The libraries that an ELF program is linked against, and the newest version of glibc that it asks for."""
        (start,) = struct.unpack_from("<Q", self.bytes, 32)
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        headers = [struct.unpack_from("<IIQQQQ", self.bytes, start + nth * size) for nth in range(count)]
        loaded = [(address, offset, length) for kind, _, offset, address, _, length in headers if kind == 1]
        dynamic = [(offset, length) for kind, _, offset, _, _, length in headers if kind == 2]
        entries = []
        for offset, length in dynamic:
            entries += [struct.unpack_from("<QQ", self.bytes, offset + at) for at in range(0, length, 16)]

        def in_file(address):
            return next(at + address - begin for begin, at, length in loaded if begin <= address < begin + length)

        def one(tag):
            return next((value for key, value in entries if key == tag), None)

        if (strings := one(5)) is None:
            return [], None
        strings = in_file(strings)

        def text(at):
            return self.bytes[strings + at : self.bytes.index(b"\0", strings + at)].decode()

        needed = [text(value) for key, value in entries if key == 1]
        versions, at = [], one(0x6FFFFFFE)
        at = at and in_file(at)
        for _ in range(one(0x6FFFFFFF) or 0):
            _, count, _, first, next_file = struct.unpack_from("<HHIII", self.bytes, at)
            inner = at + first
            for _ in range(count):
                _, _, _, name, next_version = struct.unpack_from("<IHHII", self.bytes, inner)
                if found := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", text(name)):
                    versions.append((int(found[1]), int(found[2])))
                inner += next_version
            at += next_file
        return needed, max(versions, default=None)

    def wheel_tags(self):
        """The platforms of its wheel; a program without any library runs with either libc."""
        system, processor = self.npm.split("-")
        if system == "darwin":
            return "macosx_11_0_arm64" if processor == "arm64" else "macosx_10_12_x86_64"
        if system == "win32":
            return "win_amd64"
        processor = self.target.split("-")[0]
        glibc = max(self.glibc or OLDEST_GLIBC, OLDEST_GLIBC)
        tags = [f"manylinux_{glibc[0]}_{glibc[1]}_{processor}"]
        if glibc == OLDEST_GLIBC:
            tags.append(f"manylinux2014_{processor}")
        if not self.needed:
            tags.append(f"musllinux_1_1_{processor}")
        return ".".join(tags)


class Packer:
    """Writes the packages of one program into a folder."""

    def __init__(self, program, dist, options):
        self.program, self.dist, self.level = program, dist, 1 if options.fast else 9
        self.pages = sorted(Path(options.pages).iterdir()) if options.pages else []
        with open(ROOT / "Cargo.toml", "rb") as file:
            manifest = tomllib.load(file)
        self.about = {**manifest["package"], **manifest["workspace"]["package"]}
        self.version = self.about["version"]

    def text(self, name):
        return (ROOT / name).read_bytes()

    def tar(self, path, folder, files):
        """An archive of (name, bytes, whether it can be run)."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, content, runs in files:
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), TIMES["tar"], 0o755 if runs else 0o644
                archive.addfile(entry, io.BytesIO(content))
        with open(path, "wb") as file, gzip.GzipFile("", "wb", self.level, file, 0) as packed:
            packed.write(stream.getbuffer())
        print(path)

    def archive(self):
        """The program with its manual pages and completions."""
        name = f"toolrein-{self.version}-{self.program.target}"
        files = [(self.program.name, self.program.bytes, True)]
        files += [(it, self.text(it), False) for it in ["proxy.toml", "README.md", "CHANGELOG.md", "LICENSE"]]
        for page in self.pages:
            folder = "man/man1" if page.suffix == ".1" else "completions"
            files.append((f"{folder}/{page.name}", page.read_bytes(), False))
        self.tar(self.dist / f"{name}.tar.gz", name, files)

    def wheel(self):
        """As maturin makes it with `bindings = "bin"` (pyproject.toml), for pip, pipx and uv."""
        tags = self.program.wheel_tags()
        about = f"toolrein-{self.version}.dist-info"
        fields = [
            ("Metadata-Version", "2.4"),
            ("Name", self.about["name"]),
            ("Version", self.version),
            ("Summary", self.about["description"]),
            ("Keywords", ",".join(self.about["keywords"])),
            ("License-Expression", self.about["license"]),
            ("License-File", "LICENSE"),
            ("Requires-Python", ">=3.7"),
            ("Description-Content-Type", "text/markdown"),
        ]
        metadata = "".join(f"{name}: {value}\n" for name, value in fields) + "\n"
        tag_lines = "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))
        files = [
            (f"toolrein-{self.version}.data/scripts/{self.program.name}", self.program.bytes),
            (f"{about}/METADATA", metadata.encode() + self.text("README.md")),
            (f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: pack.py\nRoot-Is-Purelib: false\n{tag_lines}".encode()),
            (f"{about}/licenses/LICENSE", self.text("LICENSE")),
        ]
        record = ""
        for name, content in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        files.append((f"{about}/RECORD", f"{record}{about}/RECORD,,\n".encode()))
        path = self.dist / f"toolrein-{self.version}-py3-none-{tags}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=self.level) as archive:
            for name, content in files:
                entry = zipfile.ZipInfo(name, TIMES["zip"])
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
                archive.writestr(entry, content)
        print(path)

    def npm(self):
        """The package of this platform, which has the program, and the one that people name, which starts it."""
        common = {key: self.about[key] for key in ["version", "description", "license", "keywords"]}
        system, processor = self.program.npm.split("-")
        own = {"name": f"@toolrein/{self.program.npm}", **common, "os": [system], "cpu": [processor]}
        if self.program.needed:
            own["libc"] = ["glibc"]
        own["preferUnplugged"] = True
        licence = ("LICENSE", self.text("LICENSE"), False)
        self.tar(
            self.dist / f"toolrein-{self.program.npm}-{self.version}.tgz",
            "package",
            [("package.json", as_json(own), False), (self.program.name, self.program.bytes, True), licence],
        )
        platforms = sorted({npm for npm, _ in TARGETS.values()})
        starter = {
            "name": "toolrein",
            **common,
            "bin": {"toolrein": "toolrein.js"},
            "engines": {"node": ">=18"},
            "optionalDependencies": {f"@toolrein/{it}": self.version for it in platforms},
        }
        self.tar(
            self.dist / f"toolrein-{self.version}.tgz",
            "package",
            [
                ("package.json", as_json(starter), False),
                ("toolrein.js", self.text("deploy/npm/toolrein.js"), True),
                ("README.md", self.text("README.md"), False),
                licence,
            ],
        )


def as_json(value):
    return (json.dumps(value, indent=2) + "\n").encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the built program")
    parser.add_argument("target", choices=sorted(TARGETS), metavar="TARGET", help="the one that it was built for")
    parser.add_argument("--kinds", default="archive,wheel,npm", help="archive, wheel, npm; all of them without it")
    parser.add_argument("--pages", help="manual pages and completions for the archive, as deploy/pages.sh writes them")
    parser.add_argument("--fast", action="store_true", help="packs quickly rather than small: for tests")
    options = parser.parse_args()
    dist = Path(os.environ.get("DIST", "target/dist"))
    dist.mkdir(parents=True, exist_ok=True)
    packer = Packer(Program(options.program, options.target), dist, options)
    kinds = {"archive": packer.archive, "wheel": packer.wheel, "npm": packer.npm}
    for kind in options.kinds.split(","):
        if kind not in kinds:
            parser.error(f"no kind is called {kind!r}: {', '.join(kinds)}")
        kinds[kind]()


if __name__ == "__main__":
    main()
