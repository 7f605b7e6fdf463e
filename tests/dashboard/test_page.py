"""The dashboard in a real Chromium: load, live update, approvals, stop, filters, 5,000 conversations, accessibility.

Runs against the mock of this folder, or against any server: DASHBOARD_URL, DASHBOARD_TOKEN and DASHBOARD_CONTROL name
it, its token and the address of the controls (README.md). test_states.py needs the mock, and always uses it.
"""

import json
import os
import unittest
import urllib.parse

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import mock
from browser import VIEWS, Page, chromium

TOKEN = os.environ.get("DASHBOARD_TOKEN", "a-token-for-tests")
SCHEMES = ["light", "dark"]


class Dashboard(unittest.TestCase):
    """One browser for all tests of a class; each test begins with a fresh load and ends without errors in the console."""

    expected_errors = ()

    @classmethod
    def setUpClass(cls):
        url = os.environ.get("DASHBOARD_URL")
        cls.server = None
        if not url:
            cls.server, url = mock.start(TOKEN, 240)
        control = os.environ.get("DASHBOARD_CONTROL", f"{url.rstrip('/')}/mock")
        driver = chromium()
        cls.addClassCleanup(driver.quit)
        cls.page = Page(driver, url, TOKEN, control)

    @classmethod
    def tearDownClass(cls):
        if cls.server:
            cls.server.shutdown()
            cls.server.server_close()

    def setUp(self):
        self.page.leave()
        self.page.size(1280)
        self.page.errors()
        self.page.requested()

    def tearDown(self):
        errors = [line for line in self.page.errors() if not any(word in line for word in self.expected_errors)]
        self.assertEqual(errors, [], "the console has errors")
        own = urllib.parse.urlsplit(self.page.url).netloc
        hosts = {urllib.parse.urlsplit(url).netloc for url in self.page.requested() if url.startswith(("http", "ws"))}
        self.assertLessEqual(hosts, {own}, "the page asked another host")
        self.expected_errors = ()


class Loads(Dashboard):
    """What everyone is shown, and what the token opens."""

    def test_every_view_shows_its_contents(self):
        self.page.open()
        self.page.live()
        for view in VIEWS:
            self.page.go(view)
            self.page.one(".panel h2")
            current = self.page.one(".views [aria-current=page]")
            self.assertEqual(current.get_attribute("href").split("#/")[1], view)
            self.assertIn(self.page.text("h1"), self.page.driver.title)

    def test_the_overview_is_shown_without_a_token(self):
        self.page.open(token=False)
        self.assertIn("Net savings", self.page.text("#view"))
        self.page.one(".chart canvas")
        self.assertEqual(self.page.text("#sign"), "Sign in")

    def test_the_token_leaves_the_address(self):
        self.page.open("tools")
        self.assertNotIn(self.page.token, self.page.driver.current_url)
        self.assertTrue(self.page.driver.current_url.endswith("#/tools"))
        self.assertEqual(self.page.text("#sign"), "Sign out")

    def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens(self):
        self.expected_errors = ("401",)
        self.page.open("conversations", token=False)
        field = self.page.one("#token")
        field.send_keys("not-the-token-at-all", Keys.ENTER)
        self.page.one(".problem", "This is not the token.")
        field = self.page.one("#token")
        field.clear()
        field.send_keys(self.page.token, Keys.ENTER)
        self.page.one(".filters")
        self.page.click("#sign")
        self.page.one(".sign-in")
        self.assertEqual(self.page.script("return sessionStorage.getItem('toolrein.token')"), None)

    def test_the_colours_follow_the_switch_and_the_system(self):
        self.page.open()
        background = "return getComputedStyle(document.body).backgroundColor"
        seen = {}
        for scheme in SCHEMES:
            self.page.scheme(scheme)
            seen[scheme] = self.page.script(background)
        self.assertNotEqual(seen["light"], seen["dark"])
        self.page.scheme("light")
        self.page.script("const s = document.getElementById('scheme'); s.value = 'dark'; s.dispatchEvent(new Event('change'))")
        self.assertEqual(self.page.script(background), seen["dark"])
        self.page.driver.refresh()
        self.page.contents()
        self.assertEqual(self.page.script(background), seen["dark"])


