"""Trains a small byte-level text model with DistributedDataParallel.

    torchrun --nproc-per-node=2 train.py --epochs 5

The script follows the documentation of torchrun and does not depend on the launcher. After every epoch, rank 0 saves a snapshot.
A run that finds a snapshot resumes from it, so with --max-restarts, a job that loses a worker ends with exactly the same losses
as an uninterrupted job.

A launcher that names a file in DDPRUN_NOTICE_FILE creates it when a node is about to be taken away. Then all ranks stop after the
same batch, and rank 0 saves a snapshot within the epoch.
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
        self.notice = os.environ.get("DDPRUN_NOTICE_FILE")
        self.epochs_done = 0
        self.batches_done = 0  # in this epoch
        self.total = 0.0  # of the losses of these batches, of all ranks
        if os.path.exists(args.snapshot):
            self.resume(model)
        self.model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    def resume(self, model):
        snapshot = torch.load(self.args.snapshot, map_location=self.device)
        model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epochs_done = snapshot["epochs_done"]
        # The ranks take turns in the order of samples, so the samples of these batches are the first ones for any number of ranks.
        self.batches_done = snapshot["batches_done"] * snapshot["world_size"] // dist.get_world_size()
        self.total = snapshot["total"]
        batches = f" and {self.batches_done} batches" if self.batches_done else ""
        say(f"resumed from {self.args.snapshot} after epoch {self.epochs_done}{batches}")

    def save(self):
        """Replaces the snapshot atomically: readers see the old one or the new one, even after a crash."""
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_done": self.epochs_done,
            "batches_done": self.batches_done,
            "total": self.total,
            "world_size": dist.get_world_size(),
        }
        unfinished = self.args.snapshot + ".unfinished"
        with open(unfinished, "wb") as file:
            torch.save(snapshot, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.args.snapshot)

    def must_stop(self):
        """Returns whether any rank has the notice. All ranks get the same result, although they see the file at different times."""
        if self.notice is None:
            return False
        seen = torch.tensor(float(os.path.exists(self.notice)), device=self.device)
        dist.all_reduce(seen, dist.ReduceOp.MAX)
        return seen.item() > 0

    def run_epoch(self):
        """Trains until the epoch is done or the ranks must stop. Returns whether it is done."""
        self.sampler.set_epoch(self.epochs_done)  # each epoch has its own order, which a restart does not change
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        first = self.batches_done
        for batch, (inputs, targets) in enumerate(self.loader):
            if batch < first:
                continue
            loss = F.cross_entropy(self.model(inputs.to(self.device)), targets.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            self.batches_done = batch + 1
            if self.batches_done < len(self.loader) and self.must_stop():
                break
        dist.all_reduce(total)
        self.total += total.item()
        return self.batches_done == len(self.loader)

    def run(self):
        began_at = self.epochs_done
        while self.epochs_done < self.args.epochs:
            done = self.run_epoch()
            if done:
                loss = self.total / (len(self.loader) * dist.get_world_size())
                self.epochs_done, self.batches_done, self.total = self.epochs_done + 1, 0, 0.0
                say(f"epoch {self.epochs_done} loss {loss!r}")
            if dist.get_rank() == 0:
                self.save()
            dist.barrier()  # no rank continues before the snapshot is saved
            if not done:
                say(f"stopped after batch {self.batches_done}")
                return
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
