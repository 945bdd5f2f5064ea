"""Helpers of the tests on hosts made of namespaces."""

import time

POLL_S = 0.02


def wait_until(condition, what, seconds=120):
    """Returns when condition() holds. After `seconds`, raises AssertionError with `what`, a text or a function of one."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(POLL_S)


def lines_of_workers(text):
    """Returns the sorted lines with `job=` in the output of ddprun, without its prefixes."""
    return sorted(line.split("]:")[-1].strip() for line in text.splitlines() if "job=" in line)
