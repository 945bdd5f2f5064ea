"""Like torch_worker, but all keys of its group have a prefix, so that several groups can share one store.

usage: prefixed_worker.py PREFIX
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist
import torch_worker


def main():
    torch.set_num_threads(1)
    world_size = int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                          timeout=datetime.timedelta(seconds=60))
    dist.init_process_group("gloo", store=dist.PrefixStore(sys.argv[1], store), rank=int(os.environ["RANK"]), world_size=world_size)
    torch_worker.work()


if __name__ == "__main__":
    main()
