#!/usr/bin/env python3
"""Tests --warm with torch: what would break in a fork of a process that has imported it."""
import re

from nodes import TORCH_PYTHON
from support import MusterTest, main

STEP = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
late = sorted(name for name in ("torch._dynamo", "numpy") if name not in sys.modules)
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

    def test_compiling(self):
        out = self.warm("import torch\nf = torch.compile(lambda x: x * 2 + 1, backend='aot_eager')\n"
                        "print('compiled', f(torch.ones(2)).tolist())\n")
        self.assertEqual(out.count("compiled [3.0, 3.0]"), 2)


if __name__ == "__main__":
    main()
