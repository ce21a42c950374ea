"""A bundle as two graphs in a file format, written only when they translate as the model does.

    encoder   source, source_mask → state
    step      tokens, length, state → log_probs, next.state

The state is tensors with the names that `tensors_in` gives them; those that a step leaves as they
are (what the source was read to) have no `next`. A row is a hypothesis, so that a beam search picks
rows, and `length` counts the tokens that were read before.
"""

from __future__ import annotations

import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.errors import UserError, first_line
from translate.extras import onnx_decoder
from translate.extras.onnx_decoder import Arrays, Run, greedy, session, walk
from translate.extras.parity import Parity, compare, write
from translate.files import naming
from translate.inference.bundle import Bundle
from translate.models.seq2seq import DecoderState, Seq2Seq
from translate.models.state_tensors import tensors_in, why_no_graph, with_tensors, without_room
from translate.search.scoring import next_log_probs
from translate.vocabulary import BOS, EOS, PAD, UNK
from translate.wording import install

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
    state = _example_state(model, SIZES)
    named = tensors_in(state)
    axes = _axes(model, named)
    carried = [_port(name, tensor, axes[name]) for name, tensor in named.items()]

    sides = [_port("source", source, SENTENCES), _port("source_mask", mask, SENTENCES)]
    reading = _trace(EncoderGraph(model), (source, mask), _dynamic(model, sides))

    graph = StepGraph(model, state)
    log_probs, changed = graph.step(tokens, SIZES["length"], named)
    word, length = _port("tokens", tokens, ("batch",)), Port("length", "int64", ())
    gives = [_port("log_probs", log_probs, ("batch", log_probs.shape[1]))]
    for name, tensor in changed.items():
        grown = ["length + 1" if size == "length" else size for size in axes[name]]
        gives.append(_port(NEXT + name, tensor, grown))
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


def _axes(model: Seq2Seq, plain: Mapping[str, Tensor]) -> dict[str, list[int | str]]:
    """The shape of each tensor of a state; a size is known by what grows with it."""
    axes: dict[str, list[int | str]] = {name: list(x.shape) for name, x in plain.items()}
    for size, number in SIZES.items():
        larger = tensors_in(_example_state(model, {**SIZES, size: number + 1}))
        for name, tensor in larger.items():
            for axis, (one, other) in enumerate(zip(plain[name].shape, tensor.shape, strict=True)):
                if one != other:
                    axes[name][axis] = size
    return axes


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


INTERFACE, DECODER = "graphs.json", "decoder.py"
IDS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
ONNX_LARGEST = 2**31 - 1  # bytes of a file in Protocol Buffers


@dataclass(frozen=True)
class Kind:
    """A file format for graphs."""

    suffix: str
    check: Callable[[Seq2Seq], None]  # whether it can be written here, before anything heavy
    to_bytes: Callable[[Graph], bytes]
    session: Callable[[Path, Graph], Run]  # a graph as a function of its inputs
    beside: Mapping[str, Path]  # files to copy into the folder


def export_graphs(
    bundle: Bundle, folder: Path, *, kind: Kind, sentences: Sequence[list[int]]
) -> Iterator[tuple[str, Parity]]:
    """Replace `folder` by the model as graphs, with tokenizers, origin and what goes in and out.

    Yields how they compare with the model on `sentences` (pieces without </s>).

    Raises:
        UserError: the model has no graph, a library is missing, or the graphs compute something
            else.
    """
    model = bundle.model.in_dtype(torch.float32)
    kind.check(model)
    graphs = traced(model)
    files = {name + kind.suffix: kind.to_bytes(graph) for name, graph in graphs.items()}
    with tempfile.TemporaryDirectory(prefix="translate-") as place, naming(Path(place)):
        runs = []
        for name, graph in graphs.items():
            file = Path(place, name + kind.suffix)
            file.write_bytes(files[file.name])
            runs.append(kind.session(file, graph))
        parity = compare(model, GraphDecoder(*runs), sentences)
    parity.check()
    yield "float32", parity
    files |= {name: path.read_bytes() for name, path in kind.beside.items()}
    files[INTERFACE] = _interface(bundle, graphs, kind.suffix)
    write(bundle, folder, files, "float32", parity, measured="float32")


