"""Debian systems to install packages in: folders that debootstrap fills. They are kept as archives between runs."""
import ast
import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packaging"))
import sysroot  # noqa: E402  # pylint: disable=wrong-import-position

CACHE = pathlib.Path(os.environ.get("MUSTER_PACKAGE_CACHE", SOURCE / "build/portable-cache")) / "roots"
# Commands in a system do not inherit the caller's environment: its HOME, PATH and PYTHONPATH name other folders there.
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
         "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}


class NotReachable(Exception):
    """Debian's servers do not have this release, or cannot be reached."""


def run(*command, timeout=600, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=timeout, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
    return done.stdout


def archive_of(suite):
    """A minimal system with systemd, as debootstrap makes it."""
    archive = CACHE / f"{suite}.tar"
    if archive.exists():
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{suite}.{os.getpid()}"
    try:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=systemd,ca-certificates", suite, folder,
             sysroot.mirror()], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise NotReachable(f"debootstrap {suite}: {done.stdout[-500:]}{done.stderr[-500:]}")
        run("tar", "--numeric-owner", "--one-file-system", "-C", folder, "-cf", f"{archive}.part", ".")
        os.replace(f"{archive}.part", archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return archive


def emulator():
    """The first words of a command that runs a program for aarch64: Debian 13's qemu, because Debian 12's does not know
    CLONE_PIDFD, with Debian 12's C library."""
    folder = CACHE / "emulator"
    if not folder.exists():
        work = CACHE / f"emulator.{os.getpid()}"
        try:
            for arch, suite, name in (("amd64", "trixie", "qemu-user"), ("arm64", "bookworm", "libc6")):
                apt = sysroot.Apt(work / f"apt-{arch}", arch, suite)
                run("dpkg-deb", "--extract", apt.download(name, apt.candidate(name)), work / arch)
                shutil.rmtree(work / f"apt-{arch}")
            os.replace(work, folder)
        except sysroot.Failure as reason:
            raise NotReachable(f"qemu-user of Debian 13: {reason}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return [str(folder / "amd64/usr/bin/qemu-aarch64"), "-L", str(folder / "arm64")]


class Root:
    """One Debian system in a folder. The caller has a mount namespace of its own, so the kernel unmounts everything when
    the caller ends."""

    def __init__(self, suite, folder):
        archive = archive_of(suite)
        self.folder = pathlib.Path(folder)
        self.given = {}  # What give() was called with: the path in the system.
        run("tar", "--numeric-owner", "-C", self.folder, "-xf", archive)
        run("mount", "-t", "proc", "proc", self.folder / "proc")
        run("mount", "--rbind", "/dev", self.folder / "dev")
        run("mount", "-t", "tmpfs", "tmpfs", self.folder / "run")
        for name in ("etc/resolv.conf", "etc/hosts"):
            if os.path.exists(f"/{name}"):
                shutil.copy(f"/{name}", self.folder / name)
        # This machine's proxy for its package servers, if it has one.
        for file in pathlib.Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(file, self.folder / "etc/apt/apt.conf.d")

    def give_pip_settings(self):
        """Gives the system this machine's way to Python's package index: the settings of pip, the files and folders that
        they name, and the certificates that this machine trusts. Never pip's cache."""
        sections = {}
        lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
        for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # The environment's are the strongest.
            name, _, value = line.partition("=")
            section, _, option = name.rpartition(".")
            value = re.sub(r"((?:^|\s)(?:file://)?)(/\S+)", lambda found: found[1] + self.give(found[2]),
                           str(ast.literal_eval(value)))
            if option not in ("cache-dir", "config-file"):
                sections.setdefault("global" if section == ":env:" else section, {})[option] = value
        settings = configparser.RawConfigParser()
        settings.read_dict(sections)
        with open(self.folder / "etc/pip.conf", "w", encoding="utf-8") as file:
            settings.write(file)
        certificates = pathlib.Path("/usr/local/share/ca-certificates")
        if certificates.is_dir():
            shutil.copytree(certificates, self.folder / certificates.relative_to("/"), dirs_exist_ok=True)
            self.run("update-ca-certificates")

    def give(self, place):
        """Makes a file or folder of this machine readable in the system, and returns its path there: the same path, unless
        the system has something at it. The files of a package index may name each other."""
        if not os.path.exists(place) or place in self.given:
            return self.given.get(place, place)
        if os.path.basename(place) == "simple":  # An index; its pages link to files beside it.
            return os.path.join(self.give(os.path.dirname(place)), "simple")
        target = self.folder / place.lstrip("/")
        if target.exists():
            target = self.folder / "usr/local/share/given" / place.lstrip("/")
        if os.path.isdir(place):
            target.mkdir(parents=True)
            run("mount", "--bind", "-o", "ro", place, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, target)
        self.given[place] = str(pathlib.Path("/", target.relative_to(self.folder)))
        return self.given[place]

    def command(self, *words):
        return ["chroot", str(self.folder), *map(str, words)]

    def run(self, *words, **options):
        return run(*self.command(*words), env=PLAIN, **options)

    def start(self, *words, **options):
        return subprocess.Popen(self.command(*words), env=PLAIN, stdin=subprocess.DEVNULL, text=True,
                                **options)

    def files(self):
        """The paths of all files, except the records of apt, dpkg, ldconfig and shadow."""
        apart = ("proc", "sys", "dev", "run", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log",
                 "etc/ld.so.cache", "etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-",
                 "etc/.pwd.lock", "var/lib/systemd")
        found = set()
        for folder, folders, files in os.walk(self.folder):
            here = pathlib.Path(folder).relative_to(self.folder)
            folders[:] = [name for name in folders if str(here / name) not in apart]
            found |= {str(here / name) for name in folders + files if str(here / name) not in apart}
        return found

    def close(self):
        given = [place.lstrip("/") for place in self.given.values() if os.path.isdir(self.folder / place.lstrip("/"))]
        for name in ("run", "dev", "proc", *given):
            subprocess.run(["umount", "--recursive", "--lazy", self.folder / name], check=False,
                           capture_output=True)
