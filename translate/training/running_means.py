"""What is shown of training: means since the last report."""

from __future__ import annotations

import torch
from lightning.pytorch.strategies import Strategy
from torch import Tensor


class RunningMeans:
    """Of losses and the like, by name.

    A batch has sentences of like length, and its loss tells that more than how training goes. Sums
    stay on the device: to look at one is to wait for a GPU.
    """

    def __init__(self) -> None:
        self.sums: dict[str, tuple[Tensor, Tensor]] = {}  # name → total, count

    def add(self, name: str, total: Tensor, count: Tensor) -> None:
        if name in self.sums:
            total, count = (a + b for a, b in zip((total, count), self.sums[name], strict=True))
        self.sums[name] = total.detach(), count

    def here(self) -> dict[str, float]:
        """The means of this process."""
        return {name: float(total / count) for name, (total, count) in self.sums.items()}

    def everywhere(self, strategy: Strategy) -> dict[str, float]:
        """The means of all processes together, which all ask at once."""
        if not self.sums:
            return {}
        pairs = (torch.stack([part.float() for part in pair]) for pair in self.sums.values())
        total, count = strategy.reduce(torch.stack([*pairs]), reduce_op="sum").unbind(1)
        return dict(zip(self.sums, (total / count).tolist(), strict=True))

    def summed(self, strategy: Strategy) -> dict[str, tuple[Tensor, Tensor]]:
        """The sums of all processes together, which all ask at once."""
        return {
            name: (strategy.reduce(total.clone(), reduce_op="sum"),
                   strategy.reduce(count.clone(), reduce_op="sum"))
            for name, (total, count) in self.sums.items()
        }  # fmt: skip

    def begin_with(self, sums: dict[str, tuple[Tensor, Tensor]], *, main: bool) -> None:
        """Go on from what all had together: the main process has it, and the others nothing."""
        share = int(main)
        self.sums = {name: (total * share, count * share) for name, (total, count) in sums.items()}

    def clear(self) -> None:
        self.sums = {}
