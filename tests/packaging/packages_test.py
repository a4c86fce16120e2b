#!/usr/bin/env python3
"""Installs each package and runs it: the wheel in a fresh virtual environment, the .deb files in Debian, the tarball
in the oldest Debian that servers still have, aarch64 in an emulator. Also checks the files themselves.

Needs root and Debian's package servers. Variables:
  MUSTER_PACKAGES       the folder that scripts/package filled (default: build/packages)
  MUSTER_PACKAGE_CACHE  the folder that keeps the Debian systems (default: build/portable-cache)
  MUSTER_MAY_NOT_SKIP   a regular expression: a skipped test whose name (Class.test) matches is a failure
"""
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

import roots  # First: it adds the folder packaging/ to the path.
from roots import SOURCE, NotReachable, Root, run
import packages
import sysroot
import third_party

PACKAGES = pathlib.Path(os.environ.get("MUSTER_PACKAGES", SOURCE / "build/packages"))
VERSION = re.search(r"^project\(muster VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text(), re.M)[1]
WORKER = ["--no-python", "/bin/sh", "-c", "echo \"rank $RANK of $WORLD_SIZE, node $GROUP_RANK\""]
RANKS = {1: {f"rank {rank} of 2, node 0" for rank in range(2)},
         2: {f"rank {rank} of 4, node {rank // 2}" for rank in range(4)}}
BOUND_S = 120
TEED_RUNS = 8
MAY_NOT_SKIP = os.environ.get("MUSTER_MAY_NOT_SKIP", "")


def package(pattern):
    found = sorted(glob.glob(str(PACKAGES / pattern)))
    if len(found) != 1:
        raise AssertionError(f"expected one {pattern} in {PACKAGES}, and there are {len(found)}")
    return pathlib.Path(found[0])


def programs():
    """The programs in the tarball's bin/, without links."""
    names = run("tar", "-tvzf", package(f"muster-{VERSION}-linux-x86_64.tar.gz"))
    return re.findall(r"^-.* \S+/bin/(\S+)$", names, re.M)


def oldest():
    """Debian's oldest release that the package servers still have."""
    try:
        roots.archive_of("bullseye")
        return "bullseye"
    except NotReachable:
        return "bookworm"


class PackageTest(unittest.TestCase):
    def check_programs(self, start):
        """Runs --version, a job of one node, and a job of two nodes through musterd. `start(words...)` starts a
        program where the package is installed."""
        def finish(process):
            out, err = process.communicate(timeout=BOUND_S)
            self.assertEqual(process.returncode, 0, f"{out}{err}")
            return out

        def ranks(out):
            return {line for line in out.splitlines() if line.startswith("rank ")}

        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        for name in programs():
            said = finish(start(name, "--version", **pipes))
            self.assertRegex(said, rf"^{name} {re.escape(VERSION)}\ncommit    \w+")
            self.assertIn("glibc 2.17 or newer", said)
        alone = finish(start("muster", "--standalone", "--nproc-per-node=2", *WORKER, **pipes))
        self.assertEqual(ranks(alone), RANKS[1])

        host = start("musterd", "--bind=127.0.0.1", "--port=0", **pipes)
        try:
            port = re.fullmatch(r"musterd: listening on 127\.0\.0\.1:(\d+)\n", host.stdout.readline())[1]
            nodes = [start("muster", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                           "--rdzv-id=package", f"--rdzv-endpoint=127.0.0.1:{port}",
                           "--local-addr=127.0.0.1", *WORKER, **pipes) for _ in range(2)]
            self.assertEqual(set().union(*[ranks(finish(node)) for node in nodes]), RANKS[2])
        finally:
            host.send_signal(signal.SIGTERM)
            host.communicate(timeout=BOUND_S)
        self.assertEqual(host.returncode, 0)

    def root(self, suite):
        folder = tempfile.mkdtemp(prefix=f"muster-{suite}-")
        try:
            system = Root(suite, folder)
        except NotReachable as reason:
            shutil.rmtree(folder)
            self.skipTest(str(reason))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.addCleanup(system.close)
        return system


class Wheel(PackageTest):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-wheel-"))
        self.addCleanup(shutil.rmtree, self.folder)
        run(sys.executable, "-m", "venv", self.folder / "venv")
        self.bin = self.folder / "venv/bin"
        self.before = self.files()

    def files(self):
        return {str(path) for path in (self.folder / "venv").rglob("*")
                if path.is_file() and "__pycache__" not in path.parts}

    def pip(self, *words):
        return run(self.bin / "python", "-m", "pip", "--disable-pip-version-check", *words)

    def start(self, *words, **options):
        # PATH has the environment's programs only: no compiler and no other muster.
        return subprocess.Popen([str(self.bin / words[0]), *words[1:]], env={"PATH": str(self.bin)},
                                stdin=subprocess.DEVNULL, text=True, **options)

    def test_installed_in_a_fresh_environment(self):
        self.pip("install", "--no-index", package(f"muster_launch-{VERSION}-*x86_64.whl"))
        self.check_programs(self.start)
        entry = pathlib.Path(run(self.bin / "muster", "--python-entry").strip())
        self.assertTrue((entry / "muster_entry.py").is_file())
        self.assertIn("--use-env", run(self.bin / "muster-launch", "--help"))
        for page in ("man1/muster.1", "man1/musterctl.1", "man8/musterd.8"):
            self.assertTrue((self.folder / "venv/share/man" / page).is_file())
        for name in ("muster", "musterctl", "musterd"):
            for file in (f"bash-completion/completions/{name}", f"zsh/site-functions/_{name}",
                         f"fish/vendor_completions.d/{name}.fish", f"muster/completions/{name}.csh"):
                self.assertTrue((self.folder / "venv/share" / file).is_file(), file)
        script = self.folder / "worker.py"
        script.write_text("import os, muster_worker\nmuster_worker.progress(1)\nos.write(1, f\"python rank {os.environ['RANK']}\\n\".encode())\n")
        said = run(self.bin / "muster", "--nproc-per-node=2", script,
                   env={"PATH": f"{self.bin}", "OMP_NUM_THREADS": "1"})
        self.assertEqual(sorted(said.split("\n")), ["", "python rank 0", "python rank 1"])
        self.pip("uninstall", "--yes", "muster-launch")
        self.assertEqual(self.files() - self.before, set())

    def test_the_images_pip_command_finds_it_beside_other_files(self):
        # configs/docker/Dockerfile copies all wheels of build/packages into one folder.
        dockerfile = (SOURCE / "configs/docker/Dockerfile").read_text()
        pattern = re.search(r"^COPY build/packages/(\S+) ", dockerfile, re.M)[1]
        wheels = self.folder / "packages"
        wheels.mkdir()
        for path in PACKAGES.glob(pattern):
            shutil.copy(path, wheels)
        name = re.search(r"^RUN pip install --no-cache-dir --find-links \S+ (\S+) ", dockerfile, re.M)[1]
        self.pip("install", "--no-index", "--no-cache-dir", "--find-links", wheels, name)
        self.assertIn(f"muster {VERSION}", run(self.bin / "muster", "--version"))

    def test_torchrun_is_linked_and_given_back_as_documented(self):
        self.pip("install", "--no-index", package(f"muster_launch-{VERSION}-*x86_64.whl"))
        torchrun = self.bin / "torchrun"
        torchrun.write_text("#!/bin/sh\necho the one of torch\n")
        torchrun.chmod(0o755)
        link, back = re.findall(r"^    ((?:\[|mv) .*torchrun.*)$", (SOURCE / "docs/install.md").read_text(), re.M)
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "VIRTUAL_ENV": str(self.folder / "venv")}
        for _ in range(2):  # A second run changes nothing.
            run("sh", "-c", link, env=environment)
        self.assertIn(f"muster {VERSION}", run(torchrun, "--version"))
        run("sh", "-c", back, env=environment)
        self.assertEqual(run(torchrun), "the one of torch\n")


