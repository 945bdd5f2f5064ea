"""Checks that the agent hosts no store, and runs torch_worker, whose rank 0 must then host the store."""

import os

import torch_worker

if __name__ == "__main__":
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    torch_worker.main()
