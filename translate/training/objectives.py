"""The objectives: a loss of each token, and what may be added to it.

The loss of tokens is computed from the vocabulary's probabilities without holding the whole matrix
of logits. With p = softmax(W h + b), an objective gives its value and its gradient with respect to
the logits while those of a few rows are at hand; only ∂h, ∂W and ∂b stay. V is large: 512 rows over
8,000 pieces are 16 MB, the rows of a whole batch a hundred times that, and the gradient as much
again.

Besides it there are R-Drop, word dropout and guided alignment; minimum risk is in `extras`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.data.batching import Batch
from translate.linear import product
from translate.models.head import AttentionHead, choose_head
from translate.models.seq2seq import Seq2Seq
from translate.training.settings import GuidedAlignmentConfig
from translate.vocabulary import EOS, UNK

ROWS = 512  # of a chunk on a CPU, whose logits (512 × 8,000 floats, 16 MB) stay near the cache
LOGITS_ON_GPU = 2**25  # of a chunk there (134 MB): 512 rows take it less time than to be asked for


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
