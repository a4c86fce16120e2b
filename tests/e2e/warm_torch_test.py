#!/usr/bin/env python3
"""Tests --warm with torch: what would break in a fork of a process that has imported it."""
import os
import re
import subprocess

from nodes import TORCH_PYTHON
from support import MUSTER, PATIENCE_S, MusterTest, main

STEP = """
import os, sys, time
late = sorted({"torch", "torch.distributed", "torch._dynamo", "numpy"} - set(sys.modules))
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
sys.stdout.write(f"stepped {os.environ['RANK']} {os.environ['TORCHELASTIC_RESTART_COUNT']} {late}\\n")
dist.barrier()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3) if os.environ["RANK"] == "0" else time.sleep(1000)
dist.destroy_process_group()
"""

NUMBERS = """
import sys, numpy, torch
numbers = [*numpy.random.rand(2), *torch.rand(2).tolist(), torch.initial_seed()]
sys.stdout.write(f"numbers {' '.join(map(str, numbers))}\\n")
"""

PRODUCT = """
import os, sys, torch
a = torch.ones(700, 700)
product = ((a @ a) / 700).sum().item()
many = len(os.listdir("/proc/self/task")) > 1
sys.stdout.write(f"product {product} {torch.get_num_threads()} {many}\\n")
"""

LOADER = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, at):
        return torch.tensor([float(at)])
if __name__ == "__main__":
    for context in ("fork", "spawn", "forkserver"):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=context)
        sys.stdout.write(f"{context} {[batch.flatten().tolist() for batch in loader]}\\n")
"""


LIGHTNING = """
import os, sys, torch, lightning as L
from torch.utils.data import DataLoader, TensorDataset
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
L.seed_everything(3)
trainer = L.Trainer(accelerator="cpu", devices=2, num_nodes=1, strategy="ddp", max_steps=3, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, DataLoader(TensorDataset(torch.arange(32.).reshape(8, 4)), batch_size=2))
sys.stdout.write(f"weights {os.environ['RANK']} {[round(x, 4) for x in model.layer.weight.flatten().tolist()]} {trainer.world_size}\\n")
"""

ACCELERATE = """
import os, sys, torch
from accelerate import Accelerator
from accelerate.utils import set_seed
set_seed(3)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.arange(32.).reshape(8, 4) / 32, batch_size=2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
weights = accelerator.unwrap_model(model).weight.flatten().tolist()
sys.stdout.write(f"weights {os.environ['RANK']} {[round(x, 4) for x in weights]} {accelerator.num_processes}\\n")
accelerator.end_training()
"""


class WarmTorchTest(MusterTest):
    def warm(self, text, *args, env=None, cold=None):
        code, out, err = self.run_muster("--warm", "--nproc-per-node", 2, *args, self.script("s.py", text),
                                         env={"PYTHON_EXEC": TORCH_PYTHON, **(env or {})}, expect=0)
        self.assertEqual("start cold" in err, cold is not None, err)
        if cold:
            self.assertIn(cold, err)
        self.assert_nothing_left()
        return out

    def test_workers_step_again_without_an_import(self):
        out = self.warm(STEP, "--max-restarts", 1)
        self.assertEqual(sorted(re.findall(r"stepped (\d) (\d) \[\]", out)),
                         [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")], out)

    def test_random_numbers_differ(self):
        lines = [line.split()[1:] for line in self.warm(NUMBERS).splitlines() if line.startswith("numbers")]
        self.assertEqual(len(lines), 2)
        for column in zip(*lines):
            self.assertEqual(len(set(column)), 2)

    def test_a_parallel_product_ends_after_one_in_the_zygote(self):
        site = self.dir / "site"
        site.mkdir()
        (site / "multiplies.py").write_text("import torch\na = torch.ones(700, 700)\nb = (a @ a).sum()\n")
        out = self.warm(PRODUCT, "--warm-modules", "multiplies",
                        env={"PYTHONPATH": str(site), "OMP_NUM_THREADS": "2"})
        self.assertEqual(out.count("product 490000.0 2 True"), 2, out)

    def test_the_number_of_threads_is_that_of_a_cold_start(self):
        text = "import torch; print('threads', torch.get_num_threads(), torch.get_num_interop_threads())"
        seen = [self.run_muster(*warm, "--nproc-per-node", 1, self.script("s.py", text),
                                env={"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": threads}, expect=0)[1]
                for threads in ("", "1", "2") for warm in ((), ("--warm",))]
        self.assertEqual(seen[0::2], seen[1::2])
        self.assertEqual(len(set(seen)), 2 if "threads 2" in seen[0] else 3)

    def test_threads_in_the_zygote_are_refused(self):
        site = self.dir / "site"
        site.mkdir()
        (site / "parallel.py").write_text("import torch\ntorch.set_num_threads(2)\na = torch.ones(700, 700)\nb = a @ a\n")
        self.warm("print('ran')", "--warm-modules", "parallel", env={"PYTHONPATH": str(site)},
                  cold="parallel has started a thread")

    def test_data_loaders(self):
        out = self.warm(LOADER)
        for context in ("fork", "spawn", "forkserver"):
            self.assertEqual(out.count(f"{context} [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]"), 2, out)

    def has(self, module):
        found = subprocess.run([TORCH_PYTHON, "-c", f"import {module}"], capture_output=True, check=False)
        if found.returncode != 0:
            self.skipTest(f"{module} is not installed")

    def same_weights(self, text):
        seen = []
        for warm in ((), ("--warm",)):
            _, out, err = self.run_muster(*warm, "--nproc-per-node", 2, self.script("s.py", text),
                                          env={"PYTHON_EXEC": TORCH_PYTHON}, expect=0)
            self.assertNotIn("start cold", err)
            seen.append(sorted(line for line in out.splitlines() if line.startswith("weights")))
        self.assertEqual(len(seen[0]), 2, seen)
        self.assertEqual(*seen)

    def test_lightning(self):
        self.has("lightning")
        self.same_weights(LIGHTNING)

    def test_accelerate(self):
        self.has("accelerate")
        self.same_weights(ACCELERATE)

    def test_the_python_entry(self):
        folder = subprocess.run([MUSTER, "--python-entry"], check=True, capture_output=True, text=True).stdout.strip()
        for warm in ("0", "1"):
            done = subprocess.run(
                [TORCH_PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", self.script("s.py", STEP)],
                env=self.environment(PYTHONPATH=folder, MUSTER_BIN=os.path.abspath(MUSTER), MUSTER_WARM=warm), cwd=self.dir,
                capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("start cold", done.stderr)
            self.assertEqual(len(re.findall(r"stepped \d \d", done.stdout)), 4, done.stdout)
            self.assertEqual("zygote" in done.stderr, False)

    def test_compiling(self):
        out = self.warm("import sys, torch\nf = torch.compile(lambda x: x * 2 + 1, backend='aot_eager')\n"
                        "sys.stdout.write(f'compiled {f(torch.ones(2)).tolist()}\\n')\n")
        self.assertEqual(out.count("compiled [3.0, 3.0]"), 2)


if __name__ == "__main__":
    main()
