#!/usr/bin/env python3
"""Tests musterd and agents with a real etcd that requires a user and a password: they log in, and
log in again when their token has expired."""
import os
import signal
import subprocess
import sys

from etcd_cluster import EtcdCluster, have_etcd, text_of
from musterd import run_musterd
from nodes import NodesTest
from ports import free_port
from support import MUSTER, PATIENCE_S, main, wait_for

LEASE_S = 6
PASSWORD = "correct horse: battery"
TOKEN_S = 2  # etcd drops a token that was not used for this time.


class Users(NodesTest):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster(1, options=[f"--auth-token-ttl={TOKEN_S}"])
        cls.etcd.ask_for_passwords("jobs", PASSWORD, "/jobs/")

    @classmethod
    def tearDownClass(cls):
        cls.etcd.close()

    def setUp(self):
        super().setUp()
        self.address = f"127.0.0.1:{self.etcd.clients[0]}"

    def password_file(self, password=PASSWORD):
        path = self.dir / "password"
        path.touch(0o600)
        path.write_text(password + "\n")
        return path

    def musterd(self, *options, **env):
        return run_musterd(self, f"--leader-lease-seconds={LEASE_S}", *options, port=free_port(),
                             log=self.dir / "err.musterd", append=True, env=self.environment(**env), ready=None)

    def musterd_says(self, text, times=1):
        try:
            wait_for(lambda: self.read("err.musterd").count(text) >= times, f"musterd: {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.read('err.musterd')}") from None

    def test_a_musterd_logs_in_and_again_when_its_token_has_ended(self):
        musterd = self.musterd(f"--state=etcd://jobs@{self.address}/jobs/m",
                               f"--state-password-file={self.password_file()}")
        self.musterd_says("listening on")
        self.assertIn("/jobs/m/leader", self.etcd.keys("/jobs/m/"))
        # A change of the users invalidates every token.
        self.etcd.add_user(f"other{os.getpid()}", "x")
        self.stays_the_leader(musterd)

    def test_a_musterd_reads_its_password_again_when_it_logs_in_again(self):
        musterd = self.musterd(f"--state=etcd://jobs@{self.address}/jobs/m",
                               f"--state-password-file={self.password_file()}")
        self.musterd_says("listening on")
        self.addCleanup(self.etcd.must, "auth/user/changepw", {"name": "jobs", "password": PASSWORD})
        self.password_file(PASSWORD + ", renewed")
        self.etcd.must("auth/user/changepw", {"name": "jobs", "password": PASSWORD + ", renewed"})
        self.stays_the_leader(musterd)

    def stays_the_leader(self, musterd):
        revision = self.etcd.entry("/jobs/m/leader")["create_revision"]
        lease = self.etcd.entry("/jobs/m/leader")["lease"]
        # musterd keeps its lease alive for longer than the lease's own duration.
        def kept_beyond(seconds):
            left = self.etcd.must("lease/timetolive", {"ID": lease})
            age = int(left["grantedTTL"]) - int(left.get("TTL", 0))
            self.ages.append(age)
            return sum(b < a for a, b in zip(self.ages, self.ages[1:])) >= seconds
        self.ages = []
        wait_for(lambda: kept_beyond(3), "three renewals of the lease")
        self.assertEqual(self.etcd.entry("/jobs/m/leader")["create_revision"], revision)
        musterd.send_signal(signal.SIGTERM)
        self.assertEqual(musterd.wait(PATIENCE_S), 0)
        said = self.read("err.musterd")
        self.assertNotIn(PASSWORD, said)
        self.assertNotIn("leadership_lost", said)

    def test_a_musterd_that_may_not_read_the_records_says_so(self):
        """The user may elect a leader, and nothing more."""
        self.etcd.add_user("narrow", PASSWORD)
        self.etcd.must("auth/role/add", {"name": "narrow"}, done="role name already exists")
        self.etcd.must("auth/role/grant", {"name": "narrow", "perm": {"permType": "READWRITE",
                                                                      "key": text_of("/narrow/leader")}})
        self.etcd.must("auth/user/grant", {"user": "narrow", "role": "narrow"})
        self.musterd(f"--state=etcd://narrow@{self.address}/narrow", f"--state-password-file={self.password_file()}")
        self.musterd_says("what etcd has recorded cannot be loaded: ")
        self.musterd_says("permission denied")

    def test_a_musterd_with_a_wrong_password_says_so(self):
        self.musterd(f"--state=etcd://jobs@{self.address}/jobs/w", ETCDCTL_PASSWORD="wrong secret")
        self.musterd_says("authentication failed, invalid user ID or password")
        self.assertNotIn("wrong secret", self.read("err.musterd"))

    def test_a_musterd_without_a_password_ends(self):
        self.assertEqual(self.musterd(f"--state=etcd://jobs@{self.address}/jobs/n").wait(PATIENCE_S), 1)
        self.musterd_says("give --state-password-file, or set ETCDCTL_PASSWORD")

    def test_a_musterd_without_a_user_and_one_that_may_not(self):
        self.musterd(f"--state=etcd://{self.address}/jobs/n")
        self.musterd_says("user name is empty")
        self.musterd(f"--state=etcd://{self.address}/elsewhere", ETCDCTL_USER="jobs:" + PASSWORD)
        self.musterd_says("permission denied")

    def agents(self, tag, conf, **env):
        self.node(tag, 2, f"--rdzv-conf=etcd_prefix=/jobs/a,host_lease={LEASE_S},last_call_timeout=3{conf}",
                  "--max-restarts=1", env={"LOGLEVEL": "INFO", **env})

    def test_agents_log_in(self):
        self.backend, self.endpoint = "etcd", lambda: self.address
        self.agents("a", f",user=jobs,password_file={self.password_file()}")
        self.agents("b", "", ETCDCTL_USER="jobs", ETCDCTL_PASSWORD=PASSWORD)
        self.round_of(2)
        self.tell("exit.a", "7")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in self.round_of(2, after=2)}, {"1"})
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assertNotIn(PASSWORD, self.all_output())

    def test_an_agent_with_a_wrong_password_ends_at_once(self):
        done = subprocess.run(
            [MUSTER, "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=w", f"--rdzv-endpoint={self.address}",
             "--rdzv-conf=etcd_prefix=/jobs/a,user=jobs", "--no-python", "true"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env=self.environment(ETCDCTL_PASSWORD="wrong secret"))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("authentication failed, invalid user ID or password", done.stderr)
        self.assertNotIn("wrong secret", done.stderr)


if __name__ == "__main__":
    if not have_etcd():
        print("skipped: etcd is not installed (Debian: etcd-server)")
        sys.exit(77)
    main()
