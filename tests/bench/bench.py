"""How fast ddprun starts, recovers and rests, beside torchrun and mpirun: interleaved, medians, one table.

Exit status 0 when every target is met and everything was measured.
"""

import argparse
import os
import sys

import measure


class Table:
    """Rows as they become known; remembers whether all targets were met."""

    def __init__(self):
        self.all_met = True
        print(f"{'what':<52} {'ddprun':>10} {'target':>12} {'':>6}  compared with")

    def row(self, what, value, limit, unit, compared):
        met = limit is not None and value <= limit
        self.all_met &= met
        target = "-" if limit is None else f"<= {limit:.4g} {unit}"
        print(f"{what:<52} {value:>7.4g} {unit:<3}{target:>12} {'pass' if met else 'FAIL':>6}  {compared}", flush=True)

    def missing(self, what, why):
        self.all_met = False
        print(f"{what:<52} not measured: {why}", flush=True)


def ms(seconds):
    return seconds * 1000


def interleaved(runs, measured):
    """{name: median} of `runs` calls of each function of `measured`, one after the other in turn."""
    values = {name: [] for name in measured}
    for run in range(runs):
        for name, function in measured.items():
            values[name].append(function())
        print(f"\r  run {run + 1}/{runs} ", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return {name: measure.median(v) for name, v in values.items()}


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
    medians = interleaved(options.runs, measured)
    ours = medians["ddprun"]
    what = "two workers that do nothing, start to end"
    table.row(what, ms(ours), ms(medians["mpirun"]) / 2, "ms", f"mpirun {ms(medians['mpirun']):.1f} ms, half of it")
    if "torchrun" in medians:
        peer = medians["torchrun"]
        table.row(what, ms(ours), ms(peer) / 50, "ms", f"torchrun {ms(peer):.0f} ms, {peer / ours:.0f} times ours")
    else:
        table.missing(what + ", torchrun", "there is none")


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
    medians = interleaved(options.runs, measured)
    own = medians["own start"]
    for name in ("one agent", "two agents"):
        note = f"the worker's own start {ms(own):.2f} ms + 20 ms"
        if name == "one agent" and "torchrun" in medians:
            note += f"; torchrun {ms(medians['torchrun']):.0f} ms"
        table.row(f"SIGKILL to the last new worker, {name} x 2", ms(medians[name]), ms(own) + 20, "ms", note)
    if "torchrun" not in medians:
        table.missing("SIGKILL to the last new worker, torchrun", "there is none")


def bench_rest(options, table):
    ours, memory = measure.rest([options.ddprun, "--nproc-per-node=2", options.worker], 2, options.runs)
    cpu_note, memory_note = f"medians of {options.runs} s", "agent and warden"
    if options.torchrun:
        peer, peer_memory = measure.rest(torchrun(options, options.worker), 2, options.runs)
        cpu_note = f"torchrun {100 * measure.median(peer):.2f} %"
        memory_note += f"; torchrun {peer_memory:.0f} MiB"
    table.row("CPU of an agent at rest", 100 * measure.median(ours), 0.01, "%", cpu_note)
    table.row("resident memory of an agent at rest", memory, 25, "MiB", memory_note)


def main():
    parser = argparse.ArgumentParser(prog="tools/dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--ddprun", required=True, help="the launcher to measure")
    parser.add_argument("--worker", required=True, help="tests/bench/stamp_worker")
    parser.add_argument("--torchrun", default="", help="a current torchrun; empty: not measured")
    parser.add_argument("--runs", type=int, default=10, help="of each measurement (default: %(default)s)")
    parser.add_argument("--only", choices=["start", "recovery", "rest"], help="only this part")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, medians of {options.runs}, one after the other in turn")
    table = Table()
    parts = {"start": bench_start, "recovery": bench_recovery, "rest": bench_rest}
    for name, part in parts.items():
        if options.only in (None, name):
            try:
                part(options, table)
            except (RuntimeError, TimeoutError, OSError) as error:
                table.missing(name, str(error))
    return 0 if table.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
