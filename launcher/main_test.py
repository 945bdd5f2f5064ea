#!/usr/bin/env python3
"""Tests the output and exit codes of ddprun: usage errors, informational options and small jobs."""

import contextlib
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest
import zipfile

DDPRUN = os.path.abspath("launcher/ddprun")
SECONDS = 60


def run(*args, **variables):
    environment = {"PATH": os.environ["PATH"], **variables}
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [DDPRUN, *args], env=environment, cwd=folder, timeout=SECONDS, capture_output=True, text=True, check=False
        )


class UsageErrorTest(unittest.TestCase):
    def check(self, words, *args, **variables):
        done = run(*args, **variables)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        usage, error, *_ = done.stderr.splitlines()
        self.assertEqual(usage, "usage: ddprun [options] PROGRAM [ARGUMENT...]")
        self.assertIn("ddprun: error: ", error)
        self.assertIn(words, error)
        self.assertEqual(done.stderr.count("--help"), 1)

    def test_unknown_option(self):
        self.check("unknown option --nonodes. Did you mean --nnodes?", "--nonodes=2", "true")

    def test_unknown_letter(self):
        self.check("unknown option -x", "-x", "true")

    def test_ambiguous_prefix(self):
        self.check("--rdzv can mean --rdzv-backend or", "--rdzv=x", "true")

    def test_wrong_value(self):
        self.check("--nnodes=0: expected N or MIN:MAX", "--nnodes=0", "true")

    def test_wrong_variable(self):
        self.check("PET_MAX_RESTARTS=many: expected", "true", PET_MAX_RESTARTS="many")

    def test_no_program(self):
        self.check("no program given", "--standalone")

    def test_missing_configuration_file(self):
        self.check("--config=none.yaml: No such file or directory", "--config=none.yaml")

    def test_endless_configuration_file(self):
        self.check("at most 65536 bytes", "--config=/dev/zero")

    def test_directory_as_configuration_file(self):
        self.check("--config=/: Is a directory", "--config=/")


class SlurmTest(unittest.TestCase):
    """Two nodes with the environment of a step of Slurm."""

    def start(self, folder, job, node, *options):
        environment = {
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": job,
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_NODEID": str(node),
            "SLURMD_NODENAME": f"127.0.0.{node + 1}",
        }
        worker = "echo $RANK of $WORLD_SIZE, node $GROUP_RANK, job $TORCHELASTIC_RUN_ID"
        command = [DDPRUN, *options, "--nproc-per-node=2", "--no-python", "sh", "-c", worker]
        return subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def test_nodes_need_no_options(self):
        job = f"test{os.getpid()}.{time.monotonic_ns()}"
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            # A node that starts first waits for the coordinator. The first port has another server, which does not answer.
            port = self.first_port(folder, job)
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
            jobs = [stack.enter_context(self.start(folder, job, node)) for node in (1, 0)]
            done = [(*job.communicate(timeout=SECONDS), job.returncode) for job in jobs]
        self.assertEqual([code for _, _, code in done], [0, 0], done)
        lines = sorted(line.split("]:")[-1] for out, _, _ in done for line in out.splitlines())
        self.assertEqual(lines, [f"{rank} of 4, node {rank // 2}, job {job}.0" for rank in range(4)])

    def first_port(self, folder, job):
        """The first candidate, from --dry-run."""
        with self.start(folder, job, 0, "--dry-run") as dry:
            out, _ = dry.communicate(timeout=SECONDS)
        return int(re.search(r"--rdzv-endpoint=127\.0\.0\.1:(\d+)", out)[1])


class ExitCodeTest(unittest.TestCase):
    def test_success(self):
        self.assertEqual(run("--nproc-per-node=2", "--no-python", "true").returncode, 0)

    def test_success_with_the_largest_timeouts(self):
        forever = f"--rdzv-conf=join_timeout={2**31 - 1},last_call_timeout={2**31 - 1},lease_ms={2**31 - 1}"
        done = run(forever, f"--shutdown-timeout={2**31 - 1}", "--no-python", "true")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_any_worker_failure_exits_with_1(self):
        for worker in ("exit 1", "exit 3", "kill -9 $$"):
            with self.subTest(worker):
                self.assertEqual(run("--no-python", "sh", "-c", worker).returncode, 1)

    def test_missing_program_is_not_a_usage_error(self):
        done = run("no_such_program.py")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such program: no_such_program.py", done.stderr)
        self.assertNotIn("usage:", done.stderr)


