#!/usr/bin/env python3
"""Makes the sysroot of the portable build (packaging/toolchain.cmake): the headers that it compiles against.

The sysroot is a folder with Debian's -dev packages, unpacked, and nothing else: the C library's headers come with
the compiler. sysroot.lock names each package with its version and checksum. apt fetches the packages, with lists and
settings of its own: those of this machine do not change.

    packaging/sysroot.py --arch x86_64 --into build/portable/x86_64/sysroot
    packaging/sysroot.py --update        # after a point release of Debian: renews sysroot.lock
"""
import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LOCK = HERE / "sysroot.lock"
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# libspdlog1.10 and libfmt9 are needed only because the CMake files of the -dev packages look for the libraries.
PACKAGES = ["libboost1.81-dev", "libspdlog-dev", "libspdlog1.10", "libfmt-dev", "libfmt9",
            "nlohmann-json3-dev", "libcli11-dev", "libhwloc-dev", "libsystemd-dev"]
# packaging/libraries.py compiles these from source. Their architecture in the lock is "source".
SOURCES = ["sqlite3", "openssl"]


class Failure(Exception):
    pass


def mirror():
    """The mirror of Debian: MUSTER_DEBIAN_MIRROR, or the one that apt uses on this machine."""
    if named := os.environ.get("MUSTER_DEBIAN_MIRROR"):
        return named
    places = [pathlib.Path("/etc/apt/sources.list"),
              *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    for place in filter(pathlib.Path.is_file, places):
        text = place.read_text()
        for stanza in re.split(r"\n\s*\n", text):
            uris = re.search(r"^URIs:\s*(\S+)", stanza, re.M)
            suites = re.search(r"^Suites:\s*(.+)$", stanza, re.M)
            if uris and suites and SUITE in suites[1].split():
                return uris[1]
        line = re.search(rf"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{SUITE}\s", text, re.M)
        if line:
            return line[1]
    raise Failure(f"apt on this machine has no source for Debian {SUITE}: name a mirror in MUSTER_DEBIAN_MIRROR")


class Apt:
    """apt with its own lists, cache and sources, for one architecture."""

    def __init__(self, folder, debian_arch, suite=SUITE):
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "sources.d", "downloads"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        options = f"[signed-by={KEYRING}]" if os.path.exists(KEYRING) else ""
        place = mirror()
        (folder / "sources.list").write_text(
            f"deb {options} {place} {suite} main\ndeb-src {options} {place} {suite} main\n")
        (folder / "apt.conf").write_text(f"""
            Dir::State "{folder}/state";
            Dir::State::status "{folder}/status";
            Dir::Cache "{folder}/cache";
            Dir::Etc::sourcelist "{folder}/sources.list";
            Dir::Etc::sourceparts "{folder}/sources.d";
            APT::Architecture "{debian_arch}";
            APT::Architectures {{ "{debian_arch}"; }};
            APT::Sandbox::User "root";
            Acquire::Languages "none";
            Acquire::Retries "3";
            """)
        self.environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
        self.run("apt-get", "-o", "APT::Update::Error-Mode=any", "update")

    def run(self, *command):
        done = subprocess.run(command, env=self.environment, cwd=self.folder / "downloads",
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def candidate(self, package):
        found = re.search(r"^Version: (\S+)$", self.run("apt-cache", "show", "--no-all-versions",
                                                        package), re.M)
        if not found:
            raise Failure(f"apt knows no version of {package}")
        return found[1]

    def source_candidate(self, package):
        versions = re.findall(r"^Version: (\S+)$", self.run("apt-cache", "showsrc", "--only-source",
                                                            package), re.M)
        if not versions:
            raise Failure(f"apt knows no source of {package}")
        newest = versions[0]
        for version in versions[1:]:
            if subprocess.run(["dpkg", "--compare-versions", version, "gt", newest]).returncode == 0:
                newest = version
        return newest

    def download(self, package, version):
        """Downloads the .deb, and returns its path. Callers download each package once."""
        before = set((self.folder / "downloads").iterdir())
        self.run("apt-get", "download", f"{package}={version}")
        new = set((self.folder / "downloads").iterdir()) - before
        if len(new) != 1:
            raise Failure(f"apt-get download {package}={version} left {len(new)} files")
        return new.pop()

    def download_source(self, package, version):
        """Downloads the .dsc and the archives that it names. Returns the path of the .dsc."""
        self.run("apt-get", "source", "--download-only", "--only-source", f"{package}={version}")
        name = f"{package}_{version.split(':')[-1]}.dsc"
        return self.folder / "downloads" / name


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_lock():
    """{(arch, package): (version, checksum)}"""
    rows = [line.split() for line in LOCK.read_text().splitlines() if line and line[0] != "#"]
    return {(arch, package): (version, checksum) for arch, package, version, checksum in rows}


def update(work):
    lines = ["# The packages of Debian 12 that the portable build uses: architecture, package, version, SHA-256 of the",
             "# .deb (of a source: of the .dsc). packaging/sysroot.py --update writes this file."]
    for arch, debian_arch in DEBIAN_ARCH.items():
        apt = Apt(work / arch, debian_arch)
        for package in PACKAGES:
            version = apt.candidate(package)
            lines.append(f"{arch} {package} {version} {sha256(apt.download(package, version))}")
    for package in SOURCES:
        version = apt.source_candidate(package)
        lines.append(f"source {package} {version} {sha256(apt.download_source(package, version))}")
    LOCK.write_text("\n".join(lines) + "\n")


def may_be_newer():
    """Whether a newer version may stand in for the version in the lock. True in CI, never for a release."""
    return os.environ.get("MUSTER_NEWER_PACKAGES") == "1"


def fetch(apt, arch, package):
    """Downloads one package in the version of the lock, and compares its checksum."""
    version, checksum = read_lock()[arch, package]
    is_source = arch == "source"
    download = apt.download_source if is_source else apt.download
    try:
        path = download(package, version)
    except Failure as failure:
        if may_be_newer():
            newer = apt.source_candidate(package) if is_source else apt.candidate(package)
            print(f"sysroot: using {package} {newer}: Debian no longer has {version}, which sysroot.lock names. "
                  "packaging/sysroot.py --update renews the lock.", file=sys.stderr)
            return download(package, newer)
        raise Failure(f"{failure}\n{package} {version}, which sysroot.lock names, cannot be downloaded. If Debian has "
                      "a newer version, packaging/sysroot.py --update renews the lock.") from None
    if sha256(path) != checksum:
        raise Failure(f"{path.name} is not the file that sysroot.lock names: its SHA-256 is {sha256(path)}; "
                      f"expected {checksum}")
    return path


def stamp_of(into):
    return into.parent / (into.name + ".lock")


def make(arch, into, work):
    """Makes the sysroot in the folder `into`. Does nothing if the folder was made from the same lock."""
    wanted = "".join(f"{package} {read_lock()[arch, package]}\n" for package in PACKAGES)
    stamp = stamp_of(into)
    if into.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    apt = Apt(work, DEBIAN_ARCH[arch])
    for package in PACKAGES:
        path = fetch(apt, arch, package)
        subprocess.run(["dpkg-deb", "--extract", str(path), str(into)], check=True)
        path.unlink()
    stamp.write_text(wanted)


def make_source(package, into, work):
    """Unpacks the source package into `into`. Returns whether it has the version of the lock: see may_be_newer()."""
    apt = Apt(work, "amd64")
    dsc = fetch(apt, "source", package)
    shutil.rmtree(into, ignore_errors=True)
    into.parent.mkdir(parents=True, exist_ok=True)
    # The .dsc has the checksums of the archives, and the lock has the checksum of the .dsc: no signature is needed.
    subprocess.run(["dpkg-source", "--no-check", "--require-strong-checksums", "--extract", str(dsc),
                    str(into)], check=True, stdout=subprocess.DEVNULL)
    return sha256(dsc) == read_lock()["source", package][1]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(DEBIAN_ARCH))
    parser.add_argument("--source", choices=SOURCES)
    parser.add_argument("--into", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-sysroot-") as work:
        work = pathlib.Path(work)
        if arguments.update:
            update(work)
        elif arguments.into and arguments.arch:
            make(arguments.arch, arguments.into.resolve(), work)
        elif arguments.into and arguments.source:
            make_source(arguments.source, arguments.into.resolve(), work)
        else:
            parser.error("expected --into with --arch or --source, or --update")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"sysroot: {failure}")
