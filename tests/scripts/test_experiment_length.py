"""The length experiment calls public commands, each once, and never mixes settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from translate.cli.arguments import Job, split
from translate.cli.commands import COMMANDS
from translate.cli.composing import launch
from translate.errors import UserError
from translate.training.settings import training_problems


@pytest.fixture
def experiment(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("experiment_length")


def test_bleu_counts_as_the_evaluation_of_the_run_does(
    experiment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = SimpleNamespace(hypotheses=["他在北京", "", "c"], tokenize="zh")
    monkeypatch.setattr(experiment, "evaluated", lambda *_: stored)
    test = experiment.Sentences("test", ["a", "", "c"], [["他在北京"], ["x"], ["d"]], ())
    (bucket,) = experiment.score(tmp_path, [test], [10])
    assert bucket.bleu > 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "rnn_non"], "no model rnn_non: choose from .*rnn_none"),
        (["--positions", "sinusoid"], "no positions sinusoid: choose from .*sinusoidal"),
        (["--positions", "rotary", "data=files"], "--positions needs .* the toy grammar"),
        (["--models", ""], "nothing to train"),
        (["--recipes", "toy", "experiment=toy_rnn"], "give only one of the two"),
        (["--edges", "5,x"], "'5,x' must be whole numbers"),
        (["--edges", "20,10"], r"--edges: length bucket edges \[20, 10\] do not rise"),
    ],
)
def test_wrong_arguments_are_told_before_any_training(
    experiment: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        experiment.parse(arguments)
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_a_table_has_a_row_a_model_and_a_column_a_length(experiment: ModuleType) -> None:
    sources = ["one two", "one two three four"]
    perfect = [["a b c d e"], ["f g h i j"]]
    scores = {
        "good": experiment.by_source_length(sources, ["a b c d e", "f g h i j"], perfect, [3, 10]),
        "bad": experiment.by_source_length(sources, ["", ""], perfect, [3, 10]),
        "brief": experiment.by_source_length(sources, ["a", "f g h i j"], perfect, [3, 10]),
    }
    assert experiment.table(scores).splitlines() == [
        "| source words | 0–3 | 4–10 |",
        "| --- | ---: | ---: |",
        "| sentences | 1 | 1 |",
        "| good | 100.0 | 100.0 |",
        "| bad | 0.0 | 0.0 |",
        "| brief | – | 100.0 |",
    ]


def test_nothing_is_lost_where_no_length_has_enough_sentences(
    experiment: ModuleType, tmp_path: Path
) -> None:
    buckets = experiment.by_source_length(["a b"], ["c"], [["c"]], [10])
    with pytest.raises(UserError, match=r"no length has 2 sentences, .*length.md and .json"):
        experiment.write(tmp_path / "length", {"good": buckets}, fewest=2)
    assert (tmp_path / "length.md").exists()
    assert json.loads((tmp_path / "length.json").read_text())["good"][0]["items"] == 1


def check(settings: list[str]) -> Mapping[str, Any]:
    jobs: list[Job] = []
    launch(COMMANDS["train"], split(COMMANDS["train"], settings), jobs.append)
    assert training_problems(jobs[0].config) == []
    return jobs[0].config


@pytest.mark.parametrize(
    ("recipes", "corpus", "longest"), [("toy", "toy", 40), ("multi30k", "hub", None)]
)
def test_every_model_has_its_recipe(
    experiment: ModuleType, recipes: str, corpus: str, longest: int | None
) -> None:
    for model in experiment.RECIPES:
        settings = experiment.settings(model, experiment.parse(["--recipes", recipes]))
        assert f"experiment={recipes}{experiment.RECIPES[model]}" in settings
        config = check(settings)
        assert config["data"]["kind"] == corpus
        assert config["data"].get("max_words") == longest
        assert config["schedule"]["kind"] == "linear"  # of the recipes, no default


def test_a_recipe_is_for_another_corpus_too(experiment: ModuleType) -> None:
    def settings(*arguments: str) -> Mapping[str, Any]:
        return check(experiment.settings("rnn_none", experiment.parse(arguments)))

    config = settings("--recipes", "multi30k", "data=bible_de_en")
    assert (config["data"]["kind"], config["schedule"]["kind"]) == ("pypi", "linear")
    assert settings("data=bible_de_en")["model"]["dropout"] != config["model"]["dropout"]


def test_the_transformer_is_not_trained_twice_for_its_own_positions(experiment: ModuleType) -> None:
    given = experiment.parse([])
    plain = experiment.settings("transformer", given)
    assert check(plain)["model"]["positions"] == experiment.RECIPE_POSITIONS
    assert experiment.settings("transformer", given, experiment.RECIPE_POSITIONS) == plain
    assert experiment.folder_of(experiment.RECIPE_POSITIONS) == "transformer"
    other = check(experiment.settings("transformer", given, "alibi"))
    assert other["model"]["positions"] == "alibi"
    assert experiment.folder_of("alibi") == "transformer-alibi"


def test_lengths_without_a_bleu_are_not_drawn(
    experiment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, list[tuple[float, float]]]] = []
    monkeypatch.setattr(experiment, "bleu_by_length", lambda lines, *_, **__: drawn.append(lines))
    buckets = experiment.by_source_length(["a", "a b"], ["c", "c d e f"], [["c"], ["c d e f"]], [1])
    experiment.write(tmp_path / "length", {"good": buckets}, fewest=1)
    assert drawn[0] == {"good": [(2, pytest.approx(100))]}
