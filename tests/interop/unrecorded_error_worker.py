"""Fails with an exception that nothing records: no decorator, no process group."""

import os

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        raise ValueError("nobody has asked for this to be recorded")
