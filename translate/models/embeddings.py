"""Embeddings shared between source, target and output (Press & Wolf 2017)."""

from __future__ import annotations

from typing import Literal

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq

Tied = Literal["all", "decoder", "none"]
TIED = "embeddings that are one matrix: all, decoder (its output and target embeddings) or none"


def tie(model: Seq2Seq, tied: Tied) -> None:
    """Make the output's matrix the target embeddings (`decoder`), and the source's too (`all`).

    Raises:
        UserError: only a joint vocabulary can have joint embeddings.
    """
    source, target = model.source_vocab_size, model.target_vocab_size
    if tied == "all" and source != target:
        raise UserError(
            f"source and target vocabularies differ ({source} and {target} pieces), so their "
            "embeddings cannot be tied: model.tied_embeddings=decoder or tokenizer.joint=true"
        )
    if tied in ("all", "decoder"):
        model.output.weight = model.target_embedding.weight
    if tied == "all":
        model.source_embedding.weight = model.target_embedding.weight
