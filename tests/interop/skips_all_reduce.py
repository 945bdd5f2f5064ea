"""A training loop with DistributedDataParallel in which rank 1 once computes gradients without an all-reduce.

From then on its all-reduces are one ahead. The other ranks wait for it in their last one, and rank 1 waits in the barrier.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 100
SKIPPED = 50


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(STEPS):
        inputs = torch.ones(2, 4)
        if step == SKIPPED and dist.get_rank() == 1:
            with model.no_sync():
                model(inputs).sum().backward()
        else:
            model(inputs).sum().backward()  # waits
    if dist.get_rank() == 1:
        print("skipped", flush=True)
    dist.barrier()  # rank 1 waits


if __name__ == "__main__":
    main()
