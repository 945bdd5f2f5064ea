"""Hosts of a test network: network namespaces connected by a bridge in a separate namespace."""

import os
import re
import subprocess

DEADLINE_S = 60
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

    def run(self, commands):
        """Runs commands[i - 1] on host i, all at the same time. Returns their standard outputs; raises RuntimeError if one fails."""
        processes = [
            subprocess.Popen(self.on(i, c), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for i, c in enumerate(commands, 1)
        ]
        try:
            outputs = [process.communicate(timeout=DEADLINE_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, command, (_, errors) in zip(processes, commands, outputs):
            if process.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: status {process.returncode}: {errors.strip()[-300:]}")
        return [output for output, _ in outputs]

    @staticmethod
    def number(outputs):
        """Returns the number that exactly one worker printed on a line of its own."""
        numbers = re.findall(r"^(?:\[\S+\]:)?([0-9.]+)$", "".join(outputs), re.MULTILINE)
        if len(numbers) != 1:
            raise RuntimeError(f"expected one number: {outputs}")
        return float(numbers[0])

    def sent_bytes(self, i):
        """Returns the bytes that host i has sent, with the headers of all layers."""
        counter = self.on(i, ["cat", "/sys/class/net/eth0/statistics/tx_bytes"])
        return int(subprocess.run(counter, check=True, capture_output=True, text=True, timeout=20).stdout)

    def shape(self, mbit, burst_kb=70):
        """Limits what each host sends to `mbit` Mbit/s. After a pause, a host sends at most burst_kb * 1000 bytes at once.

        The burst must be at least as large as the kernel's largest segments (64 KiB). A larger burst would hide pauses.
        """
        for i, _ in enumerate(self.names, 1):
            limits = ["rate", f"{mbit}mbit", "burst", f"{burst_kb}kb", "latency", "20ms"]
            subprocess.run(
                self.on(i, ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limits]), check=True, capture_output=True, timeout=20
            )

    def cut(self, i):
        """Silently drops all packets from and to host i."""
        _ip("-n", self.switch, "link", "set", f"port{i}", "down")
