"""Trains a small byte-level text model with DistributedDataParallel.

    torchrun --nproc-per-node=2 train.py --epochs 5

The script follows the documentation of torchrun and does not depend on the launcher. After every epoch, rank 0 saves a snapshot.
A run that finds a snapshot resumes from it, so with --max-restarts, a job that loses a worker ends with exactly the same losses
as an uninterrupted job.
"""

import argparse
import os
import pathlib
import signal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

NUM_BYTES = 256


class NextByte(Dataset):
    """All sequences of `context` consecutive bytes of a file, each with the byte that follows it."""

    def __init__(self, path, context):
        self.text = torch.tensor(list(pathlib.Path(path).read_bytes()))
        self.context = context

    def __len__(self):
        return len(self.text) - self.context

    def __getitem__(self, i):
        return self.text[i : i + self.context], self.text[i + self.context]


class Model(nn.Module):
    def __init__(self, context, width=32, hidden=128):
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        self.hidden = nn.Linear(context * width, hidden)
        self.head = nn.Linear(hidden, NUM_BYTES)

    def forward(self, inputs):
        return self.head(torch.tanh(self.hidden(self.embedding(inputs).flatten(1))))


class Trainer:
    def __init__(self, args, device):
        self.args = args
        self.device = device
        dataset = NextByte(args.data, args.context)
        self.sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed, drop_last=True)
        self.loader = DataLoader(dataset, batch_size=args.batch_size, sampler=self.sampler, drop_last=True)

        torch.manual_seed(args.seed)
        model = Model(args.context).to(device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.epochs_done = 0
        if os.path.exists(args.snapshot):
            self.resume(model)
        self.model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    def resume(self, model):
        snapshot = torch.load(self.args.snapshot, map_location=self.device)
        model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epochs_done = snapshot["epochs_done"]
        say(f"resumed from {self.args.snapshot} after epoch {self.epochs_done}")

    def save(self):
        """Replaces the snapshot atomically: readers see the old one or the new one, even after a crash."""
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_done": self.epochs_done,
        }
        unfinished = self.args.snapshot + ".unfinished"
        with open(unfinished, "wb") as file:
            torch.save(snapshot, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.args.snapshot)

    def run_epoch(self):
        """Trains for one epoch and returns the mean loss over all batches of all ranks."""
        self.sampler.set_epoch(self.epochs_done)  # each epoch has its own order, which a restart does not change
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for inputs, targets in self.loader:
            loss = F.cross_entropy(self.model(inputs.to(self.device)), targets.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        return total.item() / (len(self.loader) * dist.get_world_size())

    def run(self):
        began_at = self.epochs_done
        while self.epochs_done < self.args.epochs:
            loss = self.run_epoch()
            self.epochs_done += 1
            say(f"epoch {self.epochs_done} loss {loss!r}")
            if dist.get_rank() == 0:
                self.save()
            dist.barrier()  # no rank continues before the snapshot is saved
            if self.args.crash_after == self.epochs_done and began_at == 0 and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=pathlib.Path(__file__).with_name("text.txt"), help="the file to train on")
    parser.add_argument("--snapshot", default="snapshot.pt", help="path of the snapshot, on storage shared by all nodes")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--context", type=int, default=8, help="bytes of context per prediction")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--crash-after", type=int, metavar="EPOCH",
                        help="the last rank kills itself after the snapshot of this epoch, unless the run was resumed "
                             "(demonstrates a restart)")
    args = parser.parse_args()

    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    Trainer(args, device).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
