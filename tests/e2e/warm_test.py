#!/usr/bin/env python3
"""Tests --warm: forks of the zygote do what cold workers do, and a fault of the zygote costs only time."""
import os
import pathlib
import re
import signal
import sys
import zipfile

from support import MusterTest, child_named, children, main, shim_of, wait_for
from warm_scripts import SCRIPTS, STATE

COLD = "start cold: "
# Waits in each attempt for a file, then fails; succeeds in the last.
FAILS = """
import os, sys, time
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
os.write(1, f"attempt {attempt} hash {hash('x')}\\n".encode())
with open(f"ready.{attempt}", "a") as file:
    file.write("x")
if attempt < int(sys.argv[1]):
    while not os.path.exists(f"fail.{attempt}"):
        time.sleep(0.01)
    sys.exit(5)
"""


class WarmTest(MusterTest):
    def setUp(self):
        super().setUp()
        self.site = self.dir / "site"  # What is in PYTHONPATH: the modules of other people.
        self.site.mkdir()
        self.src = self.dir / "src"
        (self.src / "package").mkdir(parents=True)
        (self.src / "beside.py").write_text("import colorsys\nVALUE = 5\n")
        (self.src / "package/__init__.py").write_text("")
        (self.src / "package/inner.py").write_text("from . import other\n\n\ndef twice(x):\n    return x * other.TWO\n")
        (self.src / "package/other.py").write_text("TWO = 2\n")
        (self.src / "package/__main__.py").write_text(
            "from .inner import twice\nimport sys\nprint(twice(2), __name__, __package__, sys.argv, __spec__)\n")

    def source(self, text, name="src/s.py"):
        return self.script(name, text)

    def both(self, *args, env=None, nproc=2):
        """Runs the job cold and warm, each worker's output with its rank before it, and compares."""
        results = []
        for warm in ((), ("--warm",)):
            code, out, err = self.run_muster(*warm, "--nproc-per-node", nproc, "-t", 3, *args,
                                             env={"PYTHONPATH": str(self.site), **(env or {})})
            self.assertNotIn(COLD, err)
            # faulthandler names the extension modules: numpy's are among them in a fork.
            lines = [sorted(re.sub("0x[0-9a-f]+", "0x", line) for line in text.splitlines()
                            if re.match(r"\[default\d\]:(?!Extension modules:|$)", line)) for text in (out, err)]
            exits = sorted(set(re.findall(r"exitcode: *(-?\d+)", err)))
            results.append((code, *lines, exits))
            self.assert_nothing_left()
        self.maxDiff = None
        self.assertEqual(results[0], results[1])
        return results[1]

    def warm_job(self, *args, restarts=1, env=None, nproc=2):
        return self.start("--warm", "--nproc-per-node", nproc, "--max-restarts", restarts, *args,
                          env={"PYTHONPATH": str(self.site), **(env or {})})

    def wait_ready(self, attempt, count=2):
        wait_for(lambda: len(self.read(f"ready.{attempt}")) == count, f"{count} workers of attempt {attempt}")

    def let_fail(self, attempt):
        (self.dir / f"fail.{attempt}").touch()

    def zygote(self, muster):
        return child_named(shim_of(muster.pid), "muster-zygote")

    def hashes(self):
        """attempt -> the hash of one text in each worker: the zygote's forks have the same."""
        found = {}
        for attempt, value in re.findall(r"attempt (\d+) hash (-?\d+)", self.read("out")):
            found.setdefault(int(attempt), set()).add(value)
        return found


