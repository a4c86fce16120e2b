"""Hosts on one wire: network namespaces with names, addresses and an /etc/hosts, which end with the test."""
import contextlib
import os
import shutil
import signal
import subprocess

from support import wait_for

NEEDED = ("ip", "nsenter", "setpriv", "unshare")
# Becomes the holder of a host's namespaces. $1: its name, $2: the file for /etc/hosts.
HOLD = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
ip link set lo up
exec sleep infinity
"""


def why_not():
    """The reason why there can be no hosts here; None if there can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in NEEDED:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "type", "bridge"],
                           capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"no network namespaces with a bridge here: {probe.stderr.strip()}"
    return None


class Net:
    """Hosts as the test makes them, and the wires between their devices. All of it is in namespaces of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.holders = {}
        self.pids = {}
        self.ports = {}
        (folder / "hosts.switch").write_text("127.0.0.1 localhost\n")
        self.switch = self._hold("switch", folder / "hosts.switch")

    def wire(self, name):
        """What the devices on it send, every other one of them gets."""
        self._ip(self.switch, "link", "add", name, "type", "bridge")
        self._ip(self.switch, "link", "set", name, "up")

    def host(self, name, hosts):
        """A host without a network yet. `hosts`: the file that is its /etc/hosts."""
        self.pids[name] = self._hold(name, hosts)

    def connect(self, name, wire, *addresses, device="eth0"):
        """Gives it a device on a wire. An address is with its prefix, as in 10.0.0.1/24 or fd00::1/64."""
        port = self.ports[name, device] = f"port{len(self.ports)}"
        self.ip(name, "link", "add", device, "type", "veth", "peer", "name", port,
                "netns", str(self.switch))
        self._ip(self.switch, "link", "set", port, "master", wire, "up")
        for address in addresses:
            # Nobody else has it: not to be waited for.
            nodad = ["nodad"] if ":" in address else []
            self.ip(name, "address", "add", address, "dev", device, *nodad)
        self.ip(name, "link", "set", device, "up")

    def unplug(self, name, device="eth0"):
        """The other end's link is down, and the host sees it: no carrier."""
        self._ip(self.switch, "link", "set", self.ports[name, device], "down")

    def plug(self, name, device="eth0"):
        self._ip(self.switch, "link", "set", self.ports[name, device], "up")

    def swallow(self, name, address, device="eth0"):
        """What this host sends there is lost on the way, and nobody tells it. The other direction works."""
        self.ip(name, "neigh", "replace", address, "lladdr", "02:00:00:00:de:ad", "dev", device,
                "nud", "permanent")

    def swallow_no_more(self, name, address, device="eth0"):
        self.ip(name, "neigh", "del", address, "dev", device)

    def vanish(self, name):
        """As if its power had failed: nobody gets a word of farewell. The name may be used again."""
        for host, device in [key for key in self.ports if key[0] == name]:
            self.unplug(host, device)
        for pid in self.processes(name):
            if pid != self.pids[name]:
                with contextlib.suppress(ProcessLookupError):  # It died with one of the others.
                    os.kill(pid, signal.SIGKILL)
        holder = self.holders.pop(name)
        self._ip(holder.pid, "link", "del", "eth0")
        holder.kill()
        holder.wait()
        del self.pids[name]

    def processes(self, name):
        """Everything that runs on this host."""
        own = os.readlink(f"/proc/{self.pids[name]}/ns/net")
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/net") == own:
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def ip(self, name, *words):
        self._ip(self.pids[name], *words)

    @staticmethod
    def _ip(pid, *words):
        subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *words], check=True, timeout=60)

    def _hold(self, name, hosts):
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount",
                                   "--uts", "sh", "-c", HOLD, "sh", name, str(hosts)],
                                  stdin=subprocess.DEVNULL)
        self.holders[name] = holder

        def ready():
            if holder.poll() is not None:
                raise AssertionError(f"no host {name}: status {holder.returncode}")
            with open(f"/proc/{holder.pid}/comm") as comm:
                return comm.read().strip() == "sleep"
        wait_for(ready, f"the host {name}")
        return holder.pid

    def on(self, name):
        """The words that run a command on this host, in the test's folder."""
        return ["nsenter", f"--target={self.pids[name]}", "--net", "--mount", "--uts",
                f"--wdns={self.folder}"]

    def in_container_on(self, name):
        """The same as the first process of a container: pid 1, with nothing else to be seen."""
        return [*self.on(name), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

    def close(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()


class Lan(Net):
    """Hosts that all know each other. `aliases`: by name of a host, the other names that all hosts know it by.
    `names` has all, and the address."""

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
