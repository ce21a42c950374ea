"""How a model without recurrence knows the order of words: beside the words or in the score."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from translate.errors import UserError


def sinusoidal(start: int, length: int, like: Float[Tensor, "*B D"]) -> Float[Tensor, "T D"]:
    """Positions start … start+length-1 (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))
    """
    d_model = like.shape[-1]
    position = torch.arange(start, start + length, device=like.device, dtype=torch.float32)
    even = torch.arange(0, d_model, 2, device=like.device, dtype=torch.float32)
    angle = position[:, None] * torch.exp(even * (-math.log(10_000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model].to(like.dtype)


class SinusoidalPositions(nn.Module):
    """Adds a fixed wave of each frequency; defined for any length."""

    def forward(self, embedded: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return embedded + sinusoidal(start, embedded.shape[-2], embedded)


class LearnedPositions(nn.Module):
    """Adds a learned vector per position (Gehring et al. 2017), up to `max_positions`."""

    def __init__(self, *, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_positions, d_model) * d_model**-0.5)

    def forward(self, embedded: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        end = start + embedded.shape[-2]
        if end > len(self.table):
            raise UserError(
                f"a sentence of {end} pieces is longer than the {len(self.table)} learned "
                "positions of this model (model.max_positions): split the sentence"
            )
        return embedded + self.table[start:end]


class NoPositions(nn.Module):
    """Adds nothing: the order is lost, or told by the attention itself (rotary)."""

    def forward(self, embedded: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return embedded


def rotate(x: Float[Tensor, "B H T K"], start: int = 0) -> Float[Tensor, "B H T K"]:
    """Rotary positions (Su et al. 2021, eq. 34): pair i of position p turns by p·10000^(-2i/K).

    The product of a rotated query and a rotated key depends on their distance alone.
    """
    wave = sinusoidal(start, x.shape[-2], x)  # (T, K): sine and cosine of each pair's angle
    sine, cosine = wave[:, 0::2], wave[:, 1::2]
    left, right = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((left * cosine - right * sine, left * sine + right * cosine), dim=-1)
    return turned.flatten(-2)
