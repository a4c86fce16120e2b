"""Hosts on one wire: network namespaces with names, addresses and an /etc/hosts. The test's end
removes them."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from support import main as run_tests, wait_for

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from muster_bench import namespaces  # noqa: E402


def why_not():
    """The reason why this machine cannot have such hosts; None if it can."""
    return namespaces.why_not() or None


def main():
    """Runs the tests of a file that needs such hosts."""
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    run_tests()


class Net:
    """Hosts and the wires between their devices, all in their own namespaces."""

    def __init__(self, folder):
        self.folder = folder
        self.holders = {}
        self.pids = {}
        self.ports = {}
        (folder / "hosts.switch").write_text("127.0.0.1 localhost\n")
        self.switch = self._hold("switch", folder / "hosts.switch")

    def wire(self, name):
        """Creates a wire. A packet from one of its devices reaches all other devices."""
        self._ip(self.switch, "link", "add", name, "type", "bridge")
        self._ip(self.switch, "link", "set", name, "up")

    def host(self, name, hosts):
        """Creates a host without a network. `hosts` is the file that becomes its /etc/hosts."""
        self.pids[name] = self._hold(name, hosts)

    def connect(self, name, wire, *addresses, device="eth0"):
        """Connects a new device of the host to a wire. An address has a prefix, as in 10.0.0.1/24
        or fd00::1/64."""
        port = self.ports[name, device] = f"port{len(self.ports)}"
        self.ip(name, "link", "add", device, "type", "veth", "peer", "name", port,
                "netns", str(self.switch))
        self._ip(self.switch, "link", "set", port, "master", wire, "up")
        for address in addresses:
            # No other host has this address, so duplicate address detection is not needed.
            nodad = ["nodad"] if ":" in address else []
            self.ip(name, "address", "add", address, "dev", device, *nodad)
        self.ip(name, "link", "set", device, "up")

    def unplug(self, name, device="eth0"):
        """Sets the link of the other end down: the host sees that it has no carrier."""
        self._ip(self.switch, "link", "set", self.ports[name, device], "down")

    def plug(self, name, device="eth0"):
        self._ip(self.switch, "link", "set", self.ports[name, device], "up")

    def swallow(self, name, address, device="eth0"):
        """Packets from this host to the address get lost without an error. The other direction
        works."""
        self.ip(name, "neigh", "replace", address, "lladdr", "02:00:00:00:de:ad", "dev", device,
                "nud", "permanent")

    def swallow_no_more(self, name, address, device="eth0"):
        self.ip(name, "neigh", "del", address, "dev", device)

    def vanish(self, name):
        """Kills the host as a power failure does: the other hosts get no message. The name may be
        used again."""
        for host, device in [key for key in self.ports if key[0] == name]:
            self.unplug(host, device)
        for pid in self.processes(name):
            if pid != self.pids[name]:
                # The process has ended with another one.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        holder = self.holders.pop(name)
        self._ip(holder.pid, "link", "del", "eth0")
        holder.kill()
        holder.wait()
        del self.pids[name]

    def processes(self, name):
        """All processes that run on this host."""
        return namespaces.processes_of(self.pids[name])

    def ip(self, name, *words):
        self._ip(self.pids[name], *words)

    @staticmethod
    def _ip(pid, *words):
        subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *words], check=True, timeout=60)

    def _hold(self, name, hosts):
        holder = namespaces.begin_host(name, hosts)
        self.holders[name] = holder

        def ready():
            if holder.poll() is not None:
                raise AssertionError(f"no host {name}: status {holder.returncode}")
            return namespaces.is_ready(holder)
        wait_for(ready, f"the host {name}")
        return holder.pid

    def on(self, name):
        """The command prefix that runs a command on this host, in the test's folder."""
        return namespaces.on(self.pids[name], f"--wdns={self.folder}")

    def in_container_on(self, name):
        """As on(), but the command is the first process of a container: it has pid 1 and sees no
        other processes."""
        return [*self.on(name), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

    def close(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()


class Lan(Net):
    """Hosts that all know each other. `aliases` has for the name of a host its other names, which
    all hosts know. `names` has all names and the address."""

    def __init__(self, folder, names, aliases=None):
        super().__init__(folder)
        self.addresses = {name: f"10.77.0.{i}" for i, name in enumerate(names, 1)}
        self.names = {name: [name, *(aliases or {}).get(name, []), address]
                      for name, address in self.addresses.items()}
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{names[-1]} {' '.join(names[:-1])}\n" for names in self.names.values()))
        try:
            self.wire("wire")
            for name, address in self.addresses.items():
                self.host(name, hosts)
                self.connect(name, "wire", f"{address}/24")
        except BaseException:
            self.close()
            raise
