#!/usr/bin/env python3
"""Runs `ddprun --dry-run` with the command and the environment that the manifests of examples/kubernetes give each pod.

The variables that Kubernetes and the training operator add are computed here, by the rules of
https://kubernetes.io/docs/concepts/workloads/controllers/job and of pkg/controller.v1/pytorch/{elastic,envvar}.go.
"""

import ctypes
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import yaml

DDPRUN = os.path.abspath("launcher/ddprun")
MANIFESTS = pathlib.Path("examples/kubernetes").absolute()
SECONDS = 60
CLONE_NEWUTS, CLONE_NEWUSER = 0x04000000, 0x10000000
LIBC = ctypes.CDLL(None, use_errno=True)


def objects(name):
    """Returns {kind: object} of a manifest."""
    return {each["kind"]: each for each in yaml.safe_load_all((MANIFESTS / name).read_text())}


def own_host(name):
    """Gives the calling process a UTS namespace of its own, with this host name."""
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWUTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(name)


def hosts_can_be_named():
    try:
        subprocess.run(["true"], preexec_fn=lambda: own_host("x"), check=True)
    except subprocess.SubprocessError:
        return False
    return True


class Pod:
    """A pod with one container. `variables` are those that its controller adds to those of the manifest."""

    def __init__(self, template, host, variables):
        (self.container,) = template["spec"]["containers"]
        self.grace_s = template["spec"]["terminationGracePeriodSeconds"]
        self.host = host
        given = {each["name"]: each["value"] for each in self.container.get("env", [])}
        self.environment = {**given, **variables}

    def command(self):
        words = self.container["command"] + self.container["args"]
        return [re.sub(r"\$\((\w+)\)", lambda found: self.environment[found[1]], word) for word in words]

    def dry_run(self):
        """Returns {subject: text} of the lines that --dry-run prints, and each worker's variables under its number."""
        program, *args = self.command()
        assert program == "ddprun"
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "train.py").touch()
            done = subprocess.run(
                [DDPRUN, "--dry-run", *args], env={"PATH": os.environ["PATH"], **self.environment}, cwd=folder,
                timeout=SECONDS, capture_output=True, text=True, check=False, preexec_fn=lambda: own_host(self.host),
            )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout


@unittest.skipUnless(hosts_can_be_named(), "needs permission to create a user namespace")
class ManifestsTest(unittest.TestCase):
    def check_signal(self, pod):
        (signal,) = (word for word in pod.command() if word.startswith("--preempt-signal="))
        self.assertEqual(signal, f"--preempt-signal=SIGTERM@{pod.grace_s}")

    def test_indexed_job(self):
        found = objects("indexed_job.yaml")
        service, job = found["Service"], found["Job"]
        name, spec = job["metadata"]["name"], job["spec"]
        template = spec["template"]
        # The conditions under which the pods get names: NAME-INDEX.SERVICE.
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(template["spec"]["subdomain"], service["metadata"]["name"])
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(template["spec"]["restartPolicy"], "Never", "podFailurePolicy requires it")
        endpoint = f"{name}-0.{service['metadata']['name']}"
        gpus = template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for index in range(spec["completions"]):
            pod = Pod(template, f"{name}-{index}", {"JOB_COMPLETION_INDEX": str(index)})
            self.check_signal(pod)
            text = pod.dry_run()
            host = "this node hosts" if index == 0 else "another node hosts"
            self.assertIn(f"# endpoint  {endpoint}:29500; {host} the coordinator\n", text)
            self.assertIn(f"# size      {spec['completions']} nodes, with {gpus} workers on this node\n", text)
            self.assertIn("3 restarts", text)
            world_size = spec["completions"] * gpus
            for local_rank in range(gpus):
                rank = index * gpus + local_rank
                self.assertIn(f"# local rank {local_rank}: rank {rank} of {world_size}, ", text)
            self.assertEqual(text.count(f" MASTER_ADDR={endpoint} "), gpus)
            self.assertEqual(text.count(" MASTER_PORT=29500 "), gpus)
            self.assertEqual(text.count(f" GROUP_RANK={index} "), gpus)

    def test_exit_codes_of_the_indexed_job(self):
        rules = objects("indexed_job.yaml")["Job"]["spec"]["podFailurePolicy"]["rules"]
        by_code = {code: rule["action"] for rule in reversed(rules) for code in rule.get("onExitCodes", {}).get("values", [])}
        self.assertEqual(by_code, {75: "Ignore", 1: "FailJob", 2: "FailJob"})

    def test_pytorchjob(self):
        job = objects("pytorchjob.yaml")["PyTorchJob"]
        name, spec = job["metadata"]["name"], job["spec"]
        policy, workers = spec["elasticPolicy"], spec["pytorchReplicaSpecs"]["Worker"]
        (container,) = workers["template"]["spec"]["containers"]
        self.assertEqual(container["name"], "pytorch")
        (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "pytorchjob-port")
        endpoint = f"{name}-worker-0"
        variables = {
            "PYTHONUNBUFFERED": "1",
            "PET_NPROC_PER_NODE": spec["nprocPerNode"],
            "PET_RDZV_ENDPOINT": f"{endpoint}:{port}",
            "PET_RDZV_BACKEND": policy["rdzvBackend"],
            "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
            "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
            "PET_RDZV_ID": policy["rdzvId"],
        }
        self.assertEqual(workers["replicas"], policy["maxReplicas"])
        gpus = container["resources"]["limits"]["nvidia.com/gpu"]
        for index in range(workers["replicas"]):
            pod = Pod(workers["template"], f"{name}-worker-{index}", variables)
            self.check_signal(pod)
            text = pod.dry_run()
            self.assertIn(f"# job       {name}, role default, 3 restarts\n", text)
            self.assertIn(f"# size      2 to 4 nodes, with {gpus} workers on this node\n", text)
            host = f"this node ({endpoint})" if index == 0 else f"the node named {endpoint}"
            self.assertIn(f"# endpoint  {endpoint}:{port}; {host} hosts the coordinator\n", text)
            self.assertEqual(text.count("# local rank "), gpus)


if __name__ == "__main__":
    unittest.main()
