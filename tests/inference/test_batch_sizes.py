"""Batch size, order and padding never change a translation: whole texts, every family.

The small version runs with the suite. `pytest -m soak tests/inference/test_batch_sizes.py -o
log_cli_level=INFO -o log_cli=true` does it with 1,000 real sentences and tells what differs, in
float32 too; with BATCH_SIZES_RUN=runs/…, by a run of your own from English as well, in bf16 too.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from small_translators import learned

from translate.data.tokenizer import Tokenizers
from translate.inference.translator import Translator, load
from translate.linear import prepack
from translate.models import registry
from translate.search import build

log = logging.getLogger(__name__)

RUN = os.environ.get("BATCH_SIZES_RUN", "")
SIZES = [2, 7, 64, 256]  # each against one sentence at a time
LIMITS = {"max_length_ratio": 1.0, "max_length_offset": 6}
SEARCHES = {
    "greedy": {"kind": "greedy", **LIMITS},
    "beam": {
        "kind": "beam", "beam_size": 4, "length_penalty": "gnmt", "alpha": 0.6,
        "coverage_penalty": 0.0, "n_best": 1, **LIMITS,
    },
}  # fmt: skip
WIDER = SEARCHES | {
    "sample": {
        "kind": "sample", "n_best": 2, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
        "typical_p": 1.0, "seed": 3, **LIMITS,
    },
    "diverse": {
        "kind": "diverse", "groups": 2, "diversity_strength": 0.5, "beam_size": 4,
        "length_penalty": "gnmt", "alpha": 0.6, "coverage_penalty": 0.0, "n_best": 1, **LIMITS,
    },
}  # fmt: skip


def in_batches(translator: Translator, lines: Sequence[str], size: int) -> list[tuple[str, float]]:
    """Lines in batches of `size`, taken as they come, long beside short: text and score of each."""
    return [(best.text, best.score) for best, *_ in translator.stream(lines, window=size)]


def differing(translator: Translator, lines: list[str], sizes: Sequence[int]) -> dict[int, list]:
    """Batch size → (line, score alone, score) where a text is not that of the sentence alone.

    Each size has the lines in an order of its own.
    """
    alone = in_batches(translator, lines, 1)
    found: dict[int, list] = {}
    for size in sizes:
        order = Random(size).sample(range(len(lines)), len(lines))
        together = in_batches(translator, [lines[i] for i in order], size)
        found[size] = [
            (i, alone[i][1], score)
            for i, (text, score) in zip(order, together, strict=True)
            if text != alone[i][0]
        ]
    return found


def translator(tokenizers: Tokenizers, options: dict, kind: str, dtype: torch.dtype) -> Translator:
    """A random model, its weights doubled: peaked, so that its translations are varied."""
    torch.manual_seed(7)
    sizes = {side: len(tokenizers.source) for side in ("source_vocab_size", "target_vocab_size")}
    model = registry.build(options, **sizes).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    search = build(WIDER[kind])
    return Translator(model.to(dtype), tokenizers, search, tokens_per_batch=10**9)


@pytest.mark.parametrize("kind", WIDER)
def test_no_text_differs_in_float64(joint: Tokenizers, options, name: str, kind: str) -> None:
    words = ["el", "la", "tren", "casa", "perro", "gato", "come", "duerme", "azul", "rojo"]
    chance = Random(1)
    lines = [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(12)]
    exact = translator(joint, options[name], kind, torch.float64)
    assert differing(exact, lines, [5, 12]) == {5: [], 12: []}
    assert len({text for text, _ in in_batches(exact, lines, 12)}) > 4


@pytest.fixture(scope="module")
def captions(shared_data: Path) -> list[str]:
    file = shared_data / "multi30k" / "test_2016_flickr.en.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    return gzip.decompress(file.read_bytes()).decode().split("\n")[:1000]


@pytest.fixture(scope="module")
def pieces(captions: list[str]) -> Tokenizers:
    one = learned(captions, vocab_size=1500)
    return Tokenizers(one, one)


def assert_near_ties(what: str, rounded: Translator, lines: list[str]) -> None:
    """What differs at each size is logged; nothing may in float64, near-ties alone in float32."""
    dtype = next(rounded.model.parameters()).dtype
    for size, others in differing(rounded, lines, SIZES).items():
        gaps = [f"line {line + 1}: {one - other:.1e}" for line, one, other in others]
        log.info("%s %s, batch %d: %d of %d differ %s", what, dtype, size, len(others), len(lines),
                 gaps)  # fmt: skip
        assert not (dtype == torch.float64 and others)
        near = all(abs(one - other) < 1e-2 for _, one, other in others)
        assert near or dtype == torch.bfloat16


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_a_thousand_captions(captions, pieces, options, name: str, dtype, kind: str) -> None:
    assert_near_ties(f"{name} {kind}", translator(pieces, options[name], kind, dtype), captions)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not RUN, reason="BATCH_SIZES_RUN= names no trained run from English")
@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_thousand_captions_by_a_trained_run(captions, dtype, kind: str) -> None:
    trained = load(RUN, search=build(SEARCHES[kind]), device="cpu", tokens_per_batch=10**9)
    prepack(trained.model.to(dtype))  # `to` drops what `load` has prepacked
    assert_near_ties(f"{RUN} {kind}", trained, captions)
