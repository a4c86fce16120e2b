#!/usr/bin/env python3
"""Tests musterctl with a real musterd and real jobs: its output, exit codes and completion."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from http_test import HttpTest
from musterd import run_musterd
from ports import free_port
from support import MUSTER, PATIENCE_S, SOURCE, Terminal, main, wait_for

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")


# Overwrites the worker's environment where /proc/PID/environ shows it.
OVERWRITE_ENVIRONMENT = """
import ctypes, os
with open("/proc/self/stat") as stat:
    fields = stat.read().rpartition(")")[2].split()
ENV_START, ENV_END = int(fields[47]), int(fields[48])  # proc(5): fields 50 and 51
kept = dict(os.environ)
ctypes.memset(ENV_START, 0, ENV_END - ENV_START)
for name, value in kept.items():
    os.environ[name] = value
"""


class CtlTest(HttpTest):
    def ctl(self, *words, expect=0, env=None):
        """Returns stdout. If the expected exit code is not 0, returns stderr."""
        environment = self.environment(**{"MUSTER_ENDPOINT": f"localhost:{self.http_port}", **(env or {})})
        # `stacks` runs two debuggers on each worker, and each may take 45 s.
        done = subprocess.run([MUSTERCTL, *words], capture_output=True, text=True, timeout=150, env=environment,
                              check=False)
        self.assertEqual(done.returncode, expect, f"{words}\n{done.stdout}\n{done.stderr}")
        return done.stdout if expect == 0 else done.stderr + done.stdout


class Runs(CtlTest):
    def test_a_job_that_fails_and_goes_on(self):
        self.assertEqual(self.ctl("runs"), "this musterd has no runs: no job has met here yet\n")
        self.assertIn("no run 'job' is known here", self.ctl("status", "job", expect=4))
        self.node("a", "2", "--max-restarts=3")
        self.run_is("gathering")
        self.assertRegex(self.ctl("status", "job"), r"^job  gathering\n[^\0]*1 more node must come")
        self.node("b", "2", "--max-restarts=3", "--nproc-per-node=2")
        self.round_of(3)
        self.run_is("running")
        self.assertRegex(self.ctl("runs"), r"\njob +running +.+? +0 +2/2 +0/3 +-\n")
        self.assertIn("nothing has failed since the run began", self.ctl("why", "job"))
        nodes = self.ctl("nodes", "job").splitlines()
        self.assertEqual(len(nodes), 3)
        self.assertRegex(nodes[1], r"^0 .* working +muster ")
        self.tell("exit.a", "3")
        self.round_of(3, after=3)
        wait_for(lambda: json.loads(self.ctl("status", "job", "--json"))["restarts_used"] == 1, "the restart")
        self.run_is("running")
        why = self.ctl("why", "job")
        self.assertRegex(why, r"^job: node \d \(.*\) failed first\n")
        self.assertIn("round complete", why.split("what followed")[1])
        self.assertIn("workers failed", self.ctl("status", "job"))
        self.assertEqual(json.loads(self.ctl("status", "job", "--json"))["restarts_used"], 1)
        self.assertEqual(len(json.loads(self.ctl("nodes", "job", "--json"))["nodes"]), 2)
        self.assertEqual(json.loads(self.ctl("runs", "--json"))["total"], 1)

    def test_watch_shows_changes_until_it_is_stopped(self):
        self.node("a", "2")
        self.run_is("gathering")
        with open(self.dir / "watched", "wb") as out:
            watch = subprocess.Popen([MUSTERCTL, "status", "job", "--watch",
                                      f"--endpoint=127.0.0.1:{self.http_port}"], stdout=out)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        wait_for(lambda: "job  gathering" in self.read("watched"), "the first look")
        self.node("b", "2")
        wait_for(lambda: "job  running" in self.read("watched"), "a later look")
        self.musterd.kill()
        self.assertEqual(watch.wait(PATIENCE_S), 3)

    def test_watch_fits_the_screen(self):
        self.node("a", "1", "--max-restarts=9")
        for count in range(1, 7):
            self.round_of(1, after=count - 1)
            self.tell("exit.a", "3")
            wait_for(lambda count=count: json.loads(self.ctl("status", "job", "--json"))["restarts_used"] >= count,
                     f"restart {count}")
        self.assertGreater(len(self.ctl("status", "job").splitlines()), 20)
        terminal = Terminal([MUSTERCTL, "status", "job", "--watch", f"--endpoint=127.0.0.1:{self.http_port}"])
        self.addCleanup(terminal.close)
        self.addCleanup(terminal.process.wait)
        self.addCleanup(terminal.process.kill)
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 17, 100, 0, 0))
        clear = "\x1b[H\x1b[2J"
        wait_for(lambda: terminal.read().count(clear) > 2, "two more looks")
        shown = terminal.read().split(clear)[-2].replace("\r\n", "\n")
        rows = sum(max(1, -(-len(line) // 100)) for line in shown.split("\n"))
        self.assertLessEqual(rows, 17, shown)
        self.assertTrue(shown.startswith("job  "), shown)
        self.assertRegex(shown.split("\n")[-1], r"^\(\d+ more lines: without --watch all are shown\)$")

    def test_an_id_with_anything_in_it(self):
        self.run_id = "a b #c%?\u00e9"
        self.node("a", "1")
        wait_for(lambda: json.loads(self.ctl("runs", "--json"))["total"] == 1, "the run")
        self.round_of(1)
        self.assertEqual(json.loads(self.ctl("status", self.run_id, "--json"))["id"], self.run_id)

    def test_no_server_is_3_with_a_remedy(self):
        self.musterd.kill()
        self.musterd.wait()
        for words in (["runs"], ["status", "job"], ["nodes", "job"], ["why", "job"]):
            said = self.ctl(*words, expect=3)
            self.assertIn("musterd --http", said)
            self.assertIn("ssh -L", said)

    def test_another_program_at_the_endpoint_is_3(self):
        # musterd's port for jobs does not speak HTTP.
        said = self.ctl("runs", f"--endpoint=127.0.0.1:{self.port}", expect=3)
        self.assertRegex(said, "not musterd's HTTP|reset")
        before = self.ctl(f"--endpoint=127.0.0.1:{self.port}", "runs", expect=3)
        self.assertRegex(before, "not musterd's HTTP|reset")

    def test_bad_usage_is_2(self):
        for words in ([], ["nonsense"], ["restart"], ["runs", "--endpoint=x"], ["runs", "more"], ["--nonsense"],
                      ["--completion", "ksh"], ["logs", "job"], ["logs", "job", "x"], ["stacks"], ["doctor", "--rdzv-endpoint=x"]):
            self.assertIn("musterctl: ", self.ctl(*words, expect=2))

    def test_the_only_run_needs_no_name(self):
        for command in ("status", "nodes", "why"):
            self.assertEqual(self.ctl(command, expect=4), "musterctl: this musterd has no runs: no job has met here yet\n")
        self.node("a", "2")
        self.run_is("gathering")
        wait_for(lambda: json.loads(self.ctl("runs", "--json"))["total"] == 1, "the run in the list")
        self.assertRegex(self.ctl("status"), "^job  gathering\n")
        self.assertRegex(self.ctl("why"), "^job: nothing has failed")
        self.assertRegex(self.ctl("nodes"), r"\n- .* joined ")
        self.assertEqual(json.loads(self.ctl("status", "--json"))["id"], "job")
        self.run_id = "other"
        self.node("b", "2")
        self.run_is("gathering", "other")
        wait_for(lambda: json.loads(self.ctl("runs", "--json"))["total"] == 2, "both runs in the list")
        for command in ("status", "nodes", "why"):
            said = self.ctl(command, expect=2)
            self.assertRegex(said, r"(?s)\njob +gathering .*\nother +gathering ")
            self.assertIn(f"which of the runs? Type `musterctl {command} RUN`", said)
        self.assertNotIn("gathering", self.ctl("status", "--json", expect=2))
        self.assertRegex(self.ctl("status", "other"), "^other  gathering\n")

    def test_a_wrong_rank_is_an_error_that_names_it(self):
        for rank in ("x", "1.5", "99999999999"):
            self.assertIn(f"'{rank}' is no rank", self.ctl("logs", "job", rank, expect=2))


class ConfigFile(CtlTest):
    """Without --endpoint and MUSTER_ENDPOINT, a file has musterd's endpoint."""

    def write(self, text):
        file = self.dir / "config/muster/musterctl.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def by_file(self, *words, expect=0):
        return self.ctl(*words, expect=expect,
                        env={"MUSTER_ENDPOINT": "", "XDG_CONFIG_HOME": str(self.dir / "config"), "HOME": str(self.dir)})

    def test_it_names_the_endpoint(self):
        self.write(json.dumps({"endpoint": f"127.0.0.1:{self.http_port}"}))
        self.assertIn("no runs", self.by_file("runs"))
        self.assertIn("endpoint ", self.by_file("doctor"))
        # The option on the command line has priority.
        nobody = self.by_file("runs", "--endpoint=127.0.0.1:1", expect=3)
        self.assertIn("127.0.0.1:1", nobody)

    def test_home_is_looked_at_where_there_is_no_xdg_folder(self):
        self.write(json.dumps({"endpoint": f"127.0.0.1:{self.http_port}"}))
        (self.dir / "config").rename(self.dir / ".config")
        said = self.ctl("runs", env={"MUSTER_ENDPOINT": "", "XDG_CONFIG_HOME": "", "HOME": str(self.dir)})
        self.assertIn("no runs", said)

    def test_its_files_are_beside_it_and_go_with_its_endpoint_only(self):
        file = self.write(json.dumps({"endpoint": f"127.0.0.1:{self.http_port}", "rdzv-token-file": "token"}))
        self.assertIn(str(file.parent / "token"), self.by_file("runs", expect=1))
        self.assertIn("no runs", self.by_file("runs", f"--endpoint=127.0.0.1:{self.http_port}"))

    def test_a_wrong_file_is_2_and_says_which_key(self):
        for text, said in (('{"endpoints": "a:1"}', 'did you mean "endpoint"'), ('{"endpoint": 7}', "not HOST:PORT"),
                           ('{"endpoint": ["a:1"]}', "endpoint"), ("{", "JSON"), ('{"endpoint": "x"}', "not HOST:PORT")):
            file = self.write(text)
            complaint = self.by_file("runs", expect=2)
            self.assertIn(str(file), complaint)
            self.assertIn(said, complaint)
            self.by_file("ps")  # This command connects to no musterd.
            self.by_file("doctor", "--quick")  # --preflight does not connect either.


