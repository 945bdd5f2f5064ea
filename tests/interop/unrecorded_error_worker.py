"""Fails with an exception that PyTorch does not record: no decorator, no process group."""

import os

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        raise ValueError("nobody has asked for this to be recorded")
