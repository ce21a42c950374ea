"""Positions tell a model without recurrence the order of words: beside them or in the score."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from translate.attention.cache import Number
from translate.attention.dot_product import scaled_scores
from translate.errors import UserError


def sinusoidal(start: Number, length: int, like: Float[Tensor, "*B D"]) -> Float[Tensor, "T D"]:
    """Positions start … start+length-1 (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))
    """
    d_model = like.shape[-1]
    # float32 at least: bf16 cannot tell neighbours apart from position 256 on
    wide = torch.promote_types(like.dtype, torch.float32)
    position = start + torch.arange(length, device=like.device, dtype=wide)
    even = torch.arange(0, d_model, 2, device=like.device, dtype=wide)
    angle = position[:, None] * torch.exp(even * (-math.log(10_000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model].to(like.dtype)


class Computed(nn.Module, ABC):
    """A module with numbers that follow from its options, computed anew in each type and device.

    Converted, numbers that were once rounded to bf16 would stay so in float32.
    """

    @abstractmethod
    def compute(self) -> None:
        """Fill the buffers, which have their type and device."""

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.compute()
        return self


TABULATED = 512  # positions whose waves are computed once


class Waves(Computed):
    """`sinusoidal`, with a table: a decoding step has no time for a dozen operations."""

    table: Float[Tensor, "P D"]

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.empty(TABULATED, d_model), persistent=False)
        self.compute()

    def compute(self) -> None:
        # on meta PyTorch would load its compiler, which takes a second, for no values
        if not self.table.is_meta:
            self.table = sinusoidal(0, TABULATED, self.table)

    def forward(
        self, start: Number, length: int, like: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "T D"]:
        # a graph has no branches, so it has the formula, which knows no end
        graph = torch.compiler.is_exporting() or isinstance(start, Tensor)
        if graph or start + length > TABULATED:
            return sinusoidal(start, length, like)
        return self.table[start : start + length].to(like.dtype)


class Positions(nn.Module, ABC):
    """A vector for each position, added to the words of a sentence."""

    max_length: int | None = None  # of a sentence; None: any

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "B T D"], start: Number = 0
    ) -> Float[Tensor, "B T D"]:
        """The words from position `start` on."""


class SinusoidalPositions(Positions):
    """Fixed waves, one of each frequency; defined for any length."""

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.waves = Waves(d_model=d_model)

    def forward(
        self, embedded: Float[Tensor, "B T D"], start: Number = 0
    ) -> Float[Tensor, "B T D"]:
        waves: Tensor = self.waves(start, embedded.shape[-2], embedded)
        return embedded + waves


class LearnedPositions(Positions):
    """Learned vectors, one for each position (Gehring et al. 2017), up to `max_positions`."""

    def __init__(self, *, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.max_length = max_positions
        self.table = nn.Parameter(torch.randn(max_positions, d_model) * d_model**-0.5)

    def forward(
        self, embedded: Float[Tensor, "B T D"], start: Number = 0
    ) -> Float[Tensor, "B T D"]:
        if isinstance(start, Tensor):
            here = start + torch.arange(embedded.shape[-2], device=start.device)
            return embedded + self.table[here]
        end = start + embedded.shape[-2]
        if end > len(self.table):
            raise UserError(
                f"a sentence of {end} pieces is longer than the {len(self.table)} learned "
                "positions of this model (model.max_positions): split the sentence"
            )
        return embedded + self.table[start:end]


class NoPositions(Positions):
    """No vectors: the order is lost, or enters inside the attention (rotary, relative, ALiBi)."""

    def forward(
        self, embedded: Float[Tensor, "B T D"], start: Number = 0
    ) -> Float[Tensor, "B T D"]:
        return embedded


def new_positions(kind: str, *, d_model: int, max_positions: int) -> Positions:
    """Make what `model.positions` adds to the words: nothing, where it acts in the attention."""
    if kind == "sinusoidal":
        return SinusoidalPositions(d_model=d_model)
    if kind == "learned":
        return LearnedPositions(d_model=d_model, max_positions=max_positions)
    return NoPositions()


def rotate(x: Float[Tensor, "B H T K"], wave: Float[Tensor, "#T K"]) -> Float[Tensor, "B H T K"]:
    """Rotary positions (Su et al. 2021, eq. 34): pair i of position p turns by p·10000^(-2i/K).

    The product of a rotated query and a rotated key depends on their distance, not on where they
    stand. `wave` is that of the positions (`sinusoidal`): sine and cosine of each pair's angle.
    """
    sine, cosine = wave[:, 0::2], wave[:, 1::2]
    if torch.compiler.is_compiling():  # a compiler joins these products, and knows no complex ones
        left, right = x[..., 0::2], x[..., 1::2]
        pairs = torch.stack((left * cosine - right * sine, left * sine + right * cosine), dim=-1)
        return pairs.flatten(-2)
    # one complex product is several times faster than four real ones of every other number
    wide = torch.promote_types(x.dtype, torch.float32)  # bfloat16 has no complex numbers
    pairs = x.to(wide).reshape(*x.shape[:-1], -1, 2)
    turned = torch.view_as_complex(pairs) * torch.complex(cosine.to(wide), sine.to(wide))
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


PairBias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # sentence, head, query, key → bias


class Relation(nn.Module, ABC):
    """A term of the score for the distance of a query and a key, before the softmax."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "B H T K"], distance: Int[Tensor, "*#pairs"]
    ) -> Float[Tensor, "#B H #T S"]:
        """The bias of each score; `distance` is the key's position less the query's.

        It is (T, S) where it is the same in all sentences, else (B, 1, T, S); T is 1 where all
        queries stand at one place.
        """

    @abstractmethod
    def of_pairs(self, query: Float[Tensor, "B H T K"]) -> PairBias:
        """The same biases, one at a time, as flex attention asks for them (flex.py)."""


