#!/usr/bin/env python3
"""Runs `muster --cluster` under the real Slurm and Open MPI, on hosts in network namespaces. What is not installed is
skipped (Debian: slurmctld slurmd slurm-client, openmpi-bin)."""
import json
import os
import shutil
import subprocess
import sys

import lan
from support import MUSTER, PATIENCE_S, SOURCE, MusterTest, wait_for

# Records its environment. With torch it also trains: the sum over all ranks shows that they have met.
WORKER = """
import json, os, socket, sys
names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
told = {name: os.environ[name] for name in names}
told["host"], told["arguments"] = socket.gethostname(), sys.argv[1:]
if os.environ.get("TEST_TORCH"):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    assert total.item() == sum(range(1, dist.get_world_size() + 1)), total
    dist.destroy_process_group()
fd = os.open(os.environ["TEST_DIR"] + "/told", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
os.write(fd, (json.dumps(told) + "\\n").encode())
"""

# Saves when it is told that its job's time ends. Started again, it goes on with what was saved.
SAVES = """
import os, socket, sys, time
import muster_worker
def write(name, *words):
    fd = os.open(os.environ["TEST_DIR"] + "/" + name, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(fd, (" ".join([socket.gethostname(), os.environ["RANK"], *words]) + "\\n").encode())
if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
    assert len(open("saved").readlines()) == 2
    write("went-on")
    sys.exit(0)
muster_worker.ends_itself()
while muster_worker.notice() is None:
    time.sleep(0.1)
notice = muster_worker.notice()
write("saved", notice.follow, notice.reason)
muster_worker.saved()
"""

