"""RulesConfig: which next tokens a search may not choose, or chooses less gladly.

A rule changes ranks, by which a search chooses, and never log-probabilities: those of a hypothesis
remain the model's own. What a rule forbids has rank -inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor

from translate.config import Node
from translate.search.constraints import (
    FILL,
    Constraint,
    Constraints,
    Tokens,
    joined,
    padded,
    word_edges,
)
from translate.vocabulary import BOS, EOS, PAD


class Position(NamedTuple):
    """Where a search stands, a row for each open hypothesis."""

    sentences: Int[Tensor, "N"]  # index in the whole batch
    history: Int[Tensor, "N T"]  # the tokens so far, <s> apart
    log_probs: Float[Tensor, "N V"]  # of the next token, the model's own


class Rule(Protocol):
    """Something that changes ranks."""

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        """The ranks under this rule; none is above what it was, but for tokens of a prefix."""


class RulesConfig(Node):
    """The node `search.rules`: which next pieces may be chosen."""

    min_length: int = Field(
        ge=0, description="pieces before a translation may end; the limit of length wins"
    )
    no_repeat_ngram_size: int = Field(
        ge=0,
        description="no sequence of this many pieces occurs twice in a translation; 0: off",
    )
    repetition_penalty: float = Field(
        ge=1,
        le=1e6,  # what float32 can count
        description="above 1: the log-probability of a piece that the translation has already is "
        "multiplied by this, for ranking; the probabilities reported stay the model's own",
    )
    # text, which the translator turns into each sentence's `Constraint`
    banned: tuple[str, ...] = Field(
        description='whole words and phrases never to be written: [foo, "two words"]; in scripts '
        "without spaces, characters in a row (greedy, sample and beams of one: nor a longer word "
        "that begins so)"
    )

    def stricter(self, other: RulesConfig) -> RulesConfig:
        """These rules, and what `other` asks for beyond them, but for what is banned."""
        sizes = {self.no_repeat_ngram_size, other.no_repeat_ngram_size} - {0}  # 0 allows everything
        return self.model_copy(
            update={
                "min_length": max(self.min_length, other.min_length),
                "no_repeat_ngram_size": min(sizes, default=0),
                "repetition_penalty": max(self.repetition_penalty, other.repetition_penalty),
            }
        )

    def active(
        self, constraints: Constraints, limits: Int[Tensor, "B"], *, alone: bool
    ) -> tuple[Rule, ...]:
        """Those that may do something, the strictest last.

        Args:
            alone: a hypothesis has no other beside it that could take its place.
        """
        rules: list[Rule] = []
        if self.repetition_penalty > 1:
            rules.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat_ngram_size:
            rules.append(NoRepeat(self.no_repeat_ngram_size))
        if self.min_length:
            rules.append(MinLength(self.min_length))
        if constraints and any(constraint.banned or constraint.glued for constraint in constraints):
            rules.append(Banned(constraints, limits, alone=alone))
        if constraints and any(constraint.prefix for constraint in constraints):
            rules.append(Prefix([constraint.prefix for constraint in constraints], limits.device))
        return tuple(rules)


NO_RULES = RulesConfig(min_length=0, no_repeat_ngram_size=0, repetition_penalty=1.0, banned=())


def apply(rules: Sequence[Rule], at: Position) -> Float[Tensor, "N V"]:
    """The ranks of all next tokens: their log-probabilities under every rule."""
    ranks = at.log_probs
    for rule in rules:
        ranks = rule(ranks, at)
    return ranks


def forbid(ranks: Float[Tensor, "N V"], tokens: Int[Tensor, "N P"]) -> Float[Tensor, "N V"]:
    """Without these tokens of each row. <pad>, never allowed anyway, stands for none."""
    return ranks.scatter(1, tokens, -math.inf)


class MinLength:
    """No </s> before so many tokens; the length limit of a search wins over it."""

    def __init__(self, length: PositiveInt) -> None:
        self.length = length

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        if at.history.shape[1] >= self.length:
            return ranks
        return forbid(ranks, torch.full_like(at.sentences, EOS)[:, None])


class NoRepeat:
    """No n tokens in a row that the hypothesis has had before (Paulus et al. 2018)."""

    def __init__(self, size: PositiveInt) -> None:
        self.size = size

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        length = at.history.shape[1]
        if length < self.size:
            return ranks
        grams = at.history.unfold(1, self.size, 1)  # (N, T - n + 1, n)
        tail = at.history[:, None, length - self.size + 1 :]  # (N, 1, n - 1)
        repeats = (grams[:, :, :-1] == tail).all(2)
        return forbid(ranks, grams[:, :, -1].where(repeats, PAD))


class RepetitionPenalty:
    """A token that occurs in the hypothesis is ranked by θ log p instead of log p, θ ≥ 1.

    Keskar et al. 2019 divide its logit by θ; a logarithm of a probability is never above 0, so that
    ranks only fall, as the early stopping of a beam needs.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        used = ranks.gather(1, at.history) * self.penalty
        return ranks.scatter(1, at.history, used)  # what comes twice gets the same value twice


