"""torch_worker, but in the first start rank 1 is killed after the group has formed: crash_once_worker.py MARKER.

The file MARKER exists from the crash on. (Not the restart count: under torchrun each agent counts separately.)
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
            dist.barrier()  # all ranks have checked for the marker
            marker.touch()
            sys.stdout.write("killed\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        dist.barrier()  # never passed
    torch_worker.main()
