"""torch_worker, but the first time rank 1 is killed when the group has formed: crash_once_worker.py MARKER.

MARKER is a file that is there from the crash on. (The restart count will not do: under torchrun each agent has its own.)
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
            dist.barrier()  # all ranks have looked for the marker
            marker.touch()
            sys.stdout.write("killed\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        dist.barrier()  # never passed
    torch_worker.main()
