#!/usr/bin/env python3
"""Tests the inputs of the digits example: good files are read, and bad files give a helpful error.

The tests of the reader need only Python. The tests of train.py need torch, and the test that makes
the data again needs scikit-learn; without them these tests are skipped and say so.
"""

import gzip
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "digits"
DATA = EXAMPLE / "data"
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
LIMIT_S = 120  # The limit for one process that imports torch on a busy machine.

sys.path[:0] = [str(EXAMPLE), str(ROOT / "tests/support")]
from idx import DataError, read_digits, write_idx  # noqa: E402
from warm_python import WarmPython  # noqa: E402


class DigitsTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def copy_data(self) -> None:
        for name in FILES:
            shutil.copy(DATA / name, self.folder)

    def expect_error(self, path: str, *texts: str) -> str:
        with self.assertRaises(DataError) as caught:
            read_digits(self.folder, "train")
        message = str(caught.exception)
        for text in (str(self.folder / path), *texts):
            self.assertIn(text, message)
        return message


class GoodFiles(DigitsTest):
    def test_the_committed_data_is_whole(self) -> None:
        train, test = read_digits(DATA, "train"), read_digits(DATA, "t10k")
        self.assertEqual((len(train.labels), train.rows, train.columns), (1438, 8, 8))
        self.assertEqual((len(test.labels), test.rows, test.columns), (359, 8, 8))
        self.assertEqual(set(train.labels), set(range(10)))
        self.assertEqual(set(test.labels), set(range(10)))
        self.assertEqual((min(train.pixels), max(train.pixels)), (0, 255))

    def test_no_test_image_is_among_the_training_images(self) -> None:
        train, test = read_digits(DATA, "train"), read_digits(DATA, "t10k")
        seen = {train.pixels[i : i + 64] for i in range(0, len(train.pixels), 64)}
        again = [i for i in range(0, len(test.pixels), 64) if test.pixels[i : i + 64] in seen]
        self.assertEqual(again, [])

    def test_compressed_files_give_the_same_digits(self) -> None:
        for name in FILES:
            (self.folder / f"{name}.gz").write_bytes(gzip.compress((DATA / name).read_bytes()))
        self.assertEqual(read_digits(self.folder, "t10k"), read_digits(DATA, "t10k"))

    def test_names_with_a_dot_are_found(self) -> None:
        for name in FILES:
            shutil.copy(DATA / name, self.folder / name.replace("-idx", ".idx"))
        self.assertEqual(read_digits(self.folder, "train"), read_digits(DATA, "train"))

    def test_a_written_file_is_read_back(self) -> None:
        write_idx(self.folder / FILES[0], (2, 2, 3), bytes(range(12)))
        write_idx(self.folder / FILES[1], (2,), bytes((7, 9)))
        digits = read_digits(self.folder, "train")
        self.assertEqual((digits.rows, digits.columns), (2, 3))
        self.assertEqual((digits.pixels, digits.labels), (bytes(range(12)), bytes((7, 9))))


