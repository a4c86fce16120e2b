"""The code of other projects that the programs contain: for the notices and for the list of parts (SBOM)."""
import pathlib
import re

import sysroot

HERE = pathlib.Path(__file__).resolve().parent
# Name, licence (SPDX), Debian's package in sysroot.lock. The sysroot has the licence's text in the package's folder
# below usr/share/doc.
LIBRARIES = [
    ("Boost", "BSL-1.0", "libboost1.81-dev"),
    ("CLI11", "BSD-3-Clause", "libcli11-dev"),
    ("fmt", "MIT", "libfmt-dev"),
    ("nlohmann-json", "MIT", "nlohmann-json3-dev"),
    ("spdlog", "MIT", "libspdlog-dev"),
    ("hwloc headers", "BSD-3-Clause", "libhwloc-dev"),
]
# Libraries that packaging/libraries.py compiles. A program contains the library if it contains these bytes.
COMPILED = [
    ("SQLite", "blessing", "sqlite3", b"SQLite format 3"),
    ("OpenSSL", "Apache-2.0", "openssl", b"OpenSSL Default Provider"),
]
# Libraries of the compiler: name, licence (SPDX), the file with the licence below ziglang/lib.
FROM_COMPILER = [
    ("libc++", "Apache-2.0 WITH LLVM-exception", "libcxx/LICENSE.TXT"),
    ("libc++abi", "Apache-2.0 WITH LLVM-exception", "libcxxabi/LICENSE.TXT"),
    ("libunwind", "Apache-2.0 WITH LLVM-exception", "libunwind/LICENSE.TXT"),
    ("glibc start files", "LGPL-2.1-or-later WITH GCC-exception-2.0", "libc/glibc/LICENSES"),
]

COPYRIGHT_CHARS_MAX = 100_000


def locked_versions(arch):
    """{Debian's package: its version}"""
    rows = [line.split() for line in (HERE / "sysroot.lock").read_text().splitlines()
            if line and line[0] != "#"]
    return {package: version for row_arch, package, version, _ in rows if row_arch in (arch, "source")}


def debian_arch(arch, package):
    return "source" if package in sysroot.SOURCES else sysroot.DEBIAN_ARCH[arch]


def inside(programs):
    """The libraries in these programs, as rows of LIBRARIES: all of LIBRARIES, and those of COMPILED that are found."""
    bytes_of_all = b"".join(path.read_bytes() for path in programs)
    return LIBRARIES + [(name, licence, package) for name, licence, package, mark in COMPILED
                        if mark in bytes_of_all]


def upstream(version):
    """The project's own version number: 1.81.0 for Debian's 1:1.81.0+ds-5+deb12u1."""
    return re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version)[1]


def terms(copyright_file):
    """The text of Debian's copyright file. If the file lists thousands of files, only the licences in it."""
    text = copyright_file.read_text(errors="replace")
    if len(text) < COPYRIGHT_CHARS_MAX:
        return text
    licences = [stanza for stanza in re.split(r"\n{2,}(?=\S)", text) if stanza.startswith("License:")]
    return ("Each header names its copyright holders and the licence that applies to it.\n\n"
            + "\n\n".join(licences) + "\n")


def notices(arch, libraries, folder, compiler_lib):
    """The text of THIRD_PARTY_NOTICES, which every package contains."""
    versions = locked_versions(arch)
    parts = ["muster's programs contain code of the following projects. Their licences, as Debian's packages\n"
             "and the compiler's have them:\n"]
    for name, licence, package in libraries:
        text = terms(folder / "usr/share/doc" / package / "copyright")
        parts.append(f"{'=' * 78}\n{name} {upstream(versions[package])} ({licence})\n{'=' * 78}\n\n{text}")
    seen = set()
    for name, licence, file in FROM_COMPILER:
        text = (compiler_lib / file).read_text(errors="replace")
        body = f"\n{text}" if text not in seen else "\nThe same licence as above.\n"
        seen.add(text)
        parts.append(f"{'=' * 78}\n{name} ({licence})\n{'=' * 78}\n{body}")
    return "\n".join(parts)
