#!/usr/bin/env python3
"""Tests the cluster that the tests with Slurm use: its start, nodes, jobs and faults, and that nothing is left of it.

The facts about Slurm that other tests and ddprun rely on are also tested here: the environment of steps, and signals.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).absolute().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts")]
import checks  # noqa: E402
import cluster  # noqa: E402
import junit  # noqa: E402
import machine  # noqa: E402

TOOL = HERE.parents[1] / "tools/slurm"
WHY_NOT = cluster.why_not()
NODES = 4
SECONDS = 60


def traces(directory):
    """Returns everything that could be left of a cluster, including names that its implementation does not use."""
    found = {f"link {name}" for name in os.listdir("/sys/class/net")}
    found |= {f"mount {line.split()[4]}" for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
    found |= {f"socket {line.split()[-1]}" for line in lines if str(directory) in line}
    if os.path.isdir("/run/netns"):
        found |= {f"namespace {name}" for name in os.listdir("/run/netns")}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if int(pid) != os.getpid() and str(directory).encode() in environment + words:
            found.add(f"process {pid} {words!r}")
    return found


def fields(text):
    """Returns {name: value} of lines NAME=VALUE."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ClusterTest(unittest.TestCase):
    """Cases that share one cluster. Each leaves it idle."""

    @classmethod
    def setUpClass(cls):
        cls.slurm = cluster.Cluster(NODES)
        cls.slurm.up()
        cls.addClassCleanup(cls.slurm.down)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(self.slurm.wait_idle, SECONDS)

    def submit(self, *argv, body):
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        return self.slurm.submit([*argv, f"--output={self.folder}/output", str(script)])

    def test_a_task_runs_on_each_node(self):
        names = self.slurm.run(["srun", f"-N{NODES}", "hostname"]).stdout.split()
        self.assertEqual(sorted(names), ["node1", "node2", "node3", "node4"])

    def test_nodes_reach_each_other_by_name(self):
        server = "import socket; s = socket.create_server(('', 29400)); print('ready', flush=True)\n" \
                 "s.accept()[0].sendall(b'hello')"
        listener = self.slurm.start_on_node(2, ["python3", "-c", server])
        self.addCleanup(listener.kill)
        self.assertEqual(listener.stdout.readline(), "ready\n")
        client = "import socket; s = socket.create_connection(('node2', 29400)); print(s.recv(5), s.getpeername()[0])"
        self.assertEqual(self.slurm.on_node(1, ["python3", "-c", client]).stdout, f"b'hello' {machine.NETWORK}.2\n")
        listener.communicate(timeout=SECONDS)

    def test_addresses_of_nodes(self):
        for i in range(1, NODES + 1):
            node = self.slurm.show("node", f"node{i}")
            self.assertEqual((node["NodeAddr"], node["NodeHostName"]), (f"{machine.NETWORK}.{i}", f"node{i}"))

    def test_the_environment_of_a_step(self):
        names = ["SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
                 "SLURM_NODEID", "SLURM_LOCALID", "SLURM_PROCID", "SLURM_JOB_NUM_NODES", "SLURM_JOB_ID",
                 "SLURMD_NODENAME"]
        show = "env | grep -E '^(" + "|".join(names) + f")=' > {self.folder}/$SLURM_STEP_ID-$SLURM_PROCID"
        steps = f"srun bash -c \"{show}\"\nsrun -N2 -n2 -w node[2-3] bash -c \"{show}\"".replace("$", r"\$")
        job = self.submit("--nodes=3", "--ntasks-per-node=1", body=steps)
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "COMPLETED", (self.folder / "output").read_text())
        first = [fields((self.folder / f"0-{rank}").read_text()) for rank in range(3)]
        for rank, variables in enumerate(first):
            self.assertEqual(variables, {
                "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NODELIST": "node[1-3]",
                "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_NODEID": str(rank), "SLURM_LOCALID": "0",
                "SLURM_PROCID": str(rank), "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_ID": str(job),
                "SLURMD_NODENAME": f"node{rank + 1}",
            })  # fmt: skip
        second = fields((self.folder / "1-1").read_text())
        self.assertEqual(second["SLURM_STEP_ID"], "1")
        self.assertEqual(second["SLURM_STEP_NUM_NODES"], "2")
        self.assertEqual(second["SLURM_STEP_NODELIST"], "node[2-3]")
        self.assertEqual(second["SLURM_STEP_TASKS_PER_NODE"], "1(x2)")
        self.assertEqual((second["SLURM_NODEID"], second["SLURMD_NODENAME"]), ("1", "node3"))
        self.assertEqual(second["SLURM_JOB_NUM_NODES"], "3")

    def test_gpus_of_a_step(self):
        show = "echo $SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES"
        shown = self.slurm.run(["srun", "-N2", "--gpus-per-node=2", "bash", "-c", show])
        self.assertEqual(shown.stdout, "2 0,1\n2 0,1\n")

    def test_scancel_ends_a_job(self):
        job = self.submit("--nodes=2", body="srun sleep 1000")
        self.slurm.wait_job(job, SECONDS, {"RUNNING"})
        checks.wait_until(lambda: "sleep" in self.slurm.processes(2).values(), "the step on node2")
        self.slurm.run(["scancel", str(job)])
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "CANCELLED")
        self.assertNotIn("sleep", self.slurm.processes(2).values())

    def test_a_signal_reaches_the_client_itself(self):
        client = self.slurm.start(["srun", "-N1", "sleep", "1000"])
        checks.wait_until(lambda: "sleep" in self.slurm.processes(1).values(), "the step")
        client.send_signal(signal.SIGTERM)
        _, errors = client.communicate(timeout=SECONDS)
        self.assertIn("forcing job termination", errors)
        self.assertNotEqual(client.returncode, 0)

    def test_a_node_without_slurmd_is_down_and_comes_back(self):
        job = self.submit("--nodes=2", "--no-requeue", body="srun sleep 1000")
        checks.wait_until(lambda: "sleep" in self.slurm.processes(2).values(), "the step on node2")
        self.slurm.kill_slurmd(2)
        self.assertIn("sleep", self.slurm.processes(2).values(), "Slurm does not end tasks with slurmd")
        self.assertEqual(self.slurm.wait_job(job, SECONDS), "NODE_FAIL")
        self.assertTrue(self.slurm.show("node", "node2")["State"].startswith("DOWN"))
        self.slurm.start_slurmd(2)
        self.slurm.wait_idle(SECONDS)
        checks.wait_until(lambda: "sleep" not in self.slurm.processes(2).values(), "the end of the orphans on node2")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class LifeTest(unittest.TestCase):
    """Start and end of clusters. Each case checks that nothing is left."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ddprun-slurm-", dir="/tmp"))
        self.addCleanup(cluster.end, self.directory)
        self.before = traces(self.directory)

    def check_nothing_is_left(self):
        # Other tests may create links and mounts at the same time, so only those that exist later, too, are counted.
        checks.wait_until(lambda: not traces(self.directory) - self.before, f"nothing left of {self.directory}")
        self.assertEqual(machine.inits(self.directory), {})
        self.assertFalse(self.directory.exists())

    def tool(self, *argv, **options):
        return subprocess.run([TOOL, *argv], capture_output=True, text=True, timeout=SECONDS, check=False, **options)

    def test_down_ends_jobs_daemons_and_hosts(self):
        with cluster.Cluster(2, self.directory) as slurm:
            step = "srun bash -c 'trap \"\" TERM; setsid sleep 1000 & sleep 1000'"
            job = slurm.submit(["--nodes=2", "--output=/dev/null", "--wrap", step])
            checks.wait_until(lambda: list(slurm.processes(2).values()).count("sleep") == 2, f"the tasks of job {job}")
            client = slurm.start(["srun", "-N1", "sleep", "1000"])
            checks.wait_until(lambda: list(slurm.processes(1).values()).count("sleep") == 3, "the step of srun")
            self.assertNotEqual(machine.inits(self.directory), {})
            self.assertTrue(any("process" in trace for trace in traces(self.directory) - self.before))
        self.assertEqual(client.wait(SECONDS), -signal.SIGKILL)
        client.communicate()
        self.check_nothing_is_left()

    def test_two_clusters_at_the_same_time(self):
        with cluster.Cluster(1, self.directory) as one, cluster.Cluster(2) as two:
            self.assertEqual(one.run(["srun", "hostname"]).stdout, "node1\n")
            self.assertEqual(sorted(two.run(["srun", "-N2", "hostname"]).stdout.split()), ["node1", "node2"])
            one.down()
            self.assertEqual(two.run(["srun", "-N2", "true"]).returncode, 0)
        self.check_nothing_is_left()

    def test_a_cluster_that_does_not_start_says_why(self):
        with self.assertRaisesRegex(cluster.SlurmError, "(?s)slurmctld.log:.*SelectType|select/nonsense"):
            cluster.Cluster(1, self.directory, {"SelectType": "select/nonsense"}).up(timeout=5)
        self.check_nothing_is_left()

    def test_a_node_that_is_not_idle_is_named(self):
        # Without config_overrides, slurmctld refuses nodes that have fewer processors than slurm.conf says.
        settings = {"SlurmdParameters": "shutdown_on_reboot"}
        said = self.assertRaisesRegex(cluster.SlurmError, "(?s)nodes are not idle.*node1 .*slurmd-node1.log:")
        with unittest.mock.patch.object(cluster, "CPUS_PER_NODE", 4096), said:
            cluster.Cluster(1, self.directory, settings).up(timeout=3)
        self.check_nothing_is_left()

    def test_the_end_of_the_owner_ends_the_cluster(self):
        program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import cluster\n" \
                  f"cluster.Cluster(2, {str(self.directory)!r}).up(); print('up', flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        owner = subprocess.Popen([sys.executable, "-c", program], **pipes)
        self.assertEqual(owner.stdout.readline(), "up\n")
        owner.kill()
        owner.communicate()
        checks.wait_until(lambda: not machine.inits(self.directory), "the end of the hosts")
        cluster.end(self.directory)
        self.check_nothing_is_left()

    def test_down_after_an_interrupted_up(self):
        moments = {
            "a directory": (self.directory / cluster.MARK).exists,
            "hosts": lambda: machine.inits(self.directory),
            "slurmctld": (self.directory / "run/slurmctld.pid").exists,
        }
        for name, is_reached in moments.items():
            with self.subTest(name):
                command = [TOOL, "up", f"--dir={self.directory}", "--nodes=8"]
                starter = subprocess.Popen(command, stderr=subprocess.DEVNULL)
                while not is_reached():
                    self.assertIsNone(starter.poll())
                starter.kill()
                self.assertEqual(starter.wait(), -signal.SIGKILL)
                done = self.tool("down", f"--dir={self.directory}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.check_nothing_is_left()

    def test_the_tool(self):
        where = f"--dir={self.directory}"
        done = self.tool("up", where, "--nodes=2", "--set=SlurmdTimeout=33")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("in use", self.tool("up", where).stderr)
        done = self.tool("exec", where, "srun", "-N2", "hostname")
        self.assertEqual(sorted(done.stdout.split()), ["node1", "node2"], done.stderr)
        self.assertIn("SlurmdTimeout           = 33 sec", self.tool("exec", where, "scontrol", "show", "config").stdout)
        self.assertEqual(self.tool("exec", where, "--on=node2", "--", "sh", "-c", "hostname; exit 3").returncode, 3)
        self.assertEqual(self.tool("down", where).returncode, 0)
        self.check_nothing_is_left()
        self.assertIn("no hosts", self.tool("exec", where, "true").stderr)

    def test_down_does_not_delete_other_directories(self):
        (self.directory / "file").touch()
        done = self.tool("down", f"--dir={self.directory}")
        self.assertEqual((done.returncode, (self.directory / "file").exists()), (1, True), done.stderr)
        (self.directory / "file").unlink()


if __name__ == "__main__":
    junit.main()
