#!/usr/bin/env python3
"""Runs the recipes of configs/. Network namespaces are the hosts, and the test provides the
variables, names and addresses that Slurm, Docker and Kubernetes would provide."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import lan
from support import MUSTER, PATIENCE_S, SOURCE, MusterTest, wait_for
from musterd import MUSTERD

try:
    import yaml
except ImportError:
    yaml = None

CONFIGS = SOURCE / "configs"
NODES = 2
WORKERS_PER_NODE = 2

# Records its environment, and checks that it can connect to the store at MASTER_ADDR if the agent
# hosts it.
WORKER = """
import json, os, socket, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS")
told = {name: os.environ[name] for name in names}
if os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True":
    socket.create_connection((told["MASTER_ADDR"], int(told["MASTER_PORT"])), 30).close()
told["host"], told["arguments"] = socket.gethostname(), sys.argv[1:]
fd = os.open(os.environ["TEST_DIR"] + "/told", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
os.write(fd, (json.dumps(told) + "\\n").encode())
"""

# The same worker with torch, which is the purpose of the recipes.
TORCH_WORKER = WORKER + """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
assert total.item() == sum(range(1, dist.get_world_size() + 1)), total
dist.destroy_process_group()
"""

# Starts one task on each node with the variables that Slurm sets. Knows the options that the
# recipes use.
SRUN = """#!/usr/bin/env python3
import argparse, json, os, subprocess, sys, time
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--ntasks-per-node", type=int, required=True)
parser.add_argument("--kill-on-bad-exit", type=int, choices=[0, 1], required=True)
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
hosts = json.loads(os.environ["FAKE_HOSTS"])
assert len(hosts) == int(os.environ["SLURM_NNODES"]), options
assert options.ntasks_per_node == 1 and os.environ["SRUN_CPUS_PER_TASK"] == "4", options
tasks = []
for i, enter in enumerate(hosts):
    environment = {**os.environ, "SLURM_NODEID": str(i), "SLURM_PROCID": str(i), "SLURM_LOCALID": "0",
                   "SLURM_NTASKS": str(len(hosts)), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": str(len(hosts)),
                   "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"],
                   "SLURM_STEP_TASKS_PER_NODE": f"1(x{len(hosts)})"}
    tasks.append(subprocess.Popen([*enter, *options.command], env=environment))
while any(task.poll() is None for task in tasks):
    if options.kill_on_bad_exit and any(task.returncode for task in tasks):
        for task in tasks:
            task.terminate()
    time.sleep(0.01)
