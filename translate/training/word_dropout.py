"""Word dropout: the model must do without some words of a sentence.

Gal & Ghahramani 2016, section 4.2: what is dropped is a word, and so it is at all its places in the
sentence. It is read as <unk> rather than as a zero vector: no model has to know of it, and
<unk> learns to stand for some word, which is what it has to do in translation.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from translate.data.batching import Batch
from translate.vocabulary import EOS, UNK


def drop_words(batch: Batch, rate: float, *, tags: int = 0) -> Batch:
    """The batch with words of the source, and of the target as it is read, replaced.

    The `tags` pieces after </s> in the source vocabulary say into which language: they stay.
    """
    if not rate:
        return batch
    return batch._replace(
        source=_dropped(batch.source, rate, EOS + tags),
        target_in=_dropped(batch.target_in, rate, EOS),
    )


def _dropped(tokens: Int[Tensor, "B T"], rate: float, last_special: int) -> Int[Tensor, "B T"]:
    same = tokens[:, :, None] == tokens[:, None, :]
    first = same.to(torch.uint8).argmax(dim=2)  # (B, T): where the same word stands first
    drawn = torch.rand(tokens.shape, device=tokens.device).gather(1, first)
    special = tokens <= last_special  # <pad>, <unk>, <s>, </s>, tags
    return tokens.masked_fill((drawn < rate) & ~special, UNK)
