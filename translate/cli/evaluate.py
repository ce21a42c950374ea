"""translate evaluate: how good the translations are."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from translate.cli.options import PathOption, TestSetOptions, TranslatingOptions, Verbatim

TABLES = "translate.extras.report_tables:render"
USAGE = """\
  translate evaluate run=runs/demo                         # the test sentences of its corpus
  translate evaluate run=runs/demo data.split=dev search=beam search.beam_size=8
  translate evaluate run=runs/demo modifiers=upper,title,typos,unpunctuated
  translate evaluate run=runs/demo input=news.es reference=news.en reference=news.other.en

Scores are sacreBLEU's, on detokenised text with every reference, each with the signature needed to
reproduce it and the half width of its 95 % bootstrap interval. Tables by source length, by the
rarest source word's count in training (in scripts without spaces, each letter counts as a word) and
by domain follow, then the perplexity of the first references (with engine=ctranslate2, that of the
original model), speed and memory. The following go to evaluation/ in the run: <split>.hyp, the
translations, written before they are scored; <split>.sentences.jsonl, each sentence with its
scores; <split>.json, the figures; and <split>.html, a page with curves, worst and best sentences
and attention. With input=, the files are named after that file (news.es.json). If other sentences
already have that name, six hexadecimal digits are appended; `test` and `dev` are reserved for the
run's own corpus, so those of another one (data=) get the digits too. To see several runs side by
side, use translate compare.
"""


Modifier = Literal[
    "upper", "title", "lower", "unpunctuated", "doubled", "typos", "signs", "names"
]  # fmt: skip


class EvaluateOptions(TranslatingOptions, TestSetOptions):
    """The options of `translate evaluate`."""

    usage: ClassVar[str] = USAGE

    domains: PathOption | None = Field(
        None,
        description="a file with the domain of each sentence, one per line, for a table by domain; "
        "data.domain: the same from a column of data=tsv, jsonl or hub",
    )
    comet: PathOption | None = Field(
        None,
        description="the folder of a COMET model on this disk, to add its scores (a pickle: use "
        "one you trust); needs the extra `comet`; loaded first, and in the memory that is reported",
    )
    output: PathOption | None = Field(
        None, description="the folder of the files; default: evaluation/ in the run"
    )
    resamples: PositiveInt = Field(
        1000, description="how often to resample the test set, for the intervals"
    )
    seed: NonNegativeInt = Field(12345, description="of the resampling; sacreBLEU's own default")
    tokenize: str | None = Field(
        None,
        description="BLEU's: 13a, zh, ja-mecab, ko-mecab, char, intl, flores200 …; null: by the "
        "target language, as sacreBLEU chooses, or char for other text without spaces; with zh, "
        "ja-mecab and char, TER counts Chinese and Japanese characters",
    )
    shown: NonNegativeInt = Field(
        20, description="how many of the worst and of the best sentences to show on the page"
    )
    modifiers: Annotated[tuple[Modifier, ...], Verbatim("TEXT", several=True)] = Field(
        (),
        description="score the sentences also as these change them, for instance "
        "upper,title,typos,unpunctuated (data.modifiers explains them)",
    )
    attention: list[PositiveInt] = Field(
        [1], description="the lines whose attention to show on the page, from 1"
    )


def run(options: EvaluateOptions) -> None:
    """Evaluate the run and print the figures."""
    from translate.cli.streams import show
    from translate.errors import UsageError
    from translate.evaluation.judging import FILES, OPTIONS, evaluate
    from translate.inference import bundle
    from translate.inference.translator import load
    from translate.names import on_demand

    target = options.target
    if target is not None and options.input is None:
        main = bundle.of_run(options.run).config.tag
        if target != main:
            raise UsageError(
                f"target={target}: the {options.split} sentences of this run use "
                f"{main or 'no tag'}: give input= and reference= in that language"
            )
    report = evaluate(
        options.run,
        **options.test_set,
        translator=partial(load, options.run, **options.loading()),
        decoding={
            **options.search,
            **{key: getattr(options, key) for key in OPTIONS},
            **{key: getattr(options, key) for key in FILES},
            "ensemble": ",".join(options.ensemble) if options.ensemble else None,
        },
        target=target,
        device=options.device,
        tokenize=options.tokenize,
        resamples=options.resamples,
        seed=options.seed,
        comet=options.comet,
        output=options.output,
        shown=options.shown,
        attention=options.attention,
        modifiers=options.modifiers,
        command=sys.argv[1:],
    )
    show(on_demand(TABLES)(report))
