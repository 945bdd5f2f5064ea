"""Measures in-place recovery: from SIGKILL of a worker to the next all-reduce of all gradients, with 1 M parameters and AdamW."""

import os
import signal
import time

import measure
from table import interleaved, ms

LIMIT_MS = 50
HERE = os.path.dirname(os.path.abspath(__file__))
IN_PROCESS_INTERVALS_MS = (100, 300)  # shorter ones load the machine, so that the restart takes longer


def after_a_kill(commands, workers, left, victim_agent=None):
    """Kills the last rank, and with `victim_agent` the agent with this index, too.

    Returns the seconds until the first step of the next round is done on all of its `left` workers.
    """
    with measure.waiting_job(commands, workers) as (processes, stamps, first):
        while stamps.begins or not stamps.quiet(0.5):  # rounds that grow while agents join
            first = stamps.read(len(stamps.begins)) or first
        _, victim, _ = max(first)
        killed = time.monotonic_ns()
        if victim_agent is not None:
            processes[victim_agent].kill()  # its warden kills the worker
        else:
            os.kill(victim, signal.SIGKILL)
        return (max(ns for _, _, ns in stamps.read(left)) - killed) / 1e9


def one_agent(options, workers=3, flags=()):
    """With the joiner: the agent replaces the worker."""
    agent = [options.ddprun, f"--nproc-per-node={workers}", "--max-restarts=3", "--no-python", options.survivor, *flags]
    return after_a_kill([agent], workers, workers)


def three_agents(options, flags=()):
    """Survivors only: nothing replaces the agent and its worker."""
    port = measure.jobs.free_port()

    def agent(is_host):
        return [
            options.ddprun, "--nnodes=2:3", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
            f"--rdzv-conf=last_call_timeout=1,is_host={is_host}", "--no-python", options.survivor, *flags,
        ]  # fmt: skip

    return after_a_kill([agent(1), agent(0), agent(0)], 3, 2, victim_agent=2)


def in_process(options, interval_ms):
    """The same with nvidia-resiliency-ext, without a launcher: torchrun would stop all workers."""
    port = measure.jobs.free_port()
    run_id = f"in-process-{port}"
    common = ["WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", "GLOO_SOCKET_IFNAME=lo",
              f"PYTHONPATH={options.resiliency}", f"TORCHELASTIC_RUN_ID={run_id}"]  # fmt: skip
    python = os.path.join(os.path.dirname(options.torchrun), "python3")
    worker = [python, f"{HERE}/in_process_torch.py", str(interval_ms)]
    try:
        return after_a_kill([["env", f"RANK={r}", f"LOCAL_RANK={r}", *common, *worker] for r in range(3)], 3, 2)
    finally:
        for pid in measure.jobs.processes_of(run_id):
            os.kill(pid, signal.SIGKILL)  # its monitors are daemons


def restart(options, workers=3, flags=()):
    os.environ["DDPRUN_BENCH_RESTART"] = "1"
    try:
        return one_agent(options, workers, flags)
    finally:
        del os.environ["DDPRUN_BENCH_RESTART"]


def bench_in_place(options, table):
    measured = {
        "in place, one agent": lambda: one_agent(options),
        "in place, 2 of 3 agents": lambda: three_agents(options),
        "restart": lambda: restart(options),
    }
    if options.torchrun and options.resiliency:
        for interval in IN_PROCESS_INTERVALS_MS:
            measured[interval] = lambda interval=interval: in_process(options, interval)
    values = interleaved(options.runs, measured)
    median = {name: ms(measure.median(v)) for name, v in values.items()}
    for name, what in (
        ("in place, one agent", "SIGKILL of 1 of 3 workers to the next step, with the joiner"),
        ("in place, 2 of 3 agents", "SIGKILL of 1 of 3 agents to the next step of the survivors"),
    ):
        note = f"slowest {ms(max(values[name])):.1f} ms; restart of all three workers {median['restart']:.1f} ms"
        table.row(what, median[name], LIMIT_MS, "ms", note)
    what = "the same survivors, in-process restart of nvidia-resiliency-ext"
    if not (options.torchrun and options.resiliency):
        table.missing(what, "it is not installed (--resiliency)")
        return
    best = min(IN_PROCESS_INTERVALS_MS, key=median.get)
    each = ", ".join(f"{i}: {median[i]:.0f}" for i in IN_PROCESS_INTERVALS_MS)
    ours = median["in place, 2 of 3 agents"]
    table.row(what, ours, median[best], "ms", f"{median[best] / ours:.0f} times ours; with intervals of {each} ms")
