"""Which pairs are worth learning from, with an account of every one that is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from translate.data.pair import Pair
from translate.data.text import normalise

RULES = ("empty", "too_long", "length_ratio", "identical", "duplicate", "overlap")


class Cleaning(BaseModel):
    """The node `data.cleaning`, explained in conf/data/base.yaml; null switches a rule off."""

    model_config = ConfigDict(extra="forbid")
    replace: list[tuple[str, str]]
    max_characters: PositiveInt | None
    length_ratio: Annotated[float, Field(ge=1)] | None
    ratio_slack: PositiveFloat
    drop_identical: bool
    drop_duplicates: bool

    @field_validator("replace")
    @classmethod
    def _compiles(cls, replace: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for pattern, replacement in replace:
            try:
                re.sub(pattern, replacement, "")
            except (re.error, IndexError) as error:
                raise ValueError(f"{pattern!r} is no regular expression ({error})") from None
        return replace


def tidy(pairs: Iterable[Pair], rules: Cleaning) -> list[Pair]:
    """Apply `rules.replace` in order, then make runs of white space one space, none at the ends."""
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in rules.replace]

    def mend(text: str) -> str:
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)
        return " ".join(text.split())

    return [pair._replace(source=mend(pair.source), target=mend(pair.target)) for pair in pairs]


def clean(pairs: Iterable[Pair], rules: Cleaning) -> tuple[list[Pair], Counter[str]]:
    """The pairs that pass every rule, and how many each rule (the first that applies) dropped."""
    kept: list[Pair] = []
    dropped: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        rule = _broken_rule(pair, rules)
        if rule is None and rules.drop_duplicates and (pair.source, pair.target) in seen:
            rule = "duplicate"
        if rule is not None:
            dropped[rule] += 1
            continue
        seen.add((pair.source, pair.target))
        kept.append(pair)
    return kept, dropped


def _broken_rule(pair: Pair, rules: Cleaning) -> str | None:
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if shorter == 0:
        return "empty"
    if rules.max_characters is not None and longer > rules.max_characters:
        return "too_long"
    # the slack is added to both: "Go." may well be "Váyanse."
    if rules.length_ratio is not None and longer + rules.ratio_slack > rules.length_ratio * (
        shorter + rules.ratio_slack
    ):
        return "length_ratio"
    if rules.drop_identical and normalise(pair.source) == normalise(pair.target):
        return "identical"
    return None


def drop_overlap(train: Iterable[Pair], held_out: Iterable[Pair]) -> tuple[list[Pair], int]:
    """`train` without pairs that share a sentence of either side with `held_out`; their number."""
    held_out = list(held_out)
    sources = {normalise(pair.source) for pair in held_out}
    targets = {normalise(pair.target) for pair in held_out}
    train = list(train)
    kept = [
        pair
        for pair in train
        if normalise(pair.source) not in sources and normalise(pair.target) not in targets
    ]
    return kept, len(train) - len(kept)
