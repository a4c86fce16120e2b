#!/usr/bin/env python3
"""Tests that muster works, or reports why it cannot, with any signals, limits and files that it
inherits."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

from nodes import free_port
from support import MUSTER, PATIENCE_S, MusterTest, is_sanitized, main, shim_of, wait_for


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


class Signals(MusterTest):
    def test_a_parent_that_ignores_sigchld(self):
        code, _, err = self.run_muster(
            "--standalone", "--no-python", "--nproc-per-node=2", "/bin/sh", "-c", "exit 3",
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(code, 1)
        # The exit code is not lost, although with SIG_IGN the kernel keeps no exit status for a
        # parent.
        self.assertIn("exitcode  : 3", err)
        # Child processes check the script and Python.
        _, _, err = self.run_muster(
            "--dry-run", __file__, expect=0,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertNotIn("storage does not answer", err)

    def test_every_signal_ignored_or_blocked(self):
        """A careless parent may leave signals ignored or blocked. muster runs, stops when it gets a
        signal, and dies of that signal."""
        numbers = set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}

        def ignore_all():
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)

        for spoil in (ignore_all, lambda: signal.pthread_sigmask(signal.SIG_BLOCK, numbers)):
            self.run_muster("--standalone", "--no-python", "--nproc-per-node=2", "/bin/sh", "-c",
                            "sleep 0.01; exit 0", preexec_fn=spoil, expect=0)
            (self.dir / "ready").unlink(missing_ok=True)
            process = self.start("--standalone", "--no-python", "--nproc-per-node=2",
                                 "--shutdown-timeout=1", "/bin/sh", "-c",
                                 "echo x >> ready; exec sleep 1000", preexec_fn=spoil)
            self.ready(2)
            process.terminate()
            self.assertEqual(process.wait(PATIENCE_S), 1)
            self.assert_nothing_left()

    def test_what_workers_inherit(self):
        names = ["SIGCHLD", "SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGUSR1", "SIGWINCH"]

        def spoil():
            for name in names:
                signal.signal(getattr(signal, name), signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

        _, out, _ = self.run_muster(
            "--standalone", "--no-python", "/bin/sh", "-c",
            # Shows the kernel's masks of a program that does not change them.
            "exec grep -E '^Sig(Ign|Blk)' /proc/self/status", preexec_fn=spoil, expect=0)
        masks = {line.split(":")[0]: int(line.split(":")[1], 16) for line in out.splitlines()}

        def has(mask, name):
            return bool(masks[mask] >> (getattr(signal, name) - 1) & 1)

        ignored = {name for name in names if has("SigIgn", name)}
        self.assertEqual(ignored, {"SIGHUP", "SIGUSR1", "SIGWINCH"})

    def test_an_empty_entry_of_path_is_the_working_directory(self):
        script = self.script("shown.sh", "#!/bin/sh\necho \"as $0\"\n")
        os.chmod(script, 0o755)
        _, out, _ = self.run_muster("--standalone", "--no-python", "shown.sh",
                                    env={"PATH": f":{os.environ['PATH']}"}, expect=0)
        self.assertEqual(out, "as shown.sh\n")  # As under torchrun, without "./".

    def test_background_job_of_a_shell(self):
        """The shell ignores SIGINT and SIGQUIT for background jobs. kill -INT still ends muster."""
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c",
                             "echo x >> ready; exec sleep 1000",
                             preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN)
                                                 for n in (signal.SIGINT, signal.SIGQUIT)])
        self.ready(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("death signal (SIGINT)", self.read("err"))

    def test_a_signal_to_all_of_musters_processes_counts_once(self):
        """systemd and `pkill muster` signal all of muster's processes. The shutdown stays graceful:
        this is not the second signal, which kills."""
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c",
                             "trap 'echo graceful; sleep 0.2; exit 0' TERM; echo x >> ready; "
                             "while :; do sleep 0.01; done")
        self.ready(1)
        shim = shim_of(process.pid)
        for pid in (shim, process.pid):
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("graceful", self.read("out"))
        self.assertNotIn("again", self.read("err"))


def with_limit(which, soft, hard=None):
    """Returns a function for preexec_fn."""
    def apply():
        old = resource.getrlimit(which)
        resource.setrlimit(which, (soft, old[1] if hard is None else hard))
    return apply


class Limits(MusterTest):
    def test_more_workers_than_the_soft_limit_has_descriptors(self):
        _, out, _ = self.run_muster(
            "--standalone", "--no-python", "--nproc-per-node=48", "/bin/sh", "-c", "ulimit -Sn",
            preexec_fn=with_limit(resource.RLIMIT_NOFILE, 40), expect=0)
        # The worker has its original limit, not muster's.
        self.assertEqual(out.split(), ["40"] * 48)

    def test_too_few_descriptors_are_an_error_that_says_what_to_raise(self):
        if is_sanitized():
            self.skipTest("UBSan looks at objects through a pipe, and takes its lack for an error")
        seen = set()
        for limit in range(3, 60):
            code, _, err = self.run_muster(
                "--standalone", "--no-python", "--nproc-per-node=48", "--log-dir", self.dir / "logs",
                "-r3", "/bin/mkdir", "ran", preexec_fn=with_limit(resource.RLIMIT_NOFILE, limit, limit))
            if (self.dir / "ran").exists():
                # This limit suffices: muster closes one worker's descriptors before it opens those
                # of the next one.
                break
            self.assertNotEqual(code, 0, err)
            if code == 1:  # With other codes the program could not even be loaded.
                self.assertIn("raise it with `ulimit -n`", err, limit)
                self.assertNotIn("terminate called", err)
                seen.add(re.split(r"[:/']", err.splitlines()[-1].split("] ")[-1])[0].strip())
        self.assertIn("cannot open the log files in", seen)

    def test_too_few_descriptors_for_the_rendezvous_are_an_error_that_says_what_to_raise(self):
        if is_sanitized():
            self.skipTest("UBSan looks at objects through a pipe, and takes its lack for an error")
        errors = []
        for limit in range(8, 60):
            code, _, err = self.run_muster(
                "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-id=few", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                "--rdzv-conf=read_timeout=1", "--nproc-per-node=2", "--no-python", "/bin/true",
                preexec_fn=with_limit(resource.RLIMIT_NOFILE, limit, limit))
            if code == 0:
                break
            self.assertEqual(code, 1, err)
            self.assertNotIn("killed by signal", err, limit)
            self.assertRegex(err, "`ulimit -n`", limit)
            errors.append(err)
        for server in ("the rendezvous", "the workers' store"):
            self.assertIn(f"cannot host {server}: cannot make an event loop for it: Too many open files; "
                          "the limit of open files is reached", "".join(errors))

    def test_too_few_processes_are_an_error_that_says_what_to_raise(self):
        if os.getuid() != 0:
            self.skipTest("counts the processes of a user that has no others: needs root")
        os.chmod(self.dir, 0o777)
        os.chmod(self.dir / "tmp", 0o777)
        os.chmod(self.memory, 0o777)
        program = self.dir / "muster"  # A copy that this user may read.
        shutil.copy(MUSTER, program)
        nobody = 65534
        started = False
        for limit in range(1, 12):
            def spoil(count=limit):
                os.setgroups([])
                os.setgid(nobody)
                with_limit(resource.RLIMIT_NPROC, count, count)()
                os.setuid(nobody)
            process = subprocess.run(
                [program, "--standalone", "--no-python", "--nproc-per-node=4", "/bin/sleep", "0.05"],
                env=self.environment(), cwd=self.dir, capture_output=True, text=True, timeout=60,
                preexec_fn=spoil, check=False)
            started = started or process.returncode == 0
            if not started:
                self.assertEqual(process.returncode, 1, process.stderr)
                self.assertIn("raise it with `ulimit -u`", process.stderr, limit)
            self.assert_nothing_left()
        self.assertTrue(started)

    PIPE_SCRIPT = """
