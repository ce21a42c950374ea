"""The folder a trained model travels in: weights, tokenizers, configuration; no code, no pickle.

    config.json             family, options, languages, search, hashes of the tokenizers …
    model.safetensors       the weights, tied ones once
    source.spm, target.spm  the tokenizers (equal when joint)
    README.md               the model card, free to be edited
    checksums.json          SHA-256 of the others, README.md apart

A bundle is replaced as a whole: whatever interrupts `save`, `load` finds the old or the new one.
It may come from a stranger: `load` reads plain files of a bounded size, checks all they say before
it builds anything, and builds classes of `translate.models` alone.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import BaseModel, PositiveInt
from safetensors import SafetensorError
from torch import Tensor

from translate import search as searches
from translate.config import check, misnamed, problems
from translate.data.tokenizer import LARGEST_MODEL, Tokenizer, Tokenizers
from translate.errors import UsageError, UserError
from translate.files import present, read_plain, replace_folder, steadily
from translate.machine import threads_restored
from translate.models import registry
from translate.models.head import AttentionHead
from translate.models.registry import shapes_only
from translate.models.seq2seq import Seq2Seq
from translate.names import on_demand
from translate.version import __version__

FORMAT = 1  # raised when an older program could not read what a newer one writes

CONFIG, WEIGHTS, CHECKSUMS = "config.json", "model.safetensors", "checksums.json"
SOURCE, TARGET, CARD = "source.spm", "target.spm", "README.md"
CHECKED = (CONFIG, WEIGHTS, SOURCE, TARGET)

MODEL_CARD = "translate.extras.model_card:model_card"

# the largest size of a file of a bundle, in bytes
LARGEST = {CONFIG: 1 << 20, CHECKSUMS: 1 << 16, WEIGHTS: 1 << 36}
LARGEST |= dict.fromkeys((SOURCE, TARGET), LARGEST_MODEL)
FLOATS = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
LEAST_PRACTISED = 8  # pieces: a bundle that says fewer is not believed


class BundleConfig(BaseModel):
    """The content of config.json."""

    format: PositiveInt
    version: str  # of the program that wrote it
    family: str
    options: dict[str, Any]  # those of the family
    source_vocab_size: PositiveInt
    target_vocab_size: PositiveInt
    source_language: str
    target_language: str
    search: dict[str, Any]
    tokenizers: dict[str, str]  # SHA-256 of source and target
    tag: str | None  # before every source, unless another is chosen
    taught: AttentionHead | None  # by guided alignment
    extra: dict[str, Any]  # about the training: data, scores

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_language, self.target_language

    @property
    def practised(self) -> int | None:
        """The most pieces of a source that training has shown often; earlier bundles lack it."""
        pieces = self.extra.get("source_pieces")
        return pieces if isinstance(pieces, int) and pieces >= LEAST_PRACTISED else None

    @property
    def common_names(self) -> list[str]:
        """Names that training has often shown on both sides; earlier bundles have none."""
        names = self.extra.get("common_names", [])
        return [name for name in names if isinstance(name, str) and name]

    @property
    def model(self) -> dict[str, Any]:
        """The node `model` of the configuration."""
        return {"family": self.family, **self.options}


@dataclass(frozen=True)
class Bundle:
    """A loaded bundle; the model is on the CPU and in evaluation mode."""

    model: Seq2Seq
    tokenizers: Tokenizers
    config: BundleConfig
    weights_sha256: str

    def into(self, target: str | None) -> Bundle:
        """The bundle with another tag before every source; None leaves its own.

        Raises:
            UserError: it was trained with no such tag.
        """
        if target is None:
            return self
        tags = self.tokenizers.source.tags
        if target not in tags:
            there = f"it has {', '.join(tags)}" if tags else "it was trained without tags"
            raise UsageError(f"target = {target!r} is not a tag of this run: {there}")
        return replace(self, tokenizers=self.tokenizers.tagged(target))


def save(
    folder: str | Path,
    *,
    node: Mapping[str, Any],
    model: Seq2Seq,
    tokenizers: Tokenizers,
    languages: tuple[str, str],
    search: Mapping[str, Any],
    extra: Mapping[str, Any],
    taught: AttentionHead | None = None,
) -> None:
    """Write a bundle, in place of the one that may be there.

    `node` is the node `model` of the configuration, from which `registry.build` makes this model;
    `languages` are source and target; `search` holds the keys of conf/search to translate with
    unless told otherwise; `extra` is anything about the training, for the model card; `taught` is
    the head that guided alignment taught.

    Raises:
        UserError: the folder cannot be written; the old bundle is untouched.
    """
    config = BundleConfig(
        format=FORMAT,
        version=__version__,
        family=node["family"],
        options={key: value for key, value in node.items() if key != "family"},
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        source_language=languages[0],
        target_language=languages[1],
        search=dict(search),
        tokenizers={"source": tokenizers.source.sha256, "target": tokenizers.target.sha256},
        tag=tokenizers.source.tag,
        taught=taught,
        extra=dict(extra),
    )
    weights = {name: tensor.cpu().contiguous() for name, tensor in _weights(model).items()}
    values = config.model_dump(mode="json")
    card = on_demand(MODEL_CARD)(values, sum(tensor.numel() for tensor in weights.values()))
    files = {
        CONFIG: _json(values),
        WEIGHTS: safetensors.torch.save(weights),
        SOURCE: tokenizers.source.to_bytes(),
        TARGET: tokenizers.target.to_bytes(),
        CARD: card.encode(),
    }
    sums = {name: hashlib.sha256(files[name]).hexdigest() for name in CHECKED}
    files[CHECKSUMS] = _json(sums).rstrip()  # the last byte counts: cut anywhere, it is no JSON
    try:
        replace_folder(Path(folder), files)
    except OSError as error:
        raise UserError(
            f"bundle {folder} cannot be written ({error.strerror or error}): free up space or "
            "choose another run folder"
        ) from error


def find(run: str | Path) -> Path:
    """Return the bundle in the folder of a run, or `run` itself if that is one.

    Raises:
        UserError: there is none.
    """
    run = Path(run)
    try:
        folder = located(run)
    except (OSError, ValueError) as error:  # in a folder that may not be read, or no name at all
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"{str(run)[:200]!r} cannot be read ({reason}): check the path and its permissions"
        ) from error
    if folder is not None:
        return folder
    if not run.exists():
        raise UserError(f"{run} does not exist: check the path, or train it with translate train")
    if not (run / "config.yaml").exists():
        raise UserError(f"{run} is not a run folder and has no bundle: check run=")
    raise UserError(
        f"{run} has no bundle yet, because its training has not reached a first validation: "
        f"resume it with translate train {shlex.quote(f'run={run}')}"
    )


def located(run: Path) -> Path | None:
    """Return the bundle that `find` finds; None where there is none."""
    places = (run.absolute(), run.absolute() / "bundle")  # `.` has no name to look beside
    return next((place for place in places if present(place, CONFIG)), None)


def of_run(run: str | Path) -> Bundle:
    """The bundle of a run, kept in memory until a file of it changes.

    Raises:
        UserError: the run holds no model that can be read.
    """
    folder = find(run)

    def changed() -> tuple[int, ...]:
        files = (folder / name for name in (*CHECKED, CHECKSUMS))
        return tuple(file.stat().st_mtime_ns for file in files if file.exists())

    return _kept(folder, folder.absolute(), steadily(folder, changed))


@lru_cache(maxsize=8)  # once for the configuration of a command and for all that it does
def _kept(folder: Path, place: Path, changed: tuple[int, ...]) -> Bundle:
    return load(folder)


def load(folder: str | Path) -> Bundle:
    """Read a bundle back, every file verified. Nothing in it is executed.

    Raises:
        UserError: a file is missing or damaged, or the files do not belong together.
    """
    folder = Path(folder)
    with threads_restored():
        torch.set_num_threads(1)  # others would wait from then on, in the way of an engine's
        return steadily(folder, partial(_load, folder))


def _load(folder: Path) -> Bundle:
    place = present(folder, CONFIG)
    if place is None:
        raise UserError(f"{folder} is not a bundle: {CONFIG} is missing")
    sums = place / CHECKSUMS
    expected = parse_json(read_bounded(sums, largest=LARGEST[CHECKSUMS]), sums)
    config = _config(_verified(place, CONFIG, expected), place / CONFIG)
    tokenizers = _tokenizers(place, config, expected)
    # shapes without memory, until the weights are known to have them
    with shapes_only():
        outline = _build(config)
    weights = _verified(place, WEIGHTS, expected, largest=_largest(outline))
    try:
        tensors = safetensors.torch.load(weights)
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{place / WEIGHTS} is not a safetensors file ({error}): copy it again"
        ) from error
    _check_weights(outline, tensors, place / WEIGHTS)
    model = _build(config)
    model.to(next(iter(tensors.values())).dtype)
    model.load_state_dict(tensors, strict=False)  # only the tied names are absent
    return Bundle(model.eval(), tokenizers, config, str(expected[WEIGHTS]))


def _build(config: BundleConfig) -> Seq2Seq:
    return registry.build(
        config.model,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
    )


def _largest(outline: Seq2Seq) -> int:
    """Return the largest file of such weights, in bytes: float64, beside names and shapes."""
    sizes = [tensor.numel() * 8 + (1 << 10) for tensor in _weights(outline).values()]
    return min(LARGEST[WEIGHTS], (1 << 16) + sum(sizes))


def _weights(model: Seq2Seq) -> dict[str, Tensor]:
    """Return the trained parameters and saved buffers, tied ones under their first name."""
    saved = model.state_dict()
    unique = chain(model.named_parameters(), model.named_buffers())  # each tensor once, in order
    return {name: tensor.detach() for name, tensor in unique if name in saved}


def _check_weights(model: Seq2Seq, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Check that the weights are this model's, to the last name and shape, and are numbers."""
    shapes = {name: tuple(tensor.shape) for name, tensor in _weights(model).items()}
    stored = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes != stored:
        name = min(name for name, _ in shapes.items() ^ stored.items())
        raise UserError(
            f"{path}: {name!r} is {stored.get(name, 'missing')} but the model of {CONFIG} has "
            f"{shapes.get(name, 'nothing')}: the two files do not belong together"
        )
    types = {tensor.dtype for tensor in tensors.values()}
    if len(types) > 1 or not types <= FLOATS:
        raise UserError(
            f"{path} holds {', '.join(sorted(map(str, types)))}: weights must be floating-point "
            "numbers, all of the same type"
        )
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise UserError(
            f"{path}: {broken[0]!r} contains values that are not finite: train the model again"
        )


