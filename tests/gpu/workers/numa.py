"""Prints the CPUs that torch's own --numa-binding gives to a worker of GPU 0, for each mode, as JSON."""
import json
import os

from torch.numa import binding

plans = {}
for mode in binding.AffinityMode:
    try:
        # Internal, and the same from torch 2.9 to 2.15. Elsewhere there is nothing to compare with.
        cpus = binding._get_logical_cpus_to_bind_to(  # pylint: disable=protected-access
            gpu_index=0, numa_options=binding.NumaOptions(affinity_mode=mode))
        plans[mode.value] = sorted(cpus)
    except Exception as error:  # pylint: disable=broad-except
        plans[mode.value] = f"{type(error).__name__}: {error}"
print(json.dumps({"allowed": sorted(os.sched_getaffinity(0)), "plans": plans}))
