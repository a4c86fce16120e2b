#!/usr/bin/env python3
"""A file system that never answers, as one of a server that is gone: silent_fuse.py FOLDER

Mounts it there, prints a line, and takes every request without an answer until it is killed: who
asks waits in the kernel, where not even SIGKILL reaches. Needs root and /dev/fuse."""
import ctypes
import os
import struct
import sys

FUSE_INIT = 26
IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
INIT_OUT = struct.Struct("<IIIIHHIIHH32x")


def main(folder):
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", folder.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    while True:
        request = os.read(device, 1 << 20)
        size, opcode, unique, *_ = IN_HEADER.unpack_from(request)
        if opcode != FUSE_INIT:
            continue
        body = INIT_OUT.pack(7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 16, 0)
        os.write(device, OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique) + body)
        print("mounted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
