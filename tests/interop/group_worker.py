"""Checks typical operations of PyTorch scripts on process groups and stores, on each of two ranks.

The script uses its launcher only through torch.distributed and the environment. It prints `rank=N passed=NAME`
for each check.
"""

import datetime
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_worker

LONG = datetime.timedelta(seconds=60)


def agent_store():
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LONG)


def launched_elastically():
    """Checks the ways in which scripts detect that torchrun started them."""
    assert dist.is_available() and dist.is_initialized()
    assert dist.is_torchelastic_launched()
    assert (dist.get_rank(), dist.get_world_size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert "LOCAL_RANK" in os.environ
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] in ("True", "False")
    for name in ("RUN_ID", "RESTART_COUNT", "MAX_RESTARTS", "ERROR_FILE"):
        assert f"TORCHELASTIC_{name}" in os.environ, name


def collectives():
    """Returns all tensors that the check used."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    assert total.item() == size * (size + 1) / 2
    gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    mine = torch.tensor([rank])
    dist.all_gather(gathered, mine)
    assert [int(one) for one in gathered] == list(range(size))
    sent = torch.tensor([7 * (rank == 0)])
    dist.broadcast(sent, 0)
    assert sent.item() == 7
    return total, gathered, mine, sent


def broadcast_object_list():
    objects = ["text", {"key": (1, 2)}, None] if dist.get_rank() == 0 else [None] * 3
    dist.broadcast_object_list(objects, src=0)
    assert objects == ["text", {"key": (1, 2)}, None], objects


def all_gather_object():
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, {"rank": dist.get_rank()})
    assert gathered == [{"rank": rank} for rank in range(dist.get_world_size())], gathered


def barrier():
    for _ in range(3):
        dist.barrier()


def monitored_barrier():
    dist.monitored_barrier(timeout=LONG)


def monitored_barrier_names_the_missing_rank():
    group = dist.new_group()  # a separate group, since its barrier fails
    store = agent_store()
    if dist.get_rank() == 0:
        try:
            dist.monitored_barrier(group, timeout=datetime.timedelta(milliseconds=500))
        except RuntimeError as error:
            assert "Rank 1 failed to pass monitoredBarrier" in str(error), error
        else:
            raise AssertionError("the barrier was passed although a rank is missing")
        store.set("rank 0 has timed out", "")
    else:
        store.wait(["rank 0 has timed out"], LONG)


def new_group():
    rank, size = dist.get_rank(), dist.get_world_size()
    alone = [dist.new_group([member]) for member in range(size)]  # every rank must create every group
    together = dist.new_group(list(range(size)), timeout=LONG)
    one = torch.ones(1)
    dist.all_reduce(one, group=alone[rank])
    assert one.item() == 1
    dist.all_reduce(one, group=together)
    assert one.item() == size


def store_client():
    """Connects a separate client to the store at the address in the environment."""
    store = dist.PrefixStore("script", agent_store())
    store.set(f"from {dist.get_rank()}", str(dist.get_rank()))
    assert [store.get(f"from {rank}") for rank in range(dist.get_world_size())] == [b"0", b"1"]


def in_spawned(index, path, expected):
    """Runs in a child of a worker. The child inherits the worker's environment, and joins another group by a file."""
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=index, world_size=2, timeout=LONG)
    total = torch.tensor([expected / 2.0])
    dist.all_reduce(total)
    assert total.item() == expected
    dist.destroy_process_group()


def spawn():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(in_spawned, args=(os.path.join(folder, "store"), 10 + dist.get_rank()), nprocs=2, join=True)


CHECKS = [
    launched_elastically,
    collectives,
    broadcast_object_list,
    all_gather_object,
    barrier,
    monitored_barrier,
    new_group,
    store_client,
    monitored_barrier_names_the_missing_rank,
    spawn,
]


def say(text):
    sys.stdout.write(text + "\n")  # in one call: with python -u, print() writes text and newline separately
    sys.stdout.flush()


def forget_group(store):
    """Removes the keys of a destroyed group from the store, so that the next group does not read stale addresses.

    PyTorch has this race under any launcher: a second group uses the same keys as the first, and a fast rank
    may read the other rank's old address. In versions whose store cannot list keys, the keys contain the
    restart count, so this function changes the restart count instead.
    """
    size = dist.get_world_size()
    dist.destroy_process_group()
    if store.add("have left", 1) == size:
        if hasattr(store, "list_keys"):
            for key in store.list_keys():
                if key.startswith("default_pg"):
                    store.delete_key(key)
        store.set("all have left", "")
    store.wait(["all have left"], LONG)
    if not hasattr(store, "list_keys"):
        os.environ["TORCHELASTIC_RESTART_COUNT"] += "1"


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=LONG)
    rank = dist.get_rank()
    for check in CHECKS:
        check()
        say(f"rank={rank} passed={check.__name__}")
    forget_group(agent_store())
    dist.init_process_group("gloo", init_method="env://", timeout=LONG)
    # PyTorch 2.1 joins a group's threads in destroy_process_group without releasing the GIL. A thread that
    # drops the last reference to a tensor needs the GIL, so the worker hangs under any launcher. These
    # references prevent the hang.
    kept = collectives()
    say(f"rank={rank} passed=a_second_group")
    dist.destroy_process_group()
    del kept
    torch_worker.end()


if __name__ == "__main__":
    main()
