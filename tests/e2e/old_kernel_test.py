#!/usr/bin/env python3
"""Tests kernels without calls that muster uses, and containers that refuse them. Without pidfds,
muster says so in one sentence, starts nothing and leaves nothing.

MUSTER_OLD_KERNEL names the built tests/support/old_kernel.cc, which hides calls of the real kernel.
"""
import ctypes
import errno
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import unittest

from support import PATIENCE_S, MusterTest, main, wait_for


def without(call):
    return {"LD_PRELOAD": os.environ["MUSTER_OLD_KERNEL"], "OLD_KERNEL": call, "OMP_NUM_THREADS": "1"}


CLOSE_RANGE = 436  # The number of this call on every architecture.


def refuses(call, error, more=()):
    """Returns a function for preexec_fn: a seccomp profile with which `call` fails with `error`. `more`: calls that fail
    with EINVAL if their second argument is this one."""
    load_number, jump_if_equal, give = 0x20, 0x15, 0x06
    allow, fail = 0x7FFF0000, 0x00050000
    set_seccomp, by_filter, set_no_new_privileges = 22, 2, 38
    second_argument = 24  # In struct seccomp_data.
    steps = [(load_number, 0, 0, 0), (jump_if_equal, 0, 1, call), (give, 0, 0, fail | error)]
    for number, argument in more:
        steps += [(load_number, 0, 0, 0), (jump_if_equal, 0, 3, number), (load_number, 0, 0, second_argument),
                  (jump_if_equal, 0, 1, argument), (give, 0, 0, fail | errno.EINVAL)]
    steps = b"".join(struct.pack("HBBI", *step) for step in (*steps, (give, 0, 0, allow)))
    libc = ctypes.CDLL(None, use_errno=True)

    def apply():
        filters = ctypes.create_string_buffer(steps)
        program = struct.pack("@HP", len(steps) // 8, ctypes.addressof(filters))
        if (libc.prctl(set_no_new_privileges, 1, 0, 0, 0) != 0
                or libc.prctl(set_seccomp, by_filter, program) != 0):
            raise OSError(ctypes.get_errno(), "prctl")
    return apply


class OldKernel(MusterTest):
    def run_on(self, lacking, *flags):
        marker = pathlib.Path(self.dir, "started")
        _, _, err = self.run_muster(*flags, "--nproc-per-node=2", "--no-python", "/bin/sh", "-c",
                                    f"sleep 5; : > {marker}", expect=1,
                                    env=without(lacking))
        self.assertFalse(marker.exists(), "a worker ran")
        return err

    def test_the_sentence_names_the_call_and_the_kernel_that_is_needed(self):
        err = self.run_on("waitid")
        self.assertIn("waitid(P_PIDFD): Invalid argument", err)
        self.assertIn("Linux 5.4 or newer", err)
        self.assertIn(os.uname().release, err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)

    def test_the_failure_report_has_it(self):
        report = pathlib.Path(self.dir, "report.json")
        self.run_on("waitid", f"--failure-report={report}")
        self.assertIn("waitid(P_PIDFD)", json.dumps(json.loads(report.read_text())))

    def test_a_clone_that_ignores_the_flag_is_a_failed_start_and_the_child_is_killed(self):
        err = self.run_on("clone")
        self.assertIn("cannot start '/bin/sh': Operation not supported (clone)", err)

    def test_options_that_start_no_worker_work_on_an_old_kernel(self):
        for flags in (["--version"], ["--help"], ["--dry-run", "--no-python", "/bin/true"]):
            with self.subTest(flags=flags):
                self.run_muster(*flags, expect=0, env=without("waitid"))

    def test_without_close_range_workers_start_and_get_no_descriptor_that_muster_has_inherited(self):
        inherited, other = os.pipe()
        self.addCleanup(os.close, inherited)
        self.addCleanup(os.close, other)
        for error in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            with self.subTest(error=errno.errorcode[error]):
                self.run_muster("--nproc-per-node=2", "--no-python", "/bin/sh", "-c",
                                f"test ! -e /proc/self/fd/{inherited}", expect=0,
                                pass_fds=[inherited], preexec_fn=refuses(CLOSE_RANGE, error))

    def test_refused_calls(self):
        """Calls that a profile may refuse: muster has another way, or names the call."""
        numbers = {"x86_64": {"getrandom": 318, "waitid": 247}, "aarch64": {"getrandom": 278, "waitid": 95}}
        numbers = numbers.get(os.uname().machine) or self.skipTest("numbers of system calls")
        for error in (errno.EPERM, errno.ENOSYS):
            with self.subTest(error=errno.errorcode[error]):
                self.run_muster("--nproc-per-node=2", "--no-python", "/bin/true", expect=0,
                                preexec_fn=refuses(numbers["getrandom"], error))
                report = pathlib.Path(self.dir, "report.json")
                _, _, err = self.run_muster(f"--failure-report={report}", "--no-python", "/bin/true", expect=1,
                                            preexec_fn=refuses(numbers["waitid"], error))
                self.assertIn("waitid", err)
                self.assertNotIn("storage", err)
                self.assertIn("waitid", json.loads(report.read_text())["reason"])


MACHINES = ("x86_64", "aarch64")


@unittest.skipIf(os.uname().machine not in MACHINES, "the numbers of system calls are those of x86-64 and of aarch64")
class RefusedCalls(MusterTest):
    """Each system call beyond POSIX that muster makes is refused, as by a container's seccomp profile. muster goes on
    without it, or says in one sentence at the start which call it is."""

    # The numbers of both machines (on aarch64, epoll_wait is epoll_pwait).
    GOES_ON = {
        "accept4": (288, 242), "clone3": (435, 435), "close_range": (436, 436), "dup3": (292, 24),
        "faccessat2": (439, 439), "flock": (73, 32), "fstatfs": (138, 44), "getcpu": (309, 168),
        "getrandom": (318, 278), "getxattr": (191, 8), "inotify_add_watch": (254, 27),
        "inotify_init1": (294, 26), "kcmp": (312, 272), "madvise": (28, 233), "memfd_create": (319, 279),
        "openat2": (437, 437), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
        "pidfd_send_signal": (424, 424), "prlimit64": (302, 261), "renameat2": (316, 276), "rseq": (334, 293),
        "rt_tgsigqueueinfo": (297, 240), "sched_getaffinity": (204, 123), "sched_setaffinity": (203, 122),
        "sched_yield": (24, 124), "sendmmsg": (307, 269), "set_robust_list": (273, 99), "statfs": (137, 43),
        "statx": (332, 291), "sysinfo": (99, 179), "timer_create": (222, 107)}
    SAYS_SO = {
        "bind": (49, 200), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, 22),
        "eventfd2": (290, 19), "getsockname": (51, 204), "ioctl": (16, 29), "listen": (50, 201), "pipe2": (293, 59),
        "prctl": (157, 167), "recvfrom": (45, 207), "recvmsg": (47, 212), "rt_sigaction": (13, 134),
        "rt_sigprocmask": (14, 135), "sendmsg": (46, 211), "sendto": (44, 206), "signalfd4": (289, 74),
        "socket": (41, 198), "socketpair": (53, 199), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
        "waitid": (247, 95)}
    FCNTL = (72, 25)
    # glibc starts threads with clone only if clone3 answers with ENOSYS.
    ONLY_WITH_ENOSYS = "clone3"

    def check_sentence(self, call, error):
        _, _, err = self.run_muster("--no-python", "touch", "started", preexec_fn=refuses(self.number(call), error), expect=1)
        self.assertRegex(err.strip(), rf"\] muster cannot .*: {call}.*: {os.strerror(error)}\. .*must allow this system call")
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        self.assertFalse((self.dir / "started").exists())
        self.assert_nothing_left()

    def number(self, call):
        return self.of_machine({**self.GOES_ON, **self.SAYS_SO}[call])

    def of_machine(self, numbers):
        return numbers[MACHINES.index(os.uname().machine)]

    def test_what_muster_cannot_do_without(self):
        for error in (errno.EPERM, errno.ENOSYS):
            for call in self.SAYS_SO:
                with self.subTest(call, error=errno.errorcode[error]):
                    self.check_sentence(call, error)
        self.check_sentence("clone3", errno.EPERM)

    def check_job(self, call, error, *options, script="worker.py"):
        self.run_muster("--nproc-per-node=2", "--max-restarts=1", "-t3", *options, script, expect=0,
                        env={"PYTHON_EXEC": sys.executable, **({"LEAVES": "yes"} if call.startswith("pidfd_") else {})},
                        preexec_fn=refuses(self.number(call), error))
        for rank in range(2):
            self.assertIn(f"[default{rank}]:rank {rank} attempt 1\n", self.read("out"))
        self.assertNotIn("cannot", self.read("err"))
        self.assert_nothing_left()

    def test_a_job_goes_on_without(self):
        (self.dir / "worker.py").write_text(
            "import os, subprocess, sys\n"
            "restarts = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
            "print('rank', os.environ['RANK'], 'attempt', restarts)\n"
            "if restarts == '0' and 'LEAVES' in os.environ: subprocess.Popen(['setsid', 'sleep', os.environ['E2E_SLEEP']])\n"
            "sys.exit(restarts == '0')\n")
        for error in (errno.EPERM, errno.ENOSYS):
            for call in self.GOES_ON:
                if call == self.ONLY_WITH_ENOSYS and error != errno.ENOSYS:
                    continue
                with self.subTest(call, error=errno.errorcode[error]):
                    self.check_job(call, error)

    def test_the_order_of_two_streams_in_one_file_without_kcmp(self):
        """Also where the kernel has no other question for whether two descriptors are one."""
        lines = "i=0; while [ $i -lt 100 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
        expected = [f"{stream} {i}" for i in range(100) for stream in ("out", "err")]
        f_dupfd_query, fcntl = 1027, self.of_machine(self.FCNTL)
        for more in ((), ((fcntl, f_dupfd_query),)):
            for error in (errno.EPERM, errno.ENOSYS):
                with self.subTest(more=more, error=errno.errorcode[error]), open(self.dir / "log", "w") as log:
                    self.start("--no-python", "sh", "-c", lines, stdout=log, stderr=log,
                               preexec_fn=refuses(self.number("kcmp"), error, more)).wait(PATIENCE_S)
                    shown = [line for line in self.read("log").splitlines() if line.startswith(("out ", "err "))]
                    self.assertEqual(shown, expected)

    def test_a_large_command_without_memfd_create(self):
        big = "x" * 100_000
        (self.dir / "big.py").write_text("import os, sys\nwhole = len(sys.argv[1:]) == 12 and len(sys.argv[12]) == 100_000\n"
                                         "os.write(1, b'attempt 1\\n' if whole else str(sys.argv).encode())\n")
        for error in (errno.EPERM, errno.ENOSYS):
            self.run_muster("--nproc-per-node=2", "big.py", *[big] * 12, expect=0, env={"PYTHON_EXEC": sys.executable},
                            preexec_fn=refuses(self.number("memfd_create"), error))
            self.assertEqual(self.read("out").count("attempt 1\n"), 2)

    def test_timers_without_pidfds(self):
        """A timer kills a worker's process."""
        (self.dir / "timed.py").write_text(
            "import json, os, time\n"
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
            "    with open(os.environ['TORCHELASTIC_TIMER_FILE'], 'w') as pipe:\n"
            "        pipe.write(json.dumps({'version': 1, 'pid': os.getpid(), 'scope_id': 'x', 'signal': 9,\n"
            "                               'expiration_time': time.time() + 0.1}) + '\\n')\n"
            "    time.sleep(100)\n"
            "print('done')\n")
        for call in ("pidfd_open", "pidfd_send_signal"):
            for error in (errno.EPERM, errno.ENOSYS):
                with self.subTest(call, error=errno.errorcode[error]):
                    _, out, err = self.run_muster(
                        "--max-restarts=1", "timed.py", expect=0, preexec_fn=refuses(self.number(call), error),
                        env={"PYTHON_EXEC": sys.executable, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
                    self.assertEqual(out, "done\n")
                    self.assertIn("ran out: SIGKILL was sent", err)

    def test_forwarded_signals(self):
        (self.dir / "counts.py").write_text(
            "import os, signal, sys, time\n"
            "rank = os.environ['RANK']\n"
            "def got(number, frame):\n"
            "    with open('got', 'a') as file: file.write(f'{rank}:{number}\\n')\n"
            "for number in map(int, sys.argv[1:]): signal.signal(number, got)\n"
            "with open('ready', 'a') as file: file.write('x\\n')\n"
            "while not os.path.exists('finish'): time.sleep(0.02)\n")
        numbers = (signal.SIGUSR1, signal.SIGALRM)
        expected = sorted(f"{rank}:{int(number)}" for rank in range(2) for number in numbers)
        for call in ("pidfd_open", "pidfd_send_signal", "rt_tgsigqueueinfo"):
            for error in (errno.EPERM, errno.ENOSYS):
                with self.subTest(call, error=errno.errorcode[error]):
                    for name in ("ready", "got", "finish"):
                        (self.dir / name).unlink(missing_ok=True)
                    process = self.start("--nproc-per-node=2", "--signals-to-forward=SIGUSR1,SIGALRM", "counts.py",
                                         *map(str, map(int, numbers)), env={"PYTHON_EXEC": sys.executable},
                                         preexec_fn=refuses(self.number(call), error))
                    self.ready(2)
                    for number in numbers:
                        process.send_signal(number)
                    wait_for(lambda: len(self.read("got").split()) >= len(expected), "the signals at the workers")
                    (self.dir / "finish").touch()
                    self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))
                    self.assertEqual(sorted(self.read("got").split()), expected)
                    self.assert_nothing_left()


