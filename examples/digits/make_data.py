#!/usr/bin/env python3
"""Makes the four files in examples/digits/data from the digits inside the scikit-learn wheel.

This script needs scikit-learn (`pip install scikit-learn`). The training does not need it, because
the files are already in the repository. Every run of this script makes the same bytes. The data is
described in data/README.md.
"""

import argparse
import pathlib
import sys

from idx import IMAGE_DIMENSIONS, LABEL_DIMENSIONS, write_idx

ROWS = COLUMNS = 8
DARKEST = 16  # The source counts the dark points of each 4x4 block: 0 to 16.
# Images 4, 9, 14, … are for the test. The source is ordered by writer, so the test has images of
# all writers.
TEST_EVERY = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parent / "data",
        metavar="FOLDER",
        help="where to write the files (default: data beside this script)",
    )
    arguments = parser.parse_args()
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        print(
            f"make_data.py: scikit-learn cannot be imported ({error}). Install it in the Python "
            f"that runs this script: {sys.executable} -m pip install scikit-learn",
            file=sys.stderr,
        )
        return 1

    digits = load_digits()
    images = [bytes(to_byte(point) for point in image.flat) for image in digits.images]
    labels = bytes(int(label) for label in digits.target)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for_test = part == "t10k"
        chosen = [i for i in range(len(images)) if (i % TEST_EVERY == TEST_EVERY - 1) == for_test]
        images_path = arguments.output / f"{part}-images-idx{IMAGE_DIMENSIONS}-ubyte"
        labels_path = arguments.output / f"{part}-labels-idx{LABEL_DIMENSIONS}-ubyte"
        pixels = b"".join(images[i] for i in chosen)
        write_idx(images_path, (len(chosen), ROWS, COLUMNS), pixels)
        write_idx(labels_path, (len(chosen),), bytes(labels[i] for i in chosen))
        print(f"{part}: {len(chosen)} images -> {images_path}, {labels_path}")
    return 0


def to_byte(point: float) -> int:
    """Converts a value to MNIST's scale, from 0 (paper) to 255 (ink).

    Different source values become different bytes.
    """
    value = int(point)
    if value != point or not 0 <= value <= DARKEST:
        raise ValueError(f"a point of {point}: expected a whole number from 0 to {DARKEST}")
    return min(value * 16, 255)


if __name__ == "__main__":
    sys.exit(main())
