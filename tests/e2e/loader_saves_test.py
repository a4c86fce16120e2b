#!/usr/bin/env python3
"""A training script that saves when it gets SIGTERM, and has torch's DataLoader: the loaders' processes get the signal
after the script, so it can save. Each way to start loaders, with one rank and with four.

MUSTER_SAVES=50 is the long form: the number of jobs."""
import os

from support import SOURCE, MusterTest, main, python_has_torch, wait_for

COUNT = int(os.environ.get("MUSTER_SAVES", "6"))
PYTHON = SOURCE / ".venv/bin/python"
CASES = [(method, ranks) for ranks in (1, 4) for method in ("fork", "spawn", "forkserver")]

SCRIPT = """
import os, signal, sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.zeros(1)
def note(name):
    with open(name, "a") as file:
        file.write(os.environ["RANK"] + "\\n")
if __name__ == "__main__":
    stop = False
    def on_term(*_):
        global stop
        stop = True
    signal.signal(signal.SIGTERM, on_term)
    for step, batch in enumerate(DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])):
        if step == 1:
            note("ready")
        time.sleep(0.2)
        if stop:
            note("saved")
            sys.exit(0)
"""


class LoaderSaves(MusterTest):
    def setUp(self):
        super().setUp()
        if not python_has_torch(PYTHON):
            self.skipTest("no torch in .venv")

    def test_a_script_with_loaders_saves(self):
        script = self.script("train.py", SCRIPT)
        for number in range(COUNT):
            method, ranks = CASES[number % len(CASES)]
            with self.subTest(number=number, method=method, ranks=ranks):
                for name in ("ready", "saved"):
                    (self.dir / name).unlink(missing_ok=True)
                process = self.start("--standalone", f"--nproc-per-node={ranks}", script, method,
                                     env={"PYTHON_EXEC": str(PYTHON), "OMP_NUM_THREADS": "1"})
                wait_for(lambda: len(self.read("ready").split()) == ranks, "every rank to train", bound_s=300)
                process.terminate()
                self.assertEqual(process.wait(120), 1, self.read("err"))
                self.assertEqual(sorted(self.read("saved").split()), [str(rank) for rank in range(ranks)], self.read("err"))
                self.assert_nothing_left()


if __name__ == "__main__":
    main()
