"""Helpers for scripts that start jobs and inspect their processes."""

import contextlib
import os
import pathlib
import random
import socket


def free_port():
    """Returns a free TCP port of the loopback interface, below the range of outgoing connections."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(low // 2, low))) as listener:
            return listener.getsockname()[1]
    raise OSError(f"no port of the loopback interface between {low // 2} and {low} is free")


def _environment(pid):
    """Returns the variables with which a process was started; empty if it has exited or belongs to another user."""
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def processes_of(run_id):
    """Returns {pid: environment} of all processes that have the environment of a worker of job `run_id`."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            variables = _environment(name)
            if variables.get("TORCHELASTIC_RUN_ID") == run_id and "RANK" in variables:
                found[int(name)] = variables
    return found


def worker_pid(run_id, rank):
    """Returns the pid of the worker with this rank, or None if there is none. Ignores children of the worker."""
    pids = {pid for pid, variables in processes_of(run_id).items() if variables["RANK"] == str(rank)}
    for pid in sorted(pids):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])  # the name in parentheses may contain any bytes
        if parent not in pids:
            return pid
    return None


def stop(process, grace_s=10):
    """Terminates a child process, and kills it after `grace_s`. Returns when the child has exited."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=grace_s)
    except Exception:  # the child must not be left behind
        process.kill()
        process.wait(timeout=grace_s)