class SameAsCold(WarmTest):
    def test_scripts(self):
        for name, text in SCRIPTS.items():
            with self.subTest(name):
                path = self.source(text)
                self.assertNotEqual(self.both(path, "--lr", 0.1, nproc=1)[1:], ([], [], []), "the script shows nothing")

    def test_state(self):
        lines = self.both(self.source(STATE), "--lr", 0.1)[1]
        self.assertGreater(len(lines), 60)

    def test_state_with_other_settings(self):
        self.both(self.source(STATE), env={"PYTHONSAFEPATH": "1", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "3",
                                           "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"})
        self.both("--virtual-local-rank", self.source(STATE), env={"CUDA_VISIBLE_DEVICES": "0,1"})

    def test_state_without_pipes(self):
        texts = []
        for warm in ((), ("--warm",)):
            with open(self.dir / "in", "w+b") as file:
                file.write(b"input")
                file.seek(0)
                _, out, err = self.run_muster(*warm, "--capture-stderr", "never", "--nproc-per-node", 1,
                                              self.source(STATE), stdin=file, expect=0)
            self.assertNotIn(COLD, err)
            texts.append(out)
        self.assertEqual(*texts)

    def test_a_module_with_relative_imports(self):
        os.chdir(self.src)
        self.addCleanup(os.chdir, "/")
        self.both("-m", "package", "--lr", 0.1, env={"PYTHONPATH": f"{self.site}:{self.src}"})

    def test_a_zip_file_and_a_folder(self):
        for name in ("app.pyz", "app"):
            with self.subTest(name):
                path = self.dir / name
                if name == "app":
                    path.mkdir()
                    (path / "__main__.py").write_text(STATE)
                else:
                    with zipfile.ZipFile(path, "w") as archive:
                        archive.writestr("__main__.py", STATE)
                self.both(path)

    def test_run_path(self):
        for text in (STATE, "1 / 0", "import sys; sys.exit(3)"):
            self.both("--run-path", self.source(text), "--lr", 0.1, nproc=1)

    def test_arguments_that_differ_between_workers(self):
        self.both(self.source("import sys; print(sys.argv, sys.orig_argv[-1], "
                              "open('/proc/self/cmdline').read().split('\\0')[-2])"), "--rank=${local_rank}")

    def test_an_own_sitecustomize(self):
        (self.site / "sitecustomize.py").write_text("import builtins\nbuiltins.OWN = __name__\n")
        lines = self.both(self.source("import sys; print(OWN, sys.modules['sitecustomize'].__file__)"))[1]
        self.assertIn("sitecustomize.py", lines[0])

    def test_what_an_import_does_to_the_environment(self):
        (self.site / "sets.py").write_text("import os\nos.environ['SET_BY_IMPORT'] = 'x'\nos.environ.pop('GONE', 0)\n")
        lines = self.both(self.source("import sets, os; print(os.environ['SET_BY_IMPORT'], os.environ.get('GONE'))"),
                          env={"GONE": "1"})[1]
        self.assertIn("x None", lines[0])


