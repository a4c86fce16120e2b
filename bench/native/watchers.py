"""Who looks at musterd all the time: its page in Chromium, and a Prometheus that scrapes /metrics each second.

    watchers.py PORT           prints "watching" once both do, and ends with its standard input
    watchers.py --show PORT    only the page
    watchers.py --paint PORT   opens the page once, and prints JSON: seconds to the first paint, and to the nodes

Chromium would be on another machine: here it runs only when nothing else wants the processor (SCHED_IDLE). What the
page asks for is asked once more by threads that do get the processor, so that musterd is asked as often as ever.
Exit status 77: no Chromium, or no Playwright.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request

SKIPPED = 77
EVERY_S = 1.0
NODES_EVERY_S = 2.0  # As page.js.
PATIENCE_MS = 60_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOWN = """() => document.querySelector("#nodes")?.childElementCount > 0"""
FIRST_PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""


def ask(port, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_MS / 1000)


def repeat(port, path, every_s, ended):
    while not ended.wait(every_s):
        with ask(port, path) as answer:
            answer.read()


def follow(port, path):
    """Reads a stream of events until musterd ends it."""
    with ask(port, path) as stream:
        while stream.readline():
            pass


def follow_run(port, ended):
    """As the page does with the first run that there is."""
    runs = []
    while not runs and not ended.wait(0.1):
        with ask(port, "/api/v1/runs") as answer:
            runs = json.load(answer)["runs"]
    if runs:
        path = f"/api/v1/runs/{runs[0]['id']}"
        start(follow, port, path + "/events")
        repeat(port, path + "/nodes", NODES_EVERY_S, ended)


def start(function, *arguments):
    """Of a daemon: the program ends while musterd still sends."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


def open_page(playwright, port):
    browser = playwright.chromium.launch(executable_path=CHROMIUM,
                                         args=["--no-sandbox", "--disable-dev-shm-usage"])
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"http://127.0.0.1:{port}/", wait_until="commit")
    return browser, page


def give_way():
    """Only when nothing else wants the processor. Where the kernel groups processes by session
    (autogroup), what counts is the group's nice value."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write("19")


def show(playwright, port):
    browser, page = open_page(playwright, port)
    page.wait_for_selector("#live")
    print("shown", flush=True)
    sys.stdin.read()
    browser.close()


def watch(port):
    page = subprocess.Popen([sys.executable, __file__, "--show", str(port)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, start_new_session=True)
    if page.stdout.readline() != b"shown\n":
        return page.wait()
    ended = threading.Event()
    start(repeat, port, "/metrics", EVERY_S, ended)
    start(follow, port, "/api/v1/events")
    start(follow_run, port, ended)
    print("watching", flush=True)
    sys.stdin.read()
    ended.set()
    page.stdin.close()
    return page.wait()


def paint(playwright, port):
    browser, page = open_page(playwright, port)
    page.wait_for_function(SHOWN)
    nodes_ms = page.evaluate("() => performance.now()")
    page.wait_for_function(FIRST_PAINT)
    first_ms = page.evaluate(FIRST_PAINT)
    browser.close()
    print(json.dumps({"first_paint_s": first_ms / 1000, "nodes_s": nodes_ms / 1000}))


def main():
    *mode, port = sys.argv[1:]
    if not mode:
        return watch(int(port))
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if CHROMIUM is None or sync_playwright is None:
        print("needs Chromium (Debian: chromium) and Playwright (scripts/test installs both)", file=sys.stderr)
        return SKIPPED
    if mode == ["--show"]:
        give_way()  # Playwright's processes and the browser inherit it.
    with sync_playwright() as playwright:
        (paint if mode == ["--paint"] else show)(playwright, int(port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
