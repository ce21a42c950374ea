#!/usr/bin/env python
"""How fast training and `translate text` are beside busy processes, by the number of threads.

    scripts/bench_neighbours.py runs/demo spanish.txt experiment=demo trainer.threads=follow
    scripts/bench_neighbours.py runs/demo spanish.txt data=toy --neighbours 0 1 --steps 20

Each neighbour is a process that counts, and keeps a core busy. Threads are those of OMP_NUM_THREADS
(of text, as many workers); `default` sets none, as people do. Training is the median of its reports
after the first, in tokens/s; text is lines/s of the whole file, with the start. All take turns in
every round, and a figure is the best of its rounds. Keep the machine idle otherwise.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from options import begin, composed, positive, whole

EVERY = 5  # steps between two reports


def main() -> None:
    """Measure every combination, in turn, and print a row each."""
    options = arguments()
    composed(options.overrides)  # wrong settings are told before the work
    lines = len(options.input.read_bytes().splitlines())
    best: dict[tuple[int, str], tuple[float, float]] = {}
    for _ in range(options.rounds):
        for count, threads in itertools.product(options.neighbours, options.threads):
            with neighbours(count):
                trained = training_speed(threads, options.steps, options.overrides)
                translated = lines / seconds_of_text(threads, options.run, options.input)
            before = best.get((count, threads), (0.0, 0.0))
            best[count, threads] = max(before[0], trained), max(before[1], translated)
    print("| neighbours | threads | training, tokens/s | text, lines/s |")
    print("|---|---|---|---|")
    for (count, threads), (trained, translated) in best.items():
        print(f"| {count} | {threads} | {trained:,.0f} | {translated:,.1f} |")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a trained run, for the text")
    parser.add_argument("input", type=Path, help="a file to translate")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of translate train")
    parser.add_argument("--neighbours", nargs="+", type=whole, default=[0, 1, 2])
    parser.add_argument("--threads", nargs="+", default=["1", "2", "default"])
    parser.add_argument("--steps", type=positive, default=100)
    parser.add_argument("--rounds", type=positive, default=2)
    options = parser.parse_intermixed_args()
    if options.steps < 2 * EVERY:
        parser.error(f"--steps {options.steps}: must be at least {2 * EVERY}")
    for threads in options.threads:
        if threads != "default" and not threads.isdecimal():
            parser.error(f"--threads {threads}: a number, or default")
    if not options.input.is_file():
        parser.error(f"{options.input} is no file")
    return options


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def training_speed(threads: str, steps: int, overrides: list[str]) -> float:
    """Return the tokens a second of a short training."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            f"trainer.max_steps={steps}", f"trainer.validate_every={steps}",
            f"trainer.log_every={EVERY}", "trainer.validation_sentences=1",
        ]  # fmt: skip
        translate(threads, ["train", f"run={folder}/run", *settings, *overrides])
        with Path(folder, "run", "metrics.csv").open(newline="", encoding="utf-8") as file:
            speeds = [row.get("tokens_per_second") for row in csv.DictReader(file)]
    return statistics.median([float(speed) for speed in speeds if speed][1:])


def seconds_of_text(threads: str, run: Path, source: Path) -> float:
    """Return how long `translate text` takes for a file."""
    workers = [] if threads == "default" else [f"workers={threads}"]
    started = time.monotonic()
    translate(threads, ["text", f"run={run}", f"input={source}", "device=cpu", *workers])
    return time.monotonic() - started


def translate(threads: str, arguments: list[str]) -> None:
    """Run the program; exit with what it said where it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    if threads != "default":
        environment["OMP_NUM_THREADS"] = threads
    command = [sys.executable, "-m", "translate", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr[-1000:] or f"failed: {' '.join(command)}")


if __name__ == "__main__":
    begin(main)
