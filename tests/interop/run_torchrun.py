"""torchrun of this interpreter's PyTorch, also where its package cannot start it.

PyTorch 1.13 looks up the value of --redirects and --tee among the members of an enum.Flag. From Python 3.11 on that iteration
leaves out the member 0, which is their default, so that Debian 12's torchrun ends with an AttributeError before it has begun.
"""

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main


def read_streams(text):
    """`3` is for all ranks, `0:1,2:3` for some."""
    if ":" not in text:
        return Std(int(text))
    ranks = (item.split(":") for item in text.split(","))
    return {int(rank): Std(int(streams)) for rank, streams in ranks}


if Std.from_str("0") is None:
    Std.from_str = staticmethod(read_streams)

if __name__ == "__main__":
    main()
