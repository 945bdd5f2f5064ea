"""Hosts made of namespaces: `ctl` and node1, node2, ..., each with its own network, name, mounts and processes.

The pid namespace of `ctl` contains those of all nodes, so all processes of all hosts end when the init of `ctl` is
killed, and with them the namespaces and their network devices. The init exits when its standard input is closed: if the
program that has started the hosts is killed, the hosts end, too. After keep(), they stay until end().

The network devices exist only within the namespaces, and no namespace has a name. Machines with the same addresses do
not disturb each other. A host is found by the command line of its init, which contains the directory of the machine.
"""

import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

NETWORK = "198.18.7"  # in the range reserved for benchmarks (RFC 2544); no packet leaves the namespaces
MAX_NODES = 250
CONTROLLER = "ctl"
MARKER = "ddprun-slurm-host"
KINDS = ("pid", "net", "uts", "ipc", "mnt")
UNSHARE = ["unshare", "--pid", "--net", "--uts", "--ipc", "--mount", "--fork", "--mount-proc"]
TOOLS = ("unshare", "nsenter", "ip")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Arguments of both scripts: MARKER NAME DIRECTORY. bash reaps the orphans that an init adopts, which dash does not. The
# pipe `never` is open for writing, too, so that a read from it blocks; a SIGCHLD may interrupt it.
_BOOT = """
set -e
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
exec 3<>"$2/never"
"""
_STAY = """
while :; do read -r _ || :; done <&3
"""
_NODE = _BOOT + """
echo ready
""" + _STAY
# Further arguments: the number of nodes, their script. head ends with a line, or without one at the end of
# standard input.
_CONTROLLER = _BOOT + """
for i in $(seq "$3"); do
  """ + " ".join(UNSHARE) + """ bash -c "$4" "$0" "node$i" "$2" </dev/null 3>&- &
done
echo ready
[ -n "$(head -n 1)" ]
""" + _STAY


