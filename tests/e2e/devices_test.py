#!/usr/bin/env python3
"""Tests the binding of workers to CPUs, scripts run by runpy, and scripts that cannot be run."""
import json
import os
import sys

from support import MusterTest, main

CPUS = sorted(os.sched_getaffinity(0))
WHERE = """
import json, os, threading
inherited = []
thread = threading.Thread(target=lambda: inherited.extend(os.sched_getaffinity(0)))
thread.start(); thread.join()
json.dump([sorted(os.sched_getaffinity(0)), sorted(inherited)],
          open("cpus." + os.environ["LOCAL_RANK"], "w"))
"""


class NumaBinding(MusterTest):
    def bound(self, rank):
        process, thread = json.loads(self.read(f"cpus.{rank}"))
        self.assertEqual(process, thread)
        return process

    def test_without_the_option_workers_run_anywhere(self):
        self.run_muster("--standalone", self.script("where.py", WHERE), expect=0)
        self.assertEqual(self.bound(0), CPUS)

    def test_exclusive_gives_each_worker_cpus_of_its_own_after_a_restart_too(self):
        if len(CPUS) < 2:
            self.skipTest("one CPU")
        script = self.script("where.py", WHERE + "import sys\n"
                             "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
        code, _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--max-restarts=1",
                                       "--numa-binding=exclusive", script,
                                       env={"CUDA_VISIBLE_DEVICES": ""})
        if "core(s) that may be used" in err:
            self.skipTest("the CPUs are threads of one core")
        self.assertEqual(code, 0, err)
        first, second = self.bound(0), self.bound(1)
        self.assertTrue(first and second)
        self.assertFalse(set(first) & set(second))
        self.assertLessEqual({*first, *second}, set(CPUS))
        self.assertIn("no GPU is visible", err)

    def test_only_cpus_that_muster_itself_may_use(self):
        self.run_muster("--standalone", "--numa-binding=node", self.script("where.py", WHERE),
                        env={"CUDA_VISIBLE_DEVICES": ""}, expect=0,
                        preexec_fn=lambda: os.sched_setaffinity(0, {CPUS[-1]}))
        self.assertEqual(self.bound(0), [CPUS[-1]])

    def test_dry_run_shows_the_cpus(self):
        _, out, _ = self.run_muster("--standalone", "--dry-run", "--numa-binding=node",
                                    "--no-python", "true", env={"CUDA_VISIBLE_DEVICES": ""},
                                    expect=0)
        self.assertRegex(out, r"\n  CPUs +\d")

    def test_cpus_that_this_machine_has_not_are_a_start_failure(self):
        """On this made-up machine, the process may not use any CPU of the first node."""
        _, _, err = self.run_muster("--standalone", "--numa-binding=core-complex", "--no-python",
                                    "true", expect=1,
                                    env={"CUDA_VISIBLE_DEVICES": "",
                                         "HWLOC_SYNTHETIC": "numa:2 core:2 pu:1"})
        self.assertIn("share a cache", err)


SHOW = """
import json, os, sys
json.dump({"name": __name__, "argv": sys.argv, "file": __file__, "stdin": sys.stdin.read(),
           "fd0": os.readlink("/proc/self/fd/0"), "sid": os.getsid(0) == os.getpid(),
           "main": sys.modules["__main__"].__file__}, open("seen", "w"))
import beside
"""

END = """
import atexit, builtins, os, sys, threading, time

class Torn:
    def __del__(self):
        os.write(2, b"teardown")

builtins.kept = Torn()
sys.stdout = open(1, "w", buffering=1 << 16, closefd=False)

def late():
    time.sleep(0.2)
    print("thread")

atexit.register(lambda: print("exit-function\\nunflushed"))
threading.Thread(target=late).start()
sys.exit(7)
"""


