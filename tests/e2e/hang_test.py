#!/usr/bin/env python3
"""Tests that muster finds a worker that hangs, names it with its line and ends it. SIGUSR2 asks for
the same evidence."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from support import MUSTER, PATIENCE_S, SOURCE, MusterTest, main, python_has_torch, wait_for

# One rank stands still while the others work. The second attempt succeeds.
WORKER = """import os, sys, threading
def stand_still():
    threading.Event().wait()  # the line
def work():
    while True: sum(range(1000))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1": sys.exit(0)
with open("ready", "a") as f: print("x", file=f)
stand_still() if os.environ["RANK"] == os.environ.get("STILL", "1") else work()
"""
LINE = "stand_still"

# Both ranks report progress. Then rank 1 spins, as NCCL does, and prints, and rank 0 ends its
# progress reports first.
SPINNER = """import json, os, socket, time
rank = int(os.environ["LOCAL_RANK"])
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
def tell(**message): channel.sendall(json.dumps(message).encode() + b"\\n")
tell(type="hello", local_rank=rank)
tell(type="progress", step=1)
if rank == 0: tell(type="progress_end")
while True:
    sum(range(1000))
    print(rank)
"""

# Takes the place of py-spy: it waits until the file "seen" exists, for a few seconds at most.
SLOW_PY_SPY = """#!/bin/sh
touch asked
for i in $(seq 100); do [ -e seen ] && exit; sleep 0.05; done
"""

# Takes the place of py-spy: it lets rank 0 end, and waits until rank 0 has ended. It shows rank 1 as
# waiting for other ranks, so that muster prefers to end rank 0.
HELPFUL_PY_SPY = """#!/bin/sh
if [ "$*" = "dump --full-filenames --pid $(cat rank0)" ]; then
    echo > fifo
    while [ -e /proc/$(cat rank0) ]; do sleep 0.05; done
else
    printf 'Thread 1 (idle): "MainThread"\n    wait (/x/torch/distributed/y.py:1)\n'
fi
"""


def py_spy():
    found = [p for p in (SOURCE / ".venv/bin/py-spy", shutil.which("py-spy")) if p]
    return next((pathlib.Path(p) for p in found if os.access(p, os.X_OK)), None)


class Hang(MusterTest):
    def environment(self, **more):
        path = os.environ["PATH"]
        more.setdefault("PATH", f"{py_spy().parent}:{path}" if py_spy() else path)
        more.setdefault("PYTHON_EXEC", sys.executable)
        return super().environment(**more)

    def stacks(self, attempt=0):
        return {p.parent.name: p.read_text()
                for p in self.dir.glob(f"logs/*/attempt_{attempt}/*/stacks.0.txt")}

    def run_hanging(self, *args, **more):
        script = self.script("worker.py", WORKER)
        return self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", *args,
                               script, **more)

    def test_a_worker_that_hangs_is_named_and_ended(self):
        _, _, err = self.run_hanging("--hang-timeout=1", expect=1)
        self.assertRegex(err, r"local rank 1 \(pid \d+\) hangs: no output and no CPU time for 1")
        self.assertRegex(err, r"(?s)Root Cause.*rank +: 1 .*-6 .*SIGABRT.*\n"
                              r"  it hung: no output and no CPU time for 1\S* s \(--hang-timeout\)\n"
                              r"(  it stood at .*\n)?  its stacks: \S*/1/stacks\.0\.txt\n")
        self.assertEqual(set(self.stacks()), {"0", "1"})
        for text in self.stacks().values():
            self.assertIn("threads in the kernel", text)
            self.assertRegex(text, r"thread \d+ python\S*: state [RS]")

    def test_a_worker_that_spins_must_keep_its_promise_of_progress(self):
        script = self.script("spin.py", SPINNER)
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-r3",
                                    "--hang-timeout=2", script, expect=1)
        self.assertRegex(err, r"local rank 1 \(pid \d+\) hangs: no report of progress for 2")
        self.assertIn("  it hung: no report of progress for 2", err)
        # The workers' socket has been removed.
        self.assertEqual(list(self.dir.glob("logs/*/channel")), [])

    def run_with_py_spy(self, tool, body, *args):
        self.script("py-spy", tool)  # muster looks beside the workers' program first.
        script = self.script("worker.py", f"#!{sys.executable}\n{body}")
        return self.start("--standalone", "--nproc-per-node=2", "--log-dir=logs", "--no-python",
                          *args, script)

    def test_a_hang_while_stacks_are_written_is_found_later(self):
        # A person asks for stacks. While py-spy runs, the worker that spins breaks its promise of progress.
        spinner = SPINNER.replace("while True:", """end = time.monotonic() + 3
