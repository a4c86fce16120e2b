"""Lets programs that call torchrun's Python entry start through muster, without changing them.

Importing this module (sitecustomize.py beside it does) makes torch.distributed.run.main and .run
replace the process by muster with the equivalent command line; `python -m torch.distributed.run`
and `python -m torch.distributed.launch` do so before torch is imported. MUSTER_ENTRY=0 switches it
off; MUSTER_BIN names muster, else it is looked for in PATH, then beside this module's installation.
"""
import os
import sys

_MODULE = "torch.distributed.run"
_PROGRAMS = {_MODULE: "muster", "torch.distributed.launch": "muster-launch"}


def find_muster():
    """The path of muster, or None."""
    import shutil  # Not at the top: every Python of the job, the workers too, reads this module.
    named = os.environ.get("MUSTER_BIN")
    if named:
        return shutil.which(named)
    prefix = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    return shutil.which("muster") or shutil.which(os.path.join(prefix, "bin", "muster"))


def _exec(program, words):
    """Does not return, unless there is no muster."""
    muster = find_muster()
    if muster is None:
        named = os.environ.get("MUSTER_BIN")
        what = f"MUSTER_BIN is {named!r}, which is no program" if named else "it is not in PATH"
        print(f"muster: torch's own launcher is used: {what}", file=sys.stderr)
        return
    # Workers get this Python, as under torchrun.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execv(muster, [program, *words])


def _words_of(action, value):
    """How the command line says that this option has this value."""
    name = max(action.option_strings, key=len)
    if action.nargs == 0:
        return [name] if value else []
    if isinstance(value, (list, tuple)):  # Separated by commas; two stand for one inside.
        value = ",".join(str(part).replace(",", ",,") for part in value)
    return [f"{name}={getattr(value, 'value', value)}"]


def command_line(args, parser):
    """(program, words) that mean what the namespace means to torch.distributed.run.run.

    What is as the parser has it by default, from PET_ variables or without, is left out: muster has
    the same defaults and reads the same variables.
    """
    words = []
    for action in parser._actions:
        if not action.option_strings or not hasattr(args, action.dest) or action.dest == "help":
            continue
        value = getattr(args, action.dest)
        if value == parser.get_default(action.dest) or str(value) == str(action.default):
            continue
        if value is None or value is False:  # Only a variable can have said otherwise.
            os.environ.pop(f"PET_{action.dest.upper()}", None)
            continue
        words += _words_of(action, value)
    program = "muster"
    if hasattr(args, "use_env"):  # torch.distributed.launch: its parser has one option more.
        program = "muster-launch"
        words += ["--use-env"] if args.use_env else []
    words += [args.training_script, *args.training_script_args]
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


class _Finder:
    """Lets the others find torch.distributed.run, and replaces its functions when it is loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
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
