#!/usr/bin/env python
"""What is each part of a recipe worth? The recipe, with one thing changed at a time.

Trains the recipe and each change of it alike, translates the dev sentences with all, and tests
whether the differences in BLEU are more than chance: paired bootstrap and approximate
randomisation over the sentences; with several --seeds, Welch's test over the runs. Bold is what
is so with p-values adjusted for the number of changes (Holm). A change of the search (search.…)
trains nothing. Test sets are not for choosing, so none is touched.

Every step is a public command (`translate train`, `translate evaluate`); finished steps are not
repeated, so the script can be stopped with Ctrl-C and restarted at any time.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from experiments import evaluated, new_parser, tell, train
from options import begin, composed, numbers, quoted

from translate.cli.compare import CompareOptions
from translate.data.corpus import prepare, read_nodes
from translate.data.pairs import in_order
from translate.errors import UserError
from translate.evaluation.report import Stored
from translate.extras.significance import SURE, differences, holm, welch
from translate.inference import bundle

RECIPE = "the recipe"
CHANGES = (
    "model.positions=learned", "model.positions=relative", "model.positions=sinusoidal",
    "model.positions=alibi", "model.positions=none",
    "model.norm=post", "model.normalization=rms", "model.activation=swiglu",
    "model.tied_embeddings=decoder", "model.tied_embeddings=none",
    "model.num_kv_heads=2", "model.num_kv_heads=1",
    "model.dropout=0.2", "model.dropout=0.1", "model.attention_dropout=0.1",
    "model.layer_drop=0.1",
    "tokenizer.vocab_size=2000", "tokenizer.vocab_size=4000", "tokenizer.vocab_size=16000",
    "tokenizer=bpe", "tokenizer.sampling.alpha=0.3",
    "trainer.label_smoothing=0", "trainer.label_smoothing=0.2", "trainer.r_drop=3",
    "trainer.word_dropout=0.1", "trainer.averaging.kind=none",
    "search.beam_size=1", "search.beam_size=2", "search.beam_size=10",
    "search.alpha=0", "search.alpha=0.6", "search.alpha=1.4",
)  # fmt: skip
EPILOG = """\
examples:
  scripts/experiment_ablations.py data.dir=path/to/multi30k      # all changes: a day on two cores
  scripts/experiment_ablations.py data.dir=$M --change model.norm=post --change search.alpha=0
  scripts/experiment_ablations.py --recipe toy --seeds 1,2,3 --change schedule=cosine

Written to the output folder: a run for the recipe and for each change of training, ablations.md
and ablations.json; the table goes to standard output too, progress to standard error.
"""


@dataclass(frozen=True)
class Row:
    """What a change does."""

    change: str
    parameters: int
    bleu: Sequence[float]  # of each seed
    chrf: Sequence[float]
    gain: float | None  # of the mean BLEU over the recipe's; None: it is the recipe
    p: float | None  # how often equally good systems differ by so much; None: not tested
    p_holm: float | None  # adjusted for all changes


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    changes = checked(args)
    for number, change in enumerate(changes, start=1):
        for seed in args.seeds:
            if is_of_training(change):
                tell(f"[{number}/{len(changes)}] training {change}, seed {seed}")
                train(folder(args.output, change, seed), settings(args, change, seed))
    translations = {
        change: [translated(args.output, change, seed) for seed in args.seeds] for change in changes
    }
    rows = judged(args.output, args.seeds, translations)
    figures = json.dumps([asdict(row) for row in rows], indent=2)
    (args.output / "ablations.json").write_text(f"{figures}\n", "utf-8")
    text = table(rows)
    (args.output / "ablations.md").write_text(text, "utf-8")
    print(text, end="")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__, EPILOG, output="runs/ablations")
    parser.add_argument(
        "--recipe", default="multi30k", metavar="NAME",
        help="an option of `translate models group=experiment`; default: multi30k",
    )  # fmt: skip
    parser.add_argument(
        "--change", type=quoted, action="append", dest="changes", metavar="'KEY=VALUE …'",
        help=f"one ablation; repeat for more; default: {'; '.join(CHANGES)}",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=numbers, default=[1], metavar="N,N,…", help="to train with; default: 1"
    )
    args = parser.parse_intermixed_args(argv)
    if len(set(args.seeds)) < len(args.seeds):
        parser.error(f"--seeds {args.seeds} has a seed twice")
    for place, overrides in [
        *((f"--change {change!r}", shlex.split(change)) for change in args.changes or []),
        ("KEY=VALUE", args.overrides),
    ]:
        if not all("=" in override for override in overrides):
            parser.error(f"{place}: give KEY=VALUE; quote several for one --change together")
        if any(override.startswith("seed=") for override in overrides):
            parser.error(f"{place}: choose seeds with --seeds")
    return args


def checked(args: argparse.Namespace) -> list[str]:
    """The recipe and the changes, each looked at before the first training.

    Default changes that the recipe already has are left out.

    Raises:
        UserError: a change changes nothing in this recipe, cannot be trained, or has other dev
            sentences.
    """
    recipe = composed(settings(args, RECIPE, args.seeds[0]))
    changes = [RECIPE]
    for change in dict.fromkeys(args.changes or CHANGES):
        config = composed(settings(args, change, args.seeds[0]))
        if config == recipe:
            if args.changes:
                raise UserError(
                    f"--change {change!r} changes nothing: {args.recipe} already has it"
                )
            tell(f"leaving out {change}: {args.recipe} already has it")
            continue
        if config["data"] != recipe["data"] and dev(config) != dev(recipe):
            raise UserError(
                f"--change {change!r} also changes the dev sentences, so scores would not be "
                "comparable: choose another"
            )
        changes.append(change)
    return changes


def dev(config: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The dev sentences of a corpus and their references."""
    corpus = prepare(*read_nodes(config["data"], config["tokenizer"]), cache=Path(config["cache"]))
    sources, references = (list(in_order(corpus.dev, name)) for name in ("source", "references"))
    return sources, references


