"""Tests the worker SDK in unusual situations: lost peers, wrong calls and invalid files.

failures_test.py --build BUILD --source SOURCE [test names]. Exits with 77 and prints the reason
where the SDK or torch is missing.
"""

import io
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile

from arguments import need, parse

ARGUMENTS = parse()
need(ARGUMENTS)

import torch  # noqa: E402
from jobs import Compare, HostedStore, JobFailed, free_port, rank_variables, run_processes, run_tables  # noqa: E402

RANKS = str(ARGUMENTS.build / "tests/sdk_ranks")
TOOLS = str(ARGUMENTS.build / "tests/sdk_tools")
LIMIT_S = 100


def text_of(tensor):
    return bytes(tensor.tolist()).decode()


class Folder(Compare):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


class Extra(Compare):
    def test_cpp_ranks_get_the_same_results_as_python_ranks(self):
        expected = run_tables(RANKS, "ppp", "extra")
        self.assertGreater(len(expected[2]), 8)
        # Rank 0, which is C++ in both cases, sends a tensor as an object.
        for kinds in ("ccc", "cpc"):
            with self.subTest(kinds):
                self.same(run_tables(RANKS, kinds, "extra"), expected)

    def test_four_variables_are_enough(self):
        more = {"LOCAL_RANK": "", "LOCAL_WORLD_SIZE": ""}
        expected = run_tables(RANKS, "pp", "ddp", "default")
        self.same(run_tables(RANKS, "cc", "ddp", "default", more), expected)

    def test_the_argument_is_the_local_rank(self):
        commands = [[TOOLS, "local-rank", f"--local-rank={rank}"] for rank in range(2)]
        hosted = HostedStore()
        outputs = run_processes(commands, hosted.variables() | {"LOCAL_RANK": ""})
        self.assertEqual(outputs, ["0 0\n", "1 1\n"])


class Objects(Compare):
    def test_errors_name_values_that_cpp_and_python_cannot_send_each_other(self):
        expected = {
            "tensor": "a tensor as Python's pickle writes it: send it with broadcast()",
            "inner_tensor": "a tensor as Python's pickle writes it: send it with broadcast()",
            "array": r"a call of numpy\.\S+, which is not executed",
            "bytes": "bytes, which are not read",
            # The text depends on the pickle's protocol.
            "bytearray": "a bytearray|a call of builtins.bytearray",
            "set": "a set",
            "frozenset": "a frozenset",
            "object": "an object of the class __main__.Point",
            "class": "the name __main__.Point as a value",
            "dtype": "the name torch.float32 as a value",
            "complex": "a call of builtins.complex, which is not executed",
            "large": "an integer of more than 64 bits",
        }
        first, cpp, last = run_tables(RANKS, "pcp", "foreign_objects")
        self.assertEqual(sorted(cpp), sorted([*expected, "device", "after"]))
        for name, text in expected.items():
            self.assertRegex(text_of(cpp[name]), 'muster::Error: broadcast_object in group "0", rank 1 of 3: '
                             f"what rank 0 sent cannot be read: its pickle has ({text}).*Python may send None")
        self.assertIn("rank 1 of 3: a Device cannot be written: expected tensors", text_of(cpp["device"]))
        self.assertEqual(text_of(cpp["after"]), "still together")  # The group still works.
        # Python ranks get what Python sends, and None for values that C++ cannot read.
        for python in (first, last):
            self.assertEqual({name for name, well in python.items() if not well}, set())


