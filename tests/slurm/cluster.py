"""A Slurm cluster for tests: munged, slurmctld and one slurmd per node, on hosts made of namespaces (tests/hosts).

    with Cluster(nodes=4) as slurm:
        job = slurm.submit(["--nodes=2", "job.sh"])
        slurm.wait_job(job, timeout=60)

Needs root and Debian's packages slurm-wlm and munge; why_not() says what is missing. Clusters may run at the same time:
each has its own network, so names, addresses and ports are the same in all of them. All files are in one directory.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import machine as hosts  # noqa: E402

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
GPUS_PER_NODE = 8
CPUS_PER_NODE = 8
UP_TIMEOUT_S = 60
POLL_S = 0.03
MARK = "ddprun-slurm"  # a file that down() requires before it deletes a directory
# slurmd binds unix sockets below the directory, spool/node250/node250_JOB.STEP, with at most 107 characters.
MAX_PATH = 60
SPOILING = re.compile("SLURM|SBATCH_|SRUN_|SALLOC_|SQUEUE_|SINFO_|SCANCEL_")

FINAL_STATES = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)


class SlurmError(RuntimeError):
    """The cluster cannot be started or ended, or a command failed."""


def why_not():
    """Returns why a cluster cannot run here, or an empty string. The texts contain no line breaks."""
    if reason := hosts.why_not():
        return reason
    if missing := [name for name in DAEMONS if not shutil.which(name, path=hosts.SYSTEM_PATH)]:
        return f"needs {', '.join(missing)} (packages slurm-wlm and munge: tools/dev setup --slurm)"
    return ""


def configuration(directory, nodes, settings):
    """Returns the text of slurm.conf. `settings` replace the values of the keys, or add keys."""
    values = {
        "ClusterName": "ddprun",
        "SlurmctldHost": f"{hosts.CONTROLLER}({hosts.NETWORK}.254)",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        # A requeued job does not start before the credentials of its last run have expired, 120 s by default.
        "AuthInfo": f"socket={directory}/munge/socket,cred_expire=5",
        "StateSaveLocation": f"{directory}/state",
        "SlurmdSpoolDir": f"{directory}/spool/%n",
        "SlurmctldPidFile": f"{directory}/run/slurmctld.pid",
        "SlurmdPidFile": f"{directory}/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{directory}/log/slurmctld.log",
        "SlurmdLogFile": f"{directory}/log/slurmd-%n.log",
        # No control groups, no accounting, no mail.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        # Jobs start at once instead of at the next turn of the scheduler.
        "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0",
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "KillWait": "5",
        "PropagateResourceLimits": "NONE",
        # Nodes may have more processors than this machine.
        "SlurmdParameters": "config_overrides",
        "GresTypes": "gpu",
        **(settings or {}),
    }
    lines = [f"{key}={value}" for key, value in values.items()]
    lines.append(
        f"NodeName=node[1-{nodes}] NodeAddr={hosts.NETWORK}.[1-{nodes}] CPUs={CPUS_PER_NODE} Boards=1 "
        f"SocketsPerBoard=1 CoresPerSocket={CPUS_PER_NODE} ThreadsPerCore=1 RealMemory=4000 Gres=gpu:{GPUS_PER_NODE}"
    )
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join([*lines, ""])


class Cluster:
    """A cluster whose nodes are node1 to nodeN, and whose client commands run on the host `ctl`.

    A context manager: the cluster is idle on entry, and nothing of it is left on exit. It also ends when this process
    is killed, except for its directory. `settings`: lines of slurm.conf, as {key: value}. Threads: one caller at a time
    for up() and down(); commands may run in parallel.
    """

    def __init__(self, nodes=4, directory=None, settings=None):
        self.nodes = nodes
        self.settings = settings
        self.directory = pathlib.Path(directory).absolute() if directory else None
        self._machine = None

    @classmethod
    def attach(cls, directory):
        """Returns the running cluster in this directory. Raises MachineError if there is none."""
        found = hosts.Machine.attach(pathlib.Path(directory).absolute())
        cluster = cls(found.nodes, directory)
        cluster._machine = found
        return cluster

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    # Start and end.

    def up(self, keep=False, timeout=UP_TIMEOUT_S):
        """Starts the cluster. Returns when all nodes are idle. With `keep`, the cluster stays until down().

        Raises SlurmError if the directory is in use, or with the ends of the logs if a node is not idle after `timeout`
        seconds; in this case nothing is left.
        """
        deadline = time.monotonic() + timeout
        self._create_directory()
        try:
            self._machine = hosts.Machine(self.directory, self.nodes)
            self._machine.start(timeout)
            self._run_daemon(hosts.CONTROLLER, self._munged())
            self._run_daemon(hosts.CONTROLLER, ["slurmctld", "-i"])
            for i in range(1, self.nodes + 1):
                self.start_slurmd(i)
            self.wait_idle(max(0, deadline - time.monotonic()))
            if keep:
                self._machine.keep()
        except BaseException:
            self.down()
            raise

    def down(self):
        """Ends all jobs, daemons and hosts, and deletes the directory.

        Raises MachineError, which lists what is left.
        """
        end(self.directory, self._machine)
        self._machine = None

    def _create_directory(self):
        if self.directory is None:
            self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ddprun-slurm-", dir="/tmp"))
        if len(str(self.directory)) > MAX_PATH:
            raise SlurmError(f"{self.directory}: more than {MAX_PATH} characters, too many for unix sockets below it")
        if self.directory.exists() and any(self.directory.iterdir()):
            raise SlurmError(f"{self.directory} is in use: end its cluster first, or use another directory")
        self.directory.mkdir(exist_ok=True)
        (self.directory / MARK).touch()
        self.directory.chmod(0o755)  # for jobs of other users
        spools = [f"spool/node{i}" for i in range(1, self.nodes + 1)]
        for name in ("dev", "log", "munge", "run", "spool", "state", *spools):
            (self.directory / name).mkdir(mode=0o755)
        key = self.directory / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        # slurmd accepts only devices as GPUs.
        for gpu in range(GPUS_PER_NODE):
            (self.directory / f"dev/gpu{gpu}").symlink_to("/dev/null")
        gpus = f"NodeName=node[1-{self.nodes}] Name=gpu File={self.directory}/dev/gpu[0-{GPUS_PER_NODE - 1}]\n"
        (self.directory / "gres.conf").write_text(gpus)
        (self.directory / "slurm.conf").write_text(configuration(self.directory, self.nodes, self.settings))

    def _munged(self):
        # One daemon serves all hosts, because their network namespaces share the path of its socket.
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        paths = [f"--{option}={self.directory}/munge/{name}" for option, name in files.items()]
        return ["munged", "--force", *paths, f"--log-file={self.directory}/log/munged.log"]

    def _run_daemon(self, host, argv):
        """Runs a command that returns when its daemon has started."""
        try:
            self._run(host, argv, cwd="/", timeout=UP_TIMEOUT_S)
        except (SlurmError, subprocess.TimeoutExpired) as error:
            raise SlurmError(f"{error}\n{self.log_tails()}") from None

    def log_tails(self, lines=12):
        """Returns the last lines of all logs that are not empty."""
        texts = []
        for log in sorted((self.directory / "log").iterdir()):
            if tail := log.read_text(errors="replace").splitlines()[-lines:]:
                texts.append("\n    ".join([f"{log.name}:", *tail]))
        return "\n".join(texts)

    def wait_idle(self, timeout, nodes=None):
        """Waits until `nodes` (default: all) are idle. Raises SlurmError with the states and the ends of the logs."""
        expected = set(nodes or range(1, self.nodes + 1))
        deadline = time.monotonic() + timeout
        while True:
            shown = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T %E"], check=False)
            states = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
            if all(states.get(f"node{i}", "").startswith("idle ") for i in expected):
                return
            if time.monotonic() > deadline:
                seen = ", ".join(f"{node} {state}" for node, state in states.items()) or shown.stderr.strip()
                raise SlurmError(f"nodes are not idle after {timeout:.0f} s: {seen}\n{self.log_tails()}")
            time.sleep(POLL_S)

    # Commands.

    def environment(self, more=None):
        """Returns the environment of commands: that of the caller, without variables that change how Slurm behaves."""
        kept = {name: value for name, value in os.environ.items() if not SPOILING.match(name)}
        return {**kept, "PATH": hosts.SYSTEM_PATH, "SLURM_CONF": f"{self.directory}/slurm.conf", **(more or {})}

    def command(self, host, argv, cwd=None):
        """Returns the command line that runs argv on a host, `ctl` or nodeN. For exec with environment()."""
        return self._machine.command(host, argv, cwd)

    def _run(self, host, argv, check=True, timeout=60, cwd=None, env=None, stdin=""):
        client = self._start(host, argv, cwd=cwd, env=env, stdin=subprocess.PIPE)
        with client:
            try:
                out, err = client.communicate(stdin, timeout=timeout)
            except BaseException:
                client.kill()
                raise
        if check and client.returncode != 0:
            said = (err or out).strip()[-2000:]
            raise SlurmError(f"{host}: {' '.join(argv)}: status {client.returncode}: {said}")
        return subprocess.CompletedProcess(argv, client.returncode, out, err)

    def _start(self, host, argv, cwd=None, env=None, stdin=subprocess.DEVNULL):
        return hosts.Client(
            self.command(host, argv, cwd), env=self.environment(env), stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def run(self, argv, **options):
        """Runs a command on `ctl`, and returns its CompletedProcess, with texts.

        Options: check=True raises SlurmError if the command fails; timeout=60 in seconds; cwd; env, variables in
        addition to environment(); stdin, a text.
        """
        return self._run(hosts.CONTROLLER, argv, **options)

    def start(self, argv, **options):
        """Starts a command on `ctl`, and returns its Client, a Popen with pipes for its output.

        Options: cwd and env as for run(); stdin as for Popen.
        """
        return self._start(hosts.CONTROLLER, argv, **options)

    def on_node(self, node, argv, **options):
        """Like run(), on a node given by its number, outside of any job."""
        return self._run(f"node{node}", argv, **options)

    def start_on_node(self, node, argv, **options):
        """Like start(), on a node given by its number, outside of any job."""
        return self._start(f"node{node}", argv, **options)

    # Jobs.

    def submit(self, argv, **options):
        """Submits a batch job: runs `sbatch ARGV` and returns the id of the job. Options as for run()."""
        return int(self.run(["sbatch", "--parsable", *argv], **options).stdout.partition(";")[0])

    def show(self, kind, name):
        """Returns {key: value} of `scontrol show KIND NAME`. Values with blanks are cut."""
        text = self.run(["scontrol", "show", "--oneliner", kind, str(name)]).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def job_state(self, job):
        """Returns a state such as PENDING, RUNNING, COMPLETING or COMPLETED. Raises SlurmError for an unknown job."""
        return self.show("job", job)["JobState"]

    def wait_job(self, job, timeout, states=FINAL_STATES):
        """Waits until the job is in one of the states (default: it has ended), and returns that state.

        Raises SlurmError with the job's last state after `timeout` seconds, and at once if the job has ended otherwise.
        """
        deadline = time.monotonic() + timeout
        while True:
            state = self.job_state(job)
            if state in states:
                return state
            if state in FINAL_STATES or time.monotonic() > deadline:
                raise SlurmError(f"job {job} is {state}; expected {' or '.join(sorted(states))} within {timeout} s")
            time.sleep(POLL_S)

    # Daemons and processes of nodes.

    def processes(self, node):
        """Returns {pid: name} of the processes on a node, with pids of the caller's pid namespace."""
        return self._machine.processes(f"node{node}")

    def start_slurmd(self, node):
        """Starts slurmd on a node. Returns before Slurm knows of it; see wait_idle."""
        self._run_daemon(f"node{node}", ["slurmd"])

    def kill_slurmd(self, node, timeout=10):
        """Sends SIGKILL to the slurmd of a node, and returns when it has exited. Steps on the node continue."""
        found = self._slurmd(node)
        if not found:
            raise SlurmError(f"node{node} has no slurmd")
        for pid in found:
            os.kill(pid, 9)
        deadline = time.monotonic() + timeout
        while self._slurmd(node):
            if time.monotonic() > deadline:
                raise SlurmError(f"slurmd of node{node} does not exit within {timeout} s after SIGKILL")
            time.sleep(0.005)

    def lose(self, node):
        """Kills all processes on a node, slurmd included. Slurm finds out after SlurmdTimeout."""
        for pid in self.processes(node):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass  # it has exited

    def _slurmd(self, node):
        return [pid for pid, name in self.processes(node).items() if name == "slurmd"]


def end(directory, machine=None):
    """Ends the cluster in `directory`, or what is left of one whose start was interrupted. Deletes the directory.

    Raises SlurmError if the directory was not created by Cluster, and MachineError, which lists what is left.
    """
    directory = pathlib.Path(directory).absolute()
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise SlurmError(f"{directory} is not the directory of a cluster")
    if machine:
        machine.end()
    else:
        hosts.end(directory)
    if directory.exists():
        shutil.rmtree(directory)
