#!/usr/bin/env python3
"""Makes the files of a release from a build. scripts/package calls this for each architecture.

packages.py --arch ARCH --build FOLDER --sysroot FOLDER --zig FOLDER --out FOLDER
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import deb
import release
import sbom
import third_party
import wheel

GLIBC = (2, 17)
OF_GLIBC = re.compile(r"lib(c|m)\.so\.6|lib(pthread|rt|dl)\.so\.\d|ld-linux.*")


def stage(build, tree, prefix, components):
    """Runs `cmake --install` with this prefix. `tree` is the folder that stands for /."""
    for component in components:
        subprocess.run(["cmake", "--install", str(build), "--prefix", prefix, "--component", component,
                        "--strip"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DESTDIR": str(tree)})


def check_program(path):
    """Exits with a message unless the stripped program keeps the packages' promises: no symbol above glibc 2.17, no
    library but glibc's, no path of this machine."""
    symbols = subprocess.run(["readelf", "--wide", "--dyn-syms", str(path)], check=True, text=True,
                             capture_output=True).stdout
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", symbols))
    if newest > GLIBC:
        sys.exit(f"{path.name} needs a function of glibc {newest}; the packages promise {GLIBC}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]",
                        subprocess.run(["readelf", "--wide", "--dynamic", str(path)], check=True, text=True,
                                       capture_output=True).stdout)
    if others := [name for name in needed if not OF_GLIBC.fullmatch(name)]:
        sys.exit(f"{path.name} needs libraries that are not glibc's: {others}")
    caches = [os.environ[name] for name in ("ZIG_GLOBAL_CACHE_DIR",) if name in os.environ]
    for folder in (release.SOURCE, pathlib.Path.home(), sys.prefix, *caches):
        if f"{folder}/".encode() in path.read_bytes():
            sys.exit(f"{path.name} names a folder of this machine: {folder}")


def write_tarball(arch, tree, folder):
    name = f"muster-{release.version()}-linux-{arch}"
    path = folder / f"{name}.tar.gz"
    release.write_tar(tree, path, name)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True, choices=sorted(deb.DEBIAN_ARCH))
    for name in ("build", "sysroot", "zig", "out"):
        parser.add_argument(f"--{name}", required=True, type=lambda text: pathlib.Path(text).resolve())
    arguments = parser.parse_args()
    arch, out = arguments.arch, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="muster-packages-") as work:
        work = pathlib.Path(work)

        def into(tree, prefix, components):
            stage(arguments.build, tree, prefix, components)

        # The units in the tarball name programs in /usr/local/bin: docs/install.md unpacks the tarball there.
        into(work / "local", "/usr/local", ["programs", "services", "recipes"])
        tree = work / "local/usr/local"
        programs = release.programs(tree)
        for path in programs:
            check_program(path)
        third_parties = third_party.inside(programs)
        notices = third_party.notices(arch, third_parties, arguments.sysroot, arguments.zig / "lib")
        documents = tree / "share/doc/muster"
        documents.mkdir(parents=True)
        shutil.copy(release.SOURCE / "LICENSE", documents)
        shutil.copy(release.SOURCE / "CHANGELOG.md", documents)
        (documents / "THIRD_PARTY_NOTICES").write_text(notices)
        release.set_modes(tree)

        tarball = write_tarball(arch, tree, out)
        print(tarball.name)
        zig_version = subprocess.run([str(arguments.zig / "zig"), "version"], check=True, text=True,
                                     capture_output=True).stdout.strip()
        parts = out / f"muster-{release.version()}-linux-{arch}.spdx.json"
        parts.write_text(sbom.document(arch, zig_version, third_parties, tree, tarball))
        print(parts.name)
        print(wheel.write(arch, tree, notices, out).name)
        for file in deb.write(arch, into, work, notices, out):
            print(pathlib.Path(file).name)


if __name__ == "__main__":
    main()