@unittest.skipIf(os.uname().machine not in MACHINES, "the numbers of system calls are those of x86-64 and of aarch64")
class RefusedByMusterd(MusterTest):
    """The same for musterd. "listening" without an answer to any node would look like a network that is broken."""

    NOT_MADE = {"waitid", "prctl"}
    GOES_ON = ("accept4", "faccessat2", "getrandom", "prlimit64", "rseq", "statx")

    def number(self, call):
        numbers = {**RefusedCalls.GOES_ON, **RefusedCalls.SAYS_SO}[call]
        return numbers[MACHINES.index(os.uname().machine)]

    def start_musterd(self, call, error):
        process = subprocess.Popen(
            [os.environ["MUSTERD_BIN"], "--port=0", "--bind=127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=self.token.environment(), preexec_fn=refuses(self.number(call), error))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def check_sentence(self, call, error):
        process = self.start_musterd(call, error)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (1, ""), err)
        self.assertRegex(err, rf"^musterd: cannot .*: {call}: {os.strerror(error)}\. .*must allow this system call")
        self.assertEqual(len(err.strip().splitlines()), 1, err)

    def test_what_musterd_cannot_do_without(self):
        for error in (errno.EPERM, errno.ENOSYS):
            for call in RefusedCalls.SAYS_SO.keys() - self.NOT_MADE:
                with self.subTest(call, error=errno.errorcode[error]):
                    self.check_sentence(call, error)
        self.check_sentence("clone3", errno.EPERM)

    def test_musterd_goes_on_without(self):
        for error in (errno.EPERM, errno.ENOSYS):
            for call in self.GOES_ON:
                with self.subTest(call, error=errno.errorcode[error]):
                    process = self.start_musterd(call, error)
                    port = process.stdout.readline().rsplit(":", 1)[-1].strip()
                    self.run_muster("--nnodes=1:1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                                    "--rdzv-conf=is_host=false,last_call_timeout=1,join_timeout=60", "--no-python", "true",
                                    expect=0)
                    process.terminate()
                    self.assertEqual(process.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    main()
