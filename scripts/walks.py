"""Count the files of translate/ that one sentence, one training step and one configuration execute.

    python scripts/walks.py            # a table
    python scripts/walks.py --list     # and each file with the functions called, in order
    python scripts/walks.py --json     # for tests/test_walks.py, which keeps the bounds

A file counts where one of its functions is called, not where it is merely imported. Each walk is a
process, so that no cache of an earlier one shortens it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(os.environ.get("TRANSLATE_CHECKOUT", Path(__file__).resolve().parents[1]))
PACKAGE = f"{ROOT / 'translate'}{os.sep}"
BUNDLES = Path(__file__).resolve().parents[1] / "tests" / "bundles"
BUNDLE = BUNDLES / "transformer"
SENTENCE = "the old woman sees the child today ."
CONFIGURATION = ["data=toy", "model.d_model=128", "trainer.max_steps=200"]
TRAINING = [
    "data=files", f"data.dir={BUNDLES / 'interrupted' / 'corpus'}", "data.source=en",
    "data.target=de", "data.workers=0", "data.tokens_per_batch=100", "tokenizer=word",
    "tokenizer.vocab_size=80", "model.d_model=16", "model.d_ff=16", "model.num_heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "trainer.max_steps=6", "trainer.samples=0",
    "trainer.accelerator=cpu", "trainer.precision=32-true",
]  # fmt: skip

Walk = dict[str, list[str]]  # file → its functions, both in the order of their first call


class Profile:
    """The functions of translate/ that are called while it is on."""

    def __init__(self) -> None:
        self.files: Walk = {}
        self._seen: set[CodeType] = set()
        self._around: Profile | None = None  # another that is on, and hears of the calls too

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.getprofile()
        self._around = before if isinstance(before, Profile) else None
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(self._around)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self._around:
            self._around(frame, event, argument)
        code = frame.f_code
        if event != "call" or code in self._seen or not code.co_filename.startswith(PACKAGE):
            return
        # the body of a module or class is no function, and what it calls belongs to the import
        if not code.co_flags & inspect.CO_OPTIMIZED or _importing(frame):
            return
        self._seen.add(code)
        file = code.co_filename.removeprefix(f"{ROOT}{os.sep}")
        self.files.setdefault(file, []).append(code.co_qualname)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def program(*arguments: str) -> None:
    """`translate …`, quietly."""
    from translate.cli.main import main

    sys.argv = ["translate", *arguments]
    out, err = TextIOWrapper(BytesIO()), StringIO()  # translations are written as bytes
    with redirect_stdout(out), redirect_stderr(err):
        status = main()
    if status:
        raise RuntimeError(f"translate {' '.join(arguments)}: status {status}\n{err.getvalue()}")


def sentence_by_load() -> dict[str, Walk]:
    """One sentence by `translate.load(…).translate`, alone, and with the guard looking on."""
    import translate

    loading, sentence, guarded = Profile(), Profile(), Profile()
    alone = translate.load(BUNDLE, device="cpu", guard=None)
    with sentence.on():
        alone.translate([SENTENCE])
    with loading.on():
        translator = translate.load(BUNDLE, device="cpu")
    with guarded.on():
        translator.translate([SENTENCE])
    return {
        "translate.load": loading.files,
        "one sentence by .translate": sentence.files,
        "… with its guard": guarded.files,
    }


def sentence_by_text() -> dict[str, Walk]:
    """One sentence by the command `translate text`."""
    profile = Profile()
    with profile.on():
        program("text", f"run={BUNDLE}", "device=cpu", "workers=1", SENTENCE)
    return {"one sentence by translate text": profile.files}


def training_step() -> dict[str, Walk]:
    """One training step: its loss and gradients, and all that Lightning does around them."""
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
    from lightning.pytorch.strategies.strategy import Strategy

    step, whole = Profile(), Profile()
    _profile_third_call(Strategy, "training_step", step)
    _profile_third_call(Strategy, "backward", step)
    _profile_third_call(_TrainingEpochLoop, "advance", whole)
    program("train", *TRAINING, "run=run")
    return {"one training step": step.files, "… with batch, update and callbacks": whole.files}


def _profile_third_call(owner: type, name: str, profile: Profile) -> None:
    """Of a method, which is called once a step: the first two steps set things up."""
    calls, method = 0, getattr(owner, name)

    def profiled(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        with profile.on() if calls == 3 else nullcontext():
            return method(*arguments, **options)

    setattr(owner, name, profiled)


def configuration_by_load() -> dict[str, Walk]:
    """A configuration, composed and checked by `translate.Config.load`."""
    import translate

    settings = dict(setting.split("=", 1) for setting in CONFIGURATION)
    profile, load = Profile(), translate.Config.load
    with profile.on():
        load(**settings)
    return {"composing a configuration": profile.files}


def configuration_by_train() -> dict[str, Walk]:
    """A configuration of `translate train`, composed, checked and shown by `-c job`."""
    profile = Profile()
    with profile.on():
        program("train", *CONFIGURATION, "-c", "job")
    return {"… by translate train -c job": profile.files}


WALKS = (
    sentence_by_load, sentence_by_text, training_step, configuration_by_load,
    configuration_by_train,
)  # fmt: skip


def walked(walk: Callable[[], dict[str, Walk]]) -> dict[str, Walk]:
    """The files that a walk executes, in an empty folder."""
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TRANSLATE_CACHE"] = f"{folder}/cache"
        return walk()


def walks() -> dict[str, Walk]:
    """All walks, each in a process that has run nothing else."""
    for library in ("torch", "lightning.pytorch", "hydra", "sentencepiece"):
        __import__(library)  # once for all
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        parts = pool.map(walked, WALKS, chunksize=1)
    return {name: files for part in parts for name, files in part.items()}


def lines(files: Walk) -> int:
    return sum(len((ROOT / file).read_bytes().splitlines()) for file in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the files and functions")
    parser.add_argument("--json", action="store_true", help="print the files as JSON")
    options = parser.parse_args()
    counted = walks()
    if options.json:
        print(json.dumps({name: list(files) for name, files in counted.items()}))
        return
    print(f"{'walk':<34}files  functions  lines of the files")
    for name, files in counted.items():
        functions = sum(map(len, files.values()))
        print(f"{name:<34}{len(files):>5}  {functions:>9}  {lines(files):>18,}")
    if options.list:
        for name, files in counted.items():
            print(f"\n{name}")
            for file, functions in files.items():
                print(f"  {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
