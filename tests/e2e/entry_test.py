#!/usr/bin/env python3
"""Tests that programs which call torchrun's Python entry start through muster unchanged
(docs/python_entry.md)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from nodes import free_port
from support import MUSTER, SOURCE, MusterTest, main, python_has_torch

PYTHON = SOURCE / ".venv/bin/python"
HAS_TORCH = python_has_torch(PYTHON)
# Pinned versions, without packages that they need only for other things than launching. None of
# them may install torch.
PROGRAMS = ["accelerate==1.15.0", "lightning-fabric==2.6.6", "lightning-utilities==0.15.3",
            "packaging", "psutil", "huggingface_hub", "safetensors", "pyyaml", "torchmetrics",
            "tqdm", "requests", "hf-xet", "click", "filelock", "coverage==7.17.5"]

WORKER = """import json, os, sys
names = ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "TORCHELASTIC_MAX_RESTARTS", "ROLE_NAME", "PET_ROLE")
with open("worker." + os.environ["RANK"], "w") as f:
    json.dump({"by_muster": "MUSTER_JOB" in os.environ, "argv": sys.argv[1:],
               "python": sys.executable, **{n: os.environ.get(n) for n in names}}, f)
sys.exit(int(os.environ.get("EXIT", "0")))
"""


@unittest.skipUnless(HAS_TORCH, "no torch in .venv")
class EntryTest(MusterTest):
    def setUp(self):
        super().setUp()
        self.worker = self.script("worker.py", WORKER)
        self.folder = subprocess.run([MUSTER, "--python-entry"], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout.strip()

    def call(self, *words, expect=0, path=(), **more):
        """Runs Python with these words and with the folder in PYTHONPATH. Returns its stderr."""
        env = self.environment(**{"MUSTER_BIN": str(pathlib.Path(MUSTER).resolve()),
                                  "PYTHONPATH": os.pathsep.join([self.folder, *path]), **more})
        done = subprocess.run([PYTHON, *map(str, words)], env=env, cwd=self.dir, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True,
                              stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def workers(self, count, **expected):
        """Checks what `count` workers wrote: muster started each of them, and they have these
        values."""
        found = [json.loads(self.read(f"worker.{rank}")) for rank in range(count)]
        for worker in found:
            expected = {"by_muster": True, "WORLD_SIZE": str(count), "python": str(PYTHON),
                        **expected}
            self.assertEqual({name: worker[name] for name in expected}, expected)
        return found

    def program(self, text):
        return self.script("program.py", text.replace("WORKER", repr(str(self.worker))))


class Entry(EntryTest):
    def test_python_m(self):
        self.call("-m", "torch.distributed.run", "--nproc-per-node=2", self.worker, "-m", "x")
        self.workers(2, argv=["-m", "x"])

    def test_python_m_in_other_spellings(self):
        for words in (["-u", "-m", "torch.distributed.run"], ["-um", "torch.distributed.run"],
                      ["-mtorch.distributed.run"]):
            with self.subTest(words=words):
                self.call(*words, self.worker)
                self.workers(1, argv=[])

    def test_python_m_launch(self):
        self.call("-m", "torch.distributed.launch", "--nproc-per-node=2", self.worker)
        self.assertEqual([w["argv"] for w in self.workers(2)],
                         [["--local-rank=0"], ["--local-rank=1"]])

    def test_python_m_does_not_import_torch(self):
        (self.dir / "torch").mkdir()
        self.script("torch/__init__.py", "raise SystemExit('torch was imported')\n")
        self.call("-m", "torch.distributed.run", self.worker)
        self.workers(1)

    def test_main_with_arguments(self):
        self.call(self.program("import torch.distributed.run as r\n"
                               "r.main(['--nproc_per_node=2', WORKER, '--lr', '1'])\n"))
        self.workers(2, argv=["--lr", "1"])

    def test_main_imported_by_name_with_the_arguments_of_the_program(self):
        program = self.program("from torch.distributed.run import main\nmain()\n")
        self.call(program, "--nproc-per-node=2", "--role=r", self.worker)
        self.workers(2, ROLE_NAME="r")

    def test_run_with_a_namespace(self):
        self.call(self.program("""import torch.distributed.run as r
