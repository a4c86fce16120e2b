#!/usr/bin/env python3
"""muster in a pid namespace whose /proc is another namespace's (`unshare --fork --pid` without --mount-proc): the numbers
in /proc are not those of muster's processes."""
import os
import subprocess

from hardship import HardshipTest, skip_all
from support import main

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]


def can_make_namespaces():
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


class ForeignProc(HardshipTest):
    def start_there(self, *args, **popen):
        return self.start(*args, before=NAMESPACE, **popen)

    def test_a_job_ends_at_once_and_says_what_is_not_seen(self):
        process = self.start_there("--no-python", "--nproc-per-node=3", "true")
        self.assertEqual(process.wait(20), 0, self.read("err"))
        self.assertIn("/proc shows another pid namespace", self.read("err"))
        self.assertNotIn("SIGKILL", self.read("err"))

    def test_workers_run_again_after_a_failure(self):
        worker = self.script("worker.sh", "#!/bin/sh\necho $TORCHELASTIC_RESTART_COUNT >> attempts\nexit $((2 - TORCHELASTIC_RESTART_COUNT))\n")
        process = self.start_there("--no-python", "--max-restarts=2", worker)
        self.assertEqual(process.wait(20), 0, self.read("err"))
        self.assertEqual(self.read("attempts").split(), ["0", "1", "2"])


if __name__ == "__main__":
    if os.geteuid() != 0 or not can_make_namespaces():
        skip_all("it needs root and pid namespaces")
    main()
