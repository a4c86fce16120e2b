"""Finds the programs to measure. A missing program has a reason."""
import dataclasses
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Program:
    """The path of a program, or the reason why there is none."""
    path: str | None
    why_not: str = ""

    def __bool__(self):
        return self.path is not None


def executable(path, hint):
    if os.access(path, os.X_OK) and not os.path.isdir(path):
        return Program(str(path))
    return Program(None, f"no {shown(path)} ({hint})")


def shown(path):
    """Returns the path relative to the repository, if it is inside of it.

    The table is read on other machines, too.
    """
    try:
        return str(pathlib.Path(path).absolute().relative_to(ROOT))
    except ValueError:
        return str(path)


@dataclasses.dataclass(frozen=True)
class Programs:
    muster: Program
    musterd: Program
    torchrun: Program
    python: Program  # The Python beside torchrun, which has torch.
    nvrx: Program    # A Python that has NVRx (nvidia-resiliency-ext).
    native_dir: pathlib.Path

    def native(self, name):
        """Returns a native program of the bench, such as note_time or bare_launcher."""
        return executable(self.native_dir / name,
                          "cmake --preset release && cmake --build --preset release --target all bench_programs")


def with_nvrx(python):
    """Returns the Python, if its environment has NVRx."""
    if any(python.parent.parent.glob("lib/python3*/site-packages/nvidia_resiliency_ext")):
        return executable(python, "scripts/quickstart makes it")
    return Program(None, f"no nvidia-resiliency-ext beside {shown(python)} (--nvrx names another Python)")


def find(muster=None, musterd=None, torchrun=None, native_dir=None, nvrx=None):
    """Finds the programs at the given paths, or at their default places.

    Raises FileNotFoundError if a given path is wrong.
    """
    for given in (muster, musterd, torchrun, nvrx):
        if given and not os.access(given, os.X_OK):
            raise FileNotFoundError(f"{given}: no such program")
    build = ROOT / "build" / "release"
    muster_path = pathlib.Path(muster).absolute() if muster else build / "bin" / "muster"
    torchrun_path = pathlib.Path(torchrun) if torchrun else ROOT / ".venv" / "bin" / "torchrun"
    python_path = torchrun_path.absolute().parent / "python3"
    hint = "cmake --build --preset release --target all bench_programs"
    venv = "scripts/quickstart makes it"
    return Programs(
        muster=executable(muster_path, hint),
        musterd=executable(musterd or muster_path.parent / "musterd", hint),
        torchrun=executable(torchrun_path.absolute(), venv),
        python=executable(python_path, venv),
        nvrx=with_nvrx(pathlib.Path(nvrx).absolute() if nvrx else python_path),
        native_dir=pathlib.Path(native_dir or build / "bench").absolute(),
    )


def torch_version(programs):
    """Returns torch's version, or None if it is not found.

    Reads the version from the files beside torchrun, because importing torch takes a second.
    """
    if not programs.torchrun:
        return None
    library = pathlib.Path(programs.torchrun.path).resolve().parent.parent / "lib"
    for file in library.glob("python3*/site-packages/torch/version.py"):
        for line in file.read_text().splitlines():
            if line.startswith("__version__"):
                return line.split("=")[1].strip().strip("'\"")
    return None


def machine():
    """Describes this machine in one line. All of it is read from the system."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    memory_kib = next(int(line.split()[1]) for line in open("/proc/meminfo")
                      if line.startswith("MemTotal"))
    release = next((line.split("=")[1].strip().strip('"') for line in open("/etc/os-release")
                    if line.startswith("PRETTY_NAME")), platform.system())
    return (f"{os.cpu_count()} × {model}, {memory_kib / 2**20:.0f} GiB, {release}, "
            f"Linux {platform.release().split('-')[0]}")

