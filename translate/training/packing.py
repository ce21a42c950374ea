"""Which batches training lays end to end instead of padding their sentences."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import torch

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.training.accelerator import on_gpu
from translate.training.precision import Precision

log = logging.getLogger(__name__)

AMPERE = (8, 0)  # compute capability
HALF = ("bf16-mixed", "16-mixed")  # what flash attention computes in
ALL, NONE = 0, sys.maxsize
# tokens of a batch's longest sentence: flash computes tiles of 128 queries, which shorter sentences
# leave half empty (docs/benchmarks/gpu.md)
LONG = 128


def settle(
    choice: Literal["auto", "on", "off"],
    model: Seq2Seq,
    *,
    accelerator: str,
    precision: Precision,
    guided: bool,
    compiled: bool,
) -> int:
    """From how many tokens of its longest sentence on a batch is packed.

    For `auto` where that is faster here: where flash attention can be had, for batches of long
    sentences. On a CPU attention takes packed sentences one by one, which costs more than the few
    per cent of padding that batches of like lengths have.

    Raises:
        UserError: `on`, and something of the run needs padded batches.
    """
    gpu, half = on_gpu(accelerator), precision in HALF
    obstacle = _obstacle(model, guided=guided, compiled=compiled, flash=gpu and half)
    if choice == "on" and obstacle:
        raise UserError(f"trainer.packing = on, but {obstacle}: choose auto or off")
    if choice != "auto":
        return ALL if choice == "on" else NONE
    if obstacle is None and not gpu:
        obstacle = "on a CPU, attention would process packed sentences one by one"
    elif obstacle is None and not half:
        obstacle = f"trainer.precision={precision}, but flash attention computes in 16 bits"
    packed = f"packed, without padding, in batches whose longest sentence has {LONG} tokens or more"
    log.info("sentences are %s", f"padded: {obstacle}" if obstacle else packed)
    return LONG if obstacle is None else NONE


def _obstacle(model: Seq2Seq, *, guided: bool, compiled: bool, flash: bool) -> str | None:
    """What makes packing impossible; None where nothing does, slow as it may be."""
    if compiled:
        return "trainer.compile compiles programs for padded batches"
    if guided:
        return (
            "trainer.guided_alignment needs the attention weights, which flash attention never "
            "computes"
        )
    if model.why_padded is None and flash and torch.cuda.get_device_capability() < AMPERE:
        return "flash attention needs a GPU of NVIDIA's Ampere generation or later"
    return model.why_padded
