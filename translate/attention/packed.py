"""Attention over sentences laid end to end: no padding, and no mask that would lose flash.

    tokens    a0 a1 a2 b0 b1 c0 …     (M, H, K): the sentences of a batch, one after the other
    starts    0        3     5  …     (B + 1): where each begins, and at last where the last ends

On CUDA in half precision `torch.nn.attention.varlen.varlen_attn` computes all of them in one flash
kernel (Dao et al. 2022). It knows neither a bias nor dropout.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from translate.attention.cache import KeysValues
from translate.attention.dot_product import fused_attention

HALF = (torch.float16, torch.bfloat16)  # what the flash kernel multiplies
EVERYWHERE, CAUSAL = (-1, -1), (-1, 0)  # how far to the left and to the right; -1 is to the end


@dataclass(frozen=True)
class Packing:
    """The way in which sentences lie end to end in a sequence of tokens."""

    lengths: Int[Tensor, "B"]
    longest: int  # of the lengths; numbers, so that the device need not be waited for
    total: int

    @cached_property
    def starts(self) -> Int[Tensor, "C"]:
        """The place where each sentence begins, and at last where the last ends (C = B + 1).

        Cumulative lengths, 0 first, in the integers that the kernel takes.
        """
        total = self.lengths.cumsum(0, dtype=torch.int32)
        return torch.cat((total.new_zeros(1), total))

    @cached_property
    def positions(self) -> Int[Tensor, "M"]:
        """The position of each token in its sentence."""
        first = self._of_tokens(self.starts[:-1])
        return torch.arange(self.total, device=first.device) - first

    def pack(self, padded: Shaped[Tensor, "B T *D"]) -> Shaped[Tensor, "M *D"]:
        """The tokens of a padded batch, T = `longest`, without its padding."""
        rows = torch.arange(len(self.lengths), device=self.lengths.device)
        places = self._of_tokens(rows) * self.longest + self.positions
        # not by a mask: a GPU would have to be asked how many it holds
        return padded.flatten(0, 1).index_select(0, places)

    def _of_tokens(self, of_sentences: Int[Tensor, "B"]) -> Int[Tensor, "M"]:
        return torch.repeat_interleave(of_sentences, self.lengths, output_size=self.total)


@dataclass(frozen=True)
class SameSentence:
    """Packed sequences in which a query sees the keys of its own sentence."""

    queries: Packing
    keys: Packing

    def attention(
        self, query: Float[Tensor, "1 H M K"], memory: KeysValues, *, causal: bool
    ) -> Float[Tensor, "1 H M Kv"]:
        """Attention of every sentence's queries to its own keys; all are one row of a batch.

        `causal`: query t sees keys 0 … t; for self-attention, where both have the same lengths.
        """
        # (M, heads, K)
        query, keys, values = (x[0].transpose(0, 1) for x in (query, memory.keys, memory.values))
        if query.device.type == "cuda" and query.dtype in HALF:
            from torch.nn.attention.varlen import varlen_attn

            heads = flash(varlen_attn, query, keys, values, self, causal=causal)
        else:
            heads = sentence_by_sentence(query, keys, values, self, causal=causal)
        return heads.transpose(0, 1)[None]


def sentence_by_sentence(
    query: Float[Tensor, "M H K"],
    keys: Float[Tensor, "P G K"],
    values: Float[Tensor, "P G K"],
    sentences: SameSentence,
    *,
    causal: bool,
) -> Float[Tensor, "M H K"]:
    """The readable twin: each sentence by itself."""
    queries = torch.split(query, sentences.queries.lengths.tolist())
    of_keys = sentences.keys.lengths.tolist()
    key_parts, value_parts = (torch.split(packed, of_keys) for packed in (keys, values))
    contexts = []
    for sentence in zip(queries, key_parts, value_parts, strict=True):
        q, k, v = (part.transpose(0, 1)[None] for part in sentence)  # (1, heads, T, K)
        contexts.append(fused_attention(q, k, v, causal=causal)[0].transpose(0, 1))  # (T, H, K)
    return torch.cat(contexts)


def flash(
    varlen_attn: Callable[..., Any],
    query: Float[Tensor, "M H K"],
    keys: Float[Tensor, "P G K"],
    values: Float[Tensor, "P G K"],
    sentences: SameSentence,
    *,
    causal: bool,
) -> Float[Tensor, "M H K"]:
    """One way to call `varlen_attn`, whose signature changes from one PyTorch to the next.

    torch 2.10 has `is_causal`; later ones have `window_size` in its place, and `enable_gqa`,
    without which the key/value heads must be as many as the query heads.
    """
    known = _parameters_of(varlen_attn)
    options: dict[str, Any] = {}
    if "window_size" in known:
        options["window_size"] = CAUSAL if causal else EVERYWHERE
    else:
        options["is_causal"] = causal
    group = query.shape[1] // keys.shape[1]
    if "enable_gqa" in known:
        options["enable_gqa"] = group > 1
    else:
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    of_queries, of_keys = sentences.queries, sentences.keys
    context: Tensor = varlen_attn(
        query, keys, values,
        of_queries.starts, of_keys.starts, of_queries.longest, of_keys.longest, **options,
    )  # fmt: skip
    return context


@cache
def _parameters_of(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)
