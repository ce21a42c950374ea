#!/usr/bin/env python
r"""How fast each model trains here: real tokens a second, memory, start-up; peers beside, if given.

    scripts/bench_train.py data=multi30k_en_de data.dir=/path/to/multi30k
    scripts/bench_train.py --models transformer --precisions 32-true --tokens 1500 4096
    scripts/bench_train.py --models transformer --rounds 2 --peer 'fairseq=/path/train_speed.sh tf'
    scripts/bench_train.py --models transformer --variant 'compiled=trainer.compile=true' \
      --variant 'end to end=trainer.packing=on'

Runs the public command, `translate train`, twice per row and round, each time in a process of its
own: for one step, which tells the start, and for all of them. The corpus is prepared beforehand.
Peers take turns with ours. A peer is any command whose last line is JSON with tok_per_s (and, where
it knows them, peak_rss_mb and start_to_first_step_end_s). Tokens are those of the source and those
of the target with </s>, no padding, over wall time with data loading; the figure is the median of
the reports after the first, and of the rounds. MB is the peak of the process's own memory, without
a GPU's. A variant is a row more for each, with overrides of its own. The share of the limit is that
of the matrix products measured below the table, at six operations a weight and token (Kaplan et al.
2020, table 1: attention over the other words comes on top). Keep the machine idle meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import multiprocessing
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from options import begin, composed, positive, quoted
from peers import figures_of, named_command

EVERY = 10  # steps between two reports
COLUMNS = [
    "model", "precision", "tokens a batch", "tokens/s", "× fastest peer", "steps/s",
    "share of the limit", "first step, s", "MB",
]  # fmt: skip


class Measured(NamedTuple):
    """One run, or the medians of several; what is not known is not a number."""

    tokens: float  # a second
    start: float  # seconds from the command to its first step
    peak: float  # MB
    steps: float = math.nan  # a second
    products: float = math.nan  # GFLOP/s of products with weights


def main() -> None:
    """Train a little of everything asked for, in turn, and print a row each."""
    options = arguments()
    ours = {
        (f"{model}, {name}" if name else model, precision, tokens): [
            f"model={model}", f"trainer.precision={precision}", f"data.tokens_per_batch={tokens}",
            "trainer.validation_sentences=1", "trainer.samples=0", *options.overrides, *changes,
        ]
        for model, precision, tokens, (name, changes) in itertools.product(
            options.models, options.precisions, options.tokens, [("", []), *options.variant]
        )
    }  # fmt: skip
    prepare_corpora(ours.values())
    rows: dict[tuple[str, str, object], list[Measured]] = {}
    for _ in range(options.rounds):
        for name, command in options.peer:
            rows.setdefault((name, "", ""), []).append(measure_peer(command))
        for row, chosen in ours.items():
            rows.setdefault(row, []).append(measure(options.steps, chosen))
    speeds = {row: median(measured) for row, measured in rows.items()}
    fastest = max(
        (one.tokens for (_, precision, _), one in speeds.items() if not precision), default=math.nan
    )
    limits, limit = matrix_limits()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for (name, precision, tokens), one in speeds.items():
        share = one.products / limits.get(precision.partition("-")[0], math.nan)
        print(
            f"| {name} | {precision} | {tokens} | {one.tokens:,.0f} "
            f"| {shown(one.tokens / fastest, '.2f')} | {shown(one.steps, '.2f')} "
            f"| {shown(share, '.0%')} | {shown(one.start, '.1f')} | {shown(one.peak, ',.0f')} |"
        )
    print(f"\n{limit}")


def arguments() -> argparse.Namespace:
    """What to measure, and the overrides of every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of every run")
    parser.add_argument(
        "--models", nargs="+", default=["transformer", "rnn_luong", "rnn_bahdanau", "rnn_none"]
    )
    parser.add_argument("--precisions", nargs="+", default=["32-true", "bf16-mixed"])
    parser.add_argument(
        "--tokens", nargs="+", type=positive, default=[4096], help="tokens per batch, on each side"
    )
    parser.add_argument("--steps", type=positive, default=60)
    parser.add_argument("--rounds", type=positive, default=1, help="how often to run each, in turn")
    parser.add_argument(
        "--peer", type=named_command, action="append", default=[], metavar="NAME=COMMAND"
    )
    parser.add_argument(
        "--variant", type=variant, action="append", default=[], metavar="NAME=OVERRIDES",
        help="a further row for each model, with these overrides (quoted)",
    )  # fmt: skip
    options = parser.parse_intermixed_args()
    if options.steps < 2 * EVERY:
        parser.error(
            f"--steps {options.steps}: must be at least {2 * EVERY}; the first {EVERY} warm up"
        )
    for names in (options.peer, options.variant):
        if len(dict(names)) < len(names):
            parser.error("give each --peer, and each --variant, a name of its own")
    return options


def variant(text: str) -> tuple[str, list[str]]:
    """Name and overrides of `--variant NAME=OVERRIDES`."""
    name, _, changes = text.partition("=")
    return name, shlex.split(quoted(changes))