class BadFiles(DigitsTest):
    def setUp(self) -> None:
        super().setUp()
        self.copy_data()

    def test_no_folder(self) -> None:
        self.folder = self.folder / "nowhere"
        self.expect_error(FILES[0], "no such folder", "--data-dir")

    def test_no_file(self) -> None:
        (self.folder / FILES[1]).unlink()
        self.expect_error(FILES[1], "no such file", "--data-dir")

    def test_every_cut_is_noticed(self) -> None:
        whole = (DATA / FILES[0]).read_bytes()
        for size in (0, 3, 4, 15, 16, 17, len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                (self.folder / FILES[0]).write_bytes(whole[:size])
                self.expect_error(FILES[0], f"{size} bytes", "expected")

    def test_one_byte_too_many(self) -> None:
        with open(self.folder / FILES[1], "ab") as file:
            file.write(b"\0")
        self.expect_error(FILES[1], "too long", "1447 bytes", "expected 1446")

    def test_another_magic_number(self) -> None:
        # A file of labels under the name of the images.
        shutil.copy(DATA / FILES[1], self.folder / FILES[0])
        self.expect_error(FILES[0], "0x00000801", "expected 0x00000803")

    def test_a_compressed_file_without_gz_in_its_name(self) -> None:
        whole = (DATA / FILES[0]).read_bytes()
        (self.folder / FILES[0]).write_bytes(gzip.compress(whole))
        self.expect_error(FILES[0], "0x1f8b", "still compressed")

    def test_a_compressed_file_that_is_cut_short_or_damaged(self) -> None:
        packed = gzip.compress((DATA / FILES[0]).read_bytes())
        (self.folder / FILES[0]).unlink()
        for content in (packed[:-1], packed[: len(packed) // 2], b"no gzip at all", b"\x1f\x8b"):
            with self.subTest(length=len(content)):
                (self.folder / f"{FILES[0]}.gz").write_bytes(content)
                self.expect_error(f"{FILES[0]}.gz", "damaged or cut short", "again")

    def test_a_compressed_file_with_a_wrong_byte(self) -> None:
        packed = bytearray(gzip.compress((DATA / FILES[0]).read_bytes()))
        packed[len(packed) // 2] ^= 0xFF
        (self.folder / FILES[0]).unlink()
        (self.folder / f"{FILES[0]}.gz").write_bytes(packed)
        self.expect_error(f"{FILES[0]}.gz", "damaged or cut short")

    def test_fewer_labels_than_images(self) -> None:
        write_idx(self.folder / FILES[1], (3,), bytes(3))
        self.expect_error(FILES[1], "1438 images", "3 labels")

    def test_a_label_that_is_no_digit(self) -> None:
        write_idx(self.folder / FILES[1], (1438,), bytes(1437) + bytes((10,)))
        self.expect_error(FILES[1], "label 10 at position 1437", "expected 0 to 9")

    def test_no_images(self) -> None:
        write_idx(self.folder / FILES[0], (0, 8, 8), b"")
        write_idx(self.folder / FILES[1], (0,), b"")
        self.expect_error(FILES[0], "0 images", "at least one image")

    def test_a_header_that_announces_the_moon(self) -> None:
        header = struct.pack(">4I", 0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
        (self.folder / FILES[0]).write_bytes(header + bytes(100))
        self.expect_error(FILES[0], "cut short", "116 bytes", "expected")

    def test_a_folder_in_place_of_a_file(self) -> None:
        (self.folder / FILES[0]).unlink()
        (self.folder / FILES[0]).mkdir()
        self.expect_error(FILES[0], "no such file")


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class TrainProgram(DigitsTest):
    """Runs train.py: it prints one line on stderr, exits with a code and leaves a record for the
    launcher. Each train.py is a copy of a process that has loaded torch: loading it ten times takes
    30 seconds of a CPU."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.warm = cls.enterClassContext(WarmPython(sys.executable, OMP_NUM_THREADS="1"))

    def train(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        return subprocess.run(
            [sys.executable, EXAMPLE / "train.py", *arguments],
            env=inherited | self.warm.variables() | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def test_a_bad_file_is_one_line_exit_1_and_a_record(self) -> None:
        self.copy_data()
        (self.folder / FILES[3]).write_bytes((DATA / FILES[3]).read_bytes()[:-5])
        record = self.folder / "error.json"
        done = self.train(
            "--data-dir", str(self.folder),
            RANK="3", LOCAL_RANK="3", TORCHELASTIC_ERROR_FILE=str(record),
        )  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(f"train.py: rank 3: {self.folder / FILES[3]}: cut short", done.stderr)
        self.assertIn("cut short", json.loads(record.read_text())["message"]["message"])

    def test_images_of_two_sizes(self) -> None:
        self.copy_data()
        write_idx(self.folder / FILES[2], (1, 9, 8), bytes(72))
        write_idx(self.folder / FILES[3], (1,), bytes(1))
        done = self.train("--data-dir", str(self.folder), RANK="0", LOCAL_RANK="0")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("8x8 to train, but of 9x8 to test", done.stderr)

    def test_a_place_where_nothing_can_be_saved_is_an_error_before_the_training(self) -> None:
        (self.folder / "file").touch()
        for place in (self.folder, self.folder / "file" / "model.pt"):
            with self.subTest(place=place):
                done = self.train("--save", str(place), RANK="0", LOCAL_RANK="0")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stdout, "", "it began to train")
                self.assertIn(f"train.py: rank 0: {place}: the model cannot be saved", done.stderr)

    def test_a_world_of_one_trains_and_saves_a_whole_model(self) -> None:
        model = self.folder / "new" / "model.pt"
        done = self.train(
            "--epochs", "1", "--save", str(model), "--device", "cpu",
            RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", OMP_NUM_THREADS="1",
            MASTER_ADDR="127.0.0.1", MASTER_PORT="0",  # The kernel picks a port.
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"test accuracy: [0-9.]+ % \([0-9]+ of 359\)\n$")
        self.assertEqual([path.name for path in model.parent.iterdir()], ["model.pt"])
        import torch

        self.assertIn("classify.weight", torch.load(model, weights_only=True))

    def test_without_a_launcher(self) -> None:
        done = self.train()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("started by a launcher, for example: muster", done.stderr)

    def test_wrong_usage_is_exit_2(self) -> None:
        for arguments in (("--epochs", "0"), ("--lr", "nan"), ("--batch-size", "x"), ("--no",)):
            with self.subTest(arguments=arguments):
                done = self.train(*arguments, RANK="0", LOCAL_RANK="0")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("train.py: error:", done.stderr)


@unittest.skipUnless(
    importlib.util.find_spec("sklearn"), "scikit-learn is not installed: the data is not made again"
)
class MakeData(DigitsTest):
    def test_the_committed_data_is_what_the_script_makes(self) -> None:
        subprocess.run(
            [sys.executable, EXAMPLE / "make_data.py", "--output", self.folder],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), sorted(FILES))
        for name in FILES:
            self.assertEqual((self.folder / name).read_bytes(), (DATA / name).read_bytes(), name)


if __name__ == "__main__":
    unittest.main()
