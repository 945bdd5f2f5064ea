#!/usr/bin/env python3
"""Runs ddprun as PBS and LSF start it: one process on each host of a file. The variables are those of the schedulers."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import junit  # noqa: E402
import machine  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
WHY_NOT = machine.why_not()
SECONDS = 120
NODES = 3
WORKER = "echo $RANK/$WORLD_SIZE $(hostname) job=$TORCHELASTIC_RUN_ID"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class HostFileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-hosts-", dir="/tmp")
        cls.enterClassContext(folder)
        cls.directory = pathlib.Path(folder.name)
        (cls.directory / "log").mkdir()
        cls.machine = machine.Machine(cls.directory, NODES)
        cls.machine.start(SECONDS)
        cls.addClassCleanup(cls.machine.end)
        cls.file = cls.directory / "nodefile"
        cls.file.write_text("".join(f"node{i}.cluster.example\n" * 2 for i in range(1, NODES + 1)))

    def pbs(self, node):
        task = {"PBS_TASKNUM": str(40 + node), "PBS_NODENUM": str(node - 1), "PBS_VNODENUM": str(2 * node - 2)}
        return {"PBS_JOBID": "16.server", "PBS_NODEFILE": str(self.file), **task}

    def lsf(self, node):
        return {"LSB_JOBID": "16", "LSF_PM_TASKID": str(2 * node - 1), "LSB_DJOB_HOSTFILE": str(self.file)}

    def start(self, node, environment, *argv):
        command = self.machine.command(f"node{node}", [DDPRUN, *argv], cwd=self.directory)
        return machine.Client(
            command, env={"PATH": machine.SYSTEM_PATH, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def output_of(self, client):
        try:
            out, err = client.communicate(timeout=SECONDS)
        except BaseException:
            client.kill()
            raise
        return client.returncode, out, err

    def test_a_process_on_each_host_needs_no_options(self):
        for scheduler in (self.pbs, self.lsf):
            with self.subTest(scheduler.__name__):
                clients = [
                    self.start(node, scheduler(node), "--no-python", "sh", "-c", WORKER) for node in range(NODES, 0, -1)
                ]
                for node, client in zip(range(NODES, 0, -1), clients):
                    with client:
                        code, out, err = self.output_of(client)
                    self.assertEqual(code, 0, err)
                    self.assertIn(f"{node - 1}/{NODES} node{node} job=16", out)

    def test_dry_run_names_the_variables(self):
        for scheduler, variable in ((self.pbs, "PBS_NODEFILE"), (self.lsf, "LSB_DJOB_HOSTFILE")):
            with self.start(2, scheduler(2), "--dry-run", "--no-python", "true") as client:
                code, out, err = self.output_of(client)
            self.assertEqual(code, 0, err)
            self.assertIn(f"--nnodes=3 ({variable})", out)
            self.assertIn(f"--node-rank=1 ({variable})", out)

    def test_the_script_of_the_job_runs_on_its_host_only(self):
        pbs = {**self.pbs(1), "PBS_TASKNUM": "1"}
        lsf = {name: value for name, value in self.lsf(1).items() if name != "LSF_PM_TASKID"}
        for environment in (pbs, lsf):
            with self.start(1, environment, "--no-python", "sh", "-c", WORKER) as client:
                code, out, err = self.output_of(client)
            self.assertEqual(code, 0, err)
            self.assertIn("0/1 node1", out)

    def test_a_host_that_is_not_in_the_file_is_an_error(self):
        with self.start(1, {**self.pbs(1), "PBS_NODEFILE": "/etc/hostname"}, "--no-python", "true") as client:
            code, _, err = self.output_of(client)
        self.assertEqual(code, 2)
        self.assertIn("PBS_NODEFILE=/etc/hostname: the file does not contain this host, node1, but", err)


if __name__ == "__main__":
    junit.main()
