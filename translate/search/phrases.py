"""Phrases that a translation must contain: dynamic beam allocation (Post and Vilar 2018).

A beam would drop a hypothesis that begins a phrase for a likelier one that does not. So hypotheses
with equally many phrase tokens form a bank, and the banks share the places of the beam evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from translate.search.demand import FILL, Tokens, padded
from translate.search.rules import Position, forbid
from translate.search.scoring import Candidates
from translate.vocabulary import EOS, PAD

NO_TOKEN = -2  # beside the history


class Phrases:
    """What each sentence's translation must contain, and how far a hypothesis has come."""

    def __init__(
        self,
        phrases: Sequence[Sequence[Tokens]],
        prefixes: Sequence[Tokens],
        limits: Int[Tensor, "B"],
    ) -> None:
        wanted = [list(dict.fromkeys(filter(None, some))) for some in phrases]
        self.tokens = padded(wanted, limits.device)  # (B, P, L)
        self.lengths = (self.tokens != FILL).sum(2)  # (B, P)
        self.given = torch.tensor(list(map(len, prefixes)), device=limits.device)
        self.limits = limits

    def candidates(self, found: Candidates, at: Position) -> tuple[Candidates, Int[Tensor, "N K"]]:
        """`found`, with the next token of every missing phrase, without what can never be whole.

        No hypothesis ends with a phrase missing, and none goes on so that the tokens which are
        missing would no longer fit under its length limit. How many are, comes second: the bank.
        """
        begun = self._begun(at.history, at.sentences)  # (N, P)
        tokens, missing = self.tokens[at.sentences], begun < self.lengths[at.sentences]
        following = tokens.gather(2, begun.clamp(max=tokens.shape[2] - 1)[:, :, None])[:, :, 0]
        in_prefix = at.history.shape[1] < self.given[at.sentences]
        following = following.where(missing & ~in_prefix[:, None], PAD)
        first = following[:, :, None] == following[:, None]  # (N, P, P): two may go on alike
        following = following.masked_fill(first.tril(-1).any(2), PAD)
        # what is among the phrases' tokens is no candidate a second time
        twice = (found.tokens[:, :, None] == following[:, None]).any(2)
        own = at.log_probs.gather(1, following)
        joined = Candidates(
            torch.cat([found.tokens, following], dim=1),
            torch.cat([found.log_probs, own], dim=1),
            torch.cat([found.ranks.masked_fill(twice, -math.inf), own], dim=1),
        )
        missing_then = self._missing(joined.tokens, at)
        fits = missing_then <= self._room(joined.tokens, at)
        ranks = joined.ranks.masked_fill(~fits, -math.inf)
        return joined._replace(ranks=ranks), missing_then

    def unfinished(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        """The rule: no </s> while a phrase is missing."""
        missing = (self._begun(at.history, at.sentences) < self.lengths[at.sentences]).any(1)
        return forbid(ranks, torch.where(missing, EOS, PAD)[:, None])

    def _missing(self, tokens: Int[Tensor, "N K"], at: Position) -> Int[Tensor, "N K"]:
        """How many tokens each extended hypothesis still lacks, were no two phrases to overlap."""
        count = tokens.shape[1]
        history = at.history.repeat_interleave(count, dim=0)
        history = torch.cat([history, tokens.reshape(-1, 1)], dim=1)
        sentences = at.sentences.repeat_interleave(count)
        begun, lengths = self._begun(history, sentences), self.lengths[sentences]
        lacking = lengths.where(begun < lengths, 0).sum(1)
        under_way = begun.where(begun < lengths, 0).amax(1)
        return (lacking - under_way).view_as(tokens)

    def _room(self, tokens: Int[Tensor, "N K"], at: Position) -> Int[Tensor, "N K"]:
        """How many tokens may follow each."""
        room = self.limits[at.sentences] - at.history.shape[1] - 1
        return torch.where(tokens == EOS, 0, room[:, None])

    def _begun(
        self, history: Int[Tensor, "N T"], sentences: Int[Tensor, "N"]
    ) -> Int[Tensor, "N P"]:
        """How much of each phrase there is: all, if it occurs; else what the history ends with."""
        tokens, lengths = self.tokens[sentences], self.lengths[sentences]
        longest = tokens.shape[2]
        around = F.pad(history, (longest, longest), value=NO_TOKEN)
        windows = around.unfold(1, longest, 1)[:, None]  # (N, 1, W, L)
        equal = (windows == tokens[:, :, None]) | (tokens[:, :, None] == FILL)
        begun = torch.where(equal.all(3).any(2), lengths, 0)
        for size in range(1, longest):
            tail = around[:, None, -longest - size : -longest]  # (N, 1, size)
            partly = (tail == tokens[:, :, :size]).all(2) & (size < lengths)
            begun = torch.where(partly & (begun < lengths), size, begun)
        return begun


def in_turns(
    totals: Float[Tensor, "B M"], banks: Int[Tensor, "B M"], count: int
) -> Int[Tensor, "B m"]:
    """Which candidates get the `count` places: the best of each bank in turn, the fullest first.

    Every bank has the same number of places, and those a bank cannot fill are the others'.
    """
    order = totals.argsort(dim=1, descending=True, stable=True)
    sorted_banks = banks.gather(1, order)
    one_hot = F.one_hot(sorted_banks)  # (B, M, banks)
    turn = (one_hot.cumsum(1) * one_hot).sum(2)  # the first of its bank, the second …
    keys = turn * one_hot.shape[2] + sorted_banks
    dead = totals.gather(1, order).isneginf()
    keys = keys.masked_fill(dead, torch.iinfo(keys.dtype).max)
    return order.gather(1, keys.argsort(dim=1, stable=True)[:, :count])
