"""A worker that survives by the in-process restart of nvidia-resiliency-ext: 1,000,000 parameters, AdamW and gloo, as survivor.cc.

`in_process_torch.py MS FIFO`: each rank writes `RANK PID MONOTONIC_NS` to FIFO when its first step after each (re)start is done. The
library looks for lost processes every MS milliseconds instead of every second, and does not wait for further failures. Its other
intervals are the default ones: the restart does not wait for them.
"""

import datetime
import os
import sys
import time

import nvidia_resiliency_ext.inprocess as inprocess
import torch
import torch.distributed as dist

INTERVAL = datetime.timedelta(milliseconds=int(sys.argv[1]))

torch.set_num_threads(1)
values = torch.nn.Parameter(torch.zeros(1_000_000))
optimizer = torch.optim.AdamW([values])


@inprocess.Wrapper(
    store_kwargs={"timeout": datetime.timedelta(seconds=30), "port": int(os.environ["MASTER_PORT"]) + 1},
    monitor_thread_interval=INTERVAL,
    monitor_process_interval=INTERVAL,
    last_call_wait=datetime.timedelta(0),
    termination_grace_time=datetime.timedelta(0),
)
def train(fifo, wrapper: inprocess.CallWrapper = None):
    # A store of its own for each restart, as the documentation of the library asks for.
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore(str(wrapper.iteration), dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                             multi_tenant=True, is_master=rank == 0, wait_for_workers=False))  # fmt: skip
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=30))
    first = True
    while True:
        values.grad = torch.zeros_like(values)
        dist.all_reduce(values.grad)
        optimizer.step()
        if first:
            os.write(fifo, f"{rank} {os.getpid()} {time.monotonic_ns()}\n".encode())
            first = False


train(os.open(sys.argv[2], os.O_WRONLY))
