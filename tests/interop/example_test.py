"""Tests that examples/pytorch/train.py has equal losses under torchrun and ddprun.

The losses must be equal even after a crash and a restart.
"""

import os
import re
import signal
import sys
import tempfile
import time
import unittest

import interop
import launched

EPOCHS = 2
BATCH_SIZE = 128  # of each of the two ranks
# The threads of Gloo outlive destroy_process_group. One that releases the tensors of the last operation while Python
# finalizes aborts the process (PyTorch 2.15, on a busy machine, three times in one run of this test). At that point the
# script has done its work, and the launcher is not involved.
ABORTED_AT_EXIT = re.compile(
    rf"^(epoch {EPOCHS} loss|stopped after batch) .*terminate called without an active exception\nFatal Python error: Aborted\n"
    ".*<no Python frame>",
    re.MULTILINE | re.DOTALL)
ATTEMPTS = 5  # of a run that PyTorch aborts at exit
TRAIN = interop.path_of("../../examples/pytorch/train.py")


class ExampleTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.job = self.enterContext(launched.Job())

    def train(self, launcher, name, *script_options, **job_options):
        """Runs the script. Returns its output, in which SNAPSHOT replaces the path of the snapshot.

        Repeats the run if PyTorch aborts at exit.
        """
        snapshot = os.path.join(self.folder, name)
        output = self.attempt(snapshot, lambda: self.run_job(launcher, snapshot, *script_options, **job_options))
        self.assertTrue(os.path.exists(snapshot), output)
        return output.replace(snapshot, "SNAPSHOT")

    def attempt(self, snapshot, run):
        """Returns run(). Repeats it with the snapshot as it was before if PyTorch aborts at exit."""
        before = None
        if os.path.exists(snapshot):
            with open(snapshot, "rb") as file:
                before = file.read()
        for _ in range(ATTEMPTS - 1):
            try:
                return run()
            except AssertionError as error:
                if not ABORTED_AT_EXIT.search(str(error)):
                    raise
                print(f"PyTorch aborted at exit; repeating the run:\n{error}", file=sys.stderr)
            if before is not None:
                with open(snapshot, "wb") as file:
                    file.write(before)
            elif os.path.exists(snapshot):
                os.remove(snapshot)
        return run()

    def run_job(self, launcher, snapshot, *script_options, world_size=2, max_restarts=0, **environment_changes):
        return self.job.finish(launcher(
            "--standalone",
            f"--nproc_per_node={world_size}",
            f"--max_restarts={max_restarts}",
            "--monitor_interval=0.1",
            f"--log_dir={self.folder}",
            TRAIN,
            f"--snapshot={snapshot}",
            f"--epochs={EPOCHS}",
            f"--batch-size={BATCH_SIZE}",
            *script_options,
            **environment_changes,
        ))

    def losses(self, output):
        """Returns the losses of all epochs as text. Fails unless each epoch was done once."""
        lines = re.findall(r"^epoch (\d+) loss (\S+)$", output, re.MULTILINE)
        self.assertEqual([int(epoch) for epoch, _ in lines], list(range(1, EPOCHS + 1)), output)
        return [loss for _, loss in lines]

    def test_losses(self):
        undisturbed = self.losses(self.train(self.job.ddprun, "undisturbed"))
        self.assertLess(float(undisturbed[-1]), float(undisturbed[0]) - 0.5, "the loss did not fall enough")

        for launcher, changes in ((self.job.ddprun, {}), (self.job.torchrun, launched.RESTARTABLE)):
            name = launcher.__name__
            with self.subTest(launcher=name):
                output = self.train(launcher, name, "--crash-after=1", max_restarts=1, **changes)
                self.assertIn("resumed from SNAPSHOT after epoch 1", output)
                self.assertEqual(self.losses(output), undisturbed)

        with self.subTest("one process does the same steps with the samples of both"):
            alone = self.losses(self.train(self.job.ddprun, "alone", f"--batch-size={2 * BATCH_SIZE}", world_size=1))
            for one, both in zip(alone, undisturbed):
                self.assertAlmostEqual(float(one), float(both), places=4)

    def test_notice(self):
        undisturbed = self.losses(self.train(self.job.ddprun, "undisturbed"))
        snapshot = os.path.join(self.folder, "stopped")
        options = ("--standalone", "--nproc_per_node=2", "--preempt-signal=SIGUSR1@60", "--exit-codes=scheduler",
                   f"--log_dir={self.folder}", TRAIN, f"--snapshot={snapshot}", f"--epochs={EPOCHS}",
                   f"--batch-size={BATCH_SIZE}")
        first = self.attempt(snapshot, lambda: self.run_until_notice(options))
        stopped = re.search(r"^stopped after batch (\d+)$", first, re.MULTILINE)
        self.assertTrue(stopped, first)

        second = self.attempt(snapshot, lambda: self.job.finish(self.job.ddprun(*options)))
        self.assertIn(f"resumed from {snapshot} after epoch 1 and {stopped.group(1)} batches\n", second)
        losses = self.losses(first + second)
        self.assertEqual(losses[0], undisturbed[0])
        # The sum of the losses is rounded differently; the parameters are the same.
        self.assertAlmostEqual(float(losses[1]), float(undisturbed[1]), places=12)

    def run_until_notice(self, options):
        """Runs a job, notifies it after its first epoch, and returns its output. Fails unless it exits with 75."""
        job = self.job.ddprun(*options)
        deadline = time.monotonic() + interop.DEADLINE_S
        while "epoch 1 loss" not in job.output:
            self.assertIsNone(job.process.poll(), job.output)
            self.assertLess(time.monotonic(), deadline, job.output)
            time.sleep(0.01)
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(deadline), 75, job.output)
        return job.output


if __name__ == "__main__":
    interop.main()
