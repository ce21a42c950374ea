"""A model as graphs is the model: every family, any batch, any length, outside of Python too."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from translate.errors import UserError
from translate.extras import graph_export
from translate.extras.graph_export import (
    DECODER,
    INTERFACE,
    NEXT,
    ONNX,
    TORCH,
    export_graphs,
    traced,
)
from translate.extras.model_export import random_sentences
from translate.extras.parity import GREEDY, MANIFEST
from translate.inference.bundle import SOURCE, TARGET
from translate.inference.forcing import TeacherForcing
from translate.inference.translator import Translator
from translate.models.state_tensors import tensors_in
from translate.search import build
from translate.vocabulary import EOS

EVERY = [
    ("rnn_none", {}),
    ("rnn_general", {"cell": "lstm", "encoder_layers": 2, "decoder_layers": 2}),
    ("rnn_general", {"attention": "local_p", "input_feeding": True}),
    ("rnn_general", {"attention": "local_m", "query": "previous"}),
    ("rnn_general", {"attention": "additive", "coverage": "linguistic"}),
    ("transformer", {}),
    ("transformer", {"positions": "rotary", "num_kv_heads": 1, "activation": "swiglu"}),
    ("transformer", {"positions": "learned", "norm": "post", "activation": "gelu"}),
    ("transformer", {"positions": "relative", "normalization": "rms", "d_v": 3}),
    ("transformer", {"positions": "alibi", "self_attention": "strided"}),
    ("transformer", {"positions": "none", "self_attention": "fixed"}),
    ("transformer", {"self_attention": "linear"}),
    ("transformer", {"self_attention": "fast_weights", "num_kv_heads": 1}),
    ("convolutional", {}),
    ("convolutional", {"encoder_width": 5, "decoder_width": 1}),
]


def eagerly(file: Path, graph: graph_export.Graph):
    """The modules that would be traced, run as they are."""

    def run(inputs):
        given = [inputs[port.name] for port in graph.inputs]
        with torch.no_grad():
            found = graph.program(*(torch.from_numpy(x) if x.ndim else x.item() for x in given))
        named = zip(graph.outputs, found, strict=True)
        return {port.name: tensor.numpy() for port, tensor in named}

    return run


LOADING = "import sys; from translate.extras.onnx_decoder import session; session(sys.argv[1])"


def test_running_a_graph_leaves_nothing_in_the_users_home(tmp_path: Path) -> None:
    """ONNX Runtime keeps a number of the machine there, and what it is going to tell its makers."""
    pytest.importorskip("onnxruntime")
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    done = subprocess.run(
        [sys.executable, "-c", LOADING, "nowhere.onnx"], env=environment | {"HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "nowhere.onnx" in done.stderr.splitlines()[-1]  # so far it came
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.fixture
def untraced(monkeypatch):
    """A kind of file that needs no tracing: all but PyTorch's part, in no time."""
    monkeypatch.setattr(graph_export, "_trace", lambda graph, inputs, dynamic: graph.eval())
    return replace(TORCH, to_bytes=lambda graph: b"", session=eagerly)


def parity_of(bundle, folder: Path, kind: graph_export.Kind):
    sentences = random_sentences(6, vocab_size=len(bundle.tokenizers.source))
    ((name, parity),) = export_graphs(bundle, folder, kind=kind, sentences=sentences)
    assert name == "float32"
    assert parity.sentences == 6
    return parity


def rounding(bundle) -> float:
    """How far the model's log-probabilities of the same translations are from those in float64."""
    sources = random_sentences(6, vocab_size=len(bundle.tokenizers.source))
    narrow = Translator(bundle.model, bundle.tokenizers, build(GREEDY))
    found = narrow.search(bundle.model, *narrow.forcing.padded([[*ids, EOS] for ids in sources]))
    wide = TeacherForcing(copy.deepcopy(bundle.model).double(), torch.device("cpu"))
    exact = wide.log_probs(sources, [list(best.tokens) for best, *_ in found])
    return max(
        abs(best.log_prob - sum(log_probs))
        for (best, *_), log_probs in zip(found, exact, strict=True)
    )


@pytest.mark.parametrize(("name", "changes"), EVERY, ids=str)
def test_stepping_with_tensors_translates_as_the_model_does(
    make_bundle, tmp_path, untraced, name, changes
) -> None:
    parity = parity_of(make_bundle(name, **changes), tmp_path / "export", untraced)
    assert max(parity.gap, parity.margin) < 1e-4


@pytest.mark.parametrize(("name", "changes"), EVERY, ids=str)
def test_sizes_are_told_as_they_are(make_bundle, untraced, name, changes) -> None:
    model = make_bundle(name, **changes).model
    found = traced(model)
    sizes = {"batch": 7, "source": 11, "length": 9}
    state = tensors_in(graph_export._example_state(model, sizes))
    assert list(state) == [port.name for port in found["encoder"].outputs]
    for port in found["encoder"].outputs:
        assert [sizes.get(size, size) for size in port.shape] == list(state[port.name].shape)
        assert f"torch.{port.dtype}" == str(state[port.name].dtype)
    changed = [port.name.removeprefix(NEXT) for port in found["step"].outputs[1:]]
    assert changed
    assert not any(name.startswith("memory") for name in changed)


