#!/usr/bin/env python3
"""Runs ddprun under the mpirun of Open MPI."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import checks  # noqa: E402
import junit  # noqa: E402
import machine  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
SECONDS = 120
WORKER = "echo $RANK/$WORLD_SIZE $(hostname) job=$TORCHELASTIC_RUN_ID"
# The remote shell of mpirun: enters the namespaces of a host instead of calling ssh. Argument 1: the host.
AGENT = """#!/bin/sh
read -r pid < "{directory}/pid.$1"
shift
exec nsenter --target "$pid" --net --uts --ipc --mount --pid sh -c "$*"
"""
SPOILING = re.compile("OMPI_|PMIX_|ORTE_|SLURM|PBS_|LSB_|LSF_")


def why_not():
    """Returns why the tests cannot run here, or an empty string."""
    if reason := machine.why_not():
        return reason
    return "" if shutil.which("mpirun", path=machine.SYSTEM_PATH) else "needs mpirun (package openmpi-bin)"


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class MpirunTest(unittest.TestCase):
    """mpirun runs on the host `ctl`, and starts processes there and on node1, node2 and node3."""

    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="ddprun-mpirun-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        (cls.directory / "log").mkdir()
        cls.machine = machine.Machine(cls.directory, 3)
        cls.machine.start(SECONDS)
        cls.addClassCleanup(cls.machine.end)
        cls.agent = cls.directory / "agent"
        cls.agent.write_text(AGENT.format(directory=cls.directory))
        cls.agent.chmod(0o755)
        for i in range(1, 4):
            (cls.directory / f"pid.node{i}").write_text(f"{cls.machine.pid_on_controller(f'node{i}')}\n")

    def start(self, *argv):
        options = {"plm_rsh_agent": self.agent, "orte_tmpdir_base": self.directory, "plm": "rsh"}
        mca = [word for key, value in options.items() for word in ("--mca", key, str(value))]
        kept = {name: value for name, value in os.environ.items() if not SPOILING.match(name)}
        return machine.Client(
            self.machine.command("ctl", ["mpirun", "--allow-run-as-root", *mca, *argv], cwd=self.directory),
            env={**kept, "PATH": machine.SYSTEM_PATH}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def mpirun(self, *argv):
        with self.start(*argv) as client:
            try:
                out, err = client.communicate(timeout=SECONDS)
            except BaseException:
                client.kill()
                raise
        return subprocess.CompletedProcess(argv, client.returncode, out, err)

    def one_per_node(self, hosts, *argv):
        return self.mpirun("--host", hosts, "--map-by", "ppr:1:node", "--bind-to", "none", DDPRUN, *argv)

    def test_one_process_per_node_needs_no_options(self):
        done = self.one_per_node(
            "ctl,node1,node2,node3", "--nproc-per-node=2", "--no-python", "sh", "-c", WORKER
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        job = re.search(r"job=(\d+\.\d+)", done.stdout)[1]
        hosts = ["ctl", "node1", "node2", "node3"]
        self.assertEqual(checks.lines_of_workers(done.stdout), [f"{rank}/8 {hosts[rank // 2]} job={job}" for rank in range(8)])
        self.assertNotIn("--bind-to", done.stderr)

    def test_dry_run_names_the_variables(self):
        done = self.one_per_node("ctl,node1", "--dry-run", "--no-python", "true")
        self.assertIn("# Open MPI  --nnodes=2 (OMPI_COMM_WORLD_SIZE), --rdzv-backend=c10d", done.stdout)
        for rank in range(2):
            self.assertIn(f"--node-rank={rank} (OMPI_COMM_WORLD_RANK)", done.stdout)
        self.assertIn("--rdzv-endpoint=198.18.7.254:", done.stdout)

    def test_several_processes_on_a_node_are_an_error(self):
        done = self.mpirun("--host", "ctl:2,node1:2", "--bind-to", "none", DDPRUN, "--no-python", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("write mpirun --map-by ppr:1:node --bind-to none ddprun --nproc-per-node=2", done.stderr)

    def test_rank_0_on_another_node_than_mpirun_is_an_error_at_once(self):
        start = time.monotonic()
        done = self.one_per_node("node1,node2", "--no-python", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("start mpirun on the first node of the job", done.stderr)
        self.assertIn("ddprun --nnodes=2 --rdzv-endpoint=HOST", done.stderr)
        self.assertLess(time.monotonic() - start, 30, "the search for the coordinator takes 60 s")

    def test_the_remedy_of_that_error_works(self):
        endpoint = ["--nnodes=2", "--rdzv-endpoint=node1"]
        done = self.one_per_node("node1,node2", *endpoint, "--no-python", "sh", "-c", WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(checks.lines_of_workers(done.stdout)), 2, done.stdout)

    def test_mpiruns_on_the_same_nodes_do_not_collide(self):
        argv = ["--host", "ctl,node1,node2", "--map-by", "ppr:1:node", "--bind-to", "none"]
        clients = [self.start(*argv, DDPRUN, "--no-python", "sh", "-c", WORKER) for _ in range(3)]
        jobs = set()
        for client in clients:
            with client:
                out, err = client.communicate(timeout=SECONDS)
            self.assertEqual(client.returncode, 0, err)
            lines = checks.lines_of_workers(out)
            self.assertEqual([line.split()[0] for line in lines], ["0/3", "1/3", "2/3"])
            jobs |= {line.split("job=")[1] for line in lines}
        self.assertEqual(len(jobs), 3)

    def test_a_process_that_is_bound_to_a_core_gets_a_warning(self):
        done = self.mpirun("--host", "ctl", "--bind-to", "core", DDPRUN, "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mpirun --bind-to none removes the limit", done.stderr)

    def processes(self):
        names = ("mpirun", "orted", "ddprun", "ddp-warden", "sleep")
        found = [self.machine.processes(host) for host in ("node1", "node2")]
        return [name for processes in found for name in processes.values() if name in names]

    def test_the_end_of_mpirun_leaves_nothing(self):
        # Each worker has a child in a session of its own.
        worker = "setsid sleep 1000000 & exec sleep 1000000"
        hosts = ["--host", "ctl,node1,node2", "--map-by", "ppr:1:node", "--bind-to", "none"]
        client = self.start(*hosts, DDPRUN, "--no-python", "sh", "-c", worker)
        checks.wait_until(lambda: self.processes().count("sleep") == 4, "the workers start")
        client.terminate()
        client.communicate(timeout=SECONDS)
        checks.wait_until(lambda: not self.processes(), "all processes end")


if __name__ == "__main__":
    junit.main()
