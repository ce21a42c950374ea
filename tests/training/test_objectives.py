"""The chunked losses against PyTorch's over whole logits, and words that training leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from translate.data.batching import Batch, collate
from translate.training import objectives as module
from translate.training.objectives import CrossEntropy, RDrop, drop_words, projected_loss
from translate.vocabulary import EOS, UNK


def inputs(rows: int, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 6, dtype=torch.float64, generator=generator)
    weight = torch.randn(9, 6, dtype=torch.float64, generator=generator)
    b = torch.randn(9, dtype=torch.float64, generator=generator) if bias else None
    targets = torch.randint(9, (rows,), generator=generator)
    return hidden, weight, b, targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_value_and_gradients_equal_pytorchs(
    smoothing: float, bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", 4)  # several chunks, the last one short
    hidden, weight, b, targets = inputs(rows, bias)
    learned = [x.requires_grad_() for x in (hidden, weight, b) if x is not None]
    ours = projected_loss(hidden, weight, b, targets, CrossEntropy(smoothing))
    logits = F.linear(hidden, weight, b)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.smoothed, theirs)
    torch.testing.assert_close(ours.nll, F.cross_entropy(logits, targets, reduction="sum"))
    expected = torch.autograd.grad(theirs / rows, learned)
    actual = torch.autograd.grad(ours.smoothed / rows, learned)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("words", "rows"), [(8_000, 4_194), (64_000, 524), (500_000, 512)])
def test_a_gpu_takes_more_rows_at_once_the_fewer_the_words_are(words: int, rows: int) -> None:
    assert module.rows_at_once(torch.empty(words, 2)) == 512
    assert module.rows_at_once(torch.empty(words, 2, device="meta")) == rows


def readable_r_drop(logits: Tensor, targets: Tensor, *, alpha: float, smoothing: float) -> Tensor:
    """Liang et al. 2021, eq. 1 to 4, halved; KL(a‖b) is PyTorch's kl_div(log b, log a)."""
    log_p, log_q = logits.log_softmax(-1).chunk(2)
    p_from_q = F.kl_div(log_q, log_p, log_target=True, reduction="sum")
    q_from_p = F.kl_div(log_p, log_q, log_target=True, reduction="sum")
    nll = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    return (nll + alpha / 2 * (p_from_q + q_from_p)) / 2


