#!/usr/bin/env python3
"""Storage hangs under files that muster and its workers use: three signals, or a limit of 30 s, still end muster."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from hardship import HardshipTest, own_mounts, silent_fs, state_of
from support import MUSTER, main, wait_for

SIGNALS_BOUND_S = 20  # Less than the 30 s after which one signal would end muster.


class StorageTest(HardshipTest):
    def end_by_three_signals(self, process):
        """The third event ends muster even if its agent hangs."""
        # -SIGTERM: muster was still in its launcher.
        self.assertIn(self.end_by_signals(process, SIGNALS_BOUND_S), (1, -signal.SIGTERM))


class Storage(StorageTest):
    def setUp(self):
        super().setUp()
        self.dead = self.mount()
        self.fs.fall_silent()

    def end_by_three_signals(self, process):
        super().end_by_three_signals(process)
        wait_for(lambda: not self.workers(), "the workers' end")

    def workers(self):
        return [words for words in self.token.processes().values() if words.startswith("/bin/sh ")]

    def worker(self, then):
        return self.script("worker.sh", f"#!/bin/sh\necho $LOCAL_RANK >> {self.dir}/ready\n{then}\n")

    def test_below_the_report(self):
        process = self.start("--no-python", f"--failure-report={self.dead}/report.json",
                             self.worker("exit 3"))
        self.ready(1)
        self.end_by_three_signals(process)

    def test_below_the_error_file(self):
        process = self.start("--no-python", self.worker("exit 3"),
                             env={"TORCHELASTIC_ERROR_FILE": f"{self.dead}/error.json"})
        self.ready(1)
        self.end_by_three_signals(process)

    def test_below_tmpdir(self):
        (self.dir / "tmp").rmdir()
        (self.dir / "tmp").symlink_to(self.dead)
        process = self.start("--no-python", "--tee=3", self.worker("sleep 1000"))
        wait_for(lambda: len(self.token.processes()) >= 3, "muster's three")
        self.end_by_three_signals(process)

    def test_below_the_runtime_directory(self):
        memory, self.memory = self.memory, str(self.dead)
        process = self.start("--no-python", self.worker("sleep 1000"))
        self.memory = memory
        wait_for(lambda: "storage does not answer" in self.read("err"), "a word about it")
        self.end_by_three_signals(process)

    def test_below_the_program(self):
        # Found by env, in a worker that has started, and by muster itself.
        for command in (("/usr/bin/env", f"{self.dead}/program"), (f"{self.dead}/program",)):
            with self.subTest(command=command):
                process = self.start("--no-python", "--nproc-per-node=2", *command)
                wait_for(lambda: len(self.token.processes()) >= 3, "muster's three")
                self.end_by_three_signals(process)


class SickProcess(HardshipTest):
    """A stranger on the machine closes a file on dead storage while it executes a program. Since Linux 6.18 nobody
    can read its /proc/PID/stat meanwhile, and on every Linux nobody its environ."""

    def test_a_process_that_cannot_be_read_holds_up_no_job(self):
        file = self.mount() / "file"
        file.touch()
        begin = (f"import os; os.open({str(file)!r}, os.O_RDONLY); print(flush=True); input(); "
                 "os.execv('/bin/true', ['true'])")
        sick = subprocess.Popen([sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(sick.communicate)
        self.addCleanup(self.fs.server.kill)
        sick.stdout.readline()
        self.fs.fall_silent()
        sick.stdin.write(b"\n")
        sick.stdin.flush()
        # It has no command line while it executes a program: it waits for the storage then.
        wait_for(lambda: not pathlib.Path(f"/proc/{sick.pid}/cmdline").read_bytes(), "the sick process", 30)
        self.assertIsNone(sick.poll())
        # The child left behind makes muster look for descendants. With this timeout the hang detector looks at all
        # processes each second, so it does that twice.
        process = self.start("--no-python", "--hang-timeout=10", self.script(
            "worker.sh", "#!/bin/sh\nsetsid sleep 1000 &\nsleep 2.5\n"))
        self.assertEqual(process.wait(60), 0)
        self.assertIsNone(sick.poll())


class Stuck(StorageTest):
    """Workers that wait in the kernel for storage: not even SIGKILL ends them before the storage answers."""
    KILL_BOUND_S = 40  # --shutdown-timeout=1, and 30 s for processes that cannot be killed.

    def environment(self, **more):
        """Names a Python that is not the script of a version manager: such a script would read the current folder."""
        return super().environment(**{"PYTHON_EXEC": sys.executable, **more})

    def begin(self, *args, **more):
        return self.start("--standalone", "--shutdown-timeout=1", "--failure-report=report.json", *args, **more)

    def stuck(self, count=1):
        """Waits until so many processes wait for the storage, which has taken their requests: [pid]"""
        if self.fs.never:
            self.fs.wait_for_unanswered(count)

        def found():
            waiting = [pid for pid in self.token.processes()
                       if any(where == "request_wait_answer" for _, _, where in state_of(pid))]
            return waiting if len(waiting) == count else None
        return wait_for(found, f"{count} processes to wait for the storage")

    def assert_left_behind(self, pids):
        """Only these workers are left, and end when the storage is given up."""
        wait_for(lambda: set(self.token.processes()) <= set(pids), "the end of all others")
        self.fs.__exit__()
        self.assert_nothing_left()

    def waiting_in(self, folder, *args):
        """A muster that begins in this folder when its stdin is closed."""
        words = ["/bin/sh", "-c", 'cd "$0" && echo in >> "$1" && read line; shift; exec "$@" < /dev/null', folder,
                 self.dir / "waiting", MUSTER, *args]
        before = len(self.read("waiting").split())
        with open(self.dir / "err", "ab") as err:
            process = subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=err, stderr=err,
                                       env=self.environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        wait_for(lambda: len(self.read("waiting").split()) > before, "the shell to be in the folder")
        return process

    def unchecked(self, path):
        wait_for(lambda: f"{path} was not checked: its storage does not answer" in self.read("err"),
                 "a line about the storage")

    def test_a_script_that_the_launcher_cannot_look_at(self):
        folder = self.mount()
        (folder / "train.py").touch()
        self.fs.fall_silent()
        process = self.begin("--nproc-per-node=2", folder / "train.py")
        self.unchecked(folder / "train.py")
        stuck = self.stuck(3)  # And the child of the launcher that looks at the script.
        self.end_by_three_signals(process)
        self.assert_left_behind(stuck)

    def test_a_signal_while_the_launcher_looks_at_the_script(self):
        """The child that looks at it does not stay and wait for the storage."""
        folder = self.mount()
        (folder / "train.py").touch()
        self.fs.fall_silent()
        process = self.begin("--nproc-per-node=2", folder / "train.py")
        wait_for(lambda: any(pid != process.pid for pid in self.token.processes()), "the child of the launcher")
        process.terminate()
        self.assertEqual(process.wait(20), -signal.SIGTERM)
        wait_for(lambda: not any(state == "S" for pid in self.token.processes() for _, state, _ in state_of(pid)),
                 "the child to end, or to wait in the kernel with SIGKILL")

    def test_a_python_that_the_launcher_cannot_look_at(self):
        folder = self.mount()
        (folder / "bin").mkdir()
        (folder / "bin/python3").touch(0o755)
        self.fs.fall_silent()
        process = self.begin(self.script("train.py", ""), env={"VIRTUAL_ENV": str(folder), "PYTHON_EXEC": ""})
        self.unchecked(folder / "bin/python3")
        self.end_by_three_signals(process)
        self.fs.__exit__()
        wait_for(lambda: not self.token.processes(), "the end of all")

    def test_a_script_that_python_cannot_open(self):
        folder = self.mount(never={silent_fs.OPEN})
        (folder / "train.py").touch()
        process = self.begin("--nproc-per-node=2", folder / "train.py")
        stuck = self.stuck(2)
        self.end_by_three_signals(process)
        self.assert_left_behind(stuck)

    def test_one_signal_and_the_limit_for_processes_that_cannot_be_killed(self):
        folder = self.mount(never={silent_fs.OPEN})
        (folder / "train.py").touch()
        process = self.begin(folder / "train.py")
        stuck = self.stuck()
        begin = time.monotonic()
        process.terminate()
        self.assertEqual(self.end_of(process, self.KILL_BOUND_S), 1)
        self.assertGreater(time.monotonic() - begin, 30)
        self.assertEqual(self.report()["ended_by"], "signalled")
        self.assertIn(f"Process {stuck[0]} did not exit after SIGKILL: it is left behind", self.read("err"))
        self.assert_left_behind(stuck)

    def test_no_restart_beside_a_process_that_cannot_be_killed(self):
        folder = self.mount(never={silent_fs.OPEN})
        (folder / "data").touch()
        process = self.begin("--no-python", "--nproc-per-node=2", "--max-restarts=3", "/bin/sh", "-c",
                             f"echo $LOCAL_RANK >> ready; [ $LOCAL_RANK = 1 ] && exec cat {folder}/data; "
                             "until [ -e go ]; do sleep 0.05; done; exit 3")
        self.ready(2)
        stuck = self.stuck()
        (self.dir / "go").touch()
        self.assertEqual(self.end_of(process, self.KILL_BOUND_S), 1)
        self.assertEqual(len(self.read("ready").split()), 2)
        self.assertEqual(self.report()["failures"][0]["exitcode"], 3)
        self.assertIn(f"Process {stuck[0]} did not exit after SIGKILL: it is left behind", self.read("err"))
        self.assert_left_behind(stuck)

    def test_a_worker_that_hangs_and_cannot_be_killed_is_the_cause(self):
        folder = self.mount(never={silent_fs.OPEN})
        (folder / "data").touch()
        process = self.begin("--no-python", "--nproc-per-node=2", "--exit-code=propagate", "/bin/sh", "-c",
                             f"[ $LOCAL_RANK = 1 ] && exec cat {folder}/data; echo $$$$ >> ready; exec sleep 1000",
                             env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0.5",
                                  "TORCHELASTIC_ERROR_FILE": str(self.dir / "error.json")})
        self.ready(1)
        stuck = self.stuck()
        os.kill(stuck[0], signal.SIGTERM)  # It cannot end, but from now on its state is D.
        # muster sends SIGABRT to the stuck worker, SIGKILL after 10 s, and 10 s later SIGKILL to all.
        other = int(self.read("ready"))
        wait_for(lambda: other not in self.token.processes(), "the end of the other worker", 40)
        self.end_by_three_signals(process)  # Else muster waits 30 s for the stuck one.
        report = self.report()
        self.assertEqual((report["ended_by"], report["first_failure"]), ("worker_failed", 1))
        self.assertEqual([(one["rank"], one["exitcode"], one["victim"]) for one in report["failures"]],
                         [(0, -signal.SIGKILL, True), (1, None, False)])
        cause = self.read("err").partition("Root Cause")[2]
        self.assertRegex(cause, r"exitcode  : <N/A> \(pid: \d+\) \n.*\n  traceback : it waited in the kernel .*\n"
                                r"  it did not end after SIGKILL: it is left behind\n")
        self.assertIn("rank 1 on", json.loads(self.read("error.json"))["message"]["message"])
        self.assert_left_behind(stuck)

    def test_a_current_folder_that_does_not_answer(self):
        """A job that needs nothing from it is not disturbed; a script in it is like any script on dead storage."""
        folder = self.mount()
        (folder / "work").mkdir()
        (folder / "work/train.py").touch()
        script = self.script("exit.py", "import sys\nsys.exit(int(sys.argv[1]))\n")
        report = f"--failure-report={self.dir}/report.json"
        jobs = [self.waiting_in(folder / "work", "--exit-code=propagate", "--max-restarts=1", "--tee=3", report,
                                script, code) for code in (0, 3)]
        needs_folder = self.waiting_in(folder / "work", "--shutdown-timeout=1", "train.py")
        self.fs.fall_silent()
        for code, job in zip((0, 3), jobs):
            job.stdin.close()
            self.assertEqual(self.end_of(job, 30), code)
        self.assertEqual(self.report()["failures"][0]["exitcode"], 3)
        needs_folder.stdin.close()
        process = needs_folder
        self.unchecked("train.py")
        stuck = self.stuck(2)
        self.end_by_three_signals(process)
        self.assert_left_behind(stuck)


if __name__ == "__main__":
    if silent_fs.available():
        own_mounts()
    main()
