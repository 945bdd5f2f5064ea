"""Tests that plain PyTorch workers can form a group through ddprun's store and train one step."""

import os
import re
import subprocess
import sys
import unittest

import interop
import torch
import torch_worker


def start_worker(rank, world_size, port, attempt):
    env = dict(os.environ,
               MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(port),
               RANK=str(rank),
               WORLD_SIZE=str(world_size),
               LOCAL_RANK=str(rank),
               LOCAL_WORLD_SIZE=str(world_size),
               GROUP_RANK="0",
               TORCHELASTIC_USE_AGENT_STORE="True",
               TORCHELASTIC_RESTART_COUNT=str(attempt),
               TORCHELASTIC_RUN_ID="interop",
               GLOO_SOCKET_IFNAME="lo",
               OMP_NUM_THREADS="1")
    return subprocess.Popen([sys.executable, interop.path_of("torch_worker.py")],
                            env=env,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT,
                            text=True)


def expected_weight(world_size):
    """Returns the weight after one step in one process with the data of all ranks and the parameters of rank 0."""
    inputs = torch.cat([torch_worker.make_inputs(rank) for rank in range(world_size)])
    return torch_worker.step(torch_worker.make_model(seed=0), inputs)


class WorkerTest(unittest.TestCase):
    def run_round(self, world_size, attempt):
        with interop.StoreServer() as server:
            workers = [start_worker(rank, world_size, server.port, attempt) for rank in range(world_size)]
            try:
                outputs = [worker.communicate(timeout=interop.DEADLINE_S)[0] for worker in workers]
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait(interop.DEADLINE_S)
        self.assertEqual([worker.returncode for worker in workers], [0] * world_size, "\n".join(outputs))
        for rank, output in enumerate(outputs):
            line = re.search(r"^rank=(\d+) world_size=(\d+) sum=(\S+) weight=(\S+)$", output, re.MULTILINE)
            self.assertTrue(line, output)
            self.assertEqual([int(line[1]), int(line[2])], [rank, world_size])
            self.assertEqual(float(line[3]), world_size * (world_size + 1) / 2)
            self.assertAlmostEqual(float(line[4]), expected_weight(world_size), places=5)

    def test_two_workers(self):
        self.run_round(world_size=2, attempt=0)

    def test_a_second_attempt_with_another_size(self):
        self.run_round(world_size=3, attempt=1)


if __name__ == "__main__":
    interop.main()
