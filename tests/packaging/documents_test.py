#!/usr/bin/env python3
"""What is said about the packages in several places is the same everywhere. MUSTERD_BIN names musterd."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packaging"))
import release  # noqa: E402  # pylint: disable=wrong-import-position
import sysroot  # noqa: E402  # pylint: disable=wrong-import-position
import third_party  # noqa: E402  # pylint: disable=wrong-import-position


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
        for page in ("muster.1", "musterctl.1", "musterd.8"):
            self.assertRegex((SOURCE / "docs" / page).read_text(), rf'^\.TH .* "muster {version}" ')
        for name in ("README.md", "docs/install.md"):
            text = (SOURCE / name).read_text()
            for file, found in re.findall(r"(muster(?:_launch|-services|d)?[-_](\d+\.\d+\.\d+))", text):
                self.assertEqual(found, release.version(), f"{name}: {file}")

    def test_the_lock_has_all_packages_for_each_architecture(self):
        lock = sysroot.read_lock()
        wanted = {(arch, package) for arch in sysroot.DEBIAN_ARCH for package in sysroot.PACKAGES}
        wanted |= {("source", package) for package in sysroot.SOURCES}
        self.assertEqual(set(lock), wanted)
        for version, checksum in lock.values():
            self.assertRegex(version, r"^\d")
            self.assertRegex(checksum, r"^[0-9a-f]{64}$")
        # Of one release of Debian: the same sources for both.
        for package in sysroot.PACKAGES:
            self.assertEqual(lock["x86_64", package][0], lock["aarch64", package][0], package)

    def test_every_header_that_is_compiled_in_is_named_in_the_notices(self):
        named = {package for _, _, package in third_party.LIBRARIES}
        only_declarations = {"libsystemd-dev"}
        headers = {package for package in sysroot.PACKAGES if package.endswith("-dev")}
        self.assertEqual(headers - only_declarations, named)
        self.assertEqual(sysroot.SOURCES, [package for _, _, package, _ in third_party.COMPILED])


if __name__ == "__main__":
    unittest.main()
