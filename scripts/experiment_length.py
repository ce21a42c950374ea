#!/usr/bin/env python
"""Does attention hold as sentences grow? Bahdanau et al. 2015, figure 2, and beyond.

Trains models of several kinds on one corpus and draws BLEU against the length of the source. With
--positions it also trains Transformers that differ in how they know the order of words, and
translates sentences longer than any they were trained on (toy grammar only).

Every step is a public command (`translate train`, `translate evaluate`); finished steps are not
repeated, so the script can be stopped with Ctrl-C and restarted at any time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from experiments import evaluated, new_parser, tell, train
from options import begin, names, numbers

from translate.compose import options
from translate.data.corpus import prepare, read_nodes
from translate.data.pairs import in_order
from translate.errors import UserError
from translate.evaluation.breakdown import Bucket, by_source_length
from translate.extras.figures import bleu_by_length
from translate.extras.report_tables import cell
from translate.extras.toy import toy_pairs
from translate.models.transformer import TransformerConfig

RECIPES = {  # model → what experiment= has after the corpus
    "rnn_none": "_rnn",
    "rnn_bahdanau": "_rnn",
    "rnn_luong": "_rnn",
    "transformer": "",
    "convolutional": "_convolutional",
}
POSITIONS = get_args(TransformerConfig.model_fields["positions"].annotation)
RECIPE_POSITIONS = "rotary"  # of experiment=toy: this Transformer need not be trained twice
CHANGES = {"multi30k": (), "toy": (  # to the recipes of a corpus
    "data.min_words=5", "data.max_words=40", "data.test=2000", "data.tokens_per_batch=1000",
    "trainer.max_steps=1200", "trainer.validate_every=400", "trainer.validation_sentences=200",
    "search=greedy",
)}  # fmt: skip
EDGES = (10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80)
LONGER = (41, 80)  # words of the sentences beyond training
EPILOG = f"""\
Without data= or experiment= each model has its recipe for the toy grammar (experiment=toy,
toy_rnn or toy_convolutional), with sentences of 5 to 40 words:
  {" ".join(CHANGES["toy"])}
or, with --recipes multi30k, its recipe for Multi30k, English to German (hours). With --recipes and
data= that recipe is for another corpus; with data= alone each model has its defaults.

examples:
  scripts/experiment_length.py                            # all models on toy
  scripts/experiment_length.py --positions {",".join(POSITIONS)}
  scripts/experiment_length.py --models rnn_none,rnn_luong trainer.max_steps=200 --output /tmp/try
  scripts/experiment_length.py --recipes multi30k --output runs/length-multi30k
  scripts/experiment_length.py --recipes multi30k --output runs/length-bible data=bible_de_en
  scripts/experiment_length.py --output runs/length-own data=files data.dir=my/corpus

