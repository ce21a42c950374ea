#!/usr/bin/env python
"""How much of the batches is padding, by their size and that of the pools sorted by length.

    scripts/bench_padding.py experiment=multi30k data.dir=/path/to/multi30k
    scripts/bench_padding.py experiment=demo --tokens 1200 4096 --pools 100 400 1000

Prepares the corpus as `translate train` would, and lays out one epoch of it for each size; nothing
is trained. A figure is the share of padding in all positions of both sides.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from options import begin, composed, positive

from translate.data.corpus import prepare, read_nodes
from translate.data.module import TranslationData
from translate.extras.doctor import padding


def main() -> None:
    """Lay out an epoch for every size asked for, and print a row each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as of translate train")
    parser.add_argument("--tokens", nargs="+", type=positive, default=[1500, 2000, 4096])
    parser.add_argument("--pools", nargs="+", type=positive, help="default: data.pool_batches")
    options = parser.parse_intermixed_args()
    config = composed(options.overrides)
    data = config["data"]
    corpus = prepare(*read_nodes(data, config["tokenizer"]), cache=Path(config["cache"]))
    pools = options.pools or [data["pool_batches"]]
    print(f"| tokens a batch | {' | '.join(f'pools of {pool} batches' for pool in pools)} |")
    print("|---" * (1 + len(pools)) + "|")
    for tokens in options.tokens:
        shares = []
        for pool in pools:
            feed = TranslationData(
                corpus, max_length=data["max_length"], tokens_per_batch=tokens,
                pool_batches=pool, workers=0, sampling=False, guided=False, seed=config["seed"],
            )  # fmt: skip
            shares.append(f"{padding(feed.batches()):.2%}")
        print(f"| {tokens:,} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    begin(main)
