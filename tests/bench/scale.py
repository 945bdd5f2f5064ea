"""Measures a coordinator with many agents: join and restart times, CPU time and memory."""

import contextlib
import socket
import subprocess
import tempfile
import time

import measure
from table import interleaved, medians, ms, progress

SIZES = (100, 300, 1000)
RESTARTS = 3
VOTERS = 3
QUORUMS = {"none": "0", "voters": "2"}  # the numbers of the rule in a join message


@contextlib.contextmanager
def coordinator(options):
    """Starts `ddprun --store-only`; yields its process and port."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [options.ddprun, "--store-only"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield process, int(process.stdout.readline())
        finally:
            measure.jobs.stop(process)
            process.stdout.close()


def crowd(options, size):
    """Measures a coordinator with `size` agents.

    Returns (seconds to join, median seconds of a restart, CPU seconds and resident MiB of the coordinator).
    """
    with coordinator(options) as (process, port):
        done = subprocess.run(
            [options.crowd, f"127.0.0.1:{port}", str(size), "crowd", str(RESTARTS)],
            capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{size} agents: {done.stderr.strip()}")
        join, *restarts, _ = (float(word) for word in done.stdout.split())
        cpu = measure.cpu_ns([process.pid]) / 1e9
        return join / 1000, measure.median(restarts) / 1000, cpu, measure.resident_kib([process.pid]) / 1024


def wait_for(endpoint):
    """Waits until a server listens at HOST:PORT."""
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + measure.DEADLINE_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def restart_with_agents(options, size, quorum):
    """Returns the median seconds of a restart of three real agents, the first of which coordinates, and a crowd."""
    endpoint = f"127.0.0.1:{measure.jobs.free_port()}"
    agent = [
        options.ddprun, f"--nnodes={size}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=crowd",
        f"--max-restarts={RESTARTS}", "--max-restarts-without-progress=0", f"--quorum={quorum}", options.worker,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log, contextlib.ExitStack() as stack:
        stamps = measure.Stamps(folder)
        stack.callback(stamps.close)
        for i in range(VOTERS):
            command = agent + [stamps.path]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(measure.jobs.stop, process)
            if i == 0:
                wait_for(endpoint)
        crowd_command = [options.crowd, endpoint, str(size - VOTERS), "crowd", str(RESTARTS), str(VOTERS), QUORUMS[quorum]]
        done = subprocess.run(crowd_command, capture_output=True, text=True, timeout=150, check=False)
        if done.returncode != 0:
            log.seek(0)
            raise RuntimeError(f"{size} agents, {quorum}: {done.stderr.strip()}\n{log.read()[-2000:]}")
        _, *restarts, _ = (float(word) for word in done.stdout.split())
        return measure.median(restarts) / 1000


def bench_scale(options, table):
    values = interleaved(options.runs, {size: lambda size=size: crowd(options, size) for size in SIZES})
    progress("")
    median = {size: [measure.median(column) for column in zip(*rows)] for size, rows in values.items()}
    most = SIZES[-1]
    join, restart, cpu, memory = median[most]
    small_join, small_restart, small_cpu, _ = median[SIZES[0]]
    note = f"{SIZES[0]} agents: {ms(small_join):.0f} ms; coordinator {memory:.0f} MiB"
    table.row(f"{most} agents over gRPC, first to last start", join, 5, "s", note)
    table.row(f"restart round of {most} agents", restart, 2, "s", f"{SIZES[0]} agents: {ms(small_restart):.1f} ms")
    took = medians(options.runs, {quorum: lambda quorum=quorum: restart_with_agents(options, most, quorum) for quorum in QUORUMS})
    table.row(f"restart round of {most} agents, three of which are voters, relative to one without a register",
              took["voters"] / took["none"], 1.1, "x", f"{ms(took['voters']):.0f} ms and {ms(took['none']):.0f} ms")  # fmt: skip
    # CPU time is compared, not wall time, because the crowd runs on the same machine as the coordinator.
    table.row(f"coordinator CPU per agent, {most} relative to {SIZES[0]} agents", cpu / small_cpu * SIZES[0] / most, 1.5, "x",
              f"1: linear; {ms(cpu / most):.2f} ms to join and restart {RESTARTS} times")  # fmt: skip
