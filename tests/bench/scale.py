"""Measures a coordinator with many agents: join and restart times, CPU time and memory."""

import contextlib
import subprocess
import tempfile

import measure
from table import interleaved, ms, progress

SIZES = (100, 300, 1000)
RESTARTS = 3


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
    # CPU time is compared, not wall time, because the crowd runs on the same machine as the coordinator.
    table.row(f"coordinator CPU per agent, {most} relative to {SIZES[0]} agents", cpu / small_cpu * SIZES[0] / most, 1.5, "x",
              f"1: linear; {ms(cpu / most):.2f} ms to join and restart {RESTARTS} times")  # fmt: skip
