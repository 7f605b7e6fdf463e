"""States that only the mock can be in: nothing yet, offline, no token configured, an old token; and the page's files."""

import pathlib
import re
import unittest

import mock
from browser import VIEWS, Page
from test_page import TOKEN, Dashboard

STATIC = mock.STATIC
MODULES = pathlib.Path(__file__).resolve().parent / "node_modules"


class Mocked(Dashboard):
    """A mock of its own for each class, whatever DASHBOARD_URL says."""

    conversations = 240

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        super().tearDownClass()
        cls.server, url = mock.start(TOKEN, cls.conversations)
        cls.page = Page(cls.page.driver, url, TOKEN, f"{url}/mock")


class Trouble(Mocked):
    """What the page says when something is away."""

    def test_offline_is_said_and_passes(self):
        self.expected_errors = ("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK")
        self.page.open("tools")
        self.page.live()
        self.page.offline(True)
        self.page.one("#banner", "The numbers are from")
        self.page.one("tbody tr", "web_search")
        self.page.offline(False)
        self.page.live()
        self.page.wait(lambda: self.page.script("return document.getElementById('banner').hidden"), "the banner is gone")

    def test_what_needs_a_person_is_said(self):
        health = self.server.world.health()
        self.server.world.health = lambda: health | {"store": {"kind": "redis", "up": False, "errors": 9}, "recorder": {"on": True, "dropped": 4}}
        self.page.open()
        self.page.one(".attention li", "does not answer")
        self.page.one(".attention li", "dropped 4 records")
        self.page.one(".attention li", "gemma2:2b: requests were answered without their tools")
        self.page.one(".attention li", "1 rule fits none of the tools in use")
        self.assertEqual(self.page.accessibility(), [])
        del self.server.world.health
        self.page.script("dispatchEvent(new Event('online'))")
        self.page.wait(lambda: "does not answer" not in self.page.text(".attention"), "the line goes when the store is back")

    def test_an_unknown_conversation_is_said(self):
        self.expected_errors = ("404",)
        self.page.open("conversations/never-seen")
        self.page.one(".state", "No conversation has this id.")

    def test_a_token_that_was_changed_asks_for_the_new_one(self):
        self.expected_errors = ("401",)
        self.page.open("conversations")
        self.page.live()
        self.server.token = "another-token-now"
        try:
            self.page.control("block")
            self.page.one(".state", "Perhaps it was changed")
            self.page.one("#token").send_keys("another-token-now\n")
            self.page.one("tbody tr")
        finally:
            self.page.leave()
            self.server.token = TOKEN

    def test_a_server_without_a_token_says_how_to_set_one(self):
        self.expected_errors = ("404",)
        self.server.token = None
        try:
            self.page.open("approvals")
            self.page.one(".state", "token_env")
            self.page.click("#sign")
            self.page.one("#token").send_keys("any-token-at-all\n")
            self.page.one(".problem", "token_env")
            self.page.leave()
        finally:
            self.server.token = TOKEN

    def test_a_server_that_fails_is_quoted(self):
        self.expected_errors = ("500",)
        self.server.world.limits = lambda: 1 / 0
        self.page.open("limits")
        self.page.one(".state", "toolrein refused")
        del self.server.world.limits
        self.page.click("button", "Try again")
        self.page.one("tbody tr")


    def test_callers_are_shown_with_what_they_have_left_where_they_are_named(self):
        self.page.open("limits")
        callers = self.page.one("section[aria-label=Callers]")
        rows = [row.text for row in callers.find_elements("css selector", "tbody tr")]
        self.assertEqual(len(rows), 3, rows)
        for said in ("acme <b>GmbH</b>", "812", "$4.21", "$0.7929 of $5.00 today", "2 of 30 of the quota searches"):
            self.assertIn(said, rows[0])
        self.assertIn("$4.60 of $5.00 today", rows[1])
        self.assertIn("no price", rows[2])
        self.assertEqual(self.page.accessibility(), [])
        limits = self.server.world.limits()
        self.server.world.limits = lambda: limits | {"callers": []}
        try:
            self.page.open("limits")
            self.page.one("tbody tr")
            self.assertFalse(self.page.driver.find_element("css selector", "section[aria-label=Callers]").is_displayed())
        finally:
            del self.server.world.limits


class Nothing(Mocked):
    """A server that has seen nothing yet."""

    def test_empty_lists_are_explained(self):
        world = self.server.world
        world.list, world.history, world.minutes, world.blocked, world.requests = [], [], [], 0, 0
        full = world.overview()
        nothing = {"models": [], "policies": [], "ungoverned": [], "minutes": [], "money": None, "hold_out": None, "requests": 0, "turns": 0,
                   "tool_calls": {}, "tokens": {"removed": 0, "added": 0, "reasked": 0, "net": 0}, "runaways_stopped": 0,
                   "cost_of_guarding": {"overhead_p99_ms": None, "added_tokens": 0}}
        world.overview = lambda: full | nothing
        world.tools = lambda: {"tools": [], "start": {"system_tokens": {"p50": None, "p95": None, "p99": None}, "definition_tokens": None}}
        world.limits = lambda: {"limits": [], "turns": []}
        world.difference = lambda: {"path": None, "changed": []}
        health = world.health()
        world.health = lambda: health | {"errors": [], "overhead_ms": {"p50": None, "p99": None}, "recorder": None, "refusals": [], "reloads": {"ok": 0, "refused": 0, "last_ms": None},
                                         "config": {"hash": "00", "path": None}}
        self.page.open()
        for view in VIEWS:
            self.page.go(view)
            self.page.one(".panel")
            self.assertTrue(self.page.all(".empty"), view)
            self.assertNotRegex(self.page.text("#view"), r"NaN|undefined|null|Infinity", view)
            self.assertEqual(self.page.accessibility(), [], view)
        self.page.go("health")
        self.page.one(".figure", "none since the start")
        self.page.one("tbody tr", "refunds")
        self.page.go("overview")
        self.page.one(".readout", "Nothing in the last hour")


