"""Tests the worker SDK against PyTorch itself: C++ and Python ranks in one job must get results
that are equal bit for bit.

sdk_test.py --build BUILD --source SOURCE [test names]. Exits with 77 and prints the reason where
the SDK or torch is missing.
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from arguments import need, parse

ARGUMENTS = parse()
need(ARGUMENTS)

import torch  # noqa: E402
from jobs import Compare, HostedStore, JobFailed, free_port, run_tables  # noqa: E402
from torch.utils.data import DistributedSampler  # noqa: E402

RANKS = str(ARGUMENTS.build / "tests/sdk_ranks")
TOOLS = str(ARGUMENTS.build / "tests/sdk_tools")


class Collectives(Compare):
    def test_all_kinds_of_jobs_give_what_python_gives(self):
        expected = run_tables(RANKS, "ppp", "collectives")
        self.assertGreater(len(expected[0]), 20)
        for kinds in ("ccc", "cpc", "pcp"):
            with self.subTest(kinds):
                self.same(run_tables(RANKS, kinds, "collectives"), expected)

    def test_rank_0_hosts_the_store(self):
        expected = run_tables(RANKS, "pp", "collectives")
        for kinds in ("cp", "pc"):
            with self.subTest(kinds):
                more = {"MASTER_PORT": free_port(), "TORCHELASTIC_USE_AGENT_STORE": "False"}
                self.same(run_tables(RANKS, kinds, "collectives", more=more), expected)

    def test_the_store_has_the_same_keys(self):
        stores = {}
        for kinds in ("ccc", "ppp"):
            store = HostedStore()
            run_tables(RANKS, kinds, "collectives", more=store.variables())
            stores[kinds] = store.keys()
        self.assertTrue(any("default_pg/0//cpu//0/2" in key for key in stores["ccc"]))
        self.assertEqual(stores["ccc"], stores["ppp"])

    def test_detailed_debugging_works_in_mixed_jobs(self):
        more = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        for test in ("collectives", "complex"):
            with self.subTest(test):
                expected = run_tables(RANKS, "pp", test)
                self.same(run_tables(RANKS, "cp", test, more=more), expected)

    def test_complex_tensors(self):
        expected = run_tables(RANKS, "ppp", "complex")
        self.assertGreater(len(expected[0]), 22)
        for kinds in ("ccc", "cpc", "pcp"):
            with self.subTest(kinds):
                self.same(run_tables(RANKS, kinds, "complex"), expected)


class Ddp(Compare):
    VARIANTS = ("default", "small_buckets", "bucket_view", "unused", "static_graph", "no_sync",
                "fp16", "bf16", "fp16_view", "bf16_view", "local_buffers")

    def test_gradients_equal_to_the_bit(self):
        for variant in self.VARIANTS:
            with self.subTest(variant):
                expected = run_tables(RANKS, "pp", "ddp", variant)
                self.assertIn("3.first.weight", expected[0])
                self.assertTrue(torch.equal(expected[0]["3.first.weight"],
                                            expected[1]["3.first.weight"]))
                self.same(run_tables(RANKS, "cc", "ddp", variant), expected)

    def test_three_ranks(self):
        # A third has no exact binary representation, so the number of roundings shows in the
        # result.
        for variant in ("default", "bucket_view", "fp16"):
            with self.subTest(variant):
                self.same(run_tables(RANKS, "ccc", "ddp", variant),
                          run_tables(RANKS, "ppp", "ddp", variant))

    def test_python_and_cpp_train_one_model(self):
        expected = run_tables(RANKS, "pp", "ddp", "default")
        for kinds in ("cp", "pc"):
            with self.subTest(kinds):
                self.same(run_tables(RANKS, kinds, "ddp", "default"), expected)

    def test_layers_that_are_registered_twice(self):
        # Each rank starts with other weights, and must take rank 0's, in either language.
        expected = run_tables(RANKS, "pp", "ddp_tied")
        self.assertTrue(torch.equal(expected[0]["end.second.weight"], expected[1]["end.first.weight"]))
        for kinds in ("cc", "cp", "pc"):
            with self.subTest(kinds):
                self.same(run_tables(RANKS, kinds, "ddp_tied"), expected)


class Sampler(unittest.TestCase):
    def test_indices_are_pythons(self):
        cases = []
        for size, replicas, shuffle, drop_last in itertools.product(
            (1, 2, 7, 10, 64, 1001), (1, 2, 3, 8), (True, False), (True, False)
        ):
            for rank in sorted({0, replicas // 2, replicas - 1}):
                for seed, epoch in ((0, 0), (7, 3), (2**40, 1)):
                    cases.append((size, replicas, rank, shuffle, seed, epoch, drop_last))
        text = "".join(" ".join(str(int(value)) for value in (*case, 3)) + "\n" for case in cases)
        done = subprocess.run([TOOLS, "sampler"], input=text, capture_output=True, text=True,
                              check=True, timeout=120)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2 * len(cases))
        for number, case in enumerate(cases):
            size, replicas, rank, shuffle, seed, epoch, drop_last = case
            sampler = DistributedSampler(range(size), replicas, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            expected = [str(index) for index in sampler]
            self.assertEqual(lines[2 * number].split(), expected, case)
            self.assertEqual(lines[2 * number + 1].split(), expected, case)


def errors(**variables):
    """The messages of the errors that sdk_tools makes on purpose."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("RANK", "TORCH_DIST_USE_NCCL2")}
    done = subprocess.run([TOOLS, "errors"], capture_output=True, text=True, timeout=60,
                          env=kept | {"GLOO_SOCKET_IFNAME": "lo"} | variables)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


