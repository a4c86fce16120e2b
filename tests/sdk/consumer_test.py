"""Builds a separate project with the installed SDK: the trainer of docs/worker_sdk.md.

consumer_test.py --build BUILD --source SOURCE. CMake adds this test only where it builds the SDK.
With --installed FOLDER (an unpacked tarball) the test uses the SDK in that folder, and only
bin/muster of BUILD.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

EPOCHS = 10
ENV_PROGRAM = """
#include <muster/environment.h>
#include <muster/record.h>
#include <cstdio>
int main() {
  return muster::record([] {
    return std::printf("rank %d\\n", muster::read_environment().rank) > 0 ? 0 : 1;
  });
}
"""

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("--source", type=pathlib.Path, required=True)
parser.add_argument("--installed", type=pathlib.Path)
ARGUMENTS, rest = parser.parse_known_args()
sys.argv[1:] = rest


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=500, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TORCHELASTIC_", "SLURM_", "OMPI_"))
            and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    return kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | more


def compile_flags(command):
    """The words of a compiler's command line that decide whether a file compiles."""
    pairs = list(zip(command, command[1:]))
    return {"folders": {word[2:] for word in command if word.startswith("-I")} |
                       {folder for flag, folder in pairs if flag == "-isystem"},
            "macros": {word for word in command if word.startswith("-D")}}


class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = ARGUMENTS.installed or cls.folder / "installed"
        cls.cmake_settings, cls.pkg_config = [], ["pkg-config"]
        if ARGUMENTS.installed:
            # A tarball knows neither the folder in which it is unpacked nor that of torch.
            torch = next(ARGUMENTS.source.glob(".venv/lib/python3*/site-packages/torch"))
            cls.cmake_settings = [f"-DMUSTER_TORCH={torch}"]
            cls.pkg_config += ["--define-prefix", f"--define-variable=torch={torch}"]
        else:
            run("cmake", "--install", ARGUMENTS.build, "--component", "sdk", "--prefix", cls.prefix)
        cls.packages = next(cls.prefix.glob("lib*/**/pkgconfig"))

    def test_pkg_config_without_torch(self):
        flags = run(*self.pkg_config, "--cflags", "--libs", "muster-worker-env",
                    env=environment(PKG_CONFIG_PATH=str(self.packages))).split()
        (self.folder / "env.cc").write_text(ENV_PROGRAM)
        run("c++", self.folder / "env.cc", "-o", self.folder / "env", *flags)
        self.assertEqual(run(self.folder / "env", env=environment()), "rank 0\n")
        variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
                     "MASTER_ADDR": "h", "MASTER_PORT": "1"}
        self.assertEqual(run(self.folder / "env", env=environment(**variables)), "rank 1\n")

    def test_headers_do_not_name_the_source_tree(self):
        for file in self.prefix.rglob("*"):
            if file.suffix in (".h", ".cmake", ".pc"):
                text = file.read_text().replace(str(ARGUMENTS.source / ".venv"), "")
                self.assertNotIn(str(ARGUMENTS.source), text, file)

    @classmethod
    @functools.cache  # LibTorch's headers take the compiler 20 seconds: the trainer is compiled once.
    def built_project(cls):
        """The build folder of the documentation's project."""
        project = cls.folder / "project"
        project.mkdir()
        text = (ARGUMENTS.source / "docs/worker_sdk.md").read_text()
        blocks = dict(re.findall(r"<!-- ([\w.]+) -->\n```\w+\n(.*?)```", text, re.DOTALL))
        if sorted(blocks) != ["CMakeLists.txt", "trainer.cc"]:
            raise AssertionError(f"docs/worker_sdk.md has the files {sorted(blocks)}")
        for name, content in blocks.items():
            (project / name).write_text(content)
        run("cmake", "-G", "Ninja", "-S", project, "-B", project / "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            # No optimization: the test does not measure speed.
            f"-DCMAKE_PREFIX_PATH={cls.prefix}", *cls.cmake_settings)
        run("cmake", "--build", project / "build")
        return project / "build"

    def test_trainer_of_the_documentation(self):
        trainer = self.built_project() / "trainer"
        self.train(trainer, [trainer], "alone")
        launchers = {"muster": [ARGUMENTS.build / "bin/muster"],
                     "torchrun": [ARGUMENTS.source / ".venv/bin/torchrun"]}
        for name, launcher in launchers.items():
            # The SDK was built with a LibTorch without Python.
            if name == "torchrun" and not launcher[0].exists():
                print(f"not run under {name}: no {launcher[0]}", file=sys.stderr)
                continue
            self.train(trainer, [*launcher, "--standalone", "--nproc-per-node=2", "--no-python", trainer], name)

    def test_trainer_with_pkg_config(self):
        flags = {kind: run(*self.pkg_config, kind, "muster-worker",
                           env=environment(PKG_CONFIG_PATH=str(self.packages))).split()
                 for kind in ("--cflags", "--libs")}
        # These flags compile the trainer as CMake has compiled it: with the same headers and macros.
        build = self.built_project()
        commands = json.loads((build / "compile_commands.json").read_text())
        self.assertEqual(compile_flags(flags["--cflags"]), compile_flags(shlex.split(commands[0]["command"])))
        trainer = self.folder / "trainer"
        run("c++", next(build.rglob("trainer.cc.o")), "-o", trainer, *flags["--libs"])
        self.train(trainer, [trainer], "pkg-config")

    def train(self, trainer, command, name):
        with self.subTest(name):
            work = self.folder / name
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            lines = run(*command, env=environment(), cwd=work).splitlines()
            lines = [line[line.index("epoch "):] for line in lines if "epoch " in line]
            self.assertEqual(len(lines), EPOCHS)
            losses = [float(line.split()[-1]) for line in lines]
            self.assertLess(losses[-1], losses[0] / 2)
            self.assertEqual(len(list((work / "snapshots").iterdir())), 3)
            # All epochs have been done, so nothing is trained again.
            self.assertNotIn("epoch", run(*command, env=environment(), cwd=work))


if __name__ == "__main__":
    unittest.main()
