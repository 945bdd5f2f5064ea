"""Measures the c10d store's speed and memory, compared with torch's server (libuv) and a bare epoll loop.

The load generator runs on one core and the measured server on another. The servers are measured in turn.
"""

import contextlib
import os
import pathlib
import subprocess
import tempfile

import measure
from table import interleaved, progress

OPERATIONS = ("add", "get", "rawget")
# {number of connections: minimum throughput relative to torch's server}
TARGETS = {1: 1.0, 8: 1.05, 32: 1.05, 128: 1.05}
FLOOR_SHARE = 0.9
SECONDS = 0.5
JOIN, JOIN_MANY = 2048, 10_000
RESIDENT_BYTES = 8192

# The server reads standard input until the pipe from this process is closed, so it exits with this process.
TORCH_SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=True)
print(store.port, flush=True)
sys.stdin.read()
"""

# torch's server resolves the name of each peer. With these mounts, the server reads names from a file and
# does not query a name server.
PRIVATE_RESOLVER = """
mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf && shift && exec "$@"
"""


def cores():
    """Returns the core for the load generator and the core for the server."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("the load generator and the server need one core each, but there is only one core")
    return usable[-2], usable[-1]


@contextlib.contextmanager
def server(command):
    """Starts `command` on the server's core; yields (port, pid)."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(cores()[1]), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            line = process.stdout.readline()
            if not line.strip().isdigit():
                log.seek(0)
                raise RuntimeError(f"{' '.join(command)} printed no port: {line}{log.read()[-1000:]}")
            yield int(line), process.pid
        finally:
            process.stdin.close()
            measure.jobs.stop(process)
            process.stdout.close()


@contextlib.contextmanager
def torch_server(options):
    """Starts torch's server with PRIVATE_RESOLVER; yields its port."""
    python = os.path.join(os.path.dirname(options.torchrun), "python3")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "hosts").write_text("127.0.0.1 localhost\n", encoding="utf-8")
        pathlib.Path(folder, "nsswitch.conf").write_text("hosts: files\n", encoding="utf-8")
        command = ["unshare", "--mount", "sh", "-c", PRIVATE_RESOLVER, "sh", folder, python, "-c", TORCH_SERVER]
        with server(command) as (port, _):
            yield port


def beside(options, program):
    """Returns the path of a benchmark program that is in the same directory as agent_crowd."""
    return os.path.join(os.path.dirname(options.crowd), program)


def load(options, port, *what):
    """Runs store_load and returns the numbers that it prints."""
    command = ["taskset", "-c", str(cores()[0]), beside(options, "store_load"), str(port), *map(str, what)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr[-1000:]}")
    return [float(word) for word in done.stdout.split()]


def median_of(values):
    """Returns the median of each column."""
    return [measure.median(column) for column in zip(*values)]


def operations(options, table, ports):
    for operation in OPERATIONS:
        for connections, target in TARGETS.items():
            measured = {
                name: lambda port=port: load(options, port, operation, connections, SECONDS) for name, port in ports.items()
            }
            values = interleaved(options.runs, measured)
            median = {name: median_of(v) for name, v in values.items()}
            rate, p50, p99 = median["ours"]
            what = f"{operation}, {connections} connections"
            floor = median["floor"][0]
            table.row(
                f"{what}: relative to a bare epoll loop", rate / floor, FLOOR_SHARE, "", at_least=True,
                compared=f"{rate:,.0f}/s, p50 {p50:.0f} us; the loop {floor:,.0f}/s",
            )  # fmt: skip
            if "torch" in median:
                torch, torch_p50, torch_p99 = median["torch"]
                table.row(
                    f"{what}: relative to torch's server", rate / torch, target, "", at_least=True,
                    compared=f"torch {torch:,.0f}/s, p50 {torch_p50:.0f} us",
                )  # fmt: skip
                # For all servers, the latency includes queueing in the load generator.
                table.row(f"{what}: p99", p99, torch_p99, "us", f"torch {torch_p99:.0f} us, the loop {median['floor'][2]:.0f} us")


def joins(options, table, ports):
    measured = {}
    for name in ports:
        measured[name, JOIN] = lambda name=name: join(options, name, JOIN)
    measured["ours", JOIN_MANY] = lambda: join(options, "ours", JOIN_MANY)
    values = interleaved(options.runs, measured)
    median = {key: median_of(v) for key, v in values.items()}
    counted, released = median["ours", JOIN]
    ours = counted + released
    floor = sum(median["floor", JOIN])
    split = f"counted {counted:.3f} s, released {released:.3f} s; the loop {floor:.3f} s"
    table.row(f"{JOIN:,} clients joined: relative to a bare epoll loop", floor / ours, FLOOR_SHARE, "", split, at_least=True)
    if ("torch", JOIN) in median:
        torch = sum(median["torch", JOIN])
        table.row(f"{JOIN:,} clients connected, counted, released", ours, torch / 3, "s", f"torch {torch:.3f} s")
    many = sum(median["ours", JOIN_MANY])
    linear = ours / JOIN * JOIN_MANY
    note = f"linear: {linear:.3f} s; the target adds 25 % for noise"
    table.row(f"{JOIN_MANY:,} clients, no worse than linear", many, 1.25 * linear, "s", note)


def join(options, name, clients):
    with SERVERS[name](options) as port:
        return load(options, port, "join", clients)


@contextlib.contextmanager
def our_server(options):
    with server([options.ddprun, "--store-only"]) as (port, _):
        yield port


@contextlib.contextmanager
def floor_server(options):
    with server([beside(options, "store_floor")]) as (port, _):
        yield port


SERVERS = {"ours": our_server, "torch": torch_server, "floor": floor_server}


def idle_memory(options, table):
    progress(f"{JOIN_MANY} idle connections")
    with server([options.ddprun, "--store-only"]) as (port, pid):
        load(options, port, "add", 1, 0.1)
        before = measure.resident_kib([pid])
        command = [beside(options, "store_load"), str(port), "idle", str(JOIN_MANY)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{' '.join(command)} did not start")
            each = (measure.resident_kib([pid]) - before) * 1024 / JOIN_MANY
            process.stdin.close()
    progress("")
    table.row(f"resident memory of each of {JOIN_MANY:,} waiting clients", each, RESIDENT_BYTES, "B", "after PING, ADD and WAIT")


def bench_store(options, table):
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(SERVERS[name](options)) for name in ("ours", "floor")}
        if options.torchrun:
            ports["torch"] = stack.enter_context(torch_server(options))
        else:
            table.missing("the store, torch's server", "no torchrun given")
        operations(options, table, ports)
        joins(options, table, ports)
    idle_memory(options, table)