class Ps(CtlTest):
    def mine(self):
        """The test's job among all jobs on this machine."""
        found = [job for job in json.loads(self.ctl("ps", "--json"))["jobs"] if job["run"] == self.run_id]
        return found[0] if found else None

    def test_ranks_pids_memory_and_restarts(self):
        self.run_id = f"ps-{os.getpid()}"
        self.node("a", "1", "--nproc-per-node=2", "--max-restarts=2")
        self.round_of(2)
        job = wait_for(lambda: (found := self.mine()) and len(found["workers"]) == 2 and found, "both workers")
        self.assertEqual([worker["rank"] for worker in job["workers"]], [0, 1])
        self.assertEqual((job["restarts"], job["restarts_allowed"]), (0, 2))
        self.assertGreater(job["generation"], 0)
        for worker in job["workers"]:
            self.assertGreater(worker["resident_bytes"], 1 << 20)
            self.assertIn(str(self.worker), pathlib.Path(f"/proc/{worker['pid']}/cmdline").read_text())
        self.assertEqual(pathlib.Path(f"/proc/{job['agent_pid']}/comm").read_text(), "muster-agent\n")
        self.assertRegex(self.ctl("ps"), rf"run {self.run_id}  agent {job['agent_pid']}  shim \d+  restarts 0/2")
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        wait_for(lambda: (found := self.mine()) and found["restarts"] == 1, "the restart to be seen")

    def test_a_worker_that_has_changed_its_title(self):
        """setproctitle overwrites the memory in which the kernel shows arguments and environment."""
        self.run_id = f"ps-title-{os.getpid()}"
        self.worker.write_text(OVERWRITE_ENVIRONMENT + self.worker.read_text())
        self.node("a", "1")
        self.round_of(1)
        [worker] = wait_for(self.mine, "the job")["workers"]
        self.assertIsNone(worker["rank"])
        self.assertIn(str(self.worker), pathlib.Path(f"/proc/{worker['pid']}/cmdline").read_text())
        self.assertRegex(self.ctl("ps"), rf"run {self.run_id} .*\n  RANK .*\n  - +- +{worker['pid']} ")

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_a_job_of_another_user(self):
        self.node("a", "1")
        self.round_of(1)
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            os.chmod(folder, 0o755)
            program = shutil.copy(MUSTERCTL, folder)
            done = subprocess.run([program, "ps"], capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd="/",
                                  user=65534, group=65534, extra_groups=[])
        self.assertRegex(done.stdout, r"(?m)^\d+ jobs of other users are left out")

    def test_a_job_that_waits_for_other_nodes(self):
        """No worker runs from which the run's id could be read."""
        self.run_id = f"ps waits \u00e9 {os.getpid()}"
        self.node("a", "2")
        job = wait_for(self.mine, "the job")
        self.assertEqual((job["workers"], job["restarts"]), ([], None))
        self.assertRegex(self.ctl("ps"), rf"run {self.run_id}  agent {job['agent_pid']}  .*\n  no worker runs: it waits")


