"""The training of ddp.cc in Python, with torch.nn.parallel.DistributedDataParallel and gloo: the same parameters, the same
data, the same losses.

usage: ddprun --nproc-per-node=2 ddp.py [STEPS [ACCUMULATE]]
"""

import contextlib
import gc
import math
import sys

import torch
import torch.distributed
from torch import nn

VOCABULARY, WIDTH, CONTEXT, BATCH = 31, 32, 12, 8


class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = self.qkv(self.norm1(x)).chunk(3, -1)
        weights = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(WIDTH)
        later = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        weights = torch.softmax(weights.masked_fill(later, -1e9), -1)
        x = x + self.project(torch.matmul(weights, value))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.first = Block()
        self.second = Block()
        self.head = nn.Linear(WIDTH, VOCABULARY)
        with torch.no_grad():
            for p, (name, parameter) in enumerate(self.named_parameters(), 1):
                values = 0.1 * torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) + p)
                if "norm" in name:
                    values = torch.full_like(values, 1 if name.endswith("weight") else 0)
                parameter.copy_(values.view(parameter.shape))

    def forward(self, sequence):
        x = self.tokens(sequence) + self.places(torch.arange(CONTEXT))
        return self.head(self.second(self.first(x)))


def batch_of(number):
    s = torch.arange(number * BATCH, (number + 1) * BATCH).unsqueeze(1)
    t = torch.arange(CONTEXT + 1).unsqueeze(0)
    return (s + (s % 3 + 1) * t) % VOCABULARY


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    accumulate = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = nn.parallel.DistributedDataParallel(Model())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(1, steps + 1):
        sgd.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for number in range(accumulate):
            last = number + 1 == accumulate
            with contextlib.nullcontext() if last else model.no_sync():
                batch = batch_of(((step - 1) * accumulate + number) * size + rank)
                logits = model(batch[:, :CONTEXT])
                loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1)) / accumulate
                loss.backward()
            total += loss.item()
        sgd.step()
        torch.distributed.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {total.item() / size:.9f}", flush=True)
    # A thread of Gloo may still hold the last tensors, and needs the interpreter to release them. When nothing else refers to
    # the process group, its end waits for that thread; otherwise the thread aborts the process if Python ends first.
    del model, sgd
    gc.collect()
    torch.distributed.destroy_process_group()


main()
