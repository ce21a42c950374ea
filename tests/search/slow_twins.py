"""Slow, obvious twins: one sentence, Python lists, the whole prefix at each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from translate.attention.masks import padding_mask
from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Joints
from translate.vocabulary import BOS, EOS, PAD

Tokens = tuple[int, ...]
PENALTIES = {
    "none": lambda length: 1,
    "average": lambda length: length,
    "gnmt": lambda length: ((5 + length) / 6) ** 0.8,
}


def joints(size: int) -> Joints:
    """Of a vocabulary whose last token goes on with a word; every odd one ends with a letter."""
    tokens = np.arange(size)
    return Joints(tokens % 2 == 1, tokens == size - 1)


def goes_on(phrase: Tokens, after: Tokens, where: Joints | None) -> bool:
    """Whether `after` makes a longer word of the end of a phrase."""
    return bool(where and after and where.open[phrase[-1]] and where.onward[after[0]])


def contains(tokens: Tokens, phrase: Tokens, where: Joints | None = None) -> bool:
    places = range(len(tokens) - len(phrase) + 1)
    ends = [i + len(phrase) for i in places if tokens[i : i + len(phrase)] == phrase]
    return any(not goes_on(phrase, tokens[end:], where) for end in ends)


def batch(*sentences: list[int]) -> tuple[Tensor, Tensor]:
    """Sentences with their </s>, padded with ids that would change the answer if they were read."""
    lengths = torch.tensor([len(ids) + 1 for ids in sentences])
    mask = padding_mask(lengths, int(lengths.max()))
    source = torch.full(mask.shape, 4)
    source[mask] = torch.tensor([i for ids in sentences for i in [*ids, EOS]])
    return source, mask


def limit(ids: list[int], offset: int = 8) -> int:
    return int(0.5 * len(ids) + offset)


def log_probs_along(model: Seq2Seq, source: list[int], tokens: Tokens) -> list[list[float]]:
    """The distribution after each prefix of a translation, the empty one first."""
    target = torch.tensor([[BOS, *tokens]])
    hidden = model.decode(target, model.encode(*batch(source))).hidden
    found: list[list[float]] = model.project(hidden[0]).log_softmax(-1).tolist()
    return found


def next_log_probs(model: Seq2Seq, source: list[int], prefix: Tokens) -> list[float]:
    return log_probs_along(model, source, prefix)[-1]


def rescored(model: Seq2Seq, source: list[int], tokens: Tokens) -> list[float]:
    """The log-probability of each token of a translation and of its </s>."""
    after = log_probs_along(model, source, tokens)
    return [log_probs[token] for log_probs, token in zip(after, [*tokens, EOS], strict=True)]


def uncovered(model: Seq2Seq, source: list[int], tokens: tuple[int, ...]) -> float:
    """Σ_i log(min(Σ_j p_ij, 1)) over the source words, from the weights of teacher forcing."""
    target = torch.tensor([[BOS, *tokens]])
    memory = model.encode(*batch(source))
    alignment = model.decode(target, memory, need_alignment=True).alignment
    assert alignment is not None
    _, layers, heads, length, _ = alignment.shape
    total = 0.0
    for i in range(len(source)):  # </s> follows them
        given = 0.0
        for j in range(length):
            given += sum(
                float(alignment[0, layer, head, j, i])
                for layer in range(layers)
                for head in range(heads)
            ) / (layers * heads)
        total += math.log(min(given, 1.0))
    return total


def slow_beam(
    model: Seq2Seq,
    source: list[int],
    size: int,
    penalty: str,
    n_best: int,
    offset: int,
    beta: float = 0.0,
    rule: Callable[[Tokens, list[float]], list[float]] = lambda prefix, log_probs: log_probs,
) -> tuple[list[tuple[tuple[int, ...], float]], int]:
    """Beam search that never stops early; `rule` makes ranks of what may follow a prefix.

    Also says after how many steps nothing could change any more.
    """
    hypotheses: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[tuple[tuple[int, ...], float]] = []
    most, steps = limit(source, offset), 0
    for length in range(most + 1):
        steps += not settled(hypotheses, finished[:n_best], PENALTIES[penalty](most + 1), n_best)
        extensions = [
            ((*tokens, token), total + rank)
            for tokens, total in hypotheses
            for token, rank in choices(model, source, tokens, rule, end=length == most)
        ]
        extensions.sort(key=lambda extension: -extension[1])
        hypotheses = []
        for tokens, total in extensions[: size - len(finished)]:
            if tokens[-1] == EOS:
                score = total / PENALTIES[penalty](length + 1)
                if beta:
                    score += beta * uncovered(model, source, tokens[:-1])
                finished.append((tokens[:-1], score))
            else:
                hypotheses.append((tokens, total))
        finished.sort(key=lambda found: -found[1])
    return finished[:n_best], steps


def choices(model, source, prefix, rule, *, end: bool) -> list[tuple[int, float]]:
    """The tokens that may follow, with their ranks; </s> alone at the end or where none is left."""
    log_probs = next_log_probs(model, source, prefix)
    ranks = dict(enumerate(rule(prefix, log_probs)))
    allowed = [(t, r) for t, r in ranks.items() if t not in (PAD, BOS) and r > -math.inf]
    return allowed if allowed and not end else [(EOS, log_probs[EOS])]


def settled(hypotheses, kept, longest_penalty: float, n_best: int) -> bool:
    """Whether no open hypothesis can enter the n best, at the best still possible for each."""
    bounds = [total / longest_penalty for _, total in hypotheses]
    return len(kept) == n_best and all(bound <= kept[-1][1] for bound in bounds)


def nodes(ratio: float, offset: int) -> dict[str, dict[str, Any]]:
    """Return the options of every kind of search, which end at this limit."""
    limits = {"max_length_ratio": ratio, "max_length_offset": offset}
    beam = {
        "beam_size": 4, "length_penalty": "gnmt", "alpha": 0.8, "coverage_penalty": 0.2, **limits,
    }  # fmt: skip
    return {
        "greedy": limits,
        "beam": {"n_best": 3, **beam},
        "diverse": {"groups": 2, "diversity_strength": 0.5, "n_best": 2, **beam},
        "sample": {
            "n_best": 3, "seed": 1, "temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
            "typical_p": 1.0, **limits,
        },
    }  # fmt: skip
