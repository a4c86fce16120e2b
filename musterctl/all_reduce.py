# `musterctl doctor --nodes` starts this program once on each node. It sums a tensor with one other node at a time, by
# Gloo. A line of input has the name of a pair and the own rank in it. The program prints one line of JSON when it is
# ready, and one for each line of input.
import datetime
import json
import os
import sys
import time

ELEMENTS = 1 << 16
PATIENCE = datetime.timedelta(seconds=20)
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # torch would print each connection on stdout.


def answer(right, error="", ms=0.0):
    answers.write(json.dumps({"right": right, "error": " ".join(str(error).split())[:200], "ms": ms}) + "\n")
    answers.flush()


try:
    import torch
    import torch.distributed as dist
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                          wait_for_workers=False, timeout=PATIENCE)
except Exception as error:
    answer(False, error)
    sys.exit(1)
os.dup2(1, 2)  # The answer says if a pair cannot connect; torch would print pages about it.
answer(True)
for line in sys.stdin:
    name, rank = line.split()
    begin = time.monotonic()
    try:
        group = dist.ProcessGroupGloo(dist.PrefixStore(name, store), int(rank), 2, PATIENCE)
        tensor = torch.full((ELEMENTS,), float(rank) + 1)
        group.allreduce([tensor]).wait()
        answer(bool((tensor == 3).all()), ms=1000 * (time.monotonic() - begin))
    except Exception as error:
        answer(False, error)
