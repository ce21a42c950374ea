"""How many hypotheses are still open, and when the batch is to become smaller."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

LATE = {"cuda"}  # devices that compute behind the program


class Counts:
    """Numbers that a search asks for at every step, to end and to make its batch smaller.

    A GPU computes behind the program: whoever asks it for a number waits until it has caught up,
    and lets it stand idle until the next step is prepared. So there a number is copied out when the
    GPU comes to it, and read one step later, when the GPU has long been there. A search takes a
    step more than it needs to, in which everything has ended already.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.late = device, device.type in LATE
        self._asked: tuple[Tensor, torch.cuda.Event] | None = None  # at the step before
        self._stayed: Sequence[int] | None = None  # of those asked for; None: all

    def read(self, numbers: Int[Tensor, "B"]) -> list[int] | None:
        """These; where they are read `late`, those of the step before, or None if it had none."""
        if not self.late:
            found: list[int] = numbers.tolist()
            return found
        copy = numbers.to("cpu", non_blocking=True)
        asked, self._asked = self._asked, (copy, reached(numbers.device))
        stayed, self._stayed = self._stayed, None
        if asked is None:
            return None
        before, there = asked
        there.synchronize()
        late: list[int] = before.tolist()
        return late if stayed is None else [late[place] for place in stayed]

    def rows_to_compute(self, wanted: Bool[Tensor, "N"]) -> Int[Tensor, "R"] | None:
        """Where `wanted` holds, and a few others besides; None: everywhere.

        Products are compiled for every number of rows, so it is rounded up (`round_number`). On a
        GPU all are computed: to count would be to wait.
        """
        if self.late:
            return None
        count = round_number(int(wanted.sum()))
        if count >= len(wanted):
            return None
        first = wanted.to(torch.uint8).argsort(descending=True, stable=True)[:count]
        return first.sort().values

    def keep(self, places: Sequence[int]) -> None:
        """Only these stay in the batch."""
        self._stayed = places


def round_number(rows: int) -> int:
    """`rows`, rounded up to a multiple of 16, or of 4 where they are fewer."""
    step = 16 if rows > 16 else 4
    return -(-rows // step) * step


def worth_leaving(left: int, batch: int) -> bool:
    """Whether those that have finished leave the batch, of which `left` go on.

    To leave is to copy what is remembered of all that stay: as much work as a step of them. Until
    a quarter has finished it is less to take them along.
    """
    return 4 * left <= 3 * batch


def reached(device: torch.device) -> torch.cuda.Event:
    """An event that comes when the GPU has done all that it has been asked for."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))  # which need not be the current device
    return event
