"""A model as two graphs of tensors, for programs that know nothing of Python.

    encoder   source, source_mask → state
    step      tokens, length, state → log_probs, next.state

The state is tensors with the names that `tensors_in` gives them; those that a step leaves as they
are (what the source was read to) have no `next`. A row is a hypothesis, so that a beam search picks
rows, and `length` counts the tokens that were read before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.errors import UserError, first_line
from translate.models.seq2seq import DecoderState, Seq2Seq
from translate.models.state_tensors import tensors_in, why_no_graph, with_tensors, without_room
from translate.search.scoring import next_log_probs
from translate.vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NEXT = "next."
# Of the example that is traced. PyTorch takes 0 and 1 for constants, all else for any number.
SIZES = {"batch": 2, "source": 5, "length": 3}
SENTENCES = ("batch", "source")


@dataclass(frozen=True)
class Port:
    """An input or an output of a graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]  # a word names a size that may be any


@dataclass(frozen=True)
class Graph:
    """A traced program, and what goes in and comes out in this order."""

    program: ExportedProgram
    inputs: list[Port]
    outputs: list[Port]


class EncoderGraph(nn.Module):
    """The state before the first token."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]
    ) -> tuple[Tensor, ...]:
        state = without_room(self.model.start(self.model.encode(source, source_mask)), 0)
        # copies, for what comes out of a graph must not be what went in, nor the same twice
        return tuple(tensor.clone() for tensor in tensors_in(state).values())


class StepGraph(nn.Module):
    """Log-probabilities of the next token, -inf for <pad> and <s>, and what has changed."""

    def __init__(self, model: Seq2Seq, example: DecoderState) -> None:
        super().__init__()
        self.model, self.example = model, example
        self.names = list(tensors_in(example))

    def forward(self, tokens: Int[Tensor, "N"], length: int, *state: Tensor) -> tuple[Tensor, ...]:
        log_probs, changed = self.step(tokens, length, dict(zip(self.names, state, strict=True)))
        return log_probs, *changed.values()

    def step(
        self, tokens: Int[Tensor, "N"], length: int, before: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "N V"], dict[str, Tensor]]:
        state = without_room(with_tensors(self.example, before), length)
        step = self.model.decode_step(tokens, state)
        after = tensors_in(step.state).items()
        changed = {name: tensor for name, tensor in after if tensor is not before[name]}
        return next_log_probs(self.model.project(step.hidden)), changed


@torch.no_grad()
def traced(model: Seq2Seq) -> dict[str, Graph]:
    """The graphs of a model in evaluation mode, by their names.

    Raises:
        UserError: it does something that no graph can.
    """
    source, mask, tokens = _example_input(SIZES)
    if (reason := why_no_graph(model.start(model.encode(source, mask)))) is not None:
        raise UserError(f"this model cannot be exported as a graph: {reason}")
    state, axes = _example_state(model, SIZES), _axes(model)
    named = tensors_in(state)
    carried = [_port(name, tensor, axes[name]) for name, tensor in named.items()]

    sides = [_port("source", source, SENTENCES), _port("source_mask", mask, SENTENCES)]
    reading = _trace(EncoderGraph(model), (source, mask), _dynamic(model, sides))

    graph = StepGraph(model, state)
    log_probs, changed = graph.step(tokens, SIZES["length"], named)
    word, length = _port("tokens", tokens, ("batch",)), Port("length", "int64", ())
    gives = [_port("log_probs", log_probs, ("batch", log_probs.shape[1]))]
    gives += [_port(NEXT + name, tensor, _grown(axes[name])) for name, tensor in changed.items()]
    stepping = _trace(
        graph, (tokens, SIZES["length"], *named.values()),
        (*_dynamic(model, [word, length]), _dynamic(model, carried)),
    )  # fmt: skip
    return {
        "encoder": Graph(reading, sides, carried),
        "step": Graph(stepping, [word, length, *carried], gives),
    }


def _example_input(
    sizes: Mapping[str, int],
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"], Int[Tensor, "B"]]:
    """A source, its mask with some padding in it, and a token each."""
    mask = torch.ones(sizes["batch"], sizes["source"], dtype=torch.bool)
    mask[0, -1] = False
    return torch.full(mask.shape, EOS).where(mask, PAD), mask, torch.full((len(mask),), BOS)


def _example_state(model: Seq2Seq, sizes: Mapping[str, int]) -> DecoderState:
    source, mask, tokens = _example_input(sizes)
    state: DecoderState = without_room(model.start(model.encode(source, mask)), 0)
    for _ in range(sizes["length"]):
        state = model.decode_step(tokens, state).state
    return state


def _axes(model: Seq2Seq) -> dict[str, list[int | str]]:
    """The shape of each tensor of a state; a size is known by what grows with it."""
    plain = tensors_in(_example_state(model, SIZES))
    axes: dict[str, list[int | str]] = {name: list(x.shape) for name, x in plain.items()}
    for size, number in SIZES.items():
        larger = tensors_in(_example_state(model, {**SIZES, size: number + 1}))
        for name, tensor in larger.items():
            for axis, (one, other) in enumerate(zip(plain[name].shape, tensor.shape, strict=True)):
                if one != other:
                    axes[name][axis] = size
    return axes


def _grown(axes: Sequence[int | str]) -> list[int | str]:
    """The shape after a step."""
    return ["length + 1" if size == "length" else size for size in axes]


def _port(name: str, tensor: Tensor, axes: Sequence[int | str]) -> Port:
    return Port(name, str(tensor.dtype).removeprefix("torch."), tuple(axes))


def _dynamic(model: Seq2Seq, ports: Sequence[Port]) -> tuple[Any, ...]:
    """The dimensions of each input that may have any size, as torch.export takes them."""
    from torch.export import Dim

    sizes = {size: Dim(size) for size in SIZES}
    if model.max_length is not None:
        sizes["source"] = Dim("source", max=model.max_length)
    return tuple(
        {axis: sizes[size] for axis, size in enumerate(port.shape) if isinstance(size, str)}
        if port.shape
        else Dim.DYNAMIC
        for port in ports
    )


def _trace(graph: nn.Module, inputs: tuple[Any, ...], dynamic: tuple[Any, ...]) -> ExportedProgram:
    from torch.export import export

    try:
        return export(graph.eval(), inputs, dynamic_shapes=dynamic)
    except Exception as error:  # of many kinds, and of versions: 2.11 gives an LSTM a wrong shape
        raise UserError(
            f"PyTorch {torch.__version__} cannot trace this model ({first_line(error)}): export it "
            "with a newer version, which reads the same bundle"
        ) from error
