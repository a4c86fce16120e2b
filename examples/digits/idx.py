"""Reads and writes IDX files, the file format of MNIST. Needs only the standard library.

An IDX file has a magic number (two zero bytes, the type of the elements, the number of dimensions),
the size of each dimension as a big-endian 32-bit number, and then the elements in row order.
A file of images has three dimensions of unsigned bytes, and a file of labels has one.
"""

import dataclasses
import gzip
import math
import pathlib
import struct
import zlib

UNSIGNED_BYTES = 0x08
IMAGE_DIMENSIONS = 3  # Magic number 0x00000803: images, rows, columns.
LABEL_DIMENSIONS = 1  # Magic number 0x00000801: labels.
CLASSES = 10


class DataError(Exception):
    """A data file is missing or invalid. The text names the file and says what to do."""


@dataclasses.dataclass(frozen=True)
class Digits:
    """Images of one size and their labels. `pixels` has one image after the other, row by row."""

    pixels: bytes
    labels: bytes
    rows: int
    columns: int


def read_digits(folder: pathlib.Path, part: str) -> Digits:
    """Reads one part ("train" or "t10k") of a folder of MNIST files. Raises DataError."""
    images_path = _find(folder, f"{part}-images", f"idx{IMAGE_DIMENSIONS}-ubyte")
    labels_path = _find(folder, f"{part}-labels", f"idx{LABEL_DIMENSIONS}-ubyte")
    (count, rows, columns), pixels = _read(images_path, IMAGE_DIMENSIONS, "images")
    (label_count,), labels = _read(labels_path, LABEL_DIMENSIONS, "labels")
    if count != label_count:
        raise DataError(
            f"{images_path} holds {count} images, but {labels_path} holds {label_count} labels: "
            "expected one label for each image. Take both files from the same source."
        )
    if count == 0 or rows == 0 or columns == 0:
        raise DataError(
            f"{images_path}: {count} images of {rows}x{columns}: expected at least one image with "
            "at least one pixel. Get the file again."
        )
    if max(labels) >= CLASSES:
        raise DataError(
            f"{labels_path}: label {max(labels)} at position {labels.index(max(labels))}: expected "
            f"0 to {CLASSES - 1}. Get the file again, or check that it holds digits."
        )
    return Digits(pixels, labels, rows, columns)


def write_idx(path: pathlib.Path, sizes: tuple[int, ...], elements: bytes) -> None:
    """Writes unsigned bytes as an IDX file with the given sizes of its dimensions."""
    magic = UNSIGNED_BYTES << 8 | len(sizes)
    path.write_bytes(struct.pack(f">I{len(sizes)}I", magic, *sizes) + elements)


def _find(folder: pathlib.Path, name: str, kind: str) -> pathlib.Path:
    # MNIST's file names have a dash before "idx". Some mirrors use a dot instead.
    candidates = [folder / f"{name}{mark}{kind}{end}" for mark in "-." for end in ("", ".gz")]
    for path in candidates:
        if path.is_file():
            return path
    reason = "no such file" if folder.is_dir() else "no such folder"
    raise DataError(
        f"{candidates[0]}: {reason} (nor with .gz at the end). Expected MNIST's four files there: "
        "name the folder that holds them with --data-dir, or run examples/digits/make_data.py."
    )


def _read(path: pathlib.Path, dimensions: int, what: str) -> tuple[tuple[int, ...], bytes]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: damaged or cut short: {error}. Expected a gzip file. Get the file again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}. Expected {what} in IDX format."
        ) from error

    header_bytes = 4 + 4 * dimensions
    expected_magic = UNSIGNED_BYTES << 8 | dimensions
    if len(content) < header_bytes:
        raise DataError(
            f"{path}: {len(content)} bytes: expected at least the {header_bytes} bytes that "
            f"{what} in IDX format begin with. Get the file again."
        )
    magic, *sizes = struct.unpack(f">I{dimensions}I", content[:header_bytes])
    if magic != expected_magic:
        raise DataError(
            f"{path}: begins with 0x{magic:08x}: expected 0x{expected_magic:08x}, {what} in IDX "
            "format. Is it another file under this name, or still compressed?"
        )
    expected_bytes = header_bytes + math.prod(sizes)
    if len(content) != expected_bytes:
        shape = "x".join(str(size) for size in sizes)
        state = "cut short" if len(content) < expected_bytes else "too long"
        raise DataError(
            f"{path}: {state}: {len(content)} bytes, expected {expected_bytes} for the {shape} "
            f"{what} that its header announces. Get the file again."
        )
    return tuple(sizes), content[header_bytes:]
