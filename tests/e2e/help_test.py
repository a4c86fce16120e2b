#!/usr/bin/env python3
"""Tests what muster prints without starting anything: --help, and completion in the shells
themselves."""
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from support import MUSTER, SOURCE, MusterTest, Terminal, main, wait_for


class Help(MusterTest):
    def test_help_starts_and_loads_nothing(self):
        """Help uses no Python, torch or driver: there is a trap in each place where a start would
        look for them."""
        trap = self.dir / "trap"
        (trap / "bin").mkdir(parents=True)
        for name in ("python", "python3", "torchrun", "nvidia-smi"):
            program = trap / "bin" / name
            program.write_text(f"#!/bin/sh\necho {name} >> {self.dir}/started\n")
            program.chmod(0o755)
        places = {"PATH": str(trap / "bin"), "VIRTUAL_ENV": str(trap), "CONDA_PREFIX": str(trap),
                  "PYTHON_EXEC": str(trap / "bin/python3"), "LD_DEBUG": "files",
                  "LD_DEBUG_OUTPUT": str(self.dir / "loaded")}
        for flags in (["--help"], ["--version"], ["--completion", "bash"], ["--dry-run", "x.py"]):
            with self.subTest(flags=flags):
                self.script("x.py", "")
                self.run_muster(*flags, env=places, expect=0)
                self.assertEqual(self.read("started"), "")
        loaded = "".join(path.read_text() for path in self.dir.glob("loaded.*"))
        libraries = set(re.findall(r"file=(\S+)", loaded))
        self.assertIn("libc.so.6", libraries)
        self.assertEqual({name for name in libraries if re.search("python|torch|cuda|nvidia|hwloc",
                                                                  name)}, set())
        self.run_muster("--standalone", "x.py", env=places)
        self.assertEqual(self.read("started"), "python3\n")  # The trap works.

    def test_help_without_any_program_on_the_path(self):
        times_ms = []
        for _ in range(21):
            begin = time.monotonic()
            done = subprocess.run([MUSTER, "--help"], env={"PATH": "/nowhere"}, cwd=self.dir,
                                  capture_output=True, check=False)
            times_ms.append((time.monotonic() - begin) * 1000)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"--nproc-per-node", done.stdout)
        print(f"\n    --help: {statistics.median(times_ms):.1f} ms, its start from Python included")


class Recipe(MusterTest):
    FILES = {"slurm": "slurm/train.sbatch", "kubernetes": "kubernetes/job.yaml", "docker": "docker/Dockerfile",
             "systemd": "muster@.service"}

    def test_each_recipe_is_the_file_of_configs(self):
        for name, file in self.FILES.items():
            _, out, err = self.run_muster("--recipe", name, expect=0)
            self.assertEqual(out, (SOURCE / "configs" / file).read_text())
            self.assertEqual(err, "")
        code, _, err = self.run_muster("--recipe=lsf")
        self.assertEqual(code, 2)
        self.assertIn("invalid choice: 'lsf' (choose from 'slurm', 'kubernetes', 'docker', 'systemd')", err)


class Completion(MusterTest):
    # The command that starts each shell without settings, and the line for a user's settings.
    SHELLS = {"bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$({} --completion bash)"'),
              "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -D -u; '
                                           'eval "$({} --completion zsh)"'),
              "fish": (["fish", "--no-config", "-i"], "{} --completion fish | source")}

    def complete(self, shell, *lines):
        """Types each line, TAB and return. Returns the arguments with which the programs were
        called."""
        argv, setup = self.SHELLS[shell]
        if shutil.which(shell) is None:
            self.skipTest(f"{shell} is not installed")
        (self.dir / "bin").mkdir()
        for name in ("muster", "torchrun", "muster-launch"):
            self.script(f"bin/{name}", '#!/bin/sh\necho "$@" >> called\n')
        terminal = Terminal(argv, cwd=self.dir, env=self.environment(
            TERM="dumb", HOME=str(self.dir), PATH=f"{self.dir}/bin:{os.environ['PATH']}"))
        self.addCleanup(terminal.close)
        self.addCleanup(terminal.process.wait)
        self.addCleanup(terminal.process.kill)
        terminal.type(setup.format(MUSTER).encode() + b"; touch is-read\n")
        wait_for(lambda: (terminal.read(), (self.dir / "is-read").exists())[1],
                 f"{shell} to read its script")
        for number, line in enumerate(lines, 1):
            terminal.type(line.encode() + b"\t\n")
            wait_for(lambda: (terminal.read(), self.read("called").count("\n") >= number)[1],
                     f"{shell} to run {line!r}")
        return [line.rstrip(" =") for line in self.read("called").splitlines()]

    def check(self, shell):
        called = self.complete(shell, "muster --nn", "torchrun --hang", "muster-launch --use-e",
                               "muster --nnodes 2 --start-method forks", "muster --log-d",
                               "muster --hang_", "muster --log_dir x --start_method=forks",
                               "muster-launch --use_")
        self.assertEqual(called, ["--nnodes", "--hang-timeout", "--use-env",
                                  "--nnodes 2 --start-method forkserver", "--log-dir",
                                  "--hang_timeout", "--log_dir x --start_method=forkserver",
                                  "--use_env"])

    def test_completion_knows_every_option_of_help(self):
        _, text, _ = self.run_muster("--help", expect=0)
        options = set(re.findall(r"(?:^  |, )(--?[a-zA-Z][\w-]*)", text, re.MULTILINE))
        self.assertGreater(len(options), 45)
        self.assertTrue({"-h", "-r", "--nnodes", "--rdzv-conf", "--hang-timeout"} <= options)
        for shell, form in (("bash", r"(?<![\w-]){}(?![\w-])"), ("zsh", r"'{}[=+]?\["),
                            ("fish", r" -[sl] {} ")):
            _, script, _ = self.run_muster("--completion", shell, expect=0)
            missing = {option for option in options if not re.search(form.format(
                re.escape(option.lstrip("-") if shell == "fish" else option)), script)}
            self.assertEqual(missing, set(), shell)

    def test_the_files_of_the_other_programs_load_their_scripts(self):
        """The shells load these files, which ask the program, when the user first completes its name."""
        share = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(MUSTER))), "share")
        programs = os.path.dirname(os.path.abspath(MUSTER))
        for name in ("musterctl", "musterd"):
            if not os.access(os.path.join(programs, name), os.X_OK):
                self.skipTest(f"{name} is not built")
            for shell, script in (
                    ("bash", f'. "{share}/bash-completion/completions/{name}"; complete -p {name}'),
                    ("zsh", f'autoload -Uz compinit; fpath=("{share}/zsh/site-functions" $fpath); compinit -D -u; '
                            f'autoload +X _{name}; functions _{name}'),
                    ("fish", f'source "{share}/fish/vendor_completions.d/{name}.fish"; complete -c {name}')):
                if shutil.which(shell) is None:
                    continue
                done = subprocess.run([shell, "-c", script], env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
                                      capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""), f"{shell} {name}: {done.stdout}")
                self.assertIn(name, done.stdout, shell)

    def test_bash(self):
        self.check("bash")

    def test_zsh(self):
        self.check("zsh")

    def test_fish(self):
        self.check("fish")


if __name__ == "__main__":
    sys.exit(main())
