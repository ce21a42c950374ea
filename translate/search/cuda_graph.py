"""A GPU repeats the step of a search by itself, where each is the same program: a CUDA graph.

Python asks a GPU for some two hundred kernels a token, the model's and the search's, and where rows
are few takes longer to ask than the GPU to compute them. A graph of them is asked for at once. It
reads and writes the same places of memory each time, so all shapes have to stay, and lengths are
tensors (`models.state_tensors.reserved`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.cache import Number, number_on
from translate.models.seq2seq import DecoderState
from translate.models.state_tensors import released, reserved, tensors_in, with_tensors
from translate.search.hypothesis import Counts, Nodes, Tree

FEWEST = 8  # tokens for which a graph is worth recording, which takes as long as a few of them
RECORDING = threading.Lock()  # one at a time in a process
FIRST = 32  # tokens that there is room for at first; later for as many as there were


@dataclass(frozen=True)
class Progress:
    """The place of a search between two tokens."""

    open: Any  # the open hypotheses, as a search holds them
    state: DecoderState
    length: Number  # tokens of every open hypothesis
    nodes: Number  # in the tree


class StepRecord(NamedTuple):
    """The results of a step, beside where it leads."""

    nodes: Nodes
    alignment: Float[Tensor, "N L H S"] | None
    open: Int[Tensor, "B"]  # how many hypotheses go on

    def copied(self) -> StepRecord:
        """The same in memory of its own, by few copies, for each has to be asked for."""
        numbers, ranks = torch.stack(self.nodes[:4]), torch.stack(self.nodes[4:])
        alignment = None if self.alignment is None else self.alignment.clone()
        return StepRecord(Nodes(*numbers, *ranks), alignment, self.open.clone())


TakeStep = Callable[[Progress], tuple[Progress, StepRecord]]


def replayed(
    take: TakeStep,
    progress: Progress,
    *,
    beam: int,
    most: int,
    tree: Tree,
    counts: Counts,
) -> Progress | None:
    """Take up to `most` steps of states with `beam` hypotheses a sentence.

    Returns the same progress where no graph can be made, None if all have ended.
    """
    length, nodes, device = int(progress.length), int(progress.nodes), counts.device
    tokens = min(most, max(FIRST, length))
    state = reserved(progress.state, tokens=tokens, beam=beam) if tokens >= FEWEST else None
    if state is None:
        return progress
    start = replace(
        progress, state=state, length=number_on(device, length), nodes=number_on(device, nodes)
    )
    replay = Replay(take, start, device)
    for _ in range(tokens):
        shown = replay()
        tree.grow(shown.nodes, shown.alignment)
        length, nodes = length + 1, nodes + shown.nodes.tokens.numel()
        left = counts.read(shown.open)
        if left is not None and not any(left):
            return None
    now = replay.progress
    assert now is not None
    state = released(now.state, progress.state, tokens=tokens, beam=beam)
    return replace(now, state=state, length=length, nodes=nodes)


@functools.cache
def _recording(device: torch.device) -> torch.cuda.Stream:
    """The stream of recordings: of each GPU always the same, for cuBLAS keeps memory for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Replay:
    """A step that leads from `progress` to the next, in place.

    Tensors that a step hands on as they are, such as the source's, are not written. Those that it
    changes are written over: after the first step, which is taken by itself, they are new, and in
    nobody else's hands. That step also loads all kernels, which cannot be done while recording.
    PyTorch gives unused memory back to the GPU whenever it records. On a device that is no GPU no
    graph is recorded.
    """

    def __init__(self, take: TakeStep, progress: Progress, device: torch.device) -> None:
        self._take, self._start, self._device = take, progress, device
        self.progress: Progress | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._shown: StepRecord

    def __call__(self) -> StepRecord:
        if self.progress is None:
            self.progress, shown = self._take(self._start)
            return shown.copied()
        if self._device.type != "cuda":
            return self._in_place(self.progress)
        if self._graph is None:
            self._graph = self._recorded(self.progress)
        self._graph.replay()
        return self._shown.copied()  # which the next step writes over

    def _recorded(self, progress: Progress) -> torch.cuda.CUDAGraph:
        graph, stream, full = torch.cuda.CUDAGraph(), _recording(self._device), None
        # other threads may do with the GPU what cannot be recorded
        with RECORDING, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            try:
                self._shown = self._in_place(progress)
            except torch.OutOfMemoryError as error:
                full = error  # told when the recording has ended, which would else tell another
        if full is not None:
            raise full
        return graph

    def _in_place(self, progress: Progress) -> StepRecord:
        before = tensors_in(progress)
        # a value of its own: caches are changed by a step
        after, shown = self._take(with_tensors(progress, before))
        shown = shown.copied()  # it may be of what is written over now
        for name, tensor in tensors_in(after).items():
            if tensor is not before[name]:
                if tensor.shape != before[name].shape:
                    raise ValueError(f"{name} changed from {before[name].shape} to {tensor.shape}")
                before[name].copy_(tensor)
        return shown
