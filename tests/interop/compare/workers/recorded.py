"""A worker whose last rank raises an exception under PyTorch's @record, which writes error files."""

import os

from torch.distributed.elastic.multiprocessing.errors import record

import train


@record
def main():
    train.main()
    train.wait_for_all()
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        raise ValueError("deliberate")
    train.stay()


if __name__ == "__main__":
    main()
