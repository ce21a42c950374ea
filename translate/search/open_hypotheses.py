"""What a search holds between two steps, and what a step of a beam search adds to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.models.seq2seq import DecoderState
from translate.search.replay import Shown
from translate.search.tree import ROOT, Nodes
from translate.vocabulary import BOS

DEAD = -math.inf  # the total of a row that holds no hypothesis


@dataclass(frozen=True)
class Batch:
    """Tensors that have a row for each of those still in the batch."""

    def keep(self, places: Int[Tensor, "C"]) -> Self:
        """These alone, by their places in the batch."""
        return type(self)(*(getattr(self, field.name)[places] for field in fields(self)))


@dataclass(frozen=True)
class Beam(Batch):
    """The open hypotheses, best first, of the beams still in the batch: one a sentence, or groups.

    n is the widest beam among them; narrower ones end with DEAD rows.
    """

    beams: Int[Tensor, "B"]  # index in the whole batch, sentence by sentence
    sentences: Int[Tensor, "B"]  # of each
    limits: Int[Tensor, "B"]  # the most tokens each translation may have
    longest_penalty: Float[Tensor, "B"]  # the length penalty at that length
    vacant: Int[Tensor, "B"]  # places of the beam, not yet taken by finished hypotheses
    kept: Float[Tensor, "B n_best"]  # the best finished scores so far, -inf for none
    nodes: Int[Tensor, "B n"]
    tokens: Int[Tensor, "B n"]  # the last of each hypothesis
    history: Int[Tensor, "B n T"]  # its tokens so far; T = 0 when no rule asks for them
    totals: Float[Tensor, "B n"]  # the ranks of its tokens added up: log P, but for rules
    words: Bool[Tensor, "B S"]  # which source positions count as covered or not
    coverage: Float[Tensor, "B n S"]  # the attention each has had; S is 0 without a penalty

    @classmethod
    def at_start(
        cls,
        limits: Int[Tensor, "B"],
        longest_penalty: Float[Tensor, "B"],
        words: Bool[Tensor, "B S"],
        *,
        groups: int,
        width: int,
        n_best: int,
    ) -> Beam:
        """The empty hypothesis, in each of the `groups` beams of these sentences."""
        sentences = torch.arange(len(limits), device=limits.device).repeat_interleave(groups)
        limits, words = limits[sentences], words[sentences]
        empty = torch.zeros_like(limits)[:, None]
        return cls(
            beams=torch.arange(len(limits), device=limits.device),
            sentences=sentences,
            limits=limits,
            longest_penalty=longest_penalty[sentences],
            vacant=torch.full_like(limits, width),
            kept=torch.full((len(limits), n_best), DEAD, device=limits.device),
            nodes=empty + ROOT,
            tokens=empty + BOS,
            history=empty[:, :, None][:, :, :0],
            totals=empty.float(),
            words=words,
            coverage=torch.zeros_like(words[:, None], dtype=torch.float32),
        )


class Extensions(NamedTuple):
    """The m extensions of each beam's hypotheses that get its places, in the order of the choice.

    That is best first, but under phrases and among groups.
    """

    rows: Int[Tensor, "B m"]  # of the batch: which hypothesis is extended
    tokens: Int[Tensor, "B m"]
    log_probs: Float[Tensor, "B m"]  # of the token
    ranks: Float[Tensor, "B m"]  # of the token
    totals: Float[Tensor, "B m"]  # of the whole hypothesis; DEAD beyond the sentence's places
    scores: Float[Tensor, "B m"]  # of those that end, -inf for the others
    penalties: Float[Tensor, "B m"]  # the part of a score that is the coverage penalty

    def nodes(self, beam: Beam) -> Nodes:
        """What grows in the tree, of the beam that is extended."""
        return Nodes(
            sentences=beam.sentences[:, None].expand_as(self.tokens),
            parents=beam.nodes.flatten()[self.rows],
            rows=self.rows,
            tokens=self.tokens,
            log_probs=self.log_probs,
            ranks=self.ranks,
            scores=self.scores,
            penalties=self.penalties,
        )


class Taken(NamedTuple):
    """A step that was taken, and what it leads to."""

    extensions: Extensions
    coverage: Float[Tensor, "N S"]  # of what was extended
    state: DecoderState
    kept: Float[Tensor, "B n_best"]  # the best finished scores
    alive: Float[Tensor, "B m"]  # the totals of the extensions that go on, else DEAD
    shown: Shown
