"""Several runs as one: their models side by side, behind one pair of tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from translate.errors import UserError
from translate.inference.bundle import Bundle
from translate.search.ensemble import Ensemble


def together(bundles: Sequence[tuple[str, Bundle]]) -> Bundle:
    """The bundle of an ensemble, in everything but the model that of the first run.

    Args:
        bundles: runs and what they hold.

    Raises:
        UserError: runs with different tokenizers of a side: their pieces mean different words, and
            a sentence is cut into pieces once, for all of them. Or runs of other languages without
            a tag that says which is meant: their joint tokenizer may be the same.
    """
    (first, one), *others = bundles
    for run, other in others:
        if one.config.tag is None and one.config.languages != other.config.languages:
            raise UserError(
                f"{run} translates {' to '.join(other.config.languages)}, but {first} translates "
                f"{' to '.join(one.config.languages)}: the runs of an ensemble must translate "
                "between the same languages"
            )
        for side in ("source", "target"):
            hashes = [bundle.config.tokenizers[side] for bundle in (one, other)]
            if hashes[0] != hashes[1]:
                raise UserError(
                    f"{first} and {run} have different {side} tokenizers (SHA-256 {hashes[0]} and "
                    f"{hashes[1]}), but the runs of an ensemble must share their tokenizers: "
                    "train them with the same data and tokenizer"
                )
    return replace(one, model=Ensemble([bundle.model for _, bundle in bundles]).eval())
