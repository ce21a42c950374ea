"""The best next tokens, and what length and uncovered words cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.vocabulary import BOS, EOS, PAD

FEW = 4  # rows that are sorted whole sooner than cut into blocks
BLOCK = 64  # columns whose maximum stands for them; the fastest of 32 … 128 for 8,000 pieces
CACHED = 2**19  # numbers that a core reads several times from its own cache

LengthPenalty = Literal["none", "average", "gnmt"]
Strength = Annotated[float, Field(ge=0, le=1e6)]  # of a penalty that float32 can still count

PENALTIES: Mapping[LengthPenalty, Callable[[float, float], float]] = {
    "none": lambda length, alpha: 1.0,
    "average": lambda length, alpha: 1.0 * length,
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,  # Wu et al. 2016, eq. 14
}
"""Name → penalty(length with </s>, alpha), which divides a log-probability.

No penalty may fall as the length grows: early stopping relies on it.
"""


def coverage_penalty(
    coverage: Float[Tensor, "N S"], words: Bool[Tensor, "N S"], beta: float
) -> Float[Tensor, "N"]:
    """Wu et al. 2016, eq. 14:  cp(X; Y) = β Σ_i log(min(Σ_j p_ij, 1.0)), never above 0.

    `coverage` is Σ_j p_ij, what source position i has been given; positions that are no `words`
    do not count. A word that got nothing at all (beyond the window of a local attention) counts as
    one that got float32's smallest number: -87 β, where the formula would say -∞ of every
    translation alike.
    """
    least = torch.finfo(torch.float32).tiny
    return beta * coverage.clamp(least, 1.0).log().masked_fill(~words, 0.0).sum(1)


def nothing_to_cover(beta: float) -> str:
    """Return why a model without attention cannot be searched with a coverage penalty."""
    return (
        f"search.coverage_penalty = {beta} adds up the decoder's attention to each "
        "source word, but this model has no attention: set search.coverage_penalty=0"
    )


def words_of(source_mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """The real positions but the last, which is </s>."""
    return source_mask & source_mask.flip(1).cumsum(1).flip(1).gt(1)


def next_log_probs(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Log-probabilities over the whole vocabulary; -inf for <pad> and <s>, never to be chosen."""
    # float32 at least: in bfloat16 a sum over 30 tokens keeps two digits. One fused kernel beats
    # logsumexp, which takes four times as long on a CPU
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs = logits.log_softmax(dim=-1, dtype=wide)
    for never in (PAD, BOS):
        log_probs.select(1, never).fill_(-math.inf)
    return log_probs


class Candidates(NamedTuple):
    """Next tokens of each row; best first, except under phrases."""

    tokens: Int[Tensor, "N K"]
    log_probs: Float[Tensor, "N K"]  # the model's own
    ranks: Float[Tensor, "N K"]  # what they are chosen by; -inf for those that may not be


def best_next(
    log_probs: Float[Tensor, "N V"],
    ranks: Float[Tensor, "N V"],
    count: int,
    *,
    ending: Bool[Tensor, "N"] | None,
) -> Candidates:
    """The `count` next tokens of the highest ranks (K ≤ count).

    Rows that are `ending` (None: no row is), or to which the rules have left nothing, have no
    choice but </s>.
    """
    best, tokens = largest(ranks, min(count, ranks.shape[1]))
    if ending is None and ranks is log_probs:
        return Candidates(tokens, best, best)
    at_end = best[:, 0] == -math.inf
    if ending is not None:
        at_end = at_end | ending
    return only_end(tokens, best, log_probs, at_end)


def likeliest(
    logits: Float[Tensor, "N V"], count: int, *, ending: Bool[Tensor, "N"] | None
) -> Candidates:
    """`best_next` of `next_log_probs`, where no rule changes ranks.

    A CPU takes few rows at once, for each is read several times; products are faster of many.
    """
    rows, width = logits.shape
    at_once = max(CACHED // width, 1) if logits.device.type == "cpu" else rows
    blocks = []
    for start in range(0, rows, at_once):
        block = slice(start, start + at_once)
        log_probs = next_log_probs(logits[block])
        at_end = None if ending is None else ending[block]
        blocks.append(best_next(log_probs, log_probs, count, ending=at_end))
    return Candidates(*map(torch.cat, zip(*blocks, strict=True)))


def only_end(
    tokens: Int[Tensor, "N K"],
    ranks: Float[Tensor, "N K"],
    log_probs: Float[Tensor, "N V"],
    at_end: Bool[Tensor, "N"],
) -> Candidates:
    """Return these tokens as candidates, but </s> alone in the rows that are `at_end`."""
    only = torch.full_like(ranks, -math.inf)
    only[:, 0] = log_probs[:, EOS]
    ranks = torch.where(at_end[:, None], only, ranks)
    tokens = torch.where(at_end[:, None], EOS, tokens)
    return Candidates(tokens, log_probs.gather(1, tokens), ranks)


def largest(
    values: Float[Tensor, "N V"], count: int
) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
    """`values.topk(count)`, several times faster on many long rows.

    The `count` blocks with the highest maxima hold the `count` highest values, so only those
    blocks (and the columns left over after the last whole block) are sorted.
    """
    blocks = values.shape[1] // BLOCK
    if blocks <= 2 * count or len(values) < FEW:
        best, columns = values.topk(count)
        return best, columns
    # (N, V) → (N, blocks, BLOCK): a view, whose rows still lie V apart
    whole = values[:, : blocks * BLOCK].view(len(values), blocks, BLOCK)
    chosen = whole.amax(2).topk(count).indices  # (N, K)
    inside = torch.arange(BLOCK, device=values.device)
    columns = (chosen[:, :, None] * BLOCK + inside).flatten(1)  # (N, K·BLOCK)
    if values.shape[1] > blocks * BLOCK:
        rest = torch.arange(blocks * BLOCK, values.shape[1], device=values.device)
        columns = torch.cat([columns, rest.expand(len(values), -1)], dim=1)
    best, index = values.gather(1, columns).topk(count)
    return best, columns.gather(1, index)
