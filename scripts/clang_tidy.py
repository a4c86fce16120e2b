#!/usr/bin/env python3
"""Runs clang-tidy on the files of a build: on all files, or on those that changed since a commit.

A clean file is checked again only after a change of the file, of a header of ours that it includes, of its compile
command, of the checks or of clang-tidy. So only the first run is long. With --seconds, the run ends after that time and
names the files that it has not checked.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = "clang-tidy-19"
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.MULTILINE)


def output_of(*argv):
    return subprocess.run(argv, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def is_ours(path):
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "build")


def commands_of(build):
    """{source file of ours: compile command}"""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if is_ours(path):
            commands[path] = entry["command"]
    return commands


@functools.cache
def included_by(path):
    """The files of ours that this file includes directly. The SDK's headers are included as its users include them."""
    folders = [path.parent, ROOT, ROOT / "worker_sdk/include", ROOT / "worker_sdk/src"]
    found = []
    for name in INCLUDE.findall(path.read_text()):
        there = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if there:
            found.append(there.resolve())
    return found


def files_behind(path):
    """The file, and all files of ours that it includes, directly or not."""
    behind, left = {path}, [path]
    while left:
        new = set(included_by(left.pop())) - behind
        behind |= new
        left.extend(new)
    return behind


def changed_since(base):
    return {ROOT / name for name in output_of("git", "diff", "--name-only", base).split("\n")}


class Tidy:
    def __init__(self, build):
        self.build = build
        self.commands = commands_of(build)
        self.clean = ROOT / "build/tidy"
        self.clean.mkdir(parents=True, exist_ok=True)
        self.version = output_of(TOOL, "--version")
        self.contents = {}

    def content(self, path):
        if path not in self.contents:
            self.contents[path] = path.read_bytes() if path.exists() else b""
        return self.contents[path]

    def stamp(self, path):
        """The path of a file that exists if `path` with its present content was clean."""
        digest = hashlib.sha256(self.version.encode() + self.commands[path].encode())
        for folder in path.parents:
            if folder.is_relative_to(ROOT):
                digest.update(self.content(folder / ".clang-tidy"))
        for included in sorted(files_behind(path)):
            digest.update(str(included).encode() + b"\0" + self.content(included))
        return self.clean / digest.hexdigest()

    def is_clean(self, path):
        return self.stamp(path).exists()

    def check(self, path):
        """The output of clang-tidy; empty if the file is clean."""
        done = subprocess.run([TOOL, "-p", self.build, "--quiet", path], cwd=ROOT, check=False,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == 0:
            self.stamp(path).touch()
            return ""
        return done.stdout.strip() or done.stderr.strip() or f"{TOOL} ended with {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lint")
    parser.add_argument("--base", help="only files that have changed since this commit")
    parser.add_argument("--seconds", type=float, help="begin no file after this time")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these files")
    args = parser.parse_args()

    tidy = Tidy(args.build.resolve())
    paths = sorted(tidy.commands)
    if args.files:
        paths = [path.resolve() for path in args.files]
        strange = [str(path) for path in args.files if path.resolve() not in tidy.commands]
        if strange:
            parser.error(f"{args.build} compiles no such file: {' '.join(strange)}")
    elif args.base:
        changed = changed_since(args.base)
        paths = [path for path in paths if {path, path.with_suffix(".h")} & changed]
    unknown = [path for path in paths if not tidy.is_clean(path)]
    print(f"{len(paths)} files, {len(paths) - len(unknown)} of them known to be clean", flush=True)

    end = time.monotonic() + args.seconds if args.seconds else float("inf")
    late, found = [], 0

    def turn(path):
        return None if time.monotonic() > end else tidy.check(path)

    with concurrent.futures.ThreadPoolExecutor(max_workers=args.jobs) as pool:
        for path, said in zip(unknown, pool.map(turn, unknown)):
            if said is None:
                late.append(path)
            elif said:
                found += 1
                print(f"{path.relative_to(ROOT)}:\n{said}", flush=True)
    if late:
        print(f"no time for {len(late)} files; the next run goes on with them:")
        print("\n".join(f"  {path.relative_to(ROOT)}" for path in late))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