class Deb(PackageTest):
    def check_suite(self, suite):
        system = self.root(suite)
        system.run("apt-get", "update")
        (system.folder / "var/lib/private").mkdir(mode=0o700, exist_ok=True)  # Systemd's own folder.
        before = system.files()
        debs = [package(f"muster_{VERSION}_amd64.deb"), package(f"muster-services_{VERSION}_all.deb")]
        for deb in debs:
            shutil.copy(deb, system.folder / "tmp")
        system.run("apt-get", "install", "-y", "--no-install-recommends",
                   *[f"/tmp/{deb.name}" for deb in debs])
        self.check_programs(system.start)
        self.assertIn("/var/lib/muster", system.run("getent", "passwd", "muster"))
        self.assertIn("/etc/default/musterd",
                      system.run("dpkg-query", "-W", "-f", "${Conffiles}", "muster-services"))
        for unit in ("musterd.service", "musterd.socket", "muster@job.service"):
            system.run("systemctl", "enable", unit)
        self.assertTrue((system.folder / "etc/systemd/system/multi-user.target.wants/musterd.service")
                        .is_symlink())
        # The settings stay after `apt remove`, and an administrator's change is kept by the next installation.
        options = system.folder / "etc/default/musterd"
        options.write_text('MUSTERD_OPTIONS="--port=29999"\n')
        system.run("apt-get", "remove", "-y", "muster-services")
        self.assertIn("29999", options.read_text())
        self.assertFalse((system.folder / "etc/systemd/system/multi-user.target.wants/musterd.service")
                         .is_symlink())
        system.run("apt-get", "install", "-y", "--no-install-recommends", f"/tmp/{debs[1].name}")
        self.assertIn("29999", options.read_text())
        self.make_state_of_musterd(system)
        system.run("apt-get", "purge", "-y", "muster", "muster-services")
        self.assertEqual(system.files() - before, set())
        self.assertNotIn("muster", (system.folder / "etc/passwd").read_text())

    def make_state_of_musterd(self, system):
        """What systemd makes for musterd.service, which has StateDirectory= and DynamicUser=, and a record in it."""
        unit = next(system.folder.glob("usr/lib/systemd/system/musterd.service")).read_text()
        self.assertRegex(unit, r"(?m)^DynamicUser=yes$")
        name = re.search(r"^StateDirectory=(\S+)$", unit, re.M)[1]
        state = system.folder / "var/lib/private" / name
        state.mkdir()
        (state / "musterd.db").touch()
        (system.folder / "var/lib" / name).symlink_to(f"private/{name}")

    def test_debian_12(self):
        self.check_suite("bookworm")

    def test_debian_13(self):
        self.check_suite("trixie")

    def test_debian_11(self):
        self.check_suite("bullseye")

    def test_purge_keeps_what_jobs_have_left(self):
        system = self.root("bookworm")
        for name in (f"muster_{VERSION}_amd64.deb", f"muster-services_{VERSION}_all.deb"):
            deb = package(name)
            shutil.copy(deb, system.folder / "tmp")
            system.run("dpkg", "-i", f"/tmp/{deb.name}")
        checkpoint = system.folder / "var/lib/muster/job/model.pt"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.touch()
        system.run("dpkg", "--purge", "muster-services")
        self.assertTrue(checkpoint.exists())
        system.run("getent", "passwd", "muster")