# The hosts share files, so one folder has the state of all daemons. Without cgroups and munge: these tests are about
# the variables that srun sets.
SLURM_CONF = """
ClusterName=test
SlurmctldHost=node1
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
ReturnToService=2
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class Clusters(MusterTest):
    def hosts(self, *names):
        self.names = names
        self.lan = lan.Lan(self.dir, names)
        self.addCleanup(self.lan.close)
        (self.dir / "bin").mkdir()
        (self.dir / "bin/muster").symlink_to(os.path.abspath(MUSTER))
        self.worker = self.script("train.py", WORKER)

    def on(self, name, *command, **variables):
        path = self.dir / f"out{len(list(self.dir.glob('out*')))}"
        with open(path, "wb") as out:
            process = subprocess.Popen(
                [*self.lan.on(name), *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.dir,
                env={"PATH": f"{self.dir}/bin:{os.environ['PATH']}", "HOME": str(self.dir), "TMPDIR": str(self.dir / "tmp"),
                     "TEST_DIR": str(self.dir), **dict([self.token.text.split("=")]), **self.torch(), **variables})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.out = path
        return process

    @staticmethod
    def torch():
        python = SOURCE / ".venv/bin/python"
        return {"PYTHON_EXEC": str(python), "TEST_TORCH": "1"} if python.exists() else {}

    def end_well(self, process):
        code = process.wait(PATIENCE_S)
        output = process.out.read_text()
        self.assertEqual(code, 0, output)
        return output

    def check_world(self, workers=1):
        """Each rank was there once, in the order of the hosts. Returns what one worker has told."""
        told = sorted(map(json.loads, self.read("told").splitlines()), key=lambda t: int(t["RANK"]))
        self.assertEqual([t["host"] for t in told], [name for name in self.names for _ in range(workers)], told)
        self.assertEqual({t["WORLD_SIZE"] for t in told}, {str(workers * len(self.names))})
        (self.dir / "told").unlink()
        return told[-1]


class OpenMpi(Clusters):
    def setUp(self):
        super().setUp()
        if shutil.which("mpirun") is None or "Open MPI" not in subprocess.run(
                ["mpirun", "--version"], capture_output=True, text=True, check=False).stdout:
            self.skipTest("Open MPI's mpirun is not installed")

    def mpirun(self, *words):
        cases = "".join(f"{name}) exec {' '.join(self.lan.on(name))} sh -c \"$*\" ;;\n" for name in self.names)
        agent = self.script("agent", f"#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}esac\n")
        return self.on(self.names[0], "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(agent),
                       "--mca", "orte_keep_fqdn_hostnames", "1", "--host", ",".join(f"{n}:4" for n in self.names),
                       *words)

    def test_one_muster_on_each_host_is_one_job(self):
        self.hosts("node1", "node2", "node3")
        self.end_well(self.mpirun("--map-by", "ppr:1:node", "muster", "--cluster", str(self.worker), "--epochs", "2"))
        told = self.check_world()
        self.assertEqual(told["arguments"], ["--epochs", "2"])
        self.assertRegex(told["TORCHELASTIC_RUN_ID"], r"^mpi-\d+$")

    def test_without_the_option_it_is_named(self):
        self.hosts("node1", "node2")
        output = self.end_well(self.mpirun("--map-by", "ppr:1:node", "muster", "--no-python", "true"))
        self.assertEqual(output.count("OMPI_COMM_WORLD_SIZE is 2, but the options describe"), 2, output)
        output = self.mpirun("--map-by", "ppr:2:node", "muster", "--cluster", str(self.worker))
        self.assertNotEqual(output.wait(PATIENCE_S), 0)
        self.assertIn("OMPI_COMM_WORLD_LOCAL_SIZE is 2", output.out.read_text())


class Slurm(Clusters):
    def setUp(self):
        super().setUp()
        for program in ("slurmctld", "slurmd", "srun"):
            if shutil.which(program) is None:
                self.skipTest(f"{program} is not installed")

    def begin_cluster(self, *names):
        self.hosts(*names)
        (self.dir / "state").mkdir()
        nodes = "\n".join(f"NodeName={name} CPUs=2 Boards=1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 State=UNKNOWN"
                          for name in names)
        conf = self.dir / "slurm.conf"
        conf.write_text(SLURM_CONF.format(folder=self.dir, nodes=nodes, names=",".join(names)))
        self.variables = {"SLURM_CONF": str(conf)}
        daemons = [self.on(names[0], "slurmctld", "-D", "-f", str(conf))]
        for name in names:
            (self.dir / f"spool.{name}").mkdir()
            daemons.append(self.on(name, "slurmd", "-D", "-N", name, "-f", str(conf)))

        def up():
            for daemon in daemons:
                self.assertIsNone(daemon.poll(), daemon.out.read_text())
            states = subprocess.run([*self.lan.on(names[0]), "sinfo", "--noheader", "--Node", "--format=%T"],
                                    env={**os.environ, **self.variables}, capture_output=True, text=True,
                                    check=False)
            return states.stdout.split() == ["idle"] * len(names)
        wait_for(up, "Slurm's nodes")

    def srun(self, *words):
        return self.on(self.names[0], "srun", *words, **self.variables)

    def test_srun_on_each_node_is_one_job(self):
        self.begin_cluster("node1", "node2")
        self.end_well(self.srun("--nodes=2", "--ntasks-per-node=1", "muster", "--cluster", str(self.worker), "a b"))
        told = self.check_world()
        self.assertEqual(told["arguments"], ["a b"])
        self.assertRegex(told["TORCHELASTIC_RUN_ID"], r"^slurm-\d+\.0$")
        self.end_well(self.srun("--nodes=2", "--ntasks-per-node=1", "muster", "--cluster", "--nproc-per-node=2",
                                str(self.worker)))
        self.check_world(workers=2)

    def test_a_batch_script_and_what_goes_wrong(self):
        self.begin_cluster("node1", "node2")
        batch = shutil.which("sbatch")
        script = self.script("job.sbatch", "#!/bin/sh\nsrun --ntasks-per-node=1 muster --cluster train.py\n")
        self.end_well(self.on("node1", batch, "--wait", "--nodes=2", "--output=batch.log", str(script), **self.variables))
        self.check_world()
        output = self.end_well(self.srun("--nodes=2", "--ntasks-per-node=1", "muster", "--no-python", "true"))
        self.assertEqual(output.count("SLURM_STEP_NUM_NODES is 2, but the options describe"), 2, output)
        done = self.srun("--nodes=2", "--ntasks-per-node=2", "muster", "--cluster", str(self.worker))
        self.assertNotEqual(done.wait(PATIENCE_S), 0)
        self.assertIn("SLURM_STEP_TASKS_PER_NODE is '2(x2)'", done.out.read_text())
        without = self.script("without.sbatch", "#!/bin/sh\nmuster --cluster train.py\n")
        done = self.on("node1", batch, "--wait", "--nodes=2", "--output=without.log", str(without), **self.variables)
        self.assertNotEqual(done.wait(PATIENCE_S), 0)
        self.assertIn("SLURM_STEP_ID is not set: this muster was started without srun", self.read("without.log"))

    def test_a_job_that_slurm_warns_saves_is_requeued_and_goes_on(self):
        self.begin_cluster("node1", "node2")
        (self.dir / "train.py").write_text(SAVES)
        # The signal comes 50 s before the end of the minute, or earlier: Slurm looks now and then.
        script = self.script("job.sbatch", """#!/bin/sh
#SBATCH --nodes=2
#SBATCH --time=1
#SBATCH --signal=USR1@50
#SBATCH --requeue
#SBATCH --open-mode=append
srun --ntasks-per-node=1 muster --cluster --exit-code=propagate --notice-signals=SIGUSR1@50 train.py
[ $? = 75 ] && scontrol requeue "$SLURM_JOB_ID"
""")
        self.end_well(self.on("node1", shutil.which("sbatch"), "--output=batch.log", str(script),
                              PYTHONPATH=str(SOURCE / "worker_sdk/python"), **self.variables))

        def ended():
            return self.read("went-on").count("\n") == 2
        try:
            wait_for(ended, "the requeued job", bound_s=4 * PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.read('batch.log')}\n{self.read('slurmctld.log')}") from None
        self.assertEqual(sorted(self.read("saved").splitlines()), ["node1 0 stop SIGUSR1", "node2 1 stop SIGUSR1"])
        self.assertEqual(sorted(self.read("went-on").splitlines()), ["node1 0", "node2 1"])


if __name__ == "__main__":
    if lan.why_not() is None and not (shutil.which("mpirun") or shutil.which("srun")):
        print("skipped: neither Slurm (slurmctld slurmd slurm-client) nor Open MPI (openmpi-bin) is installed")
        sys.exit(77)
    lan.main()
