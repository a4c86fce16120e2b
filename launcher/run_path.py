# The program behind muster --run-path: python -u -c THIS_TEXT SCRIPT ARGUMENTS...
import atexit
import faulthandler
import json
import os
import runpy
import sys
import threading
import time
import traceback


def record(error):
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    errors = sys.modules.get("torch.distributed.elastic.multiprocessing.errors")
    if errors and isinstance(error, errors.ChildFailedError):
        failure = error.get_first_failure()[1]
        if os.path.exists(failure.error_file):
            errors.get_error_handler().dump_error_file(failure.error_file, failure.exitcode)
        return
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    with open(path, "w") as file:
        json.dump({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": {
            "py_callstack": text, "timestamp": str(int(time.time()))}}}, file)


def status_of(system_exit):
    """The exit status that the interpreter would return for this SystemExit."""
    if system_exit.code is None or system_exit.code == 0:  # Also 0.0, as under @record.
        return 0
    if isinstance(system_exit.code, int):
        return system_exit.code & 0xff
    print(system_exit.code, file=sys.stderr)
    return 1


def end_process(status):
    """Joins threads, runs atexit functions and flushes, as Python does, then exits the process
    without finalizing the interpreter. There, a native thread that still holds a tensor would abort
    the process: torch 2.13 leaves such threads behind when a process group stays open."""
    for step in (threading._shutdown, atexit._run_exitfuncs):
        try:
            step()
        except BaseException:
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:
            status = 120  # CPython's exit status if output could not be written.
    os._exit(status)


def main():
    faulthandler.enable(all_threads=True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    del sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as system_exit:
        status = status_of(system_exit)
    except Exception as error:
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename in (
                "<string>", "<frozen runpy>", runpy.__file__):
            frames = frames.tb_next
        error.__traceback__ = frames  # None if no frame is the program's: a SyntaxError, for one.
        try:
            record(error)
        except OSError as problem:
            print(f"cannot write the error file: {problem}", file=sys.stderr)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    end_process(status)


main()
