"""A worker that prints how long its steps took while the file SHOWN existed, and while it did not: `steps WITHOUT WITH`, in ms.

usage: stacks_worker.py SHOWN STOP
"""

import os
import statistics
import sys
import time


def step():
    total = 0
    for i in range(100_000):
        total += i * i
    return total


def main():
    shown, stop = sys.argv[1:]
    taken = {False: [], True: []}
    print("ready", flush=True)
    while not os.path.exists(stop):
        before = os.path.exists(shown)
        begin = time.monotonic()
        step()
        if before == os.path.exists(shown):
            taken[before].append(1000 * (time.monotonic() - begin))
    print("steps", statistics.mean(taken[False]), statistics.mean(taken[True]), flush=True)


if __name__ == "__main__":
    main()
