"""What a run carries for later commands: its bundle and its `config.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from translate.cli.arguments import Arguments
from translate.cli.errors import UsageError
from translate.errors import UserError

if TYPE_CHECKING:
    from translate.data.corpus import Corpus
    from translate.inference.bundle import Bundle
    from translate.inference.translator import Translator
    from translate.inference.unknown_words import UnknownWords

SPLITS = ("test", "dev")  # of a run's own corpus, that it can be judged on


@lru_cache(maxsize=1)  # once for the configuration and every job of a sweep
def load_bundle(run: str) -> Bundle:
    """The bundle of a run.

    Raises:
        UserError: the run holds no model that can be read.
    """
    from translate.inference import bundle

    return bundle.load(bundle.find(run))


def search_node(arguments: Arguments) -> dict[str, Any]:
    """How the run searches unless told otherwise, to be had as `search=stored`.

    Raises:
        UserError: no run was named (and more than the configuration is wanted), or it has no model.
    """
    if "run" in arguments.verbatim:
        return dict(load_bundle(arguments.verbatim["run"]).config.search)
    if arguments.inspects:
        return {}
    raise UsageError("run=PATH is missing: the folder that translate train wrote")


def translator(
    bundle: Bundle,
    *,
    search: Mapping[str, Any],
    device: str,
    unknown_words: UnknownWords | None = None,
    **options: int,
) -> Translator:
    """A translator that searches as the composed configuration says."""
    from translate import search as searches
    from translate.inference.translator import Translator

    return Translator(
        bundle.model,
        bundle.tokenizers,
        searches.build(**search),
        device=device,
        unknown_words=unknown_words,
        **options,
    )


def unknown_words(replace_unknown: bool, dictionary: str | None) -> UnknownWords | None:
    """What replaces unknown words: the entries of the file `dictionary`, copies beyond it.

    Raises:
        UserError: the dictionary cannot be read, or nothing would read it.
    """
    from translate.inference.unknown_words import UnknownWords

    if dictionary is not None and not replace_unknown:
        raise UsageError(
            f"dictionary={dictionary} is for replacing unknown words: add replace_unknown=true"
        )
    if not replace_unknown:
        return None
    return UnknownWords({}) if dictionary is None else UnknownWords.read(dictionary)


def split_of_run(
    run: Path, data: Mapping[str, Any], tokenizer: Mapping[str, Any], cache: Path
) -> Any:
    """The table of the split `data.split` of the corpus a run was trained on.

    Raises:
        UserError: the run does not say what it was trained on, or there is no such split.
    """
    return corpus_of_run(run, data, tokenizer, cache)[1]


def corpus_of_run(
    run: Path, data: Mapping[str, Any], tokenizer: Mapping[str, Any], cache: Path
) -> tuple[Corpus, Any]:
    """The corpus a run was trained on, and the table of its split `data.split`.

    Raises:
        UserError: the run does not say what it was trained on, or there is no such split.
    """
    from translate.data.corpus import prepare

    if data["split"] not in SPLITS:
        raise UsageError(f"data.split = {data['split']!r}: must be {' or '.join(SPLITS)}")
    settings = {key: value for key, value in data.items() if key != "split"}
    if not settings:
        raise UserError(
            f"{run} has no config.yaml that names its corpus: give input=FILE reference=FILE"
        )
    corpus = prepare(settings, tokenizer, cache=cache)
    table = corpus.test if data["split"] == "test" else corpus.dev
    if table is None:
        raise UserError(
            "this corpus has no test split: use data.split=dev, or input=FILE reference=FILE"
        )
    return corpus, table


def training_config(run: str | Path) -> dict[str, Any]:
    """The configuration a run was started with; empty where the folder has none.

    Raises:
        UserError: the file is there and cannot be read.
    """
    file = Path(run) / "config.yaml"
    if not file.is_file():
        return {}
    try:
        config = OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} holds no configuration")
    return {str(key): value for key, value in config.items()}
