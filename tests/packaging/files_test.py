#!/usr/bin/env python3
"""Reads the files that scripts/package made: the lists of parts, the checks of --check, and whether the same build gives
the same bytes again. Installs nothing, and needs no root.

MUSTER_PACKAGES names the folder that scripts/package filled (default: build/packages).
"""
import contextlib
import copy
import filecmp
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packaging"))
import check_files  # noqa: E402  # pylint: disable=wrong-import-position
import release  # noqa: E402  # pylint: disable=wrong-import-position
import third_party  # noqa: E402  # pylint: disable=wrong-import-position
import wheel  # noqa: E402  # pylint: disable=wrong-import-position

PACKAGES = pathlib.Path(os.environ.get("MUSTER_PACKAGES", SOURCE / "build/packages")).resolve()
TOOLS = SOURCE / "build/portable-venv/bin"
ARCHITECTURES = [arch for arch in ("x86_64", "aarch64") if list(PACKAGES.glob(f"*-linux-{arch}.tar.gz"))]
BUILD_OF = {"x86_64": "portable", "aarch64": "portable-aarch64"}
PACK_S = 300


def name_of(arch):
    return f"muster-{release.version()}-linux-{arch}"


def quietly(function, *arguments):
    """Calls a function of check_files, which prints the output of its tools."""
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-files-"))
        self.addCleanup(shutil.rmtree, self.folder)


class Parts(FilesTest):
    """The SPDX document of each architecture."""

    def document(self, arch):
        return json.loads((PACKAGES / f"{name_of(arch)}.spdx.json").read_text())

    def test_it_lists_the_files_of_the_tarball(self):
        for arch in ARCHITECTURES:
            document, tarball = self.document(arch), PACKAGES / f"{name_of(arch)}.tar.gz"
            with tarfile.open(tarball) as tar:
                contents = {member.name.replace(name_of(arch), ".", 1): tar.extractfile(member).read()
                            for member in tar if member.isreg()}
            listed = {file["fileName"]: {one["algorithm"]: one["checksumValue"] for one in file["checksums"]}
                      for file in document["files"]}
            self.assertEqual(listed, {name: {"SHA1": hashlib.sha1(data).hexdigest(),
                                             "SHA256": hashlib.sha256(data).hexdigest()}
                                      for name, data in contents.items()})
            [ours] = [package for package in document["packages"] if package["name"] == "muster"]
            self.assertTrue(ours["filesAnalyzed"])
            sums = "".join(sorted(hashlib.sha1(data).hexdigest() for data in contents.values()))
            self.assertEqual(ours["packageVerificationCode"]["packageVerificationCodeValue"],
                             hashlib.sha1(sums.encode()).hexdigest())
            self.assertEqual(ours["packageFileName"], tarball.name)
            self.assertEqual(ours["checksums"], [{"algorithm": "SHA256", "checksumValue": release.sha256(tarball)}])

    def test_every_program_is_linked_with_every_part(self):
        for arch in ARCHITECTURES:
            document = self.document(arch)
            packages = {package["SPDXID"]: package for package in document["packages"]}
            files = {file["SPDXID"]: file["fileName"] for file in document["files"]}
            ids = {"SPDXRef-DOCUMENT", *packages, *files}
            self.assertEqual(len(ids), 1 + len(document["packages"]) + len(document["files"]))
            relations = {}
            for each in document["relationships"]:
                self.assertLessEqual({each["spdxElementId"], each["relatedSpdxElement"]}, ids)
                relations.setdefault(each["relationshipType"], set()).add(
                    (each["spdxElementId"], each["relatedSpdxElement"]))
            [ours] = [key for key, package in packages.items() if package["filesAnalyzed"]]
            self.assertEqual(relations["DESCRIBES"], {("SPDXRef-DOCUMENT", ours)})
            self.assertEqual(relations["CONTAINS"], {(ours, file) for file in files})
            programs = {key for key, name in files.items() if name.startswith("./bin/")}
            self.assertGreaterEqual(len(programs), 3)
            self.assertEqual(relations["STATIC_LINK"],
                             {(program, part) for program in programs for part in set(packages) - {ours}})

    def test_the_parts_have_the_versions_of_the_lock(self):
        for arch in ARCHITECTURES:
            found = {package["name"]: package for package in self.document(arch)["packages"]}
            locked = third_party.locked_versions(arch)
            for name, _, package in third_party.LIBRARIES:
                self.assertEqual(found[name]["versionInfo"], third_party.upstream(locked[package]))
            self.assertIn("SQLite", found)
            self.assertLessEqual({name for name, _, _ in third_party.FROM_COMPILER}, set(found))

    def test_spdx_tools_accepts_it_and_would_refuse_errors(self):
        document = self.document(ARCHITECTURES[0])
        quietly(check_files.check_parts, PACKAGES / f"{name_of(ARCHITECTURES[0])}.spdx.json", TOOLS)
        without_sha1, contradiction = copy.deepcopy(document), copy.deepcopy(document)
        del without_sha1["files"][0]["checksums"][0]
        # A package whose files were not analyzed may contain none.
        contradiction["packages"][0]["filesAnalyzed"] = False
        for wrong in (without_sha1, contradiction):
            path = self.folder / "wrong.spdx.json"
            path.write_text(json.dumps(wrong))
            with self.assertRaises(check_files.Failure):
                quietly(check_files.check_parts, path, TOOLS)