class Failures(Folder):
    def test_wrong_calls(self):
        expected = {
            "not_contiguous": 'c10::Error: .*contiguous.*send in group "0", rank RANK of 2',
            "output_size": 'c10::Error: .*all_gather_into_tensor in group "0", rank RANK of 2',
            "too_few": 'c10::Error: .*reduce_scatter in group "0", rank RANK of 2',
            "self_send": "muster::Error: send: rank RANK is this process itself",
            "self_recv": "muster::Error: recv: rank RANK is this process itself",
            "destroyed": 'muster::Error: this process has left process group "1"',
            "destroyed_twice": "muster::Error: .*destroyed already",
        }
        for rank, table in enumerate(run_tables(RANKS, "cc", "wrong_calls")):
            for name, pattern in expected.items():
                self.assertRegex(text_of(table[name]).replace("\n", " "),
                                 pattern.replace("RANK", str(rank)), name)
            for name, text in (("object_of_itself", "more than 100 containers"),
                               ("object_of_no_kind", "a Device cannot be written: expected tensors"),
                               ("object_without_elements", "Cannot copy out of meta tensor")):
                sent = text_of(table[name])
                if rank == 0:
                    self.assertIn('muster::Error: broadcast_object in group "0", rank 0 of 2: ' + text, sent)
                else:
                    self.assertEqual(sent, "no error")

    def test_conjugated_and_negated_views(self):
        for rank, table in enumerate(run_tables(RANKS, "cc", "views")):
            for name, tensor in table.items():
                if name.startswith("refused_"):
                    self.assertRegex(text_of(tensor), f'muster::Error: .* in group "0", rank {rank} of 2: .*'
                                     "(conjugated|negated) view: expected an ordinary tensor")
                else:
                    self.assertTrue(tensor, name)

    def lose_peer(self, how):
        """The error of rank 0. The limit of HOW=timeout also counts while the ranks connect. A rank that is off the CPU
        meanwhile is too late, and both ranks begin again."""
        limit_ms = 3_000 if how == "timeout" else 60_000
        for attempt in range(5):
            folder = self.folder / f"{how}.{attempt}"
            folder.mkdir()
            hosted = HostedStore()
            more = hosted.variables() | {"MUSTER_TEST_TIMEOUT_MS": limit_ms}
            try:
                run_processes([[RANKS, "lost_peer", f"{folder},{how}", str(folder)]] * 2, more)
                return (folder / "error").read_text()
            except JobFailed:
                if how != "timeout" or all((folder / f"connected.{rank}").exists() for rank in range(2)):
                    raise
        self.fail("the ranks were never connected within the limit")

    def test_a_lost_peer(self):
        names = {"all_reduce": "all_reduce", "async": "all_reduce", "recv": "recv", "barrier": "barrier",
                 "all_gather": "all_gather", "broadcast": "broadcast", "backward": "all_reduce",
                 "forward": "DistributedDataParallel", "second_forward": "DistributedDataParallel",
                 "construct": "DistributedDataParallel", "torch_group": "all_reduce", "save": "all_gather",
                 "load": "all_gather", "timeout": "all_reduce"}
        for how, name in names.items():
            with self.subTest(how):
                text = self.lose_peer(how).replace("\n", " ")
                self.assertRegex(text, f'^c10::Error: .*{name} in group "0", rank 0 of 2')
                if how == "timeout":
                    self.assertRegex(text, "[Tt]imed? ?out")
        text = self.lose_peer("new_group").replace("\n", " ")
        self.assertRegex(text, '^c10::Error: .*timeout.*new_group in group "1", rank 0 of 2')

    def test_a_peer_that_never_comes(self):
        hosted = HostedStore()
        more = hosted.variables() | {"MUSTER_TEST_TIMEOUT_MS": 5_000}
        process = subprocess.run([RANKS, "collectives", "-", str(self.folder)], capture_output=True, text=True,
                                 env=rank_variables(0, 2, more), timeout=LIMIT_S)
        self.assertRegex(process.stderr.replace("\n", " "), 'init_process_group in group "0", rank 0 of 2')

    def test_a_parameter_that_took_no_part(self):
        for table in run_tables(RANKS, "cc", "unused_error"):
            text = text_of(table["error"])
            self.assertIn("c10::Error: Expected to have finished reduction in the prior iteration", text)

    def test_checkpoints_of_a_subgroup(self):
        tables = run_tables(RANKS, "ccc", "subgroup_checkpoint", str(self.folder / "snapshots"))
        self.assertEqual(tables[0], {})
        self.assertEqual([int(table["epoch"]) for table in tables[1:]], [7, 7])
        self.assertTrue(torch.equal(tables[1]["weight"], tables[2]["weight"]))
        self.assertFalse(torch.equal(tables[1]["next"], tables[2]["next"]), "each its own generator")
        saved = torch.load(self.folder / "snapshots/checkpoint-00000007.pt")
        self.assertEqual(saved["world_size"], 2)

    def test_a_rank_that_does_not_fit_fails_the_load_on_all_ranks(self):
        for table in run_tables(RANKS, "ccc", "checkpoint_misfit", str(self.folder / "snapshots")):
            self.assertRegex(text_of(table["error"]), "^rank 1: .*weight is 2x3 there and 2x4 here")
            self.assertTrue(table["unchanged"])
            self.assertEqual(float(table["sum"]), 3)

    def test_all_ranks_load_or_refuse_what_a_foreign_snapshot_has_besides(self):
        large = torch.ones(8192)  # Larger than the tensors that are sent with the outline.
        nested = large
        for _ in range(99):
            nested = [nested]
        weight = torch.arange(6.0).reshape(2, 3)
        whole = {"model": {"weight": weight, "bias": torch.ones(2)}, "optimizer": None, "epoch": 1, "rng": []}
        for more, error in ((nested, "^no error$"),
                            ({large: 1}, "the snapshot has a dict with a tensor as key"),
                            ("muster: large tensor 0 6 5", "the snapshot has a text of muster's own")):
            torch.save(whole | {"more": more}, self.folder / "checkpoint-00000001.pt")
            for rank, table in enumerate(run_tables(RANKS, "cc", "checkpoint_foreign", str(self.folder))):
                self.assertRegex(text_of(table["error"]), error, f"rank {rank}")
                self.assertEqual(torch.equal(table["weight"], weight), error == "^no error$")
                self.assertEqual(float(table["sum"]), 2)

    def test_a_load_needs_one_tensors_memory_beside_the_model(self):
        for table in run_tables(RANKS, "cc", "checkpoint_memory", str(self.folder / "snapshots")):
            self.assertTrue(table["same"])
            self.assertLess(int(table["grown"]), 128 << 20, "one copy of the file is as much")

    def test_ranks_do_not_wait_for_a_save_without_end(self):
        tables = run_tables(RANKS, "cc", "checkpoint_wait", str(self.folder / "snapshots"))
        self.assertEqual(text_of(tables[0]["error"]), "no error")
        self.assertRegex(text_of(tables[1]["error"]),
                         r"rank 0 has not finished the checkpoint of epoch 2 within 0 s \(.*save_timeout")

    def test_the_store_is_lost_during_a_save(self):
        more = {"MASTER_PORT": free_port(), "TORCHELASTIC_USE_AGENT_STORE": "False"}
        run_processes([[RANKS, "checkpoint_store_lost", str(self.folder), str(self.folder)]] * 2, more)
        # A slow rank 1 may still take part in the broadcast before it waits at the store.
        self.assertRegex((self.folder / "error").read_text().replace("\n", " "),
                         '(Checkpoints::save|broadcast) in group "0", rank 1 of 2')


