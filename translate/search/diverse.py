"""Diverse beam search: beams of a sentence that avoid each other's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from translate.config import OnlyWith
from translate.search.beam import Beam, BeamKeys, BeamSearch
from translate.search.constraints import Tokens
from translate.search.hypothesis import MOST, Hypothesis
from translate.search.scoring import Strength

NO_TOKEN = -1  # in the places of no hypothesis


class DiverseConfig(BeamKeys):
    """The node `search` of diverse beam search."""

    kind: Literal["diverse"] = Field(
        description="diverse beam search: an n-best list whose translations differ in more than a "
        "word; what two groups find counts once"
    )
    groups: int = Field(
        gt=0,
        le=MOST,
        description="beams of beam_size / groups hypotheses that avoid each other's words; 1 is "
        "beam search",
    )
    diversity_strength: Annotated[Strength, OnlyWith("groups", *range(2, MOST + 1))] = Field(
        description="how much log-probability a piece loses for each hypothesis of the groups "
        "before that has just chosen it"
    )

    def contradictions(self) -> Iterator[str]:
        if self.beam_size % self.groups:
            yield (
                f"search.beam_size = {self.beam_size} is not a multiple of search.groups = "
                f"{self.groups}: choose a beam that the groups can share evenly"
            )
        yield from super().contradictions()


class DiverseBeamSearch(BeamSearch):
    """Beam search in `groups` of beam_size / groups hypotheses (Vijayakumar et al. 2016).

    At each step the groups choose one after another, and a group ranks a token lower by
    `diversity_strength` for each hypothesis of the groups before it that chose the same token at
    this step (their Hamming diversity). That sways a choice alone: totals, scores and probabilities
    are those of beam search, and so is everything with one group. Each group has the `n_best` and
    the early stopping of a beam of its own; the best of all groups come out, and what two groups
    found counts once, so that they may be fewer than `n_best`.
    """

    Config: ClassVar = DiverseConfig
    takes_phrases = False

    def __init__(self, config: DiverseConfig) -> None:
        super().__init__(config, groups=config.groups)
        self._strength = config.diversity_strength

    def _answer(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        distinct: dict[Tokens, Hypothesis] = {}
        for hypothesis in hypotheses:  # best first; groups may find the same
            distinct.setdefault(hypothesis.tokens, hypothesis)
        return list(distinct.values())[: self.config.n_best]

    def _choose(
        self,
        beam: Beam,
        totals: Float[Tensor, "B M"],
        tokens: Int[Tensor, "B M"],
        banks: Int[Tensor, "B M"] | None,
    ) -> Int[Tensor, "B m"]:
        beams, count = len(tokens), min(self._width, totals.shape[1])
        index = torch.zeros_like(tokens[:, :count])
        order = torch.arange(count, device=tokens.device)
        # which of those in the batch a beam's sentence is: at most as many as there are beams
        sentences = F.pad(beam.sentences.diff().ne(0).cumsum(0), (1, 0))
        taken = tokens.new_full((beams + 1, self._groups, count), NO_TOKEN)
        for group in range(self._groups):
            # all beams choose, for a GPU would have to be asked how many are of the group
            chooses = beam.beams % self._groups == group
            rivals = taken[sentences].flatten(1)  # (B, groups · m)
            alike = (tokens[:, :, None] == rivals[:, None]).sum(2)
            best = (totals - self._strength * alike).topk(count)
            index = torch.where(chooses[:, None], best.indices, index)
            dead = best.values.isneginf() | (order >= beam.vacant[:, None])
            chosen = tokens.gather(1, best.indices).masked_fill(dead, NO_TOKEN)
            taken[torch.where(chooses, sentences, beams), group] = chosen  # others': the last row
        return index