class MachineError(RuntimeError):
    """The hosts could not be created or ended."""


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _entries(folder):
    """Returns the names in a folder of /proc; none after the process has exited."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _descriptors():
    """Returns {path: what it refers to} of the open files of all processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for entry in _entries(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{entry}"
            try:
                found[path] = os.readlink(path)
            except OSError:
                continue  # closed meanwhile
    return found


def _namespace(pid, kind):
    """Returns the identity of a namespace, such as net:[4026531840]; None after the process has exited."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


def _comm(pid):
    return _read(f"/proc/{pid}/comm").strip()


def _marked(directory):
    """Returns {pid: (host, whether it is an init)} of the inits of a machine and of the processes that start them."""
    found = {}
    for pid in _pids():
        words = _read(f"/proc/{pid}/cmdline").split("\0")
        if MARKER not in words[3:] or "bash" not in words:
            continue
        name, where, *_ = words[words.index(MARKER) + 1 :] + ["", ""]
        if where == str(directory):
            numbers = _read(f"/proc/{pid}/status").partition("NSpid:")[2].partition("\n")[0].split()
            found[pid] = name, len(numbers) > 1 and numbers[-1] == "1"
    return found


def inits(directory):
    """Returns {host: pid of its init} of the machine with this directory; empty if no process is left."""
    return {name: pid for pid, (name, is_init) in _marked(directory).items() if is_init}


def _members(namespaces):
    """Returns {pid: name} of the live processes in any of the namespaces."""
    return {pid: _comm(pid) for pid in _pids() if any(_namespace(pid, kind) in namespaces for kind in KINDS)}


def _references(namespaces):
    """Returns the descriptors and mounts that keep one of the namespaces alive, one line each."""
    found = [f"{path} -> {target}" for path, target in _descriptors().items() if target in namespaces]
    for line in _read("/proc/self/mountinfo").splitlines():
        if line.split()[3] in namespaces:
            found.append(f"mount {line.split()[4]} of {line.split()[3]}")
    return found


def end(directory, timeout_s=20):
    """Ends all hosts of the machine. Also ends what is left of a machine whose start was interrupted.

    Returns after no process, and no reference to a namespace, is left, so that the kernel deletes the namespaces with
    their network devices. Raises MachineError, which lists what is left, if that takes longer than timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    own = {_namespace("self", kind) for kind in KINDS}
    namespaces = set()
    while True:
        marked = _marked(directory)
        inner = {_namespace(pid, kind) for pid, (_, is_init) in marked.items() if is_init for kind in KINDS}
        namespaces |= inner - own - {None}
        for pid in marked:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        left = [f"process {pid} ({name})" for pid, name in _members(namespaces).items()]
        left += [f"process {pid} of {name}" for pid, (name, _) in marked.items()]
        left = left or _references(namespaces)
        if not left:
            return
        if time.monotonic() > deadline:
            raise MachineError(f"left of {directory} after {timeout_s} s: {', '.join(sorted(left))}")
        time.sleep(0.01)


def why_not():
    """Returns why hosts cannot be created here, or an empty string."""
    if os.geteuid() != 0:
        return "needs root"
    if missing := [tool for tool in TOOLS if not shutil.which(tool, path=SYSTEM_PATH)]:
        return f"needs {', '.join(missing)} (packages iproute2, util-linux)"
    for device in (["veth"], ["name", "br0", "type", "bridge"]):
        words = device if len(device) > 1 else ["type", *device]
        command = [*UNSHARE, "ip", "link", "add", *words]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if tried.returncode != 0:
            return f"no namespaces with {device[-1]} devices: {tried.stderr.strip()}"
    return ""


class Client(subprocess.Popen):
    """A process on a host. Signals go to the process itself, not to the nsenter that waits for it.

    The exit status is that of the process, which ends with its host at the latest.
    """

    def inner_pid(self):
        """Returns the pid in the caller's pid namespace, when the process has started; None if it has exited."""
        while self.poll() is None:
            for pid in _pids():
                head, _, tail = _read(f"/proc/{pid}/stat").rpartition(")")  # the name in parentheses is arbitrary
                if head and int(tail.split()[1]) == self.pid:
                    return pid
            time.sleep(0.005)
        return None

    def send_signal(self, sig):
        pid = self.inner_pid()
        if pid is not None:
            os.kill(pid, sig)


class Machine:
    """The hosts `ctl` and node1 to nodeN, whose files are in `directory`, which has the same path on all hosts.

    Threads: one caller at a time. Owns the hosts until keep().
    """

    def __init__(self, directory, nodes=0):
        self.directory = pathlib.Path(directory)
        self.nodes = nodes
        self._pids = {}
        self._starter = None

    @classmethod
    def attach(cls, directory):
        """Returns the running machine with this directory. Raises MachineError if there is none."""
        machine = cls(directory)
        machine._pids = inits(directory)
        machine.nodes = len(machine._pids) - 1
        if CONTROLLER not in machine._pids:
            raise MachineError(f"no hosts with the directory {directory}")
        return machine

    @staticmethod
    def address(node):
        return f"{NETWORK}.{node}"

    def start(self, timeout_s):
        """Creates the hosts. On failure, raises MachineError and leaves nothing but the directory."""
        if not 1 <= self.nodes <= MAX_NODES:
            raise MachineError(f"nodes={self.nodes}: expected 1 to {MAX_NODES}")
        names = [f"{NETWORK}.254 {CONTROLLER}", *(f"{self.address(i)} node{i}" for i in range(1, self.nodes + 1))]
        (self.directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        os.mkfifo(self.directory / "never")
        log = self.directory / "log" / "hosts.log"
        with open(log, "w", encoding="utf-8") as errors:
            self._starter = subprocess.Popen(
                [*UNSHARE, "bash", "-c", _CONTROLLER, MARKER, CONTROLLER, str(self.directory), str(self.nodes), _NODE],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                env={**os.environ, "PATH": SYSTEM_PATH},
            )  # fmt: skip
        try:
            self._await_ready(time.monotonic() + timeout_s)
            self._pids = inits(self.directory)
            self._connect()
        except (MachineError, subprocess.SubprocessError) as error:
            self.end()
            detail = getattr(error, "stderr", None) or _read(log)
            raise MachineError(f"cannot create the hosts: {error}: {detail.strip()}") from None

    def _await_ready(self, deadline):
        ready = b""
        while ready.count(b"\n") < self.nodes + 1:
            readable, _, _ = select.select([self._starter.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._starter.stdout.fileno(), 4096) if readable else b""
            if not data:
                raise MachineError("their init failed" if readable else "no answer in time")
            ready += data

    def _connect(self):
        bridge = ["link set lo up", "link add br0 type bridge", f"address add {NETWORK}.254/24 dev br0"]
        bridge.append("link set br0 up")
        for i in range(1, self.nodes + 1):
            bridge.append(f"link add port{i} type veth peer name eth0 netns {self._pids[f'node{i}']}")
            bridge.append(f"link set port{i} master br0 up")
        self._configure(CONTROLLER, bridge)
        for i in range(1, self.nodes + 1):
            address = f"address add {self.address(i)}/24 dev eth0"
            self._configure(f"node{i}", ["link set lo up", address, "link set eth0 up"])

    def _configure(self, host, lines):
        # Only the network namespace is entered, so that `netns PID` means a pid of this process's pid namespace.
        command = ["nsenter", "--target", str(self._pids[host]), "--net", "ip", "-batch", "-"]
        text = "\n".join(lines) + "\n"
        subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=20)

    def command(self, host, argv, cwd=None):
        """Returns the command line that runs argv on a host, in `cwd` (default: the directory of the caller)."""
        if host not in self._pids:
            raise MachineError(f"no host {host}; hosts: {', '.join(sorted(self._pids))}")
        enter = ["nsenter", "--target", str(self._pids[host]), "--net", "--uts", "--ipc", "--mount", "--pid"]
        return [*enter, "env", f"--chdir={cwd or os.getcwd()}", *argv]

    def pid_on_controller(self, host):
        """Returns the pid of the init of a node in the pid namespace of `ctl`."""
        return int(_read(f"/proc/{self._pids[host]}/status").partition("NSpid:")[2].partition("\n")[0].split()[-2])

    def processes(self, host):
        """Returns {pid: name} of the live processes on a host, except its init, with pids of the caller's namespace."""
        init = self._pids[host]
        return {pid: name for pid, name in _members({_namespace(init, "pid")}).items() if pid != init}

    def keep(self):
        """The hosts stay when this process exits."""
        self._starter.stdin.write(b"keep\n")
        self._starter.stdin.flush()

    def end(self):
        """Ends the hosts; see the function end()."""
        end(self.directory)
        self._pids = {}
        if self._starter:
            self._starter.stdin.close()
            self._starter.stdout.close()
            self._starter.wait(20)
            self._starter = None
