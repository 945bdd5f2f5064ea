"""torch_worker, in which rank 0 hosts the store."""

import os

import torch_worker

if __name__ == "__main__":
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    torch_worker.main()
