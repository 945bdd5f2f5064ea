#!/usr/bin/env python3
"""ddprun --hosts with a program in the place of ssh, which runs the commands on this machine. Needs no root and no sshd."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import junit  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
SECONDS = 60
# Like ssh, runs the last arguments in a shell. The name of the host says what else happens.
SSH = """#!/bin/sh
while [ $# -gt 3 ]; do shift; done
host=$1
shift
case $host in
  refused) echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255 ;;
  noisy) echo 'Welcome!'; echo 'a warning' >&2; printf 'no line end ' ;;
  nodir) rmdir "$PWD" ;;
  silent) echo up; exec sleep 1000000 ;;
  stubborn) trap '' INT TERM; echo up; echo 'ddprun-agent-started 1'; exec sleep 1000000 ;;
  lost) echo 'ddprun-agent-started 1'; echo 'Connection to lost closed by remote host.' >&2; exit 255 ;;
  code) echo 'ddprun-agent-started 1'; exit 44 ;;
  endless) exec python3 -c "$ENDLESS" ;;
  shares) sleep 1000000 & echo $! >"$PWD/master" ;;
esac
exec sh -c "$*"
"""

# An agent that does nothing, and exits with 0 after SIGTERM.
ENDLESS = """
import sys
line = sys.stdin.buffer
assert line.read(8) == b"ddprun1\\n"
assert len(line.read(int.from_bytes(line.read(4), "big"))) > 0
print("ddprun-agent-started 1", flush=True)
while (frame := line.read(1)) == b"\\0":
    pass
