"""Measures how fast a job reacts to the loss and the arrival of a node."""

import os
import signal
import subprocess
import time

import measure
from hosts import Hosts
from table import medians, ms, progress

LEASE_S = 2
LAST_CALL_S = 1


def agents(options, endpoint, nnodes, workers=1):
    return [
        options.ddprun, f"--nnodes={nnodes}", f"--nproc-per-node={workers}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=last_call_timeout={LAST_CALL_S},lease_ms={LEASE_S * 1000}",
        options.worker,
    ]  # fmt: skip


def seconds_between(begin_ns, end_ns):
    return (end_ns - begin_ns) / 1e9


def reset(options):
    """Kills one of three agents.

    Returns (seconds from the kill until the last surviving worker gets SIGTERM, seconds from this SIGTERM
    until the last new worker starts).
    """
    endpoint = f"127.0.0.1:{measure.jobs.free_port()}"
    with measure.waiting_job([agents(options, endpoint, "1:3")] * 3, 3) as (processes, stamps, _):
        killed = time.monotonic_ns()
        processes[2].kill()  # not the first agent, which hosts the coordinator
        stopped = max(ns for _, _, ns in stamps.read_stops(2))
        started = max(ns for _, _, ns in stamps.read(2))
        return seconds_between(killed, stopped), seconds_between(stopped, started)


def silence(options, hosts):
    """Cuts the link of the third host. Returns the same values as reset(), measured from the cut."""
    commands = [hosts.on(i, agents(options, hosts.address(1), "1:3")) for i in (1, 2, 3)]
    with measure.waiting_job(commands, 3) as (_, stamps, _):
        cut = time.monotonic_ns()
        hosts.cut(3)
        stopped = max(ns for _, _, ns in stamps.read_stops(2))
        # The workers of the cut-off node are killed, so they write no stop stamp.
        started = max(ns for _, _, ns in stamps.read(2))
        return seconds_between(cut, stopped), seconds_between(stopped, started)


def arrival(options):
    """Starts a third agent. Returns the seconds until the last worker of the larger round starts."""
    command = agents(options, f"127.0.0.1:{measure.jobs.free_port()}", "2:4")
    with measure.waiting_job([command] * 2, 2) as (_, stamps, _):
        begin = time.monotonic_ns()
        with subprocess.Popen(command + [stamps.path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as agent:
            try:
                return seconds_between(begin, max(ns for _, _, ns in stamps.read(3)))
            finally:
                measure.jobs.stop(agent)


def bench_elastic(options, table):
    losses, recoveries = [], []
    for run in range(options.runs):
        progress(f"run {run + 1}/{options.runs}: an agent is killed")
        loss, recovery = reset(options)
        losses.append(loss)
        recoveries.append(recovery)
    own = measure.median([measure.own_start(options.worker) for _ in range(options.runs)])
    table.row("SIGKILL of an agent to the last survivor stopped, 3 agents", ms(measure.median(losses)), 50, "ms",
              f"slowest {ms(max(losses)):.1f} ms")  # fmt: skip
    wholes = [loss + recovery for loss, recovery in zip(losses, recoveries)]
    table.row("SIGKILL of an agent to the last new worker, 3 agents", ms(measure.median(wholes)), ms(own) + 20, "ms",
              f"the worker's own start {ms(own):.2f} ms + 20 ms; slowest {ms(max(wholes)):.1f} ms")  # fmt: skip

    losses, recoveries = [], []
    try:
        for run in range(options.runs):
            progress(f"run {run + 1}/{options.runs}: a link is cut")
            with Hosts(3) as hosts:
                loss, recovery = silence(options, hosts)
            losses.append(loss)
            recoveries.append(recovery)
        table.row("cut of a link to the last survivor stopped, 3 hosts", measure.median(losses), LEASE_S * 1.1, "s",
                  f"lease of {LEASE_S} s + 10 %; slowest {max(losses):.3f} s")  # fmt: skip
        table.row("last survivor stopped to the last new worker, 3 hosts", ms(measure.median(recoveries)), ms(own) + 100, "ms",
                  f"the worker's own start {ms(own):.2f} ms + 100 ms; slowest {ms(max(recoveries)):.1f} ms")  # fmt: skip
    except RuntimeError as error:
        table.missing("cut of a link to the last survivor stopped", str(error))

    joining = medians(options.runs, {"arrival": lambda: arrival(options)})["arrival"]
    table.row("start of a third agent to the last worker of the larger round", joining, LAST_CALL_S + 1, "s",
              f"last call of {LAST_CALL_S} s + 1 s")  # fmt: skip


def bench_calm(options, table):
    """Runs a job while all CPUs are busy with other work, and counts the workers and agents that stop."""
    command = agents(options, f"127.0.0.1:{measure.jobs.free_port()}", "1:3")
    command[-2] = f"--rdzv-conf=last_call_timeout={LAST_CALL_S}"  # with the default lease
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(options.calm_busy * (os.cpu_count() or 1))]
    alarms, seconds = 0, round(options.calm_minutes * 60)
    try:
        with measure.waiting_job([command] * 3, 3) as (processes, stamps, _):
            for second in range(seconds):
                progress(f"{second} of {seconds} s under load {os.getloadavg()[0]:.1f}")
                if not stamps.quiet(1.0):
                    alarms += len(stamps.stops) + len(stamps.begins)
                    stamps.stops.clear()
                    stamps.begins.clear()
            alarms += sum(process.poll() is not None for process in processes)
    finally:
        for process in busy:
            process.send_signal(signal.SIGKILL)
            process.wait()
    progress("")
    table.row("false alarms, 3 agents on busy CPUs", alarms, 0, "",
              f"in {options.calm_minutes:g} min; {len(busy)} other busy processes, load {os.getloadavg()[0]:.1f}")  # fmt: skip
