"""Starts the launchers under test, and finds all processes that they start by a mark in the environment."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import interop

DDPRUN = interop.path_of("../../launcher/ddprun")
TORCHRUN = interop.path_of("run_torchrun.py")
# Variables with which current versions of torchrun restart workers reliably. Without them, new workers use
# the store of the old workers, which still contains the old addresses, and hang or fail again.
RESTARTABLE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
MARK = "DDPRUN_INTEROP_MARK"
# Limit on the time from the exit of a launcher to the exit of its last process.
LEFTOVERS_S = 20
# Time for hanging processes to write their stacks.
STACKS_S = 2


def environment(python=sys.executable, **more):
    """Returns an environment in which workers run `python`. A value of None in `more` removes the variable."""
    variables = dict(os.environ,
                     PYTHON_EXEC=python,
                     PYTHONDONTWRITEBYTECODE="1",
                     PYTHONFAULTHANDLER="1",
                     GLOO_SOCKET_IFNAME="lo",
                     OMP_NUM_THREADS="1")
    variables.update(more)
    return {name: value for name, value in variables.items() if value is not None}


class Launched:
    """A command that has been started. It writes its output to a file, so that it never blocks on a pipe."""

    def __init__(self, command, env):
        self.command = command
        self._file = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.STDOUT)

    def wait(self, deadline):
        """Waits for the exit status. On timeout, raises AssertionError with the output."""
        try:
            return self.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{' '.join(self.command)} has not exited after {interop.DEADLINE_S} s:\n{self.output}") from None

    @property
    def output(self):
        self._file.seek(0)
        return self._file.read()

    def close(self):
        self.process.kill()
        self.process.wait(interop.DEADLINE_S)
        self._file.close()


class Job:
    """Starts commands. The end of the `with` block raises AssertionError if a process of the commands is left."""

    def __enter__(self):
        self._mark = uuid.uuid4().hex
        self._launched = []
        return self

    def __exit__(self, kind, *_):
        for launched in self._launched:
            launched.close()
        left = self._await_end(LEFTOVERS_S if kind is None else 0)
        for pid in left:
            _kill(pid)
        self._await_end(LEFTOVERS_S)
        if kind is None and left:
            raise AssertionError(f"processes left {LEFTOVERS_S} s after the launchers exited: {sorted(left.values())}")

    def start(self, *command, **environment_changes):
        """Starts a command. `environment_changes` are arguments of environment()."""
        env = environment(**environment_changes)
        env[MARK] = self._mark
        self._launched.append(Launched(list(command), env))
        return self._launched[-1]

    def ddprun(self, *args, **environment_changes):
        return self.start(DDPRUN, *args, **environment_changes)

    def torchrun(self, *args, python=sys.executable, **environment_changes):
        """Starts the torchrun of `python`'s PyTorch."""
        return self.start(python, TORCHRUN, *args, python=python, **environment_changes)

    def store(self):
        """Starts `ddprun --store-only`. Returns its port."""
        env = environment(**{MARK: self._mark})
        process = subprocess.Popen([DDPRUN, "--store-only"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._launched.append(_Store(process))
        return int(process.stdout.readline())

    def finish(self, *launched):
        """Waits until all commands have exited and returns their output.

        Raises AssertionError with the output if a command fails or the deadline passes.
        """
        deadline = interop.deadline()
        try:
            statuses = [one.wait(deadline) for one in launched]
        except AssertionError as error:
            what = str(error).partition("\n")[0]
            there = self._dump_stacks()
            raise AssertionError("\n".join([what, "still running:", *there, *(one.output for one in launched)])) from None
        output = "\n".join(one.output for one in launched)
        if any(statuses):
            raise AssertionError(f"exited with {statuses}:\n{output}")
        return output

    def marked(self):
        """Returns {pid: command line} of all live processes that commands of this job have started."""
        needle = f"{MARK}={self._mark}".encode()
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                folder = pathlib.Path("/proc", name)
                try:
                    if needle in (folder / "environ").read_bytes().split(b"\0"):
                        found[int(name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    pass  # has exited, or belongs to another user
        return found

    def _dump_stacks(self):
        """Aborts all remaining processes except launchers, so that Python writes their stacks to the output.

        Returns the command lines of all remaining processes.
        """
        there = self.marked()
        launchers = {one.process.pid for one in self._launched}
        for pid in there.keys() - launchers:
            _kill(pid, signal.SIGABRT)
        self._await_end(STACKS_S)
        return [f"{pid}: {command}" for pid, command in sorted(there.items())]

    def _await_end(self, timeout_s):
        """Waits at most `timeout_s` until all marked processes have exited. Returns those that are left."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = self.marked()
            for pid in left:
                _await_process(pid, deadline - time.monotonic())
            if not left or time.monotonic() >= deadline:
                return left


class _Store:
    def __init__(self, process):
        self.process = process

    def close(self):
        self.process.kill()
        self.process.wait(interop.DEADLINE_S)
        self.process.stdout.close()


def _kill(pid, signo=signal.SIGKILL):
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


def _await_process(pid, timeout_s):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [], max(0, timeout_s))
    finally:
        os.close(fd)