while not os.path.exists("asked"): tell(type="progress", step=2); time.sleep(0.01)
while True:
    if time.monotonic() > end: open("seen", "w").close()""")
        process = self.run_with_py_spy(SLOW_PY_SPY, "open('ready', 'a').write('x\\n')\n" + spinner,
                                       "-r3", "--hang-timeout=1")
        self.ready(2)
        process.send_signal(signal.SIGUSR2)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("  it hung: no report of progress for ", self.read("err"))

    def test_the_watch_goes_on_if_the_hanging_worker_ends_by_itself(self):
        os.mkfifo(self.dir / "fifo")
        process = self.run_with_py_spy(HELPFUL_PY_SPY, """import os, threading
if os.environ["RANK"] == "0":
    print(os.getpid(), file=open("rank0", "w"))
    open("fifo").read()
else: threading.Event().wait()
""", "--hang-timeout=1")
        self.assertEqual(process.wait(PATIENCE_S), 1)
        err = self.read("err")
        self.assertIn("an idle worker has ended by itself meanwhile", err)
        self.assertRegex(err, r"(?s)Root Cause.*rank +: 1 .*  it hung: no output and no CPU time for ")

    def test_the_line_is_named(self):
        if not py_spy():
            self.skipTest("py-spy is not installed, neither in .venv nor in PATH")
        _, _, err = self.run_hanging("--hang-timeout=1", expect=1)
        if "not permitted" in err:
            self.skipTest("ptrace is not permitted here")
        self.assertRegex(err, r"local rank 1 .* hangs: .*; it stands at stand_still "
                              r"\(\S*/worker.py:3\), inside \S+ \(\S+threading.py:\d+\)")
        self.assertIn(f"    {LINE} (", self.stacks()["1"])
        self.assertIn("    work (", self.stacks()["0"])
        self.assertIn("native stacks, by ", self.stacks()["1"])

    def test_in_a_job_of_torch_the_one_that_keeps_the_others_waiting_is_named(self):
        python = SOURCE / ".venv/bin/python"
        if not py_spy() or not python_has_torch(python):
            self.skipTest("no torch in .venv, or no py-spy")
        # The ranks load torch at different speeds. Until all are there, each one prints, so that none seems to hang.
        script = self.script("train.py", """import os, threading, time, torch, torch.distributed as dist
def broken_augmentation():
    threading.Event().wait()
open("up." + os.environ["RANK"], "w").close()
while not all(os.path.exists(f"up.{rank}") for rank in range(3)): print("waits", flush=True); time.sleep(0.05)
dist.init_process_group("gloo")
for step in range(1000):
    if step == 20 and dist.get_rank() == 1: broken_augmentation()
    dist.all_reduce(torch.ones(4))
