"""The table that the benchmarks print, and how they take their figures."""

import sys

import measure


class Table:
    """Rows as they become known; remembers whether all targets were met."""

    def __init__(self):
        self.all_met = True
        print(f"{'what':<58} {'ddprun':>10} {'target':>12} {'':>6}  compared with")

    def row(self, what, value, limit, unit, compared, at_least=False):
        """`at_least`: `limit` is the least that `value` may be; otherwise the most."""
        met = value >= limit if at_least else value <= limit
        self.all_met &= met
        target = f"{'>=' if at_least else '<='} {limit:.4g} {unit}"
        print(f"{what:<58} {value:>7.4g} {unit:<3}{target:>12} {'pass' if met else 'FAIL':>6}  {compared}", flush=True)

    def missing(self, what, why):
        self.all_met = False
        print(f"{what:<58} not measured: {why}", flush=True)


def ms(seconds):
    return seconds * 1000


def progress(text):
    """Over the last progress; nothing stays of it."""
    print(f"\r  {text:<70}\r", end="", file=sys.stderr, flush=True)


def interleaved(runs, measured):
    """{name: values} of `runs` calls of each function of `measured`, one after the other in turn."""
    values = {name: [] for name in measured}
    for run in range(runs):
        for name, function in measured.items():
            progress(f"run {run + 1}/{runs}: {name}")
            values[name].append(function())
    progress("")
    return values


def medians(runs, measured):
    return {name: measure.median(v) for name, v in interleaved(runs, measured).items()}
