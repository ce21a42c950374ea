"""The tree of everything a search has chosen, from which hypotheses are read at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.errors import UserError
from translate.search.hypothesis import Hypothesis

ROOT = -1  # the parent of every first token


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


class Tree:
    """Nodes that point back at their parents.

    Growing it copies no history and reads nothing from the device: a hypothesis costs one look
    along its own path, after the search.
    """

    def __init__(self) -> None:
        self._steps: list[Nodes] = []
        self._alignments: list[Float[Tensor, "N L H S"] | None] = []
        self._size = 0

    def grow(self, nodes: Nodes, alignment: Float[Tensor, "N L H S"] | None) -> Int[Tensor, "*M"]:
        """Add one step's nodes; their ids."""
        self._steps.append(nodes)
        self._alignments.append(alignment)
        first, self._size = self._size, self._size + nodes.tokens.numel()
        ids = torch.arange(first, self._size, device=nodes.tokens.device)
        return ids.view_as(nodes.tokens)

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
            UserError: a sentence has no hypothesis, for the model's output is not finite.
        """
        columns = [
            torch.cat([column.flatten() for column in steps])
            for steps in zip(*self._steps, strict=True)
        ]
        sentences, parents, rows, tokens = torch.stack(columns[:4]).tolist()
        log_probs, ranks, scores, penalties = torch.stack(columns[4:]).tolist()

        def read(end: int) -> Hypothesis:
            path = _path(parents, end)
            summands = tuple(log_probs[node] for node in path)
            rank = math.fsum(ranks[node] for node in path)
            sentence = sentences[end]
            return Hypothesis(
                tokens=tuple(tokens[node] for node in path[:-1]),
                score=rank / penalty(len(path)) + penalties[end],
                log_prob=math.fsum(summands),
                token_log_probs=summands,
                alignment=self._along([rows[node] for node in path], source_lengths[sentence]),
                finished=len(path) <= limits[sentence],
            )

        ends = _ends(sentences, scores, len(limits))
        chosen = [sorted(nodes, key=scores.__getitem__, reverse=True)[:count] for nodes in ends]
        # the exact sums may order near-ties of float32 another way
        return [
            sorted(map(read, nodes), key=lambda found: found.score, reverse=True)
            for nodes in chosen
        ]

    def _along(self, rows: list[int], source_length: int) -> Float[Tensor, "L H T S"] | None:
        """The alignment of the hypothesis whose token t was predicted by row rows[t]."""
        # the search may have taken more steps than this hypothesis has tokens
        steps = [
            alignment[row]
            for alignment, row in zip(self._alignments, rows, strict=False)
            if alignment is not None
        ]
        return torch.stack(steps, dim=2)[..., :source_length].clone() if steps else None


def _path(parents: list[int], node: int) -> list[int]:
    """The nodes from the first token to `node`."""
    path = []
    while node != ROOT:
        path.append(node)
        node = parents[node]
    return path[::-1]


def _ends(sentences: list[int], scores: list[float], batch: int) -> list[list[int]]:
    """The last nodes of each sentence's finished hypotheses."""
    ends: list[list[int]] = [[] for _ in range(batch)]
    for node, score in enumerate(scores):
        if score > -math.inf:
            ends[sentences[node]].append(node)
    if not all(ends):
        raise UserError(
            "the model's log-probabilities are not finite (NaN or infinite weights): "
            "load an earlier checkpoint, or train again with a lower learning rate"
        )
    return ends
