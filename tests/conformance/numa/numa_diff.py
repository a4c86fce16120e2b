#!/usr/bin/env python3
"""Compares muster's --numa-binding with torch's own code on made-up machines.

Each machine is a made-up /sys. torch.numa.binding reads it through replacements of open, listdir
and sched_getaffinity. muster's plan gets the machine as a value; for some machines muster's reader
gets the /sys as a folder of files, through hwloc.

Usage: numa_diff.py NUMA_PLANS_PROGRAM [--count N] [--files N] [--seed N]; 77, skipped, without
torch.
"""
import argparse
import collections
import importlib.util
import inspect
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from sample import sample

SKIPPED = 77
MODES = ["node", "socket", "exclusive", "core-complex"]
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def ranges(cpus):
    parts, cpus = [], sorted(cpus)
    for cpu in cpus:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts) + "\n"


def mask(cpus):
    value = sum(1 << cpu for cpu in cpus)
    words = [f"{value >> (32 * i) & 0xffffffff:08x}" for i in range(max(cpus, default=0) // 32 + 1)]
    return ",".join(reversed(words)) + "\n"


class Machine:
    """A machine of packages, which have nodes, caches, cores and threads. Its CPUs are numbered in
    one of the usual ways."""

    def __init__(self, rng):
        packages, nodes = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 4])
        caches, threads = rng.choice([1, 2, 3]), rng.choice([1, 2, 2])
        self.level = rng.choice([2, 3, 3])
        cores = [(p, n, c, k) for p in range(packages) for n in range(nodes) for c in range(caches)
                 for k in range(rng.randint(1, 4))]
        # Either the threads of a core have adjacent numbers, or the first threads of all cores come
        # first.
        order = [(core, t) for core in cores for t in range(threads)]
        if rng.random() < 0.6:
            order.sort(key=lambda entry: entry[1])
        groups = [collections.defaultdict(set) for _ in range(4)]
        for cpu, (core, _) in enumerate(order):
            keys = core[0], core[0] * nodes + core[1], core[:3], core
            for group, key in zip(groups, keys):
                group[key].add(cpu)
        self.packages, self.nodes, by_cache, by_core = (dict(g) for g in groups)
        self.caches, self.cores = list(by_cache.values()), list(by_core.values())
        self.cpus = set(range(len(order)))
        self.allowed = set(self.cpus)
        if rng.random() < 0.5:
            self.allowed = {cpu for cpu in self.cpus if rng.random() < rng.choice([0.3, 0.8])}
        self.allowed = self.allowed or {0}
        self.devices = [rng.choice([*self.nodes, *self.nodes, -1])
                        for _ in range(rng.randint(1, 8))]
        # The kernel may list more possible nodes than exist; torch fails on such a node.
        self.possible = max(self.nodes) + (1 if rng.random() < 0.1 else 0)

    def files(self):
        """The files that torch reads, and those that only hwloc reads."""
        files = {f"{NODE}/possible": f"0-{self.possible}\n", f"{NODE}/online": ranges(self.nodes),
                 f"{CPU}/online": ranges(self.cpus), f"{CPU}/possible": ranges(self.cpus),
                 f"{CPU}/present": ranges(self.cpus)}
        for number, cpus in self.nodes.items():
            files[f"{NODE}/node{number}/cpulist"] = ranges(cpus)
            files[f"{NODE}/node{number}/cpumap"] = mask(cpus)
            files[f"{NODE}/node{number}/meminfo"] = f"Node {number} MemTotal: 1048576 kB\n"
        for number, cpus in self.packages.items():
            for cpu in cpus:
                files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = f"{number}\n"
                files[f"{CPU}/cpu{cpu}/topology/core_siblings"] = mask(cpus)
                files[f"{CPU}/cpu{cpu}/topology/package_cpus"] = mask(cpus)
        for number, cpus in enumerate(self.cores):
            for cpu in cpus:
                files[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{number}\n"
                files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = ranges(cpus)
                files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = mask(cpus)
                files[f"{CPU}/cpu{cpu}/topology/core_cpus"] = mask(cpus)
                self.add_caches(files, cpu, cpus)
        for i, node in enumerate(self.devices):
            files[f"/sys/bus/pci/devices/0000:{i:02x}:00.0/numa_node"] = f"{node}\n"
        return files

    def add_caches(self, files, cpu, core):
        last = next(cpus for cpus in self.caches if cpu in cpus)
        kinds = [("Data", 1, core), ("Instruction", 1, core), ("Unified", self.level, last),
                 ("Instruction", 4, self.cpus)]
        for i, (kind, level, cpus) in enumerate(kinds):
            folder = f"{CPU}/cpu{cpu}/cache/index{i}"
            files.update({f"{folder}/type": f"{kind}\n", f"{folder}/level": f"{level}\n",
                          f"{folder}/shared_cpu_list": ranges(cpus), f"{folder}/size": "64K\n",
                          f"{folder}/shared_cpu_map": mask(cpus)})

    def torchs_answer(self, binding, mode, workers):
        files = self.files()
        folders = collections.defaultdict(set)
        for path in files:
            folder, _, name = path.rpartition("/")
            # If a name is known, its parent folders are known, too.
            while name not in folders[folder]:
                folders[folder].add(name)
                folder, _, name = folder.rpartition("/")

        def open_made_up(path):
            if path not in files:
                raise FileNotFoundError(path)
            return io.StringIO(files[path])

        def properties(index):
            return types.SimpleNamespace(pci_domain_id=0, pci_bus_id=index, pci_device_id=0)

        binding.open = open_made_up
        binding.os = types.SimpleNamespace(path=os.path, listdir=lambda p: sorted(folders[p]),
                                           sched_getaffinity=lambda _: set(self.allowed))
        binding.shutil = types.SimpleNamespace(which=lambda _: "/usr/bin/numactl")
        devices = types.SimpleNamespace(device_count=lambda: len(self.devices), get_device_properties=properties)
        # torch 2.13 asks CUDA. 2.14 and later ask for any accelerator, and have another name for its number.
        binding.torch = types.SimpleNamespace(
            cuda=devices, get_device_module=lambda _: devices, accelerator=types.SimpleNamespace(
                device_count=devices.device_count, is_available=lambda: True, current_accelerator=lambda: "cuda"))
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        cpus_of = binding._get_validated_logical_cpus_to_bind_to
        number = next(name for name in inspect.signature(cpus_of).parameters if name.endswith("_index"))
        return [sorted(cpus_of(**{number: rank}, numa_options=options)) for rank in range(workers)]

    def may_fail(self, mode):
        """Whether torch may fail where muster does not: torch asks for an allowed CPU of every
        possible node."""
        nodes = range(self.possible + 1)
        return mode == "socket" and any(not self.nodes.get(n, set()) & self.allowed for n in nodes)

    def write(self, folder):
        for path, text in self.files().items():
            file = pathlib.Path(folder + path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def request(self, mode, workers, folder=None):
        request = {"mode": mode, "devices": self.devices, "workers": workers,
                   "allowed": sorted(self.allowed)}
        if folder:
            # The files are written once: all modes read the same ones.
            if not os.path.exists(folder):
                self.write(folder)
            return {**request, "fsroot": folder}
        return {**request, "nodes": {n: sorted(c) for n, c in self.nodes.items()},
                "packages": {n: sorted(c) for n, c in self.packages.items()},
                "cores": [sorted(c) for c in self.cores],
                "caches": [sorted(c) for c in self.caches]}


def ask(program, requests):
    text = "".join(json.dumps(request) + "\n" for request in requests)
    ran = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(requests), (len(answers), len(requests))
    return answers


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--count", type=int, default=sample(800))
    options.add_argument("--files", type=int, default=25)
    options.add_argument("--seed", type=int, default=213)
    options = options.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(f"numa_diff: skipped: {sys.executable} has no torch")
        return SKIPPED
    import torch.numa.binding as binding

    binding.signpost_event = lambda **_: None
    rng = random.Random(options.seed)
    cases, requests = [], []
    with tempfile.TemporaryDirectory(prefix="muster-numa-") as folder:
        for i in range(options.count):
            machine = Machine(rng)
            workers = rng.randint(1, len(machine.devices))
            for mode in MODES if i < options.files else [MODES[i % len(MODES)]]:
                place = os.path.join(folder, str(i)) if i < options.files else None
                cases.append((machine, mode, workers))
                requests.append(machine.request(mode, workers, place))
        answers = ask(options.program, requests)

    seen = collections.Counter()
    different = []
    for (machine, mode, workers), request, ours in zip(cases, requests, answers):
        how = "files" if "fsroot" in request else "value"
        try:
            theirs = machine.torchs_answer(binding, mode, workers)
        except (RuntimeError, ValueError, ZeroDivisionError) as error:
            theirs = error
        if isinstance(theirs, Exception):
            same = "error" in ours or machine.may_fail(mode)
            seen[how, mode, "both fail" if "error" in ours else "only torch fails"] += 1
        else:
            same = ours == theirs
            seen[how, mode, "bound"] += 1
        if not same:
            different.append((request, ours, theirs))
    for key, number in sorted(seen.items()):
        print(f"numa_diff: {' '.join(key)}: {number}")
    print(f"numa_diff: seed {options.seed}: {len(cases)} plans compared, {len(different)} different")
    for request, ours, theirs in different[:3]:
        print(f"{request}\n  muster {ours}\n  torch  {theirs!r}")
    # The comparison proves nothing if the generator makes only cases that fail.
    missing = [(how, mode) for how in ("value", "files") for mode in MODES
               if seen[how, mode, "bound"] < 5]
    if missing:
        print(f"numa_diff: too few plans that bind: {missing}")
    return 1 if different or missing else 0


if __name__ == "__main__":
    sys.exit(main())
