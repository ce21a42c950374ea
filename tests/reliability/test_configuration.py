"""Each key of each option: another type, a value out of range and a slip in its name are found."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from translate.cli.arguments import Job, split
from translate.cli.composing import launch
from translate.cli.main import COMMANDS
from translate.compose import groups, options
from translate.nodes import group_problems
from translate.training.settings import training_problems
from translate.wording import nearest

CHOICES = [f"{g}={o}" for g in groups() if g != "experiment" for o in options(g)]
ALIKE = ("data=bible_", "data=multi30k_")  # corpora with the keys of another one
GIVEN = {
    "data=files": ["data.source=de", "data.target=en"],
    "data=hub": ["data.source=de", "data.target=en"],
    "data=tsv": ["data.source=de", "data.target=en", "data.train=x"],
    "data=pypi": ["data.source=de", "data.target=en", "data.name=x", "data.version=1.0.0",
                  f"data.sha256={'0' * 64}", "data.member=x", "data.columns={de: 1, en: 2}"],
    "data=jsonl": ["data.source=de", "data.target=en", "data.train=x"],
    "data=csv": ["data.source=de", "data.target=en", "data.train=x"],
    "data=tmx": ["data.source=de", "data.target=en", "data.train=x"],
    "data=xliff": ["data.source=de", "data.target=en", "data.train=x"],
    "data=po": ["data.source=de", "data.target=en", "data.train=x"],
    "data=parquet": ["data.source=de", "data.target=en", "data.train=x"],
}  # fmt: skip
FREE = {"columns"}  # mappings whose keys are the corpus's own
# What keys may hold all the same: any text where the default is none, any size where nothing bounds
# it but sense.
TEXT = "data. attribution tag dir alignments id config revision domain dev test query"
UNBOUNDED = """
data.cleaning. length_ratio ratio_slack
data. temperature
guard.again. max_length_ratio coverage_penalty
guard.again.rules. repetition_penalty
guard. length_ratio
model. max_fertility
optimizer. learning_rate eps weight_decay
search.rules. repetition_penalty
search. coverage_penalty diversity_strength temperature
trainer. gradient_clip r_drop
trainer.guided_alignment. weight
trainer.minimum_risk. temperature sharpness
"""


def listed(text: str) -> set[str]:
    """The keys of lines such as `data.cleaning. length_ratio ratio_slack`."""
    lines = (line.split() for line in text.strip().splitlines())
    return {f"{node}{key}" for node, *names in lines for key in names}


MAY: dict[str, list[Any]] = {
    **{key: ["x"] for key in listed(TEXT)},
    **{key: [1e9] for key in listed(UNBOUNDED)},
    "data.attribution": ["", "x"],
    "data.hold_out.dev": [7],  # beside auto, a number of sentences
    "data.hold_out.test": [7],
    "tokenizer.pretrained": ["x"],  # whether there is such a folder, a run that has it may ask
}


@cache
def configuration(choice: str) -> dict[str, Any]:
    jobs: list[Job] = []
    chosen = [choice, *GIVEN.get(choice, [])]
    given = chosen if choice.startswith("data=") else ["data=toy", *chosen]
    command = COMMANDS["train"]
    if choice.startswith("guard="):
        text = COMMANDS["text"]
        arguments = split(text.syntax(), ["run=r", choice, "search=beam"])
        return dict(text.options.values_of(arguments, {})[0])
    launch(command, split(command.syntax(), given), jobs.append)
    return {key: value for key, value in jobs[0].config.items() if key != "experiment"}


def config_problems(config: Mapping[str, Any]) -> list[str]:
    """Of a training's configuration, or of a translation's."""
    return group_problems(config, ["guard"]) if "guard" in config else training_problems(config)


def places(node: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and key not in FREE:
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


def put(config: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    key, *rest = path
    return {**config, key: put(config[key], tuple(rest), value) if rest else value}


def wrong(value: Any) -> list[Any]:
    """Values that no key with this default can take: of other types, and out of any range."""
    found: list[Any] = [[["x"]], {"no": {"such": "key"}}]
    if isinstance(value, bool):
        return [*found, 1, "yes", "true", None]
    if isinstance(value, int | float):
        return [*found, True, "8", math.nan, math.inf, -math.inf, -1, 1e9]
    if isinstance(value, str):
        return [*found, 7, ""]
    return [*found, math.nan, math.inf, True, -1, "x"]


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, marks=pytest.mark.soak if choice.startswith(ALIKE) else ())
        for choice in CHOICES
    ],
)
def test_no_wrong_value_passes(choice: str, figures: Callable[..., None]) -> None:
    config = configuration(choice)
    group = choice.partition("=")[0]
    passed, tried = [], 0
    for path in places({group: config[group]}):
        value = config
        for step in path:
            value = value[step]
        for bad in wrong(value):
            found = config_problems(put(config, path, bad))
            tried += 1
            if bad in MAY.get(".".join(path), []):
                continue
            if not any(line.startswith(".".join(path)) for line in found):
                passed.append((".".join(path), bad))
    figures(f"{choice}: wrong values found", tried - len(passed), tried)
    assert not passed


@pytest.mark.parametrize("choice", ["model=transformer", "model=rnn_none", "model=convolutional"])
def test_a_size_that_no_bundle_may_have_is_refused_before_training(choice: str) -> None:
    """What is trained can be loaded, though a bundle may come from a stranger."""
    config = configuration(choice)
    for key, value in config["model"].items():
        if type(value) is int:
            most = 512 if key.endswith("_layers") else 1 << 20
            found = config_problems(put(config, ("model", key), most + 1))
            assert found == [f"model.{key} = {most + 1}: must be less than or equal to {most}"]


def test_a_second_search_has_the_limits_of_the_first() -> None:
    config = configuration("guard=default")
    for key in ("beam_size", "n_best", "max_length_ratio", "max_length_offset"):
        found = config_problems(put(config, ("guard", "again", key), 1 << 40))
        assert found == [f"guard.again.{key} = {1 << 40}: must be less than or equal to 4096"]


def slips(word: str, generator: random.Random) -> set[str]:
    """Everything one edit away: a letter lost, changed, added, or two of them swapped."""
    letters = string.ascii_lowercase + "_"
    edits = {word[:i] + word[i + 1 :] for i in range(len(word))}
    edits |= {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)}
    edits |= {word[:i] + generator.choice(letters) + word[i + 1 :] for i in range(len(word))}
    edits |= {word[:i] + generator.choice(letters) + word[i:] for i in range(len(word) + 1)}
    return edits - {"", word}


def siblings(node: Mapping[str, Any]) -> Iterator[list[str]]:
    yield list(node)
    for key, value in node.items():
        if isinstance(value, Mapping) and key not in FREE:
            yield from siblings(value)


def test_the_nearest_name_is_suggested_for_slips_of_one_letter(
    figures: Callable[..., None],
) -> None:
    generator = random.Random(4)
    families = {tuple(names) for c in CHOICES for names in siblings(configuration(c))}
    right = tried = 0
    for names in sorted(families):
        for name in names:
            for slip in slips(name, generator) - set(names):
                tried += 1
                right += nearest(slip, names) == f"; did you mean {name}?"
    figures("slips of one letter whose name was suggested", right, tried)
    assert tried > 5_000
    assert right / tried >= 0.95
