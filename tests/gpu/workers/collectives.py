"""NCCL in Python, with a world of one: collectives.py lazy|eager. With eager, the device is bound at the start."""
import sys
import time

import torch
import torch.distributed as dist
from common import REHEARSES, device, expect, leave

gpu = device()
begin = time.monotonic()
dist.init_process_group("gloo" if REHEARSES else "nccl", device_id=gpu if sys.argv[1] == "eager" and not REHEARSES else None)
tensor = torch.full((1000,), 3.0, device=gpu)
dist.all_reduce(tensor)
expect(bool((tensor == 3).all()), "all_reduce")
print(f"first all_reduce after {time.monotonic() - begin:.3f} s", flush=True)
dist.broadcast(tensor, 0)
gathered = torch.empty(1000, device=gpu)
dist.all_gather_into_tensor(gathered, tensor)
expect(bool((gathered == 3).all()), "all_gather_into_tensor")
objects = [None]
dist.all_gather_object(objects, "text")
expect(objects == ["text"], "all_gather_object")
group = dist.new_group([0])
dist.all_reduce(tensor, group=group)
expect(bool((tensor == 3).all()), "all_reduce in a group of its own")
dist.barrier()
dist.destroy_process_group()
leave()
