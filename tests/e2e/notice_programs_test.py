#!/usr/bin/env python3
"""Tests the programs of configs/notices against fakes of the metadata services, alone and under muster."""
import datetime
import email.utils
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

from preemption_test import WORKER
from pythons import OLDEST, pythons
from support import PATIENCE_S, SOURCE, MusterTest, children, main, wait_for

try:
    import yaml
except ImportError:
    yaml = None

PROGRAMS = SOURCE / "configs/notices"


class Service(http.server.ThreadingHTTPServer):
    """A fake metadata service: `answer(method, path, query, headers)` gives (status, text, headers)."""
    daemon_threads = True

    def __init__(self, answer):
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def reply(self):
                url = urllib.parse.urlsplit(self.path)
                outer.asked.append((self.command, url.path))
                status, text, headers = answer(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)), self.headers)
                body = text.encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = reply

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """A program that has its answer may end before the others have come."""

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class ProgramsTest(MusterTest):
    python = sys.executable

    def serve(self, answer):
        service = Service(answer)
        self.addCleanup(service.server_close)
        self.addCleanup(service.shutdown)
        return service

    def program(self, *words, env=None, **popen):
        process = subprocess.Popen([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   # A proxy must not get these questions.
                                   env=self.environment(http_proxy="http://127.0.0.1:1", **(env or {})), **popen)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def ends(self, process, code=0):
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, code, err)
        return out, err


