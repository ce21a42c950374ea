#!/usr/bin/env python
"""Measure what a trained model makes of text as people write it.

    python scripts/robustness.py phrases RUN tests/everyday_phrases.tsv
    python scripts/robustness.py signs RUN FILE
    python scripts/robustness.py guard RUN FILE --reference FILE

`phrases` translates what people type first, each with its accepted answers (SOURCE, TAB, answers
with | between them), and counts those that are accepted. `signs` puts a sign, an emoji, a dash or a
word of another script into sentences, and counts those that carry it over, have the rest as without
it, and are neither and not flagged. `guard` counts what the guard finds, and with references the
chrF of the lines that each finding flags beside that of the others: a finding is worth what it
lowers. All is done by `translate text`, with its defaults.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from sacrebleu import sentence_chrf

SIGNS = ["😀", "🚂", "👩‍🚀", "🇪🇸", "♪", "★", "→", "✓", "°C", "№", "₿", "∞", "½", "≠", "☎", "©"]
WORDS = ["Привет", "Ελλάδα", "東京", "naïveté", "Łódź", "Ørsted", "שלום", "မြန်မာ", "Nguyễn", "Þór"]
LINES = 200
POOR = 30  # chrF of a translation that has lost the sense


def texts(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def translated(run: str, lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `translate text format=json` says of the best translation of each line."""
    command = [sys.executable, "-m", "translate", "text", f"run={run}", "format=json"]
    answer = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return [json.loads(line)["translations"][0] for line in answer.stdout.splitlines()]


def same(text: str) -> str:
    """Return a text without case, and without the marks at its end."""
    return re.sub(r"[^\w']+", " ", text.casefold()).strip()


def phrases(run: str, path: Path) -> None:
    """Count the phrases whose translation is among the accepted answers."""
    sources, answers = zip(*(line.split("\t") for line in texts(path)), strict=True)
    right = 0
    for source, accepted, best in zip(sources, answers, translated(run, sources), strict=True):
        known = same(best["text"]) in map(same, accepted.split("|"))
        right += known
        print(" " if known else "✗", source, "→", best["text"])
    print(f"{right} of {len(sources)} are accepted")


def with_sign(sentence: str, sign: str, place: int) -> str:
    """Return a sentence with a sign in front, at its end, before its mark or between its words."""
    words = sentence.split()
    bare = re.fullmatch(r"(.*?)([.!?…]*)", sentence)
    assert bare is not None
    return (
        f"{sign} {sentence}",
        f"{sentence} {sign}",
        f"{bare[1]} {sign}{bare[2]}",
        " ".join([*words[:1], sign, *words[1:]]),
    )[place]


def signs(run: str, path: Path) -> None:
    """Count the sentences that carry a sign over, and have the rest as without it."""
    plain = [line for line in texts(path) if line.strip()][:LINES]
    places = zip(plain, cycle([*SIGNS, *WORDS]), cycle(range(4)), strict=False)
    signed = [(with_sign(line, sign, place), sign) for line, sign, place in places]
    before, after = translated(run, plain), translated(run, [line for line, _ in signed])
    counts = Counter[str]()
    for (line, sign), old, new in zip(signed, before, after, strict=True):
        carried = sign in new["text"]
        equal = same(new["text"].replace(sign, " ")) == same(old["text"])
        silent = not (carried and equal) and not new["flags"]
        counts.update(carried=carried, equal=carried and equal, silent=silent)
        if silent:
            print(f"{line} → {new['text']} (without it: {old['text']})")
    for name, number in counts.items():
        print(f"{name:8} {number / len(signed):6.1%}")


def guard(run: str, path: Path, reference: Path | None) -> None:
    """Count what the guard finds in a file; of what remains also how good those lines are."""
    lines = texts(path)
    best = translated(run, lines)
    scores = [0.0] * len(lines)
    if reference is not None:
        pairs = zip(best, texts(reference), strict=True)
        scores = [sentence_chrf(each["text"], [right]).score for each, right in pairs]
    kinds = {name: [i for i, each in enumerate(best) if _finds(name, each)] for name in FINDINGS}
    poor = {i for i, score in enumerate(scores) if score < POOR}
    hits = len(poor.intersection(kinds["any"])) / max(1, len(poor))
    print(f"{len(lines)} lines, chrF {sum(scores) / len(scores):.1f}")
    print(f"{len(poor)} have a chrF below {POOR}, of which {hits:.0%} are flagged")
    print(f"{'finding':12} {'mended':>8} {'flagged':>8} {'chrF of flagged':>16}")
    for name, flagged in kinds.items():
        mended = sum(any(_is(name, word) for word in each["mended"]) for each in best)
        mean = sum(scores[i] for i in flagged) / max(1, len(flagged))
        print(f"{name:12} {mended / len(lines):8.2%} {len(flagged) / len(lines):8.2%} {mean:16.1f}")


FINDINGS = (
    "any",
    "empty",
    "too short",
    "too long",
    "loop",
    "copy",
    "unfinished",
    "lost",
    "added",
    "unsure",
)


def _is(name: str, finding: str) -> bool:
    return name == "any" or finding.startswith(name)


def _finds(name: str, translation: dict[str, Any]) -> bool:
    return any(_is(name, flag) for flag in translation["flags"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("phrases", "signs", "guard"))
    parser.add_argument("run")
    parser.add_argument("file", type=Path)
    parser.add_argument("--reference", type=Path)
    options = parser.parse_args()
    if options.what == "guard":
        guard(options.run, options.file, options.reference)
    else:
        {"phrases": phrases, "signs": signs}[options.what](options.run, options.file)


if __name__ == "__main__":
    main()
