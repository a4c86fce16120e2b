"""Hosts on one wire, in network namespaces of their own. They are gone at the end."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from . import namespaces
from .model import MeasureError

READY_LIMIT_S = 30.0


def why_not():
    """Returns why this machine cannot have such hosts, or "" if it can."""
    reason = namespaces.why_not()
    return f"its nodes are network namespaces: {reason}" if reason else ""


def port_of(name):
    """Returns the name of the wire's end at the switch."""
    return f"to-{name}"


class Wire:
    """Hosts that reach each other. It is a context manager: at its end, no process of a host is left."""

    def __init__(self, names):
        self.addresses = {name: f"10.78.0.{number}" for number, name in enumerate(names, 1)}
        self._holders = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(
                tempfile.TemporaryDirectory(prefix="muster-bench-")))
            stack.callback(self._end)
            hosts = folder / "hosts"
            hosts.write_text("127.0.0.1 localhost\n" + "".join(
                f"{address} {name}\n" for name, address in self.addresses.items()))
            for name in ("switch", *self.addresses):
                self._hold(name, hosts)
            self._ip("switch", "link", "add", "wire", "type", "bridge")
            self._ip("switch", "link", "set", "wire", "up")
            for name, address in self.addresses.items():
                self._ip(name, "link", "add", "eth0", "type", "veth", "peer", "name", port_of(name),
                         "netns", str(self._holders["switch"].pid))
                self._ip("switch", "link", "set", port_of(name), "master", "wire", "up")
                self._ip(name, "address", "add", f"{address}/24", "dev", "eth0")
                self._ip(name, "link", "set", "eth0", "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def on(self, name, argv):
        """Returns the command line that runs argv on the host."""
        return [*namespaces.on(self._holders[name].pid), *map(str, argv)]

    def unplug(self, name):
        """The host, and the others, get no packet and no error from now on."""
        self._ip("switch", "link", "set", port_of(name), "down")

    def plug(self, name):
        self._ip("switch", "link", "set", port_of(name), "up")

    def kill_all(self, name):
        """Kills all processes of the host, also those that are made meanwhile."""
        while pids := self._processes(name):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _processes(self, name):
        """Returns the pids of the host's processes, without its holder and those that have ended."""
        holder = self._holders[name].pid
        return [pid for pid in namespaces.processes_of(holder) if pid != holder]

    def _ip(self, name, *words):
        argv = self.on(name, ["ip", *words])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_LIMIT_S, check=False)
        if done.returncode:
            raise MeasureError(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def _hold(self, name, hosts):
        holder = self._holders[name] = namespaces.begin_host(name, hosts)
        until_s = time.monotonic() + READY_LIMIT_S
        while not namespaces.is_ready(holder):
            if holder.poll() is not None or time.monotonic() > until_s:
                raise MeasureError(f"the namespaces of the host {name} were not made")
            time.sleep(0.01)

    def _end(self):
        for name, holder in self._holders.items():
            if holder.poll() is None:
                self.kill_all(name)
            holder.kill()
            holder.wait()
