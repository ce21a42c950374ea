"""Lines that stand beside the wrong line: shifted blocks, swapped neighbours, strays.

The corpus' own lexicon says how well a source explains a target. Each half of the corpus is judged
with the lexicon of the other half, so that no wrong pair vouches for itself. What is usual is read
from the corpus: between the median of its pairs and that of pairs drawn at random.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from translate.extras.doctor.checks import Finding, Splits, drawn, lines_of, number_of
from translate.extras.lexicon import Ids, Lexicon, Words
from translate.wording import counted

log = logging.getLogger(__name__)

FEWEST = 200  # pairs, to learn a lexicon from
MOST = 50_000  # training pairs that it is learned from
REACH = 5  # lines up and down, where a lost partner is looked for
BLOCK = 3  # lines that go astray together, with …
GAP = 10  # … at most so many in a row between them that say nothing, and never half of all
TOGETHER = 5_000  # lines that are weighed at once: memory goes by their pairs of words
INFORMED = 0.5  # nats by which pairs must be likelier than random ones, to judge by
TELLING = 4  # known words a side, to call a line a stray
STRAY = 0.1  # of the way from random pairs to usual ones


def misaligned(splits: Splits) -> Iterator[Finding]:
    """Shifted blocks, swapped neighbours, and lines that no neighbour explains."""
    judge = _Judge(splits)
    if judge.doubt:
        log.info("not looking for misaligned lines: %s", judge.doubt)
        return
    shifted, swapped, strays = [], [], []
    for split, lines in splits.items():
        offsets = judge.offsets(split)
        blocks = _blocks(offsets)
        inside = {index for start, stop, _ in blocks for index in range(start, stop)}
        shifted += [
            (split, start, f"lines {number_of(lines, start)}–{number_of(lines, stop - 1)}: "
             f"translated {counted(abs(k), 'line')} {'below' if k > 0 else 'above'}")
            for start, stop, k in blocks
        ]  # fmt: skip
        pairs = [
            index for index in range(len(offsets) - 1)
            if offsets[index] == 1 and offsets[index + 1] == -1 and index not in inside
        ]  # fmt: skip
        swapped += [(split, index, f"with line {number_of(lines, index + 1)}") for index in pairs]
        inside |= {index + step for index in pairs for step in (0, 1)}
        strays += [
            (split, index, "no word seems to translate another")
            for index in judge.strays(split)
            if index not in inside
        ]
    advice = "a line is missing or extra at the start of the block: fix the files"
    yield Finding("shifted", "translations shifted against the source", advice,
                  lines_of(splits, shifted))  # fmt: skip
    advice = "are they? then exchange the two lines on one side"
    yield Finding("swapped", "neighbours that may be swapped", advice, lines_of(splits, swapped))
    advice = "are they? remove only those that are not translations"
    yield Finding("stray", "perhaps no translations", advice, lines_of(splits, strays))


class _Judge:
    """The evidence for pairs of lines, by the lexicon of the half that they are not in."""

    def __init__(self, splits: Splits) -> None:
        train = splits["train"]
        learned = drawn(train, MOST)
        source, target = (
            Words(getattr(train[index], side) for index in learned) for side in ("source", "target")
        )
        self.lexicon_of = partial(Lexicon, num_sources=len(source), num_targets=len(target))
        self.ids: dict[str, tuple[list[Ids], list[Ids]]] = {
            split: (
                [source.encode(pair.source) for pair in pairs],
                [target.encode(pair.target) for pair in pairs],
            )
            for split, pairs in splits.items()
        }
        self.doubt = self._weigh(learned)  # why it cannot judge; nothing where it can

    def _weigh(self, learned: Sequence[int]) -> str:
        """Learn from some training pairs what is usual; the reason where that tells nothing."""
        if len(learned) < FEWEST:
            return f"{counted(len(learned), 'training pair')}, and at least {FEWEST} are needed"
        self.lexicons = [
            self.lexicon_of(*([side[i] for i in half] for side in self.ids["train"]))
            for half in ([i for i in learned if i % 2 == parity] for parity in (0, 1))
        ]
        far = len(self.ids["train"][0]) // 2
        usual, random = (self._evidence("train", offset) for offset in (0, far))
        if np.isnan(usual).all() or np.isnan(random).all():
            return "no words recur on both sides (words are split at spaces and punctuation)"
        self.usual, self.random = float(np.nanmedian(usual)), float(np.nanmedian(random))
        self.middle = (self.usual + self.random) / 2
        if self.usual - self.random <= INFORMED:
            return "the words of a line say too little about those of its translation"
        return ""

    def _evidence(self, split: str, offset: int, rows: Ids | None = None) -> Float[np.ndarray, "_"]:
        """Return the evidence of sources (all) for the target `offset` lines below, cyclically.

        Of the other lines it is nan.
        """
        sources, targets = self.ids[split]
        count = len(sources)
        rows = np.arange(count) if rows is None else rows
        evidence = np.full(count, np.nan)
        for half in (0, 1):
            chosen = rows[rows % 2 == half]
            for start in range(0, len(chosen), TOGETHER):
                block = chosen[start : start + TOGETHER]
                evidence[block] = self.lexicons[1 - half].evidence(
                    [sources[i] for i in block], [targets[(i + offset) % count] for i in block]
                )
        return evidence

    def offsets(self, split: str) -> list[int]:
        """Return each line's distance to its translation: 0 (or unknown), 1 for the next line.

        Another place is believed only if its own is unlikely and the other one is likely.
        """
        best = self._evidence(split, 0)
        place = np.zeros(len(best), dtype=int)
        doubtful = np.flatnonzero(best < self.middle)
        for offset in [k for distance in range(1, REACH + 1) for k in (distance, -distance)]:
            there = (doubtful + offset >= 0) & (doubtful + offset < len(best))
            there_evidence = self._evidence(split, offset, doubtful[there])
            better = (there_evidence > best) & (there_evidence > self.middle)
            best, place = np.where(better, there_evidence, best), np.where(better, offset, place)
        return place.tolist()

    def strays(self, split: str) -> list[int]:
        """Lines of some length that are explained no better than at random."""
        sources, targets = self.ids[split]
        limit = self.random + STRAY * (self.usual - self.random)
        return [
            index
            for index, evidence in enumerate(self._evidence(split, 0))
            if evidence < limit and min(len(sources[index]), len(targets[index])) >= TELLING
        ]


def _blocks(offsets: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of lines with one offset as (start, stop, offset); a few odd lines do not end a run."""
    blocks = []
    for offset in sorted(set(offsets) - {0}):
        runs: list[list[int]] = []
        for index in (i for i, k in enumerate(offsets) if k == offset):
            if runs and index - runs[-1][-1] <= GAP:
                runs[-1].append(index)
            else:
                runs.append([index])
        blocks += [
            (run[0], run[-1] + 1, offset)
            for run in runs
            if len(run) >= max(BLOCK, (run[-1] + 1 - run[0]) / 2)
        ]
    return sorted(blocks)