""")
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=3", "--hang-timeout=5",
                                    "--log-dir=logs", script, env={"PYTHON_EXEC": str(python)},
                                    expect=1)
        if "not permitted" in err:
            self.skipTest("ptrace is not permitted here")
        self.assertRegex(err, r"local rank 0 .*train.py:9\), inside all_reduce .*; stacks: ")
        self.assertRegex(err, r"local rank 1 .* hangs: .* stands at broken_augmentation .*2 more idle")
        self.assertRegex(err, r"(?s)Root Cause.*rank +: 1 ")

    def test_a_hang_costs_a_restart(self):
        _, _, err = self.run_hanging("--hang-timeout=1", "--max-restarts=1", expect=0)
        self.assertIn("restarting all workers", err)
        self.assertEqual(set(self.stacks()), {"0", "1"})
        self.assertEqual(self.stacks(attempt=1), {})

    def test_a_worker_that_ignores_sigabrt_is_killed(self):
        script = self.script("deaf.sh", "#!/bin/sh\ntrap '' ABRT TERM\nsleep 1000\n")
        _, _, err = self.run_muster("--standalone", "--hang-timeout=0.3", "--no-python", script,
                                    expect=1)
        self.assertIn("(exitcode: -9)", err)
        self.assertEqual(self.token.processes(), {})

    def test_a_worker_that_works_or_writes_does_not_hang(self):
        # Each rank works for longer than the timeout, in one way: by CPU time, by output, or by a
        # child's work. The timeout is long, because a rank of a busy machine may get no CPU for a moment.
        script = self.script("busy.py", """import os, subprocess, sys, time
end = time.monotonic() + 5
rank = os.environ["RANK"]
if rank == "0":
    while time.monotonic() < end: pass
elif rank == "1":
    while time.monotonic() < end: print("alive", flush=True); time.sleep(0.01)
else:
    subprocess.run([sys.executable, "-S", "-c",
                    "import time; end = time.monotonic() + 5\\nwhile time.monotonic() < end: pass"])
""")
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=3", "--hang-timeout=3",
                                    script, expect=0)
        self.assertNotIn("no output", err)

    def test_a_worker_that_waits_for_the_reader_of_the_console_does_not_hang(self):
        # A full pipe holds 64 KiB, and muster keeps some more. Rank 0 waits in write, rank 1 waits for rank 0.
        script = self.script("writer.py", """import os, sys, time
if os.environ["RANK"] == "0":
    for _ in range(400): sys.stdout.write("x" * 9_999 + "\\n")
    open("written", "w").close()
while not os.path.exists("written"): time.sleep(0.2)
""")
        process = self.start("--standalone", "--nproc-per-node=2", "--hang-timeout=1", script, stdout=subprocess.PIPE)
        time.sleep(4)
        self.assertIsNone(process.poll(), self.read("err"))
        self.assertFalse((self.dir / "written").exists())
        self.assertEqual(process.stdout.read().count(b"x" * 9_999), 400)
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_without_the_option_workers_are_not_watched(self):
        script = self.script("still.sh", "#!/bin/sh\nsleep 1.5\n")
        _, _, err = self.run_muster("--standalone", "--no-python", script, expect=0)
        self.assertNotIn("no output", err)

    def test_sigusr2_writes_stacks_and_the_job_goes_on(self):
        script = self.script("worker.py", """import os, time
with open("ready", "a") as f: print("x", file=f)
while not os.path.exists("go"): time.sleep(0.01)
""")
        process = self.start("--standalone", "--nproc-per-node=2", "--log-dir=logs", script)
        self.ready(2)
        for n in range(4):  # More signals than the shim tolerates before it ends the job at once.
            process.send_signal(signal.SIGUSR2)
            wait_for(lambda: len(list(self.dir.glob(f"logs/*/attempt_0/*/stacks.{n}.txt"))) == 2
                     and self.read("err").count("stacks: ") == 2 * (n + 1), "the stacks")
        self.assertIn("received SIGUSR2: writing where the workers stand", self.read("err"))
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))

    def test_a_worker_that_has_just_started_is_not_left_out(self):
        late_calls = pathlib.Path(MUSTER).parents[1] / "tests/liblate_calls.so"
        if not late_calls.exists():
            self.skipTest("this build has no tests/liblate_calls.so: a sanitizer's runtime would be loaded after it")
        # The last worker asks at once: it signals its parent's parent.
        script = self.script("worker.sh", """#!/bin/sh