class Tarball(PackageTest):
    def test_in_the_oldest_system(self):
        suite = oldest()
        system = self.root(suite)
        shutil.copy(package(f"muster-{VERSION}-linux-x86_64.tar.gz"), system.folder / "tmp/muster.tar.gz")
        system.run("tar", "-xzf", "/tmp/muster.tar.gz", "-C", "/usr/local", "--strip-components=1")
        self.check_programs(system.start)
        self.assertEqual(system.run("muster", "--python-entry"), "/usr/local/share/muster/python\n")
        self.assertIn("ExecStart=/usr/local/bin/musterd",
                      (system.folder / "usr/local/lib/systemd/system/musterd.service").read_text())
        self.assertIn("notice_aws.py", system.run("ls", "/usr/local/share/muster/configs/notices"))
        print(f"the tarball ran on {suite}: {system.run('ldd', '--version').splitlines()[0]}")


class Sdist(PackageTest):
    def test_it_has_what_a_build_from_source_needs(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-sdist-"))
        self.addCleanup(shutil.rmtree, folder)
        run("tar", "-xzf", package(f"muster_launch-{VERSION}.tar.gz"), "-C", folder, "--strip-components=1")
        self.assertRegex((folder / "packaging/COMMIT").read_text(), r"^[0-9a-f]{12}(-dirty)?\n$")
        for left_out in ("tests", "bench", ".ci"):
            self.assertFalse((folder / left_out).exists(), left_out)
        settings = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]["define"]
        run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
            *[f"-D{name}={value}" for name, value in settings.items()])
        said = run("ninja", "-C", folder / "build", "-n", "programs")
        for name in programs():
            self.assertIn(f"bin/{name}", said)


class Sdk(PackageTest):
    def test_a_project_outside_of_the_tree_uses_it(self):
        if not list(PACKAGES.glob("muster-sdk-*")):
            self.skipTest("no SDK among the packages: scripts/package --sdk")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-sdk-"))
        self.addCleanup(shutil.rmtree, folder)
        for name in ("sdk", "programs"):
            (folder / name).mkdir()
        run("tar", "-xzf", package(f"muster-sdk-{VERSION}-linux-x86_64-*.tar.gz"), "-C", folder / "sdk",
            "--strip-components=1")
        run("tar", "-xzf", package(f"muster-{VERSION}-linux-x86_64.tar.gz"), "-C", folder / "programs",
            "--strip-components=1")
        run(sys.executable, SOURCE / "tests/sdk/consumer_test.py", "--source", SOURCE,
            "--build", folder / "programs", "--installed", folder / "sdk", timeout=1800)


