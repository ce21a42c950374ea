"""The options that say which model translates, and how: those of `text` and of `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from translate import machine
from translate.cli.options import Device, Group, Options, PathList, PathOption
from translate.inference.choices import Engine, Precision
from translate.inference.minimum_bayes_risk import Utility
from translate.names import on_demand
from translate.wording import counted


def search_problems(node: dict[str, Any]) -> list[str]:
    """Return every problem of the node `search`."""
    from translate.search import problems

    return problems(node)


MOST_PER_CORE = 8  # workers
# keys that change what the model finds likely
OTHER_PROBABILITIES = ("ensemble", "prefix", "prefixes", "constraints", "shortlist")
# the options that an engine on the porch lacks, by the name of what lists them
ENGINES_LACK = {"ctranslate2": "translate.extras.ctranslate2_engine:problems"}
TARGET = "of a multilingual run: the tag of the language to translate into; null: as stored"


class TranslatingOptions(Options):
    """Options of a command that translates."""

    run: PathOption = Field(description="the folder of the run")
    ensemble: PathList | None = Field(
        None, description="further runs, separated by commas, whose probabilities are averaged"
    )
    search: Annotated[Any, Group(check=search_problems)] = Field(
        None,
        description="how to search; default: as stored in the run (translate models group=search)",
    )
    target: str | None = Field(None, description=TARGET)
    mbr: Utility | None = Field(
        None,
        description="chrf or bleu: of search.n_best translations, choose the one most like all of "
        "them (minimum Bayes risk)",
    )
    shortlist: PathOption | None = Field(
        None,
        description="a file from translate shortlist: faster, with only each sentence's likely "
        "words; probabilities are then relative to these words",
    )
    replace_unknown: bool = Field(
        False,
        description="true: replace each <unk> by the source word that it attends to most; only a "
        "model whose vocabulary lacks some words of the training text writes <unk>, as with "
        "tokenizer=word tokenizer.vocab_size=1500",
    )
    dictionary: PathOption | None = Field(
        None,
        description="with replace_unknown: a file of SOURCE<tab>TARGET lines, for words that are "
        "not to be copied",
    )
    engine: Engine = Field(
        "native", description="native, or ctranslate2 for what translate export has written"
    )
    export: PathOption | None = Field(
        None,
        description="with engine=ctranslate2: the folder of the export; default: ctranslate2 in "
        "the run",
    )
    workers: PositiveInt | None = Field(
        None,
        description="on a CPU, how many single-threaded processes translate batches in parallel; "
        "1: one process on all threads; null: one per core, where the system can fork "
        "(engine=ctranslate2: threads, in one process)",
    )
    precision: Precision | None = Field(
        None,
        description="float32 or bf16, the numbers to compute with: bf16 is faster on GPUs, with "
        "AMX, and on AMD CPUs with AVX512-BF16; null: those of the weights",
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:1 or mps")
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once, by all workers together; "
        "null: 8192, on a GPU 16384, with engine=ctranslate2 on a CPU 4096",
    )

    def loading(self) -> dict[str, Any]:
        """Return the arguments of `translate.inference.translator.load`, but for the run."""
        from translate.inference.unknown_words import UnknownWords

        words = UnknownWords({}) if self.replace_unknown else None
        if self.dictionary is not None:
            words = UnknownWords.read(self.dictionary)
        same = ("target", "search", "mbr", "shortlist", "engine", "export", "workers", "precision",
                "device", "tokens_per_batch")  # fmt: skip
        return {
            "ensemble": self.ensemble or (), "unknown_words": words,
            **{key: getattr(self, key) for key in same},
        }  # fmt: skip

    def contradictions(self) -> Iterator[str]:
        yield from self._beyond_the_engine()
        if self.dictionary is not None and not self.replace_unknown:
            yield (
                f"dictionary={self.dictionary} only serves to replace unknown words: add "
                "replace_unknown=true"
            )
        if self.mbr is not None and self.search.get("n_best", 1) == 1:
            # of one translation, which is the default, there is none to choose
            yield (
                f"mbr = {self.mbr} chooses among several translations: set search.n_best, for "
                "instance search=sample search.n_best=30"
            )

    def _beyond_the_engine(self) -> list[str]:
        """List the options of a valid configuration that the engine lacks, one line each."""
        cores = machine.cores()
        if (self.workers or 1) > MOST_PER_CORE * cores:
            return [
                f"workers = {self.workers}: this process has {counted(cores, 'core')}, and more "
                "workers than cores only take memory: choose at most "
                f"{MOST_PER_CORE * cores}"
            ]
        if self.engine == "native":
            folder = self.verbatim.get("export")
            return [f"export = {folder} needs engine=ctranslate2"] if folder else []
        problems = on_demand(ENGINES_LACK[self.engine])
        return list(problems(dict(self), self.verbatim, lacking=OTHER_PROBABILITIES))
