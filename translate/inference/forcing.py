"""What a model says of translations that are given: their probabilities, and where it looks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.attention.caches import KeysValues
from translate.attention.masks import padding_mask
from translate.attention.patterns import Pattern
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.inference.segments import by_length, each
from translate.inference.translation import Score
from translate.models.head import NO_ATTENTION
from translate.models.seq2seq import Seq2Seq
from translate.vocabulary import BOS, EOS, PAD, UNK
from translate.wording import counted

NO_SELF_ATTENTION = (
    "this model has no self-attention: its layers are recurrent or convolutional; leave out "
    "attention= to see what it attends to in the source"
)


class TooLongError(UserError):
    """Pairs that are longer than is read at once.

    Attributes:
        indices: which they are, counted from 0.
    """

    def __init__(self, lengths: dict[int, int], limit: int) -> None:
        first, *others = self.indices = list(lengths)
        several = f"so do {len(others)} later lines" if len(others) > 1 else "so does a later line"
        also = f", and {several}" if others else ""
        super().__init__(
            f"line {first + 1} has {lengths[first]} pieces on one side, more than the {limit} "
            f"that can be read at once{also}: split the sentence, or leave the pair out"
        )


def encoded_pairs(
    tokenizers: Tokenizers, sources: Iterable[str], targets: Iterable[str], *, limit: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of sources and targets, without `<s>`, `</s>`.

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
    """Reads whole targets at once, on the model's device; ids come without `<s>`, `</s>`."""

    def __init__(self, model: Seq2Seq, device: torch.device) -> None:
        self.model, self.device = model, device

    def scores(
        self, sources: list[list[int]], targets: list[list[int]], tokens_per_batch: int
    ) -> list[Score]:
        """How likely each target is, from batches of like length."""
        scores = [Score(0.0, 0, ())] * len(sources)
        longest = [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]
        for batch in by_length(longest, tokens_per_batch):
            sides = ([ids[i] for i in batch] for ids in (sources, targets))
            for i, log_probs in zip(batch, self.log_probs(*sides), strict=True):
                unknown = targets[i].count(UNK)
                scores[i] = Score(math.fsum(log_probs), len(log_probs), tuple(log_probs), unknown)
        return scores

    @torch.inference_mode()
    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """The log-probability of every target token, </s> included."""
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
        """Over each source and </s>: row t has read token t - 1 of the target and predicts t.

        Raises:
            UserError: the model has no attention over the source.
        """
        memory = self.model.encode(*self.padded([[*ids, EOS] for ids in sources]))
        target_in, _ = self.padded([[BOS, *ids] for ids in targets])
        alignment = self.model.decode(target_in, memory, need_alignment=True).alignment
        if alignment is None:
            raise UserError(NO_ATTENTION)
        return alignment

    @torch.inference_mode()
    def self_attention(
        self, source: list[int], target: list[int] | None = None
    ) -> Float[np.ndarray, "L H T T"]:
        """Of the encoder over the source and </s>; with a target, of the decoder over <s> and it.

        Raises:
            UserError: the model has no self-attention.
        """
        with _self_attention(self.model, causal=target is not None) as layers:
            memory = self.model.encode(*self.padded([[*source, EOS]]))
            if target is not None:
                self.model.decode(self.padded([[BOS, *target]])[0], memory)
        if not layers:
            raise UserError(NO_SELF_ATTENTION)
        return as_numpy(torch.stack([weights[0] for weights in layers]))

    def padded(self, sentences: list[list[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
        """Token ids as one matrix on the device, and where they are."""
        lengths = torch.tensor([len(ids) for ids in sentences])
        mask = padding_mask(lengths, int(lengths.max()))
        ids = torch.full(mask.shape, PAD)
        ids[mask] = torch.tensor(list(itertools.chain.from_iterable(sentences)))
        return ids.to(self.device), mask.to(self.device)


@contextmanager
def _self_attention(model: Seq2Seq, *, causal: bool) -> Iterator[list[Float[Tensor, "B H T T"]]]:
    """The weights of each layer that the model passes meanwhile, of its decoder if `causal`."""
    layers: list[Tensor] = []

    def record(
        pattern: Pattern, given: tuple[Tensor, KeysValues], options: dict[str, Any], _: Tensor
    ) -> None:
        query, memory = given
        layers.append(pattern.weights(query, memory.keys, mask=options["mask"]))

    patterns = [module for module in model.modules() if isinstance(module, Pattern)]
    hooks = [
        pattern.register_forward_hook(record, with_kwargs=True)
        for pattern in patterns
        if pattern.causal == causal
    ]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def log_probs_of(
    model: Seq2Seq, hidden: Float[Tensor, "R D"], tokens: Int[Tensor, "R"]
) -> Float[Tensor, "R"]:
    """The log-probability of each token after what was read before it, in float32 at least."""
    logits = model.project(hidden)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs: Tensor = logits.log_softmax(-1, dtype=wide)
    return log_probs.gather(1, tokens[:, None])[:, 0]


def as_numpy(weights: Float[Tensor, "L H T S"]) -> Float[np.ndarray, "L H T S"]:
    """On the CPU, in a type that NumPy has: it knows no bfloat16."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    array: Float[np.ndarray, "L H T S"] = weights.to("cpu", wide).numpy()
    return array
