"""Measures the performance of ddprun and compares it with torchrun, mpirun and torch's store.

The exit status is 0 if everything was measured and every target was met.
"""

import argparse
import os
import sys

import measure
from collectives import bench_collectives
from elastic import bench_calm, bench_elastic
from goodput import bench_goodput
from gpu import bench_gpu
from hang import bench_hang
from in_place import bench_in_place
from scale import bench_scale
from slurm import bench_slurm
from step import bench_step
from store import bench_store
from table import Table, medians, ms
from takeover import bench_takeover
from tee import bench_tee


def torchrun(options, *more):
    return [options.torchrun, "--nproc-per-node=2", "--monitor-interval=0.01", "--no-python", *more]


def bench_start(options, table):
    measured = {
        "ddprun": lambda: measure.whole_command([options.ddprun, "--nproc-per-node=2", "/bin/true"]),
        "mpirun": lambda: measure.whole_command(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "/bin/true"]
        ),
    }
    if options.torchrun:
        measured["torchrun"] = lambda: measure.whole_command(torchrun(options, "/bin/true"))
    median = medians(options.runs, measured)
    ours = median["ddprun"]
    what = "two workers that do nothing, from start to exit"
    table.row(what, ms(ours), ms(median["mpirun"]) / 2, "ms", f"half of mpirun's {ms(median['mpirun']):.1f} ms")
    if "torchrun" in median:
        peer = median["torchrun"]
        table.row(what, ms(ours), ms(peer) / 50, "ms", f"torchrun {ms(peer):.0f} ms, {peer / ours:.0f} times ours")
    else:
        table.missing(what + ", torchrun", "no torchrun given")


def bench_recovery(options, table):
    one = [[options.ddprun, "--nproc-per-node=2", "--max-restarts=3", options.worker]]

    def two_agents():
        port = measure.jobs.free_port()
        agent = [
            options.ddprun, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{port}", "--max-restarts=3", options.worker,
        ]  # fmt: skip
        return measure.recovery([agent, agent], 4)

    measured = {
        "own start": lambda: measure.own_start(options.worker),
        "one agent": lambda: measure.recovery(one, 2),
        "two agents": two_agents,
    }
    if options.torchrun:
        peer = [torchrun(options, "--max-restarts=3", options.worker)]
        measured["torchrun"] = lambda: measure.recovery(peer, 2)
    median = medians(options.runs, measured)
    own = median["own start"]
    for name in ("one agent", "two agents"):
        note = f"the worker's own start {ms(own):.2f} ms + 20 ms"
        if name == "one agent" and "torchrun" in median:
            note += f"; torchrun {ms(median['torchrun']):.0f} ms"
        table.row(f"SIGKILL to the last new worker, {name} x 2", ms(median[name]), ms(own) + 20, "ms", note)
    if "torchrun" not in median:
        table.missing("SIGKILL to the last new worker, torchrun", "no torchrun given")


def bench_rest(options, table):
    ours, memory = measure.rest([options.ddprun, "--nproc-per-node=2", options.worker], 2, options.runs)
    cpu_note, memory_note = f"medians of {options.runs} s", "agent and warden"
    if options.torchrun:
        peer, peer_memory = measure.rest(torchrun(options, options.worker), 2, options.runs)
        cpu_note = f"torchrun {100 * measure.median(peer):.2f} %"
        memory_note += f"; torchrun {peer_memory:.0f} MiB"
    table.row("CPU of an idle agent", 100 * measure.median(ours), 0.01, "%", cpu_note)
    table.row("resident memory of an idle agent", memory, 25, "MiB", memory_note)


PARTS = {
    "start": bench_start,
    "recovery": bench_recovery,
    "rest": bench_rest,
    "elastic": bench_elastic,
    "in-place": bench_in_place,
    "scale": bench_scale,
    "slurm": bench_slurm,
    "takeover": bench_takeover,
    "tee": bench_tee,
}
LONG_PARTS = {
    "collectives": bench_collectives,
    "step": bench_step,
    "calm": bench_calm,
    "goodput": bench_goodput,
    "hang": bench_hang,
    "gpu": bench_gpu,
    "store": bench_store,
}


def main():
    parser = argparse.ArgumentParser(prog="tools/dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--ddprun", required=True, help="the launcher to measure")
    parser.add_argument("--train", required=True, help="the training program")
    parser.add_argument("--worker", required=True, help="tests/bench/stamp_worker")
    parser.add_argument("--survivor", required=True, help="tests/bench/survivor")
    parser.add_argument("--crowd", required=True, help="tests/bench/agent_crowd")
    parser.add_argument("--tee-worker", required=True, help="tests/bench/tee_worker")
    parser.add_argument("--varied-worker", required=True, help="tests/bench/varied_worker")
    parser.add_argument("--collective-load", required=True, help="tests/bench/collective_load")
    parser.add_argument("--torchrun", default="", help="path of a current torchrun; if empty, torchrun is not measured")
    parser.add_argument("--resiliency", default="", help="folder of nvidia-resiliency-ext; if empty, it is not measured")
    parser.add_argument("--runs", type=int, default=10, help="runs of each measurement (default: %(default)s)")
    parser.add_argument("--only", choices=[*PARTS, *LONG_PARTS], action="append", help="measure only this part; may be repeated")
    parser.add_argument("--long", action="store_true", help=f"also measure the long parts: {', '.join(LONG_PARTS)}")
    parser.add_argument(
        "--calm-minutes", type=float, default=10, help="minutes of the test for false alarms (default: %(default)s)"
    )
    parser.add_argument(
        "--calm-busy", type=int, default=2, help="busy processes per CPU during that test (default: %(default)s)"
    )
    parser.add_argument(
        "--goodput-minutes", type=float, default=5, help="minutes with faults, and minutes without faults (default: %(default)s)"
    )
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, medians of {options.runs} interleaved runs")
    table = Table()
    chosen = options.only or [*PARTS, *(LONG_PARTS if options.long else [])]
    for name, part in {**PARTS, **LONG_PARTS}.items():
        if name in chosen:
            try:
                part(options, table)
            except (RuntimeError, TimeoutError, OSError) as error:
                table.missing(name, str(error))
    return 0 if table.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
