"""Scaled dot-product attention: the formula, and the fused kernel that computes the same.

Vaswani et al. 2017, eq. 1:  Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from translate.attention.masks import causal_mask


def softmax_where(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."] | None
) -> Float[Tensor, "*B T S"]:
    """Softmax over the keys that may be seen; a row that may see none is all zeros, never NaN."""
    if mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)  # an empty row's softmax is NaN; its weights are not


def readable_attention(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S Kv"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "B H T Kv"], Float[Tensor, "B H T S"]]:
    """The equation, term for term, with the weights that fused kernels do not return.

    G key/value heads serve H query heads, H/G each (grouped-query attention, Ainslie et al. 2023).
    """
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    if causal:
        mask = causal_mask(query.shape[-2], query.device)
    scores = query @ keys.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = softmax_where(scores, mask)
    return F.dropout(weights, dropout, training=dropout > 0) @ values, weights


def fused_attention(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S Kv"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Kv"]:
    """The same result from PyTorch's fused kernels, O(S) memory (Dao et al. 2022)."""
    grouped = query.shape[1] != keys.shape[1]
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # float32: the bf16 backward of the CPU kernel is several times slower on short sentences
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(
                query.float(), keys.float(), values.float(),
                attn_mask=mask, is_causal=causal, dropout_p=dropout, enable_gqa=grouped,
            )  # fmt: skip
    return F.scaled_dot_product_attention(
        query, keys, values,
        attn_mask=mask, is_causal=causal, dropout_p=dropout, enable_gqa=grouped,
    )  # fmt: skip
