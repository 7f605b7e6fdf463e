"""Takes a picture of every view of the dashboard on the mock: wide and narrow, light and dark; and the README's picture.

Usage: pictures.py FOLDER [VIEW ...]; `pictures.py --readme FILE PROGRAM` takes the overview as the README shows it, of the
demonstration that this built program plays.
"""

import base64
import pathlib
import re
import subprocess
import sys

import mock
from browser import VIEWS, Page, chromium

TOKEN = "a-token-for-tests"
TALLEST = 2600


def prepared():
    """A mock with approvals that wait, and a page signed in to it."""
    server, url = mock.start(TOKEN, 240)
    server.world.ask({})
    server.world.ask({"tool": "send_mail", "readable": "", "seconds": 170,
                      "arguments": '{"to": "all-customers", "subject": "Sorry", "body": "We are sorry for the delay."}'})
    return server, Page(chromium(), url, TOKEN, f"{url}/mock")


def show(page, place, width, scheme, events=4):
    """Opens a view after some events, so that the live parts have contents."""
    page.size(width)
    page.scheme(scheme)
    page.open(place)
    page.live()
    last = [page.control("block")["conversation"] for _ in range(events)][-1]
    if place == "overview":
        page.one(".feed li", last)
    page.script("document.activeElement.blur(); scrollTo(0, 0)")


def take(page, file, height=None):
    """Writes what is shown, as high as the page is where no height is given."""
    width = page.script("return innerWidth")
    page.size(width, height or min(TALLEST, max(900, page.script("return document.documentElement.scrollHeight"))))
    page.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 500)))")
    picture = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": False})
    file.write_bytes(base64.b64decode(picture["data"]))


def demonstration(program):
    """`toolrein demo` once it has played, and the address and the token of its dashboard."""
    demo = subprocess.Popen([program, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in demo.stdout:
        found = re.match(r"Dashboard: +(http://\S+?)/#token=(\S+)", line)
        if found:
            return demo, found[1], found[2]
    raise RuntimeError(f"{program} demo ended without the address of its dashboard")


def readme(file, program):
    """The overview after the demonstration, in light colours."""
    demo, url, token = demonstration(program)
    try:
        page = Page(chromium(), url, token, url)
        try:
            page.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
            page.size(1280)
            page.scheme("light")
            page.open("overview")
            page.live()
            page.script("document.activeElement.blur(); scrollTo(0, 0)")
            take(page, file, 796)
        finally:
            page.driver.quit()
    finally:
        demo.terminate()
        demo.wait()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--readme":
        if len(sys.argv) != 4:
            sys.exit(__doc__)
        readme(pathlib.Path(sys.argv[2]), sys.argv[3])
        return
    _, page = prepared()
    try:
        folder = pathlib.Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        for place in sys.argv[2:] or [*VIEWS, "conversations/support-20479", "sign-in"]:
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    show(page, place, width, scheme)
                    take(page, folder / f"{place.replace('/', '-')}-{scheme}-{width}.png")
    finally:
        page.driver.quit()


if __name__ == "__main__":
    main()
