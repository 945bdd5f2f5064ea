"""Reads its local rank from the command line, like scripts for `python -m torch.distributed.launch`."""

import argparse
import os
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", "--local_rank", type=int, required=True)
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    sys.stdout.write(f"local_rank={args.local_rank} env={os.environ['LOCAL_RANK']} rest={args.rest}\n")


if __name__ == "__main__":
    main()
