"""Python imports this module at its start if its folder is in PYTHONPATH: see muster_entry.py."""
import sys
from os.path import abspath, dirname

import muster_entry  # noqa: F401


def _import_next_sitecustomize():
    """Imports the next sitecustomize in sys.path, such as a distribution's or an administrator's.

    Uses no module of importlib: that would cost each Python of the job 10 ms.
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
        for i, p in mine:  # Keeps the changes that the next sitecustomize made to the path.
            sys.path.insert(i, p)


_import_next_sitecustomize()
