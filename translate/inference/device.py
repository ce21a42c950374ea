"""Where a model computes, and in which numbers."""

from __future__ import annotations

import torch

from translate.attention.kernels import leave_out_cudnn
from translate.errors import UserError
from translate.inference.engines import Precision
from translate.models.seq2seq import Seq2Seq


def choose_device(device: str | torch.device) -> torch.device:
    """`auto`: a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} is not available here: try device=auto") from error
    if chosen.type == "cuda":
        leave_out_cudnn()
    return chosen


def in_precision(model: Seq2Seq, precision: Precision | None) -> Seq2Seq:
    """The model with its weights as these numbers (a copy where they are others).

    Sums over the vocabulary and the scores stay in float32: searches see to it.
    """
    if precision is None:
        return model
    return model.in_dtype({"float32": torch.float32, "bf16": torch.bfloat16}[precision])