class FromTheZygote(WarmTest):
    def test_all_attempts_come_from_one_zygote(self):
        job = self.warm_job(self.source(FAILS), 2, restarts=2)
        for attempt in range(2):
            self.wait_ready(attempt)
            self.let_fail(attempt)
        self.assertEqual(job.wait(), 0, self.read("err"))
        self.assertEqual([len(values) for values in self.hashes().values()], [1, 1, 1])
        self.assertEqual(len(set.union(*self.hashes().values())), 1)
        self.assertNotIn(COLD, self.read("err"))
        self.assert_nothing_left()

    def test_without_the_option_nothing_is_shared(self):
        self.run_muster("--nproc-per-node", 2, self.source(FAILS), 0, expect=0)
        self.assertEqual(len(self.hashes()[0]), 2)

    def test_what_the_script_imports_is_there(self):
        (self.site / "slow.py").write_text("import os\nopen('imports', 'a').write('x')\n")
        (self.src / "beside.py").write_text("try:\n    import slow\nexcept ImportError:\n    pass\nVALUE = 1\n")
        self.run_muster("--warm", "--nproc-per-node", 3, self.source("import beside; print(beside.slow)"),
                        env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertEqual(self.read("imports"), "x")

    def test_modules_by_name(self):
        (self.site / "more.py").write_text("open('imports', 'a').write('x')\n")
        text = "import sys; print('more' in sys.modules)"
        self.run_muster("--warm", "--warm-modules", "more,json", self.source(text),
                        env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertIn("True", self.read("out"))

    def test_random_numbers_differ(self):
        text = "import random, os, uuid, multiprocessing as m; " \
               "os.write(1, f'{random.random()} {uuid.uuid4()} {m.current_process().authkey.hex()}\\n'.encode())"
        _, out, _ = self.run_muster("--warm", "--nproc-per-node", 3, self.source(text), expect=0)
        for column in zip(*(line.split() for line in out.splitlines())):
            self.assertEqual(len(set(column)), 3)

    def test_many_restarts_leave_nothing(self):
        job = self.warm_job(self.source(FAILS), 30, restarts=30, nproc=1)
        uses = []
        for attempt in range(30):
            self.wait_ready(attempt, 1)
            uses.append(self.use_of(shim_of(job.pid)))
            self.let_fail(attempt)
        self.assertEqual(job.wait(), 0)
        self.assertEqual(uses[1:], uses[1:2] * 29)
        self.assertNotIn(COLD, self.read("err"))

    @staticmethod
    def use_of(shim):
        """The descriptors and children of the shim and of the zygote."""
        zygote = child_named(shim, "muster-zygote")
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (shim, zygote)], len(list(children(shim)))


class Refused(WarmTest):
    """Whatever the zygote must not fork from: the workers start cold, and a line says why."""

    def cold(self, reason, text="import trap\nprint('ran')\n", module=None, args=(), env=None):
        if module is not None:
            (self.site / "trap.py").write_text(module)
        _, out, err = self.run_muster("--warm", "--nproc-per-node", 2, *args, self.source(text),
                                      env={"PYTHONPATH": str(self.site), **(env or {})}, expect=0)
        self.assertEqual(out.count("ran"), 2, err)
        self.assertEqual(err.count(COLD), 1, err)
        self.assertRegex(err, COLD + reason)
        self.assert_nothing_left()

    def test_a_thread(self):
        self.cold("trap has started a thread", module="import threading\n"
                  "threading.Thread(target=threading.Event().wait, daemon=True).start()\n")

    def test_a_process(self):
        self.cold("trap has started a process",
                  module="import subprocess\nP = subprocess.Popen(['sleep', '1000'])\n")

    def test_a_socket(self):
        self.cold("trap has opened a socket", module="import socket\nS = socket.socketpair()\n")

    def test_cuda(self):
        (self.site / "torch").mkdir()
        (self.site / "torch/__init__.py").write_text("from . import cuda\n")
        (self.site / "torch/cuda.py").write_text("def is_initialized():\n    return True\n")
        self.cold("torch has initialised CUDA", text="print('ran')")

    def test_a_module_that_reads_the_rank(self):
        self.cold("an imported module reads RANK", module="import os\nRANK = os.environ.get('RANK')\n",
                  text="import trap, os\nassert trap.RANK == os.environ['RANK']\nprint('ran')\n")

    def test_a_sitecustomize_that_reads_the_rank(self):
        (self.site / "sitecustomize.py").write_text("import builtins, os\nbuiltins.R = os.environ.get('RANK')\n")
        self.cold("an imported module reads RANK", text="import os\nassert R == os.environ['RANK']\nprint('ran')\n")

    def test_a_module_that_fails(self):
        self.cold("the import of trap failed: ValueError: no",
                  text="try:\n    import trap\nexcept ValueError:\n    print('ran')\n", module="raise ValueError('no')\n")

    def test_a_module_that_ends_the_process(self):
        self.cold("the zygote ended with status 3 while it imported", text="print('ran')\ntry:\n    import trap\n"
                  "except SystemExit:\n    pass\n", module="import os, sys\n"
                  "os._exit(3) if 'muster-zygote' in open('/proc/self/comm').read() else None\n")

    def test_a_module_that_does_not_exist(self):
        self.cold("--warm-modules nothing: No module named 'nothing'", text="print('ran')",
                  args=("--warm-modules", "nothing"))

    def test_a_file_beside_the_script_that_hides_a_module(self):
        (self.src / "colorsys.py").write_text("MINE = 1\n")
        (self.site / "trap.py").write_text("import colorsys\n")
        self.cold("colorsys in .* has the name of an imported module",
                  text="import trap, colorsys\nprint('ran', colorsys.MINE)\n")

    def test_a_script_that_sets_what_an_import_reads(self):
        self.cold(".*s.py changes TRAP, which an imported module reads", module="import os\nT = os.environ.get('TRAP')\n",
                  text="import os\nos.environ['TRAP'] = '1'\nimport trap\nassert trap.T == '1'\nprint('ran')\n")
        self.cold(".*s.py changes OMP_NUM_THREADS", text="import os\nos.environ.setdefault('OMP_NUM_THREADS', '1')\n"
                  "print('ran')\n")
        self.cold(".*s.py changes os.environ", text="import os\nos.environ.update(A='1')\nprint('ran')\n")

    def test_a_script_that_changes_the_path(self):
        self.cold(".*s.py changes sys.path", text="import sys\nsys.path.insert(0, '/x')\nprint('ran')\n")

    def test_a_script_that_patches(self):
        self.cold(".*s.py imports gevent", text="try:\n    from gevent import monkey\nexcept ImportError:\n    pass\n"
                  "print('ran')\n")

    def test_threads_of_libraries_that_are_set_otherwise(self):
        self.cold("OPENBLAS_NUM_THREADS is not 1", text="print('ran')", env={"OPENBLAS_NUM_THREADS": "2"})

    def test_a_python_that_does_not_import_the_hook(self):
        python = self.script("python", f"#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -I \"$@\"\n")
        self.cold("this Python ignores PYTHONPATH", text="print('ran')", env={"PYTHON_EXEC": str(python)})
        self.script("python", f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        self.cold("this Python ignores PYTHONPATH", text="print('ran')", env={"PYTHON_EXEC": str(python)})

    def test_a_python_that_is_none(self):
        python = self.script("python", "#!/bin/sh\nfor word; do [ \"$word\" = -c ] && exit 7; done\n"
                             f"exec {sys.executable} \"$@\"\n")
        self.cold("the zygote ended with status 7 while it imported", text="print('ran')",
                  env={"PYTHON_EXEC": str(python)})

    def test_a_wrapper(self):
        python = self.script("python", f"#!/bin/sh\nexport ADDED=1\nexec {sys.executable} \"$@\"\n")
        text = "import os\nassert os.environ['ADDED'] == '1'\nprint('ran')\n"
        self.cold(".*python is a wrapper: set PYTHON_EXEC to", text=text, env={"PYTHON_EXEC": str(python)})
        python.write_text(f"#!/bin/bash\nexport ADDED=1\nexec -a \"$0\" {sys.executable} \"$@\"\n")
        self.cold("ADDED is another one in the zygote", text=text, env={"PYTHON_EXEC": str(python)})

    def test_programs_that_are_not_python(self):
        _, out, err = self.run_muster("--warm", "--no-python", "echo", "hello", expect=0)
        self.assertIn("hello", out)
        self.assertIn("--warm has no effect with --no-python", err)

    def test_modules_without_the_option(self):
        _, _, err = self.run_muster("--warm-modules", "x", "--no-python", "true", expect=0)
        self.assertIn("--warm-modules has no effect without --warm", err)


class Faults(WarmTest):
    """A zygote that dies or hangs costs a cold start and a line."""

    def restart(self, job, attempt, reason=None):
        before = self.read("err").count(COLD)
        self.let_fail(attempt)
        self.wait_ready(attempt + 1)
        lines = self.read("err")
        self.assertEqual(lines.count(COLD) - before, 1 if reason else 0, lines)
        if reason:
            self.assertRegex(lines, f"the workers of restart {attempt + 1} {COLD}{reason}")

    def begin(self, restarts):
        job = self.warm_job(self.source(FAILS), restarts, restarts=restarts)
        self.wait_ready(0)
        return job

    def new_zygote(self, job, old):
        wait_for(lambda: self.zygote(job) not in (None, old) and self.is_waiting(self.zygote(job)), "a new zygote")

    @staticmethod
    def is_waiting(zygote):
        try:
            return "recvmsg" in pathlib.Path(f"/proc/{zygote}/wchan").read_text() or \
                pathlib.Path(f"/proc/{zygote}/syscall").read_text().startswith("47 ")
        except OSError:
            return False

    def test_killed(self):
        job = self.begin(2)
        old = self.zygote(job)
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.zygote(job) not in (None, old), "a new zygote")
        self.new_zygote(job, old)
        self.restart(job, 0)
        self.restart(job, 1)
        self.assertEqual(job.wait(), 0)
        values = self.hashes()
        self.assertEqual(len(values[1] | values[2]), 1)
        self.assertNotEqual(values[0], values[1])

    def test_stopped(self):
        job = self.begin(2)
        old = self.zygote(job)
        os.kill(old, signal.SIGSTOP)
        self.restart(job, 0, "the zygote has not answered within 5 seconds")
        self.assertEqual(len(self.hashes()[1]), 2)
        self.new_zygote(job, old)
        self.restart(job, 1)
        self.assertEqual(job.wait(), 0)
        self.assert_nothing_left()

    def test_stopped_and_continued_too_late(self):
        job = self.begin(1)
        zygote = self.zygote(job)
        os.kill(zygote, signal.SIGSTOP)
        self.restart(job, 0, "the zygote has not answered")
        self.assertEqual(job.wait(), 0)
        self.assertEqual(self.read("out").count("attempt 1"), 2)  # No late fork ran the script.

    def test_a_changed_file(self):
        (self.site / "trap.py").write_text("VALUE = 1\n")
        job = self.warm_job(self.source("import trap\n" + FAILS), 2, restarts=2)
        self.wait_ready(0)
        old = self.zygote(job)
        (self.site / "trap.py").write_text("VALUE = 22\n")
        self.restart(job, 0, ".*trap.py has changed")
        self.new_zygote(job, old)
        self.restart(job, 1)
        self.assertEqual(job.wait(), 0)

    def test_a_signal_while_it_imports(self):
        (self.site / "slow.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(1000)\n")
        job = self.warm_job(self.source("import slow"))
        wait_for(lambda: (self.dir / "importing").exists(), "the import")
        job.send_signal(signal.SIGTERM)
        self.assertNotEqual(job.wait(20), 0)
        self.assert_nothing_left()

    def test_nothing_is_left_without_the_shim_or_the_front(self):
        for who in (lambda job: shim_of(job.pid), lambda job: job.pid):
            for file in self.dir.glob("ready.*"):
                file.unlink()
            job = self.begin(1)
            os.kill(who(job), signal.SIGKILL)
            job.wait(20)
            self.assert_nothing_left()


if __name__ == "__main__":
    main()
