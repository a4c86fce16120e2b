#!/usr/bin/env python3
"""Tests the files in configs/ without running them: their references, fields and variables."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from support import SOURCE

try:
    import yaml
except ImportError:
    yaml = None

CONFIGS = SOURCE / "configs"
SHUTDOWN_TIMEOUT_S = 30  # muster's default. A recipe that kills muster must wait longer than this.

# The compose specification: all top-level fields, and the fields of a service that are used here.
COMPOSE_TOP = {"name", "services", "networks", "volumes", "configs", "secrets"}
COMPOSE_SERVICE = {
    "image": str, "build": dict, "entrypoint": list, "command": list, "environment": dict,
    "depends_on": list, "deploy": dict, "restart": str, "read_only": bool, "cap_drop": list,
    "ulimits": dict, "stop_grace_period": str, "shm_size": str}


def text(name):
    return (CONFIGS / name).read_text()


def load(name):
    return list(yaml.safe_load_all(text(name)))


def seconds(duration):
    return int(re.fullmatch(r"(\d+)s", duration)[1])


class Variables(unittest.TestCase):
    def test_every_variable_is_one_that_muster_reads(self):
        page = pathlib.Path(os.environ["MUSTER_BUILD"]) / "share/man/man1/muster.1"
        known = set(re.findall(r"\b(?:PET|MUSTER)_[A-Z_]+\b", page.read_text().replace("\\", "")))
        self.assertIn("PET_NNODES", known)
        # The variables of musterd.service and muster@.service.
        known |= {"MUSTERD_OPTIONS", "MUSTER_COMMAND"}
        used = {}
        for path in CONFIGS.rglob("*"):
            # CMake's variables are not muster's.
            if path.is_file() and path.name not in ("CMakeLists.txt", "Dockerfile"):
                for name in re.findall(r"\b(?:PET|MUSTERD?)_[A-Z_]+[A-Z]\b", path.read_text()):
                    used.setdefault(name, path.name)
        self.assertIn("PET_RDZV_ENDPOINT", used)
        self.assertEqual({n: f for n, f in used.items() if n not in known}, {})

    def test_the_job_file_is_what_systemd_reads(self):
        for name in ("job.conf", "musterd.default"):
            for line in text(name).splitlines():
                self.assertRegex(line, r'^(#.*|[A-Z_]+=("[^"]*"|[^"\'\\]*)|)$', name)

    def test_managers_wait_longer_than_the_shutdown_timeout_before_they_kill(self):
        stop = re.search(r"^TimeoutStopSec=(\d+)s$", text("muster@.service"), re.MULTILINE)
        self.assertGreater(int(stop[1]), SHUTDOWN_TIMEOUT_S)
        for script in sorted(CONFIGS.glob("slurm/*.sbatch")):
            before = re.search(r"^#SBATCH --signal=TERM@(\d+)$", script.read_text(), re.MULTILINE)
            self.assertGreater(int(before[1]), SHUTDOWN_TIMEOUT_S, script)


class Docker(unittest.TestCase):
    def test_the_compose_file_is_one(self):
        [compose] = load("docker/compose.yaml")
        self.assertLessEqual(set(compose), COMPOSE_TOP)
        for name, service in compose["services"].items():
            with self.subTest(service=name):
                self.assertRegex(name, r"^[a-zA-Z0-9._-]+$")
                for key, value in service.items():
                    self.assertIsInstance(value, COMPOSE_SERVICE[key], key)
                self.assertLessEqual(set(service.get("depends_on", [])), set(compose["services"]))
                self.assertIn(service.get("restart", "no"), ("no", "always", "on-failure", "unless-stopped"))
                self.assertTrue(all(isinstance(v, (str, int)) for v in service.get("environment", {}).values()))
                self.assertRegex(service.get("shm_size", "1gb"), r"^\d+[kmg]b$")
                if "build" in service:
                    context = (CONFIGS / "docker" / service["build"]["context"]).resolve()
                    self.assertEqual(context, SOURCE)
                    self.assertTrue((context / service["build"]["dockerfile"]).exists())

    def test_the_nodes_find_their_rendezvous(self):
        [compose] = load("docker/compose.yaml")
        node = compose["services"]["node"]
        host, port = node["environment"]["PET_RDZV_ENDPOINT"].split(":")
        self.assertIn(f"--port={port}", compose["services"][host]["command"])
        self.assertEqual(node["environment"]["PET_NNODES"], f"${{NNODES:-{node['deploy']['replicas']}}}")
        self.assertGreater(seconds(node["stop_grace_period"]), SHUTDOWN_TIMEOUT_S)

    def test_docker_agrees(self):
        compose = next((c for c in (["docker", "compose"], ["docker-compose"])
                        if shutil.which(c[0]) and
                        subprocess.run([*c, "version"], capture_output=True, check=False).returncode == 0), None)
        if compose is None:
            self.skipTest("docker compose is not installed")
        done = subprocess.run([*compose, "-f", str(CONFIGS / "docker/compose.yaml"), "config", "-q"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_image_installs_the_wheel(self):
        dockerfile = text("docker/Dockerfile").replace("\\\n", " ")
        install = re.search(r"^RUN pip install (.*)$", dockerfile, re.MULTILINE)[1]
        name = re.search(r'^name = "(.*)"$', (SOURCE / "pyproject.toml").read_text(), re.MULTILINE)[1]
        self.assertIn(f" {name} ", install)
        folder = re.search(r"--find-links (\S+)", install)[1]
        self.assertIn(f"COPY build/packages/*.whl {folder}/\n", dockerfile)
        ignored = text("docker/Dockerfile.dockerignore").splitlines()
        self.assertGreater(ignored.index("!build/packages"), ignored.index("build/*"))

    def test_the_image_copies_files_that_exist(self):
        copied = re.findall(r"^COPY (\S+) \S+$", text("docker/Dockerfile"), re.MULTILINE)
        self.assertIn("examples/digits", copied)
        for path in copied:
            self.assertTrue(path.startswith("build/packages/") or (SOURCE / path).exists(), path)


class Kubernetes(unittest.TestCase):
    def check_pod(self, spec):
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        for container in spec["containers"]:
            self.assertRegex(container["name"], r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
            self.assertTrue(container["image"])
            self.assertEqual({m["name"] for m in container.get("volumeMounts", [])}, volumes)
            seen = set()
            for entry in container.get("env", []):
                if "valueFrom" not in entry:
                    # Kubernetes refuses a value that is a number.
                    self.assertIsInstance(entry["value"], str, entry)
                    # Kubernetes substitutes only variables that are defined above.
                    self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", entry["value"])), seen)
                seen.add(entry["name"])
            for word in container["command"] + container.get("args", []):
                self.assertIsInstance(word, str)

    def environment(self, spec):
        return {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}

    def test_kinds_and_versions(self):
        self.assertEqual([(r["apiVersion"], r["kind"]) for name in ("job", "musterd", "pytorchjob")
                          for r in load(f"kubernetes/{name}.yaml")],
                         [("v1", "Service"), ("batch/v1", "Job"), ("v1", "Service"),
                          ("apps/v1", "Deployment"), ("kubeflow.org/v1", "PyTorchJob")])

    def test_the_job_and_its_names(self):
        service, job = load("kubernetes/job.yaml")
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        self.check_pod(pod)
        self.assertEqual(service["spec"]["clusterIP"], "None")
        # The label that the job controller sets.
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(spec["completionMode"], "Indexed")
        variables = self.environment(pod)
        # It finds pod 0 by the pod's own name in /etc/hosts, which the service gives it.
        self.assertEqual(pod["containers"][0]["command"], ["muster", "--cluster"])
        self.assertEqual(int(variables["PET_NNODES"]), spec["completions"])
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertGreater(pod["terminationGracePeriodSeconds"], SHUTDOWN_TIMEOUT_S)

    def test_the_job_fails_when_muster_says_so_and_not_when_a_node_is_drained(self):
        _, job = load("kubernetes/job.yaml")
        # The pod failure policy requires it.
        self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")
        # The first rule that matches decides, and a drained muster ends with 1, too.
        ignore, notice, fail = job["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual((notice["action"], notice["onExitCodes"]["values"]), ("Ignore", [75]))
        self.assertEqual((fail["action"], fail["onExitCodes"]["values"]), ("FailJob", [1, 2, 70]))
        for rule in (notice, fail):
            self.assertEqual((rule["onExitCodes"]["operator"], rule["onExitCodes"]["containerName"]),
                             ("In", job["spec"]["template"]["spec"]["containers"][0]["name"]))
        self.assertEqual((ignore["action"], ignore["onPodConditions"][0]["type"]),
                         ("Ignore", "DisruptionTarget"))

    def test_musterd_and_its_names(self):
        service, deployment = load("kubernetes/musterd.yaml")
        template = deployment["spec"]["template"]
        self.check_pod(template["spec"])
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
        self.assertEqual(service["spec"]["selector"], template["metadata"]["labels"])
        [container] = template["spec"]["containers"]
        [port], [target] = service["spec"]["ports"], container["ports"]
        self.assertEqual(port["targetPort"], target["name"])
        self.assertEqual(port["port"], target["containerPort"])
        self.assertIn(f"--port={target['containerPort']}", container["args"])
        for probe in ("readinessProbe", "livenessProbe"):
            self.assertEqual(container[probe]["tcpSocket"]["port"], target["name"])
        self.assertEqual(deployment["spec"]["replicas"], 1)

    def test_kubeflows_job(self):
        [job] = load("kubernetes/pytorchjob.yaml")
        self.assertIsInstance(job["spec"]["nprocPerNode"], str)
        self.assertEqual(set(job["spec"]["pytorchReplicaSpecs"]), {"Master", "Worker"})
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            self.check_pod(replica["template"]["spec"])
            # The operator looks for a container with this name.
            self.assertEqual(replica["template"]["spec"]["containers"][0]["name"], "pytorch")

    def test_the_schemas_of_kubernetes_agree(self):
        python = SOURCE / ".venv/bin/python"
        if not python.exists() or subprocess.run([python, "-c", "import kubernetes_validate"],
                                                 capture_output=True, check=False).returncode != 0:
            self.skipTest("kubernetes-validate is not installed in .venv")
        resources = [one for name in ("job", "musterd") for one in load(f"kubernetes/{name}.yaml")]
        validate = ("import json, sys, kubernetes_validate\n"
                    "for one in json.load(sys.stdin): kubernetes_validate.validate(one, '1.31', strict=True)")

        def verdict(given):
            return subprocess.run([python, "-c", validate], input=json.dumps(given), text=True,
                                  capture_output=True, check=False)
        done = verdict(resources)
        self.assertEqual(done.returncode, 0, done.stderr)
        resources[0]["spec"]["no_such_field"] = 1
        self.assertNotEqual(verdict(resources).returncode, 0)


if __name__ == "__main__":
    if yaml is None:
        print("skipped: PyYAML is not installed (python3-yaml)")
        sys.exit(77)
    unittest.main(verbosity=2)
