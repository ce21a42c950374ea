"""Whether training lays sentences end to end instead of padding them to a batch."""

from __future__ import annotations

import logging
from typing import Literal

import torch

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.training.accelerator import on_gpu
from translate.training.precision import Precision

log = logging.getLogger(__name__)

AMPERE = (8, 0)  # compute capability
HALF = ("bf16-mixed", "16-mixed")  # what flash attention computes in


def settle(
    choice: Literal["auto", "on", "off"],
    model: Seq2Seq,
    *,
    accelerator: str,
    precision: Precision,
    guided: bool,
    compiled: bool,
) -> bool:
    """The choice, or for `auto` what is faster here: packed where flash attention can be had.

    On a CPU attention takes packed sentences one by one, which costs more than the few per cent of
    padding that batches of like lengths have.

    Raises:
        UserError: `on`, and something of the run needs padded batches.
    """
    why_not = model.why_padded
    if guided:
        why_not = (
            "trainer.guided_alignment needs the attention weights, which flash attention never "
            "computes"
        )
    if compiled:
        why_not = "trainer.compile compiles programs for padded batches"
    half = precision in HALF
    if (
        why_not is None
        and half
        and on_gpu(accelerator)
        and torch.cuda.get_device_capability() < AMPERE
    ):
        why_not = "flash attention needs a GPU of NVIDIA's Ampere generation or later"
    if choice == "on" and why_not:
        raise UserError(f"trainer.packing = on, but {why_not}: choose auto or off")
    if choice != "auto":
        return choice == "on"
    if why_not is None and not on_gpu(accelerator):
        why_not = "on a CPU, attention would process packed sentences one by one"
    if why_not is None and not half:
        why_not = f"trainer.precision={precision}, but flash attention computes in 16 bits"
    log.info("sentences are %s", f"padded: {why_not}" if why_not else "packed, without padding")
    return why_not is None