@pytest.mark.soak  # tests/cli/test_export.py exports one at every run
@pytest.mark.parametrize("kind", [ONNX, TORCH], ids=["onnx", "torch"])
@pytest.mark.parametrize(("name", "changes"), EVERY, ids=str)
def test_a_graph_computes_what_the_model_does(make_bundle, tmp_path, name, changes, kind) -> None:
    if kind is ONNX:
        pytest.importorskip("onnxruntime")
    bundle = make_bundle(name, **changes)
    parity = parity_of(bundle, tmp_path / "export", kind)
    # either side may be as far from the truth as float32 takes the model itself
    assert parity.gap < 1e-4 + 2 * rounding(bundle)
    assert parity.margin < 1e-4


@pytest.mark.soak
@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="PyTorch 2.11 gives an LSTM's output a wrong shape"
)
def test_a_recurrent_program_reads_any_source(make_bundle, tmp_path) -> None:
    """The shortest is </s> alone."""
    bundle = make_bundle("rnn_general", attention="additive", coverage="linguistic")
    sentences = [[], [5], *random_sentences(2, vocab_size=len(bundle.tokenizers.source))]
    exporting = export_graphs(bundle, tmp_path / "x", kind=TORCH, sentences=sentences)
    ((_, parity),) = exporting
    assert max(parity.gap, parity.margin) < 1e-4


def test_what_pytorch_cannot_trace_is_told(make_bundle, tmp_path, monkeypatch) -> None:
    def export(*_: object, **__: object) -> None:
        raise RuntimeError("cannot broadcast s38\nto s21")

    monkeypatch.setattr(torch.export, "export", export)
    message = rf"PyTorch {re.escape(torch.__version__)} cannot trace .*broadcast s38\): .*newer"
    with pytest.raises(UserError, match=message):
        parity_of(make_bundle(), tmp_path / "x", TORCH)
    assert not (tmp_path / "x").exists()


def test_another_model_is_noticed_and_nothing_is_written(make_bundle, tmp_path, untraced) -> None:
    def wrong(file, graph):
        right = eagerly(file, graph)

        def run(inputs):
            found = right(inputs)
            if "log_probs" in found:
                found["log_probs"] = found["log_probs"] * np.float32(1.01)
            return found

        return run

    with pytest.raises(UserError, match="the export does not match the model"):
        parity_of(make_bundle(), tmp_path / "x", replace(untraced, session=wrong))
    assert not (tmp_path / "x").exists()


def test_what_no_graph_can_do_is_refused_before_tracing(make_bundle, tmp_path) -> None:
    bundle = make_bundle(self_attention="sliding_window")
    with pytest.raises(UserError, match=r"self_attention=sliding_window reads long"):
        parity_of(bundle, tmp_path / "x", TORCH)


@pytest.mark.parametrize("library", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_told(make_bundle, tmp_path, monkeypatch, library) -> None:
    monkeypatch.setattr(graph_export, "find_spec", lambda name: None if name == library else name)
    with pytest.raises(UserError, match=rf"needs {library}, .* -m pip install 'onnx>="):
        parity_of(make_bundle(), tmp_path / "x", ONNX)


def test_weights_beyond_what_onnx_holds_are_refused(make_bundle, tmp_path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(graph_export, "ONNX_LARGEST", 100)
    with pytest.raises(UserError, match="ONNX file holds at most 2: use to=torch"):
        parity_of(make_bundle(), tmp_path / "x", ONNX)


def test_the_folder_tells_all_that_a_decoder_needs(make_bundle, tmp_path, untraced) -> None:
    bundle, folder = make_bundle("convolutional"), tmp_path / "export"
    parity = parity_of(bundle, folder, replace(untraced, beside=ONNX.beside))
    names = {"encoder.pt2", "step.pt2", SOURCE, TARGET, INTERFACE, MANIFEST, DECODER}
    assert {file.name for file in folder.iterdir()} == names
    origin = json.loads((folder / MANIFEST).read_bytes())
    assert origin["weights_sha256"] == "of these weights"
    assert origin["parity"]["gap"] == parity.gap
    about = json.loads((folder / INTERFACE).read_bytes())
    assert about["ids"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    assert about["max_length"] == 64
    assert about["step"]["inputs"][0] == {"name": "tokens", "dtype": "int64", "shape": ["batch"]}
    given = {port["name"] for port in about["encoder"]["outputs"]}
    taken = {port["name"] for port in about["step"]["inputs"]}
    assert taken == given | {"tokens", "length"}
