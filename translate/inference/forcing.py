"""Teacher forcing: how likely a translation is, and where the model looks as it reads it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.inference.batches import by_length, each, padded
from translate.inference.translation import Score
from translate.models.head import NO_ATTENTION
from translate.models.seq2seq import Seq2Seq
from translate.search.hypothesis import NOT_FINITE
from translate.vocabulary import BOS, EOS, UNK
from translate.wording import counted


class TooLongError(UserError):
    """Some pairs are too long to be read at once.

    Attributes:
        indices: their places, counted from 0.
    """

    def __init__(self, lengths: dict[int, int], limit: int) -> None:
        first, *others = self.indices = list(lengths)
        also = f" (too long as well: {counted(len(others), 'line')})" if others else ""
        super().__init__(
            f"line {first + 1} has {lengths[first]} pieces on one side, more than the {limit} "
            f"that can be read at once{also}: split the sentence, or leave the pair out"
        )


def encoded_pairs(
    tokenizers: Tokenizers, sources: Iterable[str], targets: Iterable[str], *, limit: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of sources and targets, without `<s>` and `</s>`.

    Args:
        limit: the most pieces of a side.

    Raises:
        TooLongError: a side of a pair has more.
        UserError: not as many targets as sources.
    """
    source_ids = [tokenizers.source.encode(text) for text in each(sources)]
    target_ids = [tokenizers.target.encode(text) for text in each(targets)]
    if len(source_ids) != len(target_ids):
        raise UserError(
            f"{counted(len(source_ids), 'source')} but {counted(len(target_ids), 'target')}: line "
            "n of one must be the translation of line n of the other"
        )
    lengths = enumerate(max(map(len, pair)) for pair in zip(source_ids, target_ids, strict=True))
    if long := {i: n for i, n in lengths if n > limit}:
        raise TooLongError(long, limit)
    return source_ids, target_ids


class TeacherForcing:
    """Reading of whole targets at once, on the model's device; ids come without `<s>`, `</s>`."""

    def __init__(self, model: Seq2Seq, device: torch.device) -> None:
        self.model, self.device = model, device

    def scores(
        self, sources: list[list[int]], targets: list[list[int]], tokens_per_batch: int
    ) -> list[Score]:
        """Score each target, in batches of like length.

        Raises:
            UserError: a log-probability is not finite.
        """
        scores = [Score(0.0, 0, ())] * len(sources)
        longest = [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]
        for batch in by_length(longest, tokens_per_batch):
            sides = ([ids[i] for i in batch] for ids in (sources, targets))
            for i, log_probs in zip(batch, self.log_probs(*sides), strict=True):
                if not all(map(math.isfinite, log_probs)):
                    raise UserError(NOT_FINITE)
                unknown = targets[i].count(UNK)
                scores[i] = Score(math.fsum(log_probs), len(log_probs), tuple(log_probs), unknown)
        return scores

    @torch.inference_mode()
    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Return the log-probability of every target token, </s> included."""
        memory = self.model.encode(*self.padded([[*ids, EOS] for ids in sources]))
        target_in, mask = self.padded([[BOS, *ids] for ids in targets])
        target_out, _ = self.padded([[*ids, EOS] for ids in targets])
        hidden = self.model.decode(target_in, memory).hidden
        flat = iter(log_probs_of(self.model, hidden[mask], target_out[mask]).tolist())
        return [list(itertools.islice(flat, len(ids) + 1)) for ids in targets]

    @torch.inference_mode()
    def attention(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> Float[Tensor, "B L H T S"]:
        """Return the attention over each source and </s>: row t reads token t - 1, and predicts t.

        Raises:
            UserError: the model has no attention over the source.
        """
        memory = self.model.encode(*self.padded([[*ids, EOS] for ids in sources]))
        target_in, _ = self.padded([[BOS, *ids] for ids in targets])
        alignment = self.model.decode(target_in, memory, need_alignment=True).alignment
        if alignment is None:
            raise UserError(NO_ATTENTION)
        return alignment

    def padded(self, sentences: list[list[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
        """Return token ids as one matrix on the device, and the mask of the real ones."""
        return padded(sentences, self.device)


def log_probs_of(
    model: Seq2Seq, hidden: Float[Tensor, "R D"], tokens: Int[Tensor, "R"]
) -> Float[Tensor, "R"]:
    """Return the log-probability of each token after the ones before it, in float32 at least."""
    logits = model.project(hidden)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs: Tensor = logits.log_softmax(-1, dtype=wide)
    return log_probs.gather(1, tokens[:, None])[:, 0]


def as_numpy(weights: Float[Tensor, "L H T S"]) -> Float[np.ndarray, "L H T S"]:
    """Return weights on the CPU, in a type that NumPy has: it knows no bfloat16."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    array: Float[np.ndarray, "L H T S"] = weights.to("cpu", wide).numpy()
    return array