class Lives(Dashboard):
    """What happens at the server appears without a reload."""

    def test_a_blocked_call_appears_at_once(self):
        self.page.open()
        self.page.live()
        self.page.script("window.sameLoad = true")
        name = self.page.control("block")["conversation"]
        self.page.one(".feed li", name)
        self.page.one(".feed .pill.bad", "blocked")
        self.assertTrue(self.page.script("return window.sameLoad"))

    def test_the_list_of_conversations_is_live(self):
        self.page.open("conversations")
        self.page.live()
        name = self.page.control("block")["conversation"]
        self.page.one("tbody th a", name)

    def test_a_cut_stream_is_opened_again(self):
        # Chromium reports a connection that was cut, and one that was cut before an answer.
        self.expected_errors = ("ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION")
        self.page.open()
        self.page.live()
        self.page.control("cut")
        self.page.wait(lambda: self.page.text("#link") != "Live", "the page notices that its stream ended")
        self.page.live()
        name = self.page.control("block")["conversation"]
        self.page.one(".feed li", name)

    def test_announcements_are_few(self):
        self.page.open()
        self.page.live()
        self.page.script("window.said = []; new MutationObserver(() => window.said.push(document.getElementById('announcements').textContent))"
                         ".observe(document.getElementById('announcements'), {childList: true})")
        last = [self.page.control("block")["conversation"] for _ in range(20)][-1]
        self.page.one(".feed li", last)
        self.page.wait(lambda: self.page.script("return window.said.length > 0"), "the blocked calls are announced")
        self.assertLessEqual(self.page.script("return window.said.length"), 2)
        self.assertIn("blocked", self.page.script("return window.said[0]"))


class Decides(Dashboard):
    """Approvals and stops."""

    def waiting(self):
        token = self.page.control("approval")["token"]
        return self.page.one(f".approval[data-key='{token}']")

    def gone(self, card):
        key = card.get_attribute("data-key")
        return lambda: not self.page.all(f".approval[data-key='{key}']")

    def test_an_approval_is_given_with_a_name(self):
        self.page.open("approvals")
        self.page.live()
        card = self.waiting()
        self.assertRegex(card.find_element(By.CSS_SELECTOR, ".left").text, r"^\d+:\d\d left$")
        self.page.one("#views .badge")
        self.page.wait(lambda: self.page.driver.title.startswith("("), "the title counts what waits")
        approve = card.find_element(By.CSS_SELECTOR, "button.primary")
        approve.click()
        self.page.one(".problem", "Enter your name first")
        self.page.one("#approver").send_keys("Ann Lee")
        gone = self.gone(card)
        approve.click()
        self.page.wait(gone, "the approved call waits no longer")
        self.page.one(".table tbody tr", "Ann Lee")

    def test_a_decline_needs_a_reason_which_the_history_shows(self):
        self.page.open("approvals")
        self.page.live()
        card = self.waiting()
        gone = self.gone(card)
        self.page.one("#approver").send_keys("Bo Chen")
        decline = card.find_element(By.CSS_SELECTOR, "button.danger")
        decline.click()
        self.page.one(".problem", "Give a reason")
        field = card.find_element(By.CSS_SELECTOR, ".answer input")
        field.send_keys("Too ")
        # What is typed stays while other things happen.
        other = self.page.control("block")["conversation"]
        second = self.waiting()
        field.send_keys("expensive")
        self.assertEqual(field.get_attribute("value"), "Too expensive", other)
        decline.click()
        self.page.wait(gone, "the declined call waits no longer")
        self.page.one(".table tbody tr", "Too expensive")
        gone = self.gone(second)
        second.find_element(By.CSS_SELECTOR, "button.primary").click()
        self.page.wait(gone, "the second call was approved")

    def test_a_conversation_is_stopped_and_goes_on(self):
        name = self.page.control("block")["conversation"]
        self.page.open(f"conversations/{urllib.parse.quote(name, safe='')}")
        self.page.one("#view article.item")
        self.page.click("button", "Stop")
        self.page.one("dialog", "Stop this conversation?")
        self.page.click("dialog button", "Cancel")
        self.page.wait(lambda: not self.page.script("return document.querySelector('dialog').open"), "the question is closed")
        self.assertEqual(self.page.all(".labels .pill"), [])
        self.page.click("button", "Stop")
        self.page.click("dialog button.danger", "Stop")
        self.page.one(".labels .pill", "stopped")
        self.page.click("button", "Let it go on")
        self.page.wait(lambda: not self.page.all(".labels .pill"), "the conversation is no longer stopped")

    def test_a_caller_is_stopped_and_goes_on(self):
        name = self.page.control("block")["conversation"]
        self.page.open(f"conversations/{urllib.parse.quote(name, safe='')}")
        caller = self.page.one(".labels span", "caller").text.removeprefix("caller ")
        self.page.click("button", "Stop its caller")
        self.page.click("dialog button.danger", "Stop the caller")
        self.page.wait(lambda: self.page.text("#announcements") == "The caller is stopped.", "the stop is announced")
        self.page.go("conversations")
        row = self.page.one("tbody tr", caller)
        row.find_element(By.CSS_SELECTOR, "button").click()
        self.page.wait(lambda: not [one for one in self.page.all("tbody tr") if caller in one.text], "the caller is no longer stopped")

    def test_the_explanation_opens_in_a_tab_of_its_own(self):
        name = self.page.control("block")["conversation"]
        self.page.open(f"conversations/{urllib.parse.quote(name, safe='')}")
        here = self.page.driver.current_window_handle
        self.page.click("button", "Explain in a new tab")
        self.page.wait(lambda: len(self.page.driver.window_handles) == 2, "a tab is opened")
        self.page.driver.switch_to.window(next(tab for tab in self.page.driver.window_handles if tab != here))
        try:
            self.page.wait(lambda: self.page.script("return !!document.querySelector('h1')"), "the explanation is shown")
            self.assertGreater(self.page.script("return document.adoptedStyleSheets.length"), 0)
            self.assertEqual(self.page.all("script, iframe, link"), [])
            self.assertNotEqual(self.page.driver.title, "owned")
            self.assertEqual(self.page.all("[style]:not([data-style])"), [])
            links = self.page.script("return [...document.querySelectorAll('a[href]')].map((link) => link.href)")
            self.assertEqual([link for link in links if not link.startswith("about:blank#")], [])
        finally:
            self.page.driver.close()
            self.page.driver.switch_to.window(here)


