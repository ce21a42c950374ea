"""The length experiment calls public commands, each once, and never mixes settings."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from translate.cli.arguments import split
from translate.cli.commands import COMMANDS, Job
from translate.cli.compose import launch
from translate.cli.validation import training_problems
from translate.errors import UserError


@pytest.fixture
def experiment(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("experiment_length")


@pytest.fixture
def calls(experiment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(experiment, "translate", lambda *arguments: made.append(arguments))
    return made


def finished(run: Path, *settings: str, status: str = "finished") -> Path:
    run.mkdir()
    record = {"status": status, "command": ["translate", "train", f"run={run}", *settings]}
    (run / "provenance.json").write_text(json.dumps(record))
    return run


def test_a_finished_run_is_not_trained_again(
    experiment: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    settings = ["model=rnn_none", "experiment=toy"]
    experiment.train(finished(tmp_path / "run", *settings), settings)
    assert calls == []


@pytest.mark.parametrize("status", [None, "unfinished"])
def test_a_new_or_stopped_run_is_trained(
    experiment: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path, status: str | None
) -> None:
    run = tmp_path / "run"
    if status:
        finished(run, "model=rnn_none", status=status)
    experiment.train(run, ["model=rnn_none"])
    assert calls == [("train", f"run={run}", "model=rnn_none")]


def test_a_run_of_other_settings_is_refused(
    experiment: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", "model=rnn_none", "seed=1")
    with pytest.raises(UserError, match=r"trained with model=rnn_none seed=1, not .* seed=2"):
        experiment.train(run, ["model=rnn_none", "seed=2"])
    assert calls == []


def test_translations_are_made_once_for_the_same_weights(
    experiment: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    run = finished(tmp_path / "run")
    for folder in ("bundle", "evaluation"):
        (run / folder).mkdir()
    for name in ("config.json", "model.safetensors"):
        (run / "bundle" / name).touch()
    lines = "他在北京\n\nc\u2028d\n".encode()
    (run / "evaluation" / "test.hyp").write_bytes(lines)
    report = run / "evaluation" / "test.json"
    sha256 = {"hypotheses": hashlib.sha256(lines).hexdigest()}
    figures = {"sha256": sha256, "tokenize": "zh", "decoding": {}, "likelihood": None}
    report.write_text(json.dumps(figures), "utf-8")
    test = experiment.Sentences(
        "test", ["a", "", "c"], [["他在北京"], ["x"], ["d"]], ("data.split=test",)
    )
    assert experiment.translated(run, test).hypotheses == ["他在北京", "", "c\u2028d"]
    (bucket,) = experiment.score(run, [test], [10])
    assert bucket.bleu > 50, "BLEU counts as the run's evaluation does"
    assert calls == []
    os.utime(report, (0, 0))  # the weights are newer
    experiment.translated(run, test)
    assert calls == [("evaluate", f"run={run}", "data.split=test")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "rnn_non"], "no model rnn_non: choose from .*rnn_none"),
        (["--positions", "sinusoid"], "no positions sinusoid: choose from .*sinusoidal"),
        (["--positions", "rotary", "data=files"], "--positions needs .* the toy grammar"),
        (["--models", ""], "nothing to train"),
        (["--edges", "5,x"], "'5,x' are no whole numbers"),
        (["--edges", "20,10"], r"--edges: length bucket edges \[20, 10\] do not rise"),
    ],
)
def test_wrong_arguments_are_told_before_any_training(
    experiment: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
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
