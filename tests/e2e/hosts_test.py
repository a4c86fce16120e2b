#!/usr/bin/env python3
"""Tests `muster --hosts` with a real ssh and sshd, on hosts in network namespaces: jobs that end well, hosts that cannot
begin, and everything that ends a job. Needs root and openssh-server."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

import lan
from clusters_test import Clusters
from support import MUSTER, PATIENCE_S, wait_for

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
SSHD_CONFIG = """
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/ssh/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
AcceptEnv no_variable
"""
SSH_CONFIG = """
Host *
  IdentityFile {folder}/ssh/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
# Says that it runs, and runs on.
WAIT = """
import os, pathlib, socket, sys, time
print("at work on", socket.gethostname(), flush=True)
print("a word of its stderr", file=sys.stderr, flush=True)
fd = os.open(os.environ["TEST_DIR"] + "/ready", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
os.write(fd, (socket.gethostname() + "\\n").encode())
while not (pathlib.Path(os.environ["TEST_DIR"]) / ("fail." + socket.gethostname())).exists():
    time.sleep(0.05)
sys.exit(7)
"""


class HostsTest(Clusters):
    def hosts(self, *names, without_sshd=()):
        super().hosts(*names)
        keys = self.dir / "ssh"
        keys.mkdir()
        (keys / "config").write_text(SSH_CONFIG.format(folder=self.dir))
        for path in (keys / "key", self.dir / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        (self.dir / "sshd_config").write_text(SSHD_CONFIG.format(folder=self.dir))
        self.script("wait.py", WAIT)
        self.sshd = {}
        for name in names:
            # /root/.ssh is the configuration of the user who types muster; /run/sshd is sshd's folder.
            self.at(name, f"mkdir -p /root/.ssh && mount --bind {keys} /root/.ssh && mount -t tmpfs none /run && "
                          "mkdir /run/sshd")
            if name not in without_sshd:
                self.sshd[name] = self.on(name, SSHD, "-D", "-e", "-f", str(self.dir / "sshd_config"))
        for name in self.sshd:
            wait_for(lambda name=name: "Server listening" in self.sshd[name].out.read_text(), f"sshd on {name}")

    def at(self, name, script):
        subprocess.run([*self.lan.on(name), "sh", "-ec", script], check=True, timeout=60)

    def muster(self, *words, export=(), **variables):
        """Starts muster on the first host, with what marks all processes of the test."""
        names = ",".join([self.token.text.partition("=")[0], "TEST_DIR", "TEST_TORCH", *export])
        return self.on(self.names[0], os.path.abspath(MUSTER), f"--export={names}", *words,
                       **{"TEST_TORCH": "", **variables})

    def at_work(self, count):
        wait_for(lambda: len(self.read("ready").split()) == count, f"{count} workers")

    def fails(self, process, status, *says):
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.fail(f"still there\n{process.out.read_text()}")
        text = process.out.read_text()
        for words in says:
            self.assertIn(words, text)
        self.assertEqual(code, status, text)
        return text


class Jobs(HostsTest):
    def test_three_hosts_are_one_job(self):
        self.hosts("node1", "node2", "node3")
        torch = self.torch()
        self.end_well(self.muster("--hosts", "node1:2,node2:2,node3:2", "train.py", "a b", "it's; $HOME `x`", "", **torch))
        told = self.check_world(workers=2)
        self.assertEqual(told["arguments"], ["a b", "it's; $HOME `x`", ""])
        self.assertRegex(told["MASTER_ADDR"], r"^(node1|10\.77\.0\.1)$")

    def test_a_hostfile_and_lines_with_the_hosts_name(self):
        self.hosts("node1", "node2")
        (self.dir / "hostfile").write_text("# the cluster\nnode1 slots=2\nnode2:2  # as MPI writes it\n")
        self.script("say.py", "import os, sys, socket\nprint('out of', socket.gethostname(), os.environ['RANK'], os.getcwd())\n"
                    "print('err of', socket.gethostname(), os.environ['COLOUR'], file=sys.stderr)\n")
        self.fails(self.muster("--hostfile=hostfile", "say.py", export=["COLOUR=light, dark"]), 1,
                   "' dark' is no name of a variable", "two commas for one")
        output = self.end_well(self.muster("--hostfile=hostfile", "--nproc-per-node=1", "say.py",
                                           export=["COLOUR=light,,dark"]))
        folder = os.path.realpath(self.dir)
        for rank, name in enumerate(self.names):
            self.assertIn(f"[{name}] out of {name} {rank} {folder}\n", output)
            self.assertIn(f"[{name}] err of {name} light,dark\n", output)

    def test_a_dry_run_shows_what_each_host_gets(self):
        self.hosts("node1", without_sshd=("node1",))
        output = self.end_well(self.muster("--hosts=me@node1:2,node2", "--dry-run", "--rdzv-id=seven", "train.py", "x y"))
        self.assertIn("-- me@node1 ", output)
        self.assertIn("--node-rank=1", output)
        self.assertIn("--rdzv-endpoint=node1:", output)
        self.assertNotIn("--hosts", output.partition("which runs")[2])


class Beginnings(HostsTest):
    def check_others_stay_free(self):
        self.assertEqual(self.read("ready"), "")
        self.assert_nothing_left()

    def test_hosts_that_cannot_be_reached(self):
        self.hosts("node1", "node2", "node3", without_sshd=("node3",))
        self.fails(self.muster("--hosts=node1,node3", "wait.py"), 255, "ssh reaches no shell on node3", "Connection refused")
        self.fails(self.muster("--hosts=node1,nosuch", "wait.py"), 255, "ssh reaches no shell on nosuch", "nosuch")
        self.lan.swallow("node1", "10.77.0.2")
        self.fails(self.muster("--hosts=node1,node2", "wait.py"), 255, "ssh reaches no shell on node2", "timed out")
        self.lan.swallow_no_more("node1", "10.77.0.2")
        (self.dir / "ssh/key").unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.dir / "key")], check=True)
        (self.dir / "key").rename(self.dir / "ssh/key")
        self.fails(self.muster("--hosts=node1,node2", "wait.py"), 255, "Permission denied", "must work without a question")
        self.check_others_stay_free()

    def test_hosts_without_the_same_muster(self):
        self.hosts("node1", "node2")
        program = os.path.realpath(MUSTER)
        self.at("node2", f"mount -t tmpfs none {os.path.dirname(program)}")
        self.fails(self.muster("--hosts=node1,node2", "wait.py"), 127, "node2 has no muster", program)
        self.at("node2", f"umount {os.path.dirname(program)}")
        for text, status, says in (
                ("echo 'muster-node 0.0.9'; cat", 1, "node2 has muster 0.0.9, and this machine has"),
                ("echo 'muster: error: unrecognized arguments' >&2; exit 2", 2, "node2 has another muster, which does not know")):
            other = self.script("other", "#!/bin/sh\n" + text + "\n")
            self.at("node2", f"mount --bind {other} {program}")
            self.fails(self.muster("--hosts=node1,node2", "wait.py"), status, says)
            self.at("node2", f"umount {program}")
        self.check_others_stay_free()

    def test_mistakes_are_named_before_ssh_starts(self):
        self.hosts("node1", without_sshd=("node1",))
        for words, says in (
                (("--hosts=a;reboot", "wait.py"), "'a;reboot' is no host"),
                (("--hosts=-oProxyCommand=x", "wait.py"), "does not begin with a hyphen"),
                (("--hosts=a:8,a:8", "wait.py"), "a stands there twice"),
                (("--hosts=a,b", "--nnodes=3", "wait.py"), "--nnodes is '3', but 2 hosts are named"),
                (("--hosts=a,b", "--node-rank=1", "wait.py"), "--node-rank has no place beside --hosts"),
                (("--hosts=a:2,b", "--nproc-per-node=4", "wait.py"), "a has 2"),
                (("--hosts=a,b", "--max-restarts=-1", "wait.py"), "--max-restarts is -1"),
                (("--hostfile=nosuch", "wait.py"), "cannot read 'nosuch'"),
                (("--hosts=a", "--export=NOSUCH_VARIABLE", "wait.py"), "NOSUCH_VARIABLE is not set here"),
                (("--export=HOME", "wait.py"), "has a meaning with --hosts only")):
            with self.subTest(words=words):
                self.fails(self.on("node1", os.path.abspath(MUSTER), *words), 1, says)


