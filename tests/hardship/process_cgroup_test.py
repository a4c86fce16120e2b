#!/usr/bin/env python3
"""In a cgroup that was delegated to muster, the workers have a cgroup of their own, and the kernel kills all of its
processes at once."""
import contextlib
import os
import pathlib
import signal
import subprocess

from hardship import shim_of, skip_all
from support import MUSTER, MusterTest, main, wait_for

# A descendant that nothing leads to: its own session, an empty environment, parents that have ended.
STRAY = """#!/bin/sh
(setsid env -i sh -c 'sleep "$1" & echo $! > stray' sh "$E2E_SLEEP" >/dev/null 2>&1 </dev/null &)
while [ ! -s stray ]; do sleep 0.02; done
cat /proc/self/cgroup > cgroup
echo $LOCAL_RANK >> ready
while [ ! -e finish ]; do sleep 0.02; done
"""
# Four chains of processes; each of them lives for a moment, and has a child before it ends.
BOMB = """
import os, signal, sys, time
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            if os.fork() != 0:
                os._exit(0)
open("ready", "w").write("0\\n")
time.sleep(1000)
"""
# Rank 0 fails once, when both ranks are there.
WARM = """
import os, sys, time
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
for name, text in (("cgroups", open("/proc/self/cgroup").read()), ("ready", attempt + "\\n")):
    with open(name, "a") as file:
        file.write(text)
while not os.path.exists("finish"):
    if attempt == "0" and os.environ["RANK"] == "0" and open("ready").read().count("0") == 2:
        sys.exit(3)
    time.sleep(0.01)
"""


def place_for_cgroups():
    """The folder of a cgroup v2 in which we may make others; None: there is none."""
    if os.geteuid() != 0:
        return None
    for mount in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified")):
        lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), None)
        if own is not None and (mount / own.lstrip("/") / "cgroup.procs").exists() and os.access(mount, os.W_OK):
            return mount
    return None


class Cgroup(MusterTest):
    def setUp(self):
        super().setUp()
        self.cgroup = place_for_cgroups() / f"test-{self.dir.name}"
        self.cgroup.mkdir()
        self.addCleanup(self.remove_cgroup)
        if not (self.cgroup / "cgroup.kill").exists():
            self.skipTest("the kernel is older than Linux 5.14: no cgroup.kill")

    def remove_cgroup(self):
        with contextlib.suppress(OSError):
            (self.cgroup / "cgroup.kill").write_text("1")
        wait_for(self.is_removed, "the cgroup to be empty")

    def is_removed(self):
        for folder in [*self.cgroup.glob("muster-*"), self.cgroup]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not self.cgroup.exists()

    def begin(self, *args, delegated=True, before=(), ready=1):
        if delegated:
            os.setxattr(self.cgroup, "trusted.delegate", b"1")  # As systemd marks it.
        procs = self.cgroup / "cgroup.procs"
        with open(self.dir / "err", "wb") as err:
            process = subprocess.Popen(["sh", "-c", 'echo $$ > "$0"; exec "$@"', procs, *before, MUSTER, *map(str, args)],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                       env=self.environment(), cwd=self.dir)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.ready(ready)
        return process

    def stray(self):
        return self.begin("--no-python", self.script("stray.sh", STRAY))

    def test_the_workers_are_in_one_and_it_goes_with_the_job(self):
        process = self.stray()
        self.assertRegex(self.read("cgroup"), rf"0::.*/{self.cgroup.name}/muster-[0-9a-f]{{16}}\n")
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(60), 0, self.read("err"))
        self.assert_nothing_left()
        self.assertEqual(list(self.cgroup.glob("muster-*")), [])

    def test_workers_of_a_zygote_are_in_it_before_their_script_runs(self):
        process = self.begin("--warm", "--nproc-per-node=2", "--max-restarts=1", self.script("warm.py", WARM), ready=4)
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(60), 0, self.read("err"))
        self.assertNotIn("start cold", self.read("err"))
        lines = [line for line in self.read("cgroups").splitlines() if line.startswith("0::")]
        self.assertEqual(len(lines), 4)
        self.assertEqual(len(set(lines)), 1)
        self.assertRegex(lines[0], rf"0::.*/{self.cgroup.name}/muster-[0-9a-f]{{16}}$")
        self.assert_nothing_left()
        self.assertEqual(list(self.cgroup.glob("muster-*")), [])

    def test_no_process_survives_when_front_and_shim_are_killed_at_once(self):
        process = self.stray()
        for pid in (process.pid, shim_of(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self.assert_nothing_left()
        wait_for(lambda: not list(self.cgroup.glob("muster-*")), "the agent to remove the cgroup")

    def test_processes_that_fork_faster_than_they_are_found(self):
        process = self.begin(self.script("bomb.py", BOMB))
        process.terminate()
        self.assertEqual(process.wait(60), 1, self.read("err"))
        self.assert_nothing_left()
        self.assertEqual(list(self.cgroup.glob("muster-*")), [])

    def test_two_jobs_in_two_pid_namespaces_do_not_touch_each_other(self):
        """In each namespace the processes have the same pids."""
        namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        worker = self.script("worker.sh", """#!/bin/sh
cat /proc/self/cgroup >> cgroups
echo $1 >> ready
while [ ! -e finish.$1 ]; do sleep 0.02; done
""")
        jobs = [self.begin("--no-python", worker, name, before=namespace, ready=number)
                for number, name in enumerate(("short", "long", "killed"), 1)]
        self.assertEqual(len({line for line in self.read("cgroups").splitlines() if line.startswith("0::")}), 3)
        (self.dir / "finish.short").touch()
        self.assertEqual(jobs[0].wait(60), 0, self.read("err"))
        jobs[2].kill()
        jobs[2].wait()
        wait_for(lambda: len(list(self.cgroup.glob("muster-*/cgroup.procs"))) >= 1, "the cgroup of the long job")
        (self.dir / "finish.long").touch()
        self.assertEqual(jobs[1].wait(60), 0, self.read("err"))

    def test_a_cgroup_that_is_not_delegated_stays_as_it_is(self):
        process = self.begin("--no-python", self.script("stray.sh", STRAY), delegated=False)
        self.assertRegex(self.read("cgroup"), rf"0::.*/{self.cgroup.name}\n")
        self.assertEqual([path for path in self.cgroup.iterdir() if path.is_dir()], [])
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    if place_for_cgroups() is None:
        skip_all("it needs root, and a cgroup v2 in which cgroups can be made")
    main()
