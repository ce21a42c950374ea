"""Embeddings shared between source, target and output (Press & Wolf 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from translate.models.seq2seq import Seq2Seq

Tied = Literal["all", "decoder", "none"]


def tie(model: Seq2Seq, tied: Tied) -> None:
    """Make the output's matrix the target embeddings (`decoder`), and the source's too (`all`)."""
    if tied in ("all", "decoder"):
        model.output.weight = model.target_embedding.weight
    if tied == "all":
        model.source_embedding.weight = model.target_embedding.weight


def tying_problems(options: Mapping[str, Any]) -> list[str]:
    """Only a joint vocabulary can have joint embeddings."""
    sizes = options.get("source_vocab_size"), options.get("target_vocab_size")
    if options["tied_embeddings"] != "all" or sizes[0] == sizes[1]:
        return []
    return [
        f"source and target vocabularies differ ({sizes[0]} and {sizes[1]} pieces), so "
        "their embeddings cannot be tied: model.tied_embeddings=decoder or "
        "tokenizer.joint=true"
    ]
