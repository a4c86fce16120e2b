"""Two ranks meet through muster's store and reduce on the CPU: needs no GPU."""
import os

import torch
import torch.distributed as dist
from common import expect, leave

dist.init_process_group("gloo")
expect(dist.get_world_size() == int(os.environ["WORLD_SIZE"]) == 2, "a world of two ranks")
total = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(total)
expect(total.item() == 3, "all_reduce on the CPU")
dist.destroy_process_group()
leave()
