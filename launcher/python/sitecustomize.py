"""Python imports this at its start when the folder is in PYTHONPATH: see muster_entry.py."""
import sys
from os.path import abspath, dirname

import muster_entry  # noqa: F401


def _run_the_next_one():
    """Another sitecustomize further down the path: a distribution's, an administrator's.

    Without importlib's modules, which would cost each Python of the job 10 ms.
    """
    here = dirname(abspath(__file__))
    mine = [(i, p) for i, p in enumerate(sys.path) if abspath(p) == here]
    sys.path[:] = [p for p in sys.path if abspath(p) != here]
    module = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, module)
        for i, p in mine:  # It may have changed the path for good.
            sys.path.insert(i, p)


_run_the_next_one()
