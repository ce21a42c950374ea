"""A translator from the folder of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from translate import search as searches
from translate.config import check
from translate.errors import UserError
from translate.inference import bundle
from translate.inference.allocator import keep_memory
from translate.inference.bundle import Bundle
from translate.inference.confidence import Confidence
from translate.inference.device import choose_device, in_precision
from translate.inference.engines import Precision
from translate.inference.guard import Guard
from translate.inference.limits import search_excesses
from translate.inference.minimum_bayes_risk import Utility
from translate.inference.translator import Translator
from translate.inference.unknown_words import UnknownWords
from translate.linear import prepack
from translate.search import Search


def load(
    run: str | Path | Bundle,
    *,
    device: str | torch.device = "auto",
    search: Search | Mapping[str, Any] | None = None,
    tokens_per_batch: int | None = None,
    split_sentences: bool = False,
    unknown_words: UnknownWords | None = None,
    workers: int = 1,
    precision: Precision | None = None,
    mbr: Utility | None = None,
    guard: Guard | None = None,
    confidence: Confidence | None = None,
    whole_windows: bool = False,
) -> Translator:
    """The translator of a run or of a bundle, in its folder or loaded already.

    Args:
        search: in place of its own. A mapping of the same kind, or without a kind, changes only
            the keys that it has.
        precision: the numbers to compute with; None: those of the weights.

    `Translator` describes the others. The process keeps the memory it has from then on, and what is
    forked from it computes on one thread.

    Raises:
        UserError: nothing to load there, or files that are damaged or do not belong together.
    """
    if not isinstance(run, str | Path | Bundle):
        raise UserError(f"{run!r} is no path: give the folder of a run")
    counts: dict[str, object] = {"workers": workers, "tokens_per_batch": tokens_per_batch}
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise UserError(f"{name}={count!r}: must be a whole number of at least 1")
    keep_memory()
    _survive_forks()
    device = choose_device(device)  # a wrong one is told before the work
    if device.type == "meta":
        raise UserError("device=meta has shapes, and no numbers: try device=auto")
    if not isinstance(split_sentences, bool):
        raise UserError(f"split_sentences={split_sentences!r}: must be True or False")
    loaded = run if isinstance(run, Bundle) else bundle.load(bundle.find(run))
    translator = Translator(
        in_precision(loaded.model, precision),
        loaded.tokenizers,
        _search({} if search is None else search, loaded.config.search),
        tokens_per_batch=tokens_per_batch,
        device=device,
        split_sentences=split_sentences,
        languages=loaded.config.languages,
        unknown_words=unknown_words,
        workers=workers,
        mbr=mbr,
        guard=guard,
        confidence=confidence,
        whole_windows=whole_windows,
    )
    prepack(translator.model)
    return translator


@cache
def _survive_forks() -> None:
    """A forked child computes on one thread: it would wait for ever for those that it has not."""
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def _search(given: object, own: Mapping[str, Any]) -> Search:
    """The search that is given, in whole or as keys to lay over a run's own."""
    if isinstance(given, Search):
        return given
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise UserError(
            f"search = {given!r}: give a search, or keys of conf/search such as {{'beam_size': 8}}"
        )
    options = dict(given)
    if options.get("kind", own["kind"]) == own["kind"]:
        options = {**own, **options}
        if isinstance(options.get("rules"), Mapping):
            options["rules"] = {**own.get("rules", {}), **options["rules"]}
    search = searches.build(**options)
    check(search_excesses(options, "search"))
    return search
