"""Measures the detection of rounds that stand still: false alarms, its cost, and `ddpctl stacks`."""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measure
from table import ms, progress

WORKERS = 8


def bench_hang(options, table):
    bench_cost(options, table)
    bench_stacks(options, table)
    bench_false_alarms(options, table)


def bench_cost(options, table):
    """The processor time of an agent whose workers only wait, with and without looks at its workers once a second."""
    shares = {}
    for run in range(options.runs):
        for limit in ("0", "auto", "3600"):
            progress(f"run {run + 1}/{options.runs}: --hang-timeout={limit}")
            command = [options.ddprun, f"--nproc-per-node={WORKERS}", f"--hang-timeout={limit}", options.worker]
            shares.setdefault(limit, []).extend(measure.rest(command, WORKERS, windows=1, window_s=10.0)[0])
    progress("")
    median = {limit: 100 * statistics.median(values) for limit, values in shares.items()}
    for limit, what in (("auto", "heartbeat files"), ("3600", "heartbeat files, processor time and output")):
        table.row(f"CPU of looks at {WORKERS} workers: {what}", median[limit] - median["0"], 0.5, "%",
                  f"of one core; {median[limit]:.3f} % with, {median['0']:.3f} % without")  # fmt: skip


def bench_stacks(options, table):
    python = os.path.join(os.path.dirname(options.torchrun), "python3") if options.torchrun else ""
    if not os.access(os.path.join(os.path.dirname(python), "py-spy"), os.X_OK):
        table.missing("ddpctl stacks", "py-spy is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        shown, stop = os.path.join(folder, "shown"), os.path.join(folder, "stop")
        port = measure.jobs.free_port()
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stacks_worker.py")
        ddpctl = os.path.join(folder, "ddpctl")
        os.symlink(options.ddprun, ddpctl)
        command = [
            options.ddprun, "--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
            f"--nproc-per-node={WORKERS}", "--no-python", python, "-u", script, shown, stop,
        ]  # fmt: skip
        taken, pauses = [], []
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sys.stderr, text=True) as agent:
            try:
                for _ in range(WORKERS):
                    if agent.stdout.readline() != "ready\n":
                        raise RuntimeError("the workers did not start")
                for run in range(options.runs):
                    progress(f"run {run + 1}/{options.runs}: ddpctl stacks")
                    time.sleep(1)
                    with open(shown, "w", encoding="utf-8"):
                        pass
                    begin = time.monotonic()
                    stacks_of(ddpctl, port)
                    taken.append(time.monotonic() - begin)
                    time.sleep(max(0, 1 - taken[-1]))  # one call per second
                    os.remove(shown)
                for run in range(options.runs):
                    progress(f"run {run + 1}/{options.runs}: ddpctl stacks --native")
                    pauses += [float(found) for found in re.findall(r"rank \d+ for (\d+) ms", stacks_of(ddpctl, port, "--native"))]
                with open(stop, "w", encoding="utf-8"):
                    pass
                output, _ = agent.communicate(timeout=60)
            finally:
                measure.jobs.stop(agent)
    progress("")
    steps = [[float(value) for value in line.split()[1:]] for line in output.splitlines() if line.startswith("steps")]
    without, with_stacks = (statistics.mean(step[i] for step in steps) for i in (0, 1))
    table.row(f"ddpctl stacks of {WORKERS} Python workers that compute", max(taken), 1, "s",
              f"the slowest of {options.runs}; median {ms(statistics.median(taken)):.0f} ms")  # fmt: skip
    table.row("mean time of steps with one ddpctl stacks per second", 100 * (with_stacks / without - 1), 5, "%",
              f"longer than without: {with_stacks:.1f} and {without:.1f} ms")  # fmt: skip
    table.row("ddpctl stacks --native: the longest pause of a process", max(pauses), 500, "ms",
              f"median of {len(pauses)}: {statistics.median(pauses):.0f} ms")  # fmt: skip


def stacks_of(ddpctl, port, *more):
    done = subprocess.run([ddpctl, "stacks", f"--rdzv-endpoint=127.0.0.1:{port}", *more], capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    if done.returncode != 0 or "main thread" not in done.stdout:
        raise RuntimeError(f"ddpctl stacks: status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def bench_false_alarms(options, table):
    """Runs a job with irregular steps while all CPUs are busy, and counts the times that it is said to stand still."""
    seconds = round(options.calm_minutes * 60)
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(options.calm_busy * (os.cpu_count() or 1))]
    try:
        progress(f"{seconds} s of irregular steps")
        agent = subprocess.run(
            [options.ddprun, "--nproc-per-node=3", "--on-hang=restart", "--max-restarts=100", options.varied_worker, str(seconds)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 300, check=False)  # fmt: skip
        load = os.getloadavg()[0]
    finally:
        for process in busy:
            process.send_signal(signal.SIGKILL)
            process.wait()
    progress("")
    done = re.search(r"rank 0: (\d+) steps", agent.stdout)
    if agent.returncode != 0 or not done:
        raise RuntimeError(f"status {agent.returncode}\n{agent.stdout}{agent.stderr}")
    table.row("ranks said to be slower than the others, in the same run", agent.stderr.count("slower than the others"), 0, "",
              "the lengths of the steps of each rank have the same distribution")  # fmt: skip
    table.row("false alarms, steps of 0.05 to 1 s on busy CPUs", agent.stderr.count("no progress"), 0, "",
              f"in {seconds} s, {done.group(1)} steps with pauses for data and snapshots; {len(busy)} other busy processes, load {load:.1f}")  # fmt: skip
