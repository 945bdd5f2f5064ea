"""Tests PyTorch's watchdog client under ddprun, with a worker that hangs."""

import pathlib
import re
import tempfile
import unittest

import interop
import launched


class WatchdogTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.job = self.enterContext(launched.Job())

    def start(self, *options, **environment_changes):
        command = ["--nproc-per-node=2", f"--log-dir={self.folder / 'logs'}", *options, interop.path_of("watchdog_worker.py")]
        return self.job.ddprun(*command, TORCHELASTIC_ENABLE_FILE_TIMER="1", TMPDIR=str(self.folder), **environment_changes)

    def test_a_hanging_worker_is_killed_and_the_report_names_its_timer(self):
        agent = self.start("--event-log-handler=console")
        self.assertEqual(agent.wait(interop.deadline()), 1, agent.output)
        output = agent.output
        # The report may repeat the last lines of output.
        self.assertEqual(len(re.findall(r"^rank=\d steps=20$", output, re.MULTILINE)), 2, output)
        self.assertRegex(output, r'the watchdog timer "a step that hangs" of process \d+ has expired: sending it SIGKILL')
        self.assertRegex(output, r"rank 1 \(local_rank 1\) on .* failed: SIGKILL, its watchdog timer \"a step that hangs\" expired")
        self.assertRegex(output, r"exitcode  : -9 \(pid: \d+\)  \(SIGKILL\)")
        for event in ("watchdog started", "timer expired", "kill worker process", "watchdog stopped"):
            self.assertIn(f'{{"name": "{event}", "source": "AGENT"', output)
        self.assertEqual(list(self.folder.glob("watchdog_timer_*")), [])

    def test_the_job_continues_after_a_restart(self):
        timers = self.folder / "timers"
        output = self.job.finish(self.start("--max-restarts=1", TORCHELASTIC_TIMER_FILE=str(timers)))
        self.assertIn("rank=0 done", output)
        self.assertIn("rank=1 done", output)
        self.assertFalse(timers.exists())


if __name__ == "__main__":
    interop.main()
