"""translate text: a line in, a line out."""

from __future__ import annotations

import itertools
import logging
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import refuse
from translate.cli.fields import Device, Node
from translate.data.text import json_line
from translate.inference.choices import Engine, Precision
from translate.inference.minimum_bayes_risk import Utility
from translate.vocabulary import EOS

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from translate.data.tokenizer import Tokenizers
    from translate.inference.translation import Translation

log = logging.getLogger(__name__)

HELP = """\
translate text: translate sentences, a file or standard input

  translate text run=runs/demo "¿Dónde está el tren?" "No sé qué decirte."
  translate text run=runs/demo < spanish.txt > english.txt
  translate text run=runs/demo input=spanish.txt output=english.txt search=beam search.beam_size=8
  translate text run=runs/demo search=beam search.n_best=3 "Hola."
  translate text run=runs/demo prefix="Where is" "¿Dónde está el tren?"
  translate text run=runs/demo search=sample search.n_best=30 mbr=chrf < spanish.txt
  translate text run=runs/demo -- "x=1" "--dashes in front"

Each input line gives one output line, in order; an empty line stays empty. Input is UTF-8, plain or
gzip; lines end at \\n only. With scores=true or search.n_best above 1, each translation is a line
of number, score and text, separated by tabs. With mbr, only the chosen text is written, unless
scores=true; its score is then the expected utility (for several sentences on a line, their sum).
With format=json, each output line holds all translations of an input line: text, score,
log-probability, pieces, the log-probability of each piece with the end of the sentence last, and,
if the line is one sentence, the mean attention of all layers and heads to each source piece; the
chance that it is good (confidence), if translate calibrate has been run; and what the guard found:
flags, what is wrong with this translation, and mended, what was wrong with an earlier one.

A line is translated sentence by sentence. The guard (guard=default) looks for translations that
cannot be right: empty ones, loops, copies of the source, far too long or cut off, and URLs, e-mail
addresses, tags and placeholders that did not come through as they are. Sentences with such items
are then translated around them, and others are searched again; the better translation is kept. What
was done or is still wrong is reported on standard error with its line number, followed by a count
of such lines. Numbers are compared, never changed.

Keys:
  run            the folder of the run (required)
  ensemble       further runs, separated by commas, whose probabilities are averaged with its own
  input, output  files (output=x.gz is packed with gzip); default standard input and output. Until
                 all lines are written, output=x is x.partial
  search         how to search; default: as stored in the run (translate models group=search)
  target         of a multilingual run: the tag of the language to translate into
  prefix         how every translation begins; prefixes=FILE: one for each input line
  constraints    a file with a line for each input line: phrases that its translation must contain,
                 separated by tabs (search=beam); like those of search.rules.banned, they match
                 whole words, or in scripts without spaces (Chinese, Thai) runs of characters
  mbr            chrf or bleu: of search.n_best translations, the one most like all of them
  shortlist      a file from translate shortlist: faster, with only each sentence's likely words;
                 probabilities are then relative to these words
  split          sentences: each is translated by itself; none: a line is only split if it has more
                 than 512 pieces, or more than the model reads
  guard          default, with its limits (guard.protect=[url,email], …), or none: no checks
  replace_unknown  true: replace each <unk> by the source word it attends to most; only a model
                 whose vocabulary lacks some words of the training text writes <unk>, as with
                 tokenizer=word tokenizer.vocab_size=1500
  dictionary     with replace_unknown: a file of SOURCE<tab>TARGET lines, for words not to copy
  engine         native, or ctranslate2 for what translate export has written
  export         with engine=ctranslate2: the folder of the export; default: ctranslate2 in the run
  workers        on a CPU, how many single-threaded processes translate batches in parallel; 1: one
                 process on all threads; default: one worker per core, where the system can fork
                 (engine=ctranslate2: threads, in one process)
  precision      float32 or bf16: the numbers to compute with; default: those of the weights
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, translated at once
  interactive    true: answer each line before the next is read; default: only at a terminal
  scores         true: put line numbers and scores before each translation
  format         text or json
An argument that looks like KEY=VALUE but is not a key is an error, not a sentence; everything after
-- is a sentence.
"""


def job(job: Job) -> None:
    """Check the configuration, then translate."""
    from translate.cli.engines import engine_problems
    from translate.cli.streams import output_problems
    from translate.cli.validation import guard_problems, mbr_problems, search_problems
    from translate.machine import threads_restored

    search, guard = job.config["search"], job.config["guard"]
    refuse(schema.problems(run, job.config, ""))
    refuse(search_problems(search) + guard_problems(guard))
    refuse(engine_problems(job) + mbr_problems(job.config))
    refuse(output_problems(job.verbatim) + _worker_problems(**job.config))
    if "constraints" in job.verbatim:
        refuse(_phrase_problems(search, guard.get("again")))
    with threads_restored():  # an engine may set others than the next job of a sweep should have
        run(job, **job.config)


