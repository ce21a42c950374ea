"""Where a model computes."""

from __future__ import annotations

import torch

from translate.errors import UserError


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
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} is not to be had here: try device=auto") from error
    return chosen
