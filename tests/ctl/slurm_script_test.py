#!/usr/bin/env python3
"""Runs the scripts of `ddpctl slurm-script` with bash, with programs that stand for those of Slurm."""

import os
import pathlib
import subprocess
import tempfile
import unittest

DDPRUN = os.path.abspath("launcher/ddprun")
SECONDS = 60
# Writes its arguments, each followed by a null character, to a file.
RECORD = """#!/bin/sh
printf '%s\\0' "$@" > "$RECORDS/{name}.arguments"
"""
# Starts the command after its own options, as srun does.
SRUN = """
while case $1 in -*) ;; *) false ;; esac; do shift; done
exec "$@"
"""
ARGUMENTS = [
    "two words", "it's", '"quoted"', "$HOME `id` $(id)", "back\\slash\\", "line\nbreak", "", "*", "~", "#", "a;b&c|d>e",
    "!x", "--", "--nodes=7", "{a,b}", "ü", "-", "\t",
]  # fmt: skip


def ddpctl(*argv, **options):
    return subprocess.run(["ddpctl", "slurm-script", *argv], executable=DDPRUN, timeout=SECONDS, text=True,
                          stderr=subprocess.PIPE, check=False, **{"stdout": subprocess.PIPE, **options})  # fmt: skip


def script(*argv):
    done = ddpctl(*argv)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class SlurmScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program("srun", RECORD.format(name="srun") + SRUN)
        self.program("scontrol", RECORD.format(name="scontrol"))

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)

    def run_script(self, text):
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "RECORDS": str(self.folder), "SLURM_JOB_ID": "17"}
        return subprocess.run(["bash", "-c", text], env=environment, cwd=self.folder, timeout=SECONDS, text=True,
                              capture_output=True, check=False)  # fmt: skip

    def arguments(self, name):
        """The arguments of a program, or None if it has not run."""
        file = self.folder / f"{name}.arguments"
        return file.read_bytes().decode().split("\0")[:-1] if file.exists() else None

    def test_bash_accepts_the_script(self):
        for argv in (["--", "x"], ["--nodes=2-4", "--cpus-per-task=8", "--time=60", "--output=%x", "--", *ARGUMENTS]):
            done = subprocess.run(["bash", "-n"], input=script(*argv), text=True, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_arguments_arrive_unchanged(self):
        self.program("ddprun", RECORD.format(name="ddprun"))
        done = self.run_script(script("--nodes=2-4", "--", *ARGUMENTS))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        own = ["--preempt-signal=SIGUSR1@120", "--exit-codes=scheduler", "--nnodes=2:4"]
        self.assertEqual(self.arguments("ddprun"), own + ARGUMENTS)
        options = ["--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0"]
        self.assertEqual(self.arguments("srun"), [*options, "ddprun", *own, *ARGUMENTS])

    def test_only_code_75_queues_the_job_again(self):
        for code in (0, 1, 2, 75, 137):
            with self.subTest(code):
                self.program("ddprun", f"#!/bin/sh\nexit {code}\n")
                self.assertEqual(self.run_script(script("--", "x")).returncode, code)
                self.assertEqual(self.arguments("scontrol"), ["requeue", "17"] if code == 75 else None)
                (self.folder / "scontrol.arguments").unlink(missing_ok=True)

    def test_ddprun_accepts_the_options(self):
        (self.folder / "ddprun").symlink_to(DDPRUN)
        program = ["--rdzv-endpoint=node1:29400", "--dry-run", "--no-python", "echo", "two words"]
        done = self.run_script(script("--nodes=2-4", "--notice=90s", "--", *program))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 to 4 nodes", done.stdout)
        self.assertIn("echo 'two words'", done.stdout)
        # Given options replace those of the script.
        done = self.run_script(script("--nodes=2-4", "--", "--nnodes=3:4", *program))
        self.assertIn("3 to 4 nodes", done.stdout)

    def test_a_usage_error_prints_no_script(self):
        done = ddpctl("--nodes=4-2", "--", "x")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("ddpctl: error: slurm-script: --nodes=4-2: expected a maximum", done.stderr)

    def test_a_failed_write_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = ddpctl("--", "x", stdout=full)
        self.assertEqual((done.returncode, done.stderr), (1, "ddpctl: error: cannot write the script to stdout\n"))


if __name__ == "__main__":
    unittest.main()
