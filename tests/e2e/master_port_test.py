#!/usr/bin/env python3
"""Tests that MASTER_PORT belongs to the job from its start to its end, also between attempts and
beside other jobs."""
import contextlib
import errno
import os
import pathlib
import socket
import subprocess
import sys

from support import MUSTER, PATIENCE_S, MusterTest, agent_of, main, wait_for


def can_bind(port):
    """Tries to bind the port on each address of this host, as a server would. Returns for how many
    addresses that works."""
    bound = 0
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""),
                            (socket.AF_INET6, "::")):
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((address, port))
                server.listen()
                bound += 1
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    return bound


def listener(pid, port):
    """The inode of the socket with which this process listens on the port; None if it does not
    listen."""
    held = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # The descriptor may have been closed meanwhile.
            held.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            is_there = int(fields[1].rsplit(":", 1)[1], 16) == port and fields[3] == "0A"
            if is_there and f"socket:[{fields[9]}]" in held:
                return int(fields[9])
    return None


class MasterPort(MusterTest):
    def test_no_program_can_take_it_between_attempts(self):
        if not socket.has_ipv6:
            self.skipTest("no IPv6")
        # After the job any process can bind the port, which shows that the tries during the job were real. Another
        # program of this machine may take the port in that moment, but not the ports of three jobs.
        self.assertTrue(any(can_bind(self.port_of_a_job()) == 3 for _ in range(3)))

    def port_of_a_job(self):
        """Returns the port of a job that has ended. Rank 1 failed twice, and rank 0 took time to end. During all of
        this, nobody could bind the port."""
        for pattern in ("port.*", "go.*", "stopping.*", "end.*"):
            for left in self.dir.glob(pattern):
                left.unlink()
        script = self.script("slow.sh", """#!/bin/sh
attempt=$TORCHELASTIC_RESTART_COUNT
trap 'touch stopping.$attempt; while [ ! -e end.$attempt ]; do sleep 0.01; done; exit 0' TERM
echo $MASTER_PORT > port.$attempt.$RANK.partial
mv port.$attempt.$RANK.partial port.$attempt.$RANK
while [ ! -e go.$attempt ]; do sleep 0.01; done
[ $attempt = 2 ] && exit 0
[ $RANK = 1 ] && exit 3
while :; do sleep 0.01; done
""")
        process = self.start("--standalone", "--nproc-per-node=2", "--max-restarts=2",
                             "--no-python", script)
        ports, sockets, tries = [], [], 0

        def reached(name):
            nonlocal tries
            if ports:
                tries += 1
                self.assertEqual(can_bind(ports[0]), 0, name)
            return (self.dir / name).exists()

        for attempt in range(3):
            for rank in range(2):
                wait_for(lambda: reached(f"port.{attempt}.{rank}"), f"rank {rank}")
                ports.append(int(self.read(f"port.{attempt}.{rank}")))
            sockets.append(listener(agent_of(process.pid), ports[0]))
            (self.dir / f"go.{attempt}").write_text("")
            if attempt < 2:
                wait_for(lambda: reached(f"stopping.{attempt}"), "the stop")
                sockets.append(listener(agent_of(process.pid), ports[0]))
                (self.dir / f"end.{attempt}").write_text("")
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))
        self.assertEqual(set(ports), {ports[0]})
        self.assertIsNotNone(sockets[0])
        self.assertEqual(set(sockets), {sockets[0]})  # One descriptor that is never closed.
        self.assertGreater(tries, 5)
        return ports[0]

    def test_jobs_that_restart_at_once_keep_their_ports(self):
        jobs = 6
        script = self.script("port.sh", """#!/bin/sh
echo $TORCHELASTIC_RUN_ID $MASTER_PORT >> ready
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1
while [ ! -e go ]; do sleep 0.01; done
""")
        running = [subprocess.Popen([MUSTER, "--standalone", "--max-restarts=1", "--no-python",
                                     str(script)], stdin=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, env=self.environment(),
                                    cwd=self.dir) for _ in range(jobs)]
        for job in running:
            self.addCleanup(job.wait)
            self.addCleanup(job.kill)
        self.ready(2 * 2 * jobs)
        ports = {}
        for line in self.read("ready").splitlines():
            run_id, port = line.split()
            ports.setdefault(run_id, []).append(port)
        self.assertEqual(len(ports), jobs)
        self.assertEqual([len(found) for found in ports.values()], [2] * jobs)
        self.assertEqual([len(set(found)) for found in ports.values()], [1] * jobs)
        self.assertEqual(len({found[0] for found in ports.values()}), jobs)
        (self.dir / "go").write_text("")
        self.assertEqual([job.wait(PATIENCE_S) for job in running], [0] * jobs)


if __name__ == "__main__":
    sys.exit(main())
