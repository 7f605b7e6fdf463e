"""Plays scenarios: each client against the server, straight and through toolrein, with a recording hop on both sides."""

import itertools
import json
import subprocess

import checks
import processes
import recordings
from governor import Toolrein
from processes import ROOT, WORK
from report import Row
from tap import Tap

CLIENTS = ("openai", "langchain", "agents")
_numbers = itertools.count(1)


class Client:
    """A process that plays one job after the other."""

    def __init__(self, name, python):
        log = WORK / "logs" / f"client-{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.child = subprocess.Popen(
            [str(python), "-u", str(ROOT / "tests" / "servers" / "clients" / f"with_{name}.py")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"),
        )
        self.log = log

    def play(self, job):
        self.child.stdin.write(json.dumps(job) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise processes.Failed(f"the client ended: {processes.tail(self.log)}")
        return json.loads(line)

    def stop(self):
        self.child.stdin.close()
        self.child.wait(timeout=20)


class Stage:
    """One server with its hops, the clients, and one toolrein for each set of policies."""

    def __init__(self, backend, program, python, record):
        self.backend, self.program, self.record = backend, program, record
        self.inner = Tap(backend.port)
        self.governors = {}
        self.clients = {name: Client(name, python) for name in CLIENTS}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients.values():
            client.stop()
        for tap, toolrein in self.governors.values():
            tap.close()
            toolrein.stop()
        self.inner.close()

    def play(self, scenario, clients):
        """Every form of the scenario: a row for each."""
        if scenario.chained and not self.backend.keeps_history:
            return
        for (policies, toml), client, api, is_streamed in itertools.product(
            scenario.policies.items(), clients, ("chat", "responses"), (False, True),
        ):
            if api not in self.backend.apis or (scenario.chained and api == "chat"):
                continue
            row = Row(self.backend.name, scenario.name, policies, client, f"{api}{', streamed' if is_streamed else ''}")
            job = {"model": self.backend.model, "api": api, "is_streamed": is_streamed, "is_chained": scenario.chained, "question": scenario.question,
                   "answers": scenario.answers, "options": scenario.options.get(api, {})}
            self._play(scenario, toml, row, self.clients[client], job)
            yield row

    def _play(self, scenario, toml, row, client, job):
        outer, _ = self._governor(toml)
        through, client_side = self._run(client, job, outer)
        server_side = without_stale(self.inner.exchanges(self.key))
        for exchange in server_side if self.record and not self.backend.name.endswith("*") else ():
            recordings.keep(self.backend.name, exchange)
        row.requests, row.ended = (len(client_side), len(server_side)), through
        row.actions = sorted({exchange.reply.headers[name] for exchange in client_side if exchange.reply
                              for name in exchange.reply.headers if name == "x-toolrein-actions"})
        row.problems += checks.readable_requests(server_side)
        row.notes += checks.refusals(server_side)
        if scenario.acts:
            row.problems += checks.good_end(scenario, through)
        else:
            straight, straight_side = self._run(client, job, self.inner)
            row.notes += [f"straight, too: {problem}" for problem in checks.good_end(scenario, straight)]
            if scenario.acts is None and len(server_side) > len(client_side):
                row.problems += checks.no_new_errors(straight_side, client_side)
            else:
                row.problems += checks.unchanged(client_side, server_side)
                row.problems += checks.same_end(straight, through)
                row.problems += checks.same_requests(straight_side, server_side)
        if row.problems:
            self._write(f"{row.name()}.txt", client_side, server_side, row)

    def _run(self, client, job, tap):
        """A key of its own makes each run a caller of its own, and its traffic easy to find."""
        self.key = f"sk-{next(_numbers)}"
        outcome = client.play(job | {"url": f"http://127.0.0.1:{tap.port}/v1", "key": self.key})
        return outcome, tap.exchanges(self.key)

    def _governor(self, toml):
        if toml not in self.governors:
            toolrein = Toolrein(self.program, f"{self.backend.name}-{len(self.governors)}", self.inner.port, toml)
            self.governors[toml] = Tap(toolrein.port), toolrein
        return self.governors[toml]

    def _write(self, name, client_side, server_side, row):
        """What was sent where a check failed, for whoever looks into it."""
        path = WORK / "failures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [f"{row.name()}\n" + "".join(f"- {problem}\n" for problem in row.problems) + f"the client ended with {row.ended}\n"]
        for side, exchanges in (("client", client_side), ("server", server_side)):
            for number, one in enumerate(exchanges, 1):
                reply = one.reply.body.decode(errors="replace") if one.reply else "(none)"
                status = f"{one.reply.start} {one.reply.headers.get('x-toolrein-actions', '')}" if one.reply else ""
                parts.append(f"\n===== {side}, request {number}: {one.request.start}\n{one.request.body.decode(errors='replace')}\n"
                             f"----- {side}, reply {number}: {status}\n{reply}\n")
        path.write_text("".join(parts))


def without_stale(exchanges):
    """Without requests that met a connection that the server was closing, and were sent once more on another."""
    pairs = zip(exchanges, [*exchanges[1:], None])
    return [one for one, following in pairs if one.reply is not None or following is None or one.request.body != following.request.body]
