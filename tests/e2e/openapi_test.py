#!/usr/bin/env python3
"""Compares /api/v1/openapi.json with musterd's answers: each path, each field and each refusal."""
import importlib.util
import json
import re
import subprocess
import sys

from http_test import HttpTest, Stream
from support import PATIENCE_S, SOURCE, main

FILE = SOURCE / "rendezvous/http/openapi.json"


def closed(schema):
    """The same schema, but with an error for each field that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        strict["additionalProperties"] = False
    return strict


class OpenApi(HttpTest):
    def setUp(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("jsonschema is not installed")
        self.jsonschema = jsonschema
        self.document = json.loads(FILE.read_text())
        self.seen = set()
        super().setUp()

    def check_schema(self, schema, value, what):
        whole = {**closed(schema), "components": closed(self.document["components"])}
        validator = self.jsonschema.Draft202012Validator(whole)
        errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(value)]
        self.assertEqual(errors, [], what)

    def call(self, path, method="get", expect=200, run="job", query="", headers=None, node="nobody"):
        """Sends the request and checks the answer against the document's schema for this path,
        method and status."""
        target = path.replace("{id}", run).replace("{rank}", "0").replace("{node}", node) + query
        status, got, text = self.ask(target, method.upper(), headers)
        self.assertEqual(status, expect, (target, text))
        described = self.document["paths"][path][method]["responses"][str(status)]
        kind = got["Content-Type"].partition(";")[0]
        self.assertIn(kind, described["content"], target)
        self.seen.add((path, method))
        if kind == "application/json":
            self.check_schema(described["content"][kind]["schema"], json.loads(text), f"{method} {target} {status}\n{text}")
        return text

    def stream(self, path, wanted):
        """Reads messages of a stream until all of `wanted` have come, and checks each against its
        schema."""
        schemas = {"event": "Event", "run": "Run", "runs": "Runs"}
        stream = Stream(self, path.replace("{id}", "job"))
        described = self.document["paths"][path]["get"]["responses"]["200"]["content"]
        self.assertIn(stream.type, described)
        self.seen.add((path, "get"))
        while wanted:
            event, _, data = stream.next()
            wanted = wanted - {event}
            self.check_schema({"$ref": f"#/components/schemas/{schemas[event]}"}, data, event)

    def test_each_path_answers_as_it_says(self):
        self.call("/api/v1/server")
        for path in ("/api/v1/runs/{id}", "/api/v1/runs/{id}/nodes", "/api/v1/runs/{id}/steps", "/api/v1/runs/{id}/events"):
            self.call(path, expect=404)
        self.call("/api/v1/runs")
        self.node("a", "2", "--max-restarts=2", "--tee=3")
        self.run_is("gathering")
        act = {"X-Muster-Action": "1"}
        self.call("/api/v1/runs/{id}/restart", "post", 409, headers=act)
        self.node("b", "2", "--max-restarts=2", "--tee=3")
        self.round_of(2)
        self.run_is("running")
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.run_is("running")
        self.call("/api/v1/runs")
        self.call("/api/v1/runs", query="?offset=0&limit=1")
        self.call("/api/v1/runs/{id}")
        self.call("/api/v1/runs/{id}/nodes", query="?limit=1")
        self.call("/api/v1/runs/{id}/steps")
        self.stream("/api/v1/events", {"runs"})
        self.stream("/api/v1/runs/{id}/events", {"event", "run"})
        for path, query in (("/api/v1/runs", "?limit=x"), ("/api/v1/runs/{id}/nodes", "?nonsense=1"),
                            ("/api/v1/runs/{id}", "?x=1"), ("/api/v1/runs/{id}/steps", "?x=1"),
                            ("/api/v1/server", "?x=1"), ("/api/v1/events", "?x=1"), ("/api/v1/runs/{id}/events", "?x=1")):
            self.call(path, expect=400, query=query)
        for action in ("restart", "stop"):
            self.call(f"/api/v1/runs/{{id}}/{action}", "post", 403)
            self.call(f"/api/v1/runs/{{id}}/{action}", "post", 404, run="other", headers=act)
        self.call("/api/v1/runs/{id}/ranks/{rank}/log", headers=act)
        self.call("/api/v1/runs/{id}/ranks/{rank}/log", expect=403)
        self.call("/api/v1/runs/{id}/ranks/{rank}/log", expect=400, query="?stream=both")
        self.call("/api/v1/runs/{id}/ranks/{rank}/stacks", "post", headers=act)
        self.call("/api/v1/runs/{id}/ranks/{rank}/stacks", "post", 403)
        self.call("/api/v1/runs/{id}/restart", "post", headers=act)
        self.round_of(2, after=4)
        for action in ("drain", "exclude", "allow"):
            path = f"/api/v1/runs/{{id}}/nodes/{{node}}/{action}"
            self.call(path, "post", 403)
            self.call(path, "post", 404, run="other", headers=act)
            self.call(path, "post", 400, node="", headers=act)
        self.call("/api/v1/runs/{id}/nodes/{node}/drain", "post", 409, headers=act)
        self.call("/api/v1/runs/{id}/nodes/{node}/exclude", "post", headers=act)
        self.call("/api/v1/runs/{id}")
        name = json.loads(self.call("/api/v1/runs/{id}/nodes"))["nodes"][0]["name"]
        self.call("/api/v1/runs/{id}/nodes/{node}/drain", "post", headers=act, node=name)
        self.call("/api/v1/runs/{id}/nodes")
        self.call("/api/v1/runs/{id}/nodes/{node}/allow", "post", headers=act, node=name)
        self.call("/api/v1/runs/{id}/stop", "post", headers=act)
        self.ends(a=1, b=1)
        self.run_is("failed")
        self.call("/api/v1/runs/{id}")
        self.call("/api/v1/runs/{id}/stop", "post", 409, headers=act)
        self.call("/api/v1/login", "post", 409, headers=act)
        served = self.call("/api/v1/openapi.json")
        self.assertEqual(served, FILE.read_text())
        described = {(path, method) for path, methods in self.document["paths"].items() for method in methods}
        self.assertEqual(described, self.seen)

    def test_schemathesis_finds_nothing(self):
        """schemathesis generates valid and invalid requests from the document, the same ones each
        time."""
        if importlib.util.find_spec("schemathesis") is None:
            self.skipTest("schemathesis is not installed")
        self.run_id = "job-17"  # The id in the document's examples.
        self.node("a", "1", "--max-restarts=2", "--tee=3")
        self.round_of(1)
        self.run_is("running", self.run_id)
        # schemathesis does not expect 414, which is the answer to a run id that is too long.
        (self.dir / "schemathesis.toml").write_text(
            "[checks]\nnegative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 414]\n")
        done = subprocess.run(
            [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
             f"--config-file={self.dir}/schemathesis.toml", "run", "--no-color", "--warnings=off",
             # These paths are endless or costly.
             f"http://127.0.0.1:{self.http_port}/api/v1/openapi.json", "--exclude-path-regex=(events|stacks)$",
             "--phases=examples,coverage,fuzzing", "--max-examples=4", "--seed=1", "--generation-database=none",
             "--suppress-health-check=all", f"--request-timeout={PATIENCE_S}", "--header=X-Muster-Action: 1"],
            capture_output=True, text=True, cwd=self.dir, timeout=240, env=self.environment(COLUMNS="160"), check=False)
        said = re.sub(r"(%[0-9A-F]{2}){40,}", "%...", done.stdout)
        self.assertEqual(done.returncode, 0, said[-8000:] + done.stderr[-2000:])
        self.assertRegex(done.stdout, r"\n +\d{3} generated, ")

    def test_every_path_of_the_program_is_described(self):
        # The message of a 404 lists all paths.
        listed = json.loads(self.ask("/nothing")[2])["error"]["message"]
        paths = {path.replace("ID", "{id}").replace("RANK", "{rank}") for path in re.findall(r"/api/v1[\w/.]*", listed)}
        self.assertEqual(paths - set(self.document["paths"]), set())
        self.assertGreaterEqual(len(paths), 6)

    def test_the_document_is_openapi(self):
        self.assertEqual(self.document["openapi"], "3.1.0")
        for schema in self.document["components"]["schemas"].values():
            self.jsonschema.Draft202012Validator.check_schema(schema)
        text = json.dumps(self.document)
        for name in re.findall(r'"#/components/schemas/(\w+)"', text):
            self.assertIn(name, self.document["components"]["schemas"])
        for scheme in re.findall(r'\{"(read|session|prove)": \[\]\}', text):
            self.assertIn(scheme, self.document["components"]["securitySchemes"])
        for path, methods in self.document["paths"].items():
            for method in methods.values():
                named = {parameter["name"] for parameter in method.get("parameters", []) if parameter["in"] == "path"}
                self.assertEqual(named, set(re.findall(r"\{(\w+)\}", path)))


if __name__ == "__main__":
    main()
