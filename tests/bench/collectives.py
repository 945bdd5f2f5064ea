"""Measures all-reduces of floats between processes of this machine: ddprun's SDK, Open MPI and gloo in turn."""

import os
import subprocess
import tempfile

import measure
from table import medians

KIB, MIB = 1 << 10, 1 << 20
# Bytes, iterations of one run.
SIZES = [(8, 20000), (MIB, 300), (25 * MIB, 20), (256 * MIB, 5)]
HERE = os.path.dirname(os.path.abspath(__file__))


def number(command):
    """Runs the command and returns the number that it prints."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=measure.DEADLINE_S, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(done.stdout.strip().splitlines()[-1])


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def bench_collectives(options, table):
    with tempfile.TemporaryDirectory() as folder:
        mpi = f"{folder}/collective_mpi"
        subprocess.run(["mpicc", "-O2", "-o", mpi, f"{HERE}/collective_mpi.c"], check=True)
        measure_all(options, table, mpi)


def measure_all(options, table, mpi):
    load = options.collective_load

    def ddprun(ranks, size, iterations):
        job = [options.ddprun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", load]
        return lambda: number([*job, "all-reduce", str(size), str(iterations)])

    def open_mpi(ranks, size, iterations):
        job = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), mpi]
        return lambda: number([*job, str(size), str(iterations)])

    def gloo(size, iterations):
        job = [options.torchrun, "--standalone", "--nproc-per-node=2", f"{HERE}/collective_gloo.py"]
        return lambda: number([*job, str(size), str(max(3, iterations // 10))])

    round_trip = measure.median([number([load, "round-trip", "100000"]) for _ in range(options.runs)])
    for size, iterations in SIZES:
        measured = {"ddprun": ddprun(2, size, iterations), "Open MPI": open_mpi(2, size, iterations)}
        if size >= 25 * MIB:
            measured["limit"] = lambda size=size, iterations=iterations: number([load, "sum", str(size), str(iterations)])
        if options.torchrun and size <= 25 * MIB:
            measured["gloo"] = gloo(size, iterations)
        median = medians(options.runs, measured)
        ours, peer = median["ddprun"], median["Open MPI"]
        what = f"all-reduce of {size_text(size)}, 2 ranks"
        if size == 8:
            table.row(what, ours, max(1.5 * peer, 2 * round_trip), "us",
                      f"Open MPI {peer:.2f} us, round trip of a cache line {round_trip:.2f} us")  # fmt: skip
            if "gloo" in median:
                table.row(what, ours, median["gloo"] / 200, "us", f"1/200 of gloo's {median['gloo']:.0f} us")
        else:
            factor = 1.3 if size >= 25 * MIB else 1.0
            note = f"Open MPI {peer:.0f} us: {peer / ours:.2f} times ours"
            note += f"; limit {median['limit']:.0f} us: {100 * median['limit'] / ours:.0f} % of it" if "limit" in median else ""
            note += f"; gloo {median['gloo']:.0f} us" if "gloo" in median else ""
            table.row(what + ", private buffers", ours, peer / factor, "us", note)
    four = medians(options.runs, {"8": ddprun(4, 8, 2000), "64": ddprun(4, 64 * KIB, 500), "two": ddprun(2, 64 * KIB, 500),
                                  "mpi": open_mpi(4, 8, 200)})  # fmt: skip
    table.row("all-reduce of 8 B, 4 ranks", four["8"], 50, "us", f"Open MPI {four['mpi']:.0f} us")
    table.row("all-reduce of 64 KiB, 4 ranks", four["64"], 3 * four["two"], "us", f"3 times that of 2 ranks, {four['two']:.0f} us")