class ProgramTest(unittest.TestCase):
    """Programs that ddprun, like torchrun, runs with Python."""

    SCRIPT = "import sys\nprint(sys.argv)\nsys.exit(7)\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def check(self, *program, stdin=None, name=None):
        done = subprocess.run([DDPRUN, *program], input=stdin, cwd=self.folder, timeout=SECONDS, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("exitcode  : 7 ", done.stderr)
        self.assertEqual(done.stdout, f"{[name or program[0], *program[1:]]}\n")

    def test_standard_input(self):
        self.check("-", "x", stdin=self.SCRIPT)

    def test_standard_input_by_its_path(self):
        # The script is longer than one read by the interpreter.
        self.check("/dev/stdin", "x", stdin=self.SCRIPT.replace("\n", "\n" + "#" * 20000 + "\n", 1))

    def test_standard_input_from_a_file(self):
        self.make("script", self.SCRIPT)
        with open(os.path.join(self.folder, "script")) as script:
            done = subprocess.run([DDPRUN, "/dev/stdin"], stdin=script, timeout=SECONDS, capture_output=True, text=True,
                                  check=False)
        self.assertIn("exitcode  : 7 ", done.stderr)

    def test_a_directory(self):
        self.make("package/__main__.py", self.SCRIPT)
        self.check("package", "x")

    def test_an_archive(self):
        with zipfile.ZipFile(os.path.join(self.folder, "app"), "w") as archive:
            archive.writestr("__main__.py", self.SCRIPT)
        os.chmod(os.path.join(self.folder, "app"), 0o755)
        self.check("./app")

    def test_executable_text(self):
        self.make("train", self.SCRIPT, 0o755)
        self.check("train", "x")


class TemporaryDirectoryTest(unittest.TestCase):
    WORKER = ("--nproc-per-node=2", "--no-python", "sh", "-c", "echo file=$TORCHELASTIC_ERROR_FILE")

    def test_skips_a_directory_that_is_not_writable(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(*self.WORKER, TMPDIR="/proc", TEMP=folder)
        self.assertEqual((done.returncode, done.stderr.count("log files")), (0, 0), done.stderr)
        self.assertIn(f"file={folder}/torchelastic_", done.stdout)


class TextTest(unittest.TestCase):
    def test_help(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Examples:", done.stdout)

    def test_version(self):
        self.assertRegex(run("--version").stdout, r"^ddprun \d+\.\d+\.\d+\n$")

    def test_a_failed_write_to_stdout_is_an_error(self):
        for options in ("--help", "--version", "--print-completion=bash", "--dry-run --no-python true"):
            with self.subTest(options), open("/dev/full", "w") as full:
                done = subprocess.run([DDPRUN, *options.split()], stdout=full, stderr=subprocess.PIPE, timeout=SECONDS,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, "ddprun: error: cannot write to stdout: No space left on device\n")

    def test_completion(self):
        done = run("--print-completion", "bash")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("complete -o default -F _ddprun ddprun", done.stdout)


class LogLevelTest(unittest.TestCase):
    def test_log_level_shows_events(self):
        self.assertNotIn("event=", run("--no-python", "true").stderr)
        self.assertNotIn("event=", run("--no-python", "true", LOGLEVEL="WARNING").stderr)
        self.assertNotIn("event=", run("--no-python", "true", LOGLEVEL="loud").stderr)
        self.assertIn("event=", run("--no-python", "true", LOGLEVEL="INFO").stderr)
        self.assertIn("event=", run("--no-python", "true", LOGLEVEL="DEBUG").stderr)

    def test_debug_shows_the_rendezvous_and_the_command_of_each_worker(self):
        program = ("--nproc-per-node=2", "--no-python", "true", "an argument")
        said = run(*program, LOGLEVEL="DEBUG").stderr
        for words in ("debug: hosting the coordinator on port ", "debug: to the coordinator: join { ",
                      "debug: from the coordinator: welcome { ", "debug: from the coordinator: start { ",
                      "debug: starting local rank 1:", "RANK=1 \\", "true 'an argument'",
                      "debug: to the coordinator: workers_succeeded { "):
            self.assertIn(words, said)
        self.assertNotIn(" PATH=", said)  # unchanged variables are not shown
        self.assertNotIn("debug: ", run(*program, LOGLEVEL="INFO").stderr)

    def test_debug_shows_connection_attempts(self):
        with socket.create_server(("127.0.0.1", 0)) as bound:
            port = bound.getsockname()[1]  # nothing listens on the port after this block
        said = run("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                   "--rdzv-conf=is_host=0,read_timeout=1", "--no-python", "true", LOGLEVEL="DEBUG").stderr
        for words in ("on another node", "resolving 127.0.0.1", f"connecting to 127.0.0.1:{port}",
                      "no connection: Connection refused"):
            self.assertIn("debug: ", said)
            self.assertIn(words, said)


class WorkerSocketTest(unittest.TestCase):
    # Sends messages with a string field that is not UTF-8. The socket cannot buffer all of them, so send()
    # blocks unless the agent reads.
    WORKER = r"""
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("\0" + os.environ["DDPRUN_AGENT_SOCKET"])
for _ in range(5000):
    s.send(b"\x3a\x01\xff")
"""

    def test_invalid_messages_are_not_logged(self):
        done = run("--no-python", "python3", "-c", self.WORKER)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class VariablesTest(unittest.TestCase):
    def test_unused_variables_reach_workers(self):
        done = run(
            "--no-python", "sh", "-c", "echo $USE_LIBUV $TORCH_ELASTIC_WORKER_IDENTICAL",
            USE_LIBUV="0", TORCH_ELASTIC_WORKER_IDENTICAL="1",
        )
        self.assertEqual(done.stdout, "0 1\n")

    def test_a_configuration_file_gives_workers_variables(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("no-python: true\nprogram: sh\nargs: [-c, 'echo $COLOUR $RANK']\nenv: {COLOUR: red, RANK: 7}\n")
            file.flush()
            self.assertEqual(run(f"--config={file.name}", COLOUR="blue").stdout, "red 0\n")


if __name__ == "__main__":
    unittest.main()
