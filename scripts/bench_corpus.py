#!/usr/bin/env python
"""Memory and time against the size of a corpus: preparing it, and the first batches of training.

    scripts/bench_corpus.py 100000 1000000

For each size a corpus of made-up sentences is written to a temporary folder, prepared with the
defaults of `translate prepare data=files`, and opened again for 50 batches, the two in processes of
their own. Memory is the peak of what the process holds itself, without the pages of mapped files,
which the system may take back at any time; beside it stands the peak with them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from options import peak_memory, positive

from translate.data.corpus import prepare, read_nodes
from translate.data.module import TranslationData

WORDS, MOST = 30_000, 10_000  # of each language; pairs written at a time
BATCHES = 50


def write_corpus(folder: Path, pairs: int) -> None:
    """Word for word translations, 4 to 24 words of Zipf's frequencies; dev and test are apart."""
    random = np.random.default_rng(1)
    letters = np.array([a + b for a in "bdfgklmnprst" for b in "aeiou"])
    languages = {
        ending: np.array(["".join(letters[random.integers(60, size=random.integers(1, 5))])
                          for _ in range(WORDS)], dtype=object)
        for ending in ("de", "en")
    }  # fmt: skip
    for split, count in (("dev", 1000), ("test", 1000), ("train", pairs)):
        files = {e: (folder / f"{split}.{e}").open("w", encoding="utf-8") for e in languages}
        for start in range(0, count, MOST):
            lengths = random.integers(4, 25, min(MOST, count - start))
            drawn = np.minimum(random.zipf(1.2, lengths.sum()), WORDS) - 1
            ends = np.cumsum(lengths).tolist()
            for ending, words in languages.items():
                text = words[drawn].tolist()
                files[ending].writelines(  # a number of its own: all pairs are distinct
                    f"{split[:2]}{number} {' '.join(text[first:last])}\n"
                    for number, (first, last) in enumerate(pairwise([0, *ends]), start)
                )
        for file in files.values():
            file.close()


def nodes(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from translate.compose import config_dir

    with initialize_config_dir(str(config_dir()), version_base=None):
        config: Any = OmegaConf.to_container(
            compose("prepare", ["data=files", f"data.dir='{folder}'", "data.source=de",
                                "data.target=en"])
        )  # fmt: skip
    return config["data"], config["tokenizer"]


def prepared(folder: Path) -> dict[str, float]:
    start = time.monotonic()
    prepare(*read_nodes(*nodes(folder)), cache=folder / "cache")
    return {"seconds": time.monotonic() - start}


def fed(folder: Path) -> dict[str, float]:
    data, tokenizer = nodes(folder)
    start = time.monotonic()
    corpus = prepare(*read_nodes(data, tokenizer), cache=folder / "cache")
    feed = TranslationData(
        corpus, max_length=data["max_length"], tokens_per_batch=data["tokens_per_batch"],
        pool_batches=data["pool_batches"], workers=0, sampling=False, guided=False, seed=1,
    )  # fmt: skip
    batches = iter(feed.train_dataloader())
    next(batches)
    first = time.monotonic() - start
    assert sum(1 for _ in islice(batches, BATCHES - 1)) == BATCHES - 1
    return {"seconds": first}


def measured(work: Callable[[Path], dict[str, float]], folder: Path, results: Connection) -> None:
    """What `work` says, and the peak of memory in MB: the process's own, and with mapped files."""
    own = [0.0]

    def watch() -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            line = next(row for row in status.splitlines() if row.startswith("RssAnon"))
            own[0] = max(own[0], int(line.split()[1]) / 1024)
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    figures = work(folder)
    results.send(figures | {"own": own[0], "mapped": peak_memory() / 2**20})


def apart(work: Callable[[Path], dict[str, float]], folder: Path) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    results, theirs = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(work, folder, theirs))
    process.start()
    theirs.close()  # the other end is the child's alone: what ends it, ends the wait
    try:
        figures: dict[str, float] = results.recv()
    except EOFError:
        process.join()
        sys.exit(f"{work.__name__} ended with status {process.exitcode} (-9: out of memory?)")
    process.join()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=positive, nargs="+")
    parser.add_argument("--folder", type=Path, help="for the corpora; default: a temporary one")
    options = parser.parse_args()
    if options.folder and not options.folder.is_dir():
        parser.error(f"--folder {options.folder}: there is no such folder")
    print("| pairs | prepare: s | own MB | with files | first batch: s | own MB | with files |")
    print("|---|---|---|---|---|---|---|")
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            write_corpus(folder, pairs)
            row = [f"{pairs:,}"]
            for work in (prepared, fed):
                cost = apart(work, folder)
                row += [f"{cost['seconds']:.1f}", f"{cost['own']:.0f}", f"{cost['mapped']:.0f}"]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
