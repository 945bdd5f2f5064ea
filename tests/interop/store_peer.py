"""A store client that uses this interpreter's PyTorch and is controlled through standard input.

usage: store_peer.py PORT WORLD_SIZE

Reads JSON lines [operation, arguments...]. Answers each line with one line of JSON: the result, with bytes as text,
or {"error": "..."}.
"""

import datetime
import json
import sys

import torch
from torch.distributed import TCPStore

LONG = datetime.timedelta(seconds=60)
# The store does not answer these requests, and may handle later requests of other clients first. After each such
# request the peer sends a request that has an answer. The answer shows that the store has handled both requests.
UNANSWERED = {"set", "append", "multi_set"}


class Peer:
    def __init__(self, port, world_size):
        self.store = TCPStore("127.0.0.1", port, world_size, False, LONG, wait_for_workers=True)

    def version(self):
        return torch.__version__

    def has(self, operation):
        return hasattr(self.store, operation)

    def wait_ms(self, key, timeout_ms):
        self.store.wait([key], datetime.timedelta(milliseconds=timeout_ms))

    def add_many(self, key, times):
        return [self.store.add(key, 1) for _ in range(times)]

    def ring(self, prefix, index, size, turns):
        """Does this `turns` times: waits for this peer's turn, and then sets the key of the next peer's turn."""
        for turn in range(turns):
            mine = turn * size + index
            assert self.store.get(f"{prefix}{mine}") == str(mine).encode()
            self.store.set(f"{prefix}{mine + 1}", str(mine + 1))

    def do(self, operation, *arguments):
        method = getattr(self, operation, None) or getattr(self.store, operation)
        result = method(*arguments)
        if operation in UNANSWERED:
            self.store.num_keys()
        return result.decode() if isinstance(result, bytes) else result


def main():
    peer = Peer(int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(peer.version()), flush=True)
    for line in sys.stdin:
        try:
            answer = peer.do(*json.loads(line))
        except Exception as error:  # reported to the test, which checks it
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