Written to the output folder: MODEL/ (the runs), length.png .svg .md .json and, with --positions,
extrapolation.png .svg .md .json; the tables go to standard output too, progress to standard error.
"""


@dataclass(frozen=True)
class Sentences:
    """Sentences to translate: `arguments` name them to `translate evaluate`."""

    name: str  # of its files among a run's evaluations
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    arguments: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    systems = {name: settings(name, args) for name in args.models}
    schemes = {positions: folder_of(positions) for positions in args.positions}
    systems |= {
        folder: settings("transformer", args, positions) for positions, folder in schemes.items()
    }
    for number, (name, choice) in enumerate(systems.items(), start=1):
        tell(f"[{number}/{len(systems)}] training {name}")
        train(args.output / name, choice)
    config = yaml.safe_load((args.output / next(iter(systems)) / "config.yaml").read_text("utf-8"))
    test = held_out(config)
    if args.models:
        scores = {name: score(args.output / name, [test], args.edges) for name in args.models}
        write(args.output / "length", scores, args.fewest)
    if schemes:
        tests = [test, longer(config, args.output / "longer")]
        scores = {
            positions: score(args.output / folder, tests, args.edges)
            for positions, folder in schemes.items()
        }
        trained_to = config["data"]["max_words"]
        write(args.output / "extrapolation", scores, args.fewest, trained_to)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__, EPILOG, output="runs/length")
    parser.add_argument(
        "--models", type=names("model", sorted(options("model"))), default=list(RECIPES),
        metavar="A,B,…", help=f"options of `translate models group=model`; '' for none; "
        f"default: {','.join(RECIPES)}",
    )  # fmt: skip
    parser.add_argument(
        "--recipes", choices=CHANGES, default=None,
        help=(
            "how each model is trained and, without data=, on what; default: toy, or none if "
            "data= or experiment= is given"
        ),
    )  # fmt: skip
    parser.add_argument(
        "--positions", type=names("positions", POSITIONS), default=[], metavar="A,B,…",
        help=f"Transformers to train with these model.positions ({', '.join(POSITIONS)}) and to "
        f"test on sentences of {LONGER[0]} to {LONGER[1]} words; default: none",
    )  # fmt: skip
    parser.add_argument(
        "--edges", type=numbers, default=list(EDGES), metavar="N,N,…",
        help="the longest source of each bucket, in words; "
        f"default: {','.join(map(str, EDGES))}",
    )  # fmt: skip
    parser.add_argument(
        "--fewest",
        type=int,
        default=20,
        metavar="N",
        help="buckets with fewer sentences are listed in the tables but not drawn; default: 20",
    )
    args = parser.parse_intermixed_args(argv)
    if sorted(set(args.edges)) != list(args.edges):
        parser.error(f"--edges: {args.edges} do not rise")
    if not args.models and not args.positions:
        parser.error("nothing to train: give --models or --positions")
    chosen = {override.partition("=")[0] for override in args.overrides}
    if "experiment" in chosen and args.recipes:
        parser.error("--recipes chooses an experiment= for each model: give only one of the two")
    args.recipes = args.recipes or (None if chosen & {"data", "experiment"} else "toy")
    args.its_corpus = not chosen & {"data", "experiment"}  # that of the recipes
    if args.positions and not (args.its_corpus and args.recipes == "toy"):
        parser.error(
            "--positions needs sentences of any length, as from the toy grammar: leave out data="
        )
    unknown = [model for model in args.models if model not in RECIPES]
    if unknown and args.recipes:
        parser.error(
            f"{args.recipes} has no recipe for {', '.join(unknown)}: give data= without --recipes"
        )
    return args


def settings(model: str, args: argparse.Namespace, positions: str | None = None) -> list[str]:
    """What to train a model with: its recipe, if there is one, and the overrides."""
    recipe = [f"experiment={args.recipes}{RECIPES[model]}"] if args.recipes else []
    if args.its_corpus:
        recipe += CHANGES[args.recipes]
    other = [] if positions in (None, RECIPE_POSITIONS) else [f"model.positions={positions}"]
    return [f"model={model}", *recipe, *other, *args.overrides]


def folder_of(positions: str) -> str:
    """The run of the Transformer with these positions."""
    return "transformer" if positions == RECIPE_POSITIONS else f"transformer-{positions}"


def held_out(config: Mapping[str, Any]) -> Sentences:
    """The test split of the corpus that the runs were trained on."""
    corpus = prepare(*read_nodes(config["data"], config["tokenizer"]), cache=Path(config["cache"]))
    if corpus.test is None:
        raise UserError("this corpus has no test split: choose another with data=")
    sources, references = (list(in_order(corpus.test, name)) for name in ("source", "references"))
    return Sentences("test", sources, references, ())


def longer(config: Mapping[str, Any], folder: Path) -> Sentences:
    """Toy sentences beyond the lengths of training, of combinations it has not seen either."""
    if config["data"]["max_words"] >= LONGER[0]:
        raise UserError(
            f"data.max_words is {config['data']['max_words']}: train on shorter sentences than "
            f"the {LONGER[0]} to {LONGER[1]} words of the test"
        )
    pairs = toy_pairs(
        train=0, dev=0, test=500, min_words=LONGER[0], max_words=LONGER[1],
        seed=config["data"]["seed"],
    )["test"]  # fmt: skip
    sides = {"de": [pair.source for pair in pairs], "en": [pair.target for pair in pairs]}
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for language, lines in sides.items():
        files[language] = folder / f"longer.{language}"
        files[language].write_text("".join(f"{line}\n" for line in lines), "utf-8")
    source, target = config["data"]["source"], config["data"]["target"]
    return Sentences(
        files[source].name,
        sides[source],
        [[line] for line in sides[target]],
        (f"input={files[source]}", f"reference={files[target]}"),
    )


def score(run: Path, tests: Sequence[Sentences], edges: Sequence[int]) -> list[Bucket]:
    """The buckets of all sentences of the test sets together, by the run's BLEU tokenizer."""
    judged = [evaluated(run, test.name, *test.arguments) for test in tests]
    translations = [line for evaluation in judged for line in evaluation.hypotheses]
    sources = [line for test in tests for line in test.sources]
    references = [item for test in tests for item in test.references]
    tokenize = judged[0].tokenize
    return by_source_length(sources, translations, references, edges, tokenize=tokenize)


def write(
    path: Path,
    scores: Mapping[str, Sequence[Bucket]],
    fewest: int,
    trained_to: int | None = None,
) -> None:
    """The table, the figures and the pictures: path.md, .json, .png and .svg."""
    figures = {name: [asdict(b) for b in buckets] for name, buckets in scores.items()}
    path.with_suffix(".json").write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    text = table(scores)
    path.with_suffix(".md").write_text(text, "utf-8")
    print(text)
    lines = {
        name: [
            (b.source_words, b.bleu) for b in buckets if b.items >= fewest and b.bleu is not None
        ]
        for name, buckets in scores.items()
    }
    if not any(lines.values()):
        raise UserError(
            f"no length has {fewest} sentences, so nothing is drawn (--fewest); see {path}.md and "
            ".json for the table and the figures"
        )
    for suffix in (".png", ".svg"):
        bleu_by_length(lines, path.with_suffix(suffix), trained_to=trained_to)
    tell(f"{path}.png, .svg, .md and .json are written")


def table(scores: Mapping[str, Sequence[Bucket]]) -> str:
    """BLEU in Markdown: a row a model, a column a bucket."""
    buckets = next(iter(scores.values()))
    rows = [
        ["source words", *(bucket.label for bucket in buckets)],
        ["---", *("---:" for _ in buckets)],
        ["sentences", *(f"{bucket.items:,}" for bucket in buckets)],
        *([name, *(cell(bucket.bleu) for bucket in row)] for name, row in scores.items()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    begin(main)
