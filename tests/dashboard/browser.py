"""A real Chromium that shows the dashboard, and what a test does with it: find, wait, type, look at logs.

Nothing sleeps: each wait ends as soon as its condition holds, and fails after PATIENCE seconds.
"""

import json
import os
import pathlib
import shutil
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 30
AXE = pathlib.Path(__file__).resolve().parent / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ["overview", "tools", "limits", "conversations", "approvals", "savings", "health"]


def chromium():
    """A headless Chromium from Debian's packages; its absence is an error."""
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if not path]
    if missing:
        raise RuntimeError(f"{' and '.join(missing)} cannot be found: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths["chromium"]
    # Without a sandbox of its own, since tests run as root in containers.
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                 "--window-size=1280,900", "--disable-background-networking", "--disable-popup-blocking"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(paths["chromedriver"]))


class Page:
    """The dashboard at one address, seen through one browser."""

    def __init__(self, driver, url, token, control):
        self.driver, self.url, self.token, self.control_url = driver, url.rstrip("/"), token, control.rstrip("/")

    def open(self, view="overview", token=True):
        """Loads the page anew, signed in unless `token` is False, and waits for the view's contents."""
        self.leave()
        fragment = f"token={urllib.parse.quote(self.token)}&view={urllib.parse.quote(view)}" if token else f"/{view}"
        self.driver.get(f"{self.url}/#{fragment}")
        self.contents()

    def leave(self):
        """Leaves the page, and forgets what it stored."""
        if self.driver.current_url.startswith(self.url):
            self.driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        self.driver.get("about:blank")

    def go(self, view):
        """Follows the fragment without a new load."""
        self.driver.execute_script("location.hash = `/${arguments[0]}`", view)
        self.contents()

    def contents(self):
        self.wait(lambda: self.script("return !!document.querySelector('#view > *') && document.querySelector('.state-title')?.textContent !== 'Loading'"),
                  "the view shows its contents")

    def live(self):
        self.wait(lambda: self.text("#link") == "Live", "the event stream is open")

    def script(self, source, *given):
        return self.driver.execute_script(source, *given)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector, text=None):
        """The first element that matches and contains `text`, waited for."""
        found = []

        def there():
            found[:] = [element for element in self.all(selector) if element.is_displayed() and (text is None or text in element.text)]
            return bool(found)

        self.wait(there, f"{selector} with {text!r} is shown")
        return found[0]

    def text(self, selector):
        """What the first element that matches says, hidden or not."""
        return self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def click(self, selector, text=None):
        self.one(selector, text).click()

    def wait(self, condition, what):
        def holds(_):
            try:
                return condition()
            except StaleElementReferenceException:
                return False

        WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(holds, f"not so within {PATIENCE} s: {what}")

    def control(self, what, **given):
        """Makes something happen at the server: see README.md of this folder."""
        request = urllib.request.Request(f"{self.control_url}/{what}", json.dumps(given).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"{}")

    def api(self, method, path):
        """A request to the admin API with the token, by the test itself."""
        request = urllib.request.Request(f"{self.url}/{path}", method=method, headers={"authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE):
            pass

    def size(self, width, height=900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def offline(self, is_offline):
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions",
                                    {"offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})

    def errors(self):
        """The console's errors and warnings since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requested(self):
        """Every address that the page asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def accessibility(self):
        """The violations that axe-core finds on the page as it is."""
        if not AXE.is_file():
            raise RuntimeError(f"{os.path.relpath(AXE)} is missing: run npm ci in tests/dashboard")
        if not self.script("return typeof axe !== 'undefined'"):
            self.script(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "axe.run(document, {resultTypes: ['violations']}).then((all) => arguments[0](all.violations), (error) => arguments[0]([{id: String(error), nodes: []}]))")
        return [f"{one['id']}: {one.get('help')}: {[node['target'] for node in one['nodes']][:4]}" for one in found]
