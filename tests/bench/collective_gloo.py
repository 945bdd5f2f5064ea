"""The measurement of `collective_load all-reduce` with torch.distributed and gloo: collective_gloo.py BYTES ITERATIONS."""

import statistics
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 5


def main():
    size, iterations = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    values = torch.zeros(size // 4)
    micros = []
    for i in range(-WARM_UP, iterations):
        begin = time.perf_counter()
        dist.all_reduce(values)
        if i >= 0:
            micros.append((time.perf_counter() - begin) * 1e6)
    slowest = torch.tensor([statistics.median(micros)], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(f"{slowest.item():.3f}")
    dist.destroy_process_group()


main()
