#!/usr/bin/env python3
"""Attacks on a live job of two muster nodes that trains a network with DDP: it trains on, to the same weights as alone.

    training_attack_test.py [-v] [OnTraining.test_NAME ...]      (MUSTER_BIN names the program; needs torch)
"""
import os
import pathlib
import sys
import unittest

import attacks
from hostile import main
from victim_job import VictimJob, add_tests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import warm_reduce
from support import SOURCE, python_has_torch
from warm_torchrun import is_warm

TORCH_PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv/bin/python"))

# Each rank has its own half of the data, so that the weights are right only if every step's gradients have met. Each step
# also goes through the workers' store, as jobs do that count their steps there.
TRAIN = """
import datetime, os, time
import torch, torch.distributed as dist
folder, rank = os.environ["TEST_DIR"], int(os.environ["RANK"])
def note(name, line):
    with open(f"{folder}/{name}.{rank}.new", "w") as file:
        file.write(line)
    os.rename(f"{folder}/{name}.{rank}.new", f"{folder}/{name}.{rank}")
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
store = dist.distributed_c10d._get_default_store()
note("master", os.environ["MASTER_PORT"])
inputs = torch.randn(64, 8)
targets = inputs @ torch.arange(8.0).reshape(8, 1) + 1
inputs, targets = inputs[rank::2], targets[rank::2]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, last = 0, torch.tensor([2**31 - 1])
while step < last.item():
    begin = time.monotonic()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert store.add(f"steps/{rank}", 1) == step + 1, "another one counts this job's steps"
    step += 1
    took = time.monotonic() - begin
    if rank == 0:
        with open(folder + "/steps", "a") as file:
            file.write(f"{took:.4f}\\n")
        if last.item() == 2**31 - 1 and os.path.exists(folder + "/finish"):
            last.fill_(max(step + 1, 500))
    dist.broadcast(last, 0)
    time.sleep(0.005)
weight = model.module.weight.detach().flatten()
assert torch.allclose(weight, torch.arange(8.0), atol=1e-2), weight
note("trained", " ".join(map(str, weight.tolist())))
dist.destroy_process_group()
"""


class OnTraining(VictimJob):
    """One job for all attacks; the methods are added below."""

    @classmethod
    def setUpClass(cls):
        if not is_warm(TORCH_PYTHON) and not python_has_torch(TORCH_PYTHON):
            raise unittest.SkipTest(f"needs torch; {TORCH_PYTHON} has none")
        super().setUpClass()

    @classmethod
    def worker_text(cls):
        if not is_warm(TORCH_PYTHON):
            return TRAIN
        # In copies of this process, which has loaded torch.
        import torch.optim  # noqa: F401, PLC0415
        warm_reduce.REDUCE = TRAIN
        trainers = warm_reduce.WarmReduce(cls.dir / "trainers")
        cls.addClassCleanup(trainers.close)
        return trainers.worker_text()

    @classmethod
    def environment(cls):
        return {} if is_warm(TORCH_PYTHON) else {"PYTHON_EXEC": TORCH_PYTHON}

    def test_zz_it_has_trained_to_the_right_weights(self):  # The last one by its name.
        self.ends_well()
        weights = [(self.dir / f"trained.{rank}").read_text() for rank in range(2)]
        self.assertEqual(weights[0], weights[1])


add_tests(OnTraining, "rendezvous", (attacks.list_keys_unread, attacks.random_bytes, attacks.node_that_reads_nothing,
                                     attacks.pickles_that_execute, attacks.slow_loris))
add_tests(OnTraining, "store", (attacks.list_keys_unread, attacks.get_beside_append, attacks.requests_without_end,
                                attacks.half_requests, attacks.slow_loris))


if __name__ == "__main__":
    main()
