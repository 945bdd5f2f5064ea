"""A PyTorch worker that does one all-reduce over the process group that the environment describes."""

import torch
import torch.distributed as dist

import train

train.note_facts()
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
train.say(1, f"the sum is {value.item()}")
dist.destroy_process_group()