class Checks(FilesTest):
    """scripts/package --check refuses bad files."""

    def wheel_with(self, program, tag):
        path = self.folder / f"{wheel.NAME}-{release.version()}-py3-none-{tag}.whl"
        info, data = (f"{wheel.NAME}-{release.version()}.{kind}" for kind in ("dist-info", "data"))
        contents = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: muster-launch\nVersion: {release.version()}\n".encode(),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: false\n"
                             f"Tag: py3-none-{tag}\n".encode(),
            f"{data}/scripts/muster": program}
        rows = [f"{name},sha256={wheel.digest(text)},{len(text)}" for name, text in contents.items()]
        contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        with zipfile.ZipFile(path, "w") as file:
            for name, text in contents.items():
                file.writestr(name, text)
        return path

    def test_auditwheel_decides_and_not_the_file_name(self):
        for path in PACKAGES.glob("*.whl"):
            quietly(check_files.check_wheel, path, TOOLS)
        # A program of this machine needs a newer glibc.
        program = pathlib.Path("/bin/true").read_bytes()
        newest = max(tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)", program))
        self.assertGreater(newest, (2, 17))
        with self.assertRaisesRegex(check_files.Failure, r"its name promises manylinux_2_17_x86_64, and auditwheel finds"):
            quietly(check_files.check_wheel, self.wheel_with(program, "manylinux_2_17_x86_64"), TOOLS)
        with self.assertRaisesRegex(check_files.Failure, "no manylinux"):
            quietly(check_files.check_wheel, self.wheel_with(program, "linux_x86_64"), TOOLS)

    def test_a_tool_that_is_not_installed_is_a_failure(self):
        with unittest.mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            with self.assertRaisesRegex(check_files.Failure, "^lintian is not installed: "):
                quietly(check_files.check_debian_packages, PACKAGES)
        with self.assertRaisesRegex(check_files.Failure, "auditwheel is not installed: "):
            quietly(check_files.check_wheel, next(PACKAGES.glob("*.whl")), self.folder)

    def test_a_kind_of_file_that_is_missing_is_a_failure(self):
        (self.folder / next(PACKAGES.glob("*.whl")).name).touch()
        with self.assertRaisesRegex(check_files.Failure, "there is no list of parts in "):
            check_files.checks(self.folder, TOOLS)


class Twice(FilesTest):
    """The same build, packed in two folders, gives the same bytes. `scripts/package --twice` also builds twice."""

    def copy_tree(self, build):
        """A copy of the sources and of what a build installs, with other modes and dates. Returns its folder."""
        copied = self.folder / "another/source"
        listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                                 "packaging", "configs", "docs", "launcher", "musterctl", "worker_sdk", "*.md", "LICENSE",
                                 "CMakeLists.txt"], check=True, capture_output=True, text=True).stdout.split("\0")
        installed = [str(path.relative_to(SOURCE)) for path in build.rglob("cmake_install.cmake")]
        installed += [str(path.relative_to(SOURCE)) for path in (build / "bin").iterdir()]
        generated = re.compile(r'"' + re.escape(str(build)) + r'/([^"]+)"')
        for name in list(installed):
            if name.endswith(".cmake"):
                installed += [str(pathlib.Path(build, found).relative_to(SOURCE))
                              for found in generated.findall((SOURCE / name).read_text())]
        for name in sorted({*filter(None, listed), *installed}):
            source, target = SOURCE / name, copied / name
            if not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
            if name.endswith("cmake_install.cmake"):
                target.write_text(target.read_text().replace(str(SOURCE), str(copied)))
        for path in copied.rglob("*"):
            path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
            os.utime(path, (1e9, 1e9))
        return copied

    def pack(self, arch, source, out, umask, **environment):
        zig = next((SOURCE / "build/portable-venv/lib").glob("python3*/site-packages/ziglang"))
        subprocess.run([sys.executable, source / "packaging/packages.py", "--arch", arch,
                        "--build", source / "build" / BUILD_OF[arch], "--zig", zig, "--out", out,
                        "--sysroot", SOURCE / "build/portable-sysroot" / arch],
                       check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=PACK_S, umask=umask,
                       env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "PYTHONDONTWRITEBYTECODE": "1", **environment})

    def test_the_same_build_is_packed_into_the_same_bytes(self):
        arch = ARCHITECTURES[0]
        build = SOURCE / "build" / BUILD_OF[arch]
        if not (build / "cmake_install.cmake").exists():
            self.skipTest(f"the packages were built elsewhere: there is no {build}")
        (self.folder / "tmp").mkdir()
        self.pack(arch, SOURCE, self.folder / "first", 0o022, TZ="UTC", LC_ALL="C")
        self.pack(arch, self.copy_tree(build), self.folder / "second", 0o077, TZ="Pacific/Auckland", LC_ALL="C.UTF-8",
                  TMPDIR=str(self.folder / "tmp"))
        names = sorted(path.name for path in (self.folder / "first").iterdir())
        self.assertEqual(names, sorted(path.name for path in (self.folder / "second").iterdir()))
        self.assertEqual(len(names), 5)  # Wheel, two .deb files, tarball, list of parts.
        _, differing, unreadable = filecmp.cmpfiles(self.folder / "first", self.folder / "second", names, shallow=False)
        self.assertEqual((differing, unreadable), ([], []))


if __name__ == "__main__":
    if not ARCHITECTURES or not TOOLS.is_dir():
        print(f"SKIPPED: no packages in {PACKAGES}: scripts/package makes them")
        sys.exit(77)
    unittest.main(verbosity=2)
