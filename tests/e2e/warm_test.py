#!/usr/bin/env python3
"""Tests --warm: forks of the zygote do what cold workers do, and a fault of the zygote costs only time."""
import inspect
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import zipfile

from support import MUSTER, PATIENCE_S, MusterTest, agent_of, child_named, children, main, shim_of, wait_for
from warm_scripts import SCRIPTS, STATE

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
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

def layout(pid):
    """Where the kernel has put the stack and its own page: it chooses anew for each execve()."""
    with open(f"/proc/{pid}/maps") as maps:
        lines = [line.split() for line in maps]
    return [line[0].split("-")[1] for line in lines if line[-1] in ("[stack]", "[vdso]")]


def is_stopped(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


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

    def test_a_virtual_environment(self):
        venv = self.dir / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        text = "import sys, sysconfig\nprint(sys.executable, sys.prefix, sys.base_prefix, sys.path, sysconfig.get_path('purelib'))\n"
        own = next(venv.glob("lib/python*/site-packages"))
        (own / "of_venv.py").write_text("import sys\nPREFIX = sys.prefix\n")
        text += "import of_venv\nprint(of_venv.PREFIX)\n"
        for env in ({"PYTHON_EXEC": str(venv / "bin/python")}, {"PATH": f"{venv}/bin:{os.environ['PATH']}"}):
            lines = self.both(self.source(text), env=env)[1]
            self.assertTrue(any(str(venv) in line for line in lines), lines)

    def test_an_environment_that_a_script_activates(self):
        """As `conda run` does it: a script changes the environment and executes muster."""
        prefix = self.dir / "prefix"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin/python3").symlink_to(sys.executable)
        (prefix / "bin/python").symlink_to(sys.executable)
        self.both(self.source("import os, sys\nprint(os.environ['CONDA_PREFIX'], sys.executable, sys.flags, sys.path)\n"),
                  env={"CONDA_PREFIX": str(prefix), "PATH": f"{prefix}/bin:{os.environ['PATH']}", "PYTHONNOUSERSITE": "1"})

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

    def test_a_file_that_an_import_leaves_open(self):
        (self.dir / "data").write_text("abcdef" * 9999)
        for opens in ("open('data')", "os.fdopen(os.dup(os.open('data', os.O_RDONLY)))", "os.fdopen(os.open('data', 0))\nos.set_inheritable(F.fileno(), True)"):
            with self.subTest(opens):
                (self.site / "trap.py").write_text(f"import os\nF = {opens}\n")
                self.both(self.source("import os, trap\nprint(trap.F.read(3), sorted(os.listdir('/proc/self/fd')))\n"))

    def test_what_an_import_changes_in_the_process(self):
        """The script is found by a relative path, has set the same before, or looks at it; as in a cold start the import
        comes later."""
        (self.site / "slow.py").write_text("open('imports', 'a').write('x')\n")
        shown = "print(os.getcwd(), os.umask(0), sys.path[:3], sys.stdout is sys.__stdout__, sorted(os.sched_getaffinity(0)),\n" \
                "      [signal.getsignal(n) for n in (2, 10, 12)], signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        for change in ("os.chdir('/')", "os.umask(0o77)", "signal.signal(10, signal.SIG_IGN)",
                       "signal.signal(2, signal.SIG_DFL)", "__import__('faulthandler').register(12)", "signal.pthread_sigmask(signal.SIG_BLOCK, {12})",
                       "sys.path.insert(0, '/nowhere')", "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
                       "sys.stdout = open(1, 'w', closefd=False)"):
            with self.subTest(change):
                (self.site / "trap.py").write_text(f"import os, signal, sys\n{change}\n")
                (self.dir / "imports").unlink(missing_ok=True)
                self.source(f"import os, signal, sys\nimport slow\n{shown}import trap\n{shown}"
                            "os.umask(0o22)\nsignal.signal(10, signal.SIG_DFL)\nsys.stdout.flush()\n")
                self.assertEqual(len(self.both("src/s.py")[1]), 4)
                self.assertEqual(len(self.read("imports")), 2 + 2)  # Two cold workers, and two zygotes.

    def test_what_an_import_does_to_the_garbage_collector(self):
        for change in ("gc.disable()", "gc.set_threshold(500, 5, 5)", "gc.set_threshold(gc.get_threshold()[0] * 3)",
                       "OLD = gc.get_threshold(); gc.set_threshold(9); gc.set_threshold(*OLD)"):
            with self.subTest(change):
                (self.site / "trap.py").write_text(f"import gc\n{change}\n")
                self.both(self.source("import gc, trap\nprint(gc.isenabled(), gc.get_threshold())\n"))


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

    def test_imports_without_garbage_collections(self):
        """They are a quarter of the time that torch needs. A worker's collections leave out what the imports have made."""
        (self.site / "makes.py").write_text("import gc\nCOLLECTIONS = []\ncount = lambda phase, _: COLLECTIONS.append(phase)\n"
                                            "gc.callbacks.append(count)\nMADE = [[] for _ in range(100000)]\n"
                                            "gc.callbacks.remove(count)\n")
        script = self.source("import gc, makes\nprint(len(makes.COLLECTIONS), gc.get_freeze_count() > 100000)\n")
        for warm, expected in (((), "[1-9]\\d* False\n"), (("--warm",), "0 True\n")):
            _, out, _ = self.run_muster(*warm, script, env={"PYTHONPATH": str(self.site)}, expect=0)
            self.assertRegex(out, expected)

    def test_a_thread_that_has_ended(self):
        (self.site / "slow.py").write_text("import threading\nopen('imports', 'a').write('x')\nt = threading.Thread(target=print)\n"
                                           "t.start()\nt.join()\n")
        _, _, err = self.run_muster("--warm", "--nproc-per-node", 2, self.source("import slow"), env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertNotIn(COLD, err)
        self.assertEqual(self.read("imports"), "x")

    def test_modules_by_name(self):
        (self.site / "more.py").write_text("open('imports', 'a').write('x')\n")
        text = "import sys; print('more' in sys.modules)"
        self.run_muster("--warm", "--warm-modules", "more,json", self.source(text),
                        env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertIn("True", self.read("out"))

    def test_a_module_that_reads_the_rank_is_left_to_the_workers(self):
        (self.site / "slow.py").write_text("open('imports', 'a').write('x')\n")
        (self.site / "trap.py").write_text("import os, inner\nRANK = os.environ.get('RANK')\n")
        (self.site / "inner.py").write_text("import slow\n")
        lines = self.both(self.source("import slow, trap, os, sys\nassert trap.RANK == os.environ['RANK']\n"
                                      "print(sorted(sys.modules['trap'].__dict__), __file__)\n"))[1]
        self.assertEqual(len(lines), 2)
        self.assertEqual(len(self.read("imports")), 2 + 2)  # Two cold workers, and two zygotes.

    def test_a_module_that_copies_the_environment(self):
        (self.site / "copies.py").write_text("import os\nCOPY = {n: os.environ.get(n) for n in ('MKL_NUM_THREADS', "
                                             "'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS')}\n")
        for env in ({}, {"OMP_NUM_THREADS": "2"}):
            self.both(self.source("import copies, os\nprint(copies.COPY, [os.environ.get(n) for n in copies.COPY])\n"), env=env)

    def test_random_numbers_differ(self):
        text = "import random, os, uuid, multiprocessing as m; " \
               "os.write(1, f'{random.random()} {uuid.uuid4()} {m.current_process().authkey.hex()}\\n'.encode())"
        _, out, _ = self.run_muster("--warm", "--nproc-per-node", 3, self.source(text), expect=0)
        for column in zip(*(line.split() for line in out.splitlines())):
            self.assertEqual(len(set(column)), 3)

    def test_imports_end_before_a_script_begins(self):
        """No worker meets a module that a thread still imports, as with imports in the background."""
        (self.site / "slow.py").write_text(
            "import os, threading\nPID = os.getpid()\nTHREADS = len(os.listdir('/proc/self/task'))\n"
            "IN_MAIN = threading.current_thread() is threading.main_thread()\n")
        text = "import os, sys\n" \
               "half = [n for n, m in sys.modules.items() if getattr(getattr(m, '__spec__', None), '_initializing', False)]\n" \
               "import slow\nos.write(1, f'slow {slow.PID != os.getpid()} {slow.THREADS} {slow.IN_MAIN} {half}\\n'.encode())\n"
        _, out, _ = self.run_muster("--warm", "--nproc-per-node", 2, self.source(text), env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertEqual(out.count("slow True 1 True []"), 2, out)

    def test_only_workers_share_their_memory_layout(self):
        if pathlib.Path("/proc/sys/kernel/randomize_va_space").read_text().strip() == "0":
            self.skipTest("this kernel gives all processes one layout")
        script = self.source(f"import os\n{inspect.getsource(layout)}\nos.write(1, f'layout {{layout(os.getpid())}}\\n'.encode())\n{FAILS}")
        job = self.warm_job(script, 1)
        self.wait_ready(0)
        others = [layout(pid) for pid in (job.pid, shim_of(job.pid), agent_of(job.pid))]
        self.let_fail(0)
        self.assertEqual(job.wait(), 0, self.read("err"))
        warm = re.findall(r"layout (\[.*\])", self.read("out"))
        self.assertEqual((len(warm), len(set(warm))), (4, 1), warm)
        self.assertNotIn(warm[0], map(str, others))
        _, out, _ = self.run_muster("--nproc-per-node", 2, script, 0, expect=0)
        self.assertEqual(len(set(re.findall(r"layout (\[.*\])", out))), 2, out)

    def test_many_restarts_leave_nothing(self):
        job = self.warm_job(self.source(FAILS), 30, restarts=30, nproc=1)
        for attempt in range(30):
            self.wait_ready(attempt, 1)
            shim = shim_of(job.pid)
            if attempt == 1:
                use = self.settled_use_of(shim)
            elif attempt > 1:  # The shim may still hold a file of /proc, or what came with the start.
                wait_for(lambda: self.use_of(shim) == use, f"{use} in attempt {attempt}")
            self.let_fail(attempt)
        self.assertEqual(job.wait(), 0)
        self.assertNotIn(COLD, self.read("err"))

    def settled_use_of(self, shim):
        """The same at two moments."""
        while True:
            use = self.use_of(shim)
            time.sleep(0.2)
            if self.use_of(shim) == use:
                return use

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

    def test_cuda_after_the_imports(self):
        (self.site / "torch").mkdir()
        (self.site / "torch/__init__.py").write_text("from . import cuda\n")
        (self.site / "torch/cuda.py").write_text("import os\nseen = []\nos.register_at_fork(after_in_parent=lambda: seen.append(1))\n"
                                                 "def is_initialized():\n    return bool(seen)\n")
        _, out, err = self.run_muster("--warm", "--nproc-per-node", 2, self.source("print('ran')"),
                                      env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertEqual(out.count("ran"), 2)  # The first worker is a fork.
        self.assertIn(COLD + "CUDA is initialised in the zygote", err)

    def test_a_thread_after_the_imports(self):
        (self.site / "trap.py").write_text(
            "import os, threading\nos.register_at_fork(after_in_parent=lambda: "
            "threading.Thread(target=threading.Event().wait, daemon=True).start())\n")
        _, out, err = self.run_muster("--warm", "--nproc-per-node", 2, self.source("import trap; print('ran')"),
                                      env={"PYTHONPATH": str(self.site)}, expect=0)
        self.assertEqual(out.count("ran"), 2)
        self.assertIn(COLD + "2 threads run in the zygote", err)

    def test_a_file_of_a_gpu(self):
        (self.site / "trap.py").write_text("GPU = open('/dev/nvidia0')\n")
        done = self.mounted("mkdir new && mount -t tmpfs none new && mkdir new/upper new/work && "
                            "mount -t overlay overlay -o lowerdir=/dev,upperdir=new/upper,workdir=new/work /dev && touch /dev/nvidia0",
                            "--warm", "--nproc-per-node", 2, self.source("import os, trap; os.write(1, f'ran {trap.GPU.name}\\n'.encode())"),
                            env={"PYTHONPATH": str(self.site)})
        if "overlay" in done.stderr:
            self.skipTest(f"no overlay here: {done.stderr}")
        self.assertEqual(done.stdout.count("ran /dev/nvidia0"), 2, done)
        self.assertEqual(done.stderr.count(COLD + "trap has initialised CUDA while it was imported"), 1, done)

    def test_imports_that_change_the_process(self):
        self.cold("trap has changed the limits while it was imported", module="import resource as r\n"
                  "r.setrlimit(r.RLIMIT_CORE, (0, 0))\n")
        (self.site / "torch.py").write_text("import os\nos.chdir('/')\n")
        self.cold("torch has changed the working folder while it was imported", text="print('ran')")

    def test_too_many_modules_that_read_the_rank(self):
        names = [f"trap{number}" for number in range(12)]
        for name in names:
            (self.site / f"{name}.py").write_text("import os\nRANK = os.environ.get('RANK')\n")
        self.cold("an imported module reads RANK", text="".join(
            f"import {name}, os\nassert {name}.RANK == os.environ['RANK']\n" for name in names) + "print('ran')\n")

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

    def test_a_variable_that_imports_may_have_read_otherwise(self):
        """By native code, or by a module."""
        text = "import os, trap\nassert os.environ['ADDED' if 'ADDED' in os.environ else 'HF_ADDED'] == '1'\nprint('ran')\n"
        for name, reason in (("HF_ADDED", "HF_ADDED has changed\n"), ("ADDED", "ADDED has changed, and an imported module has read it")):
            with self.subTest(name):
                python = self.script("python", f"#!/bin/bash\nexport {name}=1\nexec -a \"$0\" {sys.executable} \"$@\"\n")
                self.cold(reason, text=text, module="import os\nREAD = os.environ.get('ADDED')\n", env={"PYTHON_EXEC": str(python)})

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
        self.assertIn("--warm: the zygote was killed by signal 9 (Killed): a new one does its imports", self.read("err"))
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

    def test_one_that_grows_is_made_anew(self):
        (self.site / "leaks.py").write_text("import os\nLEAK = []\nos.register_at_fork(after_in_parent=lambda: "
                                            "LEAK.append(b'x' * (100 << 20)) if not os.path.exists('fail.0') else None)\n")
        job = self.warm_job("--warm-modules", "leaks", self.source(FAILS), 1)
        line = r"--warm: the memory of the zygote has grown from \d+ MiB to \d+ MiB: a new one does its imports"
        wait_for(lambda: re.search(line, self.read("err")), "the line")
        self.wait_ready(0)
        self.new_zygote(job, None)
        self.restart(job, 0)
        self.assertEqual(job.wait(), 0, self.read("err"))
        self.assertEqual(len(re.findall(line, self.read("err"))), 1)
        self.assert_nothing_left()

    def test_the_kernel_would_kill_the_zygote_before_a_worker(self):
        def score(pid):
            return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())
        own = score("self")
        job = self.begin(1)
        workers = set(children(shim_of(job.pid))) - {self.zygote(job), agent_of(job.pid)}
        self.assertEqual({score(pid) for pid in workers}, {own})
        self.assertEqual(score(self.zygote(job)), 1000)
        self.let_fail(0)
        self.assertEqual(job.wait(), 0, self.read("err"))

    @unittest.skipUnless(shutil.which(MUSTERCTL), "this build has no musterctl")
    def test_its_memory_is_shown(self):
        job = self.begin(1)
        zygote = self.zygote(job)
        out = subprocess.run([MUSTERCTL, "ps", "--json"], capture_output=True, text=True, check=True).stdout
        shown = [one["zygote"] for one in json.loads(out)["jobs"] if one["shim_pid"] == shim_of(job.pid)][0]
        self.assertEqual(shown["pid"], zygote)
        self.assertGreater(shown["resident_bytes"], shown["proportional_bytes"])
        self.assertGreater(shown["proportional_bytes"], shown["own_bytes"])
        text = subprocess.run([MUSTERCTL, "ps"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(text, rf"\n  zygote {zygote}  memory \d+ MiB: its own \d+ MiB, shared \d+ MiB")
        self.let_fail(0)
        self.assertEqual(job.wait(), 0, self.read("err"))

    def start_in_group(self, *args, **env):
        """As a shell starts a job: the group has a parent in another one, so it can be stopped."""
        return self.start("--warm", "--nproc-per-node", 2, "--shutdown-timeout", 1, *args, process_group=0,
                          env={"PYTHONPATH": str(self.site), **env})

    def stop(self, job):
        os.killpg(job.pid, signal.SIGTSTP)
        wait_for(lambda: is_stopped(job.pid), "the front to stop")

    def stopped_workers(self, job, seen=()):
        """Both workers of the newest attempt, once they are stopped. They do nothing."""
        def find():
            pids = [pid for pid in children(shim_of(job.pid)) if is_stopped(pid) and pid not in seen]
            return pids if len(pids) == 2 else None
        found = wait_for(find, "the workers to stop")
        time.sleep(0.2)  # In which they must not run.
        self.assertEqual(find(), found)
        return found

    def test_ctrl_z(self):
        """Workers of a restart in a stopped job do nothing until the job goes on, and come from the zygote as others do."""
        self.check_ctrl_z()

    def test_ctrl_z_with_a_slow_shim(self):
        """A worker has nothing to import: it must be stopped before it is let go, not after."""
        late_calls = pathlib.Path(MUSTER).parents[1] / "tests/liblate_calls.so"
        if not late_calls.exists():
            self.skipTest("this build has no tests/liblate_calls.so: a sanitizer's runtime would be loaded after it")
        self.check_ctrl_z(LD_PRELOAD=str(late_calls), LATE_CALLS="100000", LATE_CALLS_US="300000", LATE_CALLS_IN="muster-shim",
                          LATE_CALLS_AFTER="send")

    def check_ctrl_z(self, **env):
        job = self.start_in_group("--max-restarts", 2, self.source(FAILS), 2, **env)
        self.wait_ready(0)
        zygote = self.zygote(job)
        seen = []
        for attempt in range(2):
            self.stop(job)
            workers = self.stopped_workers(job, seen)
            os.kill(workers[attempt], signal.SIGKILL)
            seen += workers
            self.stopped_workers(job, seen)
            self.assertEqual(self.read(f"ready.{attempt + 1}"), "")
            self.assertEqual(self.zygote(job), zygote)
            os.killpg(job.pid, signal.SIGCONT)
            self.wait_ready(attempt + 1)
        self.assertEqual(job.wait(PATIENCE_S), 0, self.read("err"))
        self.assertNotIn(COLD, self.read("err"))
        self.assertEqual({len(values) for values in self.hashes().values()}, {1})
        self.assert_nothing_left()

    def test_ctrl_z_while_it_imports(self):
        (self.site / "slow.py").write_text("import os, time\nopen('importing', 'w').close()\n"
                                           "while not os.path.exists('go'):\n    time.sleep(0.01)\n")
        job = self.start_in_group(self.source("import slow\n" + FAILS), 0)
        wait_for(lambda: (self.dir / "importing").exists(), "the import")
        self.stop(job)
        (self.dir / "go").touch()
        self.stopped_workers(job)
        self.assertEqual(self.read("ready.0"), "")
        os.killpg(job.pid, signal.SIGCONT)
        self.assertEqual(job.wait(PATIENCE_S), 0, self.read("err"))
        self.assertNotIn(COLD, self.read("err"))
        self.assertEqual(self.read("ready.0"), "xx")
        self.assert_nothing_left()

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
