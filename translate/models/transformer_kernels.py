"""Which of a Transformer's options the flash and flex kernels do not compute, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from translate.attention.flex import SMALLEST_HEAD


def why_no_flex_attention(options: Mapping[str, Any]) -> list[str]:
    """What model.flex_attention=true cannot compute, or flash attention computes better."""
    kind, positions = options["self_attention"], options["positions"]
    found = []
    if kind in ("linear", "fast_weights"):
        found.append(f"model.self_attention={kind} computes no scores")
    elif kind == "full" and positions not in ("relative", "alibi"):
        found.append(
            f"model.self_attention=full with model.positions={positions} already uses flash "
            "attention"
        )
    if options["attention_dropout"]:
        found.append(
            f"model.attention_dropout={options['attention_dropout']} needs the attention weights, "
            "which it never computes"
        )
    if (d_k := options["d_model"] // options["num_heads"]) < SMALLEST_HEAD:
        found.append(
            f"a head has {d_k} dimensions (model.d_model / model.num_heads), but it needs "
            f"{SMALLEST_HEAD} or more"
        )
    return [f"model.flex_attention = true, but {reason}: set it to false" for reason in found]


def why_padded(
    self_attention: str, positions: str, attention_dropout: float, d_k: int, d_v: int
) -> str | None:
    """What the attention of packed sentences, one flash kernel, cannot compute."""
    if self_attention != "full":
        return f"model.self_attention={self_attention} is a pattern within a single sentence"
    if positions in ("relative", "alibi"):
        return (
            f"model.positions={positions} changes the scores, which flash attention does not expose"
        )
    if attention_dropout:
        return (
            f"model.attention_dropout={attention_dropout}, which its flash kernel does not support"
        )
    if d_k % 8 or d_k > 256:
        return (
            f"a head has {d_k} dimensions (model.d_model / model.num_heads), but flash attention "
            "takes multiples of 8 up to 256"
        )
    if d_v != d_k:
        return f"model.d_v={d_v}, but flash attention needs values of the same size as keys, {d_k}"
    return None
