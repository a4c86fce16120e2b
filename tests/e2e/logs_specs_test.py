#!/usr/bin/env python3
"""Tests --logs-specs: plug-ins that decide the layout of the logs. They are in a made-up
distribution, and torchrun runs them for comparison."""
import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from nodes import TORCH_PYTHON
import warm_test
from support import PATIENCE_S, MusterTest, child_named, main, python_has_torch, shim_of, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from warm_python import WarmPython

PLUG_INS = '''
import atexit, json, os, sys
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs, Std


class Flat(LogsSpecs):
    """Every file in one directory, and a note of all that it was told."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.attempts = 0
        self.note({name: sorted(value) if isinstance(value, set) else value
                   for name, value in arguments.items()})
        assert all(isinstance(value, Std) for value in arguments["tee"].values())
        atexit.register(self.note, "over")
        print("Flat is made", flush=True)

    def note(self, what):
        with open("notes", "a") as f:
            f.write(json.dumps(what) + "\\n")

    def path(self, name):
        os.makedirs(self._root_log_dir, exist_ok=True)
        return f"{self._root_log_dir}/{name}"

    def reify(self, envs):
        self.note(envs)
        self.attempts += 1
        dest = LogsDest()
        for local_rank, env in envs.items():
            name = f"{env['ROLE_NAME']}-{env['RANK']}.{self.attempts}"
            dest.stdouts[local_rank] = self.path(name + ".out")
            dest.stderrs[local_rank] = self.path("err")
            dest.error_files[local_rank] = self.path(name + ".json")
            env["TORCHELASTIC_ERROR_FILE"] = dest.error_files[local_rank]
            env["ATTEMPTS"] = str(self.attempts)
            if local_rank in self._tee:
                dest.tee_stdouts[local_rank] = dest.stdouts[local_rank]
        dest.stderrs[1] = os.devnull
        dest.filtered_stdout = self.path("losses")
        return dest

    @property
    def root_log_dir(self):
        return self._root_log_dir


class Settled(DefaultLogsSpecs):
    """torch's own, and a variable that changes in the second attempt."""
    attempts = 0

    def reify(self, envs):
        self.attempts += 1
        for env in envs.values():
            env["ATTEMPTS"] = str(min(self.attempts, 2))
        return super().reify(envs)


class Half(Flat):
    def reify(self, envs):
        dest = super().reify(envs)
        del dest.stdouts[0]
        return dest


class Changed(DefaultLogsSpecs):
    """torch's own, and the run's directory has a name of its own."""

    def _make_log_dir(self, log_dir, rdzv_run_id):
        os.makedirs(f"{log_dir}/mine")
        return f"{log_dir}/mine"


class Broken(LogsSpecs):
    root_log_dir = ""

    def reify(self, envs):
        raise KeyError("JOB_NAME")


class Fifo(Broken):
    def reify(self, envs):
        os.mkfifo("fifo")
        return LogsDest({0: "fifo"}, {0: ""}, {0: "fifo"}, {}, {})


class Gated(Broken):
    attempts = 0

    def reify(self, envs):
        with open("asked", "a") as f:
            f.write("x")
        while not os.path.exists(f"gate.{self.attempts}"): __import__("time").sleep(0.01)
        self.attempts += 1
        name = f"gated.{self.attempts}"
        return LogsDest({0: name}, {0: name}, {0: name}, {}, {})


class Both(Broken):
    def reify(self, envs):
        with open("both", "w") as f:
            f.write("of an earlier job\\n")
        return LogsDest({0: "both"}, {0: "both"}, {0: "both"}, {}, {})


class Waits(Broken):
    def reify(self, envs):
        open("loading", "w").close()
        while True: __import__("time").sleep(1)
'''

ENTRY_POINTS = {
    **{name.lower(): f"made_up_logs:{name}"
       for name in ("Flat", "Settled", "Gated", "Half", "Changed", "Broken", "Fifo", "Both", "Waits")},
    "abstract": "torch.distributed.elastic.multiprocessing:LogsSpecs",
    "gone": "made_up_logs_that_are_not:Flat",
    "misspelt": "made_up_logs:Flta",
    "exits": "made_up_exit:Flat",
    "sleeps": "made_up_sleep:Flat",
    "other": "builtins:dict",
}

# Rank 1 fails once, after rank 0 has printed and has written its error file. A line is one write: print() would make two, and the
# other rank's line could come between them.
WORKER = """
import os, sys, time
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
os.write(1, f"loss {rank} of {attempt}, {os.environ['ATTEMPTS']}\\n".encode())
os.write(1, f"rank {rank}: other\\n".encode())
os.write(2, f"error {rank} of {attempt}\\n".encode())
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
    f.write('{"message": "as planned"}')
open(f"printed.{rank}.{attempt}", "w").close()
while attempt == "0" and not (rank == "1" and os.path.exists("printed.0.0")):
    time.sleep(0.01)
sys.exit(attempt == "0")
"""


