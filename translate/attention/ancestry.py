"""Which of the tokens that a sentence's hypotheses have written are whose past."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.masks import added_to_scores

Number = int | Int[Tensor, ""]  # a tensor where one program is to serve every number


def number_on(device: torch.device, number: Number) -> Int[Tensor, ""]:
    """The number as a tensor, without waiting for the device."""
    return torch.zeros((), dtype=torch.long, device=device) + number


@dataclass(frozen=True)
class Ancestry:
    """Which tokens that lie in the caches are each hypothesis' own past.

    The hypotheses of a sentence share one cache, with a column for every token that any of them
    wrote. When a beam is reordered nothing in the caches moves: this table alone does, and
    self-attention adds it to its scores. A beam of two, both of which begin with a and b, and go on
    with c and c':

        column    a   b   b'  c   c'     in the order in which they were written
        stands    0   1   1   2   2
        bias      0   0  -∞   0  -∞      of the hypothesis a b c
                  0   0  -∞  -∞   0      of the hypothesis a b c'
    """

    length: int  # tokens of every hypothesis
    # where in its hypothesis the token of each column stands; None: token t in column t
    stands: Int[Tensor, "B C"] | None = None
    bias: Float[Tensor, "B 1 n C"] | None = None  # 0: its own, -inf: not; None: all are its own

    def positions(
        self, keys: Float[Tensor, "B G C K"]
    ) -> Int[Tensor, "C"] | Int[Tensor, "B 1 1 C"]:
        """Where in its hypothesis the token of each column of these keys stands."""
        if self.stands is None:
            return torch.arange(keys.shape[2], device=keys.device)
        return self.stands[:, None, None]

    def last(self, device: torch.device) -> Int[Tensor, "1"]:
        """The position of the last token."""
        return number_on(device, self.length - 1)[None]

    def grown(self, sentences: int, beam: int, like: Float[Tensor, "..."]) -> Ancestry:
        """The ancestry with a further token of every hypothesis, which that one alone sees.

        `bias` is of `like`'s type and device.
        """
        if beam == 1 and self.bias is None:
            return Ancestry(self.length + 1)
        own = torch.eye(beam, dtype=torch.bool, device=like.device)
        new = added_to_scores(own, like.dtype).expand(sentences, 1, -1, -1)
        stands, before = self.stands, self.bias
        if stands is None:
            stands = torch.arange(self.length, device=like.device).expand(sentences, -1)
        if before is None:
            before = like.new_zeros(sentences, 1, beam, self.length)
        stands = F.pad(stands, (0, beam), value=self.length)
        return Ancestry(self.length + 1, stands, torch.cat((before, new), dim=3))

    def select(self, hypotheses: Int[Tensor, "M"]) -> Ancestry:
        """The past of these rows, as many of each sentence."""
        if self.bias is None:
            return self
        rows = self.bias.flatten(0, 2).index_select(0, hypotheses)
        return replace(self, bias=rows.view(len(self.bias), 1, -1, rows.shape[1]))

    @property
    def columns(self) -> int:
        """Of the tables: tokens that some hypothesis wrote."""
        return self.length if self.stands is None else self.stands.shape[1]

    def fixed(self, room: int, beam: int, like: Float[Tensor, "B ..."]) -> FixedAncestry:
        """The same past, with columns for further tokens, `room` in all."""
        used, device = self.columns, like.device
        stands, bias = self.stands, self.bias
        if stands is None:
            stands = torch.arange(used, device=device).expand(len(like), -1)
        if bias is None:
            bias = like.new_zeros(len(like), 1, beam, used)
        return FixedAncestry(
            length=number_on(device, self.length),
            stands=F.pad(stands, (0, room - used)),
            bias=F.pad(bias, (0, room - used), value=-math.inf),
            used=number_on(device, used),
            before=used - beam * self.length,
            plain=beam == 1 and self.bias is None,
        )

    def settled(self, length: int) -> Ancestry:
        """Of a `fixed` ancestry after `length` tokens, the tables that are written."""
        raise TypeError("an ancestry that is not fixed has nothing to settle")

    def keep(self, sentences: Int[Tensor, "C"]) -> tuple[Ancestry, Int[Tensor, "C c"] | None]:
        """The past of these sentences' hypotheses, and the columns that it is in; None: all.

        Columns that no hypothesis sees are left out, as many as every sentence has. On a GPU none
        are: to count them would be to wait for it.
        """
        if self.stands is None or self.bias is None:
            return self, None
        stands, bias = (x.index_select(0, sentences) for x in (self.stands, self.bias))
        if bias.device.type != "cpu":
            return replace(self, stands=stands, bias=bias), None
        seen = (bias == 0).any(dim=2)[:, 0]  # (C, columns)
        most = int(seen.sum(1).max())
        columns = seen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        bias = bias.gather(3, columns[:, None, None].expand(*bias.shape[:3], -1))
        return replace(self, stands=stands.gather(1, columns), bias=bias), columns


@dataclass(frozen=True, kw_only=True)
class FixedAncestry(Ancestry):
    """An ancestry whose tables keep their shapes: they have columns for tokens to come.

    Nobody sees these before they are written.
    """

    length: Int[Tensor, ""]  # type: ignore[assignment]  # for positions it may be either
    stands: Int[Tensor, "B Room"]
    bias: Float[Tensor, "B 1 n Room"]
    used: Int[Tensor, ""]  # columns that are written
    before: int  # used columns less n · length: positive after wider beams, negative after narrower
    plain: bool  # token t is in column t, of one hypothesis: no table is needed

    def grown(self, sentences: int, beam: int, like: Float[Tensor, "..."]) -> FixedAncestry:
        columns = self.used + torch.arange(beam, device=like.device)
        own = torch.eye(beam, dtype=torch.bool, device=like.device)
        own = added_to_scores(own, self.bias.dtype)
        return replace(
            self,
            length=self.length + 1,
            stands=self.stands.index_copy(1, columns, self.length.expand(sentences, beam)),
            bias=self.bias.index_copy(3, columns, own.expand(sentences, 1, -1, -1)),
            used=self.used + beam,
        )

    def keep(self, sentences: Int[Tensor, "C"]) -> tuple[Ancestry, Int[Tensor, "C c"] | None]:
        raise TypeError("a fixed ancestry keeps all its sentences: settle it first")

    def settled(self, length: int) -> Ancestry:
        if self.plain:
            return Ancestry(length)
        used = self.before + self.bias.shape[2] * length
        return Ancestry(length, self.stands[:, :used], self.bias[..., :used])
