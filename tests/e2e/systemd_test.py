#!/usr/bin/env python3
"""Tests the units in configs/, installed by CMake and run by a real systemd."""
import json
import os
import re
import resource
import subprocess
import sys
import time
import unittest

import machine
from support import PATIENCE_S, SOURCE, wait_for

BUILD = os.environ.get("MUSTER_BUILD", "build/release")
# 10 * the exposure that `systemd-analyze security` may find in musterd.service: docs/services.md.
EXPOSURE_LIMIT = 12
# How long musterd is stopped in one test: longer than any lease or timeout of a node.
AWAY_S = float(os.environ.get("MUSTER_AWAY_S", "90"))

WORKER = """#!/bin/sh
echo "worker rank=$RANK world=$WORLD_SIZE node=$GROUP_RANK restarts=$TORCHELASTIC_RESTART_COUNT"
"""
# Runs until /run/finish exists.
LONG_WORKER = WORKER + "while ! [ -e /run/finish ]; do sleep 0.05; done\n"

# Connects repeatedly until /run/connected-enough exists. Prints how often the connection was
# refused.
CONNECT = """
import json, os, socket
connected = refused = 0
while not os.path.exists("/run/connected-enough"):
    try:
        socket.create_connection(("127.0.0.1", 29400), 30).close()
        connected += 1
    except ConnectionRefusedError:
        refused += 1
print(json.dumps([connected, refused]))
"""


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install = "".join(
            f'DESTDIR="$1/root" cmake --install "{os.path.abspath(BUILD)}" --prefix /usr --strip '
            f'--component {component} >&2\n' for component in ("programs", "services"))
        cls.machine = machine.Machine(install)
        cls.addClassCleanup(cls.machine.close)
        cls.machine.run("systemd-sysusers")

    def setUp(self):
        self.machine.run("systemctl", "stop", "musterd.socket", "musterd.service", "muster@*.service")
        self.machine.run("systemctl", "reset-failed")
        self.machine.run("rm", "-rf", "/etc/muster", "/run/finish", "/run/connected-enough",
                         "/etc/systemd/system/musterd.service.d", "/etc/systemd/system/muster@.service.d",
                         "/etc/default/musterd", "/etc/musterd.json")
        self.machine.run("systemctl", "daemon-reload")
        self.mark = self.end_of_journal()

    def end_of_journal(self):
        self.machine.run("journalctl", "--sync")
        return self.machine.journal("-n0", "--show-cursor").split("-- cursor: ")[-1].strip()

    def journal(self, unit, mark=None):
        """The lines of this unit, and of systemd about it, from this test or since the mark."""
        self.machine.run("journalctl", "--sync")  # journald may not have read all lines yet.
        return self.machine.journal("-o", "cat", f"--after-cursor={mark or self.mark}",
                                    f"--unit={unit}")

    def start(self, *units):
        self.machine.run("systemctl", "start", *units)

    def wait_for_journal(self, unit, text):
        wait_for(lambda: text in self.journal(unit), f"{text!r} in the journal of {unit}")

    def job(self, *names, worker=WORKER, **options):
        """Starts one agent for each name, all of one job."""
        self.machine.write("/run/worker.sh", worker)
        self.machine.run("chmod", "755", "/run/worker.sh")
        variables = {"PET_NNODES": len(names), "PET_RDZV_ID": self._testMethodName,
                     "PET_NPROC_PER_NODE": 1, "PET_RDZV_ENDPOINT": "127.0.0.1:29400",
                     "MUSTER_COMMAND": "--no-python /run/worker.sh", **options}
        for name in names:
            self.machine.write(f"/etc/muster/{name}.conf",
                               "".join(f"{k}={v}\n" for k, v in variables.items()))
        self.start(*(f"muster@{name}.service" for name in names))

    def has_ended_well(self, *names):
        for name in names:
            unit = f"muster@{name}.service"
            wait_for(lambda unit=unit: self.machine.show(unit, "ActiveState") in ("inactive", "failed"),
                     f"the end of {unit}:\n{self.machine.journal()}")
            self.assertEqual(self.machine.show(unit, "Result"), "success", self.machine.journal())
            self.assertEqual(self.machine.show(unit, "ExecMainStatus"), "0")

    def a_job_of_two_nodes_works(self):
        mark = self.end_of_journal()
        self.job("a", "b")
        self.has_ended_well("a", "b")
        lines = [line for name in "ab" for line in self.journal(f"muster@{name}", mark).splitlines()
                 if "worker rank=" in line]
        self.assertEqual(sorted(lines), ["worker rank=0 world=2 node=0 restarts=0",
                                              "worker rank=1 world=2 node=1 restarts=0"])

    def restarts(self):
        return int(self.machine.show("musterd", "NRestarts"))

    def is_up_again(self, before):
        wait_for(lambda: self.restarts() > before and
                 self.machine.show("musterd", "ActiveState") == "active",
                 "musterd to be started again")

    def test_the_units_are_as_systemd_wants_them(self):
        done = self.machine.run("systemd-analyze", "verify", "musterd.service", "musterd.socket",
                                "muster@job.service")
        self.assertEqual(done.stdout + done.stderr, "")

    def test_little_is_exposed(self):
        self.machine.run("systemd-analyze", "security", "--no-pager",
                         f"--threshold={EXPOSURE_LIMIT}", "musterd.service")

    def drop_in(self, unit, line):
        self.machine.write(f"/etc/systemd/system/{unit}.d/test.conf", f"[Service]\n{line}\n")
        self.machine.run("systemctl", "daemon-reload")

    def test_a_token_in_a_file_that_only_root_reads(self):
        # The line that docs/services.md adds with `systemctl edit musterd`. Both units contain it
        # as a comment.
        document = (SOURCE / "docs/services.md").read_text()
        line = re.search(r"\[Service\]\s+(LoadCredential=rdzv-token:\S+)", document)[1]
        path = line.split(":")[1]
        for unit in ("musterd.service", "muster@.service"):
            self.assertIn(f"\n#{line}\n", self.machine.run("systemctl", "cat", unit.replace("@", "@a")).stdout)
        self.machine.write(path, "canary-token-0123456789abcdefghijklmnop\n")
        self.machine.run("chown", "root:root", path)
        self.machine.run("chmod", "0400", path)
        self.drop_in("musterd.service", line)
        self.test_little_is_exposed()
        self.start("musterd")
        pid = self.machine.show("musterd", "MainPID")
        self.assertNotEqual(self.machine.run("stat", "--format=%u", f"/proc/{pid}").stdout.strip(), "0")

        # is_host=false: otherwise a node on the host's own machine could host the run itself.
        self.job("a", PET_RDZV_CONF="is_host=false")
        wait_for(lambda: self.machine.show("muster@a", "ActiveState") == "failed", "the node without a token to end")
        self.assertEqual(self.machine.show("muster@a", "ExecMainStatus"), "1")
        self.assertIn("it lets in only nodes that have its token", self.journal("muster@a"))
        self.assertNotIn("worker rank=", self.journal("muster@a"))

        self.machine.run("systemctl", "reset-failed")
        self.drop_in("muster@.service", line)
        self.a_job_of_two_nodes_works()
        self.assertEqual(self.machine.show("musterd", "NRestarts"), "0")

    def test_start_a_job_and_stop(self):
        self.start("musterd")  # Returns when musterd is ready.
        self.assertEqual(self.machine.show("musterd", "ActiveState"), "active")
        self.assertRegex(self.machine.show("musterd", "StatusText"), r"^listening on .*:29400, 0 conn")
        self.assertIn("musterd: listening on", self.journal("musterd"))
        self.a_job_of_two_nodes_works()
        self.machine.run("systemctl", "stop", "musterd")
        self.assertEqual(self.machine.show("musterd", "ActiveState"), "inactive")
        self.assertEqual(self.machine.show("musterd", "Result"), "success")
        self.assertEqual(self.restarts(), 0)

    def test_the_sandbox_is_there(self):
        self.start("musterd")
        pid = self.machine.show("musterd", "MainPID")
        status = dict(line.split(":\t", 1) for line in
                      self.machine.run("cat", f"/proc/{pid}/status").stdout.splitlines()
                      if ":\t" in line)
        self.assertEqual(status["Seccomp"], "2")
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual({status[name] for name in ("CapBnd", "CapEff", "CapPrm", "CapAmb")},
                         {"0" * 16})
        # The range of systemd's dynamic users.
        self.assertTrue(61184 <= int(status["Uid"].split()[0]) <= 65519, status["Uid"])
        limit = next(line for line in self.machine.run("cat", f"/proc/{pid}/limits").stdout.splitlines()
                     if line.startswith("Max open files"))
        # The limit in the unit, or the machine's maximum if that is lower.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.assertEqual(int(limit.split()[3]), min(1 << 20, hard))

    def test_kill_and_come_back(self):
        self.start("musterd")
        self.machine.run("systemctl", "kill", "--signal=KILL", "musterd")
        self.is_up_again(0)
        self.assertIn("status=9/KILL", self.journal("musterd"))
        self.a_job_of_two_nodes_works()

    def test_a_musterd_that_hangs_is_replaced(self):
        self.machine.write("/etc/systemd/system/musterd.service.d/test.conf",
                           "[Service]\nWatchdogSec=2s\n")
        self.machine.run("systemctl", "daemon-reload")
        self.start("musterd")
        self.assertEqual(self.machine.show("musterd", "WatchdogUSec"), "2s")
        self.machine.run("systemctl", "kill", "--signal=STOP", "musterd")
        self.is_up_again(0)
        self.assertIn("Watchdog timeout", self.journal("musterd"))
        self.a_job_of_two_nodes_works()

    def test_a_killed_agent_is_replaced_and_the_job_goes_on(self):
        self.start("musterd")
        self.job("a", "b", worker=LONG_WORKER)
        for name in "ab":
            self.wait_for_journal(f"muster@{name}", "world=2")
        self.machine.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "muster@b")
        wait_for(lambda: self.journal("muster@b").count("world=2") == 2, "b's worker to be there again")
        wait_for(lambda: self.journal("muster@a").count("world=2") == 2, "a's worker to start again")
        self.assertEqual(self.machine.show("muster@a", "NRestarts"), "0")
        self.assertEqual(self.machine.show("muster@b", "NRestarts"), "1")
        self.machine.run("touch", "/run/finish")
        self.has_ended_well("a", "b")

    def training_job(self):
        self.start("musterd")
        self.job("a", "b", worker=LONG_WORKER)
        for name in "ab":
            self.wait_for_journal(f"muster@{name}", "world=2")

    def job_did_not_notice(self):
        """Checks that the job's nodes are back at musterd and that its workers have trained on to
        their end."""
        self.wait_for_journal("musterd", "round_resumed")
        self.machine.run("touch", "/run/finish")
        self.has_ended_well("a", "b")
        for name in "ab":
            self.assertEqual(self.journal(f"muster@{name}").count("world=2"), 1)
        self.assertNotIn("restarts=1", self.journal("muster@*"))

    def test_a_running_job_outlives_a_killed_musterd(self):
        self.training_job()
        self.machine.run("systemctl", "kill", "--signal=KILL", "musterd")
        self.is_up_again(0)
        self.job_did_not_notice()

    def test_a_running_job_does_not_notice_a_restart_of_musterd(self):
        self.training_job()
        self.machine.run("systemctl", "restart", "musterd")
        self.job_did_not_notice()

    def test_a_running_job_does_not_notice_an_upgrade_of_musterd(self):
        self.training_job()
        # Replaces the file as a package does, then restarts. One more byte makes it another build.
        self.machine.run("sh", "-c", "cp /usr/bin/musterd /usr/bin/musterd.new && printf x >>/usr/bin/musterd.new && "
                                     "mv /usr/bin/musterd.new /usr/bin/musterd")
        old = self.machine.show("musterd", "MainPID")
        self.assertIn("(deleted)", self.machine.run("readlink", f"/proc/{old}/exe").stdout)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "musterd")
        new = self.machine.show("musterd", "MainPID")
        self.assertNotIn("(deleted)", self.machine.run("readlink", f"/proc/{new}/exe").stdout)
        self.job_did_not_notice()

    def test_a_running_job_does_not_notice_that_musterd_is_away_for_long(self):
        self.training_job()
        self.machine.run("systemctl", "stop", "musterd")
        time.sleep(AWAY_S)  # There is no event to wait for in this time.
        self.start("musterd")
        self.job_did_not_notice()

    def test_reload_reads_the_file_again_and_a_bad_one_fails_and_changes_nothing(self):
        self.machine.write("/etc/musterd.json", '{"port": 29400, "max-keys": 1000}')
        self.machine.write("/etc/default/musterd", 'MUSTERD_OPTIONS="--config=/etc/musterd.json"\n')
        self.training_job()
        pid = self.machine.show("musterd", "MainPID")
        self.machine.write("/etc/musterd.json", '{"port": 29400, "max-keys": 2000}')
        self.machine.run("systemctl", "reload", "musterd")
        self.wait_for_journal("musterd", 'config_changed key=max-keys from="1000" to="2000"')
        self.machine.write("/etc/musterd.json", '{"port": 29400, "max-keys": "many"}')
        self.assertNotEqual(self.machine.run("systemctl", "reload", "musterd", check=False).returncode, 0)
        self.wait_for_journal("musterd", 'key "max-keys": "many" is not a number')
        self.assertEqual(self.journal("musterd").count("config_reloaded"), 1)
        self.assertEqual(self.machine.show("musterd", "MainPID"), pid)
        self.machine.run("touch", "/run/finish")
        self.has_ended_well("a", "b")

    def test_stopping_an_agent_stops_its_workers_in_order(self):
        self.start("musterd")
        self.job("a", worker="#!/bin/sh\ntrap 'echo saved; exit 0' TERM\necho begun\n"
                             "while :; do sleep 0.05; done\n")
        self.wait_for_journal("muster@a", "begun")
        self.machine.run("systemctl", "stop", "muster@a")
        self.assertEqual(self.machine.show("muster@a", "Result"), "success")
        self.assertIn("saved", self.journal("muster@a"))
        self.assertEqual(self.machine.show("muster@a", "NRestarts"), "0")

    def test_the_socket_holds_the_port_while_musterd_is_away(self):
        self.start("musterd.socket")
        self.assertEqual(self.machine.show("musterd", "ActiveState"), "inactive")
        self.a_job_of_two_nodes_works()  # The job's first connection starts musterd.
        self.assertEqual(self.machine.show("musterd", "ActiveState"), "active")
        connecting = subprocess.Popen(self.machine.command("python3", "-c", CONNECT),
                                      stdout=subprocess.PIPE, text=True)
        self.addCleanup(connecting.stdout.close)
        self.addCleanup(connecting.wait)
        self.addCleanup(connecting.kill)
        for kills in range(3):
            self.machine.run("systemctl", "kill", "--signal=KILL", "musterd")
            self.is_up_again(kills)
        self.machine.run("touch", "/run/connected-enough")
        connected, refused = json.loads(connecting.communicate(timeout=PATIENCE_S)[0])
        self.assertGreater(connected, 0)
        self.assertEqual(refused, 0)
        self.a_job_of_two_nodes_works()


if __name__ == "__main__":
    if reason := machine.why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
