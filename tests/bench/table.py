"""The table that the benchmarks print, and interleaved runs of measurements."""

import sys

import measure


class Table:
    """Prints rows as they become available; records whether all targets were met."""

    def __init__(self):
        self.all_met = True
        print(f"{'what':<58} {'ddprun':>10} {'target':>12} {'':>6}  compared with")

    def row(self, what, value, limit, unit, compared, at_least=False):
        """Prints a row. `limit` is the maximum for `value`, or the minimum if `at_least` is true."""
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
    """Prints a progress line over the previous progress line. The next row of the table overwrites it."""
    print(f"\r  {text:<70}\r", end="", file=sys.stderr, flush=True)


def interleaved(runs, measured):
    """Calls the functions in `measured` in turn, each `runs` times; returns {name: values}."""
    values = {name: [] for name in measured}
    for run in range(runs):
        for name, function in measured.items():
            progress(f"run {run + 1}/{runs}: {name}")
            values[name].append(function())
    progress("")
    return values


def medians(runs, measured):
    return {name: measure.median(v) for name, v in interleaved(runs, measured).items()}
