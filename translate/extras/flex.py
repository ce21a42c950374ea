"""FlexAttention (Dong et al. 2024): a pattern and a relation, compiled into one kernel.

PyTorch's flash kernels take neither. The other fused kernels take both as N × N numbers; here each
is a function of one query and one key, and blocks of keys that no query of a block sees are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from translate.attention.cache import KeysValues
from translate.attention.masks import both
from translate.attention.multi_head import FullAttention
from translate.attention.positions import Relation

DEVICES = {"cuda"}  # PyTorch has no backward pass of it for CPUs
PROGRAMS = 32  # that a run may compile: of either side, one block or more, one sentence or more


class FlexAttention:
    """Self-attention where `visible` shows the keys and `relation` adds to the scores."""

    def __init__(
        self,
        visible: Callable[[Tensor, Tensor], Tensor | None],
        *,
        causal: bool,
        relation: Relation | None,
    ) -> None:
        self.visible, self.causal, self.relation = visible, causal, relation
        self.block_masks: dict[tuple[int, torch.device], Any] = {}

    def serves(self, query: Tensor, *, training: bool) -> bool:
        """Training alone: a translation would wait for a compiler longer than it takes."""
        return training and query.device.type in DEVICES

    def __call__(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None,
    ) -> Float[Tensor, "B H T Kv"]:
        key = query.shape[2], query.device
        if key not in self.block_masks:
            self.block_masks[key] = self.block_mask(*key)
        return flex_attention(
            query, memory.keys, memory.values,
            self.score_mod(query, mask), self.block_masks[key],
        )  # fmt: skip

    def block_mask(self, length: int, device: torch.device) -> Any:
        """The blocks of keys that each block of queries meets; None: all meet all."""
        from torch.nn.attention.flex_attention import create_block_mask

        first = torch.zeros((), dtype=torch.long, device=device)
        if self.meets(first, first) is None:
            return None
        return create_block_mask(
            lambda b, h, q, k: self.meets(q, k), None, None, length, length, device=device
        )

    def meets(self, q: Tensor, k: Tensor) -> Any:
        """Tell whether query q sees key k, padding aside; None: every query sees every key."""
        return both(self.visible(q, k), k <= q if self.causal else None)

    def score_mod(
        self, query: Float[Tensor, "B H T K"], mask: Bool[Tensor, "B 1 1 T"] | None
    ) -> Callable[..., Tensor]:
        """The function that changes the score of query q and key k in head h of sentence b."""
        real = None if mask is None else mask[:, 0, 0]  # (B, S)
        bias = None if self.relation is None else self.relation.of_pairs(query)

        def changed(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            if bias is not None:
                score = score + bias(b, h, q, k)
            # here and not in the block mask, which then is that of all batches of a length
            return score if real is None else torch.where(real[b, k], score, -math.inf)

        return changed


def flex_attention(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G T K"],
    values: Float[Tensor, "B G T Kv"],
    score_mod: Callable[..., Tensor],
    block_mask: Any,
) -> Float[Tensor, "B H T Kv"]:
    """PyTorch's function of this name: compiled on CUDA, elsewhere as formulas."""
    inputs = query, keys, values
    if has_torch_function(inputs):  # whoever records calls sees this one, the compiler no recorder
        return handle_torch_function(flex_attention, inputs, *inputs, score_mod, block_mask)
    heads: Tensor = kernel(query.device.type)(
        *inputs, score_mod=score_mod, block_mask=block_mask,
        enable_gqa=query.shape[1] != keys.shape[1],
    )  # fmt: skip
    return heads


@cache
def kernel(device: str) -> Callable[..., Any]:
    """The function that computes it on a device; lengths are symbols in a program, not numbers."""
    from torch.nn.attention import flex_attention as flex

    if device not in DEVICES:
        return flex.flex_attention
    torch._dynamo.config.recompile_limit = PROGRAMS
    return torch.compile(flex.flex_attention, dynamic=True)


def with_flex(pattern: FullAttention) -> FullAttention:
    """Have the training of a pattern on CUDA computed by one kernel."""
    pattern.flex = FlexAttention(pattern.visible, causal=pattern.causal, relation=pattern.relation)
    return pattern
