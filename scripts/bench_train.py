#!/usr/bin/env python
"""How fast each model trains here: real tokens a second, memory, start-up; peers beside, if given.

    scripts/bench_train.py data=multi30k_en_de data.dir=/path/to/multi30k
    scripts/bench_train.py --models transformer --precisions 32-true --tokens 1500 4096
    scripts/bench_train.py --models transformer --rounds 2 --peer 'fairseq=/path/train_speed.sh tf'

Runs the public command, `translate train`, twice per row and round, each time in a process of its
own: for one step, which tells the start, and for all of them. Peers take turns with ours. A peer is
any command whose last line is JSON with tok_per_s (and, where it knows them, peak_rss_mb and
start_to_first_step_end_s). Tokens are those of the source and those of the target with </s>, no
padding, over wall time with data loading; the figure is the median of the reports after the first,
and of the rounds. Keep the machine idle meanwhile. Further arguments are overrides of every run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

EVERY = 10  # steps between two reports


class Measured(NamedTuple):
    """One run, or the medians of several."""

    tokens: float  # a second
    start: float  # seconds from the command to its first step; NaN: not known
    peak: float  # MB; NaN: not known


def main() -> None:
    """Train a little of everything asked for, in turn, and print a row each."""
    options, overrides = arguments()
    rows: dict[str, list[Measured]] = {}
    for _ in range(options.rounds):
        for peer in options.peer:
            name, _, command = peer.partition("=")
            rows.setdefault(f"{name} | |", []).append(measure_peer(command))
        for model in options.models:
            for precision in options.precisions:
                for tokens in options.tokens:
                    row = rows.setdefault(f"{model} | {precision} | {tokens}", [])
                    row.append(measure(model, precision, tokens, options.steps, overrides))
    fastest = max(
        (median(rows[key]).tokens for key in rows if key.endswith("| |")), default=float("nan")
    )
    print("| model | precision | tokens a batch | tokens/s | × fastest peer | first step, s | MB |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        tokens, start, peak = median(row)
        print(
            f"| {name} | {tokens:,.0f} | {shown(tokens / fastest, '.2f')} "
            f"| {shown(start, '.1f')} | {shown(peak, ',.0f')} |"
        )
    print("\nmatrix products of this size, GFLOP/s: " + matrix_limits())


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """What to measure, and the overrides of every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=["transformer", "rnn_luong", "rnn_bahdanau", "rnn_none"]
    )
    parser.add_argument("--precisions", nargs="+", default=["32-true", "bf16-mixed"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096], help="a batch, each side")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1, help="each run so often, in turn")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    options, overrides = parser.parse_known_args()
    if options.steps < 2 * EVERY:
        parser.error(f"--steps {options.steps}: at least {2 * EVERY}, the first {EVERY} warm up")
    return options, overrides


def measure(model: str, precision: str, tokens: int, steps: int, overrides: list[str]) -> Measured:
    """Two runs, one of a single step: the time to the first step, then speed and peak memory."""
    chosen = [
        f"model={model}", f"trainer.precision={precision}", f"data.tokens_per_batch={tokens}",
        "trainer.validation_sentences=1", "trainer.samples=0", *overrides,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start, _ = train(Path(folder) / "first", 1, 1, chosen)
        run = Path(folder) / "run"
        _, peak = train(run, steps, EVERY, chosen)
        with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
            speeds = [float(row["tokens_per_second"] or 0) for row in csv.DictReader(file)]
        speed = statistics.median([speed for speed in speeds if speed][1:])
        counted = share_without_source_ends(run)
    return Measured(speed * counted, start, peak)


def train(run: Path, steps: int, every: int, overrides: list[str]) -> tuple[float, float]:
    """Train, reporting each `every` steps: seconds to the first report, peak memory in MB."""
    command = [
        sys.executable, "-m", "translate", "train", f"run={run}", f"trainer.max_steps={steps}",
        f"trainer.log_every={every}", f"trainer.validate_every={steps}", *overrides,
    ]  # fmt: skip
    started = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = None
    said = []
    with process.stderr:
        for line in process.stderr:
            said.append(line)
            if first is None and line.startswith("step "):
                first = time.monotonic() - started
    _, status, usage = os.wait4(process.pid, 0)  # its own peak; getrusage knows the highest
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or first is None:
        sys.exit("".join(said[-10:]) or f"no report from: {' '.join(command)}")
    return first, usage.ru_maxrss / 1024  # kilobytes on Linux


def share_without_source_ends(run: Path) -> float:
    """Our logs count the source's </s>, which other toolkits do not."""
    from translate.cli.stored import training_config
    from translate.data.corpus import prepare
    from translate.data.module import lengths

    config = training_config(run)
    corpus = prepare(config["data"], config["tokenizer"], cache=Path(config["cache"]))
    source, target = lengths(corpus.train)
    return float(1 - len(source) / (source.sum() + target.sum()))


def measure_peer(command: str) -> Measured:
    """The figures a peer's own script prints as JSON."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout.splitlines()[-1])
        tokens = float(said["tok_per_s"])
    except (IndexError, KeyError, ValueError):
        sys.exit(f"no tok_per_s from: {command}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    start, peak = (
        float(said.get(key, "nan")) for key in ("start_to_first_step_end_s", "peak_rss_mb")
    )
    return Measured(tokens, start, peak)


def median(row: list[Measured]) -> Measured:
    """Figure by figure."""
    return Measured(*map(statistics.median, zip(*row, strict=True)))


def shown(number: float, form: str) -> str:
    """Nothing where nothing is known."""
    return "" if number != number else format(number, form)  # NaN differs from itself


def matrix_limits() -> str:
    """What the machine multiplies (4,096 × 256) · (256 × 1,024) at, forwards and in both types."""
    import torch

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        x, y = torch.randn(4096, 256).to(dtype), torch.randn(256, 1024).to(dtype)
        times = []
        for _ in range(40):
            started = time.perf_counter()
            x @ y
            times.append(time.perf_counter() - started)
        found.append(f"{2 * 4096 * 256 * 1024 / statistics.median(times) / 1e9:,.0f} {dtype}")
    return ", ".join(found).replace("torch.", "")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
