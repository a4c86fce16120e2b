"""A worker of `bench/run again` under NVRx's in-process wrapper: as again_steps.py, but its attempts are calls of one
function in one process, and rank 0 raises an exception in the first of them.

The wrapper has its defaults. Its store's port and Gloo's timeout are those of its own examples.
"""
import datetime
import os
import time

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

import again_steps

GLOO_TIMEOUT = datetime.timedelta(seconds=10)


def wait_in_short_sleeps():
    """The wrapper interrupts Python code, and no call that blocks."""
    while True:
        time.sleep(0.01)


@inprocess.Wrapper(store_kwargs={"port": int(os.environ["MASTER_PORT"]) + 2})
def train(store, call: inprocess.CallWrapper = None):
    again_steps.train(call.iteration, again_steps.raise_an_exception, wait_in_short_sleeps,
                      store=dist.PrefixStore(str(call.iteration), store), timeout=GLOO_TIMEOUT,
                      rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


if __name__ == "__main__":
    train(dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False))
    os._exit(0)  # As in ddp_steps.py.
