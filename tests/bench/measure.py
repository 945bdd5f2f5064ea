"""Helpers for the benchmarks: time stamps from workers, idle jobs, CPU time and memory of processes."""

import contextlib
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import jobs  # noqa: E402

DEADLINE_S = 60


class Stamps:
    """A FIFO for time stamps.

    Each worker writes `RANK PID MONOTONIC_NS` when it starts, and `RANK -PID MONOTONIC_NS` at SIGTERM.
    """

    def __init__(self, folder):
        self.path = os.path.join(folder, "stamps")
        os.mkfifo(self.path)
        # Also open for writing, so that a read never returns end of file.
        self.fd = os.open(self.path, os.O_RDWR)
        self.rest = b""
        # (rank, pid, ns) of each start or stop that has been read from the FIFO but not returned yet.
        self.begins = []
        self.stops = []

    def close(self):
        os.close(self.fd)

    def read(self, count, deadline_s=DEADLINE_S):
        """Waits for the starts of the next `count` workers; returns [(rank, pid, ns)]."""
        return self._take("begins", count, deadline_s)

    def read_stops(self, count, deadline_s=DEADLINE_S):
        """Waits until the next `count` workers get SIGTERM; returns [(rank, pid, ns)]."""
        return self._take("stops", count, deadline_s)

    def _take(self, kind, count, deadline_s):
        deadline = time.monotonic() + deadline_s
        while len(getattr(self, kind)) < count:
            if not self._fill(max(0, deadline - time.monotonic())):
                raise TimeoutError(f"{kind}: {len(getattr(self, kind))} of {count} workers within {deadline_s} s")
        taken = getattr(self, kind)[:count]
        del getattr(self, kind)[:count]
        return taken

    def quiet(self, seconds):
        """Returns True if no worker starts or stops within `seconds`."""
        return not self.begins and not self.stops and not self._fill(seconds)

    def _fill(self, timeout_s):
        """Waits at most `timeout_s` seconds for stamps and reads them. Returns False on timeout."""
        ready, _, _ = select.select([self.fd], [], [], timeout_s)
        if not ready:
            return False
        *lines, self.rest = (self.rest + os.read(self.fd, 65536)).split(b"\n")
        for line in lines:
            rank, pid, ns = (int(word) for word in line.split())
            (self.begins if pid > 0 else self.stops).append((rank, abs(pid), ns))
        return True


@contextlib.contextmanager
def waiting_job(commands, workers):
    """Starts `commands`, each with the path of the FIFO as its last argument. Stops the processes on exit.

    Yields (processes, stamps, the starts of the first `workers` workers).
    """
    with tempfile.TemporaryDirectory() as folder:
        stamps = Stamps(folder)
        log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        processes = [
            subprocess.Popen(c + [stamps.path], stdin=subprocess.DEVNULL, stdout=log, stderr=log) for c in commands
        ]
        try:
            yield processes, stamps, stamps.read(workers)
        except TimeoutError as error:
            log.seek(0)
            raise TimeoutError(f"{' '.join(commands[0])}: {error}\n{log.read()[-2000:]}") from None
        finally:
            for process in processes:
                jobs.stop(process)
            log.close()
            stamps.close()


def whole_command(command):
    """Returns the seconds from the start of `command` to its exit. Raises RuntimeError if `command` fails."""
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    took = time.monotonic() - begin
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return took


def own_start(worker):
    """Starts a worker without a launcher. Returns the seconds until the worker writes its first stamp."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Stamps(folder)
        begin = time.monotonic_ns()
        process = subprocess.Popen([worker, stamps.path], stdin=subprocess.DEVNULL)
        try:
            return (stamps.read(1)[0][2] - begin) / 1e9
        finally:
            jobs.stop(process)
            stamps.close()


def recovery(commands, workers):
    """Kills the last rank. Returns the seconds until the last new worker writes its first stamp."""
    with waiting_job(commands, workers) as (_, stamps, first):
        _, victim, _ = max(first)
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        return (max(ns for _, _, ns in stamps.read(workers)) - killed) / 1e9


def launcher_processes(root, workers):
    """Returns the pids of `root` and its descendants, except the workers and their descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{name}/stat").read_text(encoding="utf-8")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if pid not in workers:
            found.append(pid)
            todo += children.get(pid, [])
    return found


def cpu_ns(pids):
    """Returns the CPU time of all threads of the processes, in nanoseconds."""
    total = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(pathlib.Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="utf-8").split()[0])
    return total


def resident_kib(pids):
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


def rest(command, workers, windows, window_s=1.0):
    """Measures a launcher whose workers only wait.

    Returns (CPU share in each window, resident MiB) of the launcher and its helper processes.
    """
    with waiting_job([command], workers) as (processes, _, first):
        pids = launcher_processes(processes[0].pid, {pid for _, pid, _ in first})
        shares = []
        for window in range(windows + 1):
            before, begin = cpu_ns(pids), time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = processes[0].wait(timeout=window_s)
                raise RuntimeError(f"{command[0]} exited with status {status} during the measurement")
            share = (cpu_ns(pids) - before) / 1e9 / (time.monotonic() - begin)
            if window > 0:  # Skip the first window, which may include a part of the start.
                shares.append(share)
        return shares, resident_kib(pids) / 1024


median = statistics.median
