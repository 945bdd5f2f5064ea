"""A worker that sets watchdog timers with PyTorch's client. In round 0, rank 1 hangs while a timer is set, when rank 0 has done its steps."""

import os
import threading

import torch.distributed as dist
import torch.distributed.elastic.timer as timer

TIMED_STEPS = 20

timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
rank, restarts = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for _ in range(TIMED_STEPS):
    with timer.expires(after=60, scope="a short step"):
        pass
print(f"rank={rank} steps={TIMED_STEPS}", flush=True)
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
if rank == "0":
    store.set("rank 0 has done its steps", "")
store.wait(["rank 0 has done its steps"])
if rank == "1" and restarts == 0:
    with timer.expires(after=0.5, scope="a step that hangs"):
        threading.Event().wait()
print(f"rank={rank} done", flush=True)
