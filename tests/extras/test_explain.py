from __future__ import annotations

import re

import pytest
import torch

from translate.extras.explain import attention_calls, described
from translate.extras.kernels import kernels_that_ran, recorded_calls
from translate.training.resources import ALL, NONE

SOURCE, TARGET = "el perro come.", "the dog eats."
DEFAULTS = {"autocast": None, "packed_from": NONE, "guided": False, "covering": False}


@pytest.fixture
def explained(make_translator):
    def explain(name: str, **options):
        translator = make_translator(name)
        return attention_calls(translator, SOURCE, TARGET, **DEFAULTS | options)

    return explain


def test_a_transformers_calls_are_told_apart_by_place_and_phase(explained) -> None:
    phases = explained("transformer")
    assert {
        phase: {call.place: count for call, count in calls.items()}
        for phase, calls in phases.items()
    } == {
        "training, encode": {"encoder_layers.*.self_attention.pattern": 1},
        "training, decode": {
            "decoder_layers.*.self_attention.pattern": 2,
            "decoder_layers.*.cross_attention": 2,
        },
        "translating, encode": {"encoder_layers.*.self_attention.pattern": 1},
        "translating, a step of 2 hypotheses": {
            "decoder_layers.*.self_attention.pattern": 2,
            "decoder_layers.*.cross_attention": 2,
        },
    }


def test_where_training_packs_its_calls_have_no_mask(explained) -> None:
    """On a CPU each sentence by itself; on CUDA the same places call one flash kernel for all."""
    phases = explained("transformer", packed_from=ALL)
    calls = phases["training, sentences end to end"]
    assert {call.place: count for call, count in calls.items()} == {
        "encoder_layers.*.self_attention.pattern": 1,
        "decoder_layers.*.self_attention.pattern": 2,
        "decoder_layers.*.cross_attention": 2,
    }
    assert {call.mask for call in calls} == {None}
    assert not any(phase in phases for phase in ("training, encode", "training, decode"))


def test_dropout_costs_flash_in_training_alone(explained) -> None:
    for phase, calls in explained("transformer").items():
        for call in calls:
            training = phase.startswith("training")
            assert call.dropout == (0.1 if training else 0.0)
            assert call.kernel.name == ("math" if training else "flash")
            assert ("dropout" in call.kernel.why_not_flash) == training


@pytest.mark.parametrize("name", ["rnn_none", "rnn_general"])
def test_a_recurrent_model_answers_that_it_makes_none(explained, name: str) -> None:
    phases = explained(name)
    assert not any(phases.values())
    assert list(described(phases)) == [
        "this model makes no fused attention calls: any attention it has is plain PyTorch"
    ]


def test_the_answer_is_a_few_lines_a_call(explained) -> None:
    lines = list(described(explained("transformer")))
    assert len(lines) == 18
    assert lines[3:6] == [
        "training, decode: 2 × decoder_layers.*.self_attention.pattern",
        "    math, not flash: Both fused kernels do not support non-zero dropout.",
        "    query 1 × 2 × 5 × 4, keys 1 × 2 × 5 × 4, values 1 × 2 × 5 × 4, float64, causal, "
        "dropout 0.1",
    ]


def test_the_model_is_left_as_it_was_and_runs_what_was_announced(make_translator) -> None:
    translator = make_translator("transformer")
    translator.model.float()
    phases = attention_calls(translator, SOURCE, TARGET, **DEFAULTS | {"autocast": torch.bfloat16})
    assert not translator.model.training
    assert not torch.is_autocast_enabled("cpu")
    announced = {
        call.kernel.name
        for phase, calls in phases.items()
        if phase.startswith("translating")
        for call in calls
    }
    assert kernels_that_ran(lambda: translator.translate([SOURCE])) == announced


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_a_search_that_counts_attention_makes_the_calls_that_are_told(
    make_translator, penalty: float
) -> None:
    """The weights that a coverage penalty adds up are not those of a fused kernel."""
    translator = make_translator("transformer", {"coverage_penalty": penalty})
    with recorded_calls(translator.model) as ran:
        translator.translate([SOURCE])
    told = attention_calls(translator, SOURCE, TARGET, **DEFAULTS | {"covering": penalty > 0})
    step = told["translating, a step of 2 hypotheses"]
    fused = {call.place for call in step if call.kernel.name != "readable"}
    assert fused == {
        re.sub(r"\.\d+\.", ".*.", call.place) for call in ran if call.place.startswith("decoder")
    }
    assert len(step) == 2
    assert ("    readable, not flash: the weights are needed" in described(told)) == (penalty > 0)
