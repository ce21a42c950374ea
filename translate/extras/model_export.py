"""Export: a bundle in the format of another engine, written only when both agree."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, cast

import torch

from translate.errors import UserError
from translate.extras import ctranslate2_export
from translate.extras.ctranslate2_engine import CTranslate2Search
from translate.extras.graph_export import ONNX, TORCH, export_graphs
from translate.extras.parity import (
    GREEDY,
    LARGEST_MANIFEST,
    MANIFEST,
    TOKENS_PER_BATCH,
    Parity,
    compare,
    write,
)
from translate.files import check_folder, naming, read_plain
from translate.inference import Quantization
from translate.inference.batches import most_pieces
from translate.inference.bundle import Bundle
from translate.inference.lines import Cutter
from translate.models.transformer import Transformer
from translate.vocabulary import EOS

Format = Literal["ctranslate2", "onnx", "torch"]
GRAPHS = {"onnx": ONNX, "torch": TORCH}


def export(
    bundle: Bundle,
    folder: Path,
    *,
    to: Format,
    quantization: Quantization,
    lines: Iterable[str] | None,
    sentences: int,
) -> Iterator[tuple[str, Parity]]:
    """Replace `folder` by the model in another format; yield how it compares with the model.

    It is compared on so many `sentences`: on `lines`, or on random pieces where there are none.

    Raises:
        UserError: the engine cannot carry the model, or computes something else.
    """
    source = bundle.tokenizers.source
    if lines is None:
        longest = most_pieces(bundle.model, 20)
        compared = random_sentences(sentences, vocab_size=len(source), longest=longest)
    else:
        cut = Cutter(
            source, language=bundle.config.source_language, limit=most_pieces(bundle.model),
            sentences=False,
        )  # fmt: skip
        texts = (ids for number, line in enumerate(lines, start=1) for ids in cut(line, number).ids)
        compared = list(islice(texts, sentences))
    if to == "ctranslate2":
        return export_ctranslate2(bundle, folder, quantization=quantization, sentences=compared)
    return export_graphs(bundle, folder, kind=GRAPHS[to], sentences=compared)


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
    if problems := ctranslate2_export.problems(config.family, config.options):
        raise UserError("; ".join(problems))
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


def check_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that no export has written.

    Raises:
        UserError: it holds other files, is none, or cannot be made.
    """
    check_folder(folder.parent)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"output={folder} is not a folder: name a new one")
    try:
        origin = json.loads(read_plain(folder / MANIFEST, largest=LARGEST_MANIFEST))
        exported = {MANIFEST, *origin["sha256"]}
    except (OSError, ValueError, TypeError, KeyError):
        exported = set()
    if others := {path.name for path in folder.iterdir()} - exported:
        raise UserError(
            f"output={folder} contains {min(others)!r}, which is not of an export and would be "
            "removed: name a new folder"
        )


def random_sentences(count: int, *, vocab_size: int, longest: int = 20) -> list[list[int]]:
    """Return sentences of random pieces, always the same: nonsense, but every weight takes part."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [
        torch.randint(EOS + 1, vocab_size, (length,), generator=generator).tolist()
        for length in lengths
    ]