def is_of_training(change: str) -> bool:
    """Whether it needs a model of its own; a search is chosen for the recipe's."""
    keys = (override.partition("=")[0] for override in shlex.split(change))
    return any(key.partition(".")[0] != "search" for key in keys)


def folder(output: Path, change: str, seed: int) -> Path:
    """The run of a change of training; of the recipe, where only the search changes."""
    name = change if is_of_training(change) else RECIPE
    return output / f"{name.replace('/', '_').replace(' ', '_')}-seed={seed}"


def settings(args: argparse.Namespace, change: str, seed: int) -> list[str]:
    overrides = [] if change == RECIPE else shlex.split(change)
    return [f"experiment={args.recipe}", *args.overrides, *overrides, f"seed={seed}"]


def translated(output: Path, change: str, seed: int) -> Stored:
    """The dev sentences, translated by the model of this change and by its search."""
    run = folder(output, change, seed)
    if is_of_training(change):
        return evaluated(run, "dev", "data.split=dev")
    search = shlex.split(change)
    own = run / "evaluation" / "_".join(search).replace("/", "_")
    return evaluated(run, "dev", "data.split=dev", *search, output=own)


def judged(
    output: Path, seeds: Sequence[int], translations: Mapping[str, Sequence[Stored]]
) -> list[Row]:
    """A row for the recipe and each change."""
    scores = {
        change: {
            metric: [one.figures[metric]["score"] for one in stored] for metric in ("bleu", "chrf")
        }
        for change, stored in translations.items()
    }
    chances = by_sentences(output, seeds[0], translations) if len(seeds) == 1 else by_seeds(scores)
    adjusted = dict(zip(chances, holm(list(chances.values())), strict=True))
    base = fmean(scores[RECIPE]["bleu"])
    return [
        Row(
            change=change,
            parameters=parameters(folder(output, change, seeds[0])),
            gain=None if change == RECIPE else fmean(each["bleu"]) - base,
            p=chances.get(change),
            p_holm=adjusted.get(change),
            **each,
        )
        for change, each in scores.items()
    ]


def by_sentences(
    output: Path, seed: int, translations: Mapping[str, Sequence[Stored]]
) -> dict[str, float]:
    """The larger p-value of the two tests over one model's sentences, by change."""
    config = yaml.safe_load((folder(output, RECIPE, seed) / "config.yaml").read_text("utf-8"))
    options = CompareOptions.model_fields
    _, references = dev(config)
    tested = differences(
        {change: one.hypotheses for change, (one,) in translations.items()},
        references,
        tokenize=translations[RECIPE][0].tokenize,
        **{key: options[key].default for key in ("resamples", "trials", "seed")},
    )
    return {change: metrics["bleu"].p for change, metrics in tested.items()}


def by_seeds(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Welch's p-value over the seeds, by change; none where no seed deviates."""
    chances = {
        change: welch(scores[RECIPE]["bleu"], each["bleu"]).p for change, each in scores.items()
    }
    return {change: p for change, p in chances.items() if change != RECIPE and not math.isnan(p)}


def parameters(run: Path) -> int:
    return sum(weight.numel() for weight in bundle.load(bundle.find(run)).model.parameters())


def table(rows: Sequence[Row]) -> str:
    """In Markdown; what is more than chance among so many is bold."""
    lines = [
        "| change | parameters | dev BLEU | difference | p | chrF |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        gain, p = ("" if row.gain is None else f"{row.gain:+.2f}"), ""
        if row.p is not None and row.p_holm is not None:
            p = f"{row.p:.3f}" if row.p >= 0.001 else "< 0.001"
            gain = f"**{gain}**" if row.p_holm < SURE else gain
        name = row.change if row.gain is None else f"`{row.change}`"
        cells = [name, f"{row.parameters:,}", mean(row.bleu), gain, p, mean(row.chrf)]
        lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def mean(scores: Sequence[float]) -> str:
    """With the deviation, where there are several."""
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.2f}{spread}"


if __name__ == "__main__":
    begin(main)