class Ends(HostsTest):
    def job(self, *words, **options):
        self.hosts("node1", "node2", "node3")
        process = self.muster(*words, "--hosts=node1,node2,node3", "wait.py", **options)
        self.at_work(3)
        return process

    def test_a_worker_that_fails_ends_all(self):
        process = self.job("--exit-code=propagate")
        (self.dir / "fail.node2").touch()
        self.fails(process, 7, "the job has failed: node2 ended with status 7", "[node2] ")
        self.assert_nothing_left()

    def test_ctrl_c_and_nothing_is_left(self):
        process = self.job()
        process.send_signal(signal.SIGINT)
        self.fails(process, -signal.SIGINT, "[node1] at work on node1", "SIGINT")
        self.assert_nothing_left()

    def test_kill_9_and_nothing_is_left(self):
        process = self.job()
        process.kill()
        process.wait()
        wait_for(lambda: not self.token.processes(), "the workers' end")

    def kill_all(self, host):
        for pid in self.lan.processes(host):
            if pid != self.lan.pids[host]:
                with contextlib.suppress(ProcessLookupError):  # The end of another one has ended it.
                    os.kill(pid, signal.SIGKILL)

    def test_a_host_that_dies(self):
        process = self.job()
        self.kill_all("node3")
        self.fails(process, 255, "the connection to node3 is lost", "ending the job on the other hosts")
        self.assert_nothing_left()

    def test_a_host_whose_power_fails(self):
        process = self.job()
        self.lan.vanish("node3")
        self.fails(process, 255, "the connection to node3 is lost")
        self.assert_nothing_left()

    def test_a_job_that_goes_on_with_fewer_hosts(self):
        self.hosts("node1", "node2", "node3")
        self.script("elastic.py", WAIT.replace("sys.exit(7)", "sys.exit(0)"))
        process = self.muster("--nnodes=2:3", "--hosts=node1,node2,node3", "elastic.py")
        self.at_work(3)
        self.kill_all("node3")
        self.at_work(5)
        for name in ("node1", "node2"):
            (self.dir / f"fail.{name}").touch()
        self.fails(process, 0, "the connection to node3 is lost")


if __name__ == "__main__":
    if lan.why_not() is None and not os.access(SSHD, os.X_OK):
        print("skipped: sshd is not installed (openssh-server)")
        sys.exit(77)
    lan.main()
