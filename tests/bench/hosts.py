"""Hosts of a test network: network namespaces connected by a bridge in a separate namespace."""

import os
import subprocess

NETWORK = "198.18.9"  # in the range reserved for benchmarks (RFC 2544); no packet leaves the namespaces


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


class Hosts:
    """A context manager for hosts 1..n: `with Hosts(3) as hosts:`.

    Requires root. Raises RuntimeError if the namespaces cannot be created.
    """

    def __init__(self, n):
        self.switch = f"ddprun-{os.getpid()}-switch"
        self.names = [f"ddprun-{os.getpid()}-{i + 1}" for i in range(n)]

    def __enter__(self):
        try:
            _ip("netns", "add", self.switch)
            _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "br0", "up")
            for i, name in enumerate(self.names, 1):
                _ip("netns", "add", name)
                _ip("-n", self.switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("-n", self.switch, "link", "set", f"port{i}", "master", "br0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
        except (OSError, subprocess.SubprocessError) as error:
            self.__exit__()
            raise RuntimeError(f"cannot create network namespaces: {getattr(error, 'stderr', '') or error}") from None
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20, check=False)

    def address(self, i):
        return f"{NETWORK}.{i}"

    def on(self, i, command):
        """Returns the command line that runs `command` on host i."""
        return ["ip", "netns", "exec", self.names[i - 1], *command]

    def cut(self, i):
        """Silently drops all packets from and to host i."""
        _ip("-n", self.switch, "link", "set", f"port{i}", "down")
