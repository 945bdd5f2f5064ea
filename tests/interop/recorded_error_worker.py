"""Fails with an exception under PyTorch's @record, which writes the exception to the worker's error file."""

import os

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise RuntimeError("deliberate")


if __name__ == "__main__":
    main()
