#!/usr/bin/env python
"""Measure what markup costs, and where tags are put.

    python scripts/markup.py RUN --table test.en-de.tsv.gz --lines 2000  # source TAB target
    python scripts/markup.py RUN --fuzz 10000

With a table, the sentences whose two sides have the same tags are taken. The model reads each
reference without its tags, and they are put back into it: the share of tags that stand where the
reference has them, before and behind the same words, says how good the places are. Then the
sentences are translated with their tags, and without: chrF of the text between the tags.

With --fuzz, so many made-up lines of well-formed XML are translated, and those counted whose
translation is not well-formed or has other tags.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import torch
from sacrebleu.metrics.chrf import CHRF

import translate
from translate.inference.inline import take_out
from translate.inference.lines import Protection
from translate.inference.markup import well_formed
from translate.inference.translation import NOTHING
from translate.inference.translator import Translator

TAGS = Protection(["tag"])
WORDS = ("the dog", "sleeps .", "!", "1,000", "😀", "&amp;", "&lt;", "&#160;", "&quot;", ">", "{x}")
NAMES, ATTRIBUTES = ("a", "b", "i", "br", "x-y"), ("", ' t="a > b"', " t='&quot;'")


def pairs(path: Path, most: int) -> Iterator[tuple[str, str]]:
    """Yield the first pairs whose sides have the same tags, and some."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            source, target = line.rstrip("\n").split("\t")[:2]
            if tags(source) and tags(source) == tags(target):
                yield source, target
                most -= 1
            if not most:
                return


def tags(text: str) -> list[str]:
    return sorted(item for item in TAGS.items(text) if item[0] == "<")


def without_tags(text: str) -> str:
    return " ".join(take_out(text, TAGS.spans(text)).text.split())


def places(text: str) -> Counter[tuple[str, str, str]]:
    """Count each tag with the letters before and behind it, white space apart."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for start, end in TAGS.spans(text):
        around = (TAGS.without(text[:start]), TAGS.without(text[end:]))
        before, behind = ("".join(side.replace(" | ", "").split()) for side in around)
        counted[text[start:end], before, behind] += 1
    return counted


def measure(translator: Translator, chosen: Sequence[tuple[str, str]]) -> None:
    """Print the share of tags that are placed as in the references, and chrF with and without."""
    bare = [take_out(source, TAGS.spans(source)) for source, _ in chosen]
    forced = [[replace(NOTHING, text=without_tags(target))] for _, target in chosen]
    placed = [best.text for best, *_ in translator._placement(bare, forced)]
    right = total = 0
    for text, (_, target) in zip(placed, chosen, strict=True):
        wanted = places(target)
        right += (wanted & places(text)).total()
        total += wanted.total()
    print(f"sentences with tags: {len(chosen):,}; tags: {total:,}")
    print(f"placed as in the reference, which is forced: {100 * right / total:.1f} %")
    references = [[without_tags(target) for _, target in chosen]]
    for name, sources in (
        ("with tags", [source for source, _ in chosen]),
        ("without", [text.text for text in bare]),
    ):
        begun = time.perf_counter()
        texts = list(map(without_tags, translator.translate(sources)))
        seconds = time.perf_counter() - begun
        chrf = CHRF().corpus_score(texts, references).score
        print(f"chrF of the text between them, translated {name}: {chrf:.1f} ({seconds:.0f} s)")


def made_up(random: Random, depth: int = 3) -> str:
    """Return a line of well-formed XML."""
    parts = []
    for _ in range(random.randint(1, 4)):
        if depth and random.random() < 0.4:
            name, attributes = random.choice(NAMES), random.choice(ATTRIBUTES)
            inner = made_up(random, depth - 1)
            parts.append(random.choice((f"<{name}{attributes}>{inner}</{name}>", f"<{name}/>")))
        else:
            parts.append(" ".join(random.choices(WORDS, k=random.randint(0, 4))))
    return random.choice(("", " ")).join(parts)


def fuzz(translator: Translator, count: int) -> None:
    """Print how many translations of made-up lines are well-formed and have all tags."""
    random = Random(1)
    lines = [made_up(random) for _ in range(count)]
    wrong = 0
    for line, text in zip(lines, translator.translate(lines), strict=True):
        if not well_formed(text) or tags(text) != tags(line):
            wrong += 1
            print(f"{line}\n  {text}")
    print(f"well-formed, with all tags: {count - wrong:,} of {count:,}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--fuzz", type=int, default=0)
    options = parser.parse_args()
    logging.disable()
    torch.set_num_threads(1)
    search = "greedy" if options.fuzz else None
    translator = translate.load(options.run, device="cpu", search=search)
    if options.fuzz:
        fuzz(translator, options.fuzz)
    if options.table:
        measure(translator, list(pairs(options.table, options.lines)))


if __name__ == "__main__":
    main()
