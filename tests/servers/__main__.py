"""Real servers and real clients, straight and through toolrein: python3 tests/servers --help. README.md says more."""

import argparse
import sys
from pathlib import Path

import report
from backends import STARTS, running, stand_in
from play import CLIENTS, Stage
from processes import ROOT, Failed
from scenarios import SCENARIOS


def main():
    options = arguments()
    rows, absent = [], {}
    for name in options.servers:
        try:
            backend = running(name, options.at[name]) if name in options.at else STARTS[name]()
        except (Failed, OSError) as problem:
            absent[name] = str(problem)
            print(f"{name} cannot be started, recorded replies take its place: {problem}", flush=True)
            try:
                backend = stand_in(name)
            except Failed as nothing:
                absent[name] += f" ({nothing})"
                continue
        with Stage(backend, options.toolrein, options.python, options.record) as stage:
            for scenario in SCENARIOS:
                if not options.scenarios or scenario.name in options.scenarios:
                    for row in stage.play(scenario, options.clients):
                        rows.append(row)
                        print(report.line(row), flush=True)
        backend.stop()
    print(report.table(rows, absent))
    return 1 if any(row.problems for row in rows) or not rows else 0


def arguments():
    parser = argparse.ArgumentParser(prog="tests/servers", description=__doc__)
    parser.add_argument("--servers", type=words, default=list(STARTS), help=f"some of {','.join(STARTS)}")
    parser.add_argument("--clients", type=words, default=list(CLIENTS), help=f"some of {','.join(CLIENTS)}")
    parser.add_argument("--scenarios", type=words, default=[], help=f"some of {', '.join(one.name for one in SCENARIOS)}")
    parser.add_argument("--toolrein", type=Path, default=ROOT / "target" / "debug" / "toolrein", help="the program")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python", help="the interpreter that has the clients")
    parser.add_argument("--at", type=ports, default={}, help="the ports of servers that run already: vllm=8000")
    parser.add_argument("--record", action="store_true", help="keep replies of the servers that recorded/ lacks")
    return parser.parse_args()


def ports(text):
    return {name: int(port) for name, _, port in (word.partition("=") for word in words(text))}


def words(text):
    return [word.strip() for word in text.split(",")]


sys.exit(main())