import fcntl, os, sys, time
open("ready", "a").write("x\\n")
jobs, workers, pipes = map(int, sys.argv[1:])
while os.path.getsize("ready") < 2 * workers:
    time.sleep(0.05)
if os.environ["RANK"] == "7":
    made = [os.pipe() for _ in range(pipes)]
    print("sizes", {fcntl.fcntl(reader, 1032) for reader, _ in made}, flush=True)
    open("measured", "a").write("x\\n")
while os.path.getsize("measured") < 2 * jobs:
    time.sleep(0.05)
"""

    def as_user(self, user, *words, **more):
        """Starts a program of a user that has no other pipes. $PROGRAM is a copy of muster that this user may read."""
        if os.getuid() != 0:
            self.skipTest("counts the pipes of a user that has no others: needs root")
        os.chmod(self.dir, 0o777)
        program = self.dir / "muster"
        if not program.exists():
            shutil.copy(MUSTER, program)

        def spoil():
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        return subprocess.Popen([program if word == "$PROGRAM" else word for word in words],
                                cwd=self.dir, preexec_fn=spoil, stdout=subprocess.PIPE, text=True,
                                env=self.environment(PYTHON_EXEC="/usr/bin/python3", XDG_RUNTIME_DIR="", TMPDIR="/tmp",
                                                     OMP_NUM_THREADS="1"),
                                **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **more})

    def jobs_of_a_user(self, user, jobs, workers, *options, pipes):
        """Runs several jobs at once. When all workers run, a worker of each job looks at the sizes of new pipes. They must
        be as large as usual."""
        script = self.script("pipe.py", self.PIPE_SCRIPT)
        # Hundreds of workers: only the one that looks needs Python.
        few = self.script("worker.sh", "#!/bin/sh\n[ $RANK = 7 ] && exec python3 pipe.py \"$@\"\n"
                                       "echo x >> ready\nread line < done\n")
        os.mkfifo(self.dir / "done")
        for name in ("ready", "measured", "done"):
            (self.dir / name).touch()
            (self.dir / name).chmod(0o666)
        started = [self.as_user(user, "$PROGRAM", f"--nproc-per-node={workers}", *options,
                                *(["--no-python", few] if workers > 100 else [script]),
                                *map(str, (jobs, jobs * workers, pipes)))
                   for _ in range(jobs)]
        wait_for(lambda: self.read("measured").count("x") == jobs or any(job.poll() is not None for job in started),
                 "a look at the pipes of each job")
        if workers > 100:
            end = os.open(self.dir / "done", os.O_RDWR)
            self.addCleanup(os.close, end)
            os.write(end, b"\n" * jobs * workers)
        for job in started:
            out, err = job.communicate(timeout=200)
            self.assertEqual(job.returncode, 0, err)
            self.assertTrue(out.endswith(f"sizes {{{16 * resource.getpagesize()}}}\n"), out)

    def test_a_job_leaves_pipes_to_the_users_other_programs(self):
        """A user's pipes may have 16,384 pages. When they are used up, each new pipe has two."""
        self.jobs_of_a_user(54321, 1, 45, "-t3", pipes=20)

    def test_several_jobs_leave_pipes_to_the_users_other_programs(self):
        """Jobs that begin at the same time. Alone, each may have a quarter of the pages."""
        self.jobs_of_a_user(54322, 4, 16, pipes=20)

    def test_more_jobs_with_logs_leave_pipes_to_the_users_other_programs(self):
        self.jobs_of_a_user(54323, 9, 8, "-t3", pipes=10)

    def test_hundreds_of_workers_leave_pipes_to_the_users_other_programs(self):
        """1,040 pipes of the usual size would have all pages."""
        self.jobs_of_a_user(54324, 1, 520, "-t3", pipes=20)

    def test_jobs_of_a_hundred_workers_leave_pipes_to_the_users_other_programs(self):
        self.jobs_of_a_user(54325, 4, 130, "-t3", pipes=20)

    def test_a_user_whose_pipe_pages_are_used_up(self):
        """The job works, and one line says what its user's other programs meet."""
        takes_all = "import fcntl, os; all = [os.pipe() for _ in range(64)]\n" \
                    "for pipe in all: fcntl.fcntl(pipe[0], 1031, 1 << 20)\nprint(flush=True); input()"
        other = self.as_user(54326, "python3", "-c", takes_all, stdin=subprocess.PIPE)
        self.addCleanup(other.communicate, "\n")
        other.stdout.readline()
        lines = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; exit $((1-TORCHELASTIC_RESTART_COUNT))"
        job = self.as_user(54326, "$PROGRAM", "--standalone", "--max-restarts=1", "-t3", "--no-python",
                           "/bin/sh", "-c", lines)
        out, err = job.communicate(timeout=200)
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(out.count("line 2999\n"), 2)
        self.assertEqual(err.count("pipe_pages_used_up limit=16384"), 1, err)
        self.assertIn("sysctl fs.pipe-user-pages-soft=65536", err)

    def test_a_limit_of_file_size_that_leaves_no_room_for_logs(self):
        lines = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; exit 5"
        limit = with_limit(resource.RLIMIT_FSIZE, 1024, 1024)
        # The output goes through pipes: the limit would also apply to files of the test.
        for how, expected in (("drop", "has reached the limit of a file's size (`ulimit -f`)"),
                              ("fail", "has reached the limit of a file's size (`ulimit -f`)")):
            process = subprocess.run(
                [MUSTER, "--standalone", "--no-python", "-t3", "--log-dir", self.dir / "logs",
                 f"--log-on-full={how}", "/bin/sh", "-c", lines],
                env=self.environment(BIG="x" * 5000), cwd=self.dir, capture_output=True, text=True,
                timeout=60, preexec_fn=limit, check=False)
            self.assertEqual(process.returncode, 1, process.stderr)
            self.assertIn(expected, process.stderr)
            self.assertNotIn("killed by signal", process.stderr)
            if how != "fail":
                self.assertIn("exitcode  : 5", process.stderr)
                self.assertIn("line 299", process.stdout)

    def test_a_limit_of_file_size_that_a_log_reaches(self):
        lines = ("i=0; while [ $i -lt 60 ]; do head -c 20000 /dev/zero | tr '\\0' x; echo; "
                 "sleep 0.01; i=$((i+1)); done; echo the end")
        limit = with_limit(resource.RLIMIT_FSIZE, 1 << 20, 1 << 20)
        code, _, err = self.run_muster("--standalone", "--no-python", "-r3", "--log-on-full=fail",
                                       "--log-dir", self.dir / "logs", "/bin/sh", "-c", lines,
                                       preexec_fn=limit)
        self.assertEqual(code, 1)
        self.assertIn("has reached the limit of a file's size (`ulimit -f`)", err)


