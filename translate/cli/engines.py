"""The engine that translates: this program's search, or another on an export of the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from translate import machine
from translate import search as searches
from translate.cli import stored
from translate.cli.errors import UsageError
from translate.cli.translating import OTHER_PROBABILITIES
from translate.inference import confidence
from translate.inference.batches import one_a_core
from translate.inference.bundle import Bundle
from translate.inference.guard import Guard, GuardConfig
from translate.inference.translator import Translator, choose_device, load
from translate.inference.unknown_words import UnknownWords
from translate.names import on_demand
from translate.search.shortlist import within

# what is on the porch for each engine but our own, by name
SEARCHES = {"ctranslate2": "translate.extras.ctranslate2_engine:load"}
READ_SHORTLIST = "translate.extras.lexical_shortlist:read"
# parameters of a model from which several threads answer a line clearly sooner than one: with fewer
# they gain a seventh, and take several times as long where others use the cores too
WORTH_THREADS = 20_000_000


def export_folder(run: str, name: str, chosen: str | None) -> Path:
    """Return the folder of a model in another engine's format: beside its bundle by default."""
    return Path(run, name) if chosen is None else Path(chosen)


def engine_translator(config: Mapping[str, Any], verbatim: Mapping[str, str]) -> Translator:
    """Return the translator of the run that is named, on the engine asked for.

    Without the keys `split` and `guard` lines are translated as they are.

    Raises:
        UserError: no model, dictionary or shortlist, or the engine has nothing of this model.
    """
    bundle = stored.load_runs(verbatim, config["target"])
    shortlist = guard = None
    if "shortlist" in verbatim:
        shortlist = on_demand(READ_SHORTLIST)(Path(verbatim["shortlist"]), bundle.tokenizers)
    replacing = _unknown_words(config["replace_unknown"], verbatim.get("dictionary"))
    if config.get("guard"):
        source, target = bundle.config.languages
        guard = Guard(
            GuardConfig.model_validate(config["guard"]), searches.read(config["search"]),
            foreign=source != target, shortlist=shortlist,
        )  # fmt: skip
    translator = partial(
        load, bundle, device=config["device"], tokens_per_batch=config["tokens_per_batch"],
        split_sentences=config.get("split") == "sentences", mbr=config["mbr"], guard=guard,
    )  # fmt: skip
    if config["engine"] == "native":
        parameters = sum(weight.numel() for weight in bundle.model.parameters())
        small = parameters < WORTH_THREADS and not machine.THREADS_ARE_CHOSEN
        if config.get("interactive") and small:
            torch.set_num_threads(1)
        return translator(
            search=within(searches.build(config["search"]), shortlist),
            unknown_words=replacing, confidence=_confidence(config, verbatim, bundle),
            workers=_workers(config), precision=config["precision"],
        )  # fmt: skip
    run = verbatim["run"]
    search = on_demand(SEARCHES[config["engine"]])(
        export_folder(run, config["engine"], verbatim.get("export")), run, bundle, config["search"],
        tokens_per_batch=config["tokens_per_batch"],
        workers=1 if config.get("interactive") else config["workers"],
        device=choose_device(config["device"]),
    )  # fmt: skip
    if config.get("interactive"):
        torch.set_num_threads(1)  # beside PyTorch's threads CTranslate2 waits for its own
    return translator(search=search, whole_windows=True)


def _unknown_words(replace_unknown: bool, dictionary: str | None) -> UnknownWords | None:
    """Return the replacement of unknown words: entries of the file `dictionary`, else copies."""
    if replace_unknown:
        return UnknownWords({}) if dictionary is None else UnknownWords.read(dictionary)
    if dictionary is not None:
        raise UsageError(
            f"dictionary={dictionary} only serves to replace unknown words: add "
            "replace_unknown=true"
        )
    return None


def _workers(config: Mapping[str, Any]) -> int:
    """Return the workers asked for; else one a core, unless each line is answered at once."""
    if config["workers"] is not None:
        return int(config["workers"])
    return 1 if config.get("interactive") else one_a_core(choose_device(config["device"]))


def _confidence(
    config: Mapping[str, Any], verbatim: Mapping[str, str], bundle: Bundle
) -> confidence.Confidence | None:
    """Read the confidence learned for this model and search, where the output will have it."""
    if config.get("format") != "json" or config["mbr"] or config["precision"] == "bf16":
        return None
    if any(verbatim.get(key) for key in OTHER_PROBABILITIES):
        return None
    if bundle.tokenizers.source.tag != bundle.config.tag:  # another language than it learned from
        return None
    run = Path(verbatim["run"])
    return confidence.read(run, weights_sha256=bundle.weights_sha256, search=config["search"])
