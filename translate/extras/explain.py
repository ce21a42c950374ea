"""The attention kernels that a model's calls take on this device, and why they are not flash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translate.attention.packed import Packing
from translate.extras.kernels import Call, Kernel, recorded_calls
from translate.inference.translator import Translator
from translate.models.head import in_mode
from translate.models.seq2seq import Seq2Seq
from translate.training.records import noted
from translate.training.resources import autocast_dtype, chosen_precision, packed_from
from translate.vocabulary import BOS, EOS

Phases = dict[str, Counter[Call]]  # a phase of training or translating → its calls, counted
READABLE = Kernel("readable", "the weights are needed")


def explained(
    translator: Translator,
    run: Path,
    trainer: Mapping[str, Any],
    sentence: str,
    reference: str | None,
    *,
    covering: bool,
) -> Iterator[str]:
    """Describe the calls for a sentence and its reference, or the model's translation of it.

    The run was trained with the keys `trainer` of conf/trainer; `covering` as `attention_calls`.
    """
    model, device = translator.model, translator.device.type
    asked = trainer.get("precision", "auto")
    precision = chosen_precision(asked, device, noted=noted(run, "precision"))
    guided = trainer.get("guided_alignment", {}).get("weight", 0) > 0
    packed = packed_from(
        trainer.get("packing", "auto"), model, accelerator=device, precision=precision,
        compiled=trainer.get("compile", False), guided=guided,
    )  # fmt: skip
    target = translator.translate([sentence])[0] if reference is None else reference
    phases = attention_calls(
        translator, sentence, target,
        autocast=autocast_dtype(precision), packed_from=packed, guided=guided,
        covering=covering,
    )  # fmt: skip
    yield f"{translator.device}, PyTorch {torch.__version__}, trained in {precision}"
    yield from described(phases)


def attention_calls(
    translator: Translator,
    source: str,
    target: str,
    *,
    autocast: torch.dtype | None,
    packed_from: int,
    guided: bool,
    covering: bool,
) -> Phases:
    """Record the fused attention calls for one pair of sentences.

    Args:
        autocast: the type a training step multiplies in, where it is not that of the model.
        packed_from: tokens of the longer sentence from which on training lays sentences end to end.
        guided: whether the training loss reads the attention over the source.
        covering: whether the search does.
    """
    device, tokenizers = translator.device, translator.tokenizers
    source_ids = torch.tensor([[*tokenizers.source.encode(source), EOS]], device=device)
    target_in = torch.tensor([[BOS, *tokenizers.target.encode(target)]], device=device)
    mixed = torch.autocast(device.type, autocast, enabled=autocast is not None)
    with in_mode(translator.model, training=True) as model, mixed:
        if max(source_ids.shape[1], target_in.shape[1]) >= packed_from:
            training = _end_to_end(model, source_ids, target_in)
        else:
            training = _looked_at(partial(_teacher_forcing, model, source_ids, target_in), guided)
    with torch.inference_mode():
        translating = _looked_at(partial(_two_steps, translator.model, source_ids), covering)
    return {
        **{f"training, {name}": calls for name, calls in training.items()},
        **{f"translating, {name}": calls for name, calls in translating.items()},
    }


def described(phases: Phases) -> Iterator[str]:
    """Describe each kind of call in a few lines."""
    if not any(phases.values()):
        yield "this model makes no fused attention calls: any attention it has is plain PyTorch"
        return
    for phase, calls in phases.items():
        for call, count in calls.items():
            kernel = call.kernel
            reason = f", not flash: {kernel.why_not_flash}" if kernel.why_not_flash else ""
            yield f"{phase}: {count} × {call.place}"
            yield f"    {kernel.name}{reason}"
            yield f"    {_shapes(call)}"


def _looked_at(phases: Callable[[bool], Phases], wanted: bool) -> Phases:
    """Mark the calls that are not made, but computed readably, where the weights are wanted."""
    fused = phases(False)
    left = phases(True) if wanted else fused
    return {
        phase: Counter({
            call if call in left[phase] else replace(call, kernel=READABLE): count
            for call, count in calls.items()
        })
        for phase, calls in fused.items()
    }  # fmt: skip


def _teacher_forcing(model: Seq2Seq, source: Tensor, target_in: Tensor, looked_at: bool) -> Phases:
    with recorded_calls(model) as encoding:
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    with recorded_calls(model) as decoding:
        model.decode(target_in, memory, need_alignment=looked_at)
    return {"encode": _counted(encoding), "decode": _counted(decoding)}


def _end_to_end(model: Seq2Seq, source: Tensor, target_in: Tensor) -> Phases:
    packings = [
        Packing(lengths=side.new_tensor([side.shape[1]]), longest=side.shape[1], total=side.numel())
        for side in (source, target_in)
    ]
    with recorded_calls(model) as reading:
        model.read_packed(source[0], target_in[0], *packings)
    return {"sentences end to end": _counted(reading)}


def _two_steps(model: Seq2Seq, source: Tensor, looked_at: bool) -> Phases:
    """Record the first step of one hypothesis, then a step of two."""
    with recorded_calls(model) as encoding:
        memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    state = model.start(memory)
    first = model.decode_step(source.new_tensor([BOS]), state)
    state = first.state.select(source.new_tensor([0, 0]))
    with recorded_calls(model) as stepping:
        model.decode_step(source.new_tensor([EOS, EOS]), state, need_alignment=looked_at)
    return {"encode": _counted(encoding), "a step of 2 hypotheses": _counted(stepping)}


def _counted(calls: list[Call]) -> Counter[Call]:
    """Count the calls of all layers together: `layers.2.attention` as `layers.*.attention`."""
    return Counter(
        replace(call, place=re.sub(r"(?<=\.)\d+(?=\.)", "*", call.place)) for call in calls
    )


def _shapes(call: Call) -> str:
    shapes = {"query": call.query, "keys": call.keys, "values": call.values}
    parts = [f"{name} {' × '.join(map(str, shape))}" for name, shape in shapes.items()]
    parts.append(str(call.dtype).removeprefix("torch."))
    if call.mask:
        parts.append(f"mask {' × '.join(map(str, call.mask))}")
    if call.causal:
        parts.append("causal")
    if call.dropout:
        parts.append(f"dropout {call.dropout}")
    return ", ".join(parts)
