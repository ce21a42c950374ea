"""translate text: a line in, a line out."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import closing
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from translate.cli.options import Group, PathOption, Sentences, TextOption, TranslatingOptions
from translate.config import problems
from translate.data.plain_text import json_line
from translate.inference.markup import Markup
from translate.machine import threads_restored
from translate.vocabulary import EOS

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from translate.data.tokenizer import Tokenizers
    from translate.inference.translation import Translation

log = logging.getLogger(__name__)

USAGE = """\
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
addresses, tags, placeholders and signs that the vocabulary lacks which did not come through as they
are. Sentences with such items are then translated without them, and the items put back beside the
translation of their neighbours, as the attention says. Others are searched again; the translation
with less wrong in it is kept. What was done or is still wrong is reported on standard error with
its line number, followed by a count of such lines. Numbers are compared, never changed.

Sentences with tags are always translated without them, and the tags put back in pairs, around what
they enclosed. References such as &eacute; or &nbsp; are read as their characters. A line that is
well-formed XML stays so; with markup=xml every line is XML, with markup=none none is.
An argument that looks like KEY=VALUE but is not a key is an error, not a sentence; everything after
-- is a sentence.
"""


def _guard_problems(node: dict[str, Any]) -> list[str]:
    from translate.inference.guard import GuardConfig

    return problems(GuardConfig, node, "guard") if node else []


class TextOptions(TranslatingOptions):
    """The options of `translate text`."""

    usage: ClassVar[str] = USAGE

    sentences: Sentences = ()
    input: PathOption | None = Field(
        None, description="a file to translate; default: the sentences given, or standard input"
    )
    output: PathOption | None = Field(
        None,
        description="a file for the translations (x.gz is packed with gzip), which is x.partial "
        "until all lines are written; default: standard output",
    )
    guard: Annotated[Any, Group("default", _guard_problems)] = Field(
        None,
        description="default, with its limits (guard.protect=[url,email], …), or none: no checks",
    )
    markup: Markup = Field(
        "auto",
        description="auto: a line that is well-formed XML is read and written as such, if the "
        "guard protects tags, and of others tags are put back and references read; xml: every line "
        "is XML; none: < and & are characters",
    )
    prefix: TextOption | None = Field(None, description="how every translation begins")
    prefixes: PathOption | None = Field(
        None, description="a file with a prefix for each input line"
    )
    constraints: PathOption | None = Field(
        None,
        description="a file with a line for each input line: phrases that its translation must "
        "contain, separated by tabs (search=beam); like those of search.rules.banned, they match "
        "whole words, or in scripts without spaces (Chinese, Thai) runs of characters",
    )
    split: Literal["sentences", "none"] = Field(
        "sentences",
        description="sentences: each is translated by itself; none: a line is only split if it has "
        "more than 512 pieces, or more than the model reads",
    )
    interactive: bool | None = Field(
        None, description="true: answer each line before the next is read; null: only at a terminal"
    )
    scores: bool = Field(
        False,
        description="true: put line number and score before each translation, separated by tabs; "
        "always so with search.n_best above 1",
    )
    format: Literal["text", "json"] = Field("text", description="text or json")

    def contradictions(self) -> Iterator[str]:
        from translate.cli.streams import output_problems

        yield from super().contradictions()
        yield from output_problems(self.verbatim)
        if self.interactive and self.workers not in (None, 1):
            yield (
                f"workers = {self.workers}: interactive=true translates one line at a time, which "
                "leaves nothing to share among workers: leave out one of the two"
            )
        if self.constraints is not None:
            again = (self.guard or {}).get("again")
            nodes = [("search", "search", self.search)]
            nodes += [("guard.again", "search@guard.again", again)] if again else []
            for place, choice, node in nodes:
                if node["kind"] != "beam":
                    yield f"{place}.kind = {node['kind']}: constraints= needs {choice}=beam"


@threads_restored()  # an engine may set others than its caller has
def run(options: TextOptions) -> None:
    """Translate every line."""
    from translate.cli import streams
    from translate.inference.translator import WINDOW, load

    verbatim, sentences = options.verbatim, options.sentences
    constraints = streams.constraints_in(verbatim, sentences)
    lines = streams.lines_in(verbatim, sentences)
    interactive = options.interactive
    if interactive is None:
        interactive = streams.interactive(verbatim, sentences)
        if not interactive and streams.piped(verbatim, sentences):
            lines = streams.watched(lines, WINDOW)
    model = load(
        options.run,
        **options.loading(),
        split_sentences=options.split == "sentences",
        markup=options.markup,
        guard=options.guard or None,
        confidence=True,
        interactive=interactive,
    )
    if isinstance(constraints, list):
        model.check(constraints)
    lines, sources = itertools.tee(lines)
    as_json = options.format == "json"
    translations = model.stream(
        lines,
        window=1 if interactive else None,
        need_alignment=as_json,
        constraints=constraints,
    )
    several = options.search.get("n_best", 1) > 1 and options.mbr is None
    numbered = options.scores or several
    number = mended = flagged = 0
    sure: list[float] = []
    with (
        closing(translations),  # its workers too, whatever happens to the output
        streams.lines_done(verbatim, sentences) as advance,
        streams.lines_out(verbatim, flush=interactive) as write,
    ):
        pairs = zip(translations, sources, strict=True)
        for number, (n_best, source) in enumerate(pairs, start=1):
            mended += bool(n_best[0].mended)
            flagged += bool(n_best[0].flags)
            if n_best[0].confidence is not None:
                sure.append(n_best[0].confidence)
            advance(1)
            if as_json:
                write(_as_json(source, model.tokenizers, n_best))
                continue
            for translation in n_best if numbered else n_best[:1]:
                front = f"{number}\t{translation.score:.4f}\t" if numbered else ""
                write(front + translation.text)
    if number > 1 and (mended or flagged):
        shown = as_json or options.engine != "native"  # which has no JSON
        log.warning(
            "of %d lines, translated again: %d, may be wrong: %d%s",
            number, mended, flagged, "" if shown else ": format=json has them all",
        )  # fmt: skip

    if model.confidence is not None and model.confidence.finds_far(sure):
        log.warning(
            "this text is far from what the model was trained on: %.0f%% of its lines are likely "
            "to be translated well, of the text that it was tested on %.0f%%",
            100 * fmean(sure), 100 * model.confidence.judged["expected"],
        )  # fmt: skip


def _as_json(source: str, tokenizers: Tokenizers, translations: list[Translation]) -> str:
    """Return a line with everything known of the translations of `source`."""
    ids = [*tokenizers.source.encode(source), EOS]
    return json_line(
        {
            "source": source,
            "source_pieces": tokenizers.source.pieces(ids),
            "translations": [_fields(one, len(ids)) for one in translations],
        }
    )


def _fields(translation: Translation, source_pieces: int) -> dict[str, object]:
    """Return what is written of a translation; its confidence only if there is any."""
    columns = 0 if translation.alignment is None else translation.alignment.shape[-1]
    # a part of the line that nobody sees was not read
    alignment = translation.alignment if columns == source_pieces else None
    confidence = translation.confidence
    sure = {} if confidence is None else {"confidence": round(confidence, 4)}
    return {
        "text": translation.text,
        "score": translation.score,
        "log_prob": translation.log_prob,
        **sure,
        "flags": translation.flags,
        "mended": translation.mended,
        "pieces": translation.tokens,
        "piece_log_probs": translation.token_log_probs,
        "alignment": _rounded(alignment),
    }


def _rounded(alignment: Float[np.ndarray, "L H T S"] | None) -> list[list[float]] | None:
    """The mean of all layers and heads, a row for each piece of the translation and </s>."""
    if alignment is None:
        return None
    # in float64: a float32 of four digits prints as one of seventeen
    rows: list[list[float]] = alignment.mean((0, 1), dtype="float64").round(4).tolist()
    return rows
