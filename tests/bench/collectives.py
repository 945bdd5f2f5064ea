"""Measures all-reduces and messages of floats: on this machine ddprun's SDK, Open MPI and gloo in turn, and across a link the SDK
and iperf3."""

import json
import os
import shutil
import subprocess
import tempfile

import measure
from hosts import Hosts
from table import medians

KIB, MIB = 1 << 10, 1 << 20
# Bytes, iterations of one run.
SIZES = [(8, 20000), (MIB, 300), (25 * MIB, 20), (256 * MIB, 5)]
LINK_MBIT = 2000
LINK_SIZES = [(25 * MIB, 20), (100 * MIB, 5)]
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
    try:
        measure_link(options, table)
    except RuntimeError as error:
        table.missing("all-reduce across a link", str(error))


def iperf(hosts):
    """Sends from host 1 to host 2 and back at the same time for 2 s. Returns the bytes per second of the slower direction."""
    server = subprocess.Popen(hosts.on(2, ["iperf3", "--server", "--one-off", "--forceflush"]), stdout=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:
            if "listening" in line:
                break
        client = ["iperf3", "--client", hosts.address(2), "--time", "2", "--bidir", "--json"]
        done = subprocess.run(hosts.on(1, client), capture_output=True, text=True, timeout=measure.DEADLINE_S, check=False)
        end = json.loads(done.stdout).get("end", {})
        if done.returncode != 0 or "sum_received" not in end:
            raise RuntimeError(f"iperf3: {done.stdout[-300:]}")
        return min(end[name]["bits_per_second"] for name in ("sum_received", "sum_received_bidir_reverse")) / 8
    finally:
        server.kill()
        server.communicate()


def across(options, hosts, size, iterations):
    """Runs all-reduces between a rank on each of two hosts. Returns the bytes per second that each host sends."""
    job = [options.ddprun, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(1)}:29400",
           "--no-python", options.collective_load, "all-reduce", str(size), str(iterations)]  # fmt: skip
    # The host of rank 0 prints the time of an iteration.
    return size / hosts.number(hosts.run([job, job])) * 1e6


def measure_link(options, table):
    if shutil.which("iperf3") is None:
        raise RuntimeError("iperf3 is not installed")
    with Hosts(2) as hosts:
        hosts.shape(LINK_MBIT)
        measured = {"iperf3": lambda: iperf(hosts)}
        for size, iterations in LINK_SIZES:
            measured[size] = lambda size=size, iterations=iterations: across(options, hosts, size, iterations)
        median = medians(options.runs, measured)
    for size, _ in LINK_SIZES:
        share = 100 * median[size] / median["iperf3"]
        table.row(f"all-reduce of {size_text(size)}, 2 hosts, link of {LINK_MBIT / 1000:g} Gbit/s", share, 97, "%",
                  f"iperf3 in both directions, {median['iperf3'] / 1e6:.0f} MB/s each", at_least=True)  # fmt: skip


def measure_all(options, table, mpi):
    load = options.collective_load

    def ddprun(ranks, size, iterations, what="all-reduce"):
        job = [options.ddprun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", load]
        return lambda: number([*job, what, str(size), str(iterations)])

    def open_mpi(ranks, size, iterations, what="all-reduce"):
        job = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), mpi]
        return lambda: number([*job, what, str(size), str(iterations)])

    def gloo(size, iterations):
        job = [options.torchrun, "--standalone", "--nproc-per-node=2", f"{HERE}/collective_gloo.py"]
        return lambda: number([*job, str(size), str(max(3, iterations // 10))])

    round_trip = measure.median([number([load, "round-trip", "100000"]) for _ in range(options.runs)])
    for size, iterations in SIZES:
        measured = {"ddprun": ddprun(2, size, iterations), "Open MPI": open_mpi(2, size, iterations)}
        if size >= 25 * MIB:
            measured["buffer"] = ddprun(2, size, iterations, "buffer")
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
            table.row(what + ", private memory", ours, peer / factor, "us", note)
        if "buffer" in median:
            shared, limit = median["buffer"], median["limit"]
            table.row(what + ", memory from Allocate", shared, min(peer / 2, limit / 0.6), "us",
                      f"Open MPI {peer / shared:.2f} times ours; {100 * limit / shared:.0f} % of the limit")  # fmt: skip
    four = medians(options.runs, {"8": ddprun(4, 8, 2000), "64": ddprun(4, 64 * KIB, 500), "two": ddprun(2, 64 * KIB, 500),
                                  "mpi": open_mpi(4, 8, 200)})  # fmt: skip
    table.row("all-reduce of 8 B, 4 ranks", four["8"], 50, "us", f"Open MPI {four['mpi']:.0f} us")
    table.row("all-reduce of 64 KiB, 4 ranks", four["64"], 3 * four["two"], "us", f"3 times that of 2 ranks, {four['two']:.0f} us")
    for size, iterations in (8, 20000), (25 * MIB, 20):
        median = medians(options.runs, {"ddprun": ddprun(2, size, iterations, "ping-pong"),
                                        "Open MPI": open_mpi(2, size, iterations, "ping-pong")})  # fmt: skip
        peer = median["Open MPI"]
        table.row(f"message of {size_text(size)}, 2 ranks", median["ddprun"], 1.5 * peer, "us", f"Open MPI {peer:.2f} us")