class Cpus(MusterTest):
    def test_auto_under_a_quota_says_that_the_workers_are_more_than_it_gives(self):
        cpu = pathlib.Path("/sys/fs/cgroup/cpu")
        if not os.access(cpu / "cpu.cfs_quota_us", os.R_OK) or os.geteuid() != 0:
            self.skipTest("needs root and cgroup v1")
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("needs two CPUs")
        cgroup = cpu / f"muster-test-{os.getpid()}"
        cgroup.mkdir()
        self.addCleanup(cgroup.rmdir)
        (cgroup / "cpu.cfs_quota_us").write_text("90000")
        (cgroup / "cpu.cfs_period_us").write_text("100000")
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=auto", "--no-python", "true", expect=0, before=[
            "sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh"])
        self.assertIn(f"{len(os.sched_getaffinity(0))} workers share 0.9 CPUs, the quota of this process's cgroup", err)


class Elsewhere(MusterTest):
    def test_without_proc(self):
        """muster cannot find the children of workers, but it still owns the workers themselves."""
        done = self.mounted("umount -l /proc", "--standalone", "--no-python", "--nproc-per-node=2",
                            "--shutdown-timeout=1", "--max-restarts=1", "/bin/sh", "-c",
                            "trap '' TERM; [ $LOCAL_RANK = 1 ] && exit 3; "
                            "while :; do sleep 0.1; done")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no /proc", done.stderr)
        self.assertIn("exitcode  : 3", done.stderr)
        self.assert_nothing_left()

    def test_where_others_processes_are_hidden(self):
        done = self.mounted("mount -t proc -o hidepid=2 proc /proc", "--standalone", "--no-python",
                            "--nproc-per-node=2", "/bin/sh", "-c",
                            "setsid sleep 1000 & sleep 0.05; exit 3")
        self.assertIn("exitcode  : 3", done.stderr)
        self.assert_nothing_left()

    SAY_WHERE = ("--standalone", "--no-python", "--nproc-per-node=2", "/bin/sh", "-c",
                 "echo $TORCHELASTIC_ERROR_FILE")

    def test_without_shared_memory(self):
        done = self.mounted("mount -t proc x /dev/shm; unset XDG_RUNTIME_DIR", *self.SAY_WHERE)
        self.assertEqual((done.returncode, done.stderr.count("cannot use")), (0, 0), done.stderr)
        for line in done.stdout.split():
            self.assertTrue(line.startswith(str(self.dir / "tmp")), line)

    def test_shared_memory_that_cannot_be_used(self):
        """/dev/shm is full, has no free inodes or is read-only: error files go to TMPDIR, and one
        line says so."""
        for commands, reason in (
                ("mount -t tmpfs -o size=4k x /dev/shm", "No space left on device"),
                ("mount -t tmpfs -o size=8m x /dev/shm; "
                 "head -c 9000000 /dev/zero > /dev/shm/full 2>/dev/null || true",
                 "No space left on device"),
                ("mount -t tmpfs -o nr_inodes=3 x /dev/shm", "No space left on device"),
                ("mount -t tmpfs -o ro x /dev/shm", "Read-only file system")):
            with self.subTest(commands):
                done = self.mounted(commands + "; unset XDG_RUNTIME_DIR", *self.SAY_WHERE)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(done.stdout.split()), 2)
                for line in done.stdout.split():
                    self.assertTrue(line.startswith(str(self.dir / "tmp")), line)
                said = [line for line in done.stderr.splitlines() if "OMP_NUM" not in line]
                self.assertEqual(len(said), 1, done.stderr)
                self.assertIn(f"cannot use /dev/shm ({reason}) for error files and logs: they go "
                              f"to {self.dir / 'tmp'}", said[0])
                self.assertEqual(os.listdir(self.dir / "tmp"), [])

    def test_a_worker_can_say_why_it_failed_where_shared_memory_is_full(self):
        done = self.mounted("mount -t tmpfs -o size=4k x /dev/shm; unset XDG_RUNTIME_DIR",
                            "--standalone", "--no-python", "/bin/sh", "-c",
                            """echo '{"message": "out of luck"}' > $TORCHELASTIC_ERROR_FILE; exit 3""")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out of luck", done.stderr)

    def test_the_next_place_in_memory_comes_before_the_disk(self):
        done = self.mounted("mkdir xdg; mount -t tmpfs -o nr_inodes=3 x xdg; mount -t tmpfs x "
                            "/dev/shm; export XDG_RUNTIME_DIR=$PWD/xdg", *self.SAY_WHERE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"cannot use {self.dir / 'xdg'} (No space left on device)", done.stderr)
        for line in done.stdout.split():
            self.assertTrue(line.startswith("/dev/shm/muster_"), line)

    def test_a_temporary_directory_that_cannot_be_used(self):
        """As under torchrun, logs go to /tmp if the temporary directory cannot be used, and muster
        says so. If no directory can be used, not even the working directory, that is an error."""
        self.mounted("true", "--version")  # Skips the test if mounts are not possible.
        for commands, reason in (("mount -t tmpfs -o ro x tmp", "Read-only file system"),
                                 ("mount -t tmpfs -o nr_inodes=1 x tmp", "No space left on device"),
                                 ("export TMPDIR=$PWD/none", "No such file or directory")):
            with self.subTest(commands):
                done = self.mounted(commands, "-t3", *self.SAY_WHERE)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"({reason}) for error files and logs: they go to /tmp\n", done.stderr)
                paths = [line.split("]:")[1] for line in done.stdout.splitlines()]
                self.assertEqual(len(paths), 2, done.stdout)
                for path in paths:
                    self.assertTrue(path.startswith("/tmp/muster_"), path)
                    self.assertFalse(os.path.exists("/".join(path.split("/")[:3])), path)
        done = self.mounted("for dir in tmp /tmp /var/tmp; do mount --bind $dir $dir; "
                            "mount -o remount,bind,ro $dir; done; cd /proc", "-t3", *self.SAY_WHERE)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot make a directory for logs and error files in ", done.stderr)
        self.assertRegex(done.stderr, r", /tmp \(Read-only file system\), /var/tmp \(Read-only file system\), "
                                      r"/usr/tmp \(.*\), /proc: No such file or directory \(--log-dir")

    def test_streams_that_are_closed(self):
        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)
        process = self.start("--standalone", "--no-python", "-t3", "/bin/sh", "-c",
                             "echo out; echo err >&2; readlink /proc/self/fd/0 > zero",
                             preexec_fn=close_all)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.read("zero"), "/dev/null\n")


