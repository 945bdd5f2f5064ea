"""Runs the torchrun of this interpreter's PyTorch, even if PyTorch's own script fails at startup.

PyTorch 1.13 looks up the value of --redirects and --tee by iterating over an enum.Flag. Since Python 3.11
that iteration omits the member 0, which is the default, so Debian 12's torchrun fails with an AttributeError.
"""

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main


def read_streams(text):
    """Parses `3` (for all ranks) or `0:1,2:3` (for some ranks)."""
    if ":" not in text:
        return Std(int(text))
    ranks = (item.split(":") for item in text.split(","))
    return {int(rank): Std(int(streams)) for rank, streams in ranks}


if Std.from_str("0") is None:
    Std.from_str = staticmethod(read_streams)

if __name__ == "__main__":
    main()
