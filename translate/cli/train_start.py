"""What a call of `translate train` begins from: nothing, a run under way, or a trained model."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translate.cli.arguments import Arguments
from translate.cli.errors import UsageError
from translate.compose import is_choice, key_of

if TYPE_CHECKING:
    from translate.data.tokenizer import Tokenizers


def refuse_resuming_nothing(arguments: Arguments) -> None:
    """A slip in run= must not begin another training, on the corpus that is the default."""
    new = any(map(is_choice, arguments.overrides))
    if "run" in arguments.verbatim and not (new or arguments.multirun or arguments.inspects):
        raise UsageError(
            f"there is no run to resume in {arguments.verbatim['run']}: check run=; a new run "
            "needs experiment= or data= (translate models lists them)"
        )


def refuse_the_default_corpus(arguments: Arguments, chosen: Set[str]) -> None:
    """Whoever goes on with a model means a certain text."""
    if not (chosen & {"data", "experiment"} or arguments.inspects):
        raise UsageError(
            "init= says what to begin from, not what to train on: give data= or experiment= "
            "(translate models lists them)"
        )


def refuse_several_folders(arguments: Arguments) -> None:
    """The folders of a sweep are made of one name, and a list would be that."""
    run = arguments.verbatim.get("run", "")
    if arguments.multirun and "," in run:
        raise UsageError(
            f"run={run}: name one folder, to which the settings that vary are appended"
        )


def begun_config(run: str) -> dict[str, Any]:
    """The configuration of a run under way, which an earlier version may have begun."""
    from translate.models import registry
    from translate.run_folder import configuration

    config = configuration(run)
    if isinstance(node := config.get("model"), dict):
        config["model"] = registry.upgraded(node)
    return config


def with_origin(arguments: Arguments) -> Arguments:
    """What the first call of a run named as `init=`, which another that goes on need not repeat.

    A run without a checkpoint yet has nothing else to begin from.
    """
    from translate.training.provenance import noted

    if origin := noted(Path(arguments.verbatim["run"]), "init"):
        return replace(arguments, verbatim={"init": origin["bundle"]} | arguments.verbatim)
    return arguments


def with_stored_vocabulary(arguments: Arguments, place: str, tokenizers: Tokenizers) -> Arguments:
    """The vocabulary is that of `init=`, unless one is chosen; an experiment has no say in it.

    Of pieces that another lacks what was learned would be lost. How the text is sampled is free.
    """
    from translate.inference.bundle import find

    keys = set(map(key_of, arguments.overrides))
    if any(re.match(r"tokenizer(\.(?!sampling)|$)", key) for key in keys):
        return arguments
    own = (
        f"tokenizer={tokenizers.source.kind}",
        f"tokenizer.joint={json.dumps(tokenizers.joint)}",
        f"tokenizer.pretrained={json.dumps(str(find(place).absolute()), ensure_ascii=False)}",
    )
    return arguments.beginning_with(own)
