"""What this machine has: its GPUs as NVML tells, its compilers, its CPUs. Needs no torch."""
import contextlib
import ctypes
import glob
import os
import pathlib
import platform
import re
import shutil
import subprocess
import time

MIB = 1 << 20
# CUDA's headers include these, and the wheels on which torch depends may lack them.
CUDA_HEADERS = ("crt/host_config.h", "nv/target")


class NoGpu(Exception):
    """NVML is not here, or it sees no GPU."""


class MemoryInfo(ctypes.Structure):
    """nvmlMemory_t."""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""
    _fields_ = [("legacy_bus_id", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint),
                ("device", ctypes.c_uint), ("pci_device_id", ctypes.c_uint), ("pci_subsystem_id", ctypes.c_uint),
                ("bus_id", ctypes.c_char * 32)]


class Nvml:
    """The driver's library, by ctypes: nvidia-smi takes too long to watch memory with."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NoGpu(str(error)) from None
        if status := self.library.nvmlInit_v2():
            raise NoGpu(f"NVML does not start: error {status}")
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.count = count.value
        if self.count == 0:
            raise NoGpu("NVML sees no GPU")

    def call(self, name, *arguments):
        if status := getattr(self.library, name)(*arguments):
            raise OSError(f"{name}: error {status}")

    def device(self, index):
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def memory(self, index=0):
        info = MemoryInfo()
        self.call("nvmlDeviceGetMemoryInfo", self.device(index), ctypes.byref(info))
        return info

    def name(self, index=0):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetName", self.device(index), text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def driver(self):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def pci_address(self, index=0):
        info = PciInfo()
        self.call("nvmlDeviceGetPciInfo_v3", self.device(index), ctypes.byref(info))
        return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


class NvidiaSmi:
    """The same memory by nvidia-smi, where its library cannot be loaded."""

    def __init__(self):
        if shutil.which("nvidia-smi") is None:
            raise NoGpu("there is neither NVML nor nvidia-smi")
        self.count = len(self.ask("name"))

    @staticmethod
    def ask(field):
        done = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"], check=False,
                              capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            raise NoGpu(f"nvidia-smi: {(done.stdout + done.stderr).strip()[-200:]}")
        return [line.strip() for line in done.stdout.splitlines()]

    def memory(self, index=0):
        used, total = (int(self.ask(f"memory.{name}")[index]) * MIB for name in ("used", "total"))
        return MemoryInfo(total=total, free=total - used, used=used)

    def name(self, index=0):
        return self.ask("name")[index]

    def driver(self):
        return self.ask("driver_version")[0]

    def pci_address(self, index=0):
        return self.ask("pci.bus_id")[index][-12:].lower()


class RehearsedGpu:
    """The memory of this test's own worker, in place of a GPU's: for a rehearsal on a machine without one."""

    count = 1

    def memory(self, _index=0):
        used = 0
        for path in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                if b"hold_memory.py" in pathlib.Path(path, "cmdline").read_bytes():
                    used += int(pathlib.Path(path, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return MemoryInfo(total=8 << 30, free=(8 << 30) - used, used=used)


def open_gpu(rehearses=False):
    """A GPU to ask. Throws NoGpu if there is none."""
    if rehearses:
        return RehearsedGpu()
    try:
        return Nvml()
    except NoGpu:
        return NvidiaSmi()


def seconds_until(condition, limit_s, pause_s=0.005):
    """The seconds until the condition holds; None if it does not hold in time."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit_s:
            return None
        time.sleep(pause_s)
    return time.monotonic() - begin


def cpus_in(text):
    """The CPUs of a list as the kernel writes it: 0-3,8."""
    cpus = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def numa_nodes():
    """The CPUs of each NUMA node."""
    nodes = {}
    for path in glob.glob("/sys/devices/system/node/node[0-9]*/cpulist"):
        with contextlib.suppress(OSError, ValueError):
            nodes[int(re.search(r"node(\d+)/cpulist", path)[1])] = cpus_in(pathlib.Path(path).read_text())
    return nodes


def first_line(*command):
    """The line of a program's --version that has a number in it; empty without the program."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return next((line.strip() for line in (done.stdout + done.stderr).splitlines() if re.search(r"\d\.\d", line)), "")
    return ""


def cuda_header_folders():
    """Folders of the machine's CUDA toolkit with the headers that torch's wheels lack, the compiler's own first."""
    roots = ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/opt/cuda"]
    if nvcc := shutil.which("nvcc"):
        roots.insert(0, str(pathlib.Path(nvcc).resolve().parent.parent))
        roots.insert(1, str(pathlib.Path(nvcc).parent.parent))
    found = []
    for root in roots:
        for folder in ("include", "targets/x86_64-linux/include", "include/cccl", "targets/x86_64-linux/include/cccl"):
            path = os.path.realpath(os.path.join(root, folder))
            if any(os.path.exists(os.path.join(path, header)) for header in CUDA_HEADERS) and path not in found:
                found.append(path)
    return found


def machine():
    """Facts for the results."""
    facts = {"system": platform.platform(), "glibc": platform.libc_ver()[1], "python": platform.python_version(),
             "cores": len(os.sched_getaffinity(0)), "nvcc": first_line("nvcc", "--version"),
             "compiler": first_line(os.environ.get("CXX", "g++"), "--version"),
             "cmake": first_line("cmake", "--version"), "ninja": first_line("ninja", "--version"),
             "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)}
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        facts["processor"] = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    for name, folder in (("tmp_free_gib", os.environ.get("TMPDIR", "/tmp")), ("shm_free_gib", "/dev/shm")):
        with contextlib.suppress(OSError):
            facts[name] = round(shutil.disk_usage(folder).free / (1 << 30), 1)
    return facts
