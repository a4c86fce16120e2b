# The program behind muster --logs-specs NAME. It loads torchrun's plug-in and asks it before every
# attempt where the logs go. Its stdin is a socket: each question is a line of JSON from it, each
# answer a line of JSON to it (agent/core/logs_specs.h). The plug-in prints to muster's own output.
import importlib.metadata
import json
import operator
import os
import sys
import traceback

GROUP = "torchrun.logs_specs"
REASON_LINES = 20


class PlugInError(Exception):
    pass


def load(name, log_dir, redirects, tee, local_ranks_filter):
    entries = list(importlib.metadata.entry_points().select(group=GROUP, name=name))
    if not entries:
        raise PlugInError(f"Could not find entrypoint under '{GROUP}[{name}]' key: no package that "
                          f"{sys.executable} finds has it")
    plug_in = entries[0].load()
    from torch.distributed.elastic.multiprocessing import Std

    def streams(value):
        if isinstance(value, int):
            return Std(value)
        return {int(rank): Std(bits) for rank, bits in value.items()}

    specs = plug_in(log_dir=log_dir, redirects=streams(redirects), tee=streams(tee),
                    local_ranks_filter=local_ranks_filter and set(local_ranks_filter))
    if not callable(getattr(specs, "reify", None)):
        raise PlugInError(f"{entries[0].value} makes a {type(specs).__name__}, which is no "
                          "LogsSpecs: it has no method reify")
    return specs


def path_text(path):
    text = os.fspath(path) if path else ""
    text.encode("utf-8")  # Raises here, with a clear message, for a path that JSON cannot hold.
    return text


def changes(before, after):
    for name, value in after.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"the environment variable {name!r} is {value!r}, not a text")
    return {"set": {name: value for name, value in after.items() if before.get(name) != value},
            "unset": [name for name in before if name not in after]}


def lay_out(specs, envs):
    envs = dict(enumerate(envs))
    before = {rank: dict(env) for rank, env in envs.items()}
    dest = specs.reify(envs)
    answer = {field: {str(operator.index(rank)): path_text(path)
                      for rank, path in getattr(dest, field).items()}
              for field in ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files")}
    for field in ("filtered_stdout", "filtered_stderr"):
        answer[field] = path_text(getattr(dest, field, ""))
    answer["environment"] = [changes(env, envs.get(rank, env)) for rank, env in before.items()]
    return answer


def reason(error):
    if isinstance(error, PlugInError):
        return str(error)
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == main.__code__.co_filename:
        frames = frames.tb_next
    lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
    return "\n".join(["the plug-in failed:", *lines[-REASON_LINES:]])


def main():
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(0), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if sys.path and sys.path[0] == "":  # Comes from -c; torchrun does not search this folder.
        del sys.path[0]
    specs = None
    for line in questions:
        try:
            question = json.loads(line)
            if specs is None:
                specs = load(**question)
                answer = {"ready": True}
            else:
                answer = lay_out(specs, question["envs"])
        except BaseException as error:  # A plug-in that calls sys.exit() has failed, too.
            answer = {"error": reason(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


main()
