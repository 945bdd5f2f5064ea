"""Tests PyTorch workers under ddprun with command lines that users of torchrun would write."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "tools"))

import group_worker  # noqa: E402
import interop  # noqa: E402
import jobs  # noqa: E402
import launched  # noqa: E402
import torch  # noqa: E402
import torch_worker  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure  # noqa: E402

LINE = re.compile(r"^rank=(\d+) world_size=(\d+) sum=([\d.]+) weight=(-?\d+\.\d{6})$", re.MULTILINE)


def expected_weight(world_size):
    """Returns the weight after one step in one process with the data of all ranks and the parameters of rank 0."""
    inputs = torch.cat([torch_worker.make_inputs(rank) for rank in range(world_size)])
    return torch_worker.step(torch_worker.make_model(seed=0), inputs)


class DdprunTest(unittest.TestCase):
    def setUp(self):
        self.logs = self.enterContext(tempfile.TemporaryDirectory())
        self.job = self.enterContext(launched.Job())

    def start(self, *options, worker="torch_worker.py", worker_args=(), **environment_changes):
        command = [f"--log-dir={self.logs}", *options, interop.path_of(worker), *worker_args]
        return self.job.ddprun(*command, **environment_changes)

    def output_of_failed(self, agent):
        """Returns the output of a launcher. Fails unless the launcher exits with 1, as after a worker failure."""
        self.assertEqual(agent.wait(interop.deadline()), 1, agent.output)
        return agent.output

    def check_ranks(self, output, world_size):
        lines = LINE.findall(output)
        self.assertEqual(sorted(int(line[0]) for line in lines), list(range(world_size)), output)
        for _, size, total, weight in lines:
            self.assertEqual(int(size), world_size)
            self.assertEqual(float(total), world_size * (world_size + 1) / 2)
            self.assertAlmostEqual(float(weight), expected_weight(world_size), places=5)

    def test_two_workers_with_either_store_backend(self):
        for use_libuv in ("0", "1") if torch.__version__ >= "2" else ("0",):  # 1.x has only one backend
            agent = self.start("--nproc-per-node=2", USE_LIBUV=use_libuv)
            self.check_ranks(self.job.finish(agent), 2)

    def test_two_agents(self):
        endpoint = f"127.0.0.1:{jobs.free_port()}"
        options = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=interop"]
        self.check_ranks(self.job.finish(*[self.start(*options) for _ in range(2)]), 2)

    def test_group_operations(self):
        output = self.job.finish(self.start("--nproc-per-node=2", worker="group_worker.py"))
        names = [check.__name__ for check in group_worker.CHECKS] + ["a_second_group"]
        passed = sorted(re.findall(r"^rank=(\d) passed=(\w+)$", output, re.MULTILINE))
        self.assertEqual(passed, sorted((rank, name) for rank in "01" for name in names), output)

    def test_a_killed_worker(self):
        marker = f"{self.logs}/crashed"
        agent = self.start("--nproc-per-node=2", "--max-restarts=1", worker="crash_once_worker.py", worker_args=[marker])
        output = self.job.finish(agent)
        self.assertIn("killed", output)
        self.assertIn("(SIGKILL)", output)
        self.check_ranks(output, 2)

    def test_a_recorded_exception_is_in_the_report(self):
        output = self.output_of_failed(self.start("--nproc-per-node=2", worker="recorded_error_worker.py"))
        self.assertIn("RuntimeError: deliberate", output)
        files = list(pathlib.Path(self.logs).glob("*/attempt_0/1/error.json"))
        self.assertEqual(len(files), 1, output)
        self.assertIn(f"error_file: {files[0]}", output)
        error = json.loads(files[0].read_text())["message"]
        self.assertEqual(error["message"], "RuntimeError: deliberate")
        self.assertIn("recorded_error_worker.py", error["extraInfo"]["py_callstack"])

    def test_run_path_records_an_undecorated_exception(self):
        """ddprun writes the error file, and torchrun's agent can read it."""
        agent = self.start("--nproc-per-node=2", "--run-path", worker="unrecorded_error_worker.py")
        output = self.output_of_failed(agent)
        (file,) = pathlib.Path(self.logs).glob("*/attempt_0/1/error.json")
        failure = ProcessFailure(local_rank=1, pid=1, exitcode=1, error_file=str(file))
        self.assertEqual(failure.message["message"], "ValueError: deliberate and unrecorded", output)
        self.assertGreater(failure.timestamp, 1_000_000_000)
        self.assertIn("ValueError: deliberate and unrecorded", output)

    def test_a_worker_that_hosts_the_store(self):
        """Rank 0 hosts the store, as under torchrun if agents and workers do not share a store."""
        agent = self.start("--nproc-per-node=2", worker="own_store_worker.py", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.check_ranks(self.job.finish(agent), 2)

    def test_a_local_rank_among_the_arguments(self):
        """Old scripts read the local rank from an argument. In 1.13 its name must have an underscore."""
        ways = [(["--pass-local-rank"], ["data"]), ([], ["--local_rank=${local_rank}", "data"])]
        for options, worker_args in ways:
            agent = self.start("--nproc-per-node=2", *options, worker="local_rank_worker.py", worker_args=worker_args)
            output = self.job.finish(agent)
            lines = sorted(re.findall(r"^local_rank=.*$", output, re.MULTILINE))
            self.assertEqual(lines, [f"local_rank={rank} env={rank} rest=['data']" for rank in range(2)], output)


if __name__ == "__main__":
    interop.main()
