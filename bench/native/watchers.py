"""Watches a musterd: opens its page in Chromium, and scrapes /metrics each second like Prometheus.

    watchers.py PORT           prints "watching" when both have begun, and ends when its stdin ends
    watchers.py --show PORT    only opens the page
    watchers.py --paint PORT   opens the page once, and prints JSON: the seconds to the first paint,
                               and to the nodes

Usually, Chromium runs on another machine. Here it runs only when no other process wants the
processor (SCHED_IDLE). Threads with normal priority send the requests of the page once more, so
that musterd gets at least the usual number of requests. Exit status 77: Chromium or Playwright is
missing.
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
NODES_EVERY_S = 2.0  # As in hub.js.
STEPS_EVERY_S = 10.0
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
    """Sends the requests that the page sends for the first run."""
    runs = []
    while not runs and not ended.wait(0.1):
        with ask(port, "/api/v1/runs") as answer:
            runs = json.load(answer)["runs"]
    if runs:
        path = f"/api/v1/runs/{runs[0]['id']}"
        start(follow, port, f"/api/v1/events?run={runs[0]['id']}")
        start(repeat, port, path + "/steps", STEPS_EVERY_S, ended)
        repeat(port, path + "/nodes", NODES_EVERY_S, ended)


def start(function, *arguments):
    """Starts a daemon thread, because the program ends while musterd still sends."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


def open_page(playwright, port):
    browser = playwright.chromium.launch(executable_path=CHROMIUM,
                                         args=["--no-sandbox", "--disable-dev-shm-usage"])
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"http://127.0.0.1:{port}/", wait_until="commit")
    return browser, page


def give_way():
    """Makes this process run only when no other process wants the processor. If the kernel groups
    processes by session (autogroup), the nice value of the group counts, so this sets it, too."""
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
        give_way()  # Playwright's processes and the browser inherit this priority.
    with sync_playwright() as playwright:
        (paint if mode == ["--paint"] else show)(playwright, int(port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
