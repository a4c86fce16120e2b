"""A separate machine for a test, in a container: systemd-nspawn boots the host's own system without
any of the host's services.

The root is an overlay in memory above the host's /, so nothing is downloaded and nothing is kept.
Everything is in separate namespaces and control groups, and is removed with the test.
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import uuid

from support import children, wait_for

TARGET = "muster-test.target"
# The machine boots the journal, and starts what the test asks for.
TARGET_UNIT = """[Unit]
Requires=systemd-journald.service
After=systemd-journald.service
"""
NEEDED = ("systemd-nspawn", "unshare", "nsenter", "setpriv", "cmake")

PROBE = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root &&
  mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
"""

# The first process of its own mount and pid namespaces: when it ends, all processes in them end. It
# becomes systemd-nspawn. $1: an empty folder.
BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/systemd
rm -rf "$1"/root/etc/systemd/system/*.wants
rm -rf "$1"/root/etc/systemd/system/*.requires
rm -f "$1/root/etc/machine-id"
touch "$1/root/etc/machine-id"
{install}
exec systemd-nspawn --quiet --boot --directory="$1/root" --register=no --keep-unit \\
  --private-network --machine=muster-test --hostname=muster-test --console=pipe --link-journal=no \\
  --resolv-conf=off --timezone=off systemd.unit=""" + TARGET + """ systemd.log_target=journal
"""


def why_not():
    """The reason why this computer cannot run such a machine; None if it can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in NEEDED:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not os.path.exists("/lib/systemd/systemd"):
        return "systemd is not installed"
    # Containers often may not unshare namespaces.
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", PROBE], capture_output=True, text=True,
                           check=False)
    if probe.returncode != 0:
        return f"may not mount here: {probe.stderr.strip()}"
    if not (groups := own_control_groups()) or not all(os.access(g, os.W_OK) for g in groups):
        return "may not make control groups here"
    return None


def own_control_groups():
    """The folders of this process in the control group hierarchies that systemd uses."""
    folders = []
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for mount in {"name=systemd": ["systemd"], "": ["unified", "."]}.get(controllers, []):
            folder = pathlib.Path("/sys/fs/cgroup", mount)
            if (folder / "cgroup.procs").exists():
                folders.append(folder / path.lstrip("/"))
                break
    return folders


class Machine:
    """Boots when it is created. `install` has shell commands that fill the system, whose root is
    "$1/root"."""

    def __init__(self, install):
        self.folder = tempfile.mkdtemp(prefix="muster-machine-")
        self.log = open(os.path.join(self.folder, "log"), "wb+")
        root = os.path.join(self.folder, "m")
        os.mkdir(root)
        name = "muster-test-" + uuid.uuid4().hex[:12]
        self.groups = [folder / name for folder in own_control_groups()]
        self.process = self.leader = None
        try:
            for group in self.groups:
                group.mkdir()
            install = (f'printf %s {shlex.quote(TARGET_UNIT)} > "$1/root/etc/systemd/system/{TARGET}"\n'
                       + install)
            enter = "".join(f"echo $$ > {shlex.quote(str(g))}/cgroup.procs\n" for g in self.groups)
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "sh", "-c", enter + BOOT.replace("{install}", install), "sh", root],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            self.leader = wait_for(self._leader, "the machine's first process")
            wait_for(self._is_up, "the machine to boot")
        except BaseException:
            text = self.console()
            self.close()
            raise AssertionError(f"no machine:\n{text}")

    def _alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the machine ended with {self.process.returncode}")

    def _leader(self):
        self._alive()
        # The chain is unshare, systemd-nspawn, and the machine's own systemd as soon as it has been
        # executed.
        return next((leader for nspawn in children(self.process.pid) for leader in children(nspawn)
                     if self._comm(nspawn) == "systemd-nspawn" and self._comm(leader) == "systemd"),
                    None)

    @staticmethod
    def _comm(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return ""

    def _is_up(self):
        self._alive()
        return self.run("systemctl", "is-active", TARGET, check=False).stdout.strip() == "active"

    def command(self, *words):
        """The command prefix and words that run this command inside the machine."""
        return ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid",
                "--", *map(str, words)]

    def run(self, *words, check=True, **more):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=60, **more)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: status {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}\n{self.journal()}")
        return done

    def write(self, path, text):
        subprocess.run(self.command("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path),
                       input=text, text=True, check=True, timeout=60)

    def show(self, unit, name):
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()

    def journal(self, *options):
        return subprocess.run(self.command("journalctl", "--no-pager", *options),
                              capture_output=True, text=True, check=False, timeout=60).stdout

    def console(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def close(self):
        """Kills the machine, like a power failure."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for group in self.groups:
            wait_for(lambda group=group: self._remove(group), f"{group} to be empty")
        self.log.close()
        shutil.rmtree(self.folder)

    @staticmethod
    def _remove(group):
        if not group.exists():
            return True
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False  # Some processes have not ended yet.
        return True
