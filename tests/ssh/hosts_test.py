#!/usr/bin/env python3
"""Runs ddprun --hosts with a real sshd on three hosts."""

import os
import pathlib
import re
import shutil
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).absolute().parent))
import servers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import checks  # noqa: E402
import junit  # noqa: E402

DDPRUN = os.path.abspath("launcher/ddprun")
WHY_NOT = servers.why_not()
SECONDS = 60
WORKER = "echo $RANK/$WORLD_SIZE $(hostname) job=$TORCHELASTIC_RUN_ID"
# Each worker has a child in a session of its own.
SLEEPER = "echo started; setsid sleep 1000000 & exec sleep 1000000"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SshTest(unittest.TestCase):
    """Cases that share the hosts. Each leaves no process on them."""

    @classmethod
    def setUpClass(cls):
        cls.servers = servers.Servers(3)
        cls.enterClassContext(cls.servers)
        cls.ssh = f"--ssh-command=ssh -F {cls.servers.directory}/config"

    def tearDown(self):
        checks.wait_until(lambda: not self.servers.left(), lambda: f"no process is left: {self.servers.left()}")

    def hosts(self, hosts, *argv, **options):
        return self.servers.run(DDPRUN, f"--hosts={hosts}", self.ssh, *argv, **options)

    def start_sleepers(self, *argv):
        """Starts two sleeping workers on each host, and returns when all run."""
        client = self.servers.start(DDPRUN, "--hosts=node1:2,node2:2,node3:2", self.ssh, *argv, "--no-python", "sh",
                                    "-c", SLEEPER)  # fmt: skip
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        lines = [client.stdout.readline() for _ in range(6)]
        self.assertEqual(lines, ["started\n"] * 6)
        return client

    def test_ranks_follow_the_order_of_the_hosts(self):
        done = self.hosts("node2:2,node1:1,node3", "--no-python", "sh", "-c", WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = re.search(r"job=(\S+)", done.stdout)[1]
        expected = [f"{rank}/4 {host} job={job}" for rank, host in enumerate(["node2", "node2", "node1", "node3"])]
        self.assertEqual(sorted(done.stdout.splitlines()), expected)

    def test_one_host_is_enough(self):
        done = self.hosts("node1:3", "--no-python", "sh", "-c", WORKER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 3)

    def test_options_replace_the_values_of_hosts(self):
        done = self.hosts("node1:2,node2:2", "--nproc-per-node=1", "--rdzv-id=mine", "--rdzv-endpoint=node1:25000",
                          "--no-python", "sh", "-c", WORKER)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0/2 node1 job=mine", "1/2 node2 job=mine"])

    def test_hosts_may_be_aliases_of_sshs_configuration(self):
        aliases = "".join(f"Host gpu{i}\nHostName node{i}\nHostKeyAlias node{i}\n" for i in (1, 2))
        config = self.servers.directory / "aliases"
        config.write_text((self.servers.directory / "config").read_text() + aliases)
        words = ["--hosts=root@gpu1,gpu2", f"--ssh-command=ssh -F {config}", "--no-python", "sh", "-c", WORKER]
        done = self.servers.run(DDPRUN, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[1] for line in sorted(done.stdout.splitlines())], ["node1", "node2"])

    def test_arguments_environment_and_directory_arrive_unchanged(self):
        worker = 'printf "%s|" "$1" "$2" "$VALUE" "$SLURM_JOB_ID" "$PWD"; echo'
        arguments = ["'\"$(reboot)\n;", " * "]
        env = {"VALUE": "a b\n$x'", "SLURM_JOB_ID": "7"}
        done = self.hosts("node1", "--no-python", "sh", "-c", worker, "sh", *arguments, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = [*arguments, env["VALUE"], "", str(self.servers.directory)]
        self.assertEqual(done.stdout, "|".join(words) + "|\n")

    def test_no_argument_or_variable_is_in_a_command_line(self):
        env = {"VALUE": "hidden-value"}
        client = self.servers.start(DDPRUN, "--hosts=node1,node2", self.ssh, "--no-python", "sh", "-c",
                                    "echo started; exec sleep 1000000", "hidden-word", env=env)  # fmt: skip
        self.addCleanup(client.communicate)
        self.assertEqual(client.stdout.readline(), "started\n")
        for pid, name in {**self.servers.machine.processes("ctl"), **self.servers.machine.processes("node1")}.items():
            if name in ("ssh", "sshd", "bash", "ddprun") and pid != client.inner_pid():
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                self.assertNotIn(b"hidden", words, f"{name}")
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=SECONDS)

    def test_lines_of_hosts_do_not_mix(self):
        worker = "i=0; while [ $i -lt 300 ]; do printf $RANK; printf '%0900d\\n' $i; i=$((i+1)); done"
        done = self.hosts("node1,node2,node3", "--no-python", "sh", "-c", worker)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(3):
            lines = [line for line in done.stdout.splitlines() if line[0] == str(rank)]
            self.assertEqual(lines, [f"{rank}{i:0900}" for i in range(300)])
        self.assertEqual(len(done.stdout.splitlines()), 900)

    def test_a_failing_worker_ends_the_job_and_its_host_is_named(self):
        worker = 'if [ "$(hostname)" = node2 ]; then echo bad >&2; exit 7; fi; exec sleep 1000000'
        done = self.hosts("node1,node2", "--no-python", "sh", "-c", worker)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\[ddprun ctl\] node[12]: ddprun exited with 1\n")
        self.assertRegex(done.stderr, r"node2.*exit code 7|exitcode *: 7")
        self.assertIn("bad\n", done.stderr)

    def test_a_usage_error_is_reported_once(self):
        done = self.hosts("node1,node2", "--tee=x", "true")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("error:"), 1)
        self.assertIn("--tee=x", done.stderr)

    def test_ctrl_c_leaves_nothing(self):
        client = self.start_sleepers()
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=SECONDS)
        self.assertEqual(client.returncode, 1)
        self.assertIn("received SIGINT: passing it on to 3 hosts", err)
        self.assertRegex(err, r"\[ddprun node\d\] .*SIGINT")

    def test_a_second_ctrl_c_kills_workers_that_ignore_the_first(self):
        client = self.servers.start(DDPRUN, "--hosts=node1,node2", self.ssh, "--shutdown-timeout=1000", "--no-python",
                                    "sh", "-c", "trap 'echo trapped' INT TERM; echo started; while :; do sleep 1; done")  # fmt: skip
        self.addCleanup(client.communicate)
        self.assertEqual([client.stdout.readline() for _ in range(2)], ["started\n"] * 2)
        client.send_signal(signal.SIGINT)
        self.assertEqual([client.stdout.readline() for _ in range(2)], ["trapped\n"] * 2)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=SECONDS)
        self.assertEqual(client.returncode, 1)

    def test_killing_the_starter_leaves_nothing(self):
        client = self.start_sleepers()
        client.kill()
        checks.wait_until(lambda: not self.servers.left(), lambda: f"all processes end: {self.servers.left()}")

    def test_a_killed_connection_ends_the_job_and_leaves_nothing(self):
        client = self.start_sleepers()
        sessions = self.servers.sessions("node2")
        self.assertTrue(sessions)
        for pid in sessions:
            os.kill(pid, signal.SIGKILL)
        checks.wait_until(lambda: "node2" not in self.servers.left(), lambda: f"node2 is empty: {self.servers.left()}")
        _, err = client.communicate(timeout=SECONDS)
        self.assertEqual(client.returncode, 1)
        self.assertIn("node2: the connection was lost, or ddprun there was killed", err)
        self.assertIn("only 2 of at least 3 nodes are left, and no others can join", err)

    def test_a_killed_agent_is_reported_with_its_host(self):
        client = self.start_sleepers()
        for pid, name in self.servers.machine.processes("node3").items():
            if name == "ddprun":
                os.kill(pid, signal.SIGKILL)
        _, err = client.communicate(timeout=SECONDS)
        self.assertEqual(client.returncode, 1)
        self.assertIn("node3: ", err)

    def check_start_error(self, hosts, *texts, ssh=None, returncode=1):
        began = time.monotonic()
        words = [DDPRUN, f"--hosts={hosts}", f"--ssh-command={ssh}" if ssh else self.ssh]
        done = self.servers.run(*words, "--no-python", "sh", "-c", SLEEPER)
        self.assertEqual(done.returncode, returncode, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assertLess(time.monotonic() - began, 30)

    def test_an_unknown_host_key_is_an_error(self):
        empty = self.servers.directory / "no_known_hosts"
        known = (self.servers.directory / "known_hosts").read_text()
        empty.write_text("".join(line for line in known.splitlines(True) if not line.startswith("node2 ")))
        ssh = self.servers.write_config("unknown", UserKnownHostsFile=empty)
        self.check_start_error("node1,node2", "node2: ssh failed: Host key verification failed: ",
                               f"run `{ssh} node2 true` once", "ssh-keyscan node2", ssh=ssh)  # fmt: skip

    def test_an_unknown_host_is_an_error(self):
        self.check_start_error("node1,node9", "node9: ssh failed: ssh: Could not resolve hostname node9",
                               "check the name in --hosts")  # fmt: skip

    def test_a_refused_connection_is_an_error(self):
        self.check_start_error("node1,ctl", "ctl: ssh failed: ssh: connect to host ctl port 22: Connection refused",
                               "check that the host is up and runs sshd")  # fmt: skip

    def test_a_refused_login_is_an_error(self):
        ssh = self.servers.write_config("no_key", IdentityFile="/dev/null")
        self.check_start_error("node1", "node1: ssh failed: ", "Permission denied", "ssh-copy-id node1", ssh=ssh)

    def test_a_missing_ssh_is_an_error(self):
        self.check_start_error("node1", "node1: cannot start /nonexistent/ssh", "give the command with --ssh-command",
                               ssh="/nonexistent/ssh")  # fmt: skip

    def test_a_host_without_ddprun_is_an_error(self):
        folder = self.servers.directory / "bin"
        folder.mkdir()
        copy = folder / "ddprun"
        shutil.copy(DDPRUN, copy)
        words = [copy, "--hosts=node1,node2", self.ssh, "--no-python", "true"]
        self.assertEqual(self.servers.run(*words).returncode, 0)
        self.assertEqual(self.servers.run_on("node2", "mount", "-t", "tmpfs", "none", folder).returncode, 0)
        done = self.servers.run(*words)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"node2: {copy} does not exist there", done.stderr)
        self.assertIn("install ddprun at the same path on all hosts", done.stderr)

    def test_dry_run_starts_nothing(self):
        done = self.hosts("node1:8,me@node9", "--dry-run", "train.py", env={"VALUE": "hidden"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f" -T me@node9 {os.path.realpath(DDPRUN)} --from-starter\n", done.stdout)
        self.assertIn("node 0: node1, 8 slots\n", done.stdout)
        self.assertIn("VALUE", done.stdout)
        self.assertNotIn("hidden", done.stdout)


if __name__ == "__main__":
    junit.main()