def _interface(bundle: Bundle, graphs: Mapping[str, Graph], suffix: str) -> bytes:
    """All that a decoder must know beside the graphs and the tokenizers."""
    search = bundle.config.search
    about: dict[str, Any] = {
        "source_language": bundle.config.source_language,
        "target_language": bundle.config.target_language,
        "ids": IDS,
        "source_prefix": bundle.tokenizers.source.prefix,
        "max_length": bundle.model.max_length,  # of a side, <s> or </s> too; null: any
        "max_length_ratio": search["max_length_ratio"],
        "max_length_offset": search["max_length_offset"],
    }
    for name, graph in graphs.items():
        about[name] = {
            "file": name + suffix,
            "inputs": [asdict(port) for port in graph.inputs],
            "outputs": [asdict(port) for port in graph.outputs],
        }
    return (json.dumps(about, indent=2) + "\n").encode()


class GraphDecoder:
    """The decoder that is copied beside the graphs, to compare."""

    def __init__(self, encoder: Run, step: Run) -> None:
        self.encoder, self.step = encoder, step

    def translate(self, sources: list[list[int]], limits: list[int]) -> list[tuple[int, ...]]:
        rows = self._walk(sources, greedy(limits, eos=EOS))
        return [tuple(token for token, _ in row[:-1]) for row in rows]

    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        forced = np.full((max(map(len, targets)) + 1, len(targets)), EOS)
        for row, target in enumerate(targets):
            forced[: len(target), row] = target
        rows = self._walk(sources, lambda length, log_probs: forced[length])
        return [[log_prob for _, log_prob in row] for row in rows]

    def _walk(
        self, sources: list[list[int]], choose: Callable[[int, Any], Any]
    ) -> list[list[tuple[int, float]]]:
        return walk(self.encoder, self.step, [[*ids, EOS] for ids in sources], choose, ids=IDS)


def _check_onnx(model: Seq2Seq) -> None:
    for library in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(library) is None:
            raise UserError(f"to=onnx needs {library}, which is not installed: {install('onnx')}")
    size = sum(parameter.nbytes for parameter in model.parameters())  # each once, tied or not
    if size > ONNX_LARGEST:
        raise UserError(
            f"the weights take {size / 2**30:.1f} GiB in float32, but an ONNX file holds at most "
            "2: use to=torch"
        )


@torch.no_grad()  # a loop that may need gradients is not translated
def _to_onnx(graph: Graph) -> bytes:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # else libraries log hundreds of lines about themselves
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph.program,
                input_names=[port.name for port in graph.inputs],
                output_names=[port.name for port in graph.outputs],
                dynamo=True,
                verbose=False,
            )
    finally:
        logging.disable(before)
    assert program is not None
    proto = program.model_proto
    for value, port in zip(
        (*proto.graph.input, *proto.graph.output), graph.inputs + graph.outputs, strict=True
    ):
        for dimension, size in zip(value.type.tensor_type.shape.dim, port.shape, strict=True):
            if isinstance(size, str):
                dimension.dim_param = size
    content: bytes = proto.SerializeToString()
    return content


def _to_pt2(graph: Graph) -> bytes:
    file = io.BytesIO()
    torch.export.save(graph.program, file)
    return file.getvalue()


def _pt2_session(file: Path, graph: Graph) -> Run:
    module = torch.export.load(file).module()

    def run(inputs: Arrays) -> Arrays:
        arrays = [inputs[port.name] for port in graph.inputs]
        tensors = [torch.from_numpy(x) if x.ndim else x.item() for x in arrays]
        with torch.inference_mode():
            outputs = module(*tensors)
        named = zip(graph.outputs, outputs, strict=True)
        return {port.name: tensor.numpy() for port, tensor in named}

    return run


ONNX = Kind(
    suffix=".onnx",
    check=_check_onnx,
    to_bytes=_to_onnx,
    session=lambda file, graph: session(file),
    beside={DECODER: Path(onnx_decoder.__file__)},
)
TORCH = Kind(
    suffix=".pt2",
    check=lambda model: None,
    to_bytes=_to_pt2,
    session=_pt2_session,
    beside={},
)
