"""The arguments and requirements of the SDK tests that use LibTorch. Imports no torch."""

import argparse
import importlib.util
import os
import pathlib
import sys

SKIPPED = 77


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return arguments


def need(arguments):
    """Restarts the test with .venv's Python if this one has no torch. Skips the test if neither
    has."""
    if not (arguments.build / "tests/sdk_ranks").exists():
        print("skipped: the SDK on LibTorch is not built (MUSTER_SDK)")
        sys.exit(SKIPPED)
    if importlib.util.find_spec("torch") is not None:
        return
    python = arguments.source / ".venv/bin/python3"
    if "MUSTER_SDK_TEST" in os.environ or not python.exists():
        print("skipped: no torch in this Python and no .venv")
        sys.exit(SKIPPED)
    os.environ["MUSTER_SDK_TEST"] = "1"  # The restart happens only once.
    os.execv(python, [python, sys.argv[0], "--build", arguments.build, "--source", arguments.source,
                      *sys.argv[1:]])
