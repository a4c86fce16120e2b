"""Python imports this at its start when the folder is in PYTHONPATH: see muster_entry.py."""
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from os.path import abspath, dirname

import muster_entry  # noqa: F401

# Another sitecustomize further down the path, a distribution's or an administrator's, is run, too.
_here = dirname(abspath(__file__))
_spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if abspath(p) != _here])
if _spec is not None and _spec.loader is not None:
    sys.modules["sitecustomize"] = _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
