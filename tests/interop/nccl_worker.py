"""A PyTorch worker with NCCL: sums over all ranks on its GPU. Prints one line: `rank=0 sum=3`. Run by tools/dev gpu."""

import os
import sys

import torch
import torch.distributed as dist


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    total = torch.tensor([dist.get_rank() + 1.0], device="cuda")
    dist.all_reduce(total)
    sys.stdout.write(f"rank={dist.get_rank()} sum={total.item():g}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
