#!/usr/bin/env python3
"""Counts GPUs with a fake of NVIDIA's driver library.

Runs each row of the table "One worker per GPU" in docs/worker_env.md, and commands whose driver does not respond.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

DDPRUN = os.path.abspath("launcher/ddprun")
DRIVER = os.path.abspath("launcher/config/testing")
PAGE = pathlib.Path("docs/worker_env.md")
SECONDS = 60

# What a worker prints. A variable that is not set prints as "-".
WORKER = 'echo "$LOCAL_RANK ${DDPRUN_LOCAL_RANK--} ${CUDA_VISIBLE_DEVICES--}"'


def read_rows():
    section = PAGE.read_text().split("## One worker per GPU")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def quoted(cell):
    """The texts between backticks."""
    return re.findall("`([^`]*)`", cell) if cell != "``" else [""]


def run(num_gpus, visible, options):
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": DRIVER, "FAKE_NVML_DEVICES": num_gpus}
    if visible != "-":
        environment["CUDA_VISIBLE_DEVICES"] = quoted(visible)[0]
    command = [DDPRUN, "--nproc-per-node=gpu", "--no-python", *options, "sh", "-c", WORKER]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            command, env=environment, cwd=folder, timeout=SECONDS, capture_output=True, text=True, check=False
        )


class GpuEnvironmentTest(unittest.TestCase):
    def check(self, num_gpus, visible, option, workers, result):
        options = quoted(option)
        done = run(num_gpus, visible, options)
        if workers == "error":
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("--nproc-per-node=gpu: Cuda is not available. (", done.stderr)
            self.assertIn(result, done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        devices = ["-"] if result == "-" else quoted(result)
        if not options:
            devices *= int(workers)
        self.assertEqual(len(devices), int(workers), "the row has an entry for each worker")
        expected = [
            f"0 {rank} {device}" if options else f"{rank} - {device}" for rank, device in enumerate(devices)
        ]
        lines = [line.split("]:")[-1].strip() for line in done.stdout.splitlines()]
        self.assertEqual(sorted(lines), sorted(expected))

    def test_a_signal_ends_the_wait_for_a_driver_that_hangs(self):
        # With STRICT, the fake aborts if ddprun ends by exit() while it is in a call.
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": DRIVER, "FAKE_NVML_DEVICES": "1",
                       "FAKE_NVML_HANG": "nvmlInit", "FAKE_NVML_STRICT": "1"}  # fmt: skip
        variants = (["--nproc-per-node=gpu"], ["--nproc-per-node=auto"], ["--numa-binding=node"],
                    ["--numa-binding=node", "--dry-run"])  # fmt: skip
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            jobs = []
            for options in variants:
                command = [DDPRUN, *options, "--no-python", "true"]
                job = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)
                stack.enter_context(job)
                stack.callback(job.kill)  # if a check fails
                jobs.append(job)
            for options, job in zip(variants, jobs):
                with self.subTest(options=options):
                    self.assertIn("NVIDIA's driver library has not answered within 5 s", job.stderr.readline())
                    job.terminate()
                    _, rest = job.communicate(timeout=SECONDS)
                    self.assertIn("SIGTERM", rest)
                    if "nproc" in options[0]:
                        self.assertIn(f"error: {options[0]}: received SIGTERM while waiting", rest)
                    self.assertEqual(job.returncode, 1)

    def test_every_row(self):
        rows = read_rows()
        self.assertGreater(len(rows), 20)
        for row in rows:
            with self.subTest(row=row):
                self.check(*row)


if __name__ == "__main__":
    unittest.main()
