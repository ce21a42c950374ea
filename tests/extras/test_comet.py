"""COMET's model is loaded from this disk, and what it says is kept."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import pstdev

import pytest
import torch

from translate.errors import UserError
from translate.evaluation.report import Comet
from translate.extras.comet import CometModel

# As unbabel-comet 2.2.7: what it is asked for, by the names and with the defaults that it has.
STAND_IN = """
import json
from pathlib import Path
from types import SimpleNamespace

class Model:
    def __init__(self, wants):
        self.wants = wants
        self.hparams = {name: wants[name] for name in ("input_segments",) if name in wants}

    def requires_references(self):
        return self.wants["ref"] and "input_segments" not in self.wants

    def predict(self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0,
                progress_bar=True, accelerator="auto", num_workers=None, length_batching=True):
        assert gpus == 0 and devices is None and not progress_bar
        wanted = {"src", "mt", "ref"} if self.wants["ref"] else {"src", "mt"}
        assert all(sample.keys() == wanted for sample in samples)
        scores = [float(sample.get("ref", sample["src"]) == sample["mt"]) for sample in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))

def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False,
                         local_files_only=False):
    assert isinstance(checkpoint_path, str) and local_files_only
    return Model(json.loads(Path(checkpoint_path).read_text()))
"""


@pytest.fixture
def comet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The library in its place, and the folder of a model."""
    site, model = tmp_path / "site", tmp_path / "wmt-da"
    (site / "comet").mkdir(parents=True)
    (site / "comet" / "__init__.py").write_text(STAND_IN)
    (site / "unbabel_comet-2.2.7.dist-info").mkdir()
    (site / "unbabel_comet-2.2.7.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.7\n"
    )
    monkeypatch.syspath_prepend(str(site))
    (model / "checkpoints").mkdir(parents=True)
    (model / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    (model / "checkpoints" / "model.ckpt").write_text('{"ref": true}')
    yield model
    sys.modules.pop("comet", None)


TEXTS = (["uno", "dos", "tres"], ["one", "dos", "3"], [["one", "1"], ["two"], ["three", "3"]])


def test_it_judges_beside_the_first_reference(comet: Path) -> None:
    judged = CometModel(comet, device=torch.device("cpu")).judge(*TEXTS)
    assert judged.sentences == [1.0, 0.0, 0.0]
    assert judged.score == pytest.approx(1 / 3)
    sha256 = hashlib.sha256((comet / "checkpoints" / "model.ckpt").read_bytes()).hexdigest()
    assert judged.as_dict() == {
        "score": judged.score,
        "half_width": judged.half_width,
        "signature": f"nrefs:1|model:wmt-da|sha256:{sha256[:12]}|version:2.2.7",
        "model": "wmt-da",
        "sha256": sha256,
    }


@pytest.mark.parametrize(
    ("segments", "references"), [(["mt", "src", "ref"], 1), (["mt", "src"], 0), (None, 0)]
)
def test_a_unified_model_sees_what_it_was_trained_with(
    comet: Path, segments: list[str] | None, references: int
) -> None:
    """It requires no reference, for it can estimate quality too; one without segments does only."""
    wants: dict[str, object] = {"ref": "ref" in (segments or ())}
    if segments:
        wants["input_segments"] = segments
    (comet / "checkpoints" / "model.ckpt").write_text(json.dumps(wants))
    judged = CometModel(comet, device=torch.device("cpu")).judge(*TEXTS)
    assert judged.references == references


def test_the_interval_is_that_of_a_mean() -> None:
    scores = [0.2, 0.4, 0.9, 0.5]
    judged = Comet(scores, "m", "0" * 64, 1, "2.2.7")
    assert judged.half_width == pytest.approx(1.96 * pstdev(scores) / sqrt(4))


def test_what_is_missing_is_told_with_its_remedy(
    comet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"nowhere is not there; give the folder of a COMET model"):
        CometModel(comet / "nowhere", device=torch.device("cpu"))
    (comet / "checkpoints" / "model.ckpt").write_text("torn")
    with pytest.raises(UserError, match=r"cannot be loaded: Expecting value.*; the tokenizer of"):
        CometModel(comet, device=torch.device("cpu"))
    (comet / "hparams.yaml").unlink()
    with pytest.raises(UserError, match=r"hparams\.yaml is not there"):
        CometModel(comet, device=torch.device("cpu"))
    monkeypatch.setattr("translate.extras.comet.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"not installed: \S+ -m pip install .*'unbabel-comet>="):
        CometModel(comet, device=torch.device("cpu"))
