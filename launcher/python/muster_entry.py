"""Lets programs that call torchrun's Python entry start through muster, without changing them.

sitecustomize.py beside this module imports it. After that, torch.distributed.run.main and .run
replace the process by muster with the equivalent command line. `python -m torch.distributed.run`
and `python -m torch.distributed.launch` do so before torch is imported. A tool that runs run.py by
itself (cProfile, pdb, coverage, runpy, its path) is replaced once run.py has imported torch. Under
debugpy, torch's own launcher runs: it follows no process but Python's. MUSTER_ENTRY=0 switches
this off. MUSTER_BIN names the program muster. Without it, muster is looked for in PATH, then in
the installation of this module.
"""
import os
import sys

_MODULE = "torch.distributed.run"
_FILE = os.path.join("torch", "distributed", "run.py")
# The first module of torch's launcher that run.py imports. Nothing else that it needs imports this.
_FIRST_IMPORT = "torch.distributed.argparse_util"
_PROGRAMS = {_MODULE: "muster", "torch.distributed.launch": "muster-launch"}


def find_muster():
    """The path of muster, or None."""
    import shutil  # Not at the top: every Python of the job, workers included, loads this module.
    named = os.environ.get("MUSTER_BIN")
    if named:
        return shutil.which(named)
    prefix = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    return shutil.which("muster") or shutil.which(os.path.join(prefix, "bin", "muster"))


def _exec(program, words):
    """Replaces the process by muster. Returns only if torch's own launcher has to be used."""
    if "pydevd" in sys.modules:
        print("muster: torch's own launcher is used, because a debugger runs this Python (pydevd): it follows "
              "only processes that Python starts. MUSTER_ENTRY=0 says so, too, without this line",
              file=sys.stderr)
        return
    muster = find_muster()
    if muster is None:
        named = os.environ.get("MUSTER_BIN")
        what = f"MUSTER_BIN is {named!r}, which is no program" if named else "it is not in PATH"
        print(f"muster: torch's own launcher is used: {what}", file=sys.stderr)
        return
    # The workers run with this Python, as under torchrun.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execv(muster, [program, *words])


def _words_of(action, value):
    """The words of the command line that give this option this value."""
    name = max(action.option_strings, key=len)
    if action.nargs == 0:
        return [name] if value else []
    if isinstance(value, (list, tuple)):  # Commas between parts; two stand for one in a part.
        value = ",".join(str(part).replace(",", ",,") for part in value)
    return [f"{name}={getattr(value, 'value', value)}"]


def command_line(args, parser):
    """(program, words) with the same meaning as the namespace has for torch.distributed.run.run.

    Options with the parser's default value, which may come from a PET_ variable, are left out:
    muster has the same defaults and reads the same variables.
    """
    words = []
    for action in parser._actions:
        if not action.option_strings or not hasattr(args, action.dest) or action.dest == "help":
            continue
        value = getattr(args, action.dest)
        if value == parser.get_default(action.dest) or str(value) == str(action.default):
            continue
        if value is None or value is False:  # Only a variable can have set another default.
            os.environ.pop(f"PET_{action.dest.upper()}", None)
            continue
        words += _words_of(action, value)
    program = "muster"
    if hasattr(args, "use_env"):  # Only the parser of torch.distributed.launch has this option.
        program = "muster-launch"
        words += ["--use-env"] if args.use_env else []
    # Before the script: the parser drops this "--", and then no other one, nor reads the script as an option.
    words += ["--", args.training_script, *args.training_script_args]
    return program, [str(word) for word in words]


def _replace(module):
    torch_main, torch_run = module.main, module.run

    def main(args=None):
        _exec("muster", sys.argv[1:] if args is None else [str(word) for word in args])
        return torch_main(args)

    def run(args):
        _exec(*command_line(args, module.get_args_parser()))
        return torch_run(args)

    module.main, module.run = main, run


def _runs_as_main():
    """Whether the code that imports a module now is run.py as the program, whatever tool runs it."""
    frame = sys._getframe(1)
    while frame is not None:
        if (frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>"
                and frame.f_code.co_filename.endswith(_FILE)):
            return True
        frame = frame.f_back
    return False


class _Finder:
    """Finds torch.distributed.run by the other finders, and replaces its functions once loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == _FIRST_IMPORT and _runs_as_main():
            _exec("muster", sys.argv[1:])
        if name != _MODULE:
            return None
        for finder in sys.meta_path:
            if finder is cls or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module

                def exec_module(module):
                    load(module)
                    _replace(module)

                spec.loader.exec_module = exec_module
                return spec
        return None


def _run_as_module():
    """(program, words) if this Python was started as `python -m torch.distributed.run …`."""
    if not sys.argv or sys.argv[0] != "-m":
        return None
    words = sys.argv[1:]
    before = sys.orig_argv[1:len(sys.orig_argv) - len(words)]
    if len(before) >= 2 and before[-2].startswith("-") and before[-2].endswith("m"):
        module = before[-1]  # -m NAME, also -um NAME
    else:
        module = before[-1].partition("m")[2] if before else ""  # -mNAME
    return (_PROGRAMS[module], words) if module in _PROGRAMS else None


def install():
    if os.environ.get("MUSTER_ENTRY") == "0" or _Finder in sys.meta_path:
        return
    call = _run_as_module()
    if call:
        _exec(*call)
    sys.meta_path.insert(0, _Finder)


install()
