#!/usr/bin/env python3
"""Tests that each program runs as a single file on a bare node with only libc, and without a shell.

MUSTER_BIN, MUSTERD_BIN and MUSTERCTL_BIN name the programs. Skipped for builds that are not meant
to be copied (sanitizers).
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = [os.environ[name] for name in ("MUSTER_BIN", "MUSTERD_BIN", "MUSTERCTL_BIN")]
# libm, libpthread and libdl are also parts of glibc.
LIBC = re.compile(r"^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux[\w-]*\.so\.\d|linux-vdso\.so\.1)$")


def libraries(program):
    """{name: path} of all libraries that the loader would load. The kernel's own library has no
    path."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in listed.splitlines():
        words = line.split()
        path = next((word for word in words if word.startswith("/")), None)
        found[pathlib.Path(words[0]).name] = path
    return found


class OneFile(unittest.TestCase):
    def test_the_programs_need_only_libc(self):
        for program in PROGRAMS:
            others = [name for name in libraries(program) if not LIBC.match(name)]
            self.assertEqual(others, [], f"{program} needs libraries that a bare node may lack")

    @unittest.skipIf(os.geteuid() != 0, "chroot needs root")
    def test_a_job_runs_in_a_folder_with_the_programs_and_libc_only(self):
        with tempfile.TemporaryDirectory(prefix="muster-bare-") as folder:
            root = pathlib.Path(folder)
            for program in PROGRAMS:
                shutil.copy(program, root / pathlib.Path(program).name)
                for path in filter(None, libraries(program).values()):
                    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(os.path.realpath(path), root / path[1:])
            (root / "tmp").mkdir()

            def enter():
                os.chroot(folder)
                os.chdir("/")

            # The worker is muster itself, the only program in the folder.
            done = subprocess.run(
                ["/muster", "--standalone", "--nproc-per-node=3", "--no-python", "/muster", "--version"],
                preexec_fn=enter, env={"PATH": "/"}, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(re.findall(r"^muster \d", done.stdout, re.M)), 3, done)

            server = subprocess.Popen(["/musterd", "--bind", "127.0.0.1", "--port", "0"],
                                      preexec_fn=enter, env={}, stdout=subprocess.PIPE, text=True)
            try:
                self.assertIn("musterd: listening on 127.0.0.1:", server.stdout.readline())
            finally:
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(60), 0)
                server.stdout.close()


if __name__ == "__main__":
    if "libasan" in "".join(libraries(PROGRAMS[0])) or "libtsan" in "".join(libraries(PROGRAMS[0])):
        print("SKIPPED: a build with sanitizers is not for copying")
        sys.exit(77)
    unittest.main()