def setUpModule():
    LogsSpecsTest.warm = WarmPython(TORCH_PYTHON, OMP_NUM_THREADS="1")
    unittest.addModuleCleanup(LogsSpecsTest.warm.close)


class LogsSpecsTest(MusterTest):
    # Whether the program that holds the plug-in is a copy of a process that has loaded torch.
    COPIES = True

    def setUp(self):
        super().setUp()
        self.site = site = self.dir / "site"
        info = site / "made_up_logs-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-logs\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in ENTRY_POINTS.items())
        (info / "entry_points.txt").write_text("[torchrun.logs_specs]\n" + lines)
        (site / "made_up_logs.py").write_text(PLUG_INS)
        (site / "made_up_exit.py").write_text("raise SystemExit('not today')\n")
        (site / "made_up_sleep.py").write_text(
            "open('loading', 'w').close()\nimport time\nwhile True: time.sleep(1)\n")
        self.more = {"PYTHONPATH": str(site), "PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}
        if self.COPIES:
            self.more |= self.warm.variables(site)

    def run_muster(self, *args, **more):
        return super().run_muster("--standalone", *args, env=self.more, **more)

    def run_torchrun(self, *args):
        done = subprocess.run([TORCH_PYTHON, "-m", "torch.distributed.run", "--standalone", *args],
                              cwd=self.dir, env=self.environment(**self.more | self.warm.variables(self.site)), check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=5 * PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    def refused(self, name, *texts, workers=1):
        """Checks that the job does not start and that the error contains these texts."""
        script = self.script("never.py", "open('ran', 'w').close()\n")
        _, _, err = self.run_muster(f"--nproc-per-node={workers}", f"--logs-specs={name}",
                                    script, expect=1)
        for text in (f"--logs-specs {name}: ", *texts):
            self.assertIn(text, err)
        self.assertFalse((self.dir / "ran").exists(), "a worker was started")
        self.assert_nothing_left()
        return err


class Warm(LogsSpecsTest):
    COPIES = False
    VALUE = "import os, reads\nos.write(1, f\"value {reads.VALUE} {os.environ['ATTEMPTS']}\\n\".encode())\n"

    def begin(self, text, restarts):
        (self.site / "reads.py").write_text("import os\nVALUE = os.environ['ATTEMPTS']\n")
        job = self.start("--standalone", "--warm", "--nproc-per-node=2", f"--max-restarts={restarts}", "--role=r", "--log-dir=logs",
                         "-r3", "--logs-specs=settled", self.script("s.py", text + warm_test.FAILS), restarts, env=self.more)
        self.wait_ready(0)
        return job

    def wait_ready(self, attempt):
        wait_for(lambda: self.read(f"ready.{attempt}") == "xx", f"the workers of attempt {attempt}")

    def printed(self, attempt):
        """(what both workers have written into their files, their interpreters' hashes)"""
        texts = [next(self.dir.glob(f"logs/*/attempt_{attempt}/{rank}/stdout.log")).read_text() for rank in range(2)]
        return ({text.rpartition("hash")[0] for text in texts}, {text.rpartition("hash")[2] for text in texts})

    def test_a_variable_that_an_import_reads_changes(self):
        """Then the workers start cold, and those of the next attempt come from a new zygote."""
        job = self.begin(self.VALUE, 2)
        old = child_named(shim_of(job.pid), "muster-zygote")
        (self.dir / "fail.0").touch()
        self.wait_ready(1)
        self.assertIn("the workers of restart 1 start cold: ATTEMPTS has changed, and an imported module has read it", self.read("err"))
        wait_for(lambda: (new := child_named(shim_of(job.pid), "muster-zygote")) not in (None, old)
                 and warm_test.Faults.is_waiting(new), "a new zygote")
        (self.dir / "fail.1").touch()
        self.assertEqual(job.wait(PATIENCE_S), 0, self.read("err"))
        self.assertEqual(self.read("err").count("start cold"), 1, self.read("err"))
        for attempt, (value, interpreters) in enumerate(((1, 1), (2, 2), (2, 1))):
            texts, hashes = self.printed(attempt)
            self.assertEqual(texts, {f"value {value} {value}\nattempt {attempt} "})
            self.assertEqual(len(hashes), interpreters)
        self.assert_nothing_left()

    def test_a_variable_that_no_import_reads_changes(self):
        """A wrapper of the interpreter might have set it: the zygote cannot tell."""
        job = self.begin("", 1)
        (self.dir / "fail.0").touch()
        self.assertEqual(job.wait(PATIENCE_S), 0, self.read("err"))
        self.assertIn("the workers of restart 1 start cold: ATTEMPTS is another one in the zygote: a wrapper or a plug-in sets it", self.read("err"))
        self.assertEqual([len(self.printed(attempt)[1]) for attempt in range(2)], [1, 2])


class BesideTorchrun(LogsSpecsTest):
    COPIES = False  # The programs that muster starts are real processes.

    def one_job(self, run):
        """(its output, all files of the logs, what the plug-in recorded)"""
        script = self.script("worker.py", WORKER)
        code, out, err = run(
            "--nproc-per-node=2", "--max-restarts=1", "--role=r", "--log-dir=logs", "-r3",
            "--tee=0:1,1:0", "--local-ranks-filter=0", "--duplicate-stdout-filters=loss",
            "--logs-specs=flat", str(script))
        self.assertEqual(code, 0, err)
        files = {str(path.relative_to(self.dir)): path.read_text()
                 for path in (self.dir / "logs").rglob("*") if path.is_file()}
        # The order of the two workers' lines is not fixed.
        files["logs/losses"] = "".join(sorted(files["logs/losses"].splitlines(keepends=True)))
        notes = [json.loads(line) for line in self.read("notes").splitlines()]
        subprocess.run("rm -r logs notes printed.*", shell=True, cwd=self.dir, check=True)
        return sorted(out.splitlines()), files, notes

    def test_the_same_job_leaves_the_same_files(self):
        theirs = self.one_job(self.run_torchrun)
        ours = self.one_job(self.run_muster)
        self.assertEqual(ours[0], theirs[0])
        self.assertIn("[r0]:loss 0 of 1, 2", ours[0])
        self.assertIn("Flat is made", ours[0])
        self.assertEqual(ours[1], theirs[1])
        # Both attempts, the lines that passed the filter, and the errors of the second attempt.
        self.assertEqual(sorted(ours[1]), [
            "logs/err", "logs/losses", *sorted(f"logs/r-{rank}.{attempt}.{kind}"
                                               for rank in (0, 1) for attempt in (1, 2)
                                               for kind in ("json", "out"))])
        self.assertEqual(ours[1]["logs/err"], "error 0 of 1\n")
        # The plug-in was created with the same arguments, was asked twice, and ended by itself.
        self.assertEqual(len(ours[2]), 4)
        self.assertEqual(ours[2][0], theirs[2][0])
        self.assertEqual(ours[2][3], "over")
        for own, other in zip(ours[2][1:3], theirs[2][1:3]):
            for rank in ("0", "1"):
                differs = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
                self.assertEqual({**other[rank], "NODE_RANK": "0"}.keys(), own[rank].keys())
                self.assertEqual({n: v for n, v in other[rank].items() if n not in differs},
                                 {n: v for n, v in own[rank].items()
                                  if n not in differs | {"NODE_RANK"}})

    def test_a_name_that_no_package_has(self):
        sentence = "Could not find entrypoint under 'torchrun.logs_specs[nobodys]' key"
        self.refused("nobodys", sentence)
        code, _, err = self.run_torchrun("--logs-specs=nobodys", "x.py")
        self.assertEqual(code, 1)
        self.assertIn(sentence, err)


class PlugIns(LogsSpecsTest):
    def test_one_that_builds_on_torchs_own(self):
        script = self.script("worker.py", "import os\nprint(os.environ['TORCHELASTIC_ERROR_FILE'])\n")
        self.run_muster("--nproc-per-node=2", "--log-dir=logs", "-r1", "--logs-specs=changed",
                        script, expect=0)
        for rank in (0, 1):
            folder = f"logs/mine/attempt_0/{rank}"
            self.assertEqual(self.read(f"{folder}/stdout.log").strip(), f"{folder}/error.json")

    def test_both_streams_in_one_file_keep_their_order_and_nothing_of_old(self):
        script = self.script("worker.py", "import sys\nfor i in range(100):\n"
                             "    print(i, file=(sys.stdout, sys.stderr)[i % 2], flush=True)\n")
        _, out, _ = self.run_muster("--logs-specs=both", script, expect=0)
        self.assertEqual(self.read("both").split(), [str(i) for i in range(100)])
        self.assertEqual(out.split(), [f"[default0]:{i}" for i in range(100)])

    def test_a_failed_workers_error_file_is_where_the_plug_in_said(self):
        script = self.script("worker.py", "import os, sys\n"
                             "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
                             "    f.write('{\"message\": \"it was the disk\"}')\n"
                             "sys.exit(3)\n")
        _, _, err = self.run_muster("--nproc-per-node=2", "--tee=0:0", "--log-dir=logs",
                                    "--logs-specs=flat", script, expect=1)
        self.assertIn("it was the disk", err)
        self.assertIn("logs/default-", err)

    def test_a_dry_run_starts_no_plug_in(self):
        self.script("x.py", "")
        _, out, _ = self.run_muster("--dry-run", "--logs-specs=sleeps", "x.py", expect=0)
        self.assertIn("sleeps", out)
        self.assertFalse((self.dir / "loading").exists())


class Errors(LogsSpecsTest):
    def test_one_that_cannot_be_imported(self):
        err = self.refused("gone", "ModuleNotFoundError: No module named 'made_up_logs_that_are_not'")
        self.assertLess(len(err.splitlines()), 30)

    def test_a_plug_in_whose_class_name_is_misspelt(self):
        self.refused("misspelt", "AttributeError", "Flta")

    def test_one_that_ends_the_program(self):
        self.refused("exits", "SystemExit: not today")

    def test_one_that_is_abstract(self):
        self.refused("abstract", "TypeError: Can't instantiate abstract class LogsSpecs")

    def test_a_plug_in_that_makes_no_logs_specs(self):
        self.refused("other", "builtins:dict makes a dict, which is no LogsSpecs")

    def test_one_that_fails_at_work(self):
        self.refused("broken", "KeyError: 'JOB_NAME'", "in reify")

    def test_one_that_forgets_a_worker(self):
        more = ("--tee=0:0", "--log-dir=logs")
        script = self.script("never.py", "")
        _, _, err = self.run_muster("--nproc-per-node=2", "--logs-specs=half", *more, script,
                                    expect=1)
        self.assertIn("stdouts is for the local ranks {1}", err)

    def test_a_fifo_that_nobody_reads(self):
        script = self.script("never.py", "")
        _, _, err = self.run_muster("--logs-specs=fifo", script, expect=1)
        self.assertIn("cannot open the log files", err)

    def test_a_python_that_is_not_there(self):
        self.more["PYTHON_EXEC"] = str(self.dir / "no-python")
        self.refused("flat", "cannot start '")


class Restarts(LogsSpecsTest):
    def test_another_node_orders_a_restart_while_the_plug_in_is_asked(self):
        nodes = []
        endpoint = f"--rdzv-endpoint=localhost:{free_port()}"
        for name, flags, text in (
                ("other", ("--no-python",), """while [ ! -e asked ]; do sleep 0.05; done
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec touch again
exit 1"""),
                ("asking", ("--no-python", "--logs-specs=gated"), "echo here")):
            script = self.script(name + ".sh", "#!/bin/sh\n" + text + "\n")
            with open(self.dir / f"err.{name}", "wb") as err:
                nodes.append(self.start("--nnodes=2", "--max-restarts=3", "--rdzv-backend=c10d", endpoint, "--rdzv-id=job", *flags,
                                        script, env=self.more, stderr=err))
        wait_for(lambda: (self.dir / "again").exists(), "the next round", 3 * PATIENCE_S)
        time.sleep(0.5)  # The node that asks has the round, too, and the first answer is still missing.
        (self.dir / "gate.0").touch()
        wait_for(lambda: self.read("asked") == "xx", "the second question")
        time.sleep(0.5)  # The first answer is read, and the second one comes alone.
        (self.dir / "gate.1").touch()
        for node in nodes:
            self.assertEqual(node.wait(2 * PATIENCE_S), 0, self.read("err.asking") + self.read("err.other"))
        self.assertEqual(self.read("asked"), "xx")
        self.assertEqual((self.read("gated.1"), self.read("gated.2")), ("", "here\n"))


class Signals(LogsSpecsTest):
    COPIES = False

    def stopped_while(self, name):
        # The workers' shutdown timeout is longer than the test's limit: muster does not wait for
        # it.
        process = self.start("--standalone", "--shutdown-timeout=1000", f"--logs-specs={name}",
                             self.script("x.py", ""), env=self.more)
        wait_for(lambda: (self.dir / "loading").exists(), "the plug-in", 3 * PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        self.assert_nothing_left()
        return process.returncode

    def test_during_the_import(self):
        self.assertEqual(self.stopped_while("sleeps"), -signal.SIGTERM, self.read("err"))

    def test_while_it_is_asked(self):
        self.assertEqual(self.stopped_while("waits"), 1, self.read("err"))

    def test_kill_9_of_muster(self):
        process = self.start("--standalone", "--logs-specs=sleeps", self.script("x.py", ""),
                             env=self.more)
        wait_for(lambda: (self.dir / "loading").exists(), "the plug-in", 3 * PATIENCE_S)
        process.kill()
        self.assert_nothing_left()


if __name__ == "__main__":
    if not python_has_torch(TORCH_PYTHON):
        print(f"skipped: {TORCH_PYTHON} has no torch")
        sys.exit(77)
    sys.exit(main())