class Banned:
    """Forbids the last token of a banned phrase once the tokens before it are written.

    If a longer word may begin with the phrase ("ban" with "banned"), the phrase may be written, and
    what is forbidden is to end the word there; unless the length limit leaves no room to go on with
    it, or the hypothesis is `alone`: without others beside it, it would have to make some longer
    word of the phrase, however unlikely. (Where other rules leave nothing to go on with, the word
    may end all the same.) A phrase that is `glued` to a letter before it is the end of another
    word, and allowed.
    """

    def __init__(
        self, constraints: Sequence[Constraint], limits: Int[Tensor, "B"], *, alone: bool
    ) -> None:
        backwards = [
            [phrase[::-1] for phrase in (*constraint.banned, *constraint.glued)]
            for constraint in constraints
        ]
        self.phrases = padded(backwards, limits.device)  # (B, P, L), the last token first
        self.lengths = (self.phrases != FILL).sum(2)
        banned = torch.tensor([len(each.banned) for each in constraints], device=limits.device)
        places = torch.arange(self.phrases.shape[1], device=limits.device)
        self.glued = places >= banned[:, None]  # (B, P)
        self.ends_open, _ = word_edges(constraints, limits.device)
        self.beginnings, self.onward = joined(constraints, self.phrases[:, :, 0])  # (B, P), (V,)
        self.beginnings &= not alone
        given = [len(constraint.prefix) for constraint in constraints]
        self.given, self.limits = torch.tensor(given, device=limits.device), limits

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        phrases, beginnings = self.phrases[at.sentences], self.beginnings[at.sentences]
        length, last = at.history.shape[1], phrases[:, :, 0]
        room = (length + 1 < self.limits[at.sentences])[:, None]
        ending = _ends_with(at.history, phrases[:, :, 1:]) & (last != FILL)
        ending &= ~self._inside_a_word(at, length)
        ranks = forbid(ranks, last.where(ending & ~(beginnings & room), PAD))
        written = _ends_with(at.history, phrases) & beginnings
        written &= ~self._inside_a_word(at, length - 1)
        written &= (length > self.given[at.sentences])[:, None]
        return ranks.masked_fill(written.any(1, keepdim=True) & ~self.onward, -math.inf)

    def _inside_a_word(self, at: Position, end: int) -> Bool[Tensor, "N P"]:
        """Which glued phrases would have a letter before them, with their last token at `end`."""
        before = (end - self.lengths[at.sentences] + 1).clamp(0, at.history.shape[1])
        tokens = F.pad(at.history, (1, 0), value=BOS).gather(1, before)
        letter = self.ends_open[tokens.clamp(max=len(self.ends_open) - 1)]
        return letter & self.glued[at.sentences]


def _ends_with(history: Int[Tensor, "N T"], phrases: Int[Tensor, "N P L"]) -> Bool[Tensor, "N P"]:
    """Which phrases, spelled backwards, each history ends with."""
    before = history.flip(1)[:, None, : phrases.shape[2]]
    there, beyond = phrases[:, :, : before.shape[2]], phrases[:, :, before.shape[2] :]
    return ((there == before) | (there == FILL)).all(2) & (beyond == FILL).all(2)


class Prefix:
    """The first tokens are given: nothing else is allowed, whatever other rules say."""

    def __init__(self, prefixes: Sequence[Tokens], device: torch.device) -> None:
        self.tokens = padded([[prefix] for prefix in prefixes], device)[:, 0]  # (B, L)

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        length = at.history.shape[1]
        if length >= self.tokens.shape[1]:
            return ranks
        given = self.tokens[at.sentences, length][:, None]
        token = given.clamp(min=0)
        only = torch.full_like(ranks, -math.inf).scatter(1, token, at.log_probs.gather(1, token))
        return torch.where(given == FILL, ranks, only)
