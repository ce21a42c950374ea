"""A bundle in the format of another engine, written only when both agree."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch

from translate.errors import UserError
from translate.files import naming, replace_folder
from translate.inference import ctranslate2_export
from translate.inference.bundle import SOURCE, TARGET, Bundle
from translate.inference.ctranslate2_engine import MANIFEST, CTranslate2Search
from translate.inference.engines import Quantization
from translate.inference.parity import GREEDY, TOKENS_PER_BATCH, Parity, compare
from translate.models.transformer import Transformer
from translate.vocabulary import EOS

LONGEST = 20  # pieces of a random sentence


def export_ctranslate2(
    bundle: Bundle, folder: Path, *, quantization: Quantization, sentences: Sequence[list[int]]
) -> Iterator[tuple[str, Parity]]:
    """Replace `folder` by the model in CTranslate2's format, with tokenizers and origin.

    Yields how float32 compares with the model on `sentences` (pieces without </s>), then how the
    quantization does, as soon as each is known, each with its name, and with what it was measured
    as where this processor lacks it. The folder is written last.

    Raises:
        UserError: CTranslate2 is not installed, cannot carry the model or computes something else.
    """
    config = bundle.config
    found = ctranslate2_export.problems(config.family, config.options)
    if found:
        raise UserError("; ".join(found))
    model = cast(Transformer, bundle.model.in_dtype(torch.float32))
    with tempfile.TemporaryDirectory(prefix="translate-") as place, naming(Path(place)):
        for wanted in dict.fromkeys(("float32", quantization)):
            made = Path(place, wanted)
            made.mkdir()
            ctranslate2_export.convert(
                model, config.options, bundle.tokenizers, quantization=wanted, folder=made
            )
            engine = CTranslate2Search(
                made, bundle.tokenizers, GREEDY,
                tokens_per_batch=TOKENS_PER_BATCH, workers=None, device="cpu",
            )  # fmt: skip
            parity = compare(model, engine, sentences)
            if wanted == "float32":
                parity.check()
            measured = engine.compute_type
            as_asked = measured in (wanted, f"{wanted}_float32")  # int8, with the rest in float32
            yield (
                wanted if as_asked else f"{wanted}, measured as {measured} on this processor",
                parity,
            )
        files = {file.name: file.read_bytes() for file in made.iterdir()}
    write(bundle, folder, files, quantization, parity, measured=measured)


def write(
    bundle: Bundle,
    folder: Path,
    files: Mapping[str, bytes],
    quantization: str,
    parity: Parity,
    *,
    measured: str,
) -> None:
    """Replace `folder` by these files, the tokenizers, and what they were made of, with their sums.

    `measured` names the numbers that the parity was computed with.

    Raises:
        UserError: it cannot be written.
    """
    whole = {
        **files,
        SOURCE: bundle.tokenizers.source.to_bytes(),
        TARGET: bundle.tokenizers.target.to_bytes(),
    }
    origin = {
        "weights_sha256": bundle.weights_sha256,
        "quantization": quantization,
        "measured_as": measured,
        "parity": asdict(parity),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in whole.items()},
    }
    whole[MANIFEST] = (json.dumps(origin, indent=2) + "\n").encode()
    try:
        replace_folder(folder, whole)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}): choose another with output=FOLDER"
        ) from error


def check_replaceable(folder: Path) -> None:
    """UserError where an export would take the place of what no export has written."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"output={folder} is not a folder: name a new one")
    found = {path.name for path in folder.iterdir()}
    if others := found - _exported(folder, found):
        raise UserError(
            f"output={folder} contains {min(others)!r}, which is not of an export and would be "
            "removed: name a new folder"
        )


def _exported(folder: Path, found: set[str]) -> set[str]:
    """The names of an export's files; all that were `found` if it was written without sums."""
    try:
        origin = json.loads((folder / MANIFEST).read_bytes())
        made_of = origin["weights_sha256"] and origin.get("sha256")
        return found if made_of is None else {MANIFEST, *made_of}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return set()


def random_sentences(count: int, *, vocab_size: int, longest: int = LONGEST) -> list[list[int]]:
    """Pieces drawn alike at any time: nonsense, but every weight takes part."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [
        torch.randint(EOS + 1, vocab_size, (length,), generator=generator).tolist()
        for length in lengths
    ]