class RunPath(MusterTest):
    def test_the_script_is_main_with_its_arguments_and_no_stdin(self):
        self.script("beside.py", "")
        script = self.script("show.py", SHOW)
        (self.dir / "in").write_text("not for the worker\n")
        for method in ("spawn", "fork", "forkserver"):
            with open(self.dir / "in") as stdin:
                self.run_muster("--standalone", "--run-path", f"--start-method={method}", script,
                                "a", "${local_rank}", expect=0, stdin=stdin)
            self.assertEqual(json.loads(self.read("seen")), {
                "name": "__main__", "argv": [str(script), "a", "0"], "file": str(script),
                "stdin": "", "fd0": "/dev/null", "sid": True, "main": str(script)})

    def test_a_folder_with_main(self):
        (self.dir / "package").mkdir()
        (self.dir / "package" / "__main__.py").write_text("open('ran', 'w').write(__name__)\n")
        self.run_muster("--standalone", "--run-path", "package", expect=0)
        self.assertEqual(self.read("ran"), "__main__")

    def test_an_exception_is_in_the_summary_and_on_stderr_without_our_frames(self):
        script = self.script("fail.py", "def f():\n    raise ValueError('boom')\nf()\n")
        _, _, err = self.run_muster("--standalone", "--run-path", script, expect=1)
        self.assertIn("run_script_path FAILED", err)
        self.assertRegex(err, r"traceback : Traceback \(most recent call last\):\n"
                              r"    File .*fail.py., line 3, in <module>")
        self.assertIn("error_file: /", err)
        self.assertEqual(err.count("ValueError: boom"), 2)
        self.assertNotIn("runpy", err)

    def test_exits_are_the_scripts_own(self):
        for text, code in (("import sys; sys.exit(0)", 0), ("import sys; sys.exit()", 0),
                           ("import sys; sys.exit(9)", 9), ("raise SystemExit('no')", 1),
                           ("import os; os.kill(os.getpid(), 9)", 128 + 9)):
            with self.subTest(text=text):
                self.run_muster("--standalone", "--run-path", "--exit-code=propagate",
                                self.script("exit.py", text), expect=code)

    def test_the_end_runs_threads_and_exit_functions_but_not_the_teardown(self):
        """torch's native threads abort the process if they still run while the interpreter shuts
        down."""
        script = self.script("end.py", END)
        _, out, err = self.run_muster("--standalone", "--run-path", "--exit-code=propagate", script,
                                      expect=7)
        self.assertEqual(out.split(), ["thread", "exit-function", "unflushed"])
        self.assertNotIn("teardown", err)

    def test_output_that_cannot_be_written_at_the_end_is_a_failure(self):
        script = self.script("full.py", "import sys\n"
                                        "sys.stdout = open('/dev/full', 'w')\nprint('lost')\n")
        self.run_muster("--standalone", "--run-path", "--exit-code=propagate", script, expect=120)


class StartUp(MusterTest):
    def test_a_script_that_cannot_be_run_fails_at_once_and_spends_no_restart(self):
        (self.dir / "empty").mkdir()
        for flags in ([], ["--run-path"]):
            for script, why in (("missing.py", "No such file or directory"),
                                ("empty", "without __main__.py")):
                with self.subTest(flags=flags, script=script):
                    _, _, err = self.run_muster("--standalone", "--max-restarts=3", *flags, script,
                                                expect=1)
                    self.assertIn(f"cannot run the script '{script}'", err)
                    self.assertIn(why, err)
                    self.assertEqual(len(err.splitlines()), 1, err)

    def test_scripts_of_every_kind_run(self):
        self.script("plain.py", "")
        (self.dir / "folder").mkdir()
        (self.dir / "folder" / "__main__.py").write_text("")
        os.mkfifo(self.dir / "pipe.py")
        writer = os.open(self.dir / "pipe.py", os.O_RDWR)
        self.addCleanup(os.close, writer)
        for words in (["plain.py"], ["folder"], ["--", "-c", "pass"], ["-"]):
            with self.subTest(words=words):
                self.run_muster("--standalone", *words, expect=0)


if __name__ == "__main__":
    sys.exit(main())
