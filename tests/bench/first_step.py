#!/usr/bin/env -S python3 -SE
"""A worker that ends after one barrier, which stands for the first step. `first_step.py FIFO`.

Its rank is that of a launcher, or that of Slurm's task. Rank 0 accepts the others at MASTER_ADDR, and writes
"0 PID MONOTONIC_NS" to FIFO when all have arrived. Runs on hosts with a network of their own, so the port is fixed.
"""

import os
import socket
import sys
import time

PORT = 29555
LIMIT_S = 30
RETRY_S = 0.002


def arrive(rank):
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], PORT), timeout=LIMIT_S) as root:
                if not root.recv(1):
                    raise RuntimeError(f"rank {rank}: rank 0 has ended")
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def main():
    rank = int(os.environ.get("RANK", os.environ["SLURM_PROCID"]))
    world_size = int(os.environ.get("WORLD_SIZE", os.environ["SLURM_NTASKS"]))
    if rank > 0:
        return arrive(rank)
    with socket.create_server(("", PORT), backlog=world_size) as server:
        server.settimeout(LIMIT_S)
        others = [server.accept()[0] for _ in range(world_size - 1)]
    for other in others:
        other.sendall(b"!")
    with open(sys.argv[1], "w", encoding="ascii") as fifo:
        fifo.write(f"0 {os.getpid()} {time.monotonic_ns()}\n")


main()
