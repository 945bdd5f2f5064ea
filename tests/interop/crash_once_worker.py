"""Like torch_worker, but in the first start rank 1 kills itself after the group has formed.

usage: crash_once_worker.py MARKER

Rank 1 creates the file MARKER before it kills itself, so the first start is the one without that file. The restart
count cannot identify the first start, since under torchrun each agent counts separately.
"""

import os
import pathlib
import signal
import sys

import torch.distributed as dist
import torch_worker

if __name__ == "__main__":
    marker = pathlib.Path(sys.argv[1])
    if not marker.exists():
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            dist.barrier()  # passed when all ranks have checked for the marker
            marker.touch()
            sys.stdout.write("killed\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        dist.barrier()  # never passed, because rank 1 is dead
    torch_worker.main()