def _phrase_problems(search: Node, again: Node | None) -> list[str]:
    nodes = [("search", "search", search), ("guard.again", "search@guard.again", again)]
    return [
        f"{place}.kind = {node['kind']}: constraints= needs {choice}=beam"
        for place, choice, node in nodes
        if node and node["kind"] != "beam"
    ]


def _worker_problems(*, interactive: bool | None, workers: int | None, **_: object) -> list[str]:
    if not interactive or workers in (None, 1):
        return []
    return [
        f"workers = {workers}: interactive=true translates one line at a time, which leaves "
        "nothing to share among workers: leave out one of the two"
    ]


def run(
    job: Job,
    *,
    search: Node,
    target: str | None,
    device: Device,
    tokens_per_batch: PositiveInt | None,
    interactive: bool | None,
    scores: bool,
    engine: Engine,
    workers: PositiveInt | None,
    precision: Precision | None,
    split: Literal["sentences", "none"],
    guard: Node,
    replace_unknown: bool,
    mbr: Utility | None,
    format: Literal["text", "json"],
) -> None:
    """Translate every line."""
    from translate.cli import streams
    from translate.cli.engines import engine_translator

    constraints = streams.constraints_in(job.verbatim, job.sentences)
    lines = streams.lines_in(job.verbatim, job.sentences)
    if interactive is None:
        interactive = streams.interactive(job.verbatim, job.sentences)
    model = engine_translator({**job.config, "interactive": interactive}, job.verbatim)
    if isinstance(constraints, list):
        model.check(constraints)
    lines, sources = itertools.tee(lines)
    translations = model.stream(
        lines,
        window=1 if interactive else None,
        need_alignment=format == "json",
        constraints=constraints,
    )
    watch = Watch()
    numbered = scores or (search.get("n_best", 1) > 1 and mbr is None)
    with (
        closing(translations),  # its workers too, whatever happens to the output
        streams.lines_done(job.verbatim, job.sentences) as advance,
        streams.lines_out(job.verbatim, flush=interactive) as write,
    ):
        for number, (found, source) in enumerate(zip(translations, sources, strict=True), start=1):
            watch.see(found[0])
            advance(1)
            if format == "json":
                write(_as_json(source, model.tokenizers, found))
                continue
            for translation in found if numbered else found[:1]:
                front = f"{number}\t{translation.score:.4f}\t" if numbered else ""
                write(front + translation.text)
    told = format == "json" or engine != "native"  # which has no JSON
    watch.tell("" if told else ": format=json has them all")


class Watch:
    """Counts the lines that the guard had something to say about."""

    def __init__(self) -> None:
        self.lines = self.mended = self.flagged = 0

    def see(self, best: Translation) -> None:
        """Take the best translation of the next line into account."""
        self.lines += 1
        self.mended += bool(best.mended)
        self.flagged += bool(best.flags)

    def tell(self, hint: str) -> None:
        """Say how many of several lines there were, if there were any, and how to see which."""
        if self.lines > 1 and (self.mended or self.flagged):
            log.warning(
                "of %d lines, improved by translating them again: %d, may be wrong: %d%s",
                self.lines, self.mended, self.flagged, hint,
            )  # fmt: skip


def _as_json(source: str, tokenizers: Tokenizers, found: list[Translation]) -> str:
    """A line that holds everything known of the translations of `source`."""
    ids = [*tokenizers.source.encode(source), EOS]
    return json_line(
        {
            "source": source,
            "source_pieces": tokenizers.source.pieces(ids),
            "translations": [_fields(one, len(ids)) for one in found],
        }
    )


def _fields(found: Translation, source_pieces: int) -> dict[str, object]:
    """One translation; with its confidence, if there is any."""
    columns = 0 if found.alignment is None else found.alignment.shape[-1]
    # a part of the line that nobody sees was not read
    alignment = found.alignment if columns == source_pieces else None
    sure = {} if found.confidence is None else {"confidence": round(found.confidence, 4)}
    return {
        "text": found.text,
        "score": found.score,
        "log_prob": found.log_prob,
        **sure,
        "flags": found.flags,
        "mended": found.mended,
        "pieces": found.tokens,
        "piece_log_probs": found.token_log_probs,
        "alignment": _rounded(alignment),
    }


def _rounded(alignment: Float[np.ndarray, "L H T S"] | None) -> list[list[float]] | None:
    """The mean of all layers and heads, a row for each piece of the translation and </s>."""
    if alignment is None:
        return None
    # in float64: a float32 of four digits prints as one of seventeen
    rows: list[list[float]] = alignment.mean((0, 1), dtype="float64").round(4).tolist()
    return rows
