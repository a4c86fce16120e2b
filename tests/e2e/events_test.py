#!/usr/bin/env python3
"""Tests --event-log-handler console: the events are those of torchrun, in the same order, field by
field."""
import json
import subprocess
import sys

from support import PATIENCE_S, SOURCE, MusterTest, main

TORCHRUN = SOURCE / ".venv" / "bin" / "torchrun"
# Rank 1 exits with $CODE. If that is not 0, rank 0 waits until it is killed.
WORKER = """#!/bin/sh
[ "$LOCAL_RANK" = 1 ] && exit ${CODE:-0}
[ "${CODE:-0}" = 0 ] || exec sleep 1000
exit 0
"""
# Fields that differ from run to run.
VARYING = {"run_id", "worker_id", "hostname", "total_run_time", "duration_ms"}


def events_in(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"name"')]


def comparable(event):
    event = json.loads(json.dumps(event))
    event.pop("timestamp")  # The timestamp is 0 under torchrun.
    outer = event["metadata"]
    for name in VARYING:
        outer[name] = type(outer[name]).__name__
    # torch's record of "no error file" is one object for all workers: a message about one worker
    # that exited by itself appears for the other workers, too.
    outer["raw_error"] = outer["raw_error"] and json.loads(outer["raw_error"])["message"]
    inner = json.loads(outer["metadata"])
    inner["worker_pid"] = [type(inner.get("worker_pid", [None])[0]).__name__]
    outer["metadata"] = list(inner.items())
    return list(outer.items()), event["name"], event["source"]


class Events(MusterTest):
    def events(self, *args, env=None, expect=0):
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2",
                                    "--event-log-handler=console", *args, env=env, expect=expect)
        return events_in(err)

    def torchruns(self, *args, env=None):
        if not TORCHRUN.exists():
            self.skipTest("no torchrun in .venv")
        ran = subprocess.run([TORCHRUN, "--standalone", "--nproc-per-node=2",
                              "--event-log-handler=console", *args], capture_output=True, text=True,
                             env=self.environment(**(env or {})), cwd=self.dir, timeout=300)
        return events_in(ran.stderr)

    def assert_same(self, args, env=None, expect=0):
        script = self.script("worker.sh", WORKER)
        ours = self.events(*args, "--no-python", script, env=env, expect=expect)
        theirs = self.torchruns(*args, "--no-python", script, env=env)
        self.assertEqual([comparable(e) for e in ours], [comparable(e) for e in theirs])
        self.assertEqual([list(e) for e in ours], [list(e) for e in theirs])
        return ours

    def test_a_good_run_is_told_as_torchrun_tells_it(self):
        events = self.assert_same(["--role=trainer"])
        self.assertEqual([e["metadata"]["state"] for e in events],
                         ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "SUCCEEDED",
                          "SUCCEEDED", "SUCCEEDED"])
        self.assertTrue(all(e["timestamp"] > 1_700_000_000_000 for e in events))

    def test_a_failed_run_with_a_restart_too(self):
        events = self.assert_same(["--max-restarts=1"], env={"CODE": "3"}, expect=1)
        failed = [json.loads(e["metadata"]["metadata"])["exit_code"] for e in events
                  if e["metadata"]["state"] == "FAILED"]
        self.assertEqual(failed, [[-15], [3]])

    def test_a_signal_is_the_agents_failure(self):
        script = self.script("wait.sh", "#!/bin/sh\necho x >> ready\nexec sleep 1000\n")
        process = self.start("--standalone", "--event-log-handler=console", "--no-python", script)
        self.ready(1)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        last = events_in(self.read("err"))[-1]
        self.assertEqual((last["source"], last["metadata"]["state"]), ("AGENT", "FAILED"))
        self.assertIn("SIGTERM", last["metadata"]["raw_error"])

    def test_silence_where_it_is_asked_for(self):
        script = self.script("worker.sh", WORKER)
        for flags, env in (([], {}), (["--event-log-handler=null"], {}),
                           (["--event-log-handler=dynamic_rendezvous"], {}),
                           (["--event-log-handler=console"], {"LOGLEVEL": "WARNING"})):
            with self.subTest(flags=flags, env=env):
                _, _, err = self.run_muster("--standalone", *flags, "--no-python", script, env=env,
                                            expect=0)
                self.assertEqual(events_in(err), [])

    def test_an_unknown_handler_names_the_known_ones(self):
        _, _, err = self.run_muster("--event-log-handler=scuba", "--no-python", "true", expect=1)
        self.assertIn("console, null and dynamic_rendezvous", err)


if __name__ == "__main__":
    sys.exit(main())