# What the two NCCL classes say without a GPU: LibTorch's first one, Python's second one, the SDK's
# second one.
FIRST_CLASS = "ProcessGroupNCCL is only supported with GPUs"
SECOND_CLASS_IN_PYTHON = "nccl2 requires at least one CUDA device"
SECOND_CLASS = 'the backend "nccl" needs a GPU, and LibTorch sees none'
PYTHON_NCCL = """
import torch.distributed as dist
try:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
except Exception as error:
    print(error)
"""


class Errors(unittest.TestCase):
    @unittest.skipIf(torch.version.cuda is None or torch.cuda.is_available(),
                     "this torch has no NCCL, or there is a GPU: worker_sdk's checks for GPUs test it")
    def test_nccl_is_the_class_that_python_makes(self):
        for variables in ({}, {"TORCH_DIST_USE_NCCL2": "0"}, {"TORCH_DIST_USE_NCCL2": "1"}):
            with self.subTest(variables):
                kept = {n: v for n, v in os.environ.items() if n != "TORCH_DIST_USE_NCCL2"}
                python = subprocess.run([sys.executable, "-c", PYTHON_NCCL], capture_output=True,
                                        text=True, timeout=120, env=kept | variables).stdout
                self.assertTrue(FIRST_CLASS in python or SECOND_CLASS_IN_PYTHON in python, python)
                expected = FIRST_CLASS if FIRST_CLASS in python else SECOND_CLASS
                self.assertIn(expected, errors(**variables)["nccl"])

    def test_errors_name_the_problem_and_a_remedy(self):
        found = errors()
        expected = {
            "before init": "init_process_group() must come first",
            "environment": "init_process_group() must come first",
            "sampler without group": "no number of replicas given",
            "backend": 'backend "mpi": expected "gloo", "nccl"',
            "pair": '"cpu:nccl": expected "gloo"',
            "timeout": "timeout of 0 ms: expected more than 0",
            "device": "device cpu: expected a GPU",
            "twice": "destroy_process_group() between",
            "no member": "rank 1 is no member",
            "out of range": "new_group: rank 1: expected 0 to 0",
            "double": "new_group: rank 0 is there twice",
            "empty": "new_group: no ranks",
            "no rank": "rank 2 of 2 replicas",
            "no data": "an empty data set",
            "optimizer kind": "only Adam, AdamW and SGD",
            "state": "0.weight is 5x3 there and 4x3 here. ",
            "keep": "keep=0: expected 1 at least",
            "nothing to train": "no parameter of",
            "to oneself": "send: rank 0 is this process itself",
            "epoch": "epoch -1: expected 0 to",
            "input device": "moved to cuda:0 (device), but a parameter of",
            "cpu device": "no error",
            "again": "no error",
            "sum": "2, object: text",
        }
        if torch.version.cuda is None:
            expected["nccl"] = 'the backend "nccl" is not in this build'
            expected["mixed nccl"] = 'the backend "nccl" is not in this build'
        for what, text in expected.items():
            self.assertIn(text, found[what], what)

    def test_a_store_that_is_not_there(self):
        more = {"MASTER_PORT": free_port(), "TORCHELASTIC_USE_AGENT_STORE": "True",
                "MUSTER_TEST_TIMEOUT_MS": 2000}
        with self.assertRaisesRegex(JobFailed, "rank 0 of 1: no store at 127.0.0.1:[0-9]+, where "
                                               "the launcher hosts it .MASTER_ADDR, MASTER_PORT."):
            run_tables(RANKS, "c", "collectives", more=more)


