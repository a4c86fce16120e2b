"""Hosts as namespaces of Linux, each held by one process: for the wire of the benchmarks (wire.py) and
the networks of the tests (tests/e2e/lan.py)."""
import os
import pathlib
import shutil
import subprocess

NEEDED = ("ip", "nsenter", "setpriv", "unshare")
# A process that holds a host's namespaces. $1: the host's name, $2: the file for /etc/hosts.
HOLD = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
ip link set lo up
exec sleep infinity
"""


def why_not():
    """Returns why this machine cannot have such hosts, or "" if it can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in NEEDED:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "type", "bridge"],
                           capture_output=True, text=True, check=False)
    return f"no network namespaces with a bridge here: {probe.stderr.strip()}" if probe.returncode else ""


def begin_host(name, hosts):
    """Starts the process that holds the host's namespaces: `hosts` becomes its /etc/hosts."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--uts", "sh", "-c",
                             HOLD, "sh", name, str(hosts)], stdin=subprocess.DEVNULL)


def is_ready(holder):
    """Whether the host of this process, which runs, is complete."""
    return pathlib.Path(f"/proc/{holder.pid}/comm").read_text(encoding="utf-8").strip() == "sleep"


def processes_of(holder_pid):
    """Returns the pids of all processes of the host, its holder included, that have not ended."""
    own = os.readlink(f"/proc/{holder_pid}/ns/net")
    found = []
    for entry in os.listdir("/proc"):
        try:
            # A process that has ended, even if nobody has reaped it, has no namespace.
            if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/net") == own:
                found.append(int(entry))
        except OSError:
            pass
    return found


def on(holder_pid, *options):
    """Returns the words in front of a command line that run it on the host."""
    return ["nsenter", f"--target={holder_pid}", "--net", "--mount", "--uts", *options]
