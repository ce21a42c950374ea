"""The tree of everything a search has chosen, from which hypotheses are read at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.cache import Number
from translate.errors import UserError
from translate.search.hypothesis import Hypothesis

NOT_FINITE = (
    "the model's log-probabilities are not finite (NaN or infinite weights): load an earlier "
    "checkpoint, or train again with a lower learning rate"
)
ROOT = -1  # the parent of every first token

Indices = npt.NDArray[np.int64]


class Nodes(NamedTuple):
    """The tokens chosen at one step, in any shape; the batch is the one the step was taken with."""

    sentences: Int[Tensor, "*M"]  # whose translation, by its index in the whole batch
    parents: Int[Tensor, "*M"]  # the node before, or ROOT
    rows: Int[Tensor, "*M"]  # the row of the step that predicted the token
    tokens: Int[Tensor, "*M"]
    log_probs: Float[Tensor, "*M"]  # of the token alone, the model's own
    ranks: Float[Tensor, "*M"]  # what it was chosen by: equal, but for penalties of rules
    scores: Float[Tensor, "*M"]  # what ranks a finished hypothesis; -inf where none ends
    penalties: Float[Tensor, "*M"]  # what a score holds beside ranks / length penalty: at most 0

    def ids(self, before: Number) -> Int[Tensor, "*M"]:
        """Their own, in a tree that has so many nodes before them."""
        count, device = self.tokens.numel(), self.tokens.device
        return (before + torch.arange(count, device=device)).view_as(self.tokens)


class Tree:
    """Nodes that point back at their parents.

    Growing it copies no history and reads nothing from the device: a hypothesis costs one look
    along its own path, after the search.
    """

    def __init__(self) -> None:
        self._steps: list[Nodes] = []
        self._alignments: list[Float[Tensor, "N L H S"] | None] = []

    def grow(self, nodes: Nodes, alignment: Float[Tensor, "N L H S"] | None) -> None:
        """Add one step's nodes."""
        self._steps.append(nodes)
        self._alignments.append(alignment)

    def best(
        self,
        count: int,
        *,
        penalty: Callable[[int], float],
        limits: list[int],
        source_lengths: list[int],
    ) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each sentence, best first.

        Args:
            count: how many of each, or as many as there are.
            penalty: length with </s> → divisor of the sum of ranks.
            limits: the most tokens each translation may have.
            source_lengths: how many source positions are real, </s> included.

        Raises:
            UserError: the model's output is not finite, in any hypothesis: another would win that
                is worse than it seemed.
        """
        columns = [
            torch.cat([column.flatten() for column in steps])
            for steps in zip(*self._steps, strict=True)
        ]
        sentences, parents, rows, tokens = torch.stack(columns[:4]).cpu().numpy()
        log_probs, ranks, scores, penalties = torch.stack(columns[4:]).cpu().numpy()
        if np.isnan(ranks).any():
            raise UserError(NOT_FINITE)

        def read(path: Indices) -> Hypothesis:
            end = path[-1]
            sentence = int(sentences[end])
            summands = tuple(log_probs[path].tolist())
            rank = math.fsum(ranks[path].tolist())
            return Hypothesis(
                tokens=tuple(tokens[path[:-1]].tolist()),
                score=rank / penalty(len(path)) + float(penalties[end]),
                log_prob=math.fsum(summands),
                token_log_probs=summands,
                alignment=self._along(rows[path].tolist(), source_lengths[sentence]),
                finished=len(path) <= limits[sentence],
            )

        ends = _ends(sentences, scores, len(limits), count)
        paths = iter(_paths(parents, np.concatenate(ends)))
        each = [[read(next(paths)) for _ in some] for some in ends]
        # the exact sums may order near-ties of float32 another way
        return [sorted(some, key=lambda found: found.score, reverse=True) for some in each]

    def _along(self, rows: list[int], source_length: int) -> Float[Tensor, "L H T S"] | None:
        """The alignment of the hypothesis whose token t was predicted by row rows[t]."""
        # the search may have taken more steps than this hypothesis has tokens
        steps = [
            alignment[row]
            for alignment, row in zip(self._alignments, rows, strict=False)
            if alignment is not None
        ]
        return torch.stack(steps, dim=2)[..., :source_length].clone() if steps else None


def _paths(parents: Indices, ends: Indices) -> list[Indices]:
    """The nodes from the first token to each of the `ends`."""
    backwards = [ends]
    while (backwards[-1] != ROOT).any():
        backwards.append(np.where(backwards[-1] == ROOT, ROOT, parents[backwards[-1]]))
    return [path[path != ROOT] for path in np.stack(backwards[::-1], axis=1)]


def _ends(
    sentences: Indices, scores: npt.NDArray[np.floating], batch: int, count: int
) -> list[Indices]:
    """The last nodes of each sentence's finished hypotheses, the `count` best, best first."""
    ends = np.flatnonzero(scores > -math.inf)
    ends = ends[np.lexsort((-scores[ends], sentences[ends]))]
    firsts = np.searchsorted(sentences[ends], np.arange(1, batch))
    found = [some[:count] for some in np.split(ends, firsts)]
    if not all(map(len, found)):
        raise UserError(NOT_FINITE)
    return found
