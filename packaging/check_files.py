#!/usr/bin/env python3
"""Checks the files of a release with other projects' tools: scripts/package --check.

    packaging/check_files.py --tools build/portable-venv/bin build/packages

twine checks the wheels and the sdist, auditwheel compares each wheel with the tags in its name, spdx-tools validates
the lists of parts, and lintian checks the .deb files. Exits with 1 and a sentence for each check that fails. A tool
that is not installed is a failure.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import release

TAG = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")


class Failure(Exception):
    pass


def run(tool, *arguments):
    """The tool's output. Fails if the tool does."""
    program = shutil.which(tool)
    if program is None:
        raise Failure(f"{tool} is not installed: scripts/package --check installs it, unless "
                      "MUSTER_SKIP_PACKAGES=1 or --no-install is given")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(done.stdout + done.stderr, end="", flush=True)
    if done.returncode != 0:
        raise Failure(f"{pathlib.Path(tool).name} {' '.join(map(str, arguments))} failed with {done.returncode}")
    return done.stdout


def check_python_packages(folder, tools):
    run(tools / "twine", "check", "--strict", *sorted(folder.glob("*.whl")), *sorted(folder.glob("muster_launch-*.tar.gz")))


def check_wheel(wheel, tools):
    """Fails unless auditwheel's own verdict is as strict as the tag in the wheel's file name, or stricter.

    The output of `auditwheel show` repeats the file name, and so the promise: only "overall_tag" is the verdict."""
    promised = TAG.search(wheel.name)
    if promised is None:
        raise Failure(f"{wheel.name} has no manylinux_X_Y tag in its name")
    verdict = json.loads(run(tools / "auditwheel", "show", "--json", wheel)).get("overall_tag", "")
    found = TAG.fullmatch(verdict)
    if found is None or found[3] != promised[3] or (int(found[1]), int(found[2])) > (int(promised[1]), int(promised[2])):
        raise Failure(f"{wheel.name}: its name promises {promised[0]}, and auditwheel finds {verdict or 'nothing'}")


def check_parts(document, tools):
    run(tools / "pyspdxtools", "--infile", document, "--version", "SPDX-2.3")


def check_debian_packages(folder):
    run("lintian", "--allow-root", "--fail-on", "error", *sorted(folder.glob("*.deb")))


def checks(folder, tools):
    """[(function, arguments)] for the files in this folder. Fails if a kind of file is missing."""
    wheels, documents = sorted(folder.glob("*.whl")), sorted(folder.glob("*.spdx.json"))
    for kind, found in (("wheel", wheels), ("list of parts", documents), (".deb", list(folder.glob("*.deb")))):
        if not found:
            raise Failure(f"there is no {kind} in {folder}")
    return [(check_python_packages, (folder, tools)), *((check_wheel, (wheel, tools)) for wheel in wheels),
            *((check_parts, (document, tools)) for document in documents), (check_debian_packages, (folder,))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tools", required=True, type=pathlib.Path, help="where twine, auditwheel and pyspdxtools are")
    arguments = parser.parse_args()
    failed = False
    for check, words in checks(arguments.folder.resolve(), arguments.tools.resolve()):
        try:
            check(*words)
        except Failure as failure:
            print(f"check_files: {failure}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure_of_all:
        sys.exit(f"check_files: {failure_of_all}")
