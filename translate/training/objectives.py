"""The objectives: a loss of each token, and what may be added to it.

The loss of tokens is computed from the vocabulary's probabilities without holding the whole matrix
of logits. With p = softmax(W h + b), an objective gives its value and its gradient with respect to
the logits while those of a few rows are at hand; only ∂h, ∂W and ∂b stay. V is large: 512 rows over
8,000 pieces are 16 MB, the rows of a whole batch a hundred times that, and the gradient as much
again.

Besides it there are R-Drop, word dropout, guided alignment and minimum risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol

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
from translate.linear import product
from translate.models.head import AttentionHead, choose_head, in_mode
from translate.models.seq2seq import Seq2Seq
from translate.search import build as build_search
from translate.training.settings import GuidedAlignmentConfig, MinimumRiskConfig
from translate.vocabulary import BOS, EOS, UNK

ROWS = 512  # of a chunk on a CPU, whose logits (512 × 8,000 floats, 16 MB) stay near the cache
LOGITS_ON_GPU = 2**25  # of a chunk there (134 MB): 512 rows take it less time than to be asked for

Tokens = tuple[int, ...]  # a candidate, without <s> and </s>
UNFILTERED = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


def rows_at_once(weight: Float[Tensor, "V D"]) -> int:
    """Return how many rows are multiplied by the vocabulary's weight at a time."""
    return ROWS if weight.device.type == "cpu" else max(ROWS, LOGITS_ON_GPU // len(weight))


class Losses(NamedTuple):
    """Sums over the rows, in nats."""

    smoothed: Float[Tensor, ""]  # the objective: differentiable
    nll: Float[Tensor, ""]  # -log p(y): for perplexity, no gradient
    guided: Float[Tensor, ""] | None = None  # that of guidance


class Objective(Protocol):
    """A loss of each row that sees its log-probabilities in P passes through the model."""

    @property
    def passes(self) -> int:
        """P: how often a batch goes through the model, with other dropout each time."""

    def value(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the objective, and -log p(y), summed over the rows."""

    def gradient(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> Float[Tensor, "P R V"]:
        """Return ∂objective/∂logits; `log_probs` may be overwritten."""


@dataclass(frozen=True)
class CrossEntropy:
    """Label-smoothed (Szegedy et al. 2016, section 7), over one pass.

    The target is (1 - ε)·onehot(y) + ε/V:
        loss = -Σ_v target_v log p_v     and     ∂loss/∂logits = p - target
    """

    smoothing: float  # ε
    passes: ClassVar[int] = 1

    def value(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        nll = -log_probs.gather(2, targets[:, :, None]).squeeze(2)
        smoothed = (1 - self.smoothing) * nll - self.smoothing * log_probs.mean(dim=2)
        return smoothed.sum(), nll.sum()

    def gradient(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> Float[Tensor, "P R V"]:
        gradient = log_probs.exp_().sub_(self.smoothing / log_probs.shape[2])
        index = targets[:, :, None]
        return gradient.scatter_add_(2, index, gradient.new_full(index.shape, self.smoothing - 1))


@dataclass(frozen=True)
class RDrop:
    """Two passes with other dropout shall agree (Liang et al. 2021, eq. 4), p and q being theirs.

        loss = -log p(y) - log q(y) + α/2 [KL(p‖q) + KL(q‖p)]

    as a whole halved, so that α = 0 is the cross-entropy of one pass, in expectation. With d =
    log p - log q the divergences add up to Σ_v (p_v - q_v) d_v, whose gradient with respect to the
    logits of p is p (d - KL(p‖q)) + p - q.
    """

    alpha: float
    cross_entropy: CrossEntropy
    passes: ClassVar[int] = 2

    def value(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        smoothed, nll = self.cross_entropy.value(log_probs, targets)
        p, q = log_probs.exp()
        divergences = ((p - q) * (log_probs[0] - log_probs[1])).sum()
        return smoothed / 2 + self.alpha / 4 * divergences, nll / 2

    def gradient(
        self, log_probs: Float[Tensor, "P R V"], targets: Int[Tensor, "P R"]
    ) -> Float[Tensor, "P R V"]:
        p, q = log_probs.exp()
        d = log_probs[0] - log_probs[1]
        p_from_q = (p * d).sum(dim=1, keepdim=True)  # KL(p‖q)
        q_from_p = -(q * d).sum(dim=1, keepdim=True)
        apart = torch.stack((p * (d - p_from_q) + p - q, q * (-d - q_from_p) + q - p))
        return self.cross_entropy.gradient(log_probs, targets) / 2 + self.alpha / 4 * apart


class _Gradients:
    """Gradients of a sum over rows, by their hidden vectors and by the projection's parameters."""

    def __init__(
        self, hidden: Tensor, matrix: Tensor, bias: Tensor | None, wide: torch.dtype, passes: int
    ) -> None:
        self.of_hidden = torch.empty_like(hidden, dtype=matrix.dtype)
        self.of_weight = torch.zeros_like(matrix, dtype=wide)
        self.of_bias = torch.zeros(len(matrix), dtype=wide, device=matrix.device)
        self._has_bias = bias is not None
        self._transposed = matrix.T.contiguous()
        self._by_pass = self.of_hidden.view(passes, -1, hidden.shape[1])  # `add` fills both

    def add(
        self, rows: slice, h: Float[Tensor, "P R D"], of_logits: Float[Tensor, "P R V"]
    ) -> None:
        """Add what the gradient by the logits of some rows contributes."""
        if self._has_bias:
            self.of_bias += of_logits.sum(dim=(0, 1))
        of_logits = of_logits.to(h.dtype)
        self._by_pass[:, rows] = product(of_logits, self._transposed)
        all_rows, all_h = of_logits.flatten(0, 1), h.flatten(0, 1)
        if h.dtype == self.of_weight.dtype:
            self.of_weight.addmm_(all_rows.T, all_h)
        else:
            self.of_weight += all_rows.T @ all_h


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        objective: Objective,
        wants_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
        wide = torch.promote_types(dtype, torch.float32)  # float64 stays float64
        passes = objective.passes
        with torch.autocast(device, enabled=False):
            matrix = weight.to(dtype)
            total, nll = (torch.zeros((), dtype=wide, device=hidden.device) for _ in range(2))
            learns = wants_gradients and any(ctx.needs_input_grad)
            gradients = _Gradients(hidden, matrix, bias, wide, passes) if learns else None
            by_pass, y_by_pass = hidden.view(passes, -1, hidden.shape[1]), targets.view(passes, -1)
            size = rows_at_once(weight) // passes
            for start in range(0, y_by_pass.shape[1], size):
                rows = slice(start, start + size)
                h, y = by_pass[:, rows].to(dtype), y_by_pass[:, rows]
                logits = product(h, matrix).to(wide)  # (P, R, V)
                if bias is not None:
                    logits += bias
                log_probs = logits.log_softmax(dim=2)
                of_rows = objective.value(log_probs, y)
                total, nll = total + of_rows[0], nll + of_rows[1]
                if gradients is not None:
                    gradients.add(rows, h, objective.gradient(log_probs, y))
        if gradients is not None:
            ctx.save_for_backward(
                gradients.of_hidden.to(hidden.dtype),
                gradients.of_weight.to(weight.dtype),
                None if bias is None else gradients.of_bias.to(bias.dtype),
            )
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return (
            d_hidden * scale.to(d_hidden.dtype),
            d_weight * scale.to(d_weight.dtype),
            None if d_bias is None else d_bias * scale.to(d_bias.dtype),
            None,
            None,
            None,
        )


def projected_loss(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
    objective: Objective,
) -> Losses:
    """Sum an objective of softmax(W h + b) against `targets` over the rows.

    The rows of the objective's first pass come before those of its second.
    """
    sums = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, objective, torch.is_grad_enabled()
    )
    return Losses(*sums)


def drop_words(batch: Batch, rate: float, *, tags: int = 0) -> Batch:
    """Replace words of the source, and of the target as it is read: the model must do without.

    Gal & Ghahramani 2016, section 4.2: what is dropped is a word, and so it is at all its places in
    the sentence. It is read as <unk> rather than as a zero vector: no model has to know of it, and
    <unk> learns to stand for some word, which is what it has to do in translation.

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


@dataclass(frozen=True)
class Guidance:
    """Guided alignment: a head of attention learns to look where given alignments say.

    Chen et al. 2016 (arXiv:1607.01628), section 3; Garg et al. 2019, section 4.2. With G the gold
    rows (each sums to 1, or to 0 where a word has no link), A the head's weights and M all target
    tokens of the step:

        L_a = - 1/M Σ_t Σ_s G_ts log A_ts          loss = L_translation + weight · L_a
    """

    head: AttentionHead
    weight: float

    @classmethod
    def build(cls, model: Seq2Seq, config: GuidedAlignmentConfig) -> Guidance | None:
        """Choose the head of a model; None where the weight is 0.

        Raises:
            UserError: the model has no such head.
        """
        if not config.weight:
            return None
        where = "trainer.guided_alignment."
        head = choose_head(model, layer=config.layer, head=config.head, where=where)
        return cls(head, config.weight)

    def loss(
        self, alignment: Float[Tensor, "B L H T S"], gold: Float[Tensor, "B T S"]
    ) -> Float[Tensor, ""]:
        """Return M · L_a: a sum over the rows; padding and words without a link add nothing."""
        weights = self.head.of(alignment)
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        # a link outside of a local window has weight 0: a large loss, and nothing to learn from it
        log_weights = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        return -(gold * log_weights).sum()


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
