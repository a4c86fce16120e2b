#!/usr/bin/env python3
"""A file system that never answers, as one of a server that is gone: silent_fuse.py FOLDER [--opens]

Mounts it there, prints a line, and takes every request without an answer until it is killed: who
asks waits in the kernel, where not even SIGKILL reaches. With --opens it has a file for each name, which can be opened, and falls silent
when one is closed. Needs root and /dev/fuse."""
import ctypes
import os
import struct
import sys

FUSE_LOOKUP, FUSE_GETATTR, FUSE_OPEN, FUSE_INIT = 1, 3, 14, 26
IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
INIT_OUT = struct.Struct("<IIIIHHIIHH32x")

VALID_S = 3600


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer_to(opcode, node):
    """None: silence."""
    if opcode == FUSE_LOOKUP:
        return struct.pack("<4Q2I", 2, 0, VALID_S, VALID_S, 0, 0) + attributes(2)
    if opcode == FUSE_GETATTR:
        return struct.pack("<QII", VALID_S, 0, 0) + attributes(node)
    return struct.pack("<QII", 1, 0, 0) if opcode == FUSE_OPEN else None


def main(folder, opens=False):
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", folder.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    while True:
        request = os.read(device, 1 << 20)
        size, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        if opcode == FUSE_INIT:
            body = INIT_OUT.pack(7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 16, 0)
        else:
            body = answer_to(opcode, node) if opens else None
        if body is None:
            continue
        os.write(device, OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique) + body)
        if opcode == FUSE_INIT:
            print("mounted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "--opens" in sys.argv[2:])
