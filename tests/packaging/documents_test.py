#!/usr/bin/env python3
"""Documents, recipes and scripts agree about the packages. Makes no packages. MUSTERD_BIN names musterd."""
import contextlib
import fnmatch
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import socket
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
        for folder in ("agent", "base", "launcher", "musterctl", "rendezvous"):
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


class Readme(unittest.TestCase):
    """README's commands work in a clone, in their order."""

    TEXT = (SOURCE / "README.md").read_text()
    # What a shell has, and what scripts/quickstart or scripts/package makes.
    OF_THE_SHELL = {"export", ".", "pip", "cmake"}
    PROGRAMS = {"muster", "musterctl", "musterd"}

    def commands(self):
        lines = re.findall(r"^    (\S.*)$", re.sub(r"(?s)^```.*?^```", "", self.TEXT, flags=re.M), re.M)
        return [re.sub(r"\s+#.*", "", line) for line in lines]

    def test_what_can_be_done_in_a_clone_comes_first(self):
        self.assertEqual(self.commands()[:2], ["scripts/quickstart", "scripts/test"])

    def test_no_command_needs_what_an_earlier_one_has_not_made(self):
        made = {"build/packages/*": "scripts/package", "build/release/*": "scripts/quickstart",
                ".venv/*": "scripts/quickstart"}
        wheels = [f"build/packages/{wheel.file_name(arch)}" for arch in deb.DEBIAN_ARCH]
        before = set()
        for command in self.commands():
            words = re.sub(r'["$:=]|PWD/', " ", command).split()
            for word in words:
                if word.endswith((".whl", ".deb")):
                    self.assertIn(word, wheels, command)
                maker = next((maker for pattern, maker in made.items() if fnmatch.fnmatch(word, pattern)), None)
                if maker:
                    self.assertIn(maker, before, f"{command}: nothing has made {word}")
                elif word.startswith(("scripts/", "examples/")):
                    self.assertTrue((SOURCE / word).exists(), command)
            self.assertTrue(words[0] in self.OF_THE_SHELL or words[0].startswith("scripts/") or
                            (words[0] in self.PROGRAMS and "export" in before), command)
            before.add(words[0])

    def test_the_durations_are_those_that_the_scripts_print(self):
        for script, variable in (("quickstart", "FIRST_RUN_MINUTES"), ("package", "FIRST_MINUTES")):
            printed = re.search(rf"^{variable}=(\d+)", (SOURCE / "scripts" / script).read_text(), re.M)[1]
            named = re.search(rf"scripts/{script}`?[^\d]*?(\d+) minutes", self.TEXT)[1]
            self.assertEqual(named, printed, script)


