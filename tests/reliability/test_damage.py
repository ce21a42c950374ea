"""Files that lost bytes, or a bit of one: refused by name, never loaded as something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.inference import bundle
from translate.training.checkpoints import AtomicCheckpointIO

FILES = ["checksums.json", "config.json", "model.safetensors", "source.spm", "target.spm"]


def damaged(content: bytes, random: Random) -> bytes:
    """The bytes cut short, or with one bit turned over."""
    place = random.randrange(len(content))
    if random.random() < 0.5:
        return content[:place]
    changed = bytearray(content)
    changed[place] ^= 1 << random.randrange(8)
    return bytes(changed)


def refusals(paths: list[Path], load: Callable[[], object], trials: int) -> int:
    """How many of so many damaged files are refused by a message that names one of them."""
    random, refused = Random(6), 0
    whole = {path: path.read_bytes() for path in paths}
    for _ in range(trials):
        path = random.choice(paths)
        path.write_bytes(damaged(whole[path], random))
        try:
            load()
        except UserError as error:
            refused += any(other.name in str(error) for other in paths)
        path.write_bytes(whole[path])
    load()  # it was the damage
    return refused


TRIALS = [50, pytest.param(500, marks=pytest.mark.soak)]


@pytest.mark.parametrize("trials", TRIALS)
def test_no_damaged_bundle_is_loaded(
    saved: Path, trials: int, figures: Callable[..., None]
) -> None:
    folder = saved / "bundle"
    refused = refusals([folder / name for name in FILES], lambda: bundle.load(folder), trials)
    figures("damaged bundles refused", refused, trials)
    assert refused == trials


def test_a_bundle_that_is_replaced_while_it_is_read_is_read_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a training beside: checksums of the old one, weights of the new."""
    folder, read = saved / "bundle", bundle._tokenizers
    old = bundle.load(folder)
    bias = next(iter(old.model.parameters()))
    with torch.no_grad():
        bias += 1

    def replaced(*arguments: Any) -> Tokenizers:
        monkeypatch.undo()
        config = old.config
        bundle.save(
            folder, node=config.model, model=old.model,
            tokenizers=old.tokenizers, languages=config.languages, search=config.search, extra={},
        )  # fmt: skip
        return read(*arguments)

    monkeypatch.setattr(bundle, "_tokenizers", replaced)
    new = bundle.load(folder)
    assert new.weights_sha256 != old.weights_sha256
    assert torch.equal(next(iter(new.model.parameters())), bias)


@pytest.mark.parametrize("trials", TRIALS)
def test_no_damaged_checkpoint_is_loaded(
    tmp_path: Path, trials: int, figures: Callable[..., None]
) -> None:
    path, io = tmp_path / "last.ckpt", AtomicCheckpointIO()
    io.save_checkpoint({"weights": torch.arange(300.0), "step": 3, "name": "x"}, path)
    refused = refusals([path], lambda: io.load_checkpoint(path), trials)
    figures("damaged checkpoints refused", refused, trials)
    assert refused == trials


def test_every_byte_of_a_checkpoint_counts(tmp_path: Path) -> None:
    """The last ones too, where the digest itself stands."""
    path, io = tmp_path / "last.ckpt", AtomicCheckpointIO()
    io.save_checkpoint({"step": 3}, path)
    whole = path.read_bytes()
    for place in {*range(0, len(whole), 11), *range(len(whole) - 80, len(whole))}:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match="is damaged"):
            io.load_checkpoint(path)
        path.write_bytes(whole[:place])
        with pytest.raises(UserError, match="is damaged"):
            io.load_checkpoint(path)


def test_a_checkpoint_is_an_archive_that_other_programs_read(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 3}, path)
    assert torch.load(path, weights_only=True) == {"step": 3}
