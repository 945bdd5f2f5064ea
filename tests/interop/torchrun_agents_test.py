"""Tests two torchrun agents, one per node, that use `ddprun --store-only` as their store."""

import os
import re
import tempfile
import unittest

import interop
import launched
import torch

OPTIONS = [
    "--nnodes=2",
    "--nproc_per_node=1",
    "--monitor_interval=0.1",
    "--rdzv_backend=c10d",
    "--rdzv_id=interop",
    "--rdzv_conf=is_host=0",  # no agent hosts the store, although the endpoint is on this host
]


class TorchrunAgentsTest(unittest.TestCase):
    def run_agents(self, *command, max_restarts=0, **environment_changes):
        """Returns the output of both agents. Fails unless both exit with status 0."""
        with tempfile.TemporaryDirectory() as logs, launched.Job() as job:
            options = [*OPTIONS, f"--max_restarts={max_restarts}", f"--log_dir={logs}", f"--rdzv_endpoint=127.0.0.1:{job.store()}"]
            return job.finish(*[job.torchrun(*options, *command, **environment_changes) for _ in range(2)])

    def check_ranks(self, output):
        ranks = re.findall(r"rank=(\d) world_size=2 sum=3 weight=", output)
        self.assertEqual(sorted(ranks), ["0", "1"], output)

    @unittest.skipIf(torch.__version__ < "2", "workers of 1.x never share their agents' store with this backend")
    def test_workers_share_the_agents_store(self):
        self.check_ranks(self.run_agents(interop.path_of("torch_worker.py")))

    def test_a_job_with_a_crash_and_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "crashed")
            output = self.run_agents(interop.path_of("crash_once_worker.py"), marker, max_restarts=2, **launched.RESTARTABLE)
            self.assertTrue(os.path.exists(marker), output)
        self.assertIn("killed", output)
        self.check_ranks(output)


if __name__ == "__main__":
    interop.main()
