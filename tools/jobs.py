"""Helpers for scripts that start jobs and look at their processes."""

import contextlib
import os
import pathlib
import random
import socket


def free_port():
    """A TCP port of the loopback that is free, and below those that outgoing connections are given."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(low // 2, low))) as listener:
            return listener.getsockname()[1]
    raise OSError(f"no port of the loopback between {low // 2} and {low} is free")


def _environment(pid):
    """Variables a process was started with; empty when it is gone or a stranger's."""
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def processes_of(run_id):
    """{pid: its environment} of everything that runs with the environment of a worker of job `run_id`."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            variables = _environment(name)
            if variables.get("TORCHELASTIC_RUN_ID") == run_id and "RANK" in variables:
                found[int(name)] = variables
    return found


def worker_pid(run_id, rank):
    """The worker with this rank, and not a child of it (which has the same environment); None when there is none."""
    pids = {pid for pid, variables in processes_of(run_id).items() if variables["RANK"] == str(rank)}
    for pid in sorted(pids):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])  # the name, in parentheses, may hold anything
        if parent not in pids:
            return pid
    return None


def stop(process, grace_s=10):
    """Ends a child politely, then by force; it is gone on return."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=grace_s)
    except Exception:  # also on Ctrl-C: nothing may be left behind
        process.kill()
        process.wait(timeout=grace_s)
