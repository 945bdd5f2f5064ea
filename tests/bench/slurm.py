"""Measures how long a job of a real Slurm takes from sbatch to its first step, with ddprun and with srun alone."""

import os
import pathlib
import sys
import tempfile
import time

import measure
from table import medians, ms

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "slurm"), str(HERE.parent / "hosts")]
import cluster  # noqa: E402

NODES = 4
WORKER = HERE / "first_step.py"


def first_step(slurm, script, stamps):
    """Submits the script; returns the seconds until all workers have met. Afterwards the cluster is idle."""
    began = time.monotonic_ns()
    job = slurm.submit([f"--nodes={NODES}", "--exclusive", "--output=/dev/null", str(script)])
    ((_, _, met),) = stamps.read(1)
    state = slurm.wait_job(job, measure.DEADLINE_S)
    if state != "COMPLETED":
        raise RuntimeError(f"job {job} of {script}: {state}")
    slurm.wait_idle(measure.DEADLINE_S)
    return (met - began) / 1e9


def bench_slurm(options, table):
    what = f"sbatch to the first step, {NODES} nodes"
    if why_not := cluster.why_not():
        return table.missing(what, why_not)
    with tempfile.TemporaryDirectory() as folder, cluster.Cluster(NODES) as slurm:
        stamps = measure.Stamps(folder)
        worker = f"{WORKER} {stamps.path}"
        commands = {
            "srun": f"MASTER_ADDR=node1 srun --ntasks-per-node=1 {worker}",
            "ddprun": f"srun --ntasks-per-node=1 {os.path.abspath(options.ddprun)} --no-python {worker}",
        }
        measured = {}
        for name, command in commands.items():
            script = pathlib.Path(folder, name)
            script.write_text(f"#!/bin/bash\n{command}\n", encoding="ascii")
            measured[name] = lambda script=script: first_step(slurm, script, stamps)
        median = medians(options.runs, measured)
        stamps.close()
    peer = median["srun"]
    table.row(what, ms(median["ddprun"]), ms(peer) + 100, "ms", f"srun alone {ms(peer):.0f} ms + 100 ms")
