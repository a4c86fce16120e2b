#!/usr/bin/env python3
"""scripts/gpu_bundle makes a bundle that fits its limit and has everything that its build needs.

MUSTER_BIN names muster; musterd and musterctl are beside it. Skipped without the tools and headers that the bundle
copies. Compiles nothing.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "scripts/gpu_bundle"
PROGRAMS = pathlib.Path(os.environ["MUSTER_BIN"]).parent
PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", sys.executable)
BYTES_MAX = 60_000_000
NEEDED = [SOURCE / ".venv/bin/py-spy", *(PROGRAMS / name for name in ("muster", "musterd", "musterctl"))]
HEADERS = ["gloo/context.h", "CLI/CLI.hpp"]
SKIPPED = 77


def run(*words, status=0, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=200, check=False, **options)
    if done.returncode != status:
        raise AssertionError(f"status {done.returncode}, expected {status}: {words}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="muster-bundle-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.bundle = cls.folder / "bundle"
        cls.said = run(SCRIPT, "--out", cls.bundle, "--programs", PROGRAMS, "--archive")

    def test_it_fits_its_limit(self):
        files = [path for path in self.bundle.rglob("*") if path.is_file()]
        self.assertLess(sum(path.stat().st_size for path in files), BYTES_MAX)
        self.assertEqual([path for path in self.bundle.rglob("*") if path.is_symlink()], [])
        self.assertEqual([path for path in files if "__pycache__" in path.parts], [])
        self.assertLess((self.folder / "bundle.tar.gz").stat().st_size, BYTES_MAX)
        manifest = json.loads((self.bundle / "manifest.json").read_text())
        self.assertRegex(manifest["glibc"], r"^2\.\d+$")
        self.assertIn(f"built from commit {manifest['programs']}: they need glibc {manifest['glibc']}", self.said)
        self.assertIn(manifest["programs"], run(PROGRAMS / "muster", "--version"))

    def test_the_programs_in_it_run(self):
        for name in ("muster", "musterd", "musterctl"):
            self.assertTrue(run(self.bundle / "bin" / name, "--version").startswith(name))
        self.assertIn("py-spy", run(self.bundle / "bin/py-spy", "--version"))
        # --numa-binding finds hwloc's library in it, and that one what it needs.
        listed = run("ldd", self.bundle / "lib/libhwloc.so.15", env={**os.environ, "LD_LIBRARY_PATH": str(self.bundle / "lib")})
        self.assertNotIn("not found", listed)
        self.assertIn(f"=> {self.bundle}/lib/libudev.so.1", listed)

    def test_its_list_has_every_check_and_the_bound(self):
        listed = run(self.bundle / "run.sh", "--list", env={**os.environ, "PYTHON": sys.executable})
        self.assertIn("480 s in all at most", listed)
        for name in ("nccl_lazy_muster", "memory_restart", "gloo_cuda", "hang", "digits_cpp", "numa", "doctor"):
            self.assertRegex(listed, rf"(?m)^ +\d+ s  {name} ")
        said = run(self.bundle / "run.sh", "--only", "hangs", status=2, env={**os.environ, "PYTHON": sys.executable})
        self.assertIn("--only hangs: expected one of machine,", said)
        self.assertFalse((self.folder / "gpu-results").exists())

    def test_its_sources_can_be_built_without_what_only_the_programs_need(self):
        """CMake finds every source, and the headers in the bundle before this machine's."""
        build = self.folder / "build"
        torch = [path.parent for path in pathlib.Path(PYTHON).parents[1].glob("lib/python3*/site-packages/torch/version.py")]
        options = ["-DMUSTER_SDK=ON", f"-DMUSTER_TORCH={torch[0]}"] if torch else ["-DMUSTER_SDK=OFF"]
        hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Boost", "spdlog", "nlohmann_json")]
        run("cmake", "-S", self.bundle / "source", "-B", build, "-G", "Ninja", "-DMUSTER_SDK_ONLY=ON", *options, *hidden,
            f"-DCMAKE_PREFIX_PATH={self.bundle / 'prefix'}")
        cache = (build / "CMakeCache.txt").read_text()
        self.assertIn(f"CLI11_DIR:PATH={self.bundle / 'prefix/share/cmake/CLI11'}", cache)
        if not torch:
            self.skipTest("no torch here: only the part of the SDK without it was configured")
        self.assertIn(f"MUSTER_GLOO_INCLUDE_DIR:PATH={self.bundle / 'prefix/include'}", cache)
        planned = run("ninja", "-C", build, "-n", "gpu_checks", "example_digits")
        self.assertRegex(planned, r"Linking CXX executable tests/gpu_checks")
        self.assertRegex(planned, r"Linking CXX executable examples/digits")
        # A warning of a new compiler is no error there.
        self.assertNotIn("-Werror", (build / "build.ninja").read_text())
        digits = re.search(r'MUSTER_DIGITS_DATA=\\"([^"\\]+)', (build / "build.ninja").read_text())[1]
        self.assertTrue((pathlib.Path(digits) / "train-images-idx3-ubyte").exists())

    def test_what_is_wrong_is_said(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("there is no muster in", run(SCRIPT, "--out", self.folder / "a", "--programs", empty, status=1))
        (empty / "mine").write_text("")
        said = run(SCRIPT, "--out", empty, "--programs", PROGRAMS, status=1)
        self.assertIn(f"{empty} exists and is no bundle", said)
        self.assertTrue((empty / "mine").exists())
        self.assertIn("unknown argument '--wrong'", run(SCRIPT, "--wrong", status=2))

    def test_a_bundle_that_is_too_large_is_refused(self):
        large = self.folder / "large"
        large.mkdir()
        for name in ("muster", "musterd"):
            shutil.copy(self.bundle / "bin" / name, large)
        with open(self.folder / "content", "wb") as file:
            file.truncate(BYTES_MAX)
        run("objcopy", "--add-section", f".content={self.folder / 'content'}", self.bundle / "bin/musterctl", large / "musterctl")
        said = run(SCRIPT, "--out", self.folder / "b", "--programs", large, status=1)
        self.assertRegex(said, rf"the bundle has \d{{8,}} bytes, more than {BYTES_MAX}")
        # A bundle, also one that was refused, is replaced.
        run(SCRIPT, "--out", self.folder / "b", "--programs", PROGRAMS)


def missing():
    for tool in ("strip", "objdump", "objcopy", "cmake", "ninja"):
        if shutil.which(tool) is None:
            return tool
    for path in NEEDED:
        if not path.exists():
            return str(path)
    for header in HEADERS:
        if not any(pathlib.Path(folder, header).exists() for folder in ("/usr/include", "/usr/local/include")):
            return header
    return ""


if __name__ == "__main__":
    if lacking := missing():
        print(f"skipped: {lacking} is not here")
        sys.exit(SKIPPED)
    unittest.main()
