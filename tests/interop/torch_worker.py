"""A plain PyTorch worker: joins its group, sums over all ranks, and does one data-parallel step.

The worker does not depend on its launcher. It prints one line:
    rank=0 world_size=2 sum=3 weight=-0.123456
`sum` is the sum of (rank + 1) over all ranks; `weight` is the sum of the model's parameters after the step, equal on all
ranks.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def step(model, inputs):
    """Does one step of gradient descent. Returns the sum of the parameters after the step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(inputs).square().mean().backward()
    optimizer.step()
    return sum(p.double().sum().item() for p in model.parameters())


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 1)


def make_inputs(rank):
    return torch.full((2, 4), float(rank + 1))


def end():
    """Exits with 0 without finalizing PyTorch.

    Under any launcher, a group's thread aborts the process if it releases a Python object of the last
    operation during finalization (seen with PyTorch 2.15 on a busy machine).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def work():
    """Does the work in a group that has formed, leaves the group, and exits."""
    rank, world_size = dist.get_rank(), dist.get_world_size()

    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)

    # Every rank starts with different parameters; those of rank 0 must be used.
    weight = step(DistributedDataParallel(make_model(seed=rank)), make_inputs(rank))
    # The line is written in one call: with python -u, print() writes text and newline separately, and lines of
    # different ranks may be mixed.
    sys.stdout.write(f"rank={rank} world_size={world_size} sum={total.item():g} weight={weight:.6f}\n")
    sys.stdout.flush()
    dist.destroy_process_group()
    end()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work()


if __name__ == "__main__":
    main()
