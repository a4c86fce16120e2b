#!/usr/bin/env python3
"""Runs the same command line under torchrun and under muster and compares what every worker sees,
key by key.

Compared are the environment, argv, working directory, session, signal masks, umask, limits,
priorities, CPUs, privileges, stdin and open descriptors. Permitted differences are listed here with
their reasons. Needs torch; exits with 77 (skipped) without it.
"""
import importlib.util
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from warm_torchrun import MODULE, WarmTorchrun

MUSTER = os.environ.get("MUSTER_BIN", "muster")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PYTHON = SOURCE / ".venv" / "bin" / "python"
TORCHRUN = SOURCE / ".venv" / "bin" / "torchrun"

# The worker writes what it sees to <dir>/<RANK>.json. Python's start-up files are not read.
SHOW = """
import json, os, resource, stat, sys
def status(name):
    return [l.split()[1] for l in open("/proc/self/status") if l.startswith(name)][0]
fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
mask = os.umask(0); os.umask(mask)
def text(name):
    return open("/proc/self/" + name).read()
json.dump({
    **{name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
       if name.startswith("RLIMIT_")},
    "nice": os.nice(0), "scheduling": os.sched_getscheduler(0),
    "cpus": sorted(os.sched_getaffinity(0)), "oom_score_adj": text("oom_score_adj"),
    "timer slack": text("timerslack_ns"), "personality": text("personality"),
    "users": os.getresuid(), "groups": [os.getresgid(), sorted(os.getgroups())],
    "privileges": [status(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
                                             "NoNewPrivs", "Seccomp:")],
    "terminal": fields[4],
    "stdin": [os.readlink("/proc/self/fd/0"), text("fdinfo/0").split()[:4]],
    "kinds of streams": [stat.S_IFMT(os.fstat(fd).st_mode) for fd in (0, 1, 2)],
    "env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd(), "umask": mask,
    "leads its group": fields[2] == str(os.getpid()),
    "leads its session": fields[3] == str(os.getpid()),
    "blocked": status("SigBlk"), "ignored": status("SigIgn"),
    "descriptors": sorted(int(f) for f in os.listdir("/proc/self/fd") if int(f) < 3),
    "stray descriptors": [f for f in os.listdir("/proc/self/fd")
                          if int(f) > 2 and os.path.exists("/proc/self/fd/" + f)],
}, open(os.environ["SHOW_DIR"] + "/" + os.environ["RANK"] + ".json", "w"))
"""

# Code that sets up a process. muster is then started in it with exec, and torchrun is a copy with this set-up.
STARTS = {
    "limits and priorities": """
import resource
os.nice(7)
os.umask(0o027)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
open("/proc/self/oom_score_adj", "w").write("300")
for name, soft in (("NOFILE", 300), ("CORE", 0), ("STACK", 4 << 20), ("MEMLOCK", 1 << 16)):
    which = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
""",
    "signals": """
import signal
for name in ("USR1", "ALRM", "WINCH", "TTOU", "TERM", "INT", "QUIT", "PIPE", "XFSZ"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF, signal.SIGRTMIN + 1, signal.SIGVTALRM})
""",
    "descriptors": """
fd = os.open(os.path.dirname(os.environ["SHOW_DIR"]) + "/stdin", os.O_RDWR | os.O_CREAT)
os.write(fd, b"some lines")
os.lseek(fd, 4, os.SEEK_SET)
os.dup2(fd, 0)
for stray in (3, 9, 200):
    os.dup2(fd, stray)
os.chdir("/")
""",
}
EXEC = "\nos.execvp(sys.argv[1], sys.argv[1:])"

