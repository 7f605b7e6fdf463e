"""Virtual environments of the servers, one for each, since their requirements exclude each other."""

import hashlib
import re
import shutil
import subprocess
import sys

from processes import ROOT, WORK, Failed

HERE = ROOT / "tests" / "servers"


def python_of(name, least=(3, 10)):
    """The interpreter of an environment in which `requirements/NAME.txt` is installed, by a Python of that version or newer."""
    requirements = HERE / "requirements" / f"{name}.txt"
    folder = WORK / "environments" / name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {name} ...", flush=True)
    run([interpreter(least), "-m", "venv", "--clear", folder])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-r", requirements])
    # A package whose own requirements cannot be met: it comes without them, then come those that can be met.
    if alone := re.search(r"^# alone: (\S+) without (.+)", requirements.read_text(), re.MULTILINE):
        run([*pip, "--no-deps", alone[1]])
        needs = folder / "needs.txt"
        needs.write_text(run([python, HERE / "programs" / "needs.py", alone[1].split("==")[0], *alone[2].split()]))
        run([*pip, "-r", requirements, "-r", needs])
    stamp.write_text(wanted)
    return python


def interpreter(least):
    """A Python of that version or newer; the running one if none is found, so that pip says what is missing."""
    if sys.version_info[:2] >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(least[1], least[1] + 4)]
    found = [path for path in map(shutil.which, names) if path]
    # What is on the PATH may be a stand-in that only says that the version is missing.
    return next((path for path in found if not subprocess.run([path, "--version"], capture_output=True).returncode), sys.executable)


def run(command):
    """What the command printed."""
    done = subprocess.run(["nice", "-n", "10", *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(" | ".join([line for line in lines if line.startswith("ERROR")] or lines[-2:])[-300:])
    return done.stdout