def prepare_corpora(runs: Iterable[list[str]]) -> None:
    """Ahead of all runs, or the first would have it in its start; wrong settings are told."""
    from translate.data.corpus import prepare, read_nodes

    configs = [composed(settings) for settings in runs]
    # in another process, for what this one has in memory would count as that of a training
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        for config in configs:
            nodes = read_nodes(config["data"], config["tokenizer"])
            process.submit(prepare, *nodes, cache=Path(config["cache"])).result()


def measure(steps: int, chosen: list[str]) -> Measured:
    """Two runs, one of a single step: the time to the first step, then speed and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        start = train(Path(folder) / "first", 1, 1, chosen).start
        run = Path(folder) / "run"
        result = train(run, steps, EVERY, chosen)
        with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
            speeds = [float(row["tokens_per_second"] or 0) for row in csv.DictReader(file)]
        speed = statistics.median([speed for speed in speeds if speed][1:])
        source, target = tokens_of(run)
        operations = 6 * weights_a_token(run, source, target)
        # our logs count the source's </s>, which other toolkits do not
        counted = 1 - source.count / (source.tokens + target.tokens)
    return result._replace(tokens=speed * counted, start=start, products=speed * operations / 1e9)


def train(run: Path, steps: int, every: int, overrides: list[str]) -> Measured:
    """Train, reporting each `every` steps: when the first report came, memory and steps."""
    command = [
        sys.executable, "-m", "translate", "train", f"run={run}", f"trainer.max_steps={steps}",
        f"trainer.log_every={every}", f"trainer.validate_every={steps}", *overrides,
    ]  # fmt: skip
    started = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    reports: list[tuple[float, int]] = []  # when, and after which step
    with process.stderr:
        for line in process.stderr:
            said.append(line)
            if step := re.match(r"step (\d+)/", line):
                reports.append((time.monotonic(), int(step[1])))
    _, status, usage = os.wait4(process.pid, 0)  # its own peak; getrusage knows the highest
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not reports:
        sys.exit("".join(said[-10:]) or f"no report from: {' '.join(command)}")
    (first, begun), (last, done) = reports[0], reports[-1]
    return Measured(
        tokens=math.nan,
        start=first - started,
        peak=usage.ru_maxrss / 1024,  # kilobytes on Linux
        steps=(done - begun) / (last - first) if done > begun else math.nan,
    )


class Side(NamedTuple):
    """One side of the training text."""

    count: int  # sentences
    tokens: int  # with </s>


def tokens_of(run: Path) -> tuple[Side, Side]:
    """What a run was trained on, source and target."""
    from translate.data.batching import lengths
    from translate.data.corpus import prepare, read_nodes
    from translate.run_folder import configuration

    config = configuration(run)
    corpus = prepare(*read_nodes(config["data"], config["tokenizer"]), cache=Path(config["cache"]))
    source, target = (Side(len(side), int(side.sum())) for side in lengths(corpus.train))
    return source, target


def weights_a_token(run: Path, source: Side, target: Side) -> float:
    """How many weights a token is multiplied with, in the mean over both sides.

    Those of the encoder, and the decoder's for what it reads of the source, meet source tokens; the
    decoder's others and the vocabulary meet target tokens. Embeddings are looked up.
    """
    from translate.inference import bundle

    model = bundle.load(run / "bundle").model
    sizes = {
        name: weight.numel()
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and not re.search(r"embedding|table$|^output", name)
    }
    total = sum(sizes.values())
    read = sum(size for name, size in sizes.items() if re.search(r"^encoder|key_value|W_K", name))
    written = total - read + model.output.weight.numel()
    tokens = source.tokens + target.tokens
    return (read * source.tokens + written * target.tokens) / tokens


def measure_peer(command: str) -> Measured:
    """The figures a peer's own script prints as JSON."""
    return Measured(
        *figures_of(command, ["tok_per_s"], ["start_to_first_step_end_s", "peak_rss_mb"])
    )


def median(row: list[Measured]) -> Measured:
    """Figure by figure."""
    return Measured(*map(statistics.median, zip(*row, strict=True)))


def shown(number: float, form: str) -> str:
    """Nothing where nothing is known."""
    return "" if number != number else format(number, form)  # NaN differs from itself


def matrix_limits() -> tuple[dict[str, float], str]:
    """GFLOP/s of a wide product by precision, and in words; on the GPU where there is one."""
    import torch

    on_gpu = torch.cuda.is_available()
    device, rows, wide = ("cuda", 8192, (8192, 8192)) if on_gpu else ("cpu", 4096, (256, 1024))
    limits = {}
    for name, dtype in (("32", torch.float32), ("bf16", torch.bfloat16)):
        x = torch.randn(rows, wide[0], device=device).to(dtype)
        y = torch.randn(wide, device=device).to(dtype)
        times: list[float] = []
        while len(times) < 40 and sum(times) < 1:  # some processors emulate bf16
            started = time.perf_counter()
            x @ y
            if on_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        limits[name] = 2 * rows * wide[0] * wide[1] / statistics.median(times) / 1e9
    size = f"({rows:,} × {wide[0]:,}) · ({wide[0]:,} × {wide[1]:,})"
    return limits, (
        f"the limit, {size} on {device}, GFLOP/s: {limits['32']:,.0f} float32, "
        f"{limits['bf16']:,.0f} bfloat16"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    begin(main)
