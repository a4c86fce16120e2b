"""Hosts on one wire: network namespaces with names, addresses and an /etc/hosts, which end with the test."""
import os
import shutil
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


class Lan:
    """`aliases`: by name of a host, the other names that all hosts know it by. `names` has all, and the address."""

    def __init__(self, folder, names, aliases=None):
        self.folder = folder
        self.holders = []
        self.pids = {}
        self.addresses = {name: f"10.77.0.{i}" for i, name in enumerate(names, 1)}
        self.names = {name: [name, *(aliases or {}).get(name, []), address]
                      for name, address in self.addresses.items()}
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{names[-1]} {' '.join(names[:-1])}\n" for names in self.names.values()))
        try:
            switch = self._hold("switch", hosts)
            self._ip(switch, "link", "add", "wire", "type", "bridge")
            self._ip(switch, "link", "set", "wire", "up")
            for i, (name, address) in enumerate(self.addresses.items(), 1):
                pid = self.pids[name] = self._hold(name, hosts)
                self._ip(pid, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}",
                         "netns", str(switch))
                self._ip(switch, "link", "set", f"port{i}", "master", "wire", "up")
                self._ip(pid, "address", "add", f"{address}/24", "dev", "eth0")
                self._ip(pid, "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    def _hold(self, name, hosts):
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount",
                                   "--uts", "sh", "-c", HOLD, "sh", name, str(hosts)],
                                  stdin=subprocess.DEVNULL)
        self.holders.append(holder)

        def ready():
            if holder.poll() is not None:
                raise AssertionError(f"no host {name}: status {holder.returncode}")
            with open(f"/proc/{holder.pid}/comm") as comm:
                return comm.read().strip() == "sleep"
        wait_for(ready, f"the host {name}")
        return holder.pid

    @staticmethod
    def _ip(pid, *words):
        subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *words], check=True, timeout=60)

    def on(self, name):
        """The words that run a command on this host, in the test's folder."""
        return ["nsenter", f"--target={self.pids[name]}", "--net", "--mount", "--uts",
                f"--wdns={self.folder}"]

    def in_container_on(self, name):
        """The same as the first process of a container: pid 1, with nothing else to be seen."""
        return [*self.on(name), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