@pytest.mark.parametrize(("alpha", "smoothing"), [(5.0, 0.1), (0.7, 0.0)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [2, 8, 14])
def test_r_drop_and_its_gradients_are_the_formula(
    alpha: float, smoothing: float, bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", 6)  # three rows of each pass, the last chunk short
    hidden, weight, b, targets = inputs(rows, bias)
    targets = targets[: rows // 2].repeat(2)
    learned = [x.requires_grad_() for x in (hidden, weight, b) if x is not None]
    ours = projected_loss(hidden, weight, b, targets, RDrop(alpha, CrossEntropy(smoothing)))
    logits = F.linear(hidden, weight, b)
    theirs = readable_r_drop(logits, targets, alpha=alpha, smoothing=smoothing)
    torch.testing.assert_close(ours.smoothed, theirs)
    torch.testing.assert_close(ours.nll, F.cross_entropy(logits, targets, reduction="sum") / 2)
    for one, other in zip(
        torch.autograd.grad(ours.smoothed, learned), torch.autograd.grad(theirs, learned),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(one, other)


def test_passes_that_agree_are_the_cross_entropy_of_one() -> None:
    hidden, weight, b, targets = inputs(5, bias=True)
    once = projected_loss(hidden, weight, b, targets, CrossEntropy(0.1))
    twice = projected_loss(
        hidden.repeat(2, 1), weight, b, targets.repeat(2), RDrop(9.0, CrossEntropy(0.1))
    )
    torch.testing.assert_close(twice.smoothed, once.smoothed)
    torch.testing.assert_close(twice.nll, once.nll)


def test_no_tensor_has_a_row_of_the_vocabulary_for_every_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest that any operation makes is a chunk's, of both passes together."""
    rows, words, largest = 40, 300, 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            largest = max(largest, *(x.numel() for x in tree_leaves(made) if torch.is_tensor(x)), 0)
            return made

    monkeypatch.setattr(module, "ROWS", 8)
    hidden = torch.randn(rows, 4, requires_grad=True)
    weight, targets = torch.randn(words, 4), torch.randint(words, (rows,))
    for objective in (CrossEntropy(0.1), RDrop(1.0, CrossEntropy(0.1))):
        with Watch():
            projected_loss(hidden, weight, None, targets, objective)
        assert largest == 8 * words


def test_bf16_autocast_stays_near_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 2)  # many chunks, whose gradients add up in float32
    hidden, weight, _, targets = inputs(400, bias=False)
    hidden, weight = hidden.float().requires_grad_(), weight.float().requires_grad_()
    exact = projected_loss(hidden, weight, None, targets, CrossEntropy(0.1))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = projected_loss(hidden, weight, None, targets, CrossEntropy(0.1))
    torch.testing.assert_close(rounded.smoothed, exact.smoothed, rtol=1e-2, atol=0)
    assert rounded.smoothed.dtype == torch.float32
    for one, other in zip(
        torch.autograd.grad(rounded.smoothed, (hidden, weight)),
        torch.autograd.grad(exact.smoothed, (hidden, weight)),
        strict=True,
    ):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.01 * other.norm()


def test_without_gradients_only_the_value_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, b, targets = inputs(5, bias=True)
    monkeypatch.setattr(CrossEntropy, "gradient", lambda *_: pytest.fail("no one asked for it"))
    with torch.inference_mode():
        losses = projected_loss(hidden, weight, b, targets, CrossEntropy(0.0))
    assert not losses.smoothed.requires_grad
    torch.testing.assert_close(losses.smoothed, losses.nll)


def batch(sentences: int = 200, length: int = 12, words: int = 6) -> Batch:
    random = np.random.default_rng(0)
    sides = [
        [random.integers(4, 4 + words, size=random.integers(1, length)).astype(np.int32)
         for _ in range(sentences)] for _ in range(2)
    ]  # fmt: skip
    return collate(list(range(sentences)), *sides)


def test_a_word_is_dropped_at_all_its_places_or_at_none() -> None:
    torch.manual_seed(1)
    whole = batch()
    dropped = drop_words(whole, 0.3)
    for before, after in ((whole.source, dropped.source), (whole.target_in, dropped.target_in)):
        assert not torch.equal(before, after)
        for sentence, read in zip(before.tolist(), after.tolist(), strict=True):
            fates: dict[int, set[int]] = {}
            for word, now in zip(sentence, read, strict=True):
                fates.setdefault(word, set()).add(now)
            for word, found in fates.items():
                assert found in ({word}, {UNK} if word > EOS else {word})


def test_the_rate_is_that_of_words_and_what_is_to_be_written_stays() -> None:
    torch.manual_seed(2)
    whole = batch(sentences=4000, words=5000)  # next to none occurs twice
    dropped = drop_words(whole, 0.1)
    words = whole.source > EOS
    rate = float((dropped.source[words] == UNK).double().mean())
    assert abs(rate - 0.1) < 5 * (0.1 * 0.9 / int(words.sum())) ** 0.5
    back = dropped._replace(source=whole.source, target_in=whole.target_in)
    assert all(one is other for one, other in zip(back, whole, strict=True))
    assert drop_words(whole, 0.0) is whole


def test_the_seed_of_a_step_decides() -> None:
    whole = batch()
    torch.manual_seed(3)
    first, second = drop_words(whole, 0.3), drop_words(whole, 0.3)
    torch.manual_seed(3)
    assert torch.equal(drop_words(whole, 0.3).source, first.source)
    assert not torch.equal(first.source, second.source)


def test_tags_stay() -> None:
    whole = batch(words=3)  # 4, 5 and 6, the first two of them tags
    dropped = drop_words(whole, 0.9, tags=2)
    tags = (whole.source == EOS + 1) | (whole.source == EOS + 2)
    assert torch.equal(dropped.source[tags], whole.source[tags])
    assert (dropped.source[whole.source == EOS + 3] == UNK).any()
    assert (dropped.target_in[whole.target_in == EOS + 1] == UNK).any()
