"""Scaled dot-product attention: the formula, and the fused kernel that computes the same.

Vaswani et al. 2017, eq. 1:  Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

A `bias` is added to the scores before the softmax: what positions are worth (positions.py), or a
mask that was made once for many calls (`added_to_scores`), -inf where attention may not look.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from translate.attention.masks import both, causal_mask


def softmax_where(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."] | None
) -> Float[Tensor, "*B T S"]:
    """Softmax over the keys that may be seen; a row that may see none is all zeros, never NaN."""
    if mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)  # an empty row's softmax is NaN; its weights are not


def repeat_groups(x: Float[Tensor, "B G S K"], num_heads: int) -> Float[Tensor, "B H S K"]:
    """Each of G key or value heads, for the H/G query heads that share it (Ainslie et al. 2023)."""
    shared_by = num_heads // x.shape[1]
    return x if shared_by == 1 else x.repeat_interleave(shared_by, dim=1)  # which copies


def scaled_scores(
    query: Float[Tensor, "*rows T K"], keys: Float[Tensor, "*#rows S K"]
) -> Float[Tensor, "*rows T S"]:
    """Q Kᵀ / √d_k"""
    # divided first: products of float16 may be too large for it
    return query / math.sqrt(query.shape[-1]) @ keys.transpose(-2, -1)


def readable_attention(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S Kv"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "B H T Kv"], Float[Tensor, "B H T S"]]:
    """The equation, term for term, with the weights that fused kernels do not return."""
    keys, values = (repeat_groups(x, query.shape[1]) for x in (keys, values))
    if causal:
        mask = both(mask, causal_mask(query.shape[-2], query.device))
    scores = scaled_scores(query, keys)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
        mask = both(mask, bias > -math.inf)
    weights = softmax_where(scores, mask)
    return F.dropout(weights, dropout, training=dropout > 0) @ values, weights


def fused_attention(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S Kv"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "..."] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Kv"]:
    """The same result from PyTorch's fused kernels, O(S) memory (Dao et al. 2022)."""
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # float32: the bf16 backward of the CPU kernel is several times slower on short sentences
        query, keys, values = query.float(), keys.float(), values.float()
        with torch.autocast("cpu", enabled=False):
            return fused_attention(
                query, keys, values, mask=mask, causal=causal, bias=bias, dropout=dropout
            )
    if causal and (mask is not None or bias is not None):  # the kernels take a flag or a mask
        mask, causal = both(mask, causal_mask(query.shape[-2], query.device)), False
    added = mask
    if bias is not None:
        bias = bias.to(query.dtype)
        added = bias if mask is None else torch.where(mask, bias, -math.inf)
    return F.scaled_dot_product_attention(
        query, keys, values, attn_mask=added, is_causal=causal, dropout_p=dropout,
        enable_gqa=query.shape[1] != keys.shape[1],
    )  # fmt: skip


def step_attention(
    query: Float[Tensor, "B H n K"],
    keys: Float[Tensor, "B G S K"],
    values: Float[Tensor, "B G S Kv"],
    *,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H n Kv"]:
    """`fused_attention` of a decoding step: few queries, each of which sees a key at least.

    The kernels of CPUs are made for many. Plain products are faster of one query, and of any few in
    bf16, if keys and values lie in one piece each. Graphs are for other devices too.
    """
    few = query.shape[2] == 1 or query.dtype == torch.bfloat16
    on_cpu = query.device.type == "cpu" and not torch.compiler.is_compiling()
    grouped = query.shape[1] != keys.shape[1]
    if grouped or not (few and on_cpu):
        return fused_attention(query, keys, values, bias=bias)
    scores = scaled_scores(query, keys)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores.softmax(dim=-1) @ values


def leave_out_cudnn() -> None:
    """Let this process compute no attention by cuDNN, which plans every new shape anew.

    PyTorch prefers it on NVIDIA's Hopper and later. Batches come in ever new widths, and decoding
    reads a key more at each step: planning takes longer than the attention.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