if [ $RANK = 7 ]; then read -r _ _ _ front _ < /proc/$PPID/stat; kill -USR2 $front; fi
while [ ! -e go ]; do sleep 0.05; done
""")
        # When the first worker runs, the shim wakes, and is late. Meanwhile the other workers begin to run, and the
        # last one's signal arrives: the shim reads it before it has noticed that worker.
        late = {"LD_PRELOAD": late_calls, "LATE_CALLS": "100000", "LATE_CALLS_US": "600000",
                "LATE_CALLS_IN": "muster-shim", "LATE_CALLS_AFTER": "epoll_wait"}
        process = self.start("--standalone", "--nproc-per-node=8", "--log-dir=logs", "--no-python", script, env=late)
        wait_for(lambda: "7" in self.stacks(), "the stacks of the worker that asked")
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_stacks_outlive_a_success_without_log_directory(self):
        script = self.script("worker.sh", """#!/bin/sh
echo x >> ready
while [ ! -e go ]; do sleep 0.05; done
""")
        for options in ([], ["--log-dir=/dev/null"]):
            with self.subTest(options=options):
                for name in ("ready", "go"):
                    (self.dir / name).unlink(missing_ok=True)
                process = self.start("--standalone", *options, "--no-python", script)
                self.ready(1)
                process.send_signal(signal.SIGUSR2)
                wait_for(lambda: "stacks: " in self.read("err"), "the stacks")
                (self.dir / "go").touch()
                self.assertEqual(process.wait(PATIENCE_S), 0)
                path = pathlib.Path(re.search(r"stacks: (\S+)", self.read("err"))[1])
                ours = next((p for p in path.parents if p.name.startswith("muster_")), None)
                if ours:  # The file may be in memory, outside of the folders that the test removes.
                    self.addCleanup(shutil.rmtree, ours, ignore_errors=True)
                self.assertIn("SIGUSR2 was received", path.read_text())

    def test_sigusr2_is_the_users_when_listed(self):
        script = self.script("worker.sh", "#!/bin/sh\necho x >> ready\nsleep 1000\n")
        process = self.start("--standalone", "--signals-to-handle=SIGUSR2", "--no-python", script)
        self.ready(1)
        process.send_signal(signal.SIGUSR2)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("death signal (SIGUSR2): stopping the workers", self.read("err"))

    def test_without_permission_it_says_what_to_do(self):
        # A program that answers as py-spy does with Yama or without CAP_SYS_PTRACE.
        (self.dir / "bin").mkdir()
        self.script("bin/py-spy", "#!/bin/sh\necho 'Permission Denied: Try running again with "
                                  "elevated permissions' >&2\nexit 1\n")
        script = self.script("worker.sh", "#!/bin/sh\necho x >> ready\nsleep 1000\n")
        process = self.start("--standalone", "--log-dir=logs", "--no-python", script,
                             env={"PATH": f"{self.dir}/bin:/bin:/usr/bin"})
        self.ready(1)
        process.send_signal(signal.SIGUSR2)
        wait_for(lambda: "ptrace_scope" in self.read("err"), "the advice")
        self.assertIn("SYS_PTRACE", self.stacks()["0"])

    def test_a_tool_that_never_ends_is_stopped(self):
        (self.dir / "bin").mkdir()
        for tool in ("py-spy", "gdb", "eu-stack"):
            self.script(f"bin/{tool}", "#!/bin/sh\nexec sleep 1000\n")
        script = self.script("worker.sh", "#!/bin/sh\necho x >> ready\nexec sleep 1000\n")
        process = self.start("--standalone", "--log-dir=logs", "--no-python", script,
                             env={"PATH": f"{self.dir}/bin:/bin:/usr/bin"})
        self.ready(1)
        process.send_signal(signal.SIGUSR2)
        wait_for(lambda: "sleep 1000" in " ".join(self.token.processes().values()) and self.stacks(),
                 "the tool to be run")
        process.terminate()  # The tool neither delays the end of muster nor outlives it.
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.token.processes(), {})


if __name__ == "__main__":
    sys.exit(main())