class Workers(MusterTest):
    def test_a_daemon_that_holds_the_streams_does_not_keep_muster(self):
        for flags in ((), ("-t3",)):
            _, out, _ = self.run_muster("--standalone", "--leftover-timeout=1", "--no-python", *flags, "/bin/sh", "-c",
                                        "setsid sleep 1000 & echo done", expect=0)
            self.assertIn("done", out)
            self.assert_nothing_left()

    def test_a_stopped_worker_is_killed_after_the_timeout(self):
        for others_fail in (False, True):
            (self.dir / "ready").unlink(missing_ok=True)
            process = self.start(
                "--standalone", "--no-python", "--nproc-per-node=2", "--shutdown-timeout=1",
                "/bin/sh", "-c", "echo x >> ready; [ $LOCAL_RANK = 0 ] && kill -STOP $$$$; "
                                 "while [ ! -e go ]; do sleep 0.01; done; exit 3")
            self.ready(2)
            stopped = "sh -c echo x"
            wait_for(lambda: any(state_of(pid) == "T" and stopped in line for pid, line
                                 in self.token.processes().items()), "a stopped worker")
            if others_fail:
                (self.dir / "go").write_text("")
            else:
                process.terminate()
            self.assertEqual(process.wait(PATIENCE_S), 1)
            self.assert_nothing_left()

    def test_a_parent_that_is_gone_before_muster_begins(self):
        subprocess.run(["/bin/sh", "-c", f"({MUSTER} --standalone --no-python /bin/sh -c "
                                         "'sleep 0.1; echo x >> ready' &)"],
                       env=self.environment(), cwd=self.dir, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.ready(1)
        wait_for(lambda: not self.token.processes(), "the end of all")


if __name__ == "__main__":
    sys.exit(main())
