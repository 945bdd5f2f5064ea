"""Runs the command lines of a case with one launcher in a separate folder and collects the results."""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

DEADLINE_S = 150
POLL_S = 0.02
GRACE_S = 2  # time for processes to exit after their launcher
WORKERS = pathlib.Path(__file__).absolute().parent / "workers"
INPUT = "a line on standard input\n"


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A program to compare."""

    name: str
    command: tuple  # the arguments before the options
    path: str  # PATH of the launcher and its workers


@dataclasses.dataclass
class Ran:
    """The results of a case with one launcher. Index i of each list is node i."""

    folder: pathlib.Path
    exit_codes: list
    stdouts: list
    stderrs: list
    left_behind: list  # command lines of processes that outlived their launcher

    @property
    def work(self):
        return self.folder / "work"


def _listens(port):
    """Whether a socket of this machine listens on `port`. Does not connect to it."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                _, local, _, state = line.split()[:4]
                if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def _children_by_mark(mark):
    """Returns {pid: command line} of all processes that have the mark in their environment."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


class Run:
    """One case under one launcher."""

    def __init__(self, case, launcher, folder, port):
        self.case = case
        self.launcher = launcher
        self.folder = folder
        self.port = port
        self.facts = folder / "facts"
        self.processes = []
        for name in ("work", "tmp", "home", "console", "facts"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(WORKERS, folder / "work", dirs_exist_ok=True)
        (folder / "stdin").write_text(INPUT, encoding="utf-8")

    def __call__(self):
        try:
            for node, line in enumerate(self.case.lines):
                if node > 0:
                    # Some cases number nodes in the order in which they join. The order must be the same
                    # with both launchers.
                    self._wait(lambda: _listens(self.port), f"node 0 to listen on port {self.port}")
                self.processes.append(self._start(node, line))
            self._send_signals()
            for node, process in enumerate(self.processes):
                self._wait(lambda p=process: p.poll() is not None, f"the launcher of node {node} to exit")
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
            left_behind = self._clear_up()
        console = self.folder / "console"
        return Ran(
            folder=self.folder,
            exit_codes=[process.returncode for process in self.processes],
            stdouts=[(console / f"out{node}").read_text(errors="replace") for node in range(len(self.processes))],
            stderrs=[(console / f"err{node}").read_text(errors="replace") for node in range(len(self.processes))],
            left_behind=left_behind,
        )

    def _environment(self):
        env = {
            "PATH": self.launcher.path,
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder / "tmp"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COMPARE_FACTS": str(self.facts),
        }
        env.update({name: self._filled_in(value) for name, value in self.case.env.items()})
        return {name: value for name, value in env.items() if value is not None}

    def _filled_in(self, text):
        return text and text.replace("{port}", str(self.port)).replace("{dir}", str(self.folder))

    def _start(self, node, line):
        console = self.folder / "console"
        with open(self.folder / "stdin", encoding="utf-8") as stdin, \
                open(console / f"out{node}", "wb") as out, open(console / f"err{node}", "wb") as err:
            return subprocess.Popen(
                [*self.launcher.command, *map(self._filled_in, shlex.split(line))],
                cwd=self.folder / "work", env=self._environment(), stdin=stdin, stdout=out, stderr=err,
                start_new_session=True)

    def _send_signals(self):
        """Sends the signals to the launcher of node 0.

        Sends the first signal when the workers have started, and each later signal when the workers have received
        the previous signal.
        """
        awaited = "started"
        for name in self.case.signals:
            self._wait(lambda what=awaited: self._noted(what), f"{self.case.workers} workers to note '{awaited}'")
            self.processes[0].send_signal(getattr(signal, name))
            awaited = name

    def _noted(self, what):
        return len(list(self.facts.glob(f"*.{what}"))) >= self.case.workers

    def _wait(self, ready, what):
        deadline = time.monotonic() + DEADLINE_S
        while not ready():
            if time.monotonic() > deadline:
                console = "\n".join(path.read_text(errors="replace")[-1500:]
                                    for path in sorted((self.folder / "console").iterdir()))
                raise TimeoutError(f"{self.launcher.name}: waited {DEADLINE_S} s for {what}. Its output:\n{console}")
            time.sleep(POLL_S)

    def _clear_up(self):
        """Kills the processes that are left GRACE_S seconds after the launchers exit. Returns their command lines."""
        mark = f"COMPARE_FACTS={self.facts}".encode()
        deadline = time.monotonic() + GRACE_S
        while (left := _children_by_mark(mark)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return sorted(left.values())
