"""What one sentence's translation must or may not hold, as token ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from translate.attention.cache import Number
from translate.errors import UserError

Tokens = tuple[int, ...]
FILL = -1  # in tensors of phrases of unlike length; no token


class Joints(NamedTuple):
    """Where a word goes on from one token to the next: from an `open` one to an `onward` one."""

    open: Bool[np.ndarray, "V"]  # ends with a letter
    onward: Bool[np.ndarray, "V"]  # begins with one, and with no space before it; never </s>


@dataclass(frozen=True)
class Constraint:
    """Asked of one translation; it outranks the rules and the length limit of a search.

    Attributes:
        prefix: its first tokens.
        phrases: token sequences it must contain somewhere, without a gap; each begins a word.
        banned: token sequences it may not contain after the prefix.
        glued: the same, but allowed where the token before them ends with a letter (`joints`).
        joints: where a phrase, given or banned, is only the beginning of a longer word, which is
            another; None: nowhere. The same for all of a batch that have any.
    """

    prefix: Tokens = ()
    phrases: tuple[Tokens, ...] = ()
    banned: tuple[Tokens, ...] = ()
    glued: tuple[Tokens, ...] = ()
    joints: Joints | None = field(default=None, compare=False, repr=False)

    @property
    def tokens_needed(self) -> int:
        """How many the prefix and the phrases that it does not contain have together.

        A phrase at its very end may yet become a longer word, and counts.
        """
        missing = (phrase for phrase in set(self.phrases) if not self._begins_with(phrase))
        return len(self.prefix) + sum(map(len, missing))

    def _begins_with(self, phrase: Tokens) -> bool:
        """Whether the prefix contains the phrase, and goes on with another word."""
        ends = range(len(phrase), len(self.prefix))
        found = (end for end in ends if self.prefix[end - len(phrase) : end] == phrase)
        return any(
            self.joints is None
            or not (self.joints.open[phrase[-1]] and self.joints.onward[self.prefix[end]])
            for end in found
        )


# One a sentence of the batch; None: nothing is constrained
Constraints = Sequence[Constraint] | None


def length_limits(
    source_lengths: Sequence[int],
    ratio: float,
    offset: int,
    constraints: Constraints = None,
    *,
    max_length: int | None,
) -> list[int]:
    """The most tokens of each translation: ratio · source length + offset, </s> never counted.

    More where the given tokens alone would exceed it.

    Args:
        source_lengths: those of the model's input, which ends with </s>.
        max_length: the most tokens that the model can read, <s> among them.

    Raises:
        UserError: more is given than the model can read.
    """
    most = math.inf if max_length is None else max_length - 1
    limits = [min(ratio * (length - 1) + offset, most) for length in source_lengths]
    needed = [
        constraint.tokens_needed for constraint in constraints or [Constraint()] * len(limits)
    ]
    if max(needed, default=0) > most:
        raise UserError(
            f"a translation must contain {max(needed)} given pieces, but this model reads at most "
            f"{most}: shorten the prefix and the phrases"
        )
    return [int(max(limit, count)) for limit, count in zip(limits, needed, strict=True)]


def at_limit(limits: Int[Tensor, "N"], length: Number, shortest: int) -> Bool[Tensor, "N"] | None:
    """Which are as long as they may be; None: none of them, for the `shortest` limit is more."""
    if not isinstance(length, Tensor) and length < shortest:
        return None
    return limits <= length


def joined(
    constraints: Sequence[Constraint], last: Int[Tensor, "B P"]
) -> tuple[Bool[Tensor, "B P"], Bool[Tensor, "V"]]:
    """Which phrases, known by their last tokens, may begin a longer word; what makes it longer.

    V is 1 where no constraint has joints.
    """
    is_open, onward = word_edges(constraints, last.device)
    there = torch.tensor([_goes_on(one) for one in constraints], device=last.device)
    inside = last.clamp(0, len(onward) - 1)
    return is_open[inside] & (last == inside) & there[:, None], onward


def word_edges(
    constraints: Sequence[Constraint], device: torch.device
) -> tuple[Bool[Tensor, "V"], Bool[Tensor, "V"]]:
    """The two sides of the constraints' joints; V is 1 where there are none."""
    given = sorted(constraints, key=_goes_on, reverse=True)  # alike, but where nothing goes on
    joints = next(
        filter(None, (constraint.joints for constraint in given)),
        Joints(np.zeros(1, bool), np.zeros(1, bool)),
    )
    is_open, onward = (torch.from_numpy(side).to(device) for side in joints)
    return is_open, onward


def _goes_on(constraint: Constraint) -> bool:
    return constraint.joints is not None and bool(constraint.joints.onward.any())


def refuse_phrases(constraints: Constraints, kind: str) -> None:
    """For a search that cannot promise them.

    Raises:
        UserError: a translation must contain phrases.
    """
    if any(constraint.phrases for constraint in constraints or ()):
        raise UserError(
            f"search.kind = {kind} cannot force phrases into a translation: use search=beam"
        )


def padded(sentences: Sequence[Sequence[Tokens]], device: torch.device) -> Int[Tensor, "B P L"]:
    """Phrases of every sentence, filled up behind; P and L are at least 1."""
    count = max([1, *map(len, sentences)])
    longest = max([1, *(len(phrase) for phrases in sentences for phrase in phrases)])
    table = torch.full((len(sentences), count, longest), FILL)
    for row, phrases in zip(table, sentences, strict=True):
        for line, phrase in zip(row, phrases, strict=False):
            line[: len(phrase)] = torch.tensor(phrase, dtype=torch.long)
    return table.to(device)
