#!/usr/bin/env python3
"""Runs ddprun in jobs of a real Slurm."""

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
HERE = pathlib.Path(__file__).absolute().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts")]
import checks  # noqa: E402
import cluster  # noqa: E402
import junit  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
WHY_NOT = cluster.why_not()
SECONDS = 120
WORKER = "echo $RANK/$WORLD_SIZE $SLURMD_NODENAME job=$TORCHELASTIC_RUN_ID"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlurmTest(unittest.TestCase):
    """Cases that share one cluster. Each leaves it idle."""

    @classmethod
    def setUpClass(cls):
        cls.slurm = cluster.Cluster(4)
        cls.slurm.up()
        cls.addClassCleanup(cls.slurm.down)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(self.slurm.wait_idle, SECONDS)

    def srun(self, *argv):
        return self.slurm.run(["srun", "--ntasks-per-node=1", *argv], check=False, timeout=SECONDS, cwd=self.folder)

    def test_a_step_needs_no_options(self):
        done = self.srun("-N4", "--gres=gpu:2", DDPRUN, "--no-python", "sh", "-c", WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = re.search(r"job=(\d+\.\d+)", done.stdout)[1]
        self.assertEqual(checks.lines_of_workers(done.stdout), [f"{rank}/8 node{rank // 2 + 1} job={job}" for rank in range(8)])

    def test_dry_run_names_the_variables(self):
        done = self.srun("-N2", "--gres=gpu:3", DDPRUN, "--dry-run", "--no-python", "true")
        self.assertIn("--nnodes=2 (SLURM_STEP_NUM_NODES), --nproc-per-node=3 (SLURM_STEP_GPUS)", done.stdout)

    def test_a_step_with_fewer_nodes_than_the_maximum_starts_at_once(self):
        start = time.monotonic()
        done = self.srun("-N3", DDPRUN, "--nnodes=2:4", "--no-python", "sh", "-c", WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0/3 node1", done.stdout)
        self.assertLess(time.monotonic() - start, 25, "the last call is 30 s")

    def test_steps_and_jobs_on_the_same_nodes_do_not_collide(self):
        step = f"srun -N4 --overlap --ntasks-per-node=1 {DDPRUN} --no-python sh -c '{WORKER}'"
        jobs = []
        for i in range(2):
            script = self.folder / f"job{i}.sh"
            script.write_text(f"#!/bin/bash\n{step} & {step} & wait\n")
            jobs.append(self.slurm.submit(["-N4", f"--output={self.folder}/output{i}", str(script)]))
        for job in jobs:
            self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED")
        by_job = {}
        for output in self.folder.glob("output*"):
            for line in checks.lines_of_workers(output.read_text()):
                by_job.setdefault(line.split("job=")[1], []).append(line.split(" job=")[0])
        self.assertEqual(len(by_job), 4, by_job)
        for ranks in by_job.values():
            self.assertEqual(ranks, [f"{rank}/4 node{rank + 1}" for rank in range(4)])

    def test_several_tasks_on_a_node_are_an_error(self):
        done = self.slurm.run(["srun", "-N2", "--ntasks-per-node=2", DDPRUN, "--no-python", "true"], check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("write srun --ntasks-per-node=1 ddprun --nproc-per-node=2", done.stderr)

    def test_a_batch_script_without_srun_runs_on_its_node_only(self):
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{DDPRUN} --no-python sh -c '{WORKER}'\n")
        job = self.slurm.submit(["-N2", f"--output={self.folder}/output", str(script)])
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED")
        self.assertIn("0/1 node1", (self.folder / "output").read_text())

    @unittest.skipUnless(shutil.which("mpirun", path=cluster.hosts.SYSTEM_PATH), "needs mpirun (package openmpi-bin)")
    def test_mpirun_takes_precedence_over_the_step_of_its_daemons(self):
        script = self.folder / "job.sh"
        mpirun = "mpirun --allow-run-as-root --map-by ppr:1:node --bind-to none"
        script.write_text(f"#!/bin/bash\n{mpirun} {DDPRUN} --no-python sh -c '{WORKER}'\n")
        job = self.slurm.submit(["-N3", f"--output={self.folder}/output", str(script)])
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED")
        lines = [line.partition(" job=")[0] for line in checks.lines_of_workers((self.folder / "output").read_text())]
        self.assertEqual([line.split()[0] for line in lines], ["0/3", "1/3", "2/3"])

    def batch_script(self, *argv):
        """Returns the file and the environment of a batch script of ddpctl slurm-script, which starts `ddprun`."""
        (self.folder / "bin").mkdir()
        (self.folder / "bin/ddprun").symlink_to(DDPRUN)
        text = subprocess.run(["ddpctl", "slurm-script", *argv], executable=DDPRUN, stdout=subprocess.PIPE, text=True,
                              check=True).stdout  # fmt: skip
        script = self.folder / "job.sh"
        script.write_text(text)
        return str(script), {"PATH": f"{self.folder}/bin:{cluster.hosts.SYSTEM_PATH}"}

    def test_a_script_of_ddpctl_gets_the_nodes_that_are_available(self):
        worker = f"{WORKER} $(nproc)"
        script, env = self.batch_script(
            "--nodes=2-9", "--gpus-per-node=2", f"--output={self.folder}/out-%j", "--time=1:00:00", "--job-name=gpt",
            "--mem=0", "--partition=main", "--", "--no-python", "sh", "-c", worker,
        )  # fmt: skip
        job = self.slurm.submit([script], env=env, cwd=self.folder)
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED")
        facts = self.slurm.show("job", job)
        self.assertEqual(facts["JobName"], "gpt")
        self.assertEqual(facts["Requeue"], "1")
        ranks = [line.split(" job=")[0] for line in checks.lines_of_workers((self.folder / f"out-{job}").read_text())]
        self.assertEqual(ranks, [f"{rank}/8 node{rank // 2 + 1}" for rank in range(8)])

    def test_a_script_of_ddpctl_requeues_after_a_notice(self):
        # The first start of the job ends by a notice. In the second one, the workers exit at once.
        worker = (
            'echo "start ${SLURM_RESTART_COUNT:-0} rank $RANK"; [ "$SLURM_RESTART_COUNT" ] && exit; '
            'touch "$0/up$RANK"; until [ -e "$DDPRUN_NOTICE_FILE" ]; do sleep 0.1; done'
        )
        script, env = self.batch_script(
            "--nodes=2", "--cpus-per-task=4", f"--output={self.folder}/output",
            "--", "--no-python", "sh", "-c", worker, str(self.folder),
        )  # fmt: skip
        job = self.slurm.submit([script], env=env, cwd=self.folder)
        checks.wait_until(lambda: all((self.folder / f"up{rank}").exists() for rank in range(2)), "the workers start")
        self.slurm.run(["scancel", "--signal=USR1", str(job)])
        checks.wait_until(lambda: self.slurm.show("job", job).get("Restarts") == "1", "the job is queued again")
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED")
        said = re.findall(r"start \d rank \d", (self.folder / "output").read_text())
        self.assertEqual(sorted(said), [f"start {start} rank {rank}" for start in range(2) for rank in range(2)])

    def workers(self, node):
        return [pid for pid, name in self.slurm.processes(node).items() if name in ("ddprun", "ddp-warden", "sleep")]

    def check_scancel(self, without_slurmd=None):
        # Each worker has a child in a session of its own.
        script = self.folder / "job.sh"
        worker = "setsid sleep 1000000 & exec sleep 1000000"
        script.write_text(
            f"#!/bin/bash\nsrun --ntasks-per-node=1 {DDPRUN} --nproc-per-node=2 --no-python sh -c '{worker}'\n"
        )
        job = self.slurm.submit(["-N4", "--output=/dev/null", str(script)])
        # An agent, its warden, two workers and their two children.
        checks.wait_until(lambda: all(len(self.workers(i)) == 6 for i in range(1, 5)), "the workers start")
        if without_slurmd:
            self.slurm.kill_slurmd(without_slurmd)
        self.slurm.run(["scancel", str(job)])
        checks.wait_until(lambda: not any(self.workers(i) for i in range(1, 5)), "all processes end")
        if without_slurmd:
            self.slurm.start_slurmd(without_slurmd)
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "CANCELLED")

    def test_scancel_leaves_nothing(self):
        self.check_scancel()

    def test_scancel_leaves_nothing_on_a_node_whose_slurmd_was_killed(self):
        self.check_scancel(without_slurmd=2)

    def test_scancel_leaves_nothing_on_the_first_node_if_its_slurmd_was_killed(self):
        # The node of the batch script, of srun and of the coordinator.
        self.check_scancel(without_slurmd=1)


if __name__ == "__main__":
    junit.main()
