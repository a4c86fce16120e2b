"""The Pythons of this machine, for tests of files that must run under several versions."""
import functools
import glob
import os
import shutil
import subprocess

OLDEST, NEWEST = 8, 14  # Of Python 3.


@functools.lru_cache(maxsize=None)
def pythons():
    """{minor version: interpreter} of the versions of Python 3 that are here. They are looked for under their names in
    PATH, and where pyenv keeps them."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    candidates = [shutil.which(f"python3.{minor}") for minor in range(OLDEST, NEWEST + 1)]
    candidates += sorted(glob.glob(f"{glob.escape(pyenv)}/versions/*/bin/python3"))
    found = {}
    for path in filter(None, candidates):
        # A shim of pyenv fails if its version is not chosen.
        done = subprocess.run([path, "-c", "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            continue
        major, minor, executable = done.stdout.rstrip("\n").split(" ", 2)
        if major == "3" and OLDEST <= int(minor) <= NEWEST:
            found.setdefault(int(minor), executable)
    return found


def missing():
    """The versions that are not here, as names."""
    return [f"3.{minor}" for minor in range(OLDEST, NEWEST + 1) if minor not in pythons()]
