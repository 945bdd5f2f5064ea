"""Measures how output is forwarded from two workers with --tee=1: throughput, CPU time and lost bytes."""

import glob
import os
import re
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

import measure
from table import interleaved

WORKERS = 2
READ_BYTES = 1 << 20


@dataclass
class Load:
    name: str
    total: int  # bytes that each worker prints
    line: int  # length of each line in bytes
    faster: float  # target: minimum throughput relative to torchrun
    cheaper: float  # target: maximum CPU time relative to torchrun


LOADS = [
    Load("2 x 100 MB of 100 byte lines", 100_000_000, 100, 5, 1 / 5),
    Load("2 x 20 MB of 20 byte lines", 20_000_000, 20, 5, 1 / 5),
    Load("2 x 100 MB of 1 MB lines", 100_000_000, 1_000_000, 1, 1),
]


@dataclass
class Result:
    seconds: float  # from the first worker's first byte to the last byte on the console
    cpu: float  # CPU seconds of the launcher and its helpers, including start and exit
    wrong: int  # difference in bytes, at least 1 for each output that differs; 0 if the output is exact


def numbered(text):
    """Returns `text` without its first and last lines, which differ in each run."""
    return text[text.index(b"\n") + 1 : text.rindex(b"\n", 0, -1) + 1]


def wrong_bytes(got, want):
    if got == want:
        return 0
    return max(1, abs(len(got) - len(want)))


def run(launcher, worker, total, line):
    """Runs one job, reads its console as fast as possible, and checks the console output and the log files."""
    want = subprocess.run([worker, str(total), str(line)], stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as logs:
        command = [*launcher, f"--log-dir={logs}", "--tee=1", worker, str(total), str(line)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        deadline = threading.Timer(measure.DEADLINE_S, process.kill)
        deadline.start()
        console = []
        with process.stdout:
            while piece := os.read(process.stdout.fileno(), READ_BYTES):
                last = time.monotonic_ns()
                console.append(piece)
        _, status, usage = os.wait4(process.pid, 0)
        deadline.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: status {process.returncode}")
        lines = b"".join(console).split(b"\n")
        begin, workers_cpu, wrong = None, 0, 0
        for rank in range(WORKERS):
            (path,) = glob.glob(f"{logs}/*/attempt_0/{rank}/stdout.log")
            with open(path, "rb") as file:
                kept = file.read()
            prefix = b"[default%d]:" % rank
            shown = b"".join(l[len(prefix) :] + b"\n" for l in lines if l.startswith(prefix))
            wrong += wrong_bytes(numbered(kept), numbered(want)) + wrong_bytes(shown, kept)
            began = int(re.match(rb"begin (\d+)\n", kept)[1])
            begin = began if begin is None else min(begin, began)
            workers_cpu += int(re.search(rb"cpu (\d+)\n$", kept)[1])
        wrong += sum(len(l) for l in lines if not re.match(rb"\[default\d\]:|$", l))
    return Result((last - begin) / 1e9, usage.ru_utime + usage.ru_stime - workers_cpu / 1e9, wrong)


def bench_load(options, table, load):
    launchers = {"ddprun": [options.ddprun]}
    if options.torchrun:
        launchers["torchrun"] = [options.torchrun]
    common = [f"--nproc-per-node={WORKERS}", "--no-python"]

    def measured(launcher, total):
        return lambda: run([*launcher, *common], options.tee_worker, total, load.line)

    functions = {}
    for name, launcher in launchers.items():
        functions[name] = measured(launcher, load.total)
        functions[name + ", nothing"] = measured(launcher, 0)
    values = interleaved(options.runs, functions)
    seconds = {name: measure.median(r.seconds for r in values[name]) for name in launchers}
    # Subtract the CPU time of a run without output, which is the cost of starting and exiting.
    cpu = {
        name: measure.median(r.cpu for r in values[name]) - measure.median(r.cpu for r in values[name + ", nothing"])
        for name in launchers
    }
    what = f"--tee, {load.name}"
    speed = WORKERS * load.total / 1e6 / seconds["ddprun"]
    if "torchrun" in launchers:
        peer = WORKERS * load.total / 1e6 / seconds["torchrun"]
        compared = f"torchrun; {speed:.0f} and {peer:.0f} MB/s"
        table.row(f"{what}: throughput", speed / peer, load.faster, "x", compared, at_least=True)
        compared = f"torchrun; {cpu['ddprun']:.2f} and {cpu['torchrun']:.2f} s"
        table.row(f"{what}: CPU of the launcher", cpu["ddprun"] / cpu["torchrun"], load.cheaper, "x", compared)
    else:
        table.missing(f"{what}, torchrun", "no torchrun given")
    lost = sum(r.wrong for r in values["ddprun"])
    table.row(f"{what}: bytes lost or changed", lost, 0, "B", f"what was printed, all runs; {speed:.0f} MB/s")


def bench_tee(options, table):
    for load in LOADS:
        bench_load(options, table, load)