class EndedRuns(CtlTest):
    def setUp(self):
        self.state = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.state)
        self.http_options = ["--http=127.0.0.1:0", f"--state-dir={self.state}", "--forget-run-seconds=0.1"]
        super().setUp()

    def test_a_failed_run_is_known_long_after_its_end_and_to_the_next_musterd(self):
        script = self.script("fails.py", "import sys\nsys.exit('the reason why')\n")
        job = self.start("--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=night",
                         "--no-python", sys.executable, script)
        self.assertEqual(job.wait(PATIENCE_S), 1)
        for _ in range(2):
            wait_for(lambda: json.loads(self.ctl("status", "night", "--json"))["first_failure_report"], "the report")
            time.sleep(0.5)  # Longer than --forget-run-seconds.
            why = self.ctl("why", "night")
            self.assertIn("exited with 1", why)
            self.assertIn("the reason why", why)
            self.assertRegex(self.ctl("runs"), r"\nnight +failed .*\(ended .* ago\)\n")
            self.assertIn("failed", self.ctl("status"))  # The only run.
            self.assertIn("the run has ended", self.ctl("logs", "night", "0", expect=1))
            self.musterd.terminate()
            self.assertEqual(self.musterd.wait(PATIENCE_S), 0)
            self.start_musterd()


