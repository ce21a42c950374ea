"""Phrases that a translation must contain: dynamic beam allocation (Post and Vilar 2018).

A beam would drop a hypothesis that begins a phrase for a likelier one that does not. So hypotheses
with equally many phrase tokens form a bank, and the banks share the places of the beam evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.search.constraints import FILL, Constraint, joined, padded
from translate.search.rules import Position, Rule, apply, forbid
from translate.search.scoring import Candidates, only_end
from translate.vocabulary import EOS, PAD

NO_TOKEN = -2  # beside the history


class Phrases:
    """What each sentence's translation must contain, and how far a hypothesis has come.

    Args:
        bans: the rules that phrases keep to as well; no other does when a phrase is to be written.
    """

    def __init__(
        self, constraints: Sequence[Constraint], limits: Int[Tensor, "B"], bans: Sequence[Rule] = ()
    ) -> None:
        wanted = [
            list(dict.fromkeys(filter(None, constraint.phrases))) for constraint in constraints
        ]
        self.tokens = padded(wanted, limits.device)  # (B, P, L)
        self.lengths = (self.tokens != FILL).sum(2)  # (B, P)
        last = padded([[phrase[-1:] for phrase in some] for some in wanted], limits.device)
        self.beginnings, self.onward = joined(constraints, last[:, :, 0])  # (B, P), (V,)
        given = [len(constraint.prefix) for constraint in constraints]
        self.given = torch.tensor(given, device=limits.device)
        self.limits = limits
        self.bans = bans

    def candidates(self, found: Candidates, at: Position) -> tuple[Candidates, Int[Tensor, "N K"]]:
        """`found`, with the next token of every missing phrase, without what can never be whole.

        Behind the prefix no hypothesis ends with a phrase missing, and none goes on so that the
        tokens which are missing would no longer fit under its length limit. How many are, comes
        second: the bank. What is banned is no candidate either, unless nothing else is left.
        """
        in_prefix = at.history.shape[1] < self.given[at.sentences]
        following = self._next_of_missing(at, in_prefix)
        # what is among the phrases' tokens is no candidate a second time
        twice = (found.tokens[:, :, None] == following[:, None]).any(2)
        ranks = found.ranks.masked_fill(twice, -math.inf)
        tokens = torch.cat([found.tokens, following], dim=1)
        ranks = torch.cat([ranks, at.log_probs.gather(1, following)], dim=1)
        missing_then = self._missing(tokens, at)
        room = self.limits[at.sentences] - at.history.shape[1] - 1  # for tokens after the next
        # </s> may be among them: the rules forbid it, but leave it where they forbid all else too
        lost = torch.where(tokens == EOS, missing_then > 0, missing_then > room[:, None])
        ranks = ranks.masked_fill(lost & ~in_prefix[:, None], -math.inf)
        banned = apply(self.bans, at).gather(1, following).isneginf()
        banned = F.pad(banned, (found.tokens.shape[1], 0))  # from `found` the rules kept it already
        allowed = ranks.masked_fill(banned, -math.inf)
        ranks = torch.where(allowed.isneginf().all(1, keepdim=True), ranks, allowed)
        # nothing is missing, but there would be no room to write a last word anew that went on
        ends = ranks.isneginf().all(1)
        together = only_end(tokens, ranks, at.log_probs, ends)
        return together, missing_then.masked_fill(ends[:, None], 0)

    def _next_of_missing(self, at: Position, in_prefix: Bool[Tensor, "N"]) -> Int[Tensor, "N P"]:
        """The next token of each missing phrase, each token once; elsewhere <pad>."""
        begun, _ = self._begun(at.history, at.sentences)
        missing = begun < self.lengths[at.sentences]
        following = self._following(begun, at.sentences)
        following = following.where(missing & ~in_prefix[:, None], PAD)
        alike = following[:, :, None] == following[:, None]  # (N, P, P): two may go on alike
        return following.masked_fill(alike.tril(-1).any(2), PAD)

    def unfinished(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        """The rule: no </s> while a phrase is missing."""
        begun, _ = self._begun(at.history, at.sentences)
        missing = (begun < self.lengths[at.sentences]).any(1)
        return forbid(ranks, torch.where(missing, EOS, PAD)[:, None])

    def _missing(self, tokens: Int[Tensor, "N K"], at: Position) -> Int[Tensor, "N K"]:
        """How many tokens each extended hypothesis still lacks, were no two phrases to overlap."""
        count = tokens.shape[1]
        history = at.history.repeat_interleave(count, dim=0)
        history = torch.cat([history, tokens.reshape(-1, 1)], dim=1)
        sentences = at.sentences.repeat_interleave(count)
        (begun, gained), lengths = self._begun(history, sentences), self.lengths[sentences]
        lacking = lengths.where(begun < lengths, 0).sum(1)
        return (lacking - gained.amax(1)).view_as(tokens)

    def _following(
        self, begun: Int[Tensor, "N P"], sentences: Int[Tensor, "N"]
    ) -> Int[Tensor, "N P"]:
        """The token after the first `begun` of each phrase; any where there is none."""
        tokens = self.tokens[sentences]
        return tokens.gather(2, begun.clamp(max=tokens.shape[2] - 1)[:, :, None])[:, :, 0]

    def _begun(
        self, history: Int[Tensor, "N T"], sentences: Int[Tensor, "N"]
    ) -> tuple[Int[Tensor, "N P"], Int[Tensor, "N P"]]:
        """How many tokens of each phrase are written, and what writing on with it would gain.

        All of a phrase that occurs; of another, the longest beginning that the history ends with. A
        whole phrase at the very end may yet be undone: if the next token of another phrase made its
        last word longer, its tokens would be lost. So the beginning of that other phrase counts
        only where it is longer than what would be lost, and gains only the difference. A phrase
        that is whole gains 0.
        """
        tokens, lengths = self.tokens[sentences], self.lengths[sentences]
        whole, at_end = self._occurring(history, sentences)
        begun = torch.where(whole | at_end, lengths, 0)
        longest = tokens.shape[2]
        before = F.pad(history, (longest, 0), value=NO_TOKEN)
        for size in range(1, longest):
            tail = before[:, None, -size:]  # (N, 1, size)
            partly = (tail == tokens[:, :, :size]).all(2)  # never of shorter phrases: FILL
            begun = torch.where(partly & (begun < lengths), size, begun)
        missing = begun < lengths
        at_risk = lengths.where(at_end & ~whole & self.beginnings[sentences], 0).sum(1)
        goes_on = self._onward(self._following(begun, sentences))
        gained = (begun - at_risk[:, None] * goes_on).where(missing, 0)
        return begun.where(~missing | (gained > 0), 0), gained.clamp(min=0)

    def _occurring(
        self, history: Int[Tensor, "N T"], sentences: Int[Tensor, "N"]
    ) -> tuple[Bool[Tensor, "N P"], Bool[Tensor, "N P"]]:
        """Which phrases occur before the end, where their last words do not go on; and at it."""
        tokens, lengths = self.tokens[sentences], self.lengths[sentences]
        longest = tokens.shape[2]
        beside = F.pad(history, (longest, longest + 1), value=NO_TOKEN)
        windows = beside.unfold(1, longest + 1, 1)  # (N, W, L + 1)
        equal = (windows[:, None, :, :-1] == tokens[:, :, None]) | (tokens[:, :, None] == FILL)
        there = equal.all(3)  # (N, P, W)
        places = lengths[:, None].expand(-1, windows.shape[1], -1)
        after = windows.gather(2, places).mT  # (N, P, W): the token behind the phrase
        longer = self.beginnings[sentences][:, :, None] & self._onward(after)
        at_end = after == NO_TOKEN
        return (there & ~at_end & ~longer).any(2), (there & at_end).any(2)

    def _onward(self, tokens: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Which tokens go on with a word; none of those that are no tokens does."""
        inside = tokens.clamp(0, len(self.onward) - 1)
        return self.onward[inside] & (tokens == inside)


def in_turns(
    totals: Float[Tensor, "B M"], banks: Int[Tensor, "B M"], count: int
) -> Int[Tensor, "B m"]:
    """Which candidates get the `count` places: the best of each bank in turn, the fullest first.

    A bank's number is how many tokens it lacks. Every bank has the same number of places, and those
    that it cannot fill are the others'.
    """
    order = totals.argsort(dim=1, descending=True, stable=True)
    sorted_banks = banks.gather(1, order)
    one_hot = F.one_hot(sorted_banks)  # (B, M, banks)
    turn = (one_hot.cumsum(1) * one_hot).sum(2)  # the first of its bank, the second …
    keys = turn * one_hot.shape[2] + sorted_banks
    dead = totals.gather(1, order).isneginf()
    keys = keys.masked_fill(dead, torch.iinfo(keys.dtype).max)
    return order.gather(1, keys.argsort(dim=1, stable=True)[:, :count])
