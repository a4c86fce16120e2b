"""torch's own client of the store, in processes that hold a context of the GPU, against muster's store. Two ranks."""
import datetime

import torch
import torch.distributed as dist
from common import device, expect, leave

gpu = device()
held = torch.full((1 << 20,), 1.0, device=gpu)
print(f"device {gpu.type}", flush=True)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
store = dist.PrefixStore("check", dist.distributed_c10d._get_default_store())  # pylint: disable=protected-access
store.set(f"from{rank}", f"value {rank}" * 1000)
expect(store.get(f"from{1 - rank}") == f"value {1 - rank}".encode() * 1000, "set and get")
store.add("counter", 1 + rank)
dist.barrier()
expect(store.add("counter", 0) == 3, "add")
store.compare_set("once", "", f"rank {rank}")
dist.barrier()
expect(store.get("once") in (b"rank 0", b"rank 1"), "compare_set")
store.append("text", "ab")
dist.barrier()
expect(store.get("text") == b"abab", "append")
store.multi_set([f"many{rank}", f"more{rank}"], ["1", "2"])
expect(store.multi_get(["many0", "more0", "many1", "more1"]) == [b"1", b"2", b"1", b"2"], "multi_set and multi_get")
expect(store.check(["counter"]) and not store.check(["nothing"]), "check")
try:
    store.wait(["nothing"], datetime.timedelta(milliseconds=200))
    expect(False, "wait for a key that nobody sets ends in time")
except dist.DistStoreError:
    expect(True, "wait for a key that nobody sets ends in time")
dist.barrier()  # Before the delete: the other rank may still read.
if rank == 0:
    expect(store.delete_key("once"), "delete_key")
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
expect(objects == [{"rank": 0}, {"rank": 1}], "all_gather_object")
dist.all_reduce(held)
expect(bool((held == 2).all()), f"all_reduce of a tensor on {gpu.type}")
dist.barrier()
dist.destroy_process_group()
leave()
