#!/usr/bin/env python3
"""Tests scripts/quickstart on machines that lack something: it must stop early and say what to do.

Each test copies scripts/ into an empty folder and runs it with its own PATH, on which the programs
that would change the machine (apt-get, cmake, pip's Python, …) are small recorders. These tests
check the script's decisions. scripts/test's "main-job" does the real run.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 120
# Every test replaces or removes these programs, so that no test depends on this machine's programs.
NOT_FROM_THE_SYSTEM = {
    "apt-get", "cmake", "df", "dpkg-query", "g++", "id", "ninja", "pkg-config", "python3", "sudo",
}  # fmt: skip

DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
DERIVATIVE = 'ID=linuxmint\nID_LIKE="debian"\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n'
OTHER = 'ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42"\n'
TRIXIE = 'ID=debian\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'

# The Python of a .venv that has torch and numpy.
PYTHON_WITH_TORCH = """case "$*" in
  *"version('torch')"*) echo 2.13.0+cpu ;;
  *"version('numpy')"*) echo 2.2.6 ;;
  *) exit 1 ;;
esac"""


class Quickstart(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.system = tempfile.TemporaryDirectory()
        for folder in ("/usr/bin", "/bin"):
            for program in pathlib.Path(folder).iterdir():
                link = pathlib.Path(cls.system.name, program.name)
                if program.name not in NOT_FROM_THE_SYSTEM and not link.is_symlink():
                    link.symlink_to(program)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.system.cleanup()

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name, "clone")
        self.tools = pathlib.Path(temporary.name, "tools")
        self.calls = pathlib.Path(temporary.name, "calls")
        self.os_release = pathlib.Path(temporary.name, "os-release")
        self.tools.mkdir()
        self.calls.touch()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        # A machine that lacks nothing. Each test removes something.
        self.os_release.write_text(DEBIAN)
        self.tool("dpkg-query", "echo installed")
        self.tool("df", "echo header; echo fs 1 1 50000 1% /")
        self.tool("id", "echo 0")
        self.tool("apt-get", "exit 0")
        self.tool("cmake", "exit 0")
        self.tool("python3", f'exec {sys.executable} "$@"')
        self.program(self.root / ".venv/bin/python", PYTHON_WITH_TORCH)
        self.launcher("echo 'test accuracy: 97.50 % (350 of 359)'")

    def program(self, path: pathlib.Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = f'echo "{path.name} $*" >> {self.calls}'
        path.write_text(f"#!/bin/bash\n{record}\n{body}\n")
        path.chmod(0o755)

    def tool(self, name: str, body: str) -> None:
        self.program(self.tools / name, body)

    def launcher(self, body: str) -> None:
        self.program(self.root / "build/release/bin/muster", body)

    def lose_packages(self, *names: str) -> None:
        pattern = "|".join(f'"{name}"' for name in names)
        self.tool("dpkg-query", f'case "${{!#}}" in {pattern}) exit 1 ;; *) echo installed ;; esac')

    def quickstart(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("MUSTER_", "PIP_", "VIRTUAL_ENV"))
        }
        return subprocess.run(
            [self.root / "scripts/quickstart", *arguments],
            env=inherited
            | {
                "PATH": f"{self.tools}:{self.system.name}",
                "MUSTER_OS_RELEASE": str(self.os_release),
            }
            | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def called(self, program: str) -> list[str]:
        lines = self.calls.read_text().splitlines()
        return [line for line in lines if line.split()[0] == program]

    def expect_stop(self, done: subprocess.CompletedProcess, *texts: str, code: int = 1) -> None:
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assertEqual(self.called("muster"), [], "the main job ran all the same")


class WhenAllIsThere(Quickstart):
    def test_it_trains_and_asks_nothing_of_apt_or_pip(self) -> None:
        for _ in range(2):
            done = self.quickstart()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("two processes reached 97.50 % accuracy", done.stdout)
        self.assertEqual(self.called("apt-get"), [])
        self.assertFalse(any("pip" in call for call in self.called("python")))
        self.assertEqual(
            self.called("muster")[-1],
            "muster --standalone --nproc-per-node=2 examples/digits/train.py "
            "--save build/digits.pt",
        )

    def test_it_builds_all_programs_and_says_first_how_long_it_takes(self) -> None:
        done = self.quickstart()
        self.assertRegex(done.stdout.splitlines()[0], r"takes about \d+ minutes on two cores")
        self.assertTrue(self.called("cmake")[-1].endswith(" --target programs"), self.called("cmake"))

    def test_a_long_build_says_how_far_it_is(self) -> None:
        steps = "for i in $(seq 40); do echo \"[$i/40] Building\"; done"
        self.tool("cmake", f'case "$*" in --build*) {steps} ;; esac')
        done = self.quickstart()
        self.assertEqual(re.findall(r"(\d+) % of the steps", done.stdout), ["25", "50", "75"])
        self.assertRegex(done.stdout, r"\nquickstart: build: .*: done in \d+ s\n")

    def test_the_launcher_finds_the_python_of_the_venv_first(self) -> None:
        self.launcher('echo "venv=$VIRTUAL_ENV path=$PATH"; echo "test accuracy: 99.00 % (1 of 1)"')
        done = self.quickstart()
        self.assertIn(f"venv={self.root}/.venv path={self.root}/.venv/bin:", done.stdout)

    def test_jobs_reach_the_build(self) -> None:
        self.quickstart("--jobs", "3")
        self.assertTrue(any("--parallel 3" in call for call in self.called("cmake")))

    def test_a_build_folder_from_elsewhere_is_made_anew(self) -> None:
        cache = self.root / "build/release/CMakeCache.txt"
        for home, fresh in ((self.root, False), ("/somewhere/else", True)):
            cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
            self.assertEqual(self.quickstart().returncode, 0)
            configured = [call for call in self.called("cmake") if "--build" not in call]
            self.assertEqual("--fresh" in configured[-1], fresh, configured[-1])

    def test_an_ordinary_user_needs_no_sudo(self) -> None:
        self.tool("id", "echo 1000")
        self.assertEqual(self.quickstart().returncode, 0)

    def test_a_derivative_of_debian_12_is_accepted(self) -> None:
        self.os_release.write_text(DERIVATIVE)
        self.assertEqual(self.quickstart().returncode, 0)

    def test_usage(self) -> None:
        done = self.quickstart("--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--jobs", "--no-install", "MUSTER_SKIP_PACKAGES", "MUSTER_TORCH_PACKAGE"):
            self.assertIn(option, done.stdout)
        for wrong in (["--job", "2"], ["--jobs"], ["--jobs", "0"], ["--jobs=two"], ["now"]):
            self.expect_stop(self.quickstart(*wrong), "--help", code=2)


class WhenSomethingIsMissing(Quickstart):
    def test_another_distribution(self) -> None:
        for release, name in ((OTHER, "Fedora Linux 42"), (TRIXIE, "Debian GNU/Linux 13")):
            self.os_release.write_text(release)
            self.expect_stop(self.quickstart(), name, "libboost1.81-dev", "MUSTER_SKIP_PACKAGES=1")

    def test_another_distribution_with_its_own_packages_goes_on(self) -> None:
        self.os_release.write_text(OTHER)
        for name in ("ninja", "g++", "pkg-config"):
            self.tool(name, "exit 0")
        done = self.quickstart(MUSTER_SKIP_PACKAGES="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.called("dpkg-query"), [])

    def test_another_distribution_without_a_compiler(self) -> None:
        self.os_release.write_text(OTHER)
        self.expect_stop(self.quickstart(MUSTER_SKIP_PACKAGES="1"), "not found on PATH: ninja g++")

    def test_packages_and_no_way_to_become_root(self) -> None:
        self.lose_packages("catch2", "ninja-build")
        self.tool("id", "echo 1000")
        self.expect_stop(self.quickstart(), "administrator", "apt-get install ninja-build catch2")

    def test_packages_and_a_sudo_that_wants_a_password(self) -> None:
        self.lose_packages("catch2")
        self.tool("id", "echo 1000")
        self.tool("sudo", 'echo "sudo: a password is required" >&2; exit 1')
        self.expect_stop(self.quickstart(), "sudo did not let us")
        self.assertTrue(self.called("sudo")[0].startswith("sudo -n "))

    def test_packages_and_no_install(self) -> None:
        self.lose_packages("catch2")
        self.expect_stop(self.quickstart("--no-install"), "apt-get install catch2")
        self.assertEqual(self.called("apt-get"), [])

    def test_only_missing_packages_are_installed(self) -> None:
        self.lose_packages("catch2", "cmake")
        self.assertEqual(self.quickstart().returncode, 0)
        self.assertTrue(self.called("apt-get")[-1].endswith("--no-install-recommends cmake catch2"))

    def test_apt_fails(self) -> None:
        self.lose_packages("catch2")
        for output, reason in (
            ("Temporary failure resolving 'host'", "no network"),
            ("E: Unable to locate package catch2", "does not know a package"),
            ("E: Could not get lock /var/lib/dpkg/lock", "another program"),
            ("E: You don't have enough free space in /var/cache", "ran out of disk"),
            ("something new", "the log above says why"),
        ):
            with self.subTest(output=output):
                self.tool("apt-get", f'echo "{output}"; exit 100')
                self.expect_stop(self.quickstart(), "apt", reason, output)

    def test_too_little_disk(self) -> None:
        shutil.rmtree(self.root / ".venv")
        self.tool("df", "echo header; echo fs 1 1 1500 1% /")
        self.expect_stop(self.quickstart(), "too little disk", "1500 MB free", "2000 MB")

    def test_a_python_that_is_too_old_or_cannot_make_environments(self) -> None:
        shutil.rmtree(self.root / ".venv")
        self.tool("python3", 'case "$*" in *version_info*) exit 1 ;; esac; echo Python 3.9.2')
        self.expect_stop(self.quickstart(), "Python 3.9.2 is too old", "3.10")
        self.tool("python3", 'case "$*" in *ensurepip*) exit 1 ;; esac')
        self.expect_stop(self.quickstart(), "no ensurepip", "python3-venv", "MUSTER_PYTHON")

    def test_no_torch_and_no_install(self) -> None:
        shutil.rmtree(self.root / ".venv")
        self.expect_stop(self.quickstart("--no-install"), "pip install 'torch==2.13.0'")
        self.assertFalse((self.root / ".venv").exists())

    def test_a_real_pip_without_a_network(self) -> None:
        shutil.rmtree(self.root / ".venv")
        nobody_listens = "http://127.0.0.1:9/simple"
        offline = {
            "PIP_INDEX_URL": nobody_listens,
            "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": "/dev/null",
        }
        self.expect_stop(self.quickstart(**offline), "pip cannot reach its package index")
        # What the first try left does not stop the next one.
        self.expect_stop(self.quickstart(**offline), "pip cannot reach its package index")

    def test_pip_fails(self) -> None:
        for output, reason in (
            ("ERROR: No matching distribution found for torch==2.13.0", "no package that fits"),
            ("OSError: [Errno 28] No space left on device", "ran out of disk"),
            ("something new", "the log above says why"),
        ):
            with self.subTest(output=output):
                self.program(
                    self.root / ".venv/bin/python",
                    f'case "$*" in *"pip install"*) echo "{output}"; exit 1 ;; *--version*) ;;'
                    " *) exit 1 ;; esac",
                )
                self.expect_stop(self.quickstart(), "pip", reason, output)

    def test_another_torch_is_asked_of_pip(self) -> None:
        self.program(
            self.root / ".venv/bin/python",
            f'case "$*" in *"-m pip"*) exit 0 ;; esac\n{PYTHON_WITH_TORCH}',
        )
        for _ in range(2):
            self.assertEqual(
                self.quickstart(MUSTER_TORCH_PACKAGE="torch==2.13.0+cpu").returncode, 0
            )
        installs = [call for call in self.called("python") if "pip install" in call]
        self.assertEqual(len(installs), 1, "the second run had it already")
        self.assertIn(" torch==2.13.0+cpu ", installs[0])

    def test_the_build_fails(self) -> None:
        self.tool("cmake", 'echo "error: no such thing"; exit 1')
        self.expect_stop(self.quickstart(), "the build failed", "error: no such thing")


class WhenTheMainJobGoesWrong(Quickstart):
    def expect_failure(self, body: str, text: str) -> None:
        self.launcher(body)
        done = self.quickstart()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertNotIn("Next:", done.stdout)

    def test_a_low_accuracy(self) -> None:
        for accuracy in ("95.00", "9.60", "0.00"):
            self.expect_failure(
                f"echo 'test accuracy: {accuracy} % (0 of 359)'",
                f"reached {accuracy} % accuracy: expected more than 95 %",
            )

    def test_a_failure_after_a_good_accuracy(self) -> None:
        self.expect_failure("echo 'test accuracy: 99.00 % (1 of 1)'; exit 1", "main job failed")

    def test_no_accuracy_at_all(self) -> None:
        self.expect_failure("echo trained", "named no accuracy")


if __name__ == "__main__":
    unittest.main()
