"""Tests that a hung round of an unmodified script is found from outside, and that the lines where the ranks wait are named."""

import os
import re
import signal
import sys
import time
import unittest

import interop
import launched

SCRIPT = interop.path_of("skips_all_reduce.py")
HANG_TIMEOUT_S = 20


def line_of(comment):
    """Returns the number of the script's line with this comment."""
    with open(SCRIPT, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {comment}"))


class HangTest(unittest.TestCase):
    def test_a_skipped_all_reduce(self):
        job = self.enterContext(launched.Job())
        agent = job.ddprun("--standalone", "--nproc_per_node=3", f"--hang-timeout={HANG_TIMEOUT_S}", SCRIPT)
        deadline = interop.deadline()
        self.await_text(agent, "skipped", deadline)
        begun = time.monotonic()
        self.await_text(agent, "has made no progress for ", deadline)
        # The time counts from the last activity, which may be later than the line.
        self.assertLess(time.monotonic() - begun, HANG_TIMEOUT_S + 10)
        found = re.search(".* has made no progress for .*", agent.output).group()
        agent.process.send_signal(signal.SIGTERM)
        agent.wait(deadline)

        if not os.access(os.path.join(os.path.dirname(sys.executable), "py-spy"), os.X_OK):
            # The stacks of the interpreter are no Python stacks, but separate the ranks, too.
            self.assertEqual(sys.executable, "/usr/bin/python3", "tools/interop installs py-spy in its environments")
            self.assertIn("py-spy is not installed: pip install py-spy", found)
            return
        self.assertRegex(
            found,
            rf"rank 1 on \S+ is in \S+ \(\S+\.py:\d+\), called from main \(skips_all_reduce\.py:{line_of('rank 1 waits')}\)"
            rf": .*; 2 others are in .*\(skips_all_reduce\.py:{line_of('waits')}\)")

    def await_text(self, agent, text, deadline):
        while text not in agent.output:
            self.assertIsNone(agent.process.poll(), agent.output)
            self.assertLess(time.monotonic(), deadline, agent.output)
            time.sleep(0.05)


if __name__ == "__main__":
    interop.main()