class Aws(ProgramsTest):
    def setUp(self):
        super().setUp()
        self.action = self.rebalance = None
        self.tokens = 0
        self.expired = False
        self.down = False

    def answer(self, method, path, query, headers):
        if self.down:
            return 500, "", {}
        if path == "/latest/api/token":
            self.tokens += 1
            is_right = method == "PUT" and headers["X-aws-ec2-metadata-token-ttl-seconds"]
            return (200, f"token-{self.tokens}", {}) if is_right else (400, "", {})
        if headers["X-aws-ec2-metadata-token"] != f"token-{self.tokens}" or self.expired:
            self.expired = False
            return 401, "", {}
        found = {"/latest/meta-data/spot/instance-action": self.action,
                 "/latest/meta-data/events/recommendations/rebalance": self.rebalance}.get(path)
        return (404, "", {}) if found is None else (200, found, {})

    def watch(self, *options):
        service = self.serve(self.answer)
        process = self.program(self.python, PROGRAMS / "notice_aws.py", "--endpoint", service.endpoint, "--interval=0.05",
                               *options)
        wait_for(lambda: len(service.asked) > 4, "questions")
        return process

    @staticmethod
    def in_two_minutes():
        then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=120)
        return json.dumps({"action": "terminate", "time": then.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def test_an_interruption(self):
        process = self.watch()
        self.assertIsNone(process.poll())
        self.rebalance = "{}"  # Not asked for.
        time.sleep(0.2)
        self.expired = True
        self.action = self.in_two_minutes()
        seconds, reason = self.ends(process)[0].strip().split(" ", 1)
        self.assertTrue(100 < int(seconds) <= 120, seconds)
        self.assertEqual(reason, "AWS will terminate this spot instance")
        self.assertGreater(self.tokens, 1)

    def test_a_rebalance_recommendation(self):
        process = self.watch("--rebalance=600")
        self.rebalance = '{"noticeTime": "2026-11-29T12:00:00Z"}'
        self.assertEqual(self.ends(process)[0], "600 AWS recommends to leave this spot instance\n")

    def test_a_service_that_does_not_answer(self):
        process = self.watch()
        self.down = True
        self.assertIn("does not answer", self.ends(process, 1)[1])

    def test_under_muster(self):
        service = self.serve(self.answer)
        script = self.script("worker.py", WORKER)
        command = f"{self.python} {PROGRAMS}/notice_aws.py --endpoint {service.endpoint} --interval 0.05"
        process = self.start("--standalone", "--nproc-per-node=2", "--exit-code=propagate", f"--notice-from={command}",
                             "--no-python", sys.executable, script, "saves", "itself",
                             env={"PYTHONPATH": str(SOURCE / "worker_sdk/python")})
        self.ready(2)
        self.action = self.in_two_minutes()
        self.assertEqual(process.wait(PATIENCE_S), 75, self.read("err"))
        told = json.loads(self.read("told.1"))
        self.assertEqual(told["reason"], "AWS will terminate this spot instance")
        self.assertTrue(60 < told["left"] <= 90, told)


class Gce(ProgramsTest):
    def setUp(self):
        super().setUp()
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.changed = threading.Condition()

    def answer(self, method, path, query, headers):
        name = path.removeprefix("/computeMetadata/v1/instance/")
        if headers["Metadata-Flavor"] != "Google" or name not in self.values:
            return 403, "", {}
        with self.changed:  # The ETag is the value here.
            self.changed.wait_for(lambda: self.values[name] != query["last_etag"], min(30, int(query["timeout_sec"])))
            return 200, self.values[name], {"ETag": self.values[name]}

    def change(self, name, value):
        with self.changed:
            self.values[name] = value
            self.changed.notify_all()

    def watch(self, *options):
        service = self.serve(self.answer)
        self.addCleanup(self.change, "preempted", "over")
        self.addCleanup(self.change, "maintenance-event", "over")
        process = self.program(self.python, PROGRAMS / "notice_gce.py", "--endpoint", service.endpoint, *options)
        # The second question waits until something changes.
        wait_for(lambda: len(service.asked) >= (4 if options else 2), "questions")
        return service, process

    def test_a_preemption(self):
        service, process = self.watch()
        time.sleep(0.3)
        self.assertEqual(len(service.asked), 2)  # Nothing is polled.
        self.change("preempted", "TRUE")
        self.assertEqual(self.ends(process)[0], "30 GCE preempts this VM\n")

    def test_maintenance(self):
        _, process = self.watch("--maintenance=60")
        self.change("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        self.change("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        self.assertEqual(self.ends(process)[0], "60 GCE maintains the host of this VM\n")


class Azure(ProgramsTest):
    def setUp(self):
        super().setUp()
        self.events = []

    def answer(self, method, path, query, headers):
        if headers["Metadata"] != "true" or "api-version" not in query:
            return 400, "", {}
        if path == "/metadata/instance/compute":
            return 200, json.dumps({"name": "vm_2"}), {}
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}), {}

    def event(self, kind, seconds=None, name="vm_2", number="1"):
        before = "" if seconds is None else email.utils.formatdate(time.time() + seconds, usegmt=True)
        return {"EventId": f"{kind}-{number}", "EventType": kind, "Resources": ["vm_0", name], "NotBefore": before,
                "EventStatus": "Scheduled"}

    def test_events(self):
        service = self.serve(self.answer)
        process = self.program(self.python, PROGRAMS / "notice_azure.py", "--endpoint", service.endpoint, "--interval=0.05")
        self.events = [self.event("Freeze", 60), self.event("Preempt", 60, name="vm_1")]  # Not of this kind, not this VM.
        wait_for(lambda: len(service.asked) > 5, "questions")
        self.events.append(self.event("Redeploy", 600))
        seconds, reason = process.stdout.readline().strip().split(" ", 1)
        self.assertTrue(580 < int(seconds) <= 600, seconds)
        self.assertEqual(reason, "Azure: Redeploy of this VM")
        self.events.append(self.event("Preempt", 30))
        seconds, reason = process.stdout.readline().strip().split(" ", 1)
        self.assertTrue(10 < int(seconds) <= 30, seconds)
        self.assertEqual(reason, "Azure: Preempt of this VM")
        self.events.append(self.event("Terminate"))  # It has begun.
        self.assertEqual(process.stdout.readline(), "0 Azure: Terminate of this VM\n")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


class OldestPython:
    """The same tests with programs that run under the oldest Python that docs/preemption.md names."""
    python = pythons().get(OLDEST)

    def setUp(self):
        if self.python is None:
            self.skipTest(f"this machine has no Python 3.{OLDEST}")
        super().setUp()


class AwsInOldestPython(OldestPython, Aws):
    pass


class GceInOldestPython(OldestPython, Gce):
    pass


class AzureInOldestPython(OldestPython, Azure):
    pass


class Slurm(ProgramsTest):
    def program_of_a_job(self, left_s, ahead_s):
        return self.program(PROGRAMS / "notice_slurm.sh", ahead_s, start_new_session=True,
                            env={"SLURM_JOB_END_TIME": str(int(time.time()) + left_s), "SLURM_JOB_ID": "17"})

    def test_before_the_end(self):
        process = self.program_of_a_job(left_s=62, ahead_s=60)
        seconds, reason = self.ends(process)[0].strip().split(" ", 1)
        self.assertTrue(50 <= int(seconds) <= 60, seconds)
        self.assertEqual(reason, "the time limit of job 17")

    def test_a_job_that_begins_late(self):
        self.assertTrue(0 <= int(self.ends(self.program_of_a_job(10, 60))[0].split()[0]) <= 10)

    def test_an_old_slurm(self):
        process = self.program(PROGRAMS / "notice_slurm.sh")
        self.assertIn("SLURM_JOB_END_TIME", self.ends(process, 2)[1])

    def test_it_ends_at_once_when_it_is_told_to(self):
        process = self.program_of_a_job(left_s=600, ahead_s=60)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGTERM)  # As muster does.
        self.assertEqual(self.ends(process, -signal.SIGTERM)[0], "")


