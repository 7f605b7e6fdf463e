"""The table of what was played."""

from dataclasses import dataclass, field


@dataclass
class Row:
    server: str
    scenario: str
    policies: str
    client: str
    form: str
    # Of the client, and to the server.
    requests: tuple = (0, 0)
    actions: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    ended: dict = field(default_factory=dict)

    def name(self):
        """The row as the name of a file."""
        words = [self.server, self.scenario, self.policies, self.client, self.form]
        return "-".join(words).replace(", ", "-").replace(" ", "_")


def line(row):
    verdict = "FAILED" if row.problems else "ok"
    actions = ", ".join(row.actions) or "-"
    requests = f"{row.requests[0]}/{row.requests[1]}"
    return f"{verdict:7}{row.server:9}{row.scenario:25}{row.policies:14}{row.client:11}{row.form:21}{requests:8}{actions}"


def table(rows, absent):
    failed = [row for row in rows if row.problems]
    lines = ["", f"{'':7}{'server':9}{'scenario':25}{'policies':14}{'client':11}{'form':21}{'requests':8}actions"]
    lines += [line(row) for row in rows]
    lines += ["", "requests: those of the client, and those that the server got", ""]
    if absent:
        lines += ["Played with recorded replies, since they cannot be started:", *(f"{name}: {problem}" for name, problem in absent.items()), ""]
    for title, some in (("Notes", lambda row: row.notes), ("Failures", lambda row: row.problems)):
        found = [f"{row.name()}: {text}" for row in rows for text in dict.fromkeys(some(row))]
        lines += [f"{title}:", *found, ""] if found else []
    return "\n".join([*lines, f"{len(rows) - len(failed)} passed, {len(failed)} failed"])
