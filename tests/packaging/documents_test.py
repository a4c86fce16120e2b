#!/usr/bin/env python3
"""Documents, recipes and scripts agree about the packages. Makes no packages. MUSTERD_BIN names musterd."""
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packaging"))
import deb  # noqa: E402  # pylint: disable=wrong-import-position
import release  # noqa: E402  # pylint: disable=wrong-import-position
import sbom  # noqa: E402  # pylint: disable=wrong-import-position
import sysroot  # noqa: E402  # pylint: disable=wrong-import-position
import third_party  # noqa: E402  # pylint: disable=wrong-import-position
import wheel  # noqa: E402  # pylint: disable=wrong-import-position


class Documents(unittest.TestCase):
    def test_the_page_of_musterd_has_every_option(self):
        said = subprocess.run([os.environ["MUSTERD_BIN"], "--help"], check=True, capture_output=True,
                              text=True).stdout
        page = (SOURCE / "docs/musterd.8").read_text().replace("\\", "")
        offered = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", said))
        described = set(re.findall(r"^\.B (?:-h, )?(--[a-z0-9-]+)", page, re.MULTILINE))
        self.assertEqual(offered, described)
        self.assertGreater(len(offered), 15)

    def test_every_version_is_the_projects(self):
        version = re.escape(release.version())
        for page in ("musterctl.1", "musterd.8"):
            self.assertRegex((SOURCE / "docs" / page).read_text(), rf'^\.TH .* "muster {version}" ')
        for name in ("README.md", "docs/install.md"):
            text = (SOURCE / name).read_text()
            for file, found in re.findall(r"(muster(?:_launch|-services|d)?[-_](\d+\.\d+\.\d+))", text):
                self.assertEqual(found, release.version(), f"{name}: {file}")

    def test_the_changelog_has_the_version(self):
        headings = re.findall(r"^## (.*)$", (SOURCE / "CHANGELOG.md").read_text(), re.M)
        released = [heading for heading in headings if heading.split()[0] == release.version()]
        self.assertEqual(len(released), 1, headings)
        self.assertRegex(released[0], r"^\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)$")

    def test_the_recipes_name_files_that_are_made(self):
        made = [f"build/packages/{wheel.file_name(arch)}" for arch in deb.DEBIAN_ARCH]
        dockerfile = (SOURCE / "configs/docker/Dockerfile").read_text()
        [pattern] = re.findall(r"^COPY (build/packages/\S+) ", dockerfile, re.M)
        self.assertEqual(fnmatch.filter(made, pattern), made)
        document = (SOURCE / "docs/install.md").read_text()
        for pattern in re.findall(r"^    COPY (\S+) ", document, re.M) + re.findall(r"RUN pip install /tmp/(\S+)", document):
            self.assertEqual(fnmatch.filter(made, f"build/packages/{pattern}"), made, pattern)
        installed = set(re.findall(r"\./(muster_launch-\S+\.whl)", document))
        self.assertTrue(installed)
        self.assertLessEqual({f"build/packages/{name}" for name in installed}, set(made))
        # The name that pip installs is the distribution's name in its wheel.
        self.assertIn(" muster-launch ", dockerfile)
        self.assertIn("\nName: muster-launch\n", wheel.metadata())

    def test_state_of_musterd_is_named_where_packages_are_removed(self):
        unit = (SOURCE / "configs/musterd.service").read_text()
        state = re.search(r"^StateDirectory=(\S+)$", unit, re.M)[1]
        options = re.search(r"^EnvironmentFile=-(\S+)$", unit, re.M)[1]
        document = (SOURCE / "docs/install.md").read_text()
        for heading in ("## Uninstall", "## What is where"):
            section = document.split(heading)[1].split("\n## ")[0]
            for path in (f"/var/lib/{state}", options):
                self.assertIn(f"`{path}`", section, heading)
        self.assertIn(f"/var/lib/private/{state}", (SOURCE / "packaging/debian/services/postrm").read_text())

    def test_every_library_that_is_loaded_is_named(self):
        libraries = set()
        for folder in ("agent", "launcher", "musterctl", "rendezvous"):
            for path in (SOURCE / folder).rglob("*.cc"):
                text = path.read_text()
                if "dlopen(" in text:
                    libraries |= set(re.findall(r'"(lib[\w.-]+\.so[\d.]*)"', text))
        self.assertIn("libcrypto.so.3", libraries)
        row = re.search(r"^\| optional libraries \| (.*) \|$", (SOURCE / "docs/install.md").read_text(), re.M)[1]
        self.assertEqual({name for name in libraries if name not in row}, set())
        suggested = (SOURCE / "packaging/deb.cmake").read_text()
        self.assertRegex(suggested, r'PACKAGE_SUGGESTS ".*libssl3 \| libssl1\.1')

    def test_the_list_of_parts_is_consistent(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder, "tree")
            for name, text in (("bin/muster", "program"), ("share/man/man1/muster.1", "page")):
                (tree / name).parent.mkdir(parents=True)
                (tree / name).write_text(text)
            (tree / "bin/muster-launch").symlink_to("muster")
            tarball = pathlib.Path(folder, "muster.tar.gz")
            tarball.write_text("tarball")
            os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
            document = json.loads(sbom.document("x86_64", "1", third_party.LIBRARIES, tree, tarball))
        sums = [hashlib.sha1(text).hexdigest() for text in (b"program", b"page")]
        self.assertEqual([file["checksums"][0] for file in document["files"]],
                         [{"algorithm": "SHA1", "checksumValue": one} for one in sums])
        analyzed = {package["name"]: package["filesAnalyzed"] for package in document["packages"]}
        self.assertEqual([name for name in analyzed if analyzed[name]], ["muster"])
        self.assertEqual(document["packages"][0]["packageVerificationCode"]["packageVerificationCodeValue"],
                         hashlib.sha1("".join(sorted(sums)).encode()).hexdigest())

    def test_the_lock_has_all_packages_for_each_architecture(self):
        lock = sysroot.read_lock()
        wanted = {(arch, package) for arch in sysroot.DEBIAN_ARCH for package in sysroot.PACKAGES}
        wanted |= {("source", package) for package in sysroot.SOURCES}
        self.assertEqual(set(lock), wanted)
        for version, checksum in lock.values():
            self.assertRegex(version, r"^\d")
            self.assertRegex(checksum, r"^[0-9a-f]{64}$")
        # Both architectures are compiled against the same sources.
        for package in sysroot.PACKAGES:
            self.assertEqual(lock["x86_64", package][0], lock["aarch64", package][0], package)

    def test_every_header_that_is_compiled_in_is_named_in_the_notices(self):
        named = {package for _, _, package in third_party.LIBRARIES}
        only_declarations = {"libsystemd-dev"}
        headers = {package for package in sysroot.PACKAGES if package.endswith("-dev")}
        self.assertEqual(headers - only_declarations, named)
        self.assertEqual(sysroot.SOURCES, [package for _, _, package, _ in third_party.COMPILED])


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("debootstrap"), "needs root and debootstrap")
class Script(unittest.TestCase):
    """scripts/package with stand-ins for all that it calls, which make no packages."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-script-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def package(self, root, *options):
        shutil.copytree(SOURCE / "scripts", root / "scripts")
        tools = root / "build/portable-venv/bin"
        for name in (tools / "python", self.folder / "bin/python3", self.folder / "bin/cmake", self.folder / "bin/git",
                     root / "packaging/sysroot.py", root / "packaging/libraries.py"):
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text("#!/bin/sh\necho 1700000000\n")
            name.chmod(0o755)
        return subprocess.run([root / "scripts/package", *options], capture_output=True, text=True, check=False,
                              cwd=self.folder, stdin=subprocess.DEVNULL, timeout=60,
                              env={**os.environ, "MUSTER_SKIP_PACKAGES": "1",
                                   "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})

    def test_out_is_relative_to_the_callers_folder(self):
        done = self.package(self.folder / "muster", "--arch=x86_64", "--out=made here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "made here/SHA256SUMS").exists(), done.stdout)

    def test_a_folder_that_compilers_cannot_be_given_is_refused_at_once(self):
        for name in ("with a blank", "with#sign"):
            done = self.package(self.folder / name / "muster", "--arch=x86_64")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{self.folder / name}/muster: the path has a blank", done.stderr)
            self.assertEqual(done.stdout, "")


class Skips(unittest.TestCase):
    """packages_test.py, if Debian's servers cannot be reached."""

    def install_in_debian(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            packages = pathlib.Path(folder, "packages")
            packages.mkdir()
            (packages / "one.deb").touch()
            done = subprocess.run(
                [sys.executable, SOURCE / "tests/packaging/packages_test.py", "Deb.test_debian_12"], check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                env={**os.environ, "MUSTER_PACKAGES": str(packages), "MUSTER_PACKAGE_CACHE": f"{folder}/cache",
                     "MUSTER_DEBIAN_MIRROR": "http://127.0.0.1:9/debian", "MUSTER_MAY_NOT_SKIP": "", **environment})
        return done.returncode, done.stdout

    def test_a_release_that_cannot_be_reached_is_named(self):
        code, output = self.install_in_debian()
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"(?m)^SKIPPED: Deb\.test_debian_12: debootstrap bookworm: ")

    def test_a_release_that_is_required_fails(self):
        code, output = self.install_in_debian(MUSTER_MAY_NOT_SKIP="test_debian_1[23]")
        self.assertEqual(code, 1, output)
        self.assertIn("may not be skipped (MUSTER_MAY_NOT_SKIP): Deb.test_debian_12", output)

    def test_nothing_to_install_fails_where_something_is_required(self):
        code, output = self.install_in_debian(MUSTER_PACKAGES="/nowhere")
        self.assertEqual(code, 77, output)
        code, output = self.install_in_debian(MUSTER_PACKAGES="/nowhere", MUSTER_MAY_NOT_SKIP="test_debian_1[23]")
        self.assertEqual(code, 1, output)
        self.assertIn("SKIPPED: no packages in /nowhere", output)

    def test_scripts_test_requires_debian_12_and_13_with_packages(self):
        script = (SOURCE / "scripts/test").read_text()
        required = re.search(r"^PACKAGES_NEVER_SKIPPED='(.*)'$", script, re.M)[1]
        for name in ("Deb.test_debian_12", "Deb.test_debian_13"):
            self.assertRegex(name, required)
        self.assertIn('install_packages_test "$PACKAGES_NEVER_SKIPPED|', script)  # --packages
        self.assertIn("export MUSTER_MAY_NOT_SKIP=$PACKAGES_NEVER_SKIPPED", script)  # --all --packages
        self.assertNotRegex("Deb.test_debian_11", required)


if __name__ == "__main__":
    unittest.main()