print("frame", *frame)
"""


class StarterTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)

    def start(self, hosts, *argv, cwd=None, stderr=subprocess.PIPE):
        words = [DDPRUN, f"--hosts={hosts}", f"--ssh-command={self.ssh}", *argv]
        process = subprocess.Popen(words, env={**os.environ, "ENDLESS": ENDLESS}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
                                   cwd=cwd or self.folder)  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_to_end(self, hosts, *argv, **options):
        process = self.start(hosts, *argv, **options)
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err

    def test_output_and_environment_pass_through(self):
        code, out, err = self.run_to_end("localhost:2", "--no-python", "sh", "-c", "echo out $RANK; echo err >&2")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["out 0", "out 1"])
        self.assertEqual(err.count("err\n"), 2)

    def test_output_before_the_start_passes_through(self):
        code, out, err = self.run_to_end("noisy", "--no-python", "echo", "from a worker")
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "Welcome!\nno line end \nfrom a worker\n")
        self.assertIn("a warning\n", err)

    def test_stdout_and_stderr_may_be_one_pipe(self):
        code, out, _ = self.run_to_end("localhost", "--no-python", "sh", "-c", "echo 1; echo 2 >&2; echo 3",
                                       stderr=subprocess.STDOUT)  # fmt: skip
        self.assertEqual(code, 0)
        self.assertEqual(sorted(line for line in out.splitlines() if len(line) == 1), ["1", "2", "3"])

    def test_an_incomplete_last_line_is_passed_on(self):
        code, out, err = self.run_to_end("localhost", "--no-python", "printf", "no line end")
        self.assertEqual((code, out), (0, "no line end"), err)

    def test_a_closed_stdout_does_not_end_the_job(self):
        process = self.start("localhost", "--no-python", "sh", "-c", "echo 1; read x; for i in 1 2 3; do echo $i; done")
        process.stdout.close()
        self.assertEqual(process.wait(SECONDS), 0)

    def test_the_exit_code_is_that_of_the_first_failed_host(self):
        code, _, err = self.run_to_end("code,endless", "--no-python", "true")
        self.assertEqual(code, 44)
        self.assertIn("code: ddprun exited with 44\n", err)

    def test_the_rest_of_the_hosts_ends_if_it_is_too_small(self):
        began = time.monotonic()
        code, out, err = self.run_to_end("lost,endless", "--no-python", "true")
        self.assertEqual((code, out), (1, "frame 15\n"))
        self.assertIn("lost: the connection was lost, or ddprun there was killed: Connection to lost closed by", err)
        self.assertIn("after the end of lost, fewer than 2 hosts (the minimum of --nnodes) are left", err)
        self.assertGreater(time.monotonic() - began, 9)

    def test_a_host_that_does_not_start_ends_the_others(self):
        code, out, err = self.run_to_end("endless,refused,silent", "--no-python", "true")
        self.assertEqual(code, 1)
        self.assertIn("refused: ssh failed: ssh: connect to host refused port 22: Connection refused: ", err)
        self.assertNotIn("silent:", err)
        self.assertLessEqual(set(out.splitlines()), {"up", "frame 15"})

    def test_a_signal_before_the_start(self):
        process = self.start("silent", "--no-python", "true")
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(err.count("\n"), 1, err)

    def test_a_signal_while_the_first_host_is_looked_for(self):
        up = self.folder / "up"
        os.mkfifo(up)
        self.ssh.write_text(f"#!/bin/sh\necho up >{up}\nexec sleep 1000000\n")
        process = self.start("unknown.invalid,b", "--no-python", "true")
        self.assertEqual(up.read_text(), "up\n")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertIn("received SIGTERM", err)

    def test_sigterm_keeps_the_exit_code_of_the_agent(self):
        process = self.start("localhost", "--exit-codes=scheduler", "--no-python", "sh", "-c",
                             "echo started; exec sleep 1000000")  # fmt: skip
        self.assertEqual(process.stdout.readline(), "started\n")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 75, err)

    def test_a_third_signal_ends_the_connections(self):
        process = self.start("stubborn", "--shutdown-timeout=1000", "--no-python", "true")
        self.assertEqual(process.stdout.readline(), "up\n")
        for text in ("passing it on to 1 host", "passing it on to 1 host", "ending all connections"):
            process.send_signal(signal.SIGINT)
            self.assertIn(text, process.stderr.readline())
        self.assertEqual(process.wait(SECONDS), 1)

    def test_a_notice_is_passed_on_and_ends_nothing_by_itself(self):
        worker = 'echo started; while [ ! -e "$DDPRUN_NOTICE_FILE" ]; do sleep 0.1; done; echo noticed'
        process = self.start("localhost", "--preempt-signal=SIGUSR1@30", "--exit-codes=scheduler", "--no-python", "sh",
                             "-c", worker)  # fmt: skip
        self.assertEqual(process.stdout.readline(), "started\n")
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=SECONDS)
        self.assertEqual((process.returncode, out), (75, "noticed\n"), err)
        self.assertEqual(err.count("received SIGUSR1: this node goes away in 30 s"), 1)

    def test_a_process_that_keeps_the_pipes_open_does_not_matter(self):
        # As the master of shared connections of ssh does (ControlPersist).
        try:
            code, out, err = self.run_to_end("shares", "--no-python", "echo", "done")
            self.assertEqual((code, out), (0, "done\n"), err)
        finally:
            os.kill(int((self.folder / "master").read_text()), signal.SIGKILL)

    def test_a_missing_working_directory_is_an_error(self):
        folder = self.folder / "cwd"
        folder.mkdir()
        code, _, err = self.run_to_end("nodir", "--no-python", "true", cwd=folder)
        self.assertEqual(code, 1)
        self.assertIn(f"cannot enter the working directory {folder} on this host", err)
        self.assertIn("nodir: ddprun did not start, exit code 1: ddprun: error: cannot enter", err)

    def test_a_missing_program_is_an_error(self):
        code, _, err = self.run_to_end("localhost", "nonexistent.py")
        self.assertEqual(code, 1)
        self.assertIn("no such program: nonexistent.py", err)
        self.assertIn("localhost: ddprun exited with 1\n", err)


class RemoteEndTest(unittest.TestCase):
    def check(self, text, message):
        done = subprocess.run([DDPRUN, "--from-starter"], input=text, capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(message, done.stderr.decode())

    def test_an_incomplete_message_is_an_error(self):
        for text in (b"", b"ddprun1\n", b"ddprun1\n\0\0\1\0" + b"x" * 255):
            self.check(text, "the starter has ended before its message was complete")

    def test_another_message_is_an_error(self):
        self.check(b"#!/bin/sh\necho x\n", "install the same release on all hosts")
        self.check(b"ddprun1\n\xff\xff\xff\xff", "4294967295 bytes")
        self.check(b"ddprun1\n\0\0\0\4abcd", "the message of ddprun --hosts is damaged")

    def test_further_arguments_are_an_error(self):
        for words in (["--from-starter", "x"], ["--from-starter=1"]):
            done = subprocess.run([DDPRUN, *words], capture_output=True, text=True, timeout=SECONDS, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("unknown option --from-starter", done.stderr)


if __name__ == "__main__":
    junit.main()
