"""Helpers shared by the interoperability tests."""

import os
import socket
import struct
import subprocess
import sys
import time
import unittest

# Upper bound on every wait.
DEADLINE_S = 240

try:
    import torch
    import torch.distributed
except ImportError as error:
    sys.exit(f"these tests need PyTorch, but {sys.executable} cannot import it ({error}): install the Debian package "
             "python3-torch (tools/setup installs it), or set DDPRUN_PYTHON to another interpreter")


def path_of(name):
    """Returns the path of a file in this folder, or of a program built in this folder."""
    return os.path.join(os.environ.get("DDPRUN_INTEROP_DIR", os.path.dirname(os.path.abspath(__file__))), name)


def deadline():
    """Returns the deadline of a wait that starts now, by time.monotonic()."""
    return time.monotonic() + DEADLINE_S


def pythons():
    """Returns the interpreters for tests of several PyTorch versions: those of DDPRUN_PYTHONS, or else this one."""
    return [path for path in os.environ.get("DDPRUN_PYTHONS", "").split(":") if path] or [sys.executable]


class StoreServer:
    """A worker store in a separate process, which is stopped at the end of the `with` block."""

    def __enter__(self):
        self.process = subprocess.Popen([path_of("store_server")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *exc):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(DEADLINE_S)
        self.process.stdout.close()


class RawClient:
    """A client that speaks the protocol of PyTorch 2.2 and later, independent of this interpreter's PyTorch."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.socket.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE))

    def close(self):
        self.socket.close()

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the store closed the connection")
            data += piece
        return data

    @staticmethod
    def string(data):
        return struct.pack("<Q", len(data)) + data

    def set(self, key, value):
        """Returns when the store has the value. SET has no answer, so the client waits for the answer to a GET."""
        self.socket.sendall(b"\x01" + self.string(key) + self.string(value))
        self.get(key)

    def get(self, key):
        self.socket.sendall(b"\x03" + self.string(key))
        return self.receive(*struct.unpack("<Q", self.receive(8)))

    def add(self, key, delta):
        self.socket.sendall(b"\x04" + self.string(key) + struct.pack("<q", delta))
        return struct.unpack("<q", self.receive(8))[0]


def main():
    print(f"PyTorch {torch.__version__}, {sys.executable}", flush=True)
    unittest.main(verbosity=2)
