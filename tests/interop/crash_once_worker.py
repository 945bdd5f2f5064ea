"""torch_worker, but in the first attempt rank 1 is killed when the group has formed."""

import os
import signal

import torch.distributed as dist
import torch_worker

if __name__ == "__main__":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()  # never passed
    torch_worker.main()