class Doctor(CtlTest):
    def checks(self, *words, expect=0, env=None):
        said = json.loads(self.ctl("doctor", "--json", *words, expect=expect, env=env).strip())
        self.assertEqual(said["ok"], expect == 0)
        return {check["name"]: check for check in said["checks"]}

    def test_this_machine_and_its_musterd(self):
        checks = self.checks(f"--rdzv-endpoint=127.0.0.1:{self.port}")
        self.assertEqual(checks["clock"]["verdict"], "ok")
        self.assertEqual(checks["endpoint"]["verdict"], "ok")
        self.assertIn("nofile", checks["limit_nofile"]["found"])
        self.assertIn("lo", checks["network"]["found"])
        self.assertIn(f"{os.sysconf('SC_NPROCESSORS_ONLN')} cores", checks["machine"]["found"])
        self.assertIn("0 failures", self.ctl("doctor"))
        quick = self.checks("--quick")
        self.assertNotIn("python", quick)
        self.assertNotIn("endpoint", quick)
        self.assertIn("shared_memory", quick)

    def check_of(self, name, *options, before=(), **env):
        done = subprocess.run([*before, MUSTERCTL, "doctor", "--json", *options], capture_output=True, text=True,
                              timeout=PATIENCE_S, env={**os.environ, **env}, check=False)
        self.assertEqual(done.stderr, "")
        return next(check for check in json.loads(done.stdout)["checks"] if check["name"] == name)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_a_loopback_interface_that_is_down(self):
        check = self.check_of("loopback", "--quick", before=["unshare", "--net"])
        self.assertEqual(check["verdict"], "failure")
        self.assertIn("ip link set lo up", check["remedy"])

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_a_user_without_a_name(self):
        check = self.check_of("user", "--quick", USER="",
                              before=["setpriv", "--reuid=45678", "--clear-groups", "env", "--unset=HOME"])
        self.assertEqual(check["verdict"], "warning")
        self.assertIn("uid 45678 has no name", check["found"])

    def test_musterds_that_do_not_share_their_state(self):
        other = free_port()
        both = f"--rdzv-endpoint=127.0.0.1:{self.port},127.0.0.1:{other}"
        alone = self.checks("--quick", both)
        self.assertEqual(alone["state"]["verdict"], "warning")
        self.assertIn(f"127.0.0.1:{other} does not answer", alone["state"]["found"])
        run_musterd(self, port=other, log=self.dir / "err.other", env=self.environment())
        checks = self.checks("--quick", both, expect=1)
        self.assertEqual(checks["state"]["verdict"], "failure")
        self.assertIn(f"127.0.0.1:{other}", checks["state"]["found"])

    def test_python_is_found_on_an_image_without_coreutils(self):
        programs = self.dir / "programs"
        programs.mkdir()
        (programs / "python3").symlink_to(sys.executable)
        self.assertRegex(self.check_of("python", PATH=str(programs))["found"], rf"^{programs}/python3 is Python 3\.\d+")

    def test_why_python_has_not_answered(self):
        program = self.dir / "program"
        self.assertEqual(self.check_of("python", PATH=str(self.dir))["found"], "no python3 on PATH, and no PYTHON_EXEC")
        self.assertEqual(self.check_of("python", PYTHON_EXEC=str(program))["found"], f"PYTHON_EXEC={program} is not there")
        program.write_text("#!/bin/sh\nexit 3\n")
        self.assertEqual(self.check_of("python", PYTHON_EXEC=str(program))["found"], f"PYTHON_EXEC={program} cannot be executed")
        program.chmod(0o755)
        self.assertEqual(self.check_of("python", PYTHON_EXEC=str(program))["found"],
                         f"PYTHON_EXEC={program} has ended with exit status 3")

    def test_a_failed_check_is_1_with_a_remedy(self):
        bad = {"GLOO_SOCKET_IFNAME": "nosuch0"}
        check = self.checks(expect=1, env=bad)["interface"]
        self.assertEqual(check["verdict"], "failure")
        self.assertIn("unset GLOO_SOCKET_IFNAME", check["remedy"])
        self.assertIn("failure", self.ctl("doctor", expect=1, env=bad))
        missing = self.checks("--log-dir=/proc/nowhere", expect=1)["folder"]
        self.assertEqual(missing["verdict"], "failure")
        self.assertIn("--log-dir /proc/nowhere", missing["found"])
        missing = self.checks("--checkpoint-dir=/proc/nowhere", expect=1)["folder"]
        self.assertIn("--checkpoint-dir /proc/nowhere", missing["found"])
        self.musterd.kill()
        self.musterd.wait()
        gone = self.checks(expect=1)["endpoint"]
        self.assertIn("refused", gone["found"])
        self.assertIn("firewall", gone["remedy"])

    @unittest.skipIf("FAKE_GPUS" not in os.environ, "no FAKE_GPUS: the folder of the fake NVML that the build makes")
    def test_gpus_that_are_not_well_and_a_torch_that_sees_one(self):
        torch = self.dir / "site/torch"
        torch.mkdir(parents=True)
        (torch / "__init__.py").write_text("class cuda:\n    device_count = staticmethod(lambda: 1)\n")
        metadata = self.dir / "site/torch-9.9.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
        env = {"LD_LIBRARY_PATH": os.environ["FAKE_GPUS"], "PYTHONPATH": str(torch.parent)}
        gpus = [check for check in json.loads(self.ctl("doctor", "--json", env=env))["checks"]
                # The result about Xid errors depends on this machine's own log, which may be hidden.
                if check["name"] == "gpu" and "Xid" not in check["found"]]
        self.assertEqual([check["verdict"] for check in gpus], ["warning", "warning"], gpus)
        for text in ("GPU 1 (second): ", "slowed down by heat", "3 uncorrected memory errors", "wait for a reset"):
            self.assertIn(text, gpus[0]["found"])
        self.assertIn("the driver has 2 GPUs, torch sees 1", gpus[1]["found"])
        alone = self.checks("--quick", env=env)  # With --quick neither NVML nor torch is used.
        self.assertNotIn("gpu", alone)

    @unittest.skipIf("FAKE_GPUS" not in os.environ, "no FAKE_GPUS: the folder of the fake NVML that the build makes")
    def test_errors_of_gpus_in_the_kernels_log(self):
        log = self.dir / "kmsg"
        log.write_text("6,1,1000,-;eth0: link is up\n"
                       "4,2,2000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=71, name=python, MMU Fault\n"
                       "4,3,3000,-;NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off\n")
        # Another file takes the place of the kernel's log, for this call only.
        inside = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev/kmsg && exec "$@"', str(log))
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("needs root, a mount namespace of its own and /dev/kmsg")
        done = subprocess.run([*inside, MUSTERCTL, "doctor", "--json"], capture_output=True, text=True, check=False,
                              timeout=60, env={**os.environ, "LD_LIBRARY_PATH": os.environ["FAKE_GPUS"]})
        self.assertEqual(done.returncode, 1, done.stderr)
        found = [check for check in json.loads(done.stdout)["checks"] if "Xid" in check["found"]]
        self.assertEqual([check["verdict"] for check in found], ["failure"], found)
        self.assertIn("GPU 0000:5e:00: Xid 79, 1 time, ", found[0]["found"])
        self.assertIn("GPU has fallen off", found[0]["found"])


