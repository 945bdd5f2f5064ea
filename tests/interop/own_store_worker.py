"""torch_worker, where rank 0 is to be the server of the store."""

import os

import torch_worker

if __name__ == "__main__":
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    torch_worker.main()
