#!/usr/bin/env python3
"""Tests that the files for Prometheus and Grafana in configs/ name only metrics and labels that a
real musterd has."""
import json
import re
import shutil
import subprocess

from http_test import HttpTest
from support import SOURCE, main

RULES = SOURCE / "configs/prometheus/muster.rules.yml"
DASHBOARD = SOURCE / "configs/grafana/muster.json"
PROMTOOL = shutil.which("promtool") or shutil.which(SOURCE / "build/promtool/promtool")
# This metric is Prometheus' own.
FOREIGN = {"up"}
LABELS_OF_SCRAPES = {"job", "instance"}


class Monitoring(HttpTest):
    def metrics(self):
        """The names of all samples with the names of their labels. A metric without samples has
        only the name of its family."""
        self.ask("/healthz")  # After this request, the metric of requests by status has a sample.
        status, _, text = self.ask("/metrics")
        self.assertEqual(status, 200)
        known = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                known.setdefault(line.split()[2], set())
            elif not line.startswith("#"):
                name = re.match(r"\w+", line)[0]
                known.setdefault(name, set()).update(re.findall(r'[{,](\w+)="', line))
        return known

    def check(self, expressions):
        known = self.metrics()
        self.assertGreater(len(expressions), 5)
        for expression in expressions:
            named = set(re.findall(r"\b(muster_\w+|process_\w+)", expression))
            self.assertTrue(named or FOREIGN & set(re.findall(r"\w+", expression)), expression)
            for name in named:
                self.assertIn(name, known, expression)
            for name, labels in re.findall(r"(\w+)\{([^}]*)\}", expression):
                for label in re.findall(r"(\w+)=", labels):
                    if name not in FOREIGN:
                        self.assertIn(label, known[name], expression)
            for labels in re.findall(r"\bby \(([^)]*)\)", expression):
                for label in re.split(r", *", labels):
                    # A counter by reason has no sample before its first event.
                    every = set().union(*(known[name] for name in named)) or {"reason"}
                    self.assertIn(label, every | LABELS_OF_SCRAPES, expression)

    def test_the_alerts(self):
        rules = RULES.read_text()
        expressions = re.findall(r"^ +expr: (.*)$", rules, re.MULTILINE)
        self.assertEqual(len(expressions), rules.count("- alert: "))
        self.assertEqual(rules.count("annotations: {summary: \""), len(expressions))
        self.check(expressions)

    def test_the_alerts_by_promtool(self):
        said = self.promtool("check", "rules", str(RULES))
        self.assertIn(f"{RULES.read_text().count('- alert: ')} rules found", said)

    def test_the_metrics_by_promtool(self):
        """Checks the metrics' format, and Prometheus' conventions for names and units."""
        self.promtool("check", "metrics", text=self.ask("/metrics")[2])

    def promtool(self, *words, text=None):
        if PROMTOOL is None:
            self.skipTest("promtool is not installed: scripts/test takes it out of Debian's package prometheus")
        done = subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_the_dashboard(self):
        dashboard = json.loads(DASHBOARD.read_text())
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
        self.assertEqual(len(set(places)), len(panels))
        for panel in panels:
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            self.assertLessEqual(panel["gridPos"]["x"] + panel["gridPos"]["w"], 24)
            self.assertTrue(panel["title"])
        self.check([target["expr"] for panel in panels for target in panel["targets"]])

    def test_the_queries_of_the_dashboard_by_promtool(self):
        """The queries are written as the rules of a file, which promtool parses."""
        queries = [target["expr"].replace("$__rate_interval", "5m") for panel in json.loads(DASHBOARD.read_text())["panels"]
                   for target in panel["targets"]]
        rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
        file = self.dir / "queries.yml"
        # JSON is also YAML.
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        self.assertIn(f"{len(queries)} rules found", self.promtool("check", "rules", str(file)))


if __name__ == "__main__":
    main()
