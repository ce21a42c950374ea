"""A program: runs trained on the CPU, and on a device that only seems to be another.

In a process of its own: a second device cannot be taken from PyTorch again. Prints a JSON object a
configuration: the losses of both, where a training step waited for the device, and how often
translations of few and of many words did.

    on_second_device.py FOLDER CONFIGURATION…
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import lightning as L
import torch
import yaml
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from second_device import DEVICE, second_device

from translate import search
from translate.data.batching import Batch
from translate.inference import bundle
from translate.search import hypothesis
from translate.training.run import train
from translate.training.step import TranslationTask
from translate.vocabulary import EOS, PAD

CONFIG = Path(__file__).parents[2] / "conf" / "search"


class SecondDevice(Accelerator):
    """Lightning's name for it."""

    def setup_device(self, device: torch.device) -> None:
        pass

    def teardown(self) -> None:
        pass

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> list[torch.device]:
        return [DEVICE]

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [DEVICE]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return DEVICE.type


def elsewhere(make: Callable[..., L.Trainer]) -> Callable[..., L.Trainer]:
    """Lightning's trainer, on the second device."""

    def made(**options: Any) -> L.Trainer:
        del options["accelerator"]
        return make(**options | {"strategy": SingleDeviceStrategy(DEVICE, SecondDevice())})

    return made


def train_elsewhere(config: dict[str, Any], run: Path) -> Counter[str]:
    """Where steps 2 and 3, after which nothing is reported, validated or saved, waited."""
    marks: dict[int, Counter[str]] = {}
    original = TranslationTask.on_train_batch_start

    def begin(task: TranslationTask, batch: Batch, batch_idx: int) -> None:
        marks[batch_idx] = Counter(waits)
        original(task, batch, batch_idx)

    with (
        second_device() as waits,
        mock.patch.object(TranslationTask, "on_train_batch_start", begin),
        mock.patch.object(L, "Trainer", elsewhere(L.Trainer)),
    ):
        train(config, run)
    return marks[3] - marks[1]


class Event:
    """In place of CUDA's: this device computes at once."""

    def synchronize(self) -> None:
        pass


def waits_of_searches(run: Path) -> dict[str, list[int]]:
    """Of each search, how often it waits for two sentences of 4 words, and of 8."""
    found: dict[str, list[int]] = {kind: [] for kind in search.KINDS}
    model = bundle.load(run / "bundle").model
    with (
        second_device() as waits,
        mock.patch.object(hypothesis, "reached", return_value=Event()),
        mock.patch.object(hypothesis, "LATE", {DEVICE.type}),
    ):
        model.to(DEVICE)
        source = torch.tensor([[5, 6, EOS], [7, EOS, PAD]]).to(DEVICE)
        for kind, several in found.items():
            for words in (4, 8):
                keys = options(kind) | {"max_length_ratio": 0.0, "max_length_offset": words}
                keys["rules"] |= {"min_length": words}
                waits.clear()
                best = search.build(keys)(model, source, source != PAD)
                assert all(len(one.tokens) == words for one, *_ in best)
                several.append(waits.total())
    return found


def options(kind: str) -> dict[str, Any]:
    """The options of a search, laid over those of the file that it extends."""
    own = yaml.safe_load((CONFIG / f"{kind}.yaml").read_text("utf-8"))
    extended, _ = own.pop("defaults", (None, None))
    return own if extended is None else options(extended) | own


def losses(run: Path) -> list[float]:
    with (run / "metrics.csv").open(newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


def main(folder: Path, *configurations: str) -> None:
    for number, configuration in enumerate(configurations):
        config = json.loads(configuration)
        here, there = folder / f"here_{number}", folder / f"there_{number}"
        train(config, here)
        waits = train_elsewhere(config, there)
        found = {
            "here": losses(here), "there": losses(there), "waits": waits,
            "searches": waits_of_searches(there),
        }  # fmt: skip
        sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
