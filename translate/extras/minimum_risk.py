"""Minimum-risk training: samples of a model, judged by a metric, beside the loss of tokens."""

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
from translate.inference.minimum_bayes_risk import UTILITIES, SentenceScore
from translate.models.head import in_mode
from translate.models.seq2seq import Seq2Seq
from translate.search import build as build_search
from translate.training.objectives import rows_at_once
from translate.training.settings import MinimumRiskConfig
from translate.training.step import Figures
from translate.vocabulary import BOS, EOS

Tokens = tuple[int, ...]  # a candidate, without <s> and </s>
UNFILTERED = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


class Risk(NamedTuple):
    """The risk of a batch."""

    of_sentences: Float[Tensor, "B"]  # 0 … 1, differentiable
    score: float  # mean metric of all samples, 0 … 100


@dataclass(frozen=True)
class MinimumRisk:
    """Minimum risk: of the model's samples, the better ones shall become likelier.

    Shen et al. 2016, eq. 11 and 12. S(x) are the different translations among some samples of the
    model, where wanted with the reference; Δ(y) = 1 - metric / 100 is what y lacks by a metric:

        Q(y|x) = P(y|x)^α / Σ_{y' ∈ S(x)} P(y'|x)^α        risk = Σ_{y ∈ S(x)} Q(y|x) Δ(y)

    Mixed with the loss of tokens, as Edunov et al. 2018 do (their weighted combination):

        loss = (1 - weight) · L_token + weight · risk

    Attributes:
        config: how many samples, how they are drawn and judged; its sharpness is α. Samples that
            are alike are one candidate.
        limits: the longest sample, as a search takes it (`max_length_ratio`, `max_length_offset`).
        tokenizer: makes text of target pieces.
        references: the training pairs, by their ids in a batch; the column `target` is text.
    """

    config: MinimumRiskConfig
    seed: int
    limits: Mapping[str, float]
    tokenizer: Tokenizer
    references: Table

    @cached_property
    def score(self) -> SentenceScore:
        """The metric."""
        return UTILITIES[self.config.metric]()

    def __call__(self, model: Seq2Seq, batch: Batch, *, step: int) -> Risk:
        """Return the risk of each sentence; `step` and its source alone decide what is sampled."""
        source_mask = padding_mask(batch.source_lengths, batch.source.shape[1])
        samples = self.draw(model, batch.source, source_mask, step=step)
        costs = self._costs(samples, batch)
        log_probs = log_probabilities(model, batch.source, source_mask, [[*each] for each in costs])
        table = [torch.tensor([*each.values()], dtype=torch.float64) for each in costs]
        of_sentences = expected_costs(
            log_probs, pad_sequence(table, batch_first=True).to(log_probs), self.config.sharpness
        )
        of_samples = [
            cost[tokens]
            for cost, of_sentence in zip(costs, samples, strict=True)
            for tokens in of_sentence
        ]
        return Risk(of_sentences, 100 * (1 - sum(of_samples) / len(of_samples)))

    def mix(
        self, model: Seq2Seq, batch: Batch, token_loss: Float[Tensor, ""], *, step: int
    ) -> tuple[Float[Tensor, ""], Figures]:
        """Return the mixed loss of a batch, and total and count of what its run reports."""
        risk = self(model, batch, step=step)
        sentences = torch.tensor(len(batch.ids), device=token_loss.device)
        figures = {
            "train/risk": (risk.of_sentences.sum(), sentences),
            "train/sampled_score": (risk.score * sentences, sentences),
        }
        return self.mixed(token_loss, risk, batch.target_lengths), figures

    def mixed(
        self, token_loss: Float[Tensor, ""], risk: Risk, lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch, a sum over its target tokens as `token_loss` is.

        A sentence's risk counts for each of its tokens, so that one divisor, the tokens of a whole
        step, makes means of both parts, over however many batches and processes.
        """
        summed = (risk.of_sentences * lengths).sum()
        return (1 - self.config.weight) * token_loss + self.config.weight * summed

    def draw(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        step: int,
    ) -> list[list[Tokens]]:
        """Draw the samples of each sentence, without </s>; without dropout or gradient."""
        search = build_search(
            {
                "kind": "sample", "n_best": self.config.candidates,
                "temperature": self.config.temperature,
                "seed": self.seed * 1_000_003 + step, **UNFILTERED, **self.limits,
            }
        )  # fmt: skip
        with in_mode(model, training=False):
            samples = search(model, source, source_mask)
        # up to PyTorch 2.10 autocast gives weights that it has rounded here, and which thus have no
        # gradient, to what learns
        torch.clear_autocast_cache()
        return [[hypothesis.tokens for hypothesis in of_sentence] for of_sentence in samples]

    def _costs(self, samples: Sequence[list[Tokens]], batch: Batch) -> list[dict[Tokens, float]]:
        """Return S(x) of each sentence, with Δ of each candidate."""
        texts = at(self.references, "target", batch.ids.tolist())
        targets = batch.target_out.tolist()
        lengths = batch.target_lengths.tolist()
        costs = []
        for drawn, ids, length, text in zip(samples, targets, lengths, texts, strict=True):
            reference = [tuple(ids[: length - 1])]  # - 1: </s>
            candidates = [*drawn, *(reference if self.config.include_reference else [])]
            costs.append(
                {
                    tokens: 1 - self.score(self.tokenizer.decode(tokens), text) / 100
                    for tokens in dict.fromkeys(candidates)
                }
            )
        return costs


def expected_costs(
    log_probs: Float[Tensor, "B K"], costs: Float[Tensor, "B K"], sharpness: float
) -> Float[Tensor, "B"]:
    """Return Σ_y Q(y|x) Δ(y) (eq. 11 and 12); where there is no candidate, log P is -∞."""
    q = (sharpness * log_probs).softmax(dim=1)
    return (q * costs).sum(dim=1)


def log_probabilities(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    candidates: Sequence[Sequence[Tokens]],
) -> Float[Tensor, "B K"]:
    """Return log P(y, </s> | x) of each source's candidates, by teacher forcing; x is read once.

    -∞ behind the candidates of a source that has fewer than another.
    """
    counts = torch.tensor([len(of_source) for of_source in candidates], device=source.device)
    present = padding_mask(counts, int(counts.max()))  # (B, K)
    padded = TeacherForcing(model, source.device).padded
    target_in, mask = padded([[BOS, *tokens] for tokens in chain(*candidates)])
    target_out, _ = padded([[*tokens, EOS] for tokens in chain(*candidates)])
    memory = model.encode(source, source_mask).at(present.nonzero()[:, 0])  # of each candidate
    hidden, tokens = model.decode(target_in, memory).hidden[mask], target_out[mask]
    size = rows_at_once(model.output.weight)
    of_tokens = [
        # the logits of a few rows at a time, computed again in the backward pass
        checkpoint(log_probs_of, model, hidden[rows], tokens[rows], use_reentrant=False)
        for rows in (slice(start, start + size) for start in range(0, len(tokens), size))
    ]
    summed = torch.cat(of_tokens)
    summed = summed.new_zeros(len(mask)).index_add(0, mask.nonzero()[:, 0], summed)
    return summed.new_full(present.shape, -math.inf).masked_scatter(present, summed)
