"""A bundle as graphs in a file format, written only when they translate as the model does."""

from __future__ import annotations

import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from translate.errors import UserError
from translate.extras import onnx_decoder
from translate.extras.graphs import Graph, traced
from translate.extras.onnx_decoder import Arrays, Run, greedy, session, walk
from translate.extras.parity import Parity, compare, write
from translate.files import naming
from translate.inference.bundle import Bundle
from translate.models.seq2seq import Seq2Seq
from translate.vocabulary import BOS, EOS, PAD, UNK
from translate.wording import install

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
    with _quiet():
        program = torch.onnx.export(
            graph.program,
            input_names=[port.name for port in graph.inputs],
            output_names=[port.name for port in graph.outputs],
            dynamo=True,
            verbose=False,
        )
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from logging hundreds of lines about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


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
