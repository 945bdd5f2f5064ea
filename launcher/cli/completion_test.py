#!/usr/bin/env python3
"""Types prefixes of options into real shells and checks the completed command lines."""

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PRINTER = os.path.abspath("launcher/cli/print_completion")
SECONDS = 60

# For each shell: its command line, and the setup that makes ddprun print its arguments.
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "source ./script; ddprun() { printf '<%s>' \"$@\"; echo ' E''ND'; }; echo GO''ON",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -D -u; source ./script; "
        "ddprun() { printf '<%s>' \"$@\"; echo ' E''ND' }; echo GO''ON",
    ),
    "tcsh": (
        ["tcsh", "-f", "-i"],
        "source ./script; alias ddprun 'printf \"<%s>\" \\!*; echo \" E\"\"ND\"'; echo GO\"\"ON",
    ),
}


class Shell:
    """A shell in a terminal, in a directory that contains job.yaml and logs/."""

    def __init__(self, name):
        self.name = name
        self.folder = tempfile.TemporaryDirectory()
        open(os.path.join(self.folder.name, "job.yaml"), "w").close()
        os.mkdir(os.path.join(self.folder.name, "logs"))
        with open(os.path.join(self.folder.name, "script"), "wb") as script:
            script.write(subprocess.run([PRINTER, name], check=True, stdout=subprocess.PIPE).stdout)
        argv, prepare = SHELLS[name]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(self.folder.name)
                os.execvpe(argv[0], argv,
                           {"PATH": os.environ["PATH"], "TERM": "vt100", "HOME": self.folder.name})
            finally:
                os._exit(127)
        self.seen = b""
        self.send(prepare + "\n")
        self.read_until(b"GOON")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, mark):
        """Returns the output up to and including `mark`."""
        deadline = time.monotonic() + SECONDS
        while mark not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            piece = b""
            if ready:
                try:
                    piece = os.read(self.terminal, 4096)
                except OSError:  # the shell has exited
                    pass
            if not piece:
                raise AssertionError(f"{self.name}: waited {SECONDS} s for {mark!r}; seen: {self.seen!r}")
            self.seen += piece
        before, self.seen = self.seen.split(mark, 1)
        return before + mark

    def words(self, typed):
        """Returns the arguments of ddprun after entering `typed`, which may contain TABs."""
        self.send(f"ddprun {typed}\n")
        output = self.read_until(b"> END").decode(errors="replace")
        line = output[: -len(" END")].splitlines()[-1]
        return line[line.index("<") + 1 : -1].split("><")

    def close(self):
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.folder.cleanup()


class CompletionTest(unittest.TestCase):
    def check(self, name, cases):
        shell = Shell(name)
        self.addCleanup(shell.close)
        for typed, expected in cases.items():
            with self.subTest(shell=name, typed=typed):
                self.assertEqual(shell.words(typed), expected)

    COMMON = {
        "--nno\t": ["--nnodes"],
        "--standalone --virt\t": ["--standalone", "--virtual-local-rank"],
        "--scale-up=at\t": ["--scale-up=at-snapshot"],
        "--scale-up at\t": ["--scale-up", "at-snapshot"],
        "--numa-binding=core\t x.py": ["--numa-binding=core-complex", "x.py"],
        "--config jo\t": ["--config", "job.yaml"],
        "--log-dir=lo\tx": ["--log-dir=logs/x"],
        "jo\t": ["job.yaml"],
    }
    # The functions for bash and zsh detect the end of the options, and accept '_' in place of '-'.
    WITH_A_FUNCTION = {
        "train.py --nno\t": ["train.py", "--nno"],
        "--nnodes 2 -- --nno\t": ["--nnodes", "2", "--", "--nno"],
        "-r 3 --stand\t": ["-r", "3", "--standalone"],
        "--scale_up ne\t": ["--scale_up", "never"],
    }

    def test_bash(self):
        self.check("bash", {**self.COMMON, **self.WITH_A_FUNCTION, "--nproc_per\t": ["--nproc-per-node"]})

    def test_zsh(self):
        self.check("zsh", {**self.COMMON, **self.WITH_A_FUNCTION})

    def test_tcsh(self):
        self.check("tcsh", self.COMMON)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
