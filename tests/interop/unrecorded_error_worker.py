"""Fails with an exception that PyTorch does not record, since there is no @record and no process group."""

import os

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        raise ValueError("deliberate and unrecorded")