args = r.get_args_parser().parse_args([WORKER, '--a', '-b=1'])
args.nproc_per_node = 2
args.max_restarts = 3
args.standalone = True
args.role = 'trainer'
args.unknown_to_torch = 'x'
r.run(args)
"""))
        self.workers(2, argv=["--a", "-b=1"], TORCHELASTIC_MAX_RESTARTS="3", ROLE_NAME="trainer")

    def test_the_exit_status_is_that_of_muster(self):
        self.call("-m", "torch.distributed.run", self.worker, expect=1, EXIT="3")
        self.call(self.program("import torch.distributed.run as r; r.main([WORKER])"), expect=1,
                  EXIT="3")

    def test_tools_that_run_the_module_themselves(self):
        module = ["-m", "torch.distributed.run", "--nproc-per-node=2", self.worker, "-m", "x"]
        path = subprocess.run([PYTHON, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"],
                              check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        run_py = pathlib.Path(path).parent / "distributed/run.py"
        through_runpy = self.program("import runpy, sys\nsys.argv[0] = 'run'\n"
                                     "runpy.run_module('torch.distributed.run', run_name='__main__')\n")
        by_path = self.script("by_path.py", f"import runpy\nrunpy.run_path({str(run_py)!r}, run_name='__main__')\n")
        tools = {"cProfile": ["-m", "cProfile", "-o", "profile", *module],
                 "pdb": ["-m", "pdb", "-c", "continue", *module],
                 "runpy": [through_runpy, *module[2:]],
                 "run_path": [by_path, *module[2:]],
                 "its path": [run_py, *module[2:]]}
        for name, words in tools.items():
            with self.subTest(tool=name):
                for rank in range(2):
                    (self.dir / f"worker.{rank}").unlink(missing_ok=True)
                self.call(*words)
                self.workers(2, argv=["-m", "x"])

    def test_under_debugpy_torch_does_it_and_says_so(self):
        # debugpy imports this module, and adds its own code to the processes that Python starts.
        self.script("pydevd.py", "")
        for text in ("import pydevd, torch.distributed.run as r; r.main([WORKER])",
                     "import pydevd, runpy, sys; sys.argv = ['run', WORKER]\n"
                     "runpy.run_module('torch.distributed.run', run_name='__main__')"):
            with self.subTest(text=text):
                (self.dir / "worker.0").unlink(missing_ok=True)
                err = self.call(self.program(text))
                self.assertIn("torch's own launcher is used, because a debugger", err)
                self.workers(1, by_muster=False)

    def test_switched_off(self):
        self.call("-m", "torch.distributed.run", self.worker, MUSTER_ENTRY="0")
        self.workers(1, by_muster=False)

    def test_without_muster_torch_does_it_and_says_so(self):
        err = self.call("-m", "torch.distributed.run", self.worker, MUSTER_BIN="/none")
        self.assertIn("MUSTER_BIN is '/none', which is no program", err)
        self.workers(1, by_muster=False)

    def test_another_sitecustomize_is_run_too(self):
        (self.dir / "site").mkdir()
        self.script("site/sitecustomize.py", "import os; open('ran', 'w').write(__name__)\n")
        self.call("-c", "import sitecustomize; print(sitecustomize.__file__)",
                  path=[str(self.dir / "site")])
        self.assertEqual(self.read("ran"), "sitecustomize")

    def test_other_programs_notice_nothing(self):
        code = "import sys; assert 'torch' not in sys.modules and 'shutil' not in sys.modules"
        self.call("-c", code)
        self.call("-m", "json.tool", "--help")

    def test_torchrun_itself(self):
        self.call(PYTHON.parent / "torchrun", "--nproc-per-node=2", self.worker)
        self.workers(2)


class CommandLine(unittest.TestCase):
    """Tests the conversion of a namespace into flags: torchrun's own parser must read the same
    namespace from the flags."""

    @unittest.skipUnless(HAS_TORCH, "no torch in .venv")
    def test_round_trip(self):
        code = """
import itertools, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["MUSTER_ENTRY"] = "0"
import muster_entry
from torch.distributed.run import get_args_parser
lines = [
    [], ["--standalone"], ["--nnodes=1:2", "--nproc-per-node=gpu"], ["-m"], ["--no-python"],
    ["--run-path"], ["--log-dir=d", "-r", "3", "-t", "0:1,1:2"], ["--max-restarts=0"],
    ["--monitor-interval=0.5"], ["--duplicate-stdout-filters=a,,b,c", "--rdzv-conf=a=1,b=2"],
    ["--local-ranks-filter=0,1", "--signals-to-handle=SIGTERM"], ["--shutdown-timeout=7"],
    ["--numa-binding=node", "--virtual-local-rank"], ["--master-port=1", "--node-rank=2"],
    ["--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--rdzv-id=x", "--local-addr=::1"],
    ["--event-log-handler=console", "--start-method=fork", "--logs-specs=l"],
]
for pet in ({}, {"PET_NPROC_PER_NODE": "4"}, {"PET_STANDALONE": "1", "PET_LOG_DIR": "p"}):
    for line in lines:
        os.environ.update(pet)
        args = get_args_parser().parse_args([*line, "script.py", "--x", "-y"])
        args.training_script_args.insert(0, "--")
        if "-m" in line: args.training_script = "-n"  # Only a program can say so.
        for name in pet:  # A program may change what a variable said.
            if name == "PET_STANDALONE": args.standalone = False
        program, words = muster_entry.command_line(args, get_args_parser())
        again = get_args_parser().parse_args(words)
        if vars(again) != vars(args):
            sys.exit(f"{pet} {line} {words}:\\n{vars(args)}\\n{vars(again)}")
        for name in pet: os.environ.pop(name, None)
"""
        done = subprocess.run([PYTHON, "-c", code, SOURCE / "launcher/python"], check=False,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class Programs(EntryTest):
    """Runs the unchanged launchers of Hugging Face and Lightning. Each gets a free port: their defaults are fixed."""

    @classmethod
    def setUpClass(cls):
        cls.target = tempfile.TemporaryDirectory(prefix="muster-entry-")
        cls.addClassCleanup(cls.target.cleanup)
        pip = subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
                              "--disable-pip-version-check", "--target", cls.target.name,
                              *PROGRAMS], check=False, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        if pip.returncode != 0:
            raise unittest.SkipTest(f"pip did not install them: {pip.stdout.strip()[-200:]}")
        if (pathlib.Path(cls.target.name) / "torch").exists():
            raise unittest.SkipTest("they brought a torch of their own")

    def test_accelerate_launch(self):
        self.call("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2",
                  f"--main_process_port={free_port()}", "--mixed_precision=no", self.worker, "x", path=[self.target.name])
        self.workers(2, argv=["x"])

    def test_coverage(self):
        self.call("-m", "coverage", "run", "-m", "torch.distributed.run", "--nproc-per-node=2", self.worker, "-m", "x",
                  path=[self.target.name])
        self.workers(2, argv=["-m", "x"])

    def test_fabric_run(self):
        self.call(f"{self.target.name}/bin/fabric", "run", "--accelerator=cpu", "--devices=2",
                  f"--main-port={free_port()}", self.worker, "x", path=[self.target.name])
        self.workers(2, argv=["x"])


if __name__ == "__main__":
    sys.exit(main())