def _tokenizers(folder: Path, config: BundleConfig, expected: Mapping[str, Any]) -> Tokenizers:
    loaded = []
    for side, name in (("source", SOURCE), ("target", TARGET)):
        content = _verified(folder, name, expected)
        if hashlib.sha256(content).hexdigest() != config.tokenizers.get(side):
            raise UserError(
                f"{folder / name} is not the tokenizer this model was trained with "
                f"(SHA-256 in {CONFIG}): put the original back"
            )
        tokenizer, size = Tokenizer(content), getattr(config, f"{side}_vocab_size")
        if size != len(tokenizer):
            raise UserError(
                f"{folder / CONFIG}: {side}_vocab_size is {size}, but the tokenizer has "
                f"{len(tokenizer)} pieces: the two files do not belong together"
            )
        loaded.append(tokenizer)
    return Tokenizers(*loaded).tagged(config.tag)


def _config(content: bytes, path: Path) -> BundleConfig:
    values = parse_json(content, path)
    written = values.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise UserError(
            f"{path}: format {written} comes from a newer version ({values.get('version')!r}); "
            f"this is {__version__}, which reads format {FORMAT}: update this program"
        )
    if isinstance(options := values.get("options"), dict):
        node = registry.upgraded({**options, "family": values.get("family")})
        del node["family"]
        values["options"] = node
    check(problems(BundleConfig, values, str(path)))
    config = BundleConfig.model_validate(values)
    check(misnamed(str(path), values, registry.families(), key="family"))
    lines = registry.problems(config.model, f"{path}: options")
    if any(line.endswith("is missing") for line in lines):
        lines.append(
            "it was written by an earlier version: translate with that version, or train again"
        )
    check(lines)
    check(searches.problems(config.search, f"{path}: search"))
    search = searches.within_reason(config.search, str(path))
    return config.model_copy(update={"search": search})


def _verified(
    folder: Path, name: str, expected: Mapping[str, Any], *, largest: int | None = None
) -> bytes:
    path = folder / name
    content = read_bounded(path, largest=LARGEST[name] if largest is None else largest)
    if hashlib.sha256(content).hexdigest() != expected.get(name):
        raise UserError(
            f"{path} is damaged: its SHA-256 is not the one in {CHECKSUMS}; copy the whole bundle "
            "again"
        )
    return content


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def read_bounded(path: Path, *, largest: int) -> bytes:
    """Return the bytes of a file that may come from a stranger.

    Raises:
        UserError: it cannot be read, is a link or a device, or has more than `largest` bytes.
    """
    try:
        return read_plain(path, largest=largest, follow=False)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise UserError(
            f"{path} cannot be read ({reason}): copy the whole bundle again, with cp -rL"
        ) from error


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """Return a JSON object; `path` is for the message.

    Raises:
        UserError: it is damaged, or no object.
    """
    try:
        values = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): copy the whole bundle again") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged (not a JSON object): copy the whole bundle again")
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
