#!/usr/bin/env python3
"""Tests which Python runs the script: the one that `python` is in the same shell, or a line names the other.

The environments are folders with Pythons that only print who they are. Variables, PATH and files are as the tools make
them: uv 0.13.9 and pipx 1.18.4 were run, and py-rattler 0.28, whose library activates pixi's environments. Those of
pyenv-virtualenv 1.4 are read from its bin/pyenv-sh-activate. conda run activates an environment as pixi does.
"""
import pathlib
import subprocess

from support import MUSTER, MusterTest, main

VENV, CONDA = "pyvenv.cfg", "conda-meta"
PROGRAMS = ("muster", "torchrun")


class PythonChoice(MusterTest):
    def setUp(self):
        super().setUp()
        (self.dir / "train.py").write_text("")
        self.system = self.folder("usr")

    def folder(self, name, *files, pythons=("python3", "python"), programs=()):
        """Makes an environment with these files in its root. Returns the folder of its programs."""
        root = self.dir / name
        bin_folder = root / "bin"
        bin_folder.mkdir(parents=True)
        for file in files:
            (root / file).touch()
        for python in pythons:
            (bin_folder / python).write_text(f"#!/bin/sh\necho {name}\n")
            (bin_folder / python).chmod(0o755)
        for program in programs:
            (bin_folder / program).symlink_to(pathlib.Path(MUSTER).resolve())
        return bin_folder

    def links(self, *targets):
        """Makes a folder of links, as ~/.local/bin."""
        folder = self.dir / "links"
        folder.mkdir(exist_ok=True)
        for target in targets:
            (folder / target.name).symlink_to(target)
        return folder

    def run_in(self, path, program, variables):
        """Runs `program` (by its path, or from PATH) and python. Returns what both say, and muster's lines."""
        environment = self.environment(PATH=":".join(map(str, [*path, "/bin"])), OMP_NUM_THREADS="1")
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_VIRTUAL_ENV", "PYTHON_EXEC"):
            environment.pop(name, None)
        environment.update({name: str(value) for name, value in variables.items()})
        outputs = []
        for command in ([program, "train.py"], ["python", "train.py"]):
            process = subprocess.run(["/usr/bin/env", *map(str, command)], env=environment, cwd=self.dir, text=True,
                                     capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(process.returncode, 0, process.stderr)
            outputs.append((process.stdout.strip(), process.stderr))
        return outputs[0][0], outputs[1][0], outputs[0][1]

    def check(self, expected, path, program=None, warns="", **variables):
        for name in PROGRAMS if program is None else [program]:
            with self.subTest(program=name, path=list(map(str, path)), **variables):
                muster, python, lines = self.run_in(path, name, variables)
                self.assertEqual(muster, expected)
                if warns:
                    self.assertIn(warns, lines)
                else:
                    self.assertEqual(lines, "")
                    if "/" not in str(name):
                        self.assertEqual(muster, python)

    def test_uv_run(self):
        project = self.folder("p/.venv", VENV, programs=PROGRAMS)
        self.check("p/.venv", [project, self.system], VIRTUAL_ENV=project.parent)
        # --with: two environments of the cache come first. The programs are in the project's.
        overlay, added = self.folder("cache/builds", VENV), self.folder("cache/archive", VENV)
        self.check("cache/builds", [overlay, added, project, self.system], VIRTUAL_ENV=overlay.parent)

    def test_uvx(self):
        made = self.folder("cache/archive", VENV, programs=PROGRAMS)
        active = self.folder("venv", VENV)
        self.check("cache/archive", [made, self.system])
        self.check("cache/archive", [made, active, self.system], VIRTUAL_ENV=active.parent)

    def test_tools_of_uv_and_pipx(self):
        """They make environments for a program alone."""
        active = self.folder("venv", VENV)
        for marker in ("uv-receipt.toml", "pipx_metadata.json"):
            tool = self.folder(f"tool.{marker}", VENV, marker, programs=PROGRAMS)
            for name in PROGRAMS:
                (self.dir / "links" / name).unlink(missing_ok=True)
            links = self.links(*(tool / name for name in PROGRAMS))
            self.check("usr", [links, self.system])
            self.check("venv", [links, active, self.system], VIRTUAL_ENV=active.parent)
            # `pipx run` calls the program in the environment by its path, and changes no variable.
            for name in PROGRAMS:
                self.check("usr", [self.system], program=tool / name)
                self.check("venv", [active, self.system], program=tool / name, VIRTUAL_ENV=active.parent)

    def test_conda_run_and_pixi_run(self):
        """They put the environment's folder first in PATH, and set CONDA_PREFIX. An active venv stays in both."""
        environment = self.folder("envs/train", CONDA, programs=PROGRAMS)
        venv, base = self.folder("venv", VENV), self.folder("conda", CONDA)
        self.check("envs/train", [environment, self.system], CONDA_PREFIX=environment.parent)
        self.check("envs/train", [environment, venv, self.system], CONDA_PREFIX=environment.parent, VIRTUAL_ENV=venv.parent)
        self.check("envs/train", [environment, base, self.system], CONDA_PREFIX=environment.parent)
        # The program is in base, or outside.
        for name in PROGRAMS:
            (environment / name).unlink()
            (base / name).symlink_to(pathlib.Path(MUSTER).resolve())
        self.check("envs/train", [environment, base, self.system], CONDA_PREFIX=environment.parent)

    def test_a_module_before_an_environment_of_the_login_shell(self):
        module, venv = self.folder("modules/python", programs=PROGRAMS), self.folder("venv", VENV)
        self.check("modules/python", [module, venv, self.system], VIRTUAL_ENV=venv.parent)
        self.check("modules/python", [module, venv, self.system], CONDA_PREFIX=venv.parent)

    def test_an_environment_that_path_does_not_have(self):
        """As after sudo -E, or in a container whose image sets the variable alone."""
        opt = self.folder("opt", pythons=(), programs=PROGRAMS)
        for kind, variable in ((VENV, "VIRTUAL_ENV"), (CONDA, "CONDA_PREFIX")):
            environment = self.folder(f"e.{variable}", kind)
            self.check(f"e.{variable}", [opt, self.system], **{variable: environment.parent},
                       warns=f"{variable}={environment.parent} is not in PATH, whose python3 is another one, {self.system}/python3")
            other = self.folder(f"o.{variable}", kind)
            self.check(f"o.{variable}", [opt, other, self.system], **{variable: environment.parent})

    def test_an_environment_whose_python_was_removed(self):
        venv = self.folder("venv", VENV, pythons=(), programs=PROGRAMS)
        (venv / "python3").symlink_to("/nonexistent/python3")
        said = f" has no Python that can be run: {venv}/python3 leads to none"
        self.check("usr", [venv, self.system], warns=said, VIRTUAL_ENV=venv.parent)
        for name in PROGRAMS:
            self.check("usr", [self.system], program=venv / name, warns=said)

    def test_pyenv_virtualenv(self):
        """PATH has pyenv's own python3 only, which starts that of the environment."""
        environment, shims = self.folder("versions/v", VENV), self.folder("shims")
        for python in ("python3", "python"):
            (shims / python).write_text(f'#!/bin/sh\nexec {environment}/{python} "$@"\n')
        opt = self.folder("opt", pythons=(), programs=PROGRAMS)
        self.check("versions/v", [shims, opt, self.system], VIRTUAL_ENV=environment.parent,
                   PYENV_VIRTUAL_ENV=environment.parent)

    def test_the_programs_own_environment_after_another_python(self):
        venv = self.folder("venv", VENV, programs=PROGRAMS)
        self.check("venv", [self.system, venv], warns=f"later in PATH, whose python3 is another one, {self.system}/python3")
        self.check("venv", [venv, self.system])
        for name in PROGRAMS:
            self.check("venv", [self.system], program=venv / name)

    def test_python_before_python3(self):
        first = self.folder("first", pythons=("python",), programs=PROGRAMS[:1])
        self.check("usr", [first, self.system], program="muster", warns=f"`python` in PATH is another one, {first}/python")
        self.check("usr", [self.system, first], program="muster")


if __name__ == "__main__":
    main()