CASES = [
    # (flags, additional environment, arguments of the script, key of STARTS)
    (["--standalone"], {}, []),
    ([], {}, []),
    (["--standalone", "--nproc-per-node=2"], {}, ["a", "b c", "--flag=1"]),
    (["--standalone", "--nproc_per_node", "3"], {}, ["${local_rank}", "$local_rank", "$$", "$x"]),
    (["--nproc-per-node=2", "--role=trainer"], {}, []),
    (["--nproc-per-node=2", "--max-restarts=3"], {}, []),
    (["--nproc-per-node=2"], {"OMP_NUM_THREADS": "4"}, []),
    (["--nproc-per-node=2"], {"OMP_NUM_THREADS": ""}, []),
    (["--nproc-per-node=2"], {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, []),
    (["--nproc-per-node=2", "--virtual-local-rank"], {}, []),
    (["--nproc-per-node=2", "--virtual-local-rank"], {"CUDA_VISIBLE_DEVICES": "4, 7"}, []),
    (["--nproc-per-node=2"], {"CUDA_VISIBLE_DEVICES": "1,0"}, []),
    (["--signals-to-handle=SIGTERM,SIGUSR1"], {}, []),
    (["--signals-to-handle=SIGTERM, SIGUSR2"], {"TORCHELASTIC_SIGNALS_TO_HANDLE": "x"}, []),
    (["--log-dir={dir}/logs", "-r3"], {}, []),
    (["--log-dir={dir}/logs", "-t3", "--nproc-per-node=2"], {}, []),
    (["--log-dir=/dev/null"], {}, []),
    (["-r", "0:1", "--nproc-per-node=2"], {}, []),
    (["--redirects=2", "--tee=1"], {}, []),
    (["--local-ranks-filter=0", "--nproc-per-node=2"], {}, []),
    (["--nproc-per-node=2"], {"RANK": "9", "WORLD_SIZE": "12", "LOCAL_RANK": "5"}, []),
    (["--nproc-per-node=2"], {"MASTER_ADDR": "elsewhere", "MASTER_PORT": "1"}, []),
    (["--nproc-per-node=2"], {"GROUP_RANK": "3", "TORCHELASTIC_RUN_ID": "outer"}, []),
    ([], {"PET_NPROC_PER_NODE": "2"}, []),
    ([], {"PET_ROLE": "fromenv", "PET_MAX_RESTARTS": "2"}, []),
    (["--nproc-per-node=1"], {"PET_NPROC_PER_NODE": "2"}, []),
    (["--rdzv-id=job7", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], {}, []),
    (["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nproc-per-node=2"], {}, []),
    (["--monitor-interval=0.5", "--nproc-per-node=2"], {}, []),
    (["--nproc-per-node=2", "--local-addr=127.0.0.1"], {}, []),
    (["--nproc-per-node=2", "--master-port={port}"], {}, []),
    (["--nproc-per-node=2", "--master-addr=127.0.0.1", "--master-port={port}", "--rdzv-id=st"], {}, []),
    (["--nproc-per-node=2", "--node-rank=0"], {"TORCHELASTIC_ERROR_FILE": "{dir}/outer.json"}, []),
    (["--nproc-per-node=2", "--shutdown-timeout=5"], {"NODE_RANK": "7"}, []),
    (["--standalone", "--nproc-per-node=2"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, []),
    (["--nproc-per-node=2"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, []),
    (["--standalone", "--nproc-per-node=2"], {}, [], "limits and priorities"),
    (["--standalone", "--nproc-per-node=2"], {}, [], "signals"),
    (["--standalone", "--nproc-per-node=2"], {}, [], "descriptors"),
    (["--standalone", "--nproc-per-node=2", "--log-dir={dir}/logs", "-r3"], {}, [], "descriptors"),
]

# Only muster sets these. NODE_RANK is for frameworks that need it, MUSTER_JOB marks a job's
# processes, MUSTER_WORKER_CHANNEL is the socket for workers' progress reports, and
# MUSTER_GENERATION orders rounds.
# If NODE_RANK was inherited, both pass it on.
ONLY_OURS = {"NODE_RANK", "MUSTER_JOB", "MUSTER_WORKER_CHANNEL", "MUSTER_GENERATION"}
# Each run chooses these values anew, so only their form is compared.
RANDOM = {
    "MASTER_PORT": r"\d+",
    "TORCHELASTIC_RUN_ID": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "TORCHELASTIC_ERROR_FILE": r"(/.*/attempt_0/\d+/error\.json)?",
}
LOOPBACK = {"localhost", "127.0.0.1"}
BOUND_S = 120


def run_warm(command, **surroundings):
    """subprocess.run for torchrun, as a copy of this process whose stdout and stderr are pipes."""
    pipes = [os.pipe() for _ in range(2)]
    ends = [open(write_end, "wb") for _, write_end in pipes]
    process = WarmTorchrun(command, stdout=ends[0], stderr=ends[1], **surroundings)
    for end in ends:
        end.close()
    texts = ["", ""]

    def read(stream):
        with open(pipes[stream][0], encoding="utf-8", errors="replace") as pipe:
            texts[stream] = pipe.read()
    readers = [threading.Thread(target=read, args=(stream,)) for stream in range(2)]
    for reader in readers:
        reader.start()
    try:
        code = process.wait(timeout=BOUND_S)
    finally:
        process.kill()
    for reader in readers:
        reader.join()
    return subprocess.CompletedProcess(command, code, *texts)


def run(launcher, case, folder):
    flags, env, arguments, *start = case
    folder.mkdir(parents=True)
    port = free_port()
    fill = {"dir": str(folder), "port": str(port)}
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("PET_", "MUSTER_", "TORCHELASTIC_", "OMP_", "CUDA_"))}
    before = STARTS[start[0]] if start else ""
    words = [*[f.format(**fill) for f in flags], "--no-python", str(PYTHON), "-IS",
             str(folder.parent / "show.py"), *arguments]
    surroundings = {"env": {**clean, "SHOW_DIR": str(folder), "RES_OPTIONS": "timeout:1 attempts:1",
                            **{k: v.format(**fill) for k, v in env.items()}}, "cwd": folder}
    if launcher == TORCHRUN:
        done = run_warm([str(PYTHON), *MODULE, *words], before=before, **surroundings)
    else:
        program = [sys.executable, "-IS", "-c", "import os, sys" + before + EXEC] if start else []
        done = subprocess.run([*program, str(launcher), *words], **surroundings, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=BOUND_S)
    worlds = {int(p.stem): json.loads(p.read_text()) for p in folder.glob("[0-9]*.json")}
    if any("{port}" in flag for flag in flags):  # The port must be the one that the flags name.
        for world in worlds.values():
            if world["env"].get("MASTER_PORT") == str(port):
                world["env"]["MASTER_PORT"] = "as given"
    return done, worlds, str(folder)


def differences(theirs, ours, their_dir, our_dir):
    for key in sorted(set(theirs["env"]) | set(ours["env"]) - ONLY_OURS):
        a, b = theirs["env"].get(key), ours["env"].get(key)
        if a is not None:
            a = a.replace(their_dir, our_dir)
        if a == b or key in ONLY_OURS and a is None:
            continue
        if key == "MASTER_ADDR" and {a, b} <= LOOPBACK:
            continue
        form = RANDOM.get(key)
        if form and a is not None and b is not None and re.fullmatch(form, a) and \
                re.fullmatch(form, b) and (a == "") == (b == ""):
            continue
        yield f"{key}: torchrun {a!r}, muster {b!r}"
    # stderr may be a pipe, also of a filtered rank: muster keeps its end for the failure report. A
    # stream with a log file is a pipe, too, because muster writes the file.
    for stream in (1, 2):
        is_file = stat.S_ISREG(theirs["kinds of streams"][stream])
        if stat.S_ISFIFO(ours["kinds of streams"][stream]) and (stream == 2 or is_file):
            theirs["kinds of streams"][stream] = ours["kinds of streams"][stream]
    for key in theirs:
        if key != "env" and theirs[key] != (
                ours[key].replace(our_dir, their_dir) if key == "cwd" else ours[key]):
            yield f"{key}: torchrun {theirs[key]!r}, muster {ours[key]!r}"


def compare(number, root):
    case = CASES[number]
    folder = root / str(number)
    folder.mkdir()
    (folder / "show.py").write_text(SHOW)
    peer, theirs, their_dir = run(TORCHRUN, case, folder / "torchrun")
    mine, ours, our_dir = run(MUSTER, case, folder / "muster")
    problems = []
    if peer.returncode != mine.returncode:
        problems.append(f"exit codes: torchrun {peer.returncode}, muster {mine.returncode}\n"
                        f"{peer.stderr[-600:]}\n--\n{mine.stderr[-600:]}")
    if not theirs:
        problems.append(f"torchrun's workers wrote nothing: {peer.stderr[-600:]}")
    if set(theirs) != set(ours):
        problems.append(f"ranks: torchrun {sorted(theirs)}, muster {sorted(ours)}")
    for rank in sorted(set(theirs) & set(ours)):
        problems += [f"rank {rank}: {p}"
                     for p in differences(theirs[rank], ours[rank], their_dir, our_dir)]
    return case, problems


def main():
    if not PYTHON.exists():
        print("SKIPPED: there is no .venv with torch: scripts/quickstart makes it")
        return 77
    if os.path.realpath(sys.prefix) != os.path.realpath(PYTHON.parents[1]):
        os.execv(PYTHON, [PYTHON, *sys.argv])  # torchrun is started as a copy of this process.
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED: .venv has no torch: scripts/quickstart makes it")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-env-") as root:
        for number in range(len(CASES)):
            case, problems = compare(number, pathlib.Path(root))
            print("ok  " if not problems else "FAIL", *case[0], *case[1].items(), *case[3:])
            for problem in problems:
                print("     ", problem)
            failed += bool(problems)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