def with_pickle(path, text):
    """Writes a file of torch.save in which another pickle replaces the original one."""
    whole = io.BytesIO()
    torch.save([], whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, text if name.endswith("data.pkl") else old.read(name))


class Pickles(Folder):
    def read(self, path):
        done = subprocess.run([TOOLS, "read", str(path)], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertIn(done.returncode, (0, 1), f"ended by {done.returncode}: {done.stderr}")
        return done.stdout + done.stderr

    def test_tensors_without_elements(self):
        path = self.folder / "empty.pt"
        torch.save([torch.empty(0, 3), torch.empty(3, 0), torch.empty(0), torch.ones(2, 3)[:, 3:],
                    torch.ones(2, 3)], path)
        self.assertEqual(self.read(path), "GenericList\n[0, 3]\n[3, 0]\n[0]\n[2, 0]\n[2, 3]\n")

    def test_containers_inside_each_other(self):
        many = 300_000
        lists = b"\x80\x02" + b"]" * many + b"a" * (many - 1) + b"."
        dicts = b"\x80\x02" + b"}K\x00" * many + b"}" + b"s" * many + b"."
        tuples = b"\x80\x02)" + b"\x85" * many + b"."
        mixed = b"\x80\x02" + b"](" * many + b"t" + b"at" * (many - 1) + b"a."
        # This pickle builds the nesting from the outside, so that no single step makes an object
        # much deeper.
        outside = b"\x80\x02}K\x00]q\x00s" + b"".join(
            b"K\x00h" + bytes([i % 2]) + b"]q" + bytes([(i + 1) % 2]) + b"as" for i in range(many)) + b"."
        path = self.folder / "deep.pt"
        for name, text in {"lists": lists, "dicts": dicts, "tuples": tuples, "mixed": mixed,
                           "outside": outside}.items():
            with self.subTest(name):
                with_pickle(path, text)
                self.assertRegex(self.read(path), "more than 100 (containers|tuples) inside each other")

    def test_containers_inside_of_themselves(self):
        path = self.folder / "self.pt"
        around_list, around_dict, around_tuple = [], {}, []
        around_list.append({"list": around_list})
        around_dict["dict"] = [around_dict]
        around_tuple.append((around_tuple,))
        for value in (around_list, around_dict, around_tuple):
            with_pickle(path, pickle.dumps(value, 2))
            self.assertIn("a container inside of itself", self.read(path))

    def test_containers_twice_inside_each_other(self):
        value = []
        # A reader that followed each reference would visit 2 to the 90th lists.
        for _ in range(90):
            value = [value, value]
        path = self.folder / "twice.pt"
        with_pickle(path, pickle.dumps(value, 2))
        self.assertEqual(self.read(path), "GenericList\n")
        value = ()
        for _ in range(90):
            value = (value, value)
        with_pickle(path, pickle.dumps(value, 2))
        self.assertEqual(self.read(path), "Tuple\n")


class Snapshots(Folder):
    def run_tool(self, keep, *words):
        done = subprocess.run([TOOLS, "snapshots", str(self.folder), str(keep), *words], timeout=LIMIT_S,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def start_tool(self, *words, **variables):
        """Starts the tool. Its "pause" waits for a line of input."""
        process = subprocess.Popen([TOOLS, "snapshots", str(self.folder), "3", *words], text=True,
                                   env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def epochs(self):
        return [int(name[11:19]) for name in self.files()]

    def path(self, epoch):
        return self.folder / f"checkpoint-{epoch:08}.pt"

    def test_training_that_starts_again_from_an_older_one(self):
        self.run_tool(3, "save:98", "save:99", "save:100")
        self.assertEqual(self.run_tool(3, "save:1", "load"), ["saved", "epoch 1, scale 1, refused 0"])
        self.assertEqual(self.epochs(), [1, 99, 100])
        self.assertEqual(self.run_tool(3, "load", "save:2", "load")[2], "epoch 2, scale 2, refused 0")
        self.assertEqual(self.epochs(), [1, 2, 100])
        self.run_tool(3, "save:3")
        self.assertEqual(self.epochs(), [1, 2, 3])
        self.run_tool(3, "save:2")  # Saves an older epoch again: this snapshot is then the newest.
        self.assertEqual(self.run_tool(1, "load", "save:7"), ["epoch 2, scale 2, refused 0", "saved"])
        self.assertEqual(self.epochs(), [7])

    def test_order_survives_a_copy(self):
        self.run_tool(3, "save:98", "save:99", "save:4")
        for path in sorted(self.folder.iterdir(), reverse=True):
            shutil.copyfile(path, path.with_suffix(".copy"))
            path.with_suffix(".copy").rename(path)
        self.assertEqual(self.run_tool(3, "load"), ["epoch 4, scale 4, refused 0"])

    def test_order_goes_on_while_older_files_cannot_be_read(self):
        writer = self.start_tool("save:98", "save:99", "pause", "save:4")
        self.assertEqual([writer.stdout.readline() for _ in range(3)], ["saved\n", "saved\n", "paused\n"])
        whole = {epoch: self.path(epoch).read_bytes() for epoch in (98, 99)}
        for epoch in whole:
            self.path(epoch).unlink()
            self.path(epoch).symlink_to(self.path(epoch))  # Cannot be opened, not even by root.
        out, _ = writer.communicate("on\n", timeout=LIMIT_S)
        self.assertEqual(out, "saved\n")
        for epoch, content in whole.items():
            self.path(epoch).unlink()
            self.path(epoch).write_bytes(content)
        self.assertEqual(self.run_tool(3, "load"), ["epoch 4, scale 4, refused 0"])

    def test_refused_files_take_no_place(self):
        self.run_tool(2, "save:3")
        for epoch in (9, 10):
            torch.save({"other": 1}, self.path(epoch))
        self.assertEqual(self.run_tool(2, "save:4", "load"), ["saved", "epoch 4, scale 4, refused 2"])
        self.assertEqual(self.epochs(), [3, 4, 9, 10])
        whole = self.path(4).read_bytes()
        for size in (len(whole) // 2, len(whole) - 1, len(whole) - 1000, 100, 0):
            self.path(4).write_bytes(whole[:size])
            self.assertEqual(self.run_tool(2, "load"), ["epoch 3, scale 3, refused 3"], size)
        self.assertEqual(self.run_tool(2, "save:5", "load"), ["saved", "epoch 5, scale 5, refused 3"])
        self.assertEqual(self.epochs(), [3, 4, 5, 9, 10])

    def test_foreign_snapshots_are_passed_over_before_anything_is_changed(self):
        self.run_tool(3, "save:3")
        good = torch.load(self.path(3))
        model, optimizer, rng = good["model"], good["optimizer"], good["rng"]
        foreign = {
            "rng of Python": {"rng": torch.get_rng_state()},
            "rng of numbers": {"rng": [1, 2]},
            "rng of wrong type": {"rng": [{"cpu": torch.ones(3)}]},
            "model": {"model": {"scale": 1.0}},
            "model list": {"model": [1]},
            "optimizer": {"optimizer": "adam"},
            "groups": {"optimizer": {"state": {}, "param_groups": {"lr": 1}}},
            "epoch": {"epoch": torch.tensor(5)},
        }
        for name, part in foreign.items():
            with self.subTest(name):
                whole = {"model": model, "optimizer": optimizer, "epoch": 5, "rng": rng, "order": 50}
                torch.save(whole | part, self.path(5))
                self.assertEqual(self.run_tool(3, "load"), ["epoch 3, scale 3, refused 1"])
        self.path(3).unlink()
        found, = self.run_tool(3, "load")
        self.assertIn("error, scale -1: none of the 1 checkpoints", found)

    def test_snapshots_that_do_not_fit_change_nothing(self):
        self.run_tool(3, "save:3")
        good = torch.load(self.path(3))
        state = {0: {"momentum_buffer": "text"}}
        wrong = {
            "momentum": {"optimizer": good["optimizer"] | {"state": state}},
            "shape": {"optimizer": good["optimizer"] | {"state": {0: {"momentum_buffer": torch.ones(1)}}}},
            "lr": {"optimizer": good["optimizer"] | {
                "param_groups": [good["optimizer"]["param_groups"][0] | {"lr": "fast"}]}},
            "generator": {"rng": [{"cpu": torch.zeros(7, dtype=torch.uint8)}]},
            "none": {"optimizer": None},
        }
        for name, part in wrong.items():
            with self.subTest(name):
                torch.save(good | part, self.path(3))
                found, = self.run_tool(3, "load")
                self.assertTrue(found.startswith("error, scale -1: "), found)

    def test_a_folder_that_cannot_be_read_does_not_count_as_empty(self):
        file = self.folder / "file"
        file.write_text("")
        for folder, text in ((self.folder / "none", "nothing"), (file, "Not a directory"),
                             (file / "inside", "Not a directory")):
            done = subprocess.run([TOOLS, "snapshots", str(folder), "3", "load"], timeout=LIMIT_S,
                                  capture_output=True, text=True)
            self.assertIn(text, done.stdout, folder)
        file.unlink()
        self.run_tool(3, "save:3")
        # This link to itself cannot be opened, not even by root.
        self.path(4).symlink_to(self.path(4))
        found, = self.run_tool(3, "load")
        self.assertRegex(found, "error, scale -1: .*00000004.pt: cannot be read: Too many levels")
        self.assertEqual(self.run_tool(3, "save:5"), ["saved"])

    def test_what_a_killed_save_left_is_removed(self):
        left = self.folder / ".checkpoint-00000001.pt.99999999.partial"
        others = [".checkpoint-00000001.pt.notes.partial", ".other-00000001.pt.1.partial",
                  ".checkpoint-1.pt.1.partial", "checkpoint-00000001.pt.1.partial"]
        for path in (left, *(self.folder / name for name in others)):
            path.write_text("")
        self.assertEqual(self.run_tool(3, "save:2"), ["saved"])
        self.assertEqual(self.files(), sorted([*others, "checkpoint-00000002.pt"]))

    def test_a_process_that_was_replaced_writes_no_more(self):
        def start(generation, *words):
            return self.start_tool(*words, TORCHELASTIC_RUN_ID="r", MUSTER_GENERATION=str(generation))

        old = start(1, "save:1", "pause", "save:3")
        self.assertEqual([old.stdout.readline() for _ in range(2)], ["saved\n", "paused\n"])
        new = start(2, "load", "save:2")
        self.assertEqual(new.communicate(timeout=LIMIT_S)[0].splitlines()[1], "saved")
        out, _ = old.communicate("on\n", timeout=LIMIT_S)
        self.assertRegex(out, "error, scale 3: this process is of generation 1 of the run, and generation 2 "
                              "has written .*00000002.pt since")
        self.assertEqual(self.epochs(), [1, 2])
        # A later run counts generations from the start.
        out, _ = start(0, "load", "save:4").communicate(timeout=LIMIT_S)
        self.assertEqual(out.splitlines(), ["epoch 2, scale 2, refused 0", "saved"])

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed: the order of system calls is not seen")
    def test_synced_before_it_has_its_name(self):
        log = self.folder / "calls"
        done = subprocess.run(
            ["strace", "-f", "-y", "-o", log, "-e", "trace=fsync,rename,renameat,renameat2", TOOLS,
             "snapshots", str(self.folder), "3", "save:2"], capture_output=True, text=True, timeout=LIMIT_S)
        if "ptrace" in done.stderr.lower():
            self.skipTest("strace may not trace here: " + done.stderr.strip())
        self.assertEqual(done.stdout, "saved\n", done.stderr)
        calls = re.findall(r"(fsync|rename)\w*\(([^)]*)\) += 0", log.read_text())
        self.assertEqual([name for name, _ in calls], ["fsync", "rename", "fsync"], calls)
        self.assertIn(".partial>", calls[0][1])
        self.assertIn(f"<{self.folder}>", calls[2][1])


if __name__ == "__main__":
    unittest.main()