class Words(Mocked):
    """Words that the API has for programs."""

    def test_a_call_that_nobody_decided_on_is_expired(self):
        self.page.open("approvals")
        self.page.one("tbody .pill.warn", "expired")
        self.assertNotIn("lapse", self.page.text("#view"))

    def test_net_adds_up_in_the_table_of_policies(self):
        self.page.open()
        self.page.one("tbody tr", "truncate")
        heads = self.page.script("return [...document.querySelectorAll('thead th')].map((head) => head.textContent)")
        self.assertEqual(heads[-6:], ["Policy", "Blocked", "Removed", "Added", "Asked again", "Net"])


class Modules(Mocked):
    """Parts of the page that are easier to try alone, in the same browser."""

    def run_module(self, name, body):
        self.page.open(token=False)
        return self.page.driver.execute_async_script(
            f"const done = arguments[0]; import('/dashboard/{name}').then((m) => {{ {body} }}).then(done, (error) => done(String(error)))")

    def test_events_are_split_wherever_the_network_cuts(self):
        stream = "event: done\\r\\ndata: {\\\"a\\\":1}\\r\\n\\r\\n: still here\\n\\nevent: notice\\ndata: {\\ndata: \\\"b\\\":2}\\n\\ndata: no json\\n\\n"
        found = self.run_module("events.js", f"""
            const text = "{stream}";
            return [...Array(text.length).keys()].map((cut) => {{
              const parser = new m.EventParser();
              return JSON.stringify([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]);
            }});""")
        expected = '[{"event":"done","data":{"a":1}},{"event":"notice","data":{"b":2}}]'
        self.assertEqual(set(found), {expected})

    def test_numbers_are_written_for_people(self):
        cases = {"number(1234567)": "1,234,567", "number(NaN)": "–", "compact(1240000)": "1.2M", "dollars(0.0123)": "$0.0123", "dollars(-3)": "-$3.00",
                 "percent(0.051)": "5.1%", "percent(0.5)": "50%", "milliseconds(0.31)": "310 µs", "milliseconds(1234)": "1,234 ms", "seconds(0.21)": "210 ms",
                 "bytes(900)": "900 B", "bytes(20480)": "20.0 KB", "duration(89000)": "89 s", "duration(7200000)": "2 h", "countdown(249000)": "4:09",
                 "countdown(-5)": "0:00", "count(1, 'turn')": "1 turn", "count(2, 'turn')": "2 turns", "time(0)": "–",
                 "readableArguments('no json')": "no json", "readableArguments(null)": ""}
        calls = ", ".join(f"m.{call}" for call in cases)
        self.assertEqual(self.run_module("format.js", f"return [{calls}];"), list(cases.values()))


    def test_minutes_without_requests_are_zero_up_to_now(self):
        minute = 60_000
        give = f"""
            const at = (back, removed) => ({{ at_ms: (1000 - back) * {minute}, removed }});
            const shown = (minutes) => m.columns({{ minutes, now_ms: 1000 * {minute} + 999 }}, "removed");
            return [[], [at(0, 5)], [at(3, 5)], [at(30, 5), at(2, 7)], [at(90, 5), at(1, 7)]].map(shown);"""
        for (times, [removed]), length, filled in zip(self.run_module("views/overview.js", give), (15, 15, 15, 31, 60),
                                                      ({}, {0: 5}, {3: 5}, {30: 5, 2: 7}, {1: 7})):
            self.assertEqual(times, [(1000 - back) * 60 for back in range(length - 1, -1, -1)])
            self.assertEqual(removed, [filled.get(back, 0) for back in range(length - 1, -1, -1)])

    def test_a_bar_of_nothing_is_empty(self):
        found = self.run_module("parts.js", "return [0, NaN, 0.001, 1].map((part) => m.bar(part, '').children.length);")
        self.assertEqual(found, [0, 0, 1, 1])


class Files(unittest.TestCase):
    """What can be held without a browser."""

    def own(self):
        return [path for path in STATIC.rglob("*") if path.is_file() and path.parent.name != "uplot"]

    def test_the_chart_library_is_the_published_one(self):
        for name, source in {"uPlot.iife.min.js": "dist/uPlot.iife.min.js", "uPlot.min.css": "dist/uPlot.min.css", "LICENSE": "LICENSE"}.items():
            published = MODULES / "uplot" / source
            self.assertTrue(published.is_file(), f"{published.name} is missing: run npm ci in tests/dashboard")
            self.assertEqual((STATIC / "uplot" / name).read_bytes(), published.read_bytes(), name)

    def test_no_text_is_parsed_as_html_and_no_code_is_made_from_text(self):
        forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(\"(style|on)|\.cookie")
        for path in self.own():
            if path.suffix == ".js":
                self.assertIsNone(forbidden.search(path.read_text(encoding="utf-8")), path.name)

    def test_no_file_names_another_host_or_has_inline_code(self):
        for path in self.own():
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            self.assertNotRegex(text, r"https?://|@import|url\(", path.name)
            if path.suffix == ".html":
                self.assertNotRegex(text, r"<style|\sstyle=|\son\w+=|<script>", path.name)

    def test_every_file_is_short_and_says_what_it_is(self):
        for path in self.own():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.assertLessEqual(len(lines), 500, path.name)
            if path.suffix == ".js":
                self.assertTrue(lines[0].startswith("// "), path.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
