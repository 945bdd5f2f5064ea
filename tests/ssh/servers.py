"""An sshd on each of the hosts node1, node2, ... made of namespaces (tests/hosts/machine.py); ssh runs on the host `ctl`.

All keys and configurations are in the directory of the machine. The files of the user and of the machine are not read.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "hosts"))
import machine  # noqa: E402

SSHD = "/usr/sbin/sshd"
START_S = 60
# sshd requires /run/sshd. The tmpfs is in the host's mount namespace only.
_START = 'mount -t tmpfs none /run && mkdir /run/sshd && exec "$0" "$@"'


def why_not():
    """Returns why the servers cannot run here, or an empty string."""
    if reason := machine.why_not():
        return reason
    if missing := [name for name in ("sshd", "ssh", "ssh-keygen") if not shutil.which(name, path=machine.SYSTEM_PATH)]:
        return f"needs {', '.join(missing)} (packages openssh-server, openssh-client: tools/dev setup --ssh)"
    return ""


class Servers:
    """Hosts with sshd. Use as a context: all processes end with it. Threads: one caller at a time."""

    def __init__(self, nodes):
        self.names = [f"node{i}" for i in range(1, nodes + 1)]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ddprun-ssh-", dir="/tmp"))
        (self.directory / "log").mkdir()
        self.machine = machine.Machine(self.directory, nodes)
        self._sshd = {}
        self._base = {}

    def __enter__(self):
        try:
            self._make_keys()
            self.machine.start(START_S)
            for name in self.names:
                self._start_sshd(name)
            self._wait_until_ready()
            self._base = {name: self.machine.processes(name) for name in ["ctl", *self.names]}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.machine.end()
        for process, log in self._sshd.values():
            process.wait(20)
            log.close()
        shutil.rmtree(self.directory)

    def _make_keys(self):
        for name in ("host_key", "user_key"):
            key = self.directory / name
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=20)
        kind, key, *_ = (self.directory / "host_key.pub").read_text().split()
        (self.directory / "known_hosts").write_text("".join(f"{name} {kind} {key}\n" for name in self.names))
        shutil.copy(self.directory / "user_key.pub", self.directory / "authorized_keys")
        self.write_config("config")

    def write_config(self, name, **options):
        """Writes a configuration of ssh. Returns the value of --ssh-command that uses it."""
        options = {
            "IdentityFile": self.directory / "user_key",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.directory / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            **options,
        }
        path = self.directory / name
        path.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
        return f"ssh -F {path}"

    def _start_sshd(self, name):
        options = {
            "HostKey": self.directory / "host_key",
            "AuthorizedKeysFile": self.directory / "authorized_keys",
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        log = open(self.directory / "log" / name, "wb")
        argv = ["sh", "-c", _START, SSHD, "-D", "-e", "-f", "/dev/null", *words]
        process = machine.Client(self.machine.command(name, argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env={"PATH": machine.SYSTEM_PATH})  # fmt: skip
        self._sshd[name] = process, log

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_S
        for name in self.names:
            while b"Server listening" not in (self.directory / "log" / name).read_bytes():
                if self._sshd[name][0].poll() is not None or time.monotonic() > deadline:
                    text = (self.directory / "log" / name).read_text(errors="replace")
                    raise RuntimeError(f"sshd does not start on {name}: {text}")
                time.sleep(0.01)

    def start(self, *argv, env=None):
        """Starts a command on `ctl`, in the directory of the machine. Returns a machine.Client with pipes."""
        return machine.Client(
            self.machine.command("ctl", argv, cwd=self.directory),
            env={"PATH": machine.SYSTEM_PATH, "HOME": str(self.directory), **(env or {})}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", bufsize=1,
        )  # fmt: skip

    def run(self, *argv, env=None, timeout=120):
        """Runs a command on `ctl` to its end. Returns a CompletedProcess."""
        with self.start(*argv, env=env) as client:
            try:
                out, err = client.communicate(timeout=timeout)
            except BaseException:
                client.kill()
                raise
        return subprocess.CompletedProcess(argv, client.returncode, out, err)

    def run_on(self, name, *argv):
        """Runs a command on a host, with its output in the result."""
        command = self.machine.command(name, argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    def sessions(self, name):
        """The pids of the sshd processes that serve connections on a host."""
        return [pid for pid, comm in self.left().get(name, {}).items() if comm == "sshd"]

    def left(self):
        """Returns {host: {pid: name}} of the processes that did not exist at the start, for hosts that have any."""
        found = {name: self.machine.processes(name) for name in self._base}
        left = {name: {pid: comm for pid, comm in found[name].items() if pid not in self._base[name]} for name in found}
        return {name: processes for name, processes in left.items() if processes}