class Aarch64(PackageTest):
    """muster runs in the emulator; its workers are programs of this machine."""

    def test_a_job_in_the_emulator(self):
        if not list(PACKAGES.glob("*aarch64.tar.gz")):
            self.skipTest("nothing for aarch64 among the packages: scripts/package --arch aarch64")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-aarch64-"))
        self.addCleanup(shutil.rmtree, folder)
        try:
            words = roots.emulator()
        except NotReachable as reason:
            self.skipTest(str(reason))
        run("tar", "-xzf", package(f"muster-{VERSION}-linux-aarch64.tar.gz"), "-C", folder,
            "--strip-components=1")

        def start(program, *words_of_it, **options):
            return subprocess.Popen([*words, str(folder / "bin" / program), *words_of_it],
                                    env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, text=True,
                                    **options)

        self.check_programs(start)
        for _ in range(TEED_RUNS):
            self.check_teed(start, lines=300)
        self.check_teed(start, lines=200_000, reader_s=5)

    def check_teed(self, start, lines, reader_s=0.0):
        """No line of a worker is lost on its way through the agent, also if the reader begins after `reader_s`. An early
        version gave up 2 s after the workers' end, which is too short in a slow emulator: docs/packaging.md, "aarch64"."""
        job = start("muster", "--standalone", "--nproc-per-node=2", "--tee=2", "--no-python", "/bin/sh", "-c",
                    f"seq --format='line %.0f' {lines} >&2; echo LAST >&2", stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE)
        time.sleep(reader_s)
        said = job.communicate(timeout=BOUND_S)[1]
        self.assertEqual(job.returncode, 0, said[-2000:])
        expected = "".join(f"line {line}" for line in range(1, lines + 1)) + "LAST"
        for rank in range(2):
            # A line may be cut in two where a worker has paused.
            teed = "".join(re.findall(rf"^\[default{rank}\]:(.*)$", said, re.M))
            self.assertTrue(teed == expected, f"rank {rank}: {len(teed)} of {len(expected)} characters, then {teed[-40:]}")


class Libraries(PackageTest):
    """A test program with SQLite and OpenSSL, as packaging/libraries.py compiles them."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-libraries-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, arch):
        if not (SOURCE / f"build/portable-sysroot/{arch}/usr/include/sqlite3.h").exists():
            self.skipTest(f"no sysroot for {arch} here: scripts/package --prepare --arch {arch}")
        # scripts/package has filled this cache with the compiler's own libraries.
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(roots.CACHE.parent / "zig"))
        run("cmake", "-S", SOURCE / "tests/packaging/libraries", "-B", self.folder / arch, "-G", "Ninja",
            f"-DCMAKE_TOOLCHAIN_FILE={SOURCE}/packaging/toolchain.cmake", f"-DMUSTER_ARCH={arch}",
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", self.folder / arch)
        run("cmake", "--install", self.folder / arch, "--strip", "--prefix", self.folder / f"installed-{arch}")
        program = self.folder / f"installed-{arch}/bin/libraries_check"
        packages.check_program(program)
        names = [name for name, _, _ in third_party.inside([program])]
        self.assertEqual(names[-2:], ["SQLite", "OpenSSL"])
        return program

    def check_output(self, said):
        versions = [third_party.upstream(sysroot.read_lock()["source", name][0]) for name in sysroot.SOURCES]
        self.assertRegex(said, r"^TLSv1\.3\nSQLite {}, OpenSSL {} ".format(*map(re.escape, versions)))

    def test_they_need_glibc_2_17_and_run_on_the_oldest_system(self):
        program = self.program("x86_64")
        system = self.root(oldest())
        shutil.copy(program, system.folder / "usr/local/bin")
        self.check_output(system.run("libraries_check", "/tmp/rounds.db"))

    def test_for_aarch64(self):
        program = self.program("aarch64")
        try:
            words = roots.emulator()
        except NotReachable as reason:
            self.skipTest(str(reason))
        self.check_output(run(*words, program, self.folder / "rounds.db"))


def skip_all(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(1 if MAY_NOT_SKIP else 77)


def main():
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        skip_all("systems to install in need root and debootstrap")
    if not any(PACKAGES.glob("*.deb")):
        skip_all(f"no packages in {PACKAGES}: scripts/package makes them")
    if os.environ.get("MUSTER_OWN_MOUNTS") != "1":
        # In a mount namespace of its own: the kernel unmounts everything when this process ends.
        os.execvpe("unshare", ["unshare", "--mount", "--propagation=private", sys.executable, *sys.argv],
                   {**os.environ, "MUSTER_OWN_MOUNTS": "1"})
    result = unittest.main(verbosity=2, exit=False).result
    forbidden = []
    for test, reason in result.skipped:
        name = test.id().removeprefix("__main__.")
        print(f"SKIPPED: {name}: {' '.join(reason.split())}", flush=True)
        if MAY_NOT_SKIP and re.search(MAY_NOT_SKIP, name):
            forbidden.append(name)
    if forbidden:
        print(f"FAILED: these may not be skipped (MUSTER_MAY_NOT_SKIP): {' '.join(forbidden)}")
    return 0 if result.wasSuccessful() and not forbidden else 1


if __name__ == "__main__":
    sys.exit(main())
