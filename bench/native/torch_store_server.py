#!/usr/bin/env python3
"""Hosts torch's own TCPStore server on a free port, and prints the port, for comparison.

The server is the one with libuv, or the older one with --legacy.
"""
import os
import sys

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
import torch.distributed as dist  # noqa: E402

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                      use_libuv="--legacy" not in sys.argv)
print("torch: listening on 127.0.0.1:%d" % store.port, flush=True)
try:
    sys.stdin.read()
except KeyboardInterrupt:
    pass
