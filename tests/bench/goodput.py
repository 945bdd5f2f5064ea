"""Measures training throughput while workers and agents are killed."""

import json
import os
import random
import signal
import subprocess
import tempfile
import time

import measure
from table import progress

# The disturbed and the undisturbed run alternate in slices, so that other load on the machine affects both alike.
SLICE_S = 60
KILL_EVERY_S = 15
SNAPSHOT_EVERY = 20


class Job:
    """Two agents, each with one `train` worker. When the job restarts, training resumes from a snapshot."""

    def __init__(self, options, folder, name):
        self.options = options
        self.run_id = f"goodput-{name}-{os.getpid()}"
        self.metrics = os.path.join(folder, f"{name}.jsonl")
        self.snapshots = os.path.join(folder, f"{name}-snapshots")
        self.log = open(os.path.join(folder, f"{name}.log"), "a+", encoding="utf-8")
        self.agents = []

    def command(self):
        return [
            self.options.ddprun, "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-id={self.run_id}",
            f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-conf=last_call_timeout=1", "--max-restarts=1000",
            "--scale-up=at-snapshot",
            "--log-dir=/dev/null", self.options.train, "--steps=1000000000", f"--snapshot-every={SNAPSHOT_EVERY}",
            f"--snapshot-dir={self.snapshots}", f"--metrics={self.metrics}", "--log-every=1000000",
        ]  # fmt: skip

    def start_agent(self):
        return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def start(self):
        self.port = measure.jobs.free_port()
        self.agents = [self.start_agent() for _ in range(2)]

    def stop(self):
        for agent in self.agents[::-1]:
            measure.jobs.stop(agent)
        self.agents = []

    def step(self):
        """Returns the highest step in the metrics file; 0 if there is none."""
        last = 0
        with open(self.metrics, encoding="utf-8") as lines:
            for line in lines:
                last = max(last, json.loads(line)["step"] if line.endswith("\n") else 0)
        return last

    def disturb(self, dice):
        """Kills a worker, or kills and restarts the agent that does not host the coordinator.

        Returns "agent" or "worker", or "nothing" if no worker was found.
        """
        if dice.random() < 0.5:
            self.agents[1].kill()
            self.agents[1].wait()
            self.agents[1] = self.start_agent()
            return "agent"
        pids = list(measure.jobs.processes_of(self.run_id))
        if pids:
            os.kill(dice.choice(pids), signal.SIGKILL)
            return "worker"
        return "nothing"


def run_slice(job, seconds, dice, kills):
    """Runs the job for `seconds`, including its start, and returns the number of steps done.

    If `dice` is set, kills an agent or a worker every KILL_EVERY_S seconds and counts the kills in `kills`.
    """
    job.start()
    begin = time.monotonic()
    before = job.step() if os.path.exists(job.metrics) else 0
    try:
        next_kill = begin + KILL_EVERY_S / 2
        while time.monotonic() < begin + seconds:
            time.sleep(min(0.5, max(0.0, begin + seconds - time.monotonic())))
            if dice and time.monotonic() >= next_kill:
                kills[job.disturb(dice)] += 1
                next_kill += KILL_EVERY_S
            for agent in job.agents:
                if agent.poll() is not None:
                    job.log.seek(0)
                    raise RuntimeError(f"an agent of {job.run_id} exited with status {agent.returncode}: {job.log.read()[-1500:]}")
        return job.step() - before
    finally:
        job.stop()


def bench_goodput(options, table):
    slices = max(1, round(options.goodput_minutes * 60 / SLICE_S))
    dice = random.Random(1)
    kills = {"agent": 0, "worker": 0, "nothing": 0}
    done = {"calm": 0, "disturbed": 0}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {name: Job(options, folder, name) for name in done}
        for turn in range(slices):
            for name, job in jobs.items():
                progress(f"slice {turn + 1}/{slices}: {name}, {kills['agent']} agents and {kills['worker']} workers killed")
                done[name] += run_slice(job, SLICE_S, dice if name == "disturbed" else None, kills)
    progress("")
    if kills["nothing"] > 0 or kills["agent"] + kills["worker"] == 0:
        raise RuntimeError(f"some kills had no target: {kills}")
    table.row("steps done with a SIGKILL every 15 s, share of an undisturbed run", 100 * done["disturbed"] / done["calm"], 90, "%",
              f"{done['disturbed']} of {done['calm']} steps in {slices} min each; {kills['worker']} workers, {kills['agent']} agents",
              at_least=True)  # fmt: skip