class Files(Compare):
    KINDS = {
        "adam": lambda p: torch.optim.Adam(p, lr=9.0, amsgrad=True),
        "adamw": lambda p: torch.optim.AdamW(p, lr=9.0),
        "sgd": lambda p: torch.optim.SGD(p, lr=9.0),
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tool(self, *words):
        return subprocess.run([TOOLS, *words], capture_output=True, text=True, timeout=60)

    def net(self):
        return torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.BatchNorm1d(4),
                                   torch.nn.Linear(4, 2))

    def train(self, net, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.arange(12.0).reshape(4, 3).sin()).square().mean().backward()
            optimizer.step()

    def close(self, found, expected):
        """Compares with a tolerance: the C++ optimizers compute in another order than Python's, so
        the last digits differ."""
        self.assertEqual(list(found), list(expected))
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)

    def test_python_goes_on_from_what_cpp_saved(self):
        for kind, make in self.KINDS.items():
            with self.subTest(kind):
                file = self.folder / f"{kind}.pt"
                done = self.tool("save", kind, str(file))
                self.assertEqual(done.returncode, 0, done.stderr)
                saved = torch.load(file, weights_only=True)
                self.assertEqual((saved["epoch"], saved["note"]), (5, "text"))
                self.assertEqual(saved["more"], [1, (2.5, None, True)])
                self.assertEqual((saved["conjugate"].tolist(), saved["negated"].tolist()), ([1 - 2j], [-3.0]))
                net = self.net()
                net.load_state_dict(saved["model"])
                optimizer = make(net.parameters())
                optimizer.load_state_dict(saved["optimizer"])
                self.assertNotEqual(optimizer.param_groups[0]["lr"], 9.0)
                self.train(net, optimizer, 2)
                self.close(net.state_dict(), torch.load(f"{file}.later")["model"])

    def test_cpp_goes_on_from_what_python_saved(self):
        for kind, make in self.KINDS.items():
            with self.subTest(kind):
                file = self.folder / f"{kind}.pt"
                torch.manual_seed(3)
                net = self.net()
                optimizer = make(net.parameters())
                optimizer.param_groups[0]["lr"] = 0.03
                self.train(net, optimizer, 3)
                torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                            "epoch": 5, "note": "text"}, file)
                self.train(net, optimizer, 2)
                done = self.tool("load", kind, str(file))
                self.assertEqual(done.returncode, 0, done.stderr)
                resumed = torch.load(f"{file}.resumed")
                self.close(resumed["model"], net.state_dict())
                self.assertAlmostEqual(resumed["optimizer"]["param_groups"][0]["lr"], 0.03)

    def test_files_that_are_no_checkpoints(self):
        file = self.folder / "sgd.pt"
        self.assertEqual(self.tool("save", "sgd", str(file)).returncode, 0)
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        self.assertIn(f"{file}: torn, or not written by", self.tool("load", "sgd", str(file)).stderr)
        file.write_text("not a checkpoint")
        self.assertIn(f"{file}: torn, or not written by", self.tool("load", "sgd", str(file)).stderr)
        file.unlink()
        self.assertIn("cannot be read: No such file", self.tool("load", "sgd", str(file)).stderr)
        (self.folder / "file").write_text("")
        done = self.tool("save", "sgd", str(self.folder / "file/sgd.pt"))
        self.assertIn("cannot be written", done.stderr)
        self.assertIn("Not a directory", done.stderr)


class Resume(Compare):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "snapshots"

    def run_job(self, variant, kinds="cc"):
        return run_tables(RANKS, kinds, "checkpoint", str(variant))

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(self):
        whole = self.run_job(self.folder.with_name("whole"))
        first = self.run_job(f"{self.folder},3")
        self.assertEqual(int(first[0]["started_at"]), -1)
        second = self.run_job(self.folder)
        self.assertEqual(int(second[1]["started_at"]), 3)
        for rank in range(2):
            for name, tensor in whole[rank].items():
                if name in ("started_at", "refused"):
                    continue
                part = first if name.startswith("loss.") and int(name[5:]) < 3 else second
                self.assertTrue(torch.equal(part[rank][name], tensor), f"{rank} {name}")
        self.assertEqual(self.files(), ["checkpoint-00000005.pt", "checkpoint-00000006.pt"])

    def test_a_torn_file_is_passed_over(self):
        self.run_job(f"{self.folder},4")
        newest = self.folder / "checkpoint-00000004.pt"
        newest.write_bytes(newest.read_bytes()[:-1000])
        (self.folder / "checkpoint-00000009.pt").write_bytes(b"foreign")
        (self.folder / "other-00000010.pt").write_bytes(b"not ours")
        again = self.run_job(f"{self.folder},4")
        self.assertEqual(int(again[0]["started_at"]), 3)
        self.assertEqual(int(again[0]["refused"]), 2)
        self.assertEqual(int(again[1]["started_at"]), 3)

    def test_a_folder_with_torn_files_only_is_an_error_on_every_rank(self):
        self.folder.mkdir()
        (self.folder / "checkpoint-00000001.pt").write_bytes(b"x")
        with self.assertRaisesRegex(JobFailed, "none of the 1 checkpoints in .*torn, or not"):
            self.run_job(self.folder)

    def test_another_number_of_ranks_takes_the_model(self):
        self.run_job(f"{self.folder},2")
        alone = self.run_job(f"{self.folder},2", kinds="c")
        self.assertEqual(int(alone[0]["started_at"]), 2)
        saved = torch.load(self.folder / "checkpoint-00000002.pt")
        self.assertEqual(saved["world_size"], 2)
        for name, tensor in saved["model"].items():
            self.assertTrue(torch.equal(alone[0][name], tensor), name)


if __name__ == "__main__":
    unittest.main()