class Lists(Dashboard):
    """Filters, and many conversations."""

    def test_the_list_is_filtered_by_policy_and_by_text(self):
        name = self.page.control("block")["conversation"]
        self.page.open("conversations")
        row = self.page.one("tbody tr", name)
        policy = row.find_element(By.CSS_SELECTOR, ".pills .pill").text
        self.page.script("const s = document.getElementById('policy'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", policy)
        self.page.wait(lambda: f"policy={policy}" in self.page.driver.current_url, "the address has the policy")
        every = ("return [...document.querySelectorAll('tbody tr')].length > 0 && [...document.querySelectorAll('tbody tr .pills')]"
                 ".every((cell) => [...cell.querySelectorAll('.pill')].some((pill) => pill.textContent === arguments[0]))")
        self.page.wait(lambda: self.page.script(every, policy), "every row has the policy")
        self.page.one("#query").send_keys(name)
        self.page.wait(lambda: len(self.page.all("tbody tr")) == 1, "one row is left")
        self.page.one("tbody th a", name)
        self.page.one("#query").send_keys(" nothing like this")
        self.page.one(".empty", "No conversation here")

    def test_five_thousand_conversations(self):
        for _ in range(4):
            self.page.control("many", count=1250)
        self.page.open()
        took = self.page.driver.execute_async_script("""
            const done = arguments[0];
            const start = performance.now();
            location.hash = "/conversations";
            const look = () => document.querySelectorAll("#view tbody tr").length >= 100 ? done(performance.now() - start) : requestAnimationFrame(look);
            look();""")
        total = self.page.text(".range")
        self.assertRegex(total, r"^1 to 100 of (5,\d{3}|[6-9],\d{3}) conversations$")
        frames = self.page.driver.execute_async_script("""
            const done = arguments[0];
            const gaps = [];
            let last = performance.now();
            const step = (now) => {
              gaps.push(now - last);
              last = now;
              scrollBy(0, 60);
              if (gaps.length < 120 && scrollY + innerHeight < document.documentElement.scrollHeight - 1) requestAnimationFrame(step);
              else done(gaps.slice(1));
            };
            requestAnimationFrame(step);""")
        self.page.click(".pages.below a", "Older")
        self.page.wait(lambda: self.page.text(".range").startswith("101 to 200"), "the second hundred is shown")
        self.assertLessEqual(len(self.page.all("tbody tr")), 100)
        self.page.script("scrollTo(0, 0)")
        self.page.click(".pages a", "Newer")
        self.page.wait(lambda: self.page.text(".range").startswith("1 to 100"), "the first hundred is shown again")
        frames.sort()
        print(f"\n5,000 conversations: list shown after {took:.0f} ms; scrolling: {len(frames)} frames, "
              f"median {frames[len(frames) // 2]:.1f} ms, longest {frames[-1]:.1f} ms", flush=True)


