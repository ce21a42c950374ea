"""Minimum risk: of what the model samples, the better shall become the likelier.

Shen et al. 2016, eq. 11 and 12. S(x) are the different translations among some samples of the
model, where wanted with the reference; Δ(y) = 1 - metric / 100 is what y lacks by a metric:

    Q(y|x) = P(y|x)^α / Σ_{y' ∈ S(x)} P(y'|x)^α        risk = Σ_{y ∈ S(x)} Q(y|x) Δ(y)

Mixed with the loss of tokens, as Edunov et al. 2018 do (their weighted combination):

    loss = (1 - weight) · L_token + weight · risk
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pyarrow import Table
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from translate.attention.masks import padding_mask
from translate.data.batching import Batch
from translate.data.pairs import at
from translate.data.tokenizer import Tokenizer
from translate.inference.forcing import TeacherForcing, log_probs_of
from translate.inference.minimum_bayes_risk import UTILITIES, SentenceScore, Utility
from translate.models.head import in_mode
from translate.models.seq2seq import Seq2Seq
from translate.search import build
from translate.training.loss import rows_at_once
from translate.vocabulary import BOS, EOS

Tokens = tuple[int, ...]  # a candidate, without <s> and </s>
UNFILTERED = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


class Risk(NamedTuple):
    """What a batch risks."""

    of_sentences: Float[Tensor, "B"]  # 0 … 1, differentiable
    score: float  # mean metric of all samples, 0 … 100


@dataclass(frozen=True)
class MinimumRisk:
    """Samples candidates, judges them, and tells the risk of their probabilities.

    Attributes:
        candidates: samples a sentence; those that are alike are one candidate.
        sharpness: α; the smaller, the more alike are the candidates' probabilities Q.
        limits: the longest sample, as a search takes it (`max_length_ratio`, `max_length_offset`).
        tokenizer: makes text of target pieces.
        references: the training pairs, by their ids in a batch; the column `target` is text.

    conf/trainer/default.yaml has the other keys.
    """

    weight: float
    candidates: int
    temperature: float
    sharpness: float
    metric: Utility
    include_reference: bool
    seed: int
    limits: Mapping[str, float]
    tokenizer: Tokenizer
    references: Table

    @cached_property
    def score(self) -> SentenceScore:
        """The metric."""
        return UTILITIES[self.metric]()

    def __call__(self, model: Seq2Seq, batch: Batch, *, step: int) -> Risk:
        """The risk of each sentence; `step` and its source alone say which samples are drawn."""
        source_mask = padding_mask(batch.source_lengths, batch.source.shape[1])
        drawn = self.draw(model, batch.source, source_mask, step=step)
        costs = self._costs(drawn, batch)
        log_probs = log_probabilities(model, batch.source, source_mask, [[*own] for own in costs])
        table = [torch.tensor([*own.values()], dtype=torch.float64) for own in costs]
        of_sentences = expected_costs(
            log_probs, pad_sequence(table, batch_first=True).to(log_probs), self.sharpness
        )
        of_samples = [
            own[tokens] for own, some in zip(costs, drawn, strict=True) for tokens in some
        ]
        return Risk(of_sentences, 100 * (1 - sum(of_samples) / len(of_samples)))

    def mixed(
        self, token_loss: Float[Tensor, ""], risk: Risk, lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, ""]:
        """The loss of a batch, a sum over its target tokens as `token_loss` is.

        A sentence's risk counts for each of its tokens, so that one divisor, the tokens of a whole
        step, makes means of both parts, over however many batches and processes.
        """
        summed = (risk.of_sentences * lengths).sum()
        return (1 - self.weight) * token_loss + self.weight * summed

    def draw(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        step: int,
    ) -> list[list[Tokens]]:
        """The samples of each sentence, without </s>; drawn without dropout or gradient."""
        search = build(
            {
                "kind": "sample", "n_best": self.candidates, "temperature": self.temperature,
                "seed": self.seed * 1_000_003 + step, **UNFILTERED, **self.limits,
            }
        )  # fmt: skip
        with in_mode(model, training=False):
            found = search(model, source, source_mask)
        # up to PyTorch 2.10 autocast gives weights that it has rounded here, and which thus have no
        # gradient, to what learns
        torch.clear_autocast_cache()
        return [[hypothesis.tokens for hypothesis in own] for own in found]

    def _costs(self, drawn: Sequence[list[Tokens]], batch: Batch) -> list[dict[Tokens, float]]:
        """S(x) of each sentence, with Δ of each candidate."""
        texts = at(self.references, "target", batch.ids.tolist())
        given = batch.target_out.tolist()
        lengths = batch.target_lengths.tolist()
        costs = []
        for own, ids, length, text in zip(drawn, given, lengths, texts, strict=True):
            reference = [tuple(ids[: length - 1])] if self.include_reference else []  # - 1: </s>
            costs.append(
                {
                    tokens: 1 - self.score(self.tokenizer.decode(tokens), text) / 100
                    for tokens in dict.fromkeys([*own, *reference])
                }
            )
        return costs


def expected_costs(
    log_probs: Float[Tensor, "B K"], costs: Float[Tensor, "B K"], sharpness: float
) -> Float[Tensor, "B"]:
    """Σ_y Q(y|x) Δ(y) (eq. 11 and 12); where there is no candidate, log P is -∞."""
    q = (sharpness * log_probs).softmax(dim=1)
    return (q * costs).sum(dim=1)


def log_probabilities(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    candidates: Sequence[Sequence[Tokens]],
) -> Float[Tensor, "B K"]:
    """log P(y, </s> | x) of the candidates of each source, by teacher forcing; it is read once.

    -∞ behind the candidates of a source that has fewer than another.
    """
    counts = torch.tensor([len(own) for own in candidates], device=source.device)
    there = padding_mask(counts, int(counts.max()))  # (B, K)
    padded = TeacherForcing(model, source.device).padded
    target_in, mask = padded([[BOS, *tokens] for tokens in chain(*candidates)])
    target_out, _ = padded([[*tokens, EOS] for tokens in chain(*candidates)])
    memory = model.encode(source, source_mask).at(there.nonzero()[:, 0])  # of each candidate
    hidden, tokens = model.decode(target_in, memory).hidden[mask], target_out[mask]
    size = rows_at_once(model.output.weight)
    of_tokens = [
        # the logits of a few rows at a time, computed again in the backward pass
        checkpoint(log_probs_of, model, hidden[some], tokens[some], use_reentrant=False)
        for some in (slice(start, start + size) for start in range(0, len(tokens), size))
    ]
    summed = torch.cat(of_tokens)
    summed = summed.new_zeros(len(mask)).index_add(0, mask.nonzero()[:, 0], summed)
    return summed.new_full(there.shape, -math.inf).masked_scatter(there, summed)