class Fresh(unittest.TestCase):
    """scripts/fresh, without a system."""

    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("fresh", str(SOURCE / "scripts/fresh"))
        self.fresh = importlib.util.module_from_spec(importlib.util.spec_from_loader("fresh", loader))
        loader.exec_module(self.fresh)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_commands_are_readmes(self):
        self.assertEqual([command.split()[0] for command in self.fresh.readme_commands()],
                         ["scripts/quickstart", "scripts/test"])
        self.fresh.SOURCE = self.folder
        block = f"{self.fresh.HEADING}\nText.\n\n    scripts/one --two  # three\n    scripts/four\n\n    five\n"
        (self.folder / "README.md").write_text(f"# muster\n\n    six\n\n{block}")
        self.assertEqual(self.fresh.readme_commands(), ["scripts/one --two  # three", "scripts/four"])
        for wrong in (block.replace("    scripts/four\n", ""), block.replace("scripts/four", "make"), "nothing\n"):
            (self.folder / "README.md").write_text(f"# muster\n\n{wrong}")
            with self.assertRaisesRegex(self.fresh.Failure, "expected two commands"):
                self.fresh.readme_commands()

    def report(self, *results):
        """The code and the text of a report of these (exit code, output)."""
        machine = object.__new__(self.fresh.Machine)
        machine.folder, machine.clone, machine.results = pathlib.Path("/"), SOURCE, []
        for number, (code, output) in enumerate(results):
            log = self.folder / f"{number}.log"
            log.write_text(output)
            machine.results.append((f"scripts/{number}", code, 61.4, 100.0, log))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = machine.report()
        return code, said.getvalue()

    def test_a_report_has_failures_skips_and_durations(self):
        log = ("release: FAILED: e2e.one\nmuch\ntest: where the time went:\n   9 s  set-up\n"
               "release: e2e.two was skipped: there is no GPU\n100% tests passed\n")
        code, said = self.report((0, "built\ndone\n"), (0, log))
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"scripts/0\n    passed in 61 s \(100 s of CPU\)\n    done\n")
        for line in ("release: FAILED: e2e.one", "   9 s  set-up", "release: e2e.two was skipped: there is no GPU", "100% tests passed"):
            self.assertIn(f"    {line}", said)
        self.assertNotIn("much", said)
        code, said = self.report((7, "why\n"), (0, log))
        self.assertEqual(code, 1)
        self.assertIn("scripts/0\n    FAILED with 7 in 61 s (100 s of CPU)\n    why\n", said)

    def test_a_skip_for_want_of_a_program_is_a_failure(self):
        for reason, expected in (("strace is not installed: …", 1), ("no torch in .venv", 1), ("no IPv6", 0),
                                 ("scikit-learn is not installed: …", 0)):
            code, said = self.report((0, f"test: where the time went:\nrelease: sdk: test_x was skipped: {reason}\n"))
            self.assertEqual((code, "TEST_PACKAGES" in said), (expected, bool(expected)), reason)

    def test_the_default_ports_are_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as gone:
            ports = [listener.getsockname()[1] for listener in (taken, gone)]
            gone.close()
            held = self.fresh.hold_ports(ports)  # A port that is taken already is no error.
            with socket.create_connection(("127.0.0.1", ports[1])), self.assertRaises(OSError):
                socket.create_server(("127.0.0.1", ports[1]))
            for listener in held:
                listener.close()

    def test_what_makes_ci_run_a_part_exists(self):
        script = (SOURCE / "scripts/test").read_text()
        files = re.search(r"^SET_UP_FILES=\((.*?)\)$", script, re.M | re.S)[1]
        show_absent = 'for file in "${files[@]}"; do git ls-files -- "$file" | grep -q . || echo "$file"; done'
        said = subprocess.run(["bash", "-c", f"files=({files}); {show_absent}"], check=True, capture_output=True,
                              text=True, cwd=SOURCE).stdout
        self.assertEqual(said, "")


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
        self.assertRegex(done.stdout.splitlines()[0], r"packages for x86_64: on two idle cores about \d+ minutes")
        for step in ("Debian's headers", "SQLite and OpenSSL", "muster's programs", "the wheel", "the sdist"):
            self.assertRegex(done.stdout, rf"(?s)\npackage: [^\n]*{step}[^\n]* …\n.*{step}[^\n]*: done in \d+ s\n")

    def test_a_folder_that_compilers_cannot_be_given_is_refused_at_once(self):
        for name in ("with a blank", "with#sign"):
            done = self.package(self.folder / name / "muster", "--arch=x86_64")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{self.folder / name}/muster: the path has a blank", done.stderr)
            self.assertEqual(done.stdout, "")


class Skips(unittest.TestCase):
    """packages_test.py, if Debian's servers cannot be reached: a stand-in for debootstrap says so. scripts/test installs
    the real one only with --packages."""

    def install_in_debian(self, **environment):
        if os.geteuid() != 0:
            self.skipTest("packages_test.py needs root")
        with tempfile.TemporaryDirectory() as folder:
            packages = pathlib.Path(folder, "packages")
            packages.mkdir()
            (packages / "one.deb").touch()
            debootstrap = pathlib.Path(folder, "bin/debootstrap")
            debootstrap.parent.mkdir()
            debootstrap.write_text("#!/bin/sh\necho 'E: Failed getting release file'\nexit 1\n")
            debootstrap.chmod(0o755)
            done = subprocess.run(
                [sys.executable, SOURCE / "tests/packaging/packages_test.py", "Deb.test_debian_12"], check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                env={**os.environ, "MUSTER_PACKAGES": str(packages), "MUSTER_PACKAGE_CACHE": f"{folder}/cache",
                     "MUSTER_DEBIAN_MIRROR": "http://127.0.0.1:9/debian", "MUSTER_MAY_NOT_SKIP": "",
                     "PATH": f"{debootstrap.parent}:{os.environ['PATH']}", **environment})
        return done.returncode, done.stdout

    def test_a_release_that_cannot_be_reached_is_named(self):
        code, output = self.install_in_debian()
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"(?m)^SKIPPED: Deb\.test_debian_12: debootstrap bookworm: E: Failed")

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