sys.exit(max(abs(task.returncode) for task in tasks))
"""

def load(name):
    return list(yaml.safe_load_all((CONFIGS / name).read_text()))


def substituted(text, variables):
    """Replaces ${NAME} and ${NAME:-default} as compose does."""
    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda m: variables.get(m[1]) or m[2] or "", text)


def entry_point():
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", (CONFIGS / "docker/Dockerfile").read_text(),
                                re.MULTILINE)[1])


class Recipes(MusterTest):
    def setUp(self):
        super().setUp()
        self.programs = self.dir / "bin"
        self.programs.mkdir()
        for name, target in (("muster", MUSTER), ("musterd", MUSTERD)):
            (self.programs / name).symlink_to(os.path.abspath(target))
        (self.dir / "digits").mkdir()
        self.worker = self.script("digits/train.py", WORKER)

    def hosts(self, *names, **aliases):
        self.lan = lan.Lan(self.dir, names, aliases={k.replace("_", "-"): v for k, v in aliases.items()})
        self.addCleanup(self.lan.close)

    def run_on(self, enter, command, **variables):
        """Starts the command. Its environment has only what a container or a job would have."""
        name = f"out{len(list(self.dir.glob('out*')))}"
        out = open(self.dir / name, "wb")
        self.addCleanup(out.close)
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", "TEST_DIR": str(self.dir),
                       "TMPDIR": str(self.dir / "tmp"), **dict([self.token.text.split("=")]),
                       **variables}
        process = subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   env=environment, cwd=self.dir)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def outputs(self):
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.dir.glob("out*")))

    def end_well(self, *processes):
        for process in processes:
            try:
                code = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"does not end\n{self.outputs()}") from None
            self.assertEqual(code, 0, self.outputs())

    def check_world(self, hosts, workers=WORKERS_PER_NODE):
        """Checks that every rank exists once, that the nodes are in this order and that there is
        one store. Returns one worker's record."""
        told = sorted(map(json.loads, self.read("told").splitlines()), key=lambda t: int(t["RANK"]))
        self.assertEqual([int(t["RANK"]) for t in told], list(range(workers * len(hosts))), told)
        self.assertEqual([t["host"] for t in told], [h for h in hosts for _ in range(workers)], told)
        self.assertEqual([int(t["LOCAL_RANK"]) for t in told], list(range(workers)) * len(hosts))
        self.assertEqual({t["WORLD_SIZE"] for t in told}, {str(workers * len(hosts))})
        [master] = {t["MASTER_ADDR"] for t in told}
        self.assertIn(master, self.lan.names[hosts[0]])
        self.assertEqual(len({t["MASTER_PORT"] for t in told}), 1, told)
        return told[-1]

    # Slurm

    def sbatch(self, script, *arguments, **variables):
        """Runs the script on the first node with the variables that Slurm sets."""
        (self.programs / "srun").write_text(SRUN)
        (self.programs / "srun").chmod(0o755)
        enters = [self.lan.on(f"node{i}") for i in (1, 2)]
        return self.run_on(enters[0], ["bash", str(CONFIGS / "slurm" / script), *arguments],
                           SLURM_JOB_ID="1234567", SLURM_JOB_NODELIST="node[1-2]",
                           SLURM_NNODES=str(NODES), SLURM_CPUS_PER_TASK="4",
                           PET_NPROC_PER_NODE=str(WORKERS_PER_NODE), FAKE_HOSTS=json.dumps(enters),
                           **variables)

    def test_slurm(self):
        self.hosts("node1", "node2")
        self.end_well(self.sbatch("train.sbatch", str(self.worker), "--epochs", "10", "a b"))
        told = self.check_world(["node1", "node2"])
        self.assertEqual(told["arguments"], ["--epochs", "10", "a b"])
        self.assertEqual(told["TORCHELASTIC_RUN_ID"], "slurm-1234567.0")
        self.assertEqual(told["TORCHELASTIC_MAX_RESTARTS"], "3")

    def test_slurm_with_a_rendezvous_elsewhere(self):
        self.hosts("node1", "node2", "login")
        musterd = self.run_on(self.lan.on("login"), ["musterd", "--port=29400"])
        wait_for(lambda: "listening" in self.outputs(), "musterd")
        self.end_well(self.sbatch("train.sbatch", str(self.worker), PET_RDZV_ENDPOINT="login:29400"))
        self.check_world(["node1", "node2"])
        self.assertIsNone(musterd.poll())

    def test_slurm_in_the_older_style(self):
        self.hosts("node1", "node2")
        self.end_well(self.sbatch("train_static.sbatch", str(self.worker), "a b"))
        told = self.check_world(["node1", "node2"])
        self.assertEqual(told["MASTER_ADDR"], "node1")
        self.assertEqual(told["MASTER_PORT"], str(20000 + 1234567 % 9000))
        self.assertEqual(told["arguments"], ["a b"])

    def test_slurm_with_torch(self):
        python = SOURCE / ".venv/bin/python"
        if not python.exists():
            self.skipTest("no torch in .venv")
        for script in ("train.sbatch", "train_static.sbatch"):
            with self.subTest(script=script):
                self.hosts("node1", "node2")
                self.end_well(self.sbatch(script, str(self.script("torch_worker.py", TORCH_WORKER)),
                                          PYTHON_EXEC=str(python)))
                self.check_world(["node1", "node2"])
                os.remove(self.dir / "told")

    def test_a_failed_job_is_slurms_failure(self):
        self.hosts("node1", "node2")
        self.script("digits/train.py", "import sys; sys.exit(3)\n")
        process = self.sbatch("train.sbatch", str(self.worker), PET_MAX_RESTARTS="0")
        self.assertEqual(process.wait(PATIENCE_S), 1, self.outputs())
        self.assertIn("exitcode  : 3", self.outputs())

    def test_the_batch_scripts_are_sound(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed")
        subprocess.run(["shellcheck", *sorted(CONFIGS.glob("slurm/*.sbatch"))], check=True)

    # Docker

    def service(self, name, host):
        [compose] = load("docker/compose.yaml")
        service = compose["services"][name]
        command = [*service.get("entrypoint", entry_point()), *service["command"]]
        variables = {k: substituted(v, {"NPROC_PER_NODE": str(WORKERS_PER_NODE)})
                     for k, v in service.get("environment", {}).items()}
        return self.run_on(self.lan.in_container_on(host), command, **variables)

    def test_docker_compose(self):
        self.hosts("rendezvous", "node-1", "node-2")
        # Docker may start the rendezvous last.
        nodes = [self.service("node", f"node-{i}") for i in (1, 2)]
        wait_for(lambda: len([c for c in self.token.processes().values() if "train.py" in c]) >= 2,
                 "the nodes")
        self.service("rendezvous", "rendezvous")
        self.end_well(*nodes)
        hosts = [t["host"] for t in map(json.loads, self.read("told").splitlines())]
        self.assertEqual(sorted(hosts), ["node-1"] * WORKERS_PER_NODE + ["node-2"] * WORKERS_PER_NODE)

    # Kubernetes

    def pod(self, host, spec, replaced=None, **injected):
        """Starts the only container of a pod. Replaces $(NAME) in variables and command as
        Kubernetes does."""
        [container] = spec["containers"]
        variables = dict(injected)

        def expanded(text):
            return re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], text)
        fields = {"metadata.namespace": "jobs"}
        for entry in container.get("env", []):
            variables[entry["name"]] = expanded(entry["value"]) if "value" in entry else \
                fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        variables.update(replaced or {})
        command = [expanded(word) for word in container["command"] + container.get("args", [])]
        return self.run_on(self.lan.in_container_on(host), command, **variables)

    def test_kubernetes_job(self):
        _, job = load("kubernetes/job.yaml")
        domain = "train.jobs.svc.cluster.local"
        self.hosts("train-0", "train-1", train_0=[f"train-0.{domain}"], train_1=[f"train-1.{domain}"])
        spec = job["spec"]["template"]["spec"]
        pods = [self.pod(f"train-{i}", spec, JOB_COMPLETION_INDEX=str(i)) for i in (1, 0)]
        self.end_well(*pods)
        self.check_world(["train-0", "train-1"])

    def test_kubernetes_job_with_musterd(self):
        _, job = load("kubernetes/job.yaml")
        service, deployment = load("kubernetes/musterd.yaml")
        self.hosts("train-0", "train-1", service["metadata"]["name"])
        self.pod("musterd", deployment["spec"]["template"]["spec"])
        spec = job["spec"]["template"]["spec"]
        endpoint = {"PET_RDZV_ENDPOINT": f"musterd:{service['spec']['ports'][0]['port']}"}
        pods = [self.pod(f"train-{i}", spec, endpoint, JOB_COMPLETION_INDEX=str(i)) for i in (1, 0)]
        self.end_well(*pods)
        self.check_world(["train-0", "train-1"])

    def test_kubeflow(self):
        [job] = load("kubernetes/pytorchjob.yaml")
        self.hosts("train-master-0", "train-worker-0")
        pods = []
        for rank, kind in ((1, "Worker"), (0, "Master")):
            # The variables of the training operator (1.7 to 1.9).
            common = {"PYTHONUNBUFFERED": "1", "MASTER_PORT": "23456", "PET_MASTER_PORT": "23456",
                      "MASTER_ADDR": "train-master-0", "PET_MASTER_ADDR": "train-master-0",
                      "WORLD_SIZE": "4", "RANK": str(rank), "PET_NODE_RANK": str(rank),
                      "PET_NPROC_PER_NODE": job["spec"]["nprocPerNode"], "PET_NNODES": str(NODES)}
            spec = job["spec"]["pytorchReplicaSpecs"][kind]["template"]["spec"]
            pods.append(self.pod(f"train-{kind.lower()}-0", spec, **common))
        self.end_well(*pods)
        told = self.check_world(["train-master-0", "train-worker-0"])
        self.assertEqual((told["MASTER_ADDR"], told["MASTER_PORT"]), ("train-master-0", "23456"))


if __name__ == "__main__":
    reason = "PyYAML is not installed (python3-yaml)" if yaml is None else lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
