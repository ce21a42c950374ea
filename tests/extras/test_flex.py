"""FlexAttention beside the formula: on a CPU its arithmetic, on CUDA its kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from small_models import TRANSFORMER
from torch import Tensor
from torch.nn.attention import flex_attention as pytorchs

from translate.attention.cache import KeysValues
from translate.attention.dot_product import readable_attention
from translate.attention.masks import both, over_keys, padding_mask
from translate.attention.multi_head import FullAttention
from translate.attention.positions import LinearBiases, Relation, RelativeKeys
from translate.extras import flex
from translate.extras.flex import with_flex
from translate.extras.kernels import recorded_calls
from translate.extras.patterns import FixedAttention, SlidingWindowAttention, StridedAttention
from translate.models import registry
from translate.models.seq2seq import Seq2Seq

LENGTH = 150  # two blocks
Heads = tuple[Tensor, Tensor, Tensor]
PATTERNS: dict[str, Callable[..., FullAttention]] = {  # each is proven in test_patterns.py
    "full": FullAttention,
    "window": partial(SlidingWindowAttention, window=7),
    "wide": partial(SlidingWindowAttention, window=70),
    "strided": partial(StridedAttention, stride=8),
    "fixed": partial(FixedAttention, stride=8, summary=3),
}
RELATIONS: dict[str, Callable[[], Relation | None]] = {
    "no relation": lambda: None,
    "relative": lambda: RelativeKeys(d_k=8, max_distance=5),
    "alibi": lambda: LinearBiases(num_heads=4),
}
ROOT = Path(__file__).parents[2]
PROGRAMS = 9  # three a pattern: for one block, two and more; without sharing, one a length


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns take it on a CPU, as formulas, where PyTorch has them forwards alone."""
    monkeypatch.setattr(flex, "DEVICES", {"cpu"})
    monkeypatch.setattr(flex, "kernel", lambda device: pytorchs.flex_attention)
    monkeypatch.setattr(pytorchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def drawn(dtype: torch.dtype) -> Heads:
    """Queries of four heads; keys and values of two."""
    torch.manual_seed(0)
    query, keys, values = (torch.randn(2, n, LENGTH, 8, dtype=dtype) for n in (4, 2, 2))
    return query, keys, values


def readable(pattern: FullAttention, heads: Heads, padding: Tensor | None) -> Tensor:
    at = torch.arange(LENGTH)
    return readable_attention(
        *heads, mask=both(padding, pattern.visible(at[:, None], at)), causal=pattern.causal,
        bias=pattern.bias(heads[0], at, at),
    )[0]  # fmt: skip


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str
)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", PATTERNS)
def test_it_is_the_readable_formula(
    kind: str, causal: bool, relation: str, padded: bool,
    dtype: torch.dtype, tolerance: float,
) -> None:  # fmt: skip
    """Beside a sentence so short that whole windows are padding: those rows are zeros."""
    heads = query, keys, values = drawn(dtype)
    pattern = with_flex(PATTERNS[kind](causal=causal, relation=RELATIONS[relation]()).to(dtype))
    padding = over_keys(padding_mask(torch.tensor([LENGTH, 3]), LENGTH)) if padded else None
    with torch.no_grad(), recorded_calls(pattern) as calls:
        actual = pattern(query, KeysValues(keys, values), mask=padding)
        expected = readable(pattern, heads, padding)
    assert [call.kernel.name for call in calls] == ["flex"]
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)
    nothing = (expected == 0).all(-1)
    assert nothing.any() or kind != "window" or not padded
    assert (actual[nothing] == 0).all()


def programs(*options: str) -> int:
    """How many it takes to compute three patterns of many lengths as their formulas do."""
    script = str(Path(__file__).with_name("compiled_flex.py"))
    done = subprocess.run(
        [sys.executable, script, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.soak
def test_gradients_of_the_graph_that_cuda_compiles_are_those_of_the_formula() -> None:
    """By PyTorch's formulas on a CPU, which know every step but the kernel itself."""
    assert programs("cpu", "float64", "1e-12") <= PROGRAMS


@pytest.mark.usefixtures("on_cpu")
def test_a_length_has_one_block_mask_for_all_batches() -> None:
    pattern = with_flex(PATTERNS["window"](causal=True, relation=None))
    query, keys, values = drawn(torch.float32)
    made = []
    for sentences in (1, 2):
        rows = slice(sentences)
        with torch.no_grad():
            pattern(query[rows], KeysValues(keys[rows], values[rows]))
        made.append(*pattern.flex.block_masks.values())
    assert made[0] is made[1]
    assert pattern.flex.block_mask(300, query.device).sparsity() > 0  # 128 × 128 that none sees


def test_a_cpu_takes_the_ordinary_path() -> None:
    pattern = with_flex(PATTERNS["strided"](causal=True, relation=LinearBiases(num_heads=4)))
    query, keys, values = drawn(torch.float32)
    for training in (True, False):
        with recorded_calls(pattern.train(training)) as calls:
            pattern(query, KeysValues(keys, values))
        assert [call.kernel.name for call in calls] == ["flash"]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        ("full", "relative"), ("full", "alibi"), ("sliding_window", "relative"),
        ("sliding_window", "rotary"), ("strided", "alibi"), ("fixed", "sinusoidal"),
    ],
)  # fmt: skip
def test_a_transformer_trains_by_it_and_translates_without_it(kind: str, positions: str) -> None:
    models = []
    for flexed in (False, True):
        torch.manual_seed(0)
        options = TRANSFORMER | {
            "d_model": 64, "self_attention": kind, "positions": positions, "num_kv_heads": 2,
            "attention_dropout": 0.0, "dropout": 0.0, "feed_forward_dropout": 0.0,
            "flex_attention": flexed,
        }  # fmt: skip
        models.append(registry.build(options, source_vocab_size=11, target_vocab_size=11).double())
    source, target = torch.randint(4, 11, (2, 9)), torch.randint(4, 11, (2, 12))
    mask = padding_mask(torch.tensor([9, 2]), 9)

    def kernels(model: Seq2Seq) -> tuple[Tensor, set[str]]:
        with recorded_calls(model) as calls:
            hidden = model.decode(target, model.encode(source, mask)).hidden
        own = {call.kernel.name for call in calls if call.place.endswith("pattern")}
        return hidden, own

    with torch.no_grad():
        (expected, plain), (actual, flexed) = map(kernels, models)
        assert ("flex" in plain, flexed) == (False, {"flex"})
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
        assert "flex" not in kernels(models[1].eval())[1]
        with recorded_calls(models[1]) as calls:
            state = models[1].start(models[1].encode(source, mask))
            models[1].decode_step(target[:, 0], state)
        assert "flex" not in {call.kernel.name for call in calls}
    assert models[0].state_dict().keys() == models[1].state_dict().keys()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", "1e-3"), ("bfloat16", "3e-2")])
def test_on_cuda_the_kernel_equals_its_twin(dtype: str, tolerance: str) -> None:
    assert programs("cuda", dtype, tolerance) <= PROGRAMS