class Everyone(Dashboard):
    """Narrow screens, keyboards and screen readers."""

    def places(self):
        """Every view, with something in each of its parts."""
        name = urllib.parse.quote(self.page.control("block")["conversation"], safe="")
        stop = f"api/conversations/{name}/stop"
        self.page.api("POST", stop)
        self.addCleanup(self.page.api, "DELETE", stop)
        return [*VIEWS, f"conversations/{name}", "sign-in"]

    def test_nothing_is_wider_than_390_pixels(self):
        self.page.size(390, 800)
        self.page.open()
        self.page.control("approval")
        for place in self.places():
            self.page.go(place)
            width = self.page.script("return document.documentElement.scrollWidth")
            self.assertLessEqual(width, 390, place)
            wide = self.page.script("return [...document.querySelectorAll('#view .table')].filter((one) => one.scrollWidth > one.clientWidth + 1).length")
            self.assertEqual(wide, 0, f"a table of {place} scrolls sideways")

    def test_axe_finds_nothing_in_either_scheme(self):
        self.page.control("approval")
        places = self.places()
        for width in (1280, 390):
            self.page.size(width)
            for scheme in SCHEMES:
                self.page.scheme(scheme)
                self.page.open()
                self.page.live()
                for place in places:
                    self.page.go(place)
                    self.assertEqual(self.page.accessibility(), [], f"{place}, {scheme}, {width} px")

    def test_the_keyboard_is_enough(self):
        self.page.open()
        self.page.live()
        press = lambda *keys: self.page.driver.switch_to.active_element.send_keys(*keys)
        focused = lambda: self.page.script("return document.activeElement.textContent.trim() || document.activeElement.id")
        self.page.script("document.activeElement.blur()")
        self.page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        self.assertEqual(focused(), "Skip to the content")
        press(Keys.ENTER)
        self.assertEqual(self.page.script("return document.activeElement.id"), "main")
        self.tab_to("a", "Tools", backwards=True)
        press(Keys.ENTER)
        self.page.wait(lambda: self.page.text("h1") == "Tools", "the keyboard opens a view")
        self.assertEqual(self.page.script("return document.activeElement.id"), "main")
        self.page.one(".table table")
        self.tab_to("button", "Blocked")
        press(Keys.ENTER)
        sort = "return [...document.querySelectorAll('[aria-sort]')].map((head) => `${head.textContent} ${head.getAttribute('aria-sort')}`)"
        self.assertEqual(self.page.script(sort), ["Blocked descending"])
        press(Keys.SPACE)
        self.assertEqual(self.page.script(sort), ["Blocked ascending"])

    def test_an_approval_needs_no_pointer(self):
        token = self.page.control("approval")["token"]
        self.page.open("approvals")
        self.page.one(f".approval[data-key='{token}']")
        self.tab_to("input", "approver")
        self.page.driver.switch_to.active_element.send_keys("Key Board")
        self.tab_to("button", "Approve", within=f".approval[data-key='{token}']")
        self.page.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.page.one(".table tbody tr", "Key Board")

    def tab_to(self, name, text, backwards=False, within="body"):
        """Presses Tab until an element of this kind has the focus; fails where it cannot be reached."""
        where = ("const e = document.activeElement; return [e.tagName.toLowerCase(), (e.textContent.trim() || e.id).replace(/[0-9]+$/, ''), "
                 "!!e.closest(arguments[0])]")
        for _ in range(400):
            found, said, is_within = self.page.script(where, within)
            if found == name and said == text and is_within:
                return
            keys = [Keys.SHIFT, Keys.TAB] if backwards else [Keys.TAB]
            self.page.driver.switch_to.active_element.send_keys(*keys)
        self.fail(f"Tab does not reach {name} {text}")


class Text(Dashboard):
    """Text from outside stays text."""

    def test_nothing_from_outside_becomes_an_element(self):
        name = self.page.control("block")["conversation"]
        self.page.control("approval", tool="pay", arguments=json.dumps({"note": "<img src=x onerror=alert(1)>"}), readable="<b>bold</b>")
        self.page.open(f"conversations/{urllib.parse.quote(name, safe='')}")
        self.page.one("#view article.item")
        self.assertEqual(self.page.all("main img, main script, main b b"), [])
        self.page.go("approvals")
        self.page.one(".approval")
        self.assertEqual(self.page.all("main img, main script, .approval b"), [])
        self.assertIn("Approvals", self.page.driver.title)


if __name__ == "__main__":
    unittest.main(verbosity=2)
