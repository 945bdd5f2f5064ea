"""PyTorch workers under ddprun, as a user of torchrun would start them, and PyTorch's store client against --store-only."""

import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import interop
import torch
import torch_worker
from torch.distributed import TCPStore

DDPRUN = interop.path_of("../../launcher/ddprun")
# Unbuffered Python writes a line and its end in two pieces, between which another rank's may come.
LINE = re.compile(r"rank=(\d+) world_size=(\d+) sum=([\d.]+) weight=(-?\d+\.\d{6})")


def start(*args):
    env = dict(os.environ, PYTHON_EXEC=sys.executable, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    return subprocess.Popen([DDPRUN, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def expected_weight(world_size):
    """One process with the data of all ranks and the parameters of rank 0."""
    inputs = torch.cat([torch_worker.make_inputs(rank) for rank in range(world_size)])
    return torch_worker.step(torch_worker.make_model(seed=0), inputs)


class DdprunTest(unittest.TestCase):
    def finish(self, *agents):
        """The agents' output, all of it, once they have ended well."""
        try:
            outputs = [agent.communicate(timeout=interop.DEADLINE_S)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
                agent.wait(interop.DEADLINE_S)
        output = "\n".join(outputs)
        self.assertEqual([agent.returncode for agent in agents], [0] * len(agents), output)
        return output

    def check_ranks(self, output, world_size):
        lines = LINE.findall(output)
        self.assertEqual(sorted(int(line[0]) for line in lines), list(range(world_size)), output)
        for _, size, total, weight in lines:
            self.assertEqual(int(size), world_size)
            self.assertEqual(float(total), world_size * (world_size + 1) / 2)
            self.assertAlmostEqual(float(weight), expected_weight(world_size), places=5)

    def test_two_workers(self):
        self.check_ranks(self.finish(start("--nproc-per-node=2", interop.path_of("torch_worker.py"))), 2)

    def test_two_agents(self):
        with interop.StoreServer() as free:  # its port is free again when it has ended
            port = free.port
        options = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=interop"]
        agents = [start(*options, interop.path_of("torch_worker.py")) for _ in range(2)]
        self.check_ranks(self.finish(*agents), 2)

    def test_a_killed_worker(self):
        output = self.finish(
            start("--nproc-per-node=2", "--max-restarts=1", interop.path_of("crash_once_worker.py")))
        self.assertIn("killed", output)
        self.assertIn("(SIGKILL)", output)
        self.check_ranks(output, 2)

    def test_a_recorded_exception_is_in_the_report(self):
        with tempfile.TemporaryDirectory() as logs:
            agent = start("--nproc-per-node=2", f"--log-dir={logs}", interop.path_of("recorded_error_worker.py"))
            output = agent.communicate(timeout=interop.DEADLINE_S)[0]
            self.assertEqual(agent.returncode, 1, output)
            self.assertIn("RuntimeError: deliberate", output)
            self.assertRegex(output, r"error_file: .*/attempt_0/1/error\.json")

    def test_store_only(self):
        server = subprocess.Popen([DDPRUN, "--store-only"], stdout=subprocess.PIPE)
        try:
            port = int(server.stdout.readline())
            timeout = datetime.timedelta(seconds=interop.DEADLINE_S)
            clients = [TCPStore("127.0.0.1", port, is_master=False, timeout=timeout) for _ in range(2)]
            clients[0].set("key", "value")
            self.assertEqual(clients[1].get("key"), b"value")
            self.assertEqual([client.add("n", 3) for client in clients], [3, 6])
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(interop.DEADLINE_S), 0)
        finally:
            server.kill()
            server.wait(interop.DEADLINE_S)
            server.stdout.close()


if __name__ == "__main__":
    interop.main()
