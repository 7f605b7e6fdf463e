"""Programs that run for a while: started with low priority, found by their port, stopped at the end whatever happens."""

import atexit
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Everything that is made at run time: environments, models, logs. Not in git.
WORK = ROOT / "target" / "servers"

_running = []


class Failed(Exception):
    """A program did not start, or an installation failed. The text is the program's own."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(name, command, variables=(), folder=None):
    """Starts `command`; what it prints goes to a file in `WORK/logs`."""
    log = WORK / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        child = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
            env=os.environ | {"PYTHONUTF8": "1", "NO_PROXY": "127.0.0.1"} | dict(variables), start_new_session=True, preexec_fn=lambda: os.nice(10),
        )
    child.log = log
    _running.append(child)
    return child


def wait_for_models(child, port, seconds):
    """Until the server lists its models."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.poll() is not None:
            raise Failed(f"ended with {child.returncode}: {tail(child.log)}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10).close()
            return
        except OSError:
            time.sleep(0.2)
    stop(child)
    raise Failed(f"does not answer after {seconds} s: {tail(child.log)}")


def tail(path, lines=4):
    """The last lines of a log."""
    found = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(found[-lines:])[-800:]


def stop(child):
    """Ends a program and all that it started."""
    if child in _running:
        _running.remove(child)
    for signal, seconds in ((15, 10), (9, 10)):
        try:
            os.killpg(child.pid, signal)
            child.wait(timeout=seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


@atexit.register
def stop_all():
    for child in list(_running):
        stop(child)
