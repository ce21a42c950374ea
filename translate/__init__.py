"""Neural machine translation with attention.

import translate

config = translate.Config.load("demo", **{"trainer.max_steps": 200})
translate.prepare(config)                       # fetch the corpus, clean it, learn a vocabulary
translate.train(config, "runs/demo")            # returns the best dev BLEU
report = translate.evaluate("runs/demo")        # BLEU, chrF and TER with their intervals
translate.load("runs/demo").translate(["¿Dónde está el tren?"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from translate.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from translate.data.corpus import Corpus
    from translate.evaluation.report import Report
    from translate.inference.guard import Guard
    from translate.inference.markup import Markup
    from translate.inference.translator import Translator
    from translate.search import Search
    from translate.training.settings import TrainingConfig as Config

__all__ = ["Config", "__version__", "evaluate", "load", "prepare", "train"]


def load(
    run: str | Path,
    *,
    device: str = "auto",
    search: Search | str | Mapping[str, Any] | None = None,
    split_sentences: bool = True,
    guard: Guard | str | Mapping[str, Any] | None = "default",
    markup: Markup = "auto",
    confidence: bool = True,
    **options: Any,
) -> Translator:
    """Return the translator of a finished run, which translates as `translate text` does.

    Args:
        run: the folder of a run, or of a bundle.
        device: `auto` takes a GPU if there is one; else `cpu`, `cuda`, `cuda:1`, `mps`.
        search: in place of the run's own: the name of an option of conf/search (`greedy`), or keys
            of it (`{"beam_size": 8}`), whose defaults are those of the run.
        split_sentences: translate each sentence of a line by itself.
        guard: looks for translations that cannot be right, and mends or flags them: the name of an
            option of conf/guard, or keys of it, laid over `default`. None trusts the search.
        markup: `auto`: lines that are well-formed XML are read and written as such, and of others
            tags are put back and references read; `xml`: every line is XML; `none`: `<` and `&`
            are characters.
        confidence: read what `translate calibrate` has learned, if there is any.
        options: further keywords of `translate.inference.translator.load`: ensemble, target,
            terms, mbr, shortlist, unknown_words, engine, export, workers, precision,
            tokens_per_batch, interactive.

    The process keeps the memory it has from then on, for speed (glibc alone).

    Raises:
        UserError: nothing to load there, or files that are damaged or do not belong together.
    """
    from translate.inference import translator  # torch is imported when it is needed

    return translator.load(
        run, device=device, search=search, split_sentences=split_sentences, guard=guard,
        markup=markup, confidence=confidence, **options,
    )  # fmt: skip


def train(config: Config, run: str | Path, *, init: str | Path | None = None) -> float:
    """Train a model, or go on with the run in this folder; return its best dev BLEU.

    Args:
        config: the configuration; `Config.load` makes one.
        run: the folder of the run. An interrupted run in it goes on.
        init: a run or bundle whose weights a new run begins from.

    Raises:
        UserError: anything a person can mend, before or while training.
    """
    from translate.training import run as training

    return training.train(config, _path(run), None if init is None else str(init))


def prepare(config: Config) -> Corpus:
    """Fetch the corpus of a configuration, clean it, split it and learn its vocabulary.

    What is prepared already is only opened.

    Raises:
        UserError: the corpus cannot be had, or too little of it is left.
    """
    from translate.data import corpus

    return corpus.prepare(config.data, config.tokenizer, cache=_path(config.cache))


def evaluate(run: str | Path, **options: Any) -> Report:
    """Translate a test set with a run, and score it.

    Args:
        run: the folder of the run.
        options: keywords of `translate.evaluation.judging.evaluate`: split, input and references,
            search, target, device, tokenize, resamples, output and more.

    Raises:
        UserError: no such run, test set or folder, all noticed before anything is translated.
    """
    from translate.evaluation import judging

    return judging.evaluate(run, **options)


def _path(place: str | Path) -> Path:
    from pathlib import Path

    return Path(place).expanduser()


def __getattr__(name: str) -> Any:
    """Import `Config` when it is asked for."""
    if name == "Config":
        from translate.training.settings import TrainingConfig

        return TrainingConfig
    raise AttributeError(f"module 'translate' has no attribute {name!r}")
