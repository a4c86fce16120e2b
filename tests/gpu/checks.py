"""The steps of the GPU bundle: what each one runs, and what must hold."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import probes
from steps import Step, StepFailed, descendants, run_command

GIB = 1 << 30
HELD_BYTES = 10 * GIB
REHEARSED_BYTES = GIB // 4
RESTART_SHARE = 0.6  # Of the GPU's memory: two workers do not fit at once, so a restart that is too early fails.
FREE_S = 15  # How soon the memory of a killed worker must be free.
HANG_S = 5
ACCURACY_FLOOR = 95
NUMA_MODES = ("node", "socket", "exclusive", "core-complex")
STACKS_MAX = 1 << 20
UNITY_BELOW_CORES = 6
BUILT_PROGRAMS = {"gpu_checks": "tests/gpu_checks", "digits": "examples/digits"}


@dataclasses.dataclass
class Place:
    """Where things are. A rehearsal uses the CPU and Gloo in place of the GPU and NCCL: it tests the steps themselves,
    on a machine without a GPU."""
    bundle: pathlib.Path
    build: pathlib.Path  # Where CMake builds.
    out: pathlib.Path
    rehearses: bool = False
    patience: float = 1  # Multiplies the bounds: for a slow machine.

    def program(self, name):
        return self.bundle / "bin" / name

    def worker(self, name):
        return self.bundle / "source/tests/gpu/workers" / f"{name}.py"

    def jobs(self):
        """For the files of jobs."""
        folder = self.build / "jobs"
        folder.mkdir(exist_ok=True)
        return folder

    def built(self, name):
        return self.build / BUILT_PROGRAMS[name]

    def wait_s(self, seconds):
        return seconds * self.patience

    def muster(self, *words, ranks=1):
        return [self.program("muster"), "--standalone", f"--nproc-per-node={ranks}", *words]

    def sdk(self, check):
        return [self.built("gpu_checks"), check, *(["rehearse"] if self.rehearses else [])]

    def gpu(self):
        return probes.open_gpu(self.rehearses)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def alone():
    """The environment of the only rank of a job without a launcher."""
    return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port())}


def check_lines(report, output, least):
    """Every "ok:" line of a worker is a check."""
    found = re.findall(r"^ok: (.*)$", output, re.MULTILINE)
    for what in found:
        report.check(what, True)
    report.check(f"at least {least} checks were made", len(found) >= least, len(found))


# --- The machine, and muster on it ----------------------------------------------------------------

def machine(place, report, _limit_s):
    for name, value in probes.machine().items():
        report.figure(name, value)
    gpus = 0
    with contextlib.suppress(probes.NoGpu):
        gpu = place.gpu()
        gpus = gpu.count
        if not place.rehearses:
            report.figure("gpu", gpu.name())
            report.figure("driver", gpu.driver())
            report.figure("gpu_memory_gib", round(gpu.memory().total / GIB, 1))
            report.figure("asked_by", type(gpu).__name__)
    code = ("import json, torch; c = torch.cuda; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda, "
            "'gpus_of_torch': c.device_count(), 'nccl': '.'.join(map(str, c.nccl.version())) if c.is_available() else None}))")
    facts = json.loads(run_command([sys.executable, "-W", "ignore", "-c", code], place.wait_s(35)).splitlines()[-1])
    for name, value in facts.items():
        report.figure(name, value)
    report.check("torch imports", bool(facts["torch"]), facts["torch"])
    if not place.rehearses:
        report.check("the driver and torch see as many GPUs", gpus == facts["gpus_of_torch"],
                     f"{gpus} and {facts['gpus_of_torch']}")
    if shutil.which("nvidia-smi"):
        run_command(["nvidia-smi"], 10, expect=None)  # For the log.
    for name in ("muster", "musterd", "musterctl"):
        version = run_command([place.program(name), "--version"], 5).splitlines()[0]
        report.check(f"{name} runs here", version.startswith(name), version)


def launch(place, report, limit_s):
    check_lines(report, run_command(place.muster(place.worker("launch"), ranks=2), limit_s - 1), 2)


def doctor(place, report, limit_s):
    answer = json.loads(run_command([place.program("musterctl"), "doctor", "--json"], limit_s - 1, expect=None))
    for check in answer["checks"]:
        report.figure(check["name"], f"{check['verdict']}: {check['found']}")
    [facts] = [check["found"] for check in answer["checks"] if check["name"] == "machine"]
    gpus = 0
    if not place.rehearses:
        with contextlib.suppress(probes.NoGpu):
            gpus = place.gpu().count
    report.check("the doctor counts the GPUs", re.search(rf"\b{gpus} GPUs", facts), facts)
    wrong = [check["found"] for check in answer["checks"] if check["name"] == "gpu" and check["verdict"] == "failure"]
    report.check("the doctor finds no failure of a GPU", not wrong, wrong)


def worker_counts(place, report, _limit_s):
    gpus = 0
    if not place.rehearses:
        with contextlib.suppress(probes.NoGpu):
            gpus = place.gpu().count
    say = ["--no-python", "sh", "-c", 'echo "worker $LOCAL_RANK of $WORLD_SIZE gpus=${CUDA_VISIBLE_DEVICES-all}"']
    cores = len(os.sched_getaffinity(0))
    for value, expected in (("auto", gpus or cores), ("gpu", gpus), ("gpu:0", min(gpus, 1))):
        output = run_command(place.muster(*say, ranks=value), 5, expect=0 if expected else 1)
        found = len(set(re.findall(r"worker (\d+) of (\d+)", output)))
        report.check(f"--nproc-per-node={value} starts {expected} workers", found == expected, found)
        if value == "gpu:0" and expected:
            report.check("gpu:0 shows the worker GPU 0 alone", "gpus=0" in output)
        if not expected:
            report.check(f"{value} without a GPU is an error that says so", "no GPU" in output, output.strip())


def numa(place, report, limit_s):
    """The CPUs of a bound worker are those of the GPU's node, and those that torch's own code gives."""
    libraries = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), str(place.bundle / "lib")]))}
    say = ["--no-python", sys.executable, "-c", "import os; print('cpus', sorted(os.sched_getaffinity(0)))"]
    bound = {}
    for mode in NUMA_MODES:
        output = run_command(place.muster(f"--numa-binding={mode}", *say), 5, libraries, expect=None)
        found = re.search(r"cpus \[([\d, ]+)\]", output)
        bound[mode] = sorted(map(int, found[1].split(","))) if found else output.strip()
        report.figure(mode, bound[mode])
    for mode in ("node", "socket"):
        report.check(f"--numa-binding={mode} starts a worker", isinstance(bound[mode], list), bound[mode])
    nodes, allowed = probes.numa_nodes(), os.sched_getaffinity(0)
    report.figure("nodes", {node: sorted(cpus) for node, cpus in nodes.items()})
    node = 0
    with contextlib.suppress(probes.NoGpu):
        if not place.rehearses:
            file = pathlib.Path("/sys/bus/pci/devices", place.gpu().pci_address(), "numa_node")
            node = max(0, int(file.read_text())) if file.exists() else None
            report.figure("node_of_the_gpu", node)
    if node is not None:
        expected = sorted(nodes.get(node, allowed) & allowed)
        report.check(f"node: the CPUs of NUMA node {node}", bound["node"] == expected, bound["node"])
    answer = json.loads(run_command([sys.executable, place.worker("numa")], limit_s - 6).splitlines()[-1])
    for mode, cpus in answer["plans"].items():
        if isinstance(cpus, list) and isinstance(bound[mode], list):
            report.check(f"{mode}: the same CPUs as with torch's own code", bound[mode] == cpus, cpus)
        else:
            report.figure(f"{mode}_of_torch", cpus)


def store(place, report, limit_s):
    output = run_command(place.muster(place.worker("store"), ranks=2), limit_s - 1)
    report.figure("device", re.search(r"^device (\w+)$", output, re.MULTILINE)[1])
    check_lines(report, output, 10)


# --- Python and the SDK on the GPU ----------------------------------------------------------------

def nccl_in_python(place, report, limit_s):
    for way in ("lazy", "eager"):
        output = run_command(place.muster(place.worker("collectives"), way), limit_s / 2 - 1)
        report.figure(f"{way}_first_all_reduce_s", float(re.search(r"first all_reduce after ([\d.]+) s", output)[1]))
        check_lines(report, output, 4)


def accuracy_in(place, report, output):
    said = re.search(r"^world of .*$", output, re.MULTILINE)
    wanted = "gloo on cpu" if place.rehearses else "nccl on cuda"
    report.check("trains with NCCL on the GPU" if not place.rehearses else "trains", said and wanted in said[0],
                 said and said[0])
    accuracy = float(re.search(r"test accuracy: ([\d.]+) %", output)[1])
    report.figure("accuracy_percent", accuracy)
    report.figure("trained_s", float(re.search(r"trained in ([\d.]+) s", output)[1]))
    report.check(f"the accuracy is above {ACCURACY_FLOOR} %", accuracy > ACCURACY_FLOOR, accuracy)


def digits_in_python(place, report, limit_s):
    script = place.bundle / "source/examples/digits/train.py"
    accuracy_in(place, report, run_command(place.muster(script), limit_s - 1))


def digits_in_cpp(place, report, limit_s):
    accuracy_in(place, report, run_command(place.muster("--no-python", place.built("digits")), limit_s - 1))


def sdk_lines(ranks):
    """How many checks of collectives gpu_checks makes: one for each rank's part of all_gather, and four more."""
    return ranks + 4


