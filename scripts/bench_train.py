#!/usr/bin/env python
"""How fast each model trains here: one table of real tokens a second, memory and start-up time.

    scripts/bench_train.py data=multi30k_en_de data.dir=/path/to/multi30k
    scripts/bench_train.py --models transformer --precisions 32-true --tokens 1500 4096

Runs the public command, `translate train`, once per row in a process of its own, one after the
other, and reads what that run logged. Tokens are source and target tokens that are not padding,
</s> included, over wall time with data loading; the figure is the median of the reports after the
first. Keep the machine idle meanwhile. Further arguments are overrides of every run.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EVERY = 10  # steps between two reports


def main() -> None:
    """Train a little of everything asked for, and print a row each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=["transformer", "rnn_luong", "rnn_bahdanau", "rnn_none"]
    )
    parser.add_argument("--precisions", nargs="+", default=["32-true", "bf16-mixed"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096], help="a batch, each side")
    parser.add_argument("--steps", type=int, default=60)
    options, overrides = parser.parse_known_args()
    if options.steps < 2 * EVERY:
        parser.error(f"--steps {options.steps}: at least {2 * EVERY}, the first {EVERY} warm up")
    print("| model | precision | tokens a batch | tokens/s | ten steps after s | peak MB |")
    print("|---|---|---|---|---|---|")
    for model in options.models:
        for precision in options.precisions:
            for tokens in options.tokens:
                row = measure(model, precision, tokens, options.steps, overrides)
                print(f"| {model} | {precision} | {tokens} | {row} |", flush=True)


def measure(model: str, precision: str, tokens: int, steps: int, overrides: list[str]) -> str:
    """One short run: its speed, the time to its tenth step, its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            sys.executable, "-m", "translate", "train", f"run={run}", *overrides,
            f"model={model}", f"trainer.precision={precision}", f"data.tokens_per_batch={tokens}",
            f"trainer.max_steps={steps}", f"trainer.log_every={EVERY}",
            f"trainer.validate_every={steps}", "trainer.validation_sentences=1",
            "trainer.samples=0",
        ]  # fmt: skip
        started = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        first_report = None
        said = []
        for line in process.stderr:
            said.append(line)
            if first_report is None and line.startswith(f"step {EVERY}/"):
                first_report = time.monotonic() - started
        _, status, usage = os.wait4(process.pid, 0)  # its own peak; getrusage knows the highest
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or first_report is None:
            sys.exit("".join(said[-10:]) or f"no report from: {' '.join(command)}")
        with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
            speeds = [float(row["tokens_per_second"] or 0) for row in csv.DictReader(file)]
    speeds = [speed for speed in speeds if speed][1:]
    peak = usage.ru_maxrss / 1024  # kilobytes on Linux
    return f"{statistics.median(speeds):,.0f} | {first_report:.1f} | {peak:,.0f}"


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