class Preflight(CtlTest):
    def start_musterd(self):
        self.http_port = 9

    def all_output(self):
        return ""

    def launch(self, *options, env=None):
        return subprocess.run([MUSTER, *options, "--no-python", "--nproc-per-node=1", "touch", str(self.dir / "trained")],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=self.environment(**(env or {})))

    def test_a_machine_that_is_fit_takes_part(self):
        done = self.launch("--preflight")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.dir / "trained").exists())

    def test_a_machine_that_is_not_fit_does_not(self):
        report = self.dir / "report.json"
        bad = {"NCCL_SOCKET_IFNAME": "nosuch0"}
        done = self.launch("--preflight", f"--failure-report={report}", env=bad)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("--preflight: this machine takes no part in the job: interface: ", done.stderr)
        self.assertIn("unset NCCL_SOCKET_IFNAME", done.stderr)
        self.assertFalse((self.dir / "trained").exists())
        self.assertEqual(json.loads(report.read_text())["ended_by"], "refused")
        by_variable = self.launch(env={**bad, "MUSTER_PREFLIGHT": "1"})
        self.assertEqual(by_variable.returncode, 1, by_variable.stderr)
        self.assertEqual(self.launch(env=bad).returncode, 0)  # The check is not asked for here.

    def test_without_musterctl_beside_it(self):
        alone = self.dir / "alone/muster"
        alone.parent.mkdir()
        shutil.copy(MUSTER, alone)
        done = subprocess.run([alone, "--preflight", "--no-python", "true"], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False, env=self.environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("it is installed with muster", done.stderr)

    def test_a_signal_during_the_check_ends_the_first_process_of_a_container(self):
        """For the first process of a pid namespace the kernel drops signals with the default action."""
        own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if subprocess.run([*own, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a pid namespace needs root")
        place = self.dir / "alone"
        place.mkdir()
        shutil.copy(MUSTER, place / "muster")
        (place / "musterctl").write_text(f"#!/bin/sh\ntouch {self.dir}/checks\nexec sleep 1000\n")
        (place / "musterctl").chmod(0o755)
        container = subprocess.Popen(
            [*own, place / "muster", "--standalone", "--preflight", "--no-python", "touch", self.dir / "trained"],
            env=self.environment(), stderr=subprocess.PIPE)
        self.addCleanup(container.stderr.close)
        self.addCleanup(container.kill)
        wait_for(lambda: (self.dir / "checks").exists(), "the check")
        children = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        self.assertEqual(container.wait(PATIENCE_S), 128 + signal.SIGTERM)
        self.assertFalse((self.dir / "trained").exists())


class Documents(CtlTest):
    def start_musterd(self):
        self.http_port = 9

    def all_output(self):
        return ""

    def test_the_man_page_has_every_command_and_option(self):
        page = (SOURCE / "docs/musterctl.1").read_text().replace("\\", "")
        commands = re.findall(r"^  (\w+) ", self.ctl("--help").split("Subcommands:")[1], re.MULTILINE)
        self.assertGreater(len(commands), 5)
        for command in commands:
            self.assertRegex(page, rf"(?m)^\.B {command}\b")
            for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", self.ctl(command, "--help"))):
                self.assertIn(option, page, f"{command} {option}")
        for code in "01234":
            self.assertRegex(page, rf"(?m)^\.B {code}$")

    def test_completion_in_each_shell(self):
        script = self.dir / "completion"
        programs = {
            "bash": ["-c", f"source {script}; COMP_WORDS=(musterctl do); COMP_CWORD=1; _musterctl; echo ${{COMPREPLY[*]}}"],
            "zsh": ["-fc", f"compdef() {{ :; }}; source {script} && echo doctor"],
            "fish": ["-c", f"source {script}; complete -C 'musterctl do'"]}
        for shell, words in programs.items():
            script.write_text(self.ctl("--completion", shell))
            if shutil.which(shell) is None:
                continue
            said = subprocess.run([shell, *words], capture_output=True, text=True, timeout=60, check=True)
            self.assertIn("doctor", said.stdout, shell)
            self.assertEqual(said.stderr, "", shell)
            for command in ("runs", "status", "nodes", "why", "logs", "stacks", "ps", "doctor"):
                self.assertIn(command, script.read_text(), shell)


if __name__ == "__main__":
    main()