def sdk_on_cpu(place, report, limit_s):
    words = place.muster("--no-python", place.built("gpu_checks"), "gloo-cpu", ranks=2)
    check_lines(report, run_command(words, limit_s - 1), sdk_lines(2))


def sdk_alone(check):
    def run(place, report, limit_s):
        check_lines(report, run_command(place.sdk(check), limit_s - 1, alone()), sdk_lines(1))
    return run


def sdk_under_muster(check, ranks=1):
    def run(place, report, limit_s):
        check_lines(report, run_command(place.muster("--no-python", *place.sdk(check), ranks=ranks), limit_s - 1), sdk_lines(ranks))
    return run


def transformer(place, report, limit_s):
    output = run_command(place.muster("--no-python", *place.sdk("transformer")), limit_s - 1)
    found = re.search(r"step without DDP: ([\d.e+-]+) ms, with: ([\d.e+-]+) ms, overhead: ([\d.e+-]+) %", output)
    for name, value in zip(("without_ddp_ms", "with_ddp_ms", "overhead_percent"), found.groups(), strict=True):
        report.figure(name, round(float(value), 4))
    check_lines(report, output, 3)


# --- Memory of the GPU, and hangs -----------------------------------------------------------------

class Job:
    """A job of muster that runs while the step looks at it. The runner kills whatever is left of it."""

    def __init__(self, place, *words):
        """FOLDER in `words` becomes the job's own folder."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=place.jobs()))
        self.place = place
        shown = [str(self.folder if word == "FOLDER" else word) for word in place.muster(*words)]
        print(f"  $ {' '.join(shown)} &", flush=True)
        self.process = subprocess.Popen(shown, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def note(self, name, limit_s):
        """What a worker has written into the file `name`: its pid and the time."""
        file = self.folder / name
        if probes.seconds_until(lambda: file.exists() or self.process.poll() is not None, limit_s) is None or not file.exists():
            raise StepFailed(f"the worker has not written {name}; muster: {self.process.poll()}")
        pid, at = file.read_text().split()
        return int(pid), float(at)


class HoldingJob(Job):
    """A worker that holds memory of the GPU."""

    def __init__(self, place, report, size, *options):
        self.gpu, self.size = place.gpu(), size
        self.before = self.used()
        super().__init__(place, *options, place.worker("hold_memory"), "FOLDER", size)
        self.report = report

    def used(self):
        return self.gpu.memory().used

    def is_free(self):
        return self.used() <= self.before + self.size / 10

    def held(self, attempt):
        """Waits until the worker of this attempt holds its memory. Returns its pid."""
        pid, _ = self.note(f"holds.{attempt}", self.place.wait_s(20))
        held = self.used() - self.before
        self.report.check(f"the worker holds {self.size / GIB:.1f} GiB", held >= 0.9 * self.size, f"{held / GIB:.2f} GiB more in use")
        return pid

    def check_freed(self, after):
        seconds = probes.seconds_until(self.is_free, FREE_S)
        if seconds is not None:
            self.report.figure("free_after_s", round(seconds, 3))
        self.report.check(f"the memory is free within {FREE_S} s after kill -9 of {after}", seconds is not None,
                          f"{(self.used() - self.before) / GIB:.2f} GiB more in use than before")


def held_bytes(place, share=None):
    if place.rehearses:
        return REHEARSED_BYTES
    return HELD_BYTES if share is None else int(share * place.gpu().memory().total)


def memory_after_worker(place, report, _limit_s):
    job = HoldingJob(place, report, held_bytes(place))
    os.kill(job.held(0), signal.SIGKILL)
    job.check_freed("the worker")
    report.check("muster reports the failure", job.process.wait(10) == 1, job.process.returncode)


def memory_after_muster(place, report, _limit_s):
    job = HoldingJob(place, report, held_bytes(place))
    pid = job.held(0)
    job.process.kill()
    gone = probes.seconds_until(lambda: not os.path.exists(f"/proc/{pid}"), FREE_S)
    report.check("the worker ends with muster", gone is not None)
    report.figure("worker_gone_after_s", None if gone is None else round(gone, 3))
    job.check_freed("muster")


def memory_at_restart(place, report, _limit_s):
    job = HoldingJob(place, report, held_bytes(place, RESTART_SHARE), "--max-restarts=1")
    pid = job.held(0)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    job.check_freed("the worker")
    _, began = job.note("began.1", place.wait_s(10))
    report.figure("next_worker_runs_after_s", round(began - killed, 3))
    job.held(1)  # Two of them do not fit: the first one's memory was free in time.
    job.process.terminate()
    report.check("SIGTERM ends the job", job.process.wait(10) == 1, job.process.returncode)


def hang(place, report, limit_s):
    """A worker that waits for a kernel uses the CPU all the time, so it looks busy. Its missing reports give it away."""
    gpu = place.gpu()
    before = gpu.memory().used
    logs = pathlib.Path(tempfile.mkdtemp(prefix="hang-", dir=place.jobs()))
    words = place.muster(f"--hang-timeout={HANG_S}", f"--log-dir={logs}", "--tee=3", place.worker("endless"))
    output = run_command(words, limit_s - 8, {"PATH": f"{place.bundle / 'bin'}{os.pathsep}{os.environ['PATH']}"}, expect=None)
    report.check("the worker has begun its kernel", "the kernel begins" in output)
    report.check("muster sees that no progress is reported", "no report of progress" in output)
    report.check("muster names the line", re.search(r"stands at [^\n]*wait_for_the_kernel", output))
    found = re.search(r"stacks: (\S+)", output)
    text = pathlib.Path(found[1]).read_text(errors="replace") if found and os.path.exists(found[1]) else ""
    (place.out / "stacks.txt").write_text(text[:STACKS_MAX])
    report.check("the file of stacks has the Python function", "wait_for_the_kernel" in text, f"{len(text)} characters")
    if not place.rehearses:
        report.check("the file of stacks has torch's wait for the GPU", "synchronize" in text)
        free = probes.seconds_until(lambda: gpu.memory().used <= before + GIB // 4, 5)
        report.check("the GPU's memory is free after it", free is not None, f"{(gpu.memory().used - before) / GIB:.2f} GiB more")


# --- The build ------------------------------------------------------------------------------------

class Build:
    """Compiles the SDK, its checks and the digits beside the steps that need none of them."""

    def __init__(self, place, torch_folder, limit_s, jobs):
        self.place, self.limit_s = place, limit_s
        self.has_cuda = pathlib.Path(torch_folder, "lib/libtorch_cuda.so").exists()
        self.begin = time.monotonic()
        self.log = place.out / "build.log"
        prefix = place.bundle / "prefix"
        configure = ["cmake", "-S", place.bundle / "source", "-B", place.build, "-DCMAKE_BUILD_TYPE=Release",
                     "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DMUSTER_SDK_ONLY=ON", "-DMUSTER_SDK=ON",
                     f"-DMUSTER_TORCH={torch_folder}", f"-DCMAKE_PREFIX_PATH={prefix}"]
        # All files of a target as one take a third of the CPU time, but only one core.
        configure += [f"-DMUSTER_UNITY={'ON' if jobs < UNITY_BELOW_CORES else 'OFF'}"]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        targets = [word for name in ("gpu_checks", "example_digits") for word in ("--target", name)]
        keep_going = ["-k", "0"] if shutil.which("ninja") else ["-k"]
        build = ["cmake", "--build", place.build, "--parallel", jobs, *targets, "--", *keep_going]
        # CUDA's headers that the wheels of torch do not have. CMake (INCLUDE) and the compiler look there last.
        folders = list(filter(os.path.isdir, [*probes.cuda_header_folders(), str(prefix / "cuda")]))
        environment = {**os.environ, **{
            name: os.pathsep.join(filter(None, [os.environ.get(name), *folders])) for name in ("INCLUDE", "CPLUS_INCLUDE_PATH")}}
        script = f"{quoted(configure)} && {quoted(build)}"
        with open(self.log, "w", encoding="utf-8") as log:
            print("CPLUS_INCLUDE_PATH", environment["CPLUS_INCLUDE_PATH"], script, sep="\n", file=log, flush=True)
            self.process = subprocess.Popen(["nice", "-n", "10", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        self.seconds = None

    def is_running(self):
        if self.seconds is None and self.process.poll() is not None:
            self.seconds = time.monotonic() - self.begin
        return self.seconds is None

    def wait(self, report, limit_s):
        """A step that runs in the runner's process, because the runner's child builds."""
        left = min(limit_s, self.begin + self.limit_s - time.monotonic())
        probes.seconds_until(lambda: not self.is_running(), max(0, left), pause_s=0.2)
        if self.is_running():
            for pid in [self.process.pid, *descendants(self.process.pid)]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.is_running()
            report.check(f"the build is done within {self.limit_s:.0f} s", False)
        text = self.log.read_text(errors="replace")
        print(text[-20000:] if self.process.returncode else text[-2000:], flush=True)
        report.figure("build_s", round(self.seconds, 1))
        for name, pattern in (("sdk", r"muster: (SDK on torch .*)"), ("compiler", r"The CXX compiler identification is (.*)")):
            if found := re.search(pattern, text):
                report.figure(name, found[1])
        if self.has_cuda:
            missing = re.search(r"headers are missing: .*", text)
            report.check("NCCL is compiled into the SDK", "NCCL: TRUE" in text, missing and missing[0])
        for name in BUILT_PROGRAMS:
            report.check(f"{name} is built", self.place.built(name).exists())
        report.figure("warnings", len(re.findall(r"\bwarning: ", text)))


def quoted(words):
    return " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)


# --- The list -------------------------------------------------------------------------------------

BUILD_S = 240


def plan(place, build=None):
    """All steps, in order. Those before "build" run while the SDK is compiled."""
    gpu, checks, digits = ("gpu",), ("gpu", "gpu_checks"), ("gpu", "digits")
    rows = [
        ("machine", "what this machine is", 40, machine, ()),
        ("launch", "two ranks of Python under muster, on the CPU", 15, launch, ("torch",)),
        ("doctor", "musterctl doctor, with the machine's NVML", 20, doctor, ()),
        ("worker_counts", "--nproc-per-node=auto, gpu and gpu:0", 15, worker_counts, ()),
        ("numa", "--numa-binding on this machine", 20, numa, ("torch",)),
        ("store", "muster's store under torch's client, two ranks", 30, store, ("torch",)),
        ("nccl_python", "NCCL from Python, world of 1, lazy and eager", 30, nccl_in_python, gpu),
        ("digits_python", "the digits in Python with NCCL", 30, digits_in_python, gpu),
        ("memory_worker", "memory of the GPU after kill -9 of the worker", 25, memory_after_worker, gpu),
        ("memory_muster", "memory of the GPU after kill -9 of muster", 25, memory_after_muster, gpu),
        ("memory_restart", "memory of the GPU at a restart", 30, memory_at_restart, gpu),
        ("build", "the SDK, its checks and the digits are compiled", BUILD_S, None, ("torch",)),
        ("sdk_cpu", "the SDK with Gloo on the CPU, two ranks", 10, sdk_on_cpu, ("gpu_checks",)),
        ("nccl_lazy", "SDK: NCCL, world of 1, connects at the first collective", 15, sdk_alone("nccl-lazy"), checks),
        ("nccl_eager", "SDK: NCCL, world of 1, the device bound at the start", 15, sdk_alone("nccl-eager"), checks),
        ("nccl_lazy_muster", "the same as nccl_lazy, under muster", 15, sdk_under_muster("nccl-lazy"), checks),
        ("nccl_eager_muster", "the same as nccl_eager, under muster", 15, sdk_under_muster("nccl-eager"), checks),
        ("digits_cpp", "the digits in C++ with NCCL", 20, digits_in_cpp, digits),
        ("transformer", "a transformer block, with and without DDP", 20, transformer, checks),
        ("gloo_cuda", "Gloo with CUDA tensors, two ranks on one GPU", 20, sdk_under_muster("gloo-cuda", ranks=2), checks),
        ("hang", "--hang-timeout against a kernel that does not end", 70, hang, gpu),
    ]
    steps = []
    for name, title, limit_s, run, needs in rows:
        if run is None:
            wait = None if build is None else lambda report, limit_s: build.wait(report, limit_s)
            steps.append(Step(name, title, place.wait_s(limit_s), wait, needs, in_parent=True))
        else:
            # The arguments' defaults keep this row's values.
            step = lambda report, limit_s, run=run: run(place, report, limit_s)  # noqa: E731
            steps.append(Step(name, title, place.wait_s(limit_s), step, needs))
    return steps


def chosen(steps, only):
    """The steps with these names (all, without names), and the steps that they need."""
    if not only:
        return steps
    builds = any(step.name in only and set(step.needs) & set(BUILT_PROGRAMS) for step in steps)
    return [step for step in steps if step.name in (*only, "machine", *(["build"] if builds else []))]


def longest_s(steps):
    """How long the steps take at most: the build runs beside the steps before it."""
    at = next((i for i, step in enumerate(steps) if step.name == "build"), None)
    if at is None:
        return sum(step.limit_s for step in steps)
    before, after = (sum(step.limit_s for step in part) for part in (steps[:at], steps[at + 1:]))
    return max(before, steps[at].limit_s) + after
