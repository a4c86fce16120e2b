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
import struct

from support import MusterTest, main


def without(call):
    return {"LD_PRELOAD": os.environ["MUSTER_OLD_KERNEL"], "OLD_KERNEL": call, "OMP_NUM_THREADS": "1"}


CLOSE_RANGE = 436  # The number of this call on every architecture.


def refuses(call, error):
    """Returns a function for preexec_fn: a seccomp profile with which `call` fails with `error`."""
    load_number, jump_if_equal, give = 0x20, 0x15, 0x06
    allow, fail = 0x7FFF0000, 0x00050000
    set_seccomp, by_filter, set_no_new_privileges = 22, 2, 38
    steps = b"".join(struct.pack("HBBI", *step) for step in (
        (load_number, 0, 0, 0), (jump_if_equal, 0, 1, call), (give, 0, 0, fail | error), (give, 0, 0, allow)))
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
        for lacking, call in (("pidfd_open", "pidfd_open: Function not implemented"),
                              ("waitid", "waitid(P_PIDFD): Invalid argument")):
            with self.subTest(lacking=lacking):
                err = self.run_on(lacking)
                self.assertIn(call, err)
                self.assertIn("Linux 5.4 or newer", err)
                self.assertIn(os.uname().release, err)
                self.assertEqual(len(err.strip().splitlines()), 1, err)

    def test_the_failure_report_has_it(self):
        report = pathlib.Path(self.dir, "report.json")
        self.run_on("pidfd_open", f"--failure-report={report}")
        self.assertIn("pidfd_open", json.dumps(json.loads(report.read_text())))

    def test_a_clone_that_ignores_the_flag_is_a_failed_start_and_the_child_is_killed(self):
        err = self.run_on("clone")
        self.assertIn("cannot start '/bin/sh': Operation not supported (clone)", err)

    def test_options_that_start_no_worker_work_on_an_old_kernel(self):
        for flags in (["--version"], ["--help"], ["--dry-run", "--no-python", "/bin/true"]):
            with self.subTest(flags=flags):
                self.run_muster(*flags, expect=0, env=without("pidfd_open"))

    def test_without_close_range_workers_start_and_get_no_descriptor_that_muster_has_inherited(self):
        inherited, other = os.pipe()
        self.addCleanup(os.close, inherited)
        self.addCleanup(os.close, other)
        for error in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            with self.subTest(error=errno.errorcode[error]):
                self.run_muster("--nproc-per-node=2", "--no-python", "/bin/sh", "-c",
                                f"test ! -e /proc/self/fd/{inherited}", expect=0,
                                pass_fds=[inherited], preexec_fn=refuses(CLOSE_RANGE, error))


if __name__ == "__main__":
    main()