@unittest.skipUnless(yaml, "no yaml module")
class Kubernetes(MusterTest):
    def setUp(self):
        super().setUp()
        text = (SOURCE / "docs/preemption.md").read_text()
        self.job = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])["spec"]
        self.pod = self.job["template"]["spec"]
        [self.container] = self.pod["containers"]
        self.hook = self.container["lifecycle"]["preStop"]["exec"]["command"]

    def test_the_pods_hook_ends_the_container_when_all_have_saved(self):
        # muster is the first process of its pid namespace, as in a container. The hook runs in that namespace.
        if os.getuid() != 0 or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True,
                                              check=False).returncode != 0:
            self.skipTest("a pid namespace needs root")
        script = self.script("worker.py", WORKER)
        self.assertEqual((self.container["command"], self.container["args"][-1]), (["muster"], "train.py"))
        process = self.start("--standalone", "--nproc-per-node=2", *self.container["args"][:-1],
                             "--no-python", sys.executable, script, "saves", "itself",
                             before=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
                             env={"PYTHONPATH": str(SOURCE / "worker_sdk/python")})
        self.ready(2)
        [first] = children(process.pid)
        hook = subprocess.Popen(["nsenter", "--target", str(first), "--pid", "--mount", *self.hook])
        self.addCleanup(hook.wait)
        self.addCleanup(hook.kill)
        self.assertEqual(self.action(process.wait(PATIENCE_S)), "Ignore", self.read("err"))
        self.assertTrue(60 < json.loads(self.read("told.0"))["left"] <= 90)

    def action(self, status):
        """What the pod failure policy does with a container that ends with this status: the first rule that matches."""
        for rule in self.job["podFailurePolicy"]["rules"]:
            codes = rule["onExitCodes"]
            if (status in codes["values"]) == (codes["operator"] == "In"):
                return rule["action"]
        return None  # The pod has failed.

    def test_only_pods_that_were_stopped_for_a_notice_do_not_count_as_failed(self):
        # What Kubernetes asks of a job with a pod failure policy.
        self.assertEqual(self.pod["restartPolicy"], "Never")
        for rule in self.job["podFailurePolicy"]["rules"]:
            self.assertEqual((set(rule), set(rule["onExitCodes"])), ({"action", "onExitCodes"}, {"operator", "values"}))
        self.assertEqual([self.action(status) for status in (75, 1, 70, 137, 143)], ["Ignore", None, None, None, None])

    def test_the_pod_has_the_time_of_the_notice_and_of_the_hook(self):
        seconds = int(re.search(r"sleep (\d+)", self.hook[-1])[1])
        self.assertIn(f"--notice-signals=SIGUSR1@{seconds}", self.container["args"])
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], seconds)


if __name__ == "__main__":
    main()
