#!/usr/bin/env python
"""Measure what a trained model makes of text as people write it.

    python scripts/robustness.py phrases RUN tests/everyday_phrases.tsv
    python scripts/robustness.py signs RUN FILE
    python scripts/robustness.py guard RUN FILE --reference FILE
    python scripts/robustness.py terms RUN FILE --reference FILE

`phrases` translates what people type first, each with its accepted answers (SOURCE, TAB, answers
with | between them), and counts those that are accepted. `signs` puts a sign, an emoji, a dash or a
word of another script into sentences, and counts those that carry it over, have the rest as without
it, and are neither and not flagged. `guard` counts what the guard finds, and with references the
chrF of the lines that each finding flags beside that of the others: a finding is worth what it
lowers. `terms` makes a glossary of words that the references translate in one way, and counts those
that a translation has, with `terms=` and without, beside chrF and seconds. All is done by
`translate text`, with its defaults.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

from sacrebleu import corpus_chrf, sentence_chrf

SIGNS = ["😀", "🚂", "👩‍🚀", "🇪🇸", "♪", "★", "→", "✓", "°C", "№", "₿", "∞", "½", "≠", "☎", "©"]
WORDS = ["Привет", "Ελλάδα", "東京", "naïveté", "Łódź", "Ørsted", "שלום", "မြန်မာ", "Nguyễn", "Þór"]
LINES = 200
WORD = re.compile(r"[^\W\d_]{4,}")
OFTEN, DICE = 3, 0.9  # sentences of a term, and how much it goes with its translation
POOR = 30  # chrF of a translation that has lost the sense


def texts(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def translated(run: str, lines: Sequence[str], *asked: str) -> list[dict[str, Any]]:
    """Return what `translate text format=json` says of the best translation of each line."""
    command = [sys.executable, "-m", "translate", "text", f"run={run}", "format=json", *asked]
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


def glossary(sources: Sequence[str], references: Sequence[str]) -> dict[str, str]:
    """Return words, each with the one that stands in the references of nearly all its sentences."""
    sides = [[{*WORD.findall(line.casefold())} for line in side] for side in (sources, references)]
    often = [Counter(word for words in side for word in words) for side in sides]
    together = Counter(pair for words in zip(*sides, strict=True) for pair in product(*words))
    terms: dict[str, str] = {}
    for (source, target), both in together.most_common():
        dice = 2 * both / (often[0][source] + often[1][target])
        if both >= OFTEN and dice >= DICE and source != target and source not in terms:
            terms[source] = target
    return terms


def terms(run: str, path: Path, reference: Path) -> None:
    """Count the terms of a made glossary that translations have, with `terms=` and without."""
    lines, references = texts(path), texts(reference)
    chosen = glossary(lines, references)
    wanted = [[chosen[w] for w in WORD.findall(line.casefold()) if w in chosen] for line in lines]
    print(f"{len(chosen)} terms, {sum(map(len, wanted))} times in {len(lines)} lines")
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write("".join(f"{source}\t{target}\n" for source, target in chosen.items()))
        file.flush()
        for name, asked in (("without", []), ("with terms=", [f"terms={file.name}"])):
            begun = time.perf_counter()
            best = translated(run, lines, *asked)
            seconds = time.perf_counter() - begun
            there = sum(
                term in WORD.findall(each["text"].casefold())
                for each, several in zip(best, wanted, strict=True)
                for term in several
            )
            chrf = corpus_chrf([each["text"] for each in best], [references]).score
            share = there / max(1, sum(map(len, wanted)))
            print(f"{name:12} {share:6.1%} of the terms, chrF {chrf:.1f}, {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("phrases", "signs", "guard", "terms"))
    parser.add_argument("run")
    parser.add_argument("file", type=Path)
    parser.add_argument("--reference", type=Path)
    options = parser.parse_args()
    if options.what == "guard":
        guard(options.run, options.file, options.reference)
    elif options.what == "terms":
        terms(options.run, options.file, options.reference)
    else:
        {"phrases": phrases, "signs": signs}[options.what](options.run, options.file)


if __name__ == "__main__":
    main()
