"""COMET, a metric that has learned from people's judgements (Rei et al. 2020): model and scores.

The library is the extra `comet`; the model lies on this disk, and nothing is fetched for it. It is
the checkpoint of another program, a pickle: loading it runs what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translate.errors import UserError, first_line
from translate.evaluation.report import Comet
from translate.files import file_hash
from translate.wording import install

if TYPE_CHECKING:
    import torch

CHECKPOINT = Path("checkpoints", "model.ckpt")  # in the folder that a model is published as


class CometModel:
    """A model from this disk, loaded.

    Args:
        path: its checkpoint, or the folder that holds hparams.yaml and checkpoints/model.ckpt.
        device: where to compute.

    Raises:
        UserError: the library is not installed, or the model is not there or cannot be loaded.
    """

    def __init__(self, path: Path, *, device: torch.device) -> None:
        if find_spec("comet") is None:
            raise UserError(f"comet = {path}: COMET is not installed: {install('comet')}")
        checkpoint = path / CHECKPOINT if path.is_dir() else path
        folder = checkpoint.absolute().parent.parent
        for needed in (checkpoint, folder / "hparams.yaml"):
            if not needed.is_file():
                raise UserError(
                    f"comet = {path}: {needed} is not there; give the folder of a COMET model, "
                    f"which holds hparams.yaml and {CHECKPOINT}"
                )
        from comet import load_from_checkpoint

        try:
            self._model: Any = load_from_checkpoint(str(checkpoint), local_files_only=True)
        except Exception as error:  # of any library below: torch, transformers, YAML
            reason = first_line(error)
            raise UserError(
                f"comet = {path} cannot be loaded: {reason}; the tokenizer of its encoder must be "
                "in the cache of huggingface_hub, and the download complete"
            ) from error
        self.name, self.sha256 = folder.name, file_hash(checkpoint)
        # Lightning's numbers of GPUs; None: the CPU
        self._gpus = [device.index or 0] if device.type == "cuda" else None

    def judge(
        self,
        sources: Sequence[str],
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
    ) -> Comet:
        """Score every hypothesis beside its source and, if the model reads any, a reference."""
        samples = [
            {"src": source, "mt": hypothesis}
            for source, hypothesis in zip(sources, hypotheses, strict=True)
        ]
        # UniTE and XCOMET require none, and are another metric without
        segments = self._model.hparams.get("input_segments", ())
        reads_reference = bool(self._model.requires_references()) or "ref" in segments
        if reads_reference:
            for sample, (first, *_) in zip(samples, references, strict=True):
                sample["ref"] = first
        prediction = self._model.predict(
            samples, gpus=len(self._gpus or ()), devices=self._gpus, progress_bar=False
        )
        return Comet(
            sentences=list(map(float, prediction.scores)),
            model=self.name,
            sha256=self.sha256,
            references=int(reads_reference),
            version=version("unbabel-comet"),
        )
