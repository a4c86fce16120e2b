"""What the hardship tests share with the end-to-end tests, and the facts that they count."""
import ctypes
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from support import agent_of, shim_of  # noqa: E402


def descriptors(pid):
    """{descriptor: what it is}"""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:  # Closed meanwhile.
            pass
    return found


def memory_kb(pid):
    """What of it is in memory, and its own. None: it has ended, also if nobody has reaped it yet."""
    try:
        with open(f"/proc/{pid}/status") as f:
            found = re.search(r"RssAnon:\s+(\d+)", f.read())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(found[1]) if found else None


def state_of(pid):
    """Its threads: name, state, and where each waits in the kernel."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            status = (task / "status").read_text()
            found.append((re.search(r"Name:\s+(.*)", status)[1], re.search(r"State:\s+(\S)", status)[1],
                          (task / "wchan").read_text()))
        except OSError:  # It has ended.
            pass
    return found


def names_below(*folders):
    return {os.path.join(at, name) for folder in folders
            for at, folders_here, files in os.walk(folder) for name in folders_here + files}


def processes_of_muster(front):
    """{name: pid} of the three."""
    return {"front": front, "shim": shim_of(front), "agent": agent_of(front)}


def own_mounts():
    """From now on what this process and its children mount is seen by no other process of the machine."""
    clone_newns, ms_rec, ms_private = 0x20000, 1 << 14, 1 << 18
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newns) != 0 or libc.mount(b"none", b"/", None, ms_rec | ms_private, None) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of our own")
