#!/usr/bin/env python3
"""Runs the scripts of examples/slurm on a real Slurm, with `train` as the program, through faults and notices."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).absolute().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts")]
import checks  # noqa: E402
import cluster  # noqa: E402
import junit  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
TRAIN = os.path.abspath("examples/train/train")
SCRIPTS = os.path.abspath("examples/slurm")
WHY_NOT = cluster.why_not()
SECONDS = 240
NODES = 4
# The training takes some seconds and is disturbed after a tenth of it.
STEPS = 600
DISTURBED_AFTER = 60
END = re.compile(rf"^step={STEPS} loss=(\S+) sha256=(\w+)$", re.MULTILINE)


def options(folder):
    """Returns the arguments of ddprun for a training whose files are in `folder`."""
    return ["--no-python", TRAIN, f"--steps={STEPS}", "--snapshot-every=20", f"--snapshot-dir={folder}/snapshots",
            f"--metrics={folder}/metrics.jsonl", "--log-every=100"]  # fmt: skip


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ExamplesTest(unittest.TestCase):
    """Cases that share one cluster. Each leaves it idle."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        done = subprocess.run([DDPRUN, f"--nproc-per-node={NODES}", *options(folder)], text=True, timeout=SECONDS,
                              stdout=subprocess.PIPE, check=True)  # fmt: skip
        cls.undisturbed = END.search(done.stdout).groups()
        cls.slurm = cluster.Cluster(NODES)
        cls.slurm.up()
        cls.addClassCleanup(cls.slurm.down)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.output = self.folder / "output"
        self.addCleanup(self.slurm.wait_idle, SECONDS)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/ddprun").symlink_to(DDPRUN)

    def submit(self, script):
        """Submits an example. Returns the job when it trains."""
        path = f"{self.folder}/bin:{cluster.hosts.SYSTEM_PATH}"
        job = self.slurm.submit([f"--output={self.output}", f"{SCRIPTS}/{script}", *options(self.folder)],
                                cwd=self.folder, env={"PATH": path})  # fmt: skip
        checks.wait_until(lambda: len(self.steps()) >= DISTURBED_AFTER, "the training")
        return job

    def steps(self):
        """Returns the steps whose results are in the file of metrics."""
        metrics = self.folder / "metrics.jsonl"
        return re.findall(r'"step":\s*(\d+)', metrics.read_text()) if metrics.exists() else []

    def processes(self, node):
        return [name for name in self.slurm.processes(node).values() if name in ("ddprun", "ddp-warden", "train")]

    def result(self):
        """Returns (loss, sha256 of the parameters) at the end of the training."""
        ends = END.findall(self.output.read_text())
        self.assertEqual(len(ends), 1, self.output.read_text())
        return ends[0]

    def end(self, job, restarts):
        """Waits for the end of the job, and checks its state, its code and how often it was queued again."""
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED", self.output.read_text())
        facts = self.slurm.show("job", job)
        self.assertEqual((facts["ExitCode"], facts["Restarts"]), ("0:0", str(restarts)))
        for node in range(1, NODES + 1):
            self.assertEqual(self.processes(node), [])

    def check_node_failure(self, node):
        job = self.submit("fixed.sbatch")
        self.slurm.kill_slurmd(node)
        self.assertIn("train", self.processes(node))
        # What Slurm does by itself after SlurmdTimeout.
        self.slurm.run(["scontrol", "update", f"NodeName=node{node}", "State=DOWN", "Reason=slurmd was killed"])
        checks.wait_until(lambda: not self.processes(node), f"the processes on node{node}, without slurmd, end")
        self.slurm.start_slurmd(node)
        self.end(job, restarts=1)
        self.assertEqual(self.result(), self.undisturbed)
        self.assertRegex(self.output.read_text(), "event=resume step=[1-9]")

    def test_fixed_continues_from_its_snapshot_after_the_slurmd_of_a_node_was_killed(self):
        self.check_node_failure(3)

    def test_fixed_continues_from_its_snapshot_after_the_slurmd_of_the_first_node_was_killed(self):
        # The node of the script, of srun and of the coordinator.
        self.check_node_failure(1)

    def test_fixed_is_not_disturbed_by_a_slurmd_that_is_started_again(self):
        job = self.submit("fixed.sbatch")
        self.slurm.kill_slurmd(2)
        self.slurm.start_slurmd(2)
        self.end(job, restarts=0)
        self.assertEqual(self.result(), self.undisturbed)

    def test_elastic_continues_on_the_nodes_that_are_left(self):
        job = self.submit("elastic.sbatch")
        self.slurm.lose(4)
        self.end(job, restarts=0)
        sizes = re.findall(r"event=train .* world_size=(\d)", self.output.read_text())
        self.assertEqual(sizes, ["4", "3"])
        # The number of workers changes the order of sums.
        self.assertAlmostEqual(float(self.result()[0]), float(self.undisturbed[0]), delta=0.5)
        self.slurm.start_slurmd(4)

    def test_preemptible_is_queued_again_and_loses_no_step(self):
        job = self.submit("preemptible.sbatch")
        self.slurm.run(["scancel", "--signal=USR1", str(job)])
        self.end(job, restarts=1)
        self.assertEqual(self.result(), self.undisturbed)
        text = self.output.read_text()
        stopped = re.search(r"event=stopped step=(\d+)", text)[1]
        self.assertIn(f"event=resume step={stopped} ", text)
        self.assertEqual(self.steps(), [str(step) for step in range(1, STEPS + 1)])

    def test_scancel_leaves_nothing(self):
        job = self.submit("preemptible.sbatch")
        self.slurm.run(["scancel", str(job)])
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "CANCELLED")
        checks.wait_until(lambda: not any(self.processes(i) for i in range(1, NODES + 1)), "all processes end")
        self.assertEqual(self.slurm.show("job", job)["Restarts"], "0")


if __name__ == "__main__":
    junit.main()