class RelativeKeys(Relation):
    """Shaw et al. 2018, eq. 4:  e_ij = q_i (k_j + a^K_ij)ᵀ / √d_k,  a^K_ij = w_clip(j - i, m)

    Eq. 5 splits e_ij into q_i k_jᵀ/√d_k + q_i (a^K_ij)ᵀ/√d_k. This is the second term, which is
    added to the scores; a layer's heads share the w. The paper's a^V for the values are left out:
    it measures no gain from them beside a^K (its table 3). A decoder never looks ahead, so that its
    w of j > i stay as they were drawn.
    """

    def __init__(self, *, d_k: int, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.w = nn.Parameter(torch.randn(2 * max_distance + 1, d_k) * d_k**-0.5)

    def forward(
        self, query: Float[Tensor, "B H T K"], distance: Int[Tensor, "*#pairs"]
    ) -> Float[Tensor, "B H T S"]:
        scores = self.scores(query)
        return scores.gather(-1, self.which(distance).expand(*scores.shape[:-1], -1))

    def scores(self, query: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T W"]:
        """The scores of each query and each of the 2m + 1 distances."""
        return scaled_scores(query, self.w)

    def which(self, distance: Int[Tensor, "*pairs"]) -> Int[Tensor, "*pairs"]:
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def of_pairs(self, query: Float[Tensor, "B H T K"]) -> PairBias:
        scores = self.scores(query)
        # float32: its gradient is a sum over keys, made in this tensor
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return lambda b, h, q, k: scores[b, h, q, self.which(k - q)]


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8/H), 2^(-16/H) … 2^(-8) (Press et al. 2022, section 3).

    When H is no power of two: those of the power below it, then every other one of twice that
    power, as in the authors' code.
    """
    power = 2 ** (num_heads.bit_length() - 1)
    between = [2 ** (-8 * (2 * i + 1) / (2 * power)) for i in range(num_heads - power)]
    return [2 ** (-8 * (i + 1) / power) for i in range(power)] + between


class LinearBiases(Computed, Relation):
    """ALiBi, Press et al. 2022, section 3:  q_i · k_j / √d_k - m_h |i - j|

    The paper has a causal decoder, where j ≤ i. In the encoder both sides count alike, so that only
    </s> tells a sentence from its mirror image.
    """

    slopes: Float[Tensor, "H"]

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.empty(num_heads), persistent=False)
        self.compute()

    def compute(self) -> None:
        self.slopes = self.slopes.new_tensor(alibi_slopes(len(self.slopes)))

    def forward(
        self, query: Float[Tensor, "B H T K"], distance: Int[Tensor, "*#pairs"]
    ) -> Float[Tensor, "#B H #T S"]:
        return -self.slopes[None, :, None, None] * distance.abs()

    def of_pairs(self, query: Float[Tensor, "B H T K"]) -> PairBias:
        return lambda b, h, q, k: -self.slopes[h] * (k - q).abs()


def new_relation(kind: str, *, d_k: int, num_heads: int, max_distance: int) -> Relation | None:
    """Make what `model.positions` adds to the scores, if anything."""
    if kind == "relative":
        return RelativeKeys(d_k=d_k, max_distance=max_distance)
    return LinearBiases(num_heads=num_heads) if kind == "alibi" else None
