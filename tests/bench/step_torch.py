"""The model of `train` in PyTorch, with the same shapes, batch and optimizer, on one thread for each process, or on a GPU.

With RANK and WORLD_SIZE in the environment, the processes form a DistributedDataParallel job with gloo, on CPUs. Rank 0 prints the
median seconds of a step.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

VOCAB = 256
WARM_UP = 4


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, shape.width)
        self.positions = nn.Parameter(torch.randn(shape.context, shape.width) * 0.02)
        self.blocks = nn.ModuleList(Block(shape.heads, shape.width) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "context", "batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--bucket-cap-mb", type=float, default=0, help="0: DDP with its default options")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: %(default)s")
    shape = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    model = Gpt(shape).to(shape.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    data = torch.randint(0, VOCAB, (shape.steps + WARM_UP, shape.batch, shape.context + 1))
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        more = {"bucket_cap_mb": shape.bucket_cap_mb, "gradient_as_bucket_view": True} if shape.bucket_cap_mb else {}
        model = nn.parallel.DistributedDataParallel(model, **more)
    times = []
    for batch in data:
        begin = time.perf_counter()
        batch = batch.to(shape.device)
        loss = functional.cross_entropy(model(batch[:, :-1]).reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(statistics.median(times[WARM_UP:]))
    if dist.is_initialized():
        dist.destroy_process_group()


main()
