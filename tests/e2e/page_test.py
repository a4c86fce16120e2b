#!/usr/bin/env python3
"""Tests the page of musterd --http in a real Chromium, while a real job fails and recovers.

MUSTER_SCREENSHOTS names a folder for pictures of the page. Skipped without Chromium or Playwright.
"""
import copy
import importlib.resources
import json
import os
import shutil
import statistics
import sys
import unittest

from http_test import HttpTest
from support import PATIENCE_S, main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None
# axe-core as text: the page's own policy permits no script of the test, but the debugger can run
# one.
try:
    AXE = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
except ImportError:
    AXE = None
MS = PATIENCE_S * 1000


class PageTest(HttpTest):
    def setUp(self):
        super().setUp()
        self.playwright = sync_playwright().start()
        self.addCleanup(self.playwright.stop)
        self.browser = self.playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        self.addCleanup(self.browser.close)
        self.complaints = []

    def page(self, where="", **settings):
        page = self.browser.new_page(**settings)
        page.set_default_timeout(MS)
        page.on("console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self.is_ours)
        page.goto(f"http://127.0.0.1:{self.http_port}/{where}")
        return page

    def is_ours(self, request):
        if not request.url.startswith((f"http://127.0.0.1:{self.http_port}/", "data:")):
            self.complaints.append("asks elsewhere: " + request.url)

    def shows(self, page, selector, text):
        try:
            page.wait_for_function("([s, t]) => document.querySelector(s)?.textContent.includes(t)", arg=[selector, text])
        except Exception as error:
            shown = page.text_content("body")
            raise AssertionError(f"{selector} never shows {text!r}: {error}\n{shown}\n{self.all_output()}") from None

    def picture(self, page, name):
        folder = os.environ.get("MUSTER_SCREENSHOTS")
        if folder:
            page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    def job(self, count=2):
        for tag in "abcd"[:count]:
            self.node(tag, str(count), "--max-restarts=3", "--nproc-per-node=2")
        self.round_of(2 * count)

    def no_complaints(self):
        self.assertEqual(self.complaints, [])


class Live(PageTest):
    def test_it_follows_a_job_that_fails_and_recovers(self):
        said = "the last line of its stderr"
        self.worker.write_text(f"import sys\nprint({said!r}, file=sys.stderr, flush=True)\n" + self.worker.read_text())
        page = self.page()
        self.shows(page, "#live", "live")
        page.wait_for_selector("#no-runs", state="visible")
        self.node("a", "2", "--max-restarts=3", "--nproc-per-node=2")
        self.shows(page, "#state", "gathering")  # The only run is selected automatically.
        self.shows(page, "#missing-list", "1 more node must come")
        self.node("b", "2", "--max-restarts=3", "--nproc-per-node=2")
        self.round_of(4)
        self.shows(page, "#state", "running")
        self.shows(page, "#legend", "2 working")
        self.assertTrue(page.is_hidden("#failure"))
        self.assertTrue(page.is_hidden("#missing"))
        page.click("#nodes button >> nth=1")
        self.shows(page, "#node", "ranks 2 to 3")
        self.shows(page, "#node", "ago")
        self.shows(page, "#node", "2 running")
        self.picture(page, "running")
        self.tell("exit.b", "7")
        self.shows(page, "#failure-text", "exited with 7")
        self.shows(page, "#failure-text", "(local rank")
        self.shows(page, "#failure-text", said)
        self.shows(page, "#history", "workers failed")
        self.round_of(4, after=4)
        self.shows(page, "#facts", "1 of 3")
        self.shows(page, "#state", "running")
        self.picture(page, "recovered")
        self.kill("a")
        self.shows(page, "#history", "node lost")
        self.shows(page, "#missing-list", "is gone since")
        self.shows(page, "#runs", "restarting")
        self.picture(page, "missing")
        self.node("c", "2", "--max-restarts=3", "--nproc-per-node=2")
        self.shows(page, "#state", "running")
        self.tell("finish")
        self.shows(page, "#state", "succeeded")
        self.no_complaints()

    def test_a_lost_musterd_is_said_and_found_again(self):
        page = self.page()
        self.shows(page, "#live", "live")
        self.musterd.kill()
        self.musterd.wait()
        self.shows(page, "#live", "connection lost")

    def test_a_musterd_that_stands_by_is_no_refusal(self):
        """The test sends the answers of a musterd that stands by, as recorded in
        tests/etcd/etcd_test.py. Then the real one leads."""
        stands_by = {"status": 503, "content_type": "application/json",
                     "body": '{"error":{"code":"standing_by","message":"this musterd stands by"}}'}
        context = self.browser.new_context()
        self.addCleanup(context.close)
        for target in ("readyz", "api/v1/events"):
            context.route(f"**/{target}", lambda route: route.fulfill(**stands_by))
        page = context.new_page()
        page.set_default_timeout(MS)
        page.goto(f"http://127.0.0.1:{self.http_port}/")
        self.shows(page, "#live", "this musterd stands by")
        context.unroute_all()
        self.shows(page, "#live", "live")

    def test_too_many_readers_are_no_refusal(self):
        context = self.browser.new_context()
        self.addCleanup(context.close)
        context.route("**/api/v1/events", lambda route: route.fulfill(
            status=503, content_type="application/json", body='{"error":{"code":"too_many_streams","message":"full"}}'))
        page = context.new_page()
        page.set_default_timeout(MS)
        page.goto(f"http://127.0.0.1:{self.http_port}/")
        self.shows(page, "#live", "too many readers of events")
        context.unroute_all()
        self.shows(page, "#live", "live")

    def test_a_hidden_page_gives_its_connections_back(self):
        page = self.page()
        self.shows(page, "#live", "live")

        def hide(hidden):
            page.evaluate("hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
                          " document.dispatchEvent(new Event('visibilitychange')); }", hidden)
        hide(True)
        self.assertEqual(page.evaluate("list.readyState"), 2)
        hide(False)
        self.shows(page, "#live", "live")

    def test_a_run_that_is_not_there(self):
        page = self.page("#no%20such%20run")
        self.shows(page, "#none", "does not know this run")


class Use(PageTest):
    def setUp(self):
        super().setUp()
        self.job()

    def test_the_keyboard_is_enough(self):
        page = self.page()
        self.shows(page, "#legend", "2 working")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.dataset.id"), "job")
        page.keyboard.press("Enter")
        page.focus("#nodes button")
        page.keyboard.press("ArrowRight")
        self.shows(page, "#node", "node rank 1")
        page.keyboard.press("Home")
        self.shows(page, "#node", "node rank 0")
        self.assertEqual(page.locator("#nodes button[tabindex='0']").count(), 1)
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        self.assertEqual(outline, "solid")
        self.no_complaints()

    def test_phone_and_dark(self):
        page = self.page(viewport={"width": 360, "height": 740}, color_scheme="dark")
        self.shows(page, "#legend", "2 working")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 26)")
        self.picture(page, "phone")
        self.no_complaints()

    def test_text_is_readable_in_both_schemes(self):
        """The contrast must be at least 4.5, as WCAG 2 requires (AA)."""
        contrast = """() => {
            const light = (text) => {
              const parts = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
                .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
              return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
            };
            const ground = (element) => {
              for (; element; element = element.parentElement) {
                const color = getComputedStyle(element).backgroundColor;
                if (!/, 0\\)$/.test(color)) return color;
              }
              return "rgb(255, 255, 255)";
            };
            const worst = [];
            for (const element of document.querySelectorAll("body *")) {
              const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
              if (!own || !element.checkVisibility() || element.closest(".skip, noscript, script")) continue;
              const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
              const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
              if (ratio < 4.5) worst.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
            }
            return worst;
        }"""
        self.tell("exit.a", "1")
        for scheme in ("light", "dark"):
            page = self.page(color_scheme=scheme)
            self.shows(page, "#failure-text", "1")
            self.shows(page, "#legend", "working")
            self.assertEqual(page.evaluate(contrast), [], scheme)
            page.close()

    @unittest.skipIf(AXE is None, "axe-playwright-python is not installed")
    def test_axe_finds_nothing(self):
        """The page with a failure, with a node that is kept out and with a selected node: on wide
        screens and phones, light and dark."""
        self.tell("exit.a", "1")
        self.round_of(4, after=4)
        self.run_is("running")
        name = self.get("/api/v1/runs/job/nodes")["nodes"][0]["name"]
        self.assertEqual(self.ask(f"/api/v1/runs/job/nodes/{name}/exclude", "POST", {"X-Muster-Action": "1"})[0], 200)
        page = self.page()
        self.shows(page, "#legend", "kept out")
        self.shows(page, "#history", "node excluded")
        self.shows(page, "#failure-text", "exited with 1")
        page.click(f"#nodes button[data-name='{name}']")
        self.shows(page, "#node", "excluded by an operator")
        page.evaluate(AXE)
        for width in (1280, 360):
            for scheme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": 740})
                page.emulate_media(color_scheme=scheme)
                found = page.evaluate("axe.run()")
                self.assertGreater(len(found["passes"]), 20)
                wrong = [f"{rule['id']} ({rule['impact']}): {rule['help']}: " +
                         "; ".join(node["html"] for node in rule["nodes"][:3]) for rule in found["violations"]]
                self.assertEqual(wrong, [], (width, scheme))
                self.picture(page, f"axe-{scheme}-{width}")
        self.no_complaints()

    def test_every_control_has_a_name_and_headings_are_in_order(self):
        page = self.page()
        self.shows(page, "#legend", "2 working")
        nameless = page.evaluate("""() => [...document.querySelectorAll('button, a')]
            .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim())).length""")
        self.assertEqual(nameless, 0)
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((one) => Number(one.tagName[1]))")
        self.assertEqual(levels[0], 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)
        self.assertEqual(page.evaluate("document.documentElement.lang"), "en")

    def test_texts_from_nodes_are_not_html(self):
        """A run id with HTML in it, in an answer that a hostile node could cause."""
        evil = "<img src=x onerror=alert(1)>"
        page = self.browser.new_page()
        page.set_default_timeout(MS)
        page.on("dialog", lambda dialog: self.complaints.append("a dialog: " + dialog.message))
        runs = json.loads(self.ask("/api/v1/runs")[2])
        runs["runs"][0]["id"] = runs["runs"][0]["reason"] = evil
        page.route("**/api/v1/events", lambda route: route.fulfill(
            content_type="text/event-stream", body=f"event: runs\ndata: {json.dumps(runs)}\n\n"))
        run = json.loads(self.ask("/api/v1/runs/job")[2])
        run["id"] = run["reason"] = evil
        run["first_failure"] = {**run["events"][0], "node": evil, "text": evil}
        for event in run["events"]:
            event["text"] = event["node"] = evil
        page.route("**/events", lambda route: route.fallback() if route.request.url.endswith("v1/events") else
                   route.fulfill(content_type="text/event-stream", body=f"event: run\ndata: {json.dumps(run)}\n\n"))
        page.goto(f"http://127.0.0.1:{self.http_port}/")
        self.shows(page, "#failure-text", evil)
        self.shows(page, "#history", evil)
        self.assertEqual(page.locator("main img, nav img").count(), 0)
        self.no_complaints()

    def test_a_thousand_nodes_are_smooth(self):
        page = self.page()
        self.shows(page, "#legend", "2 working")
        answer = self.get("/api/v1/runs/job/nodes")
        one = answer["nodes"][0]
        answer["nodes"] = []
        for rank in range(1000):
            node = copy.copy(one)
            node.update(name=f"node{rank}_1_0", group_rank=rank, first_rank=8 * rank, local_world_size=8,
                        state=("working", "absent", "restarting")[rank % 97 == 0])
            answer["nodes"].append(node)
        page.route("**/nodes", lambda route: route.fulfill(json=answer))
        self.shows(page, "#node-counts", "1000")
        self.picture(page, "thousand")
        times_ms = page.evaluate("""async () => {
            const times = [];
            for (let i = 0; i < 10; ++i) {
              const begin = performance.now();
              showNodes();
              document.body.getBoundingClientRect();
              times.push(performance.now() - begin);
              await new Promise((done) => requestAnimationFrame(done));
            }
            return times;
        }""")
        # An update takes 20 ms on an idle machine. On a busy one the browser may be off the CPU during some of them.
        self.assertLess(statistics.median(times_ms), 500, f"updates of 1,000 nodes: {times_ms}")
        self.no_complaints()


if __name__ == "__main__":
    if CHROMIUM is None or sync_playwright is None:
        print("SKIPPED: Debian's chromium or the Python module playwright is not installed")
        sys.exit(77)
    main()
