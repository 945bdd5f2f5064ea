"""Measures jobs with a register, on etcd or among voters: the loss and the hand-over of the coordinator, and what it adds to a restart."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time

import measure
from hosts import Hosts
from table import medians, ms, progress

LEASE_S = 2


@contextlib.contextmanager
def etcd(on=lambda command: command, address="127.0.0.1"):
    """Runs one member on `address`, and yields its endpoint. `on` gives the command line that runs a command on its host."""
    if shutil.which("etcd") is None:
        raise RuntimeError("etcd is missing: `tools/dev setup --etcd` installs it")
    with tempfile.TemporaryDirectory() as folder:
        client, peer = (f"{address}:{measure.jobs.free_port()}" for _ in range(2))
        command = [
            "etcd", f"--data-dir={folder}/data", f"--listen-client-urls=http://{client}", f"--advertise-client-urls=http://{client}",
            f"--listen-peer-urls=http://{peer}", f"--initial-advertise-peer-urls=http://{peer}",
            f"--initial-cluster=default=http://{peer}", "--log-level=error",
        ]  # fmt: skip
        server = subprocess.Popen(on(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            health = on(["etcdctl", f"--endpoints={client}", "--command-timeout=1s", "endpoint", "health"])
            deadline = time.monotonic() + measure.DEADLINE_S
            while subprocess.run(health, capture_output=True, timeout=20, check=False).returncode != 0:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise RuntimeError("etcd did not become healthy")
            yield client
        finally:
            measure.jobs.stop(server)


# What keeps the register: the options of the agents.
KINDS = {
    "etcd": ["--rdzv-backend=etcd"],
    "voters": ["--rdzv-backend=c10d", "--quorum=voters"],
    "none": ["--rdzv-backend=c10d", "--quorum=none"],  # no register
}


def agents(options, kind, endpoint, name):
    return [
        options.ddprun, "--nnodes=1:3", *KINDS[kind], f"--rdzv-endpoint={endpoint}", f"--rdzv-id={name}",
        "--max-restarts=9", f"--rdzv-conf=last_call_timeout=2,lease_ms={LEASE_S * 1000}", options.worker,
    ]  # fmt: skip


def endpoint_of(kind, of_etcd):
    return of_etcd if kind == "etcd" else f"127.0.0.1:{measure.jobs.free_port()}"


@contextlib.contextmanager
def job(commands):
    """Starts three agents, of which the first one leads. Yields (processes, stamps, the starts of their workers)."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = measure.Stamps(folder)
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            processes = []
            try:
                for command in commands:
                    process = subprocess.Popen(
                        command + [stamps.path],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "LOGLEVEL": "INFO"},
                    )  # fmt: skip
                    processes.append(process)
                    deadline = time.monotonic() + measure.DEADLINE_S
                    while len(processes) == 1 and "event=node_joined" not in _content(log):
                        if time.monotonic() > deadline:
                            raise TimeoutError(f"the first agent did not lead\n{_content(log)[-2000:]}")
                        time.sleep(0.01)
                yield processes, stamps, stamps.read(3)
            finally:
                for process in processes:
                    measure.jobs.stop(process)
                stamps.close()


def _content(log):
    log.flush()
    with open(log.name, encoding="utf-8") as file:
        return file.read()


def signaled(options, kind, endpoint, run, signo):
    """Signals the agent of the coordinator. Returns the seconds until the last worker of the two others starts."""
    with job([agents(options, kind, endpoint_of(kind, endpoint), f"{signo}-{run}")] * 3) as (processes, stamps, _):
        begin = time.monotonic_ns()
        processes[0].send_signal(signo)
        return (max(ns for _, _, ns in stamps.read(2)) - begin) / 1e9


def cut(options, kind):
    """Cuts the link of the coordinator's host. Returns the same as signaled()."""
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(Hosts(4 if kind == "etcd" else 3))
        endpoint = f"{hosts.address(1)}:29400"
        if kind == "etcd":
            endpoint = stack.enter_context(etcd(lambda command: hosts.on(4, command), hosts.address(4)))
        commands = [hosts.on(i, agents(options, kind, endpoint, "cut")) for i in (1, 2, 3)]
        with job(commands) as (_, stamps, _):
            begin = time.monotonic_ns()
            hosts.cut(1)
            return (max(ns for _, _, ns in stamps.read(2)) - begin) / 1e9


def restart(options, kind, endpoint, name):
    """Kills a worker. Returns the seconds until the last new worker of the three agents starts."""
    with job([agents(options, kind, endpoint_of(kind, endpoint), name)] * 3) as (_, stamps, workers):
        seconds = []
        for _ in range(3):
            begin = time.monotonic_ns()
            os.kill(max(workers)[1], signal.SIGKILL)
            workers = stamps.read(3)
            seconds.append((max(ns for _, _, ns in workers) - begin) / 1e9)
        return measure.median(seconds)


def bench_takeover(options, table):
    own = measure.median([measure.own_start(options.worker) for _ in range(options.runs)])
    registers = ("etcd", "voters")
    with etcd() as endpoint:
        took = {(kind, signo): [] for kind in registers for signo in (signal.SIGKILL, signal.SIGTERM)}
        for run in range(options.runs):
            progress(f"run {run + 1}/{options.runs}: the agent of the coordinator is killed, and ended")
            for kind, signo in took:
                took[kind, signo].append(signaled(options, kind, endpoint, run, signo))
        for kind in registers:
            kills, moves = took[kind, signal.SIGKILL], took[kind, signal.SIGTERM]
            table.row(f"SIGKILL of the coordinator's agent to the last new worker, 3 agents, {kind}", measure.median(kills), 0.5, "s",
                      f"lease of {LEASE_S} s; slowest {max(kills):.3f} s")  # fmt: skip
            table.row(f"SIGTERM of the coordinator's agent to the last new worker, 3 agents, {kind}", ms(measure.median(moves)), ms(own) + 100,
                      "ms", f"the worker's own start {ms(own):.2f} ms + 100 ms; slowest {ms(max(moves)):.1f} ms")  # fmt: skip
        counter = iter(range(10**6))
        restarts = medians(
            options.runs,
            {kind: lambda kind=kind: restart(options, kind, endpoint, f"restart-{next(counter)}") for kind in KINDS},
        )
        for kind in registers:
            table.row(f"SIGKILL of a worker to the last new worker, 3 agents, {kind}", ms(restarts[kind]), ms(restarts["none"]) + 2, "ms",
                      f"without a register {ms(restarts['none']):.1f} ms + 2 ms")  # fmt: skip
    cuts = {kind: [] for kind in registers}
    try:
        for run in range(options.runs):
            progress(f"run {run + 1}/{options.runs}: the link of the coordinator is cut")
            for kind in registers:
                cuts[kind].append(cut(options, kind))
    except RuntimeError as error:
        return table.missing("cut of the coordinator's link", str(error))
    for kind in registers:
        table.row(f"cut of the coordinator's link to the last new worker, 3 hosts, {kind}", measure.median(cuts[kind]), LEASE_S + 1, "s",
                  f"lease of {LEASE_S} s + 1 s; slowest {max(cuts[kind]):.3f} s")  # fmt: skip
    return None
