#!/usr/bin/env python3
"""Puts SQLite and OpenSSL into the sysroot of the portable build, as static libraries.

The sources are Debian's, pinned in sysroot.lock. The compiler is that of packaging/toolchain.cmake, so the libraries
need glibc 2.17, too. find_package(SQLite3) and find_package(OpenSSL) find them.

    packaging/libraries.py --arch x86_64 --sysroot build/portable-sysroot/x86_64 --cache FOLDER --log FILE
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import sysroot

HERE = pathlib.Path(__file__).resolve().parent
ZIG = HERE / "zig"
GLIBC = "2.17"
# -g0: without this option, the compiler adds debug information.
FLAGS = ["-O2", "-g0", "-fPIC", "-fstack-protector-strong", "-ffunction-sections", "-fdata-sections"]
# SQLite's ./configure would find these on every Linux. Without usleep, SQLite waits a whole second for a busy database.
SQLITE_FLAGS = ["-DHAVE_FDATASYNC=1", "-DHAVE_USLEEP=1", "-DHAVE_GMTIME_R=1", "-DHAVE_LOCALTIME_R=1",
                "-DSQLITE_THREADSAFE=1", "-DSQLITE_OMIT_LOAD_EXTENSION"]
# What remains: TLS 1.2 and 1.3, X.509, digests and MACs. OpenSSL loads neither modules nor the system's openssl.cnf at
# run time, so a program does the same on every system. OpenSSL looks for certificates in /etc/ssl.
OPENSSL_OPTIONS = [f"no-{name}" for name in (
    "shared tests dso engine module legacy async autoload-config comp ssl3 tls1 tls1_1 dtls srp ct ocsp cmp "
    "cms ts gost aria bf camellia cast idea md4 mdc2 rc2 rc4 rc5 rmd160 seed sm2 sm3 sm4 whirlpool").split()]


def run(*command, cwd, log):
    """Runs a command with packaging/zig first in PATH. Commands name the compiler without a folder, because OpenSSL
    writes the compiler's command line into the library."""
    environment = {**os.environ, "PATH": f"{ZIG}:{os.environ['PATH']}", "LC_ALL": "C",
                   # OpenSSL writes this date into the library.
                   "SOURCE_DATE_EPOCH": "0"}
    for name in ("CFLAGS", "CPPFLAGS", "LDFLAGS", "CC", "AR", "RANLIB", "MAKEFLAGS"):
        environment.pop(name, None)
    log.write(f"$ {' '.join(map(str, command))}\n")
    log.flush()
    if subprocess.run([str(word) for word in command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
                      stdout=log, stderr=subprocess.STDOUT).returncode != 0:
        raise sysroot.Failure(f"{' '.join(map(str, command))[:200]} failed: {log.name}")


def build_sqlite3(arch, source, build, into, jobs, log):  # pylint: disable=unused-argument
    # BCC compiles SQLite's own tools for this machine; they generate sqlite3.c.
    run("make", "-f", source / "main.mk", f"TOP={source}", "BCC=cc -O1 -g0", "TCC=cc", "NAWK=awk", "OPTS=",
        "sqlite3.c", cwd=build, log=log)
    run("cc", "-target", f"{arch}-linux-gnu.{GLIBC}", *FLAGS, *SQLITE_FLAGS, "-c", "sqlite3.c", "-o", "sqlite3.o",
        cwd=build, log=log)
    libraries = into / f"usr/lib/{arch}-linux-gnu"
    libraries.mkdir(parents=True)
    run("ar", "crs", libraries / "libsqlite3.a", "sqlite3.o", cwd=build, log=log)
    (into / "usr/include").mkdir()
    shutil.copy(build / "sqlite3.h", into / "usr/include")


def build_openssl(arch, source, build, into, jobs, log):
    # A relative path, because OpenSSL's error messages contain the path of each source file.
    run("perl", os.path.relpath(source / "Configure", build), f"linux-{arch}", "--prefix=/usr",
        f"--libdir=lib/{arch}-linux-gnu", "--openssldir=/etc/ssl", *OPENSSL_OPTIONS,
        f"CC=cc -target {arch}-linux-gnu.{GLIBC}", "AR=ar", "RANLIB=ranlib", f"CFLAGS={' '.join(FLAGS)}",
        cwd=build, log=log)
    run("make", f"-j{jobs}", "build_libs", cwd=build, log=log)
    run("make", "install_dev", f"DESTDIR={into}", cwd=build, log=log)


BUILDERS = {"sqlite3": build_sqlite3, "openssl": build_openssl}


def key(arch, package):
    """A hash of everything that the library depends on: names the archive in the cache."""
    zig = subprocess.run([str(ZIG / "tool"), "version"], capture_output=True, text=True)
    if zig.returncode != 0:
        raise sysroot.Failure(zig.stderr.strip())
    version, checksum = sysroot.read_lock()["source", package]
    parts = [arch, package, version, checksum, zig.stdout.strip(), pathlib.Path(__file__).read_text()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def build_archive(arch, package, cache, jobs, log):
    """Compiles the library. Returns a tar file with library, headers and licence, with their paths in the sysroot."""
    with tempfile.TemporaryDirectory(prefix=f"muster-{package}-") as work:
        work = pathlib.Path(work)
        for name in ("apt", "build", "tree"):
            (work / name).mkdir()
        source = work / package
        is_locked = sysroot.make_source(package, source, work / "apt")
        BUILDERS[package](arch, source, work / "build", work / "tree", jobs, log)
        documents = work / "tree/usr/share/doc" / package
        documents.mkdir(parents=True)
        shutil.copy(source / "debian/copyright", documents)
        archive = cache / archive_names(arch, package)[0 if is_locked else 1]
        part = archive.with_suffix(f".{os.getpid()}")
        with tarfile.open(part, "w") as tar:
            tar.add(work / "tree/usr", "usr")
        os.replace(part, archive)
        return archive


def archive_names(arch, package):
    """The archive's names in the cache: for the version in the lock, and for a newer version in its place."""
    name = f"{package}-{arch}-{key(arch, package)}"
    return [f"{name}.tar", f"{name}-newer.tar"]


def install(arch, package, folder, cache, jobs, log):
    names = archive_names(arch, package)
    if not sysroot.may_be_newer():
        del names[1]
    stamp = folder / f"usr/share/doc/{package}/muster-archive"
    if stamp.is_file() and stamp.read_text() in names:
        return
    cache.mkdir(parents=True, exist_ok=True)
    archive = next((cache / name for name in names if (cache / name).exists()), None)
    if archive is None:
        archive = build_archive(arch, package, cache, jobs, log)
    subprocess.run(["tar", "--no-same-owner", "-C", str(folder), "-xf", str(archive)], check=True)
    stamp.write_text(archive.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", required=True, choices=sorted(sysroot.DEBIAN_ARCH))
    parser.add_argument("--sysroot", required=True, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--cache", required=True, type=lambda text: pathlib.Path(text).resolve(),
                        help="where compiled libraries are kept for the next time")
    parser.add_argument("--log", required=True, help="the file for the compiler's output")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    with open(arguments.log, "w", encoding="utf-8") as log:
        for package in sysroot.SOURCES:
            install(arguments.arch, package, arguments.sysroot, arguments.cache, arguments.jobs, log)


if __name__ == "__main__":
    try:
        main()
    except sysroot.Failure as failure:
        sys.exit(f"libraries: {failure}")
