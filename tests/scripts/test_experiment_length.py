"""The length experiment calls public commands, each once, and never mixes settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from translate.errors import UserError


def test_bleu_counts_as_the_evaluation_of_the_run_does(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = SimpleNamespace(hypotheses=["他在北京", "", "c"], tokenize="zh")
    monkeypatch.setattr(script, "evaluated", lambda *_: stored)
    test = script.Sentences("test", ["a", "", "c"], [["他在北京"], ["x"], ["d"]], ())
    (bucket,) = script.score(tmp_path, [test], [10])
    assert bucket.bleu > 50


def test_a_table_has_a_row_a_model_and_a_column_a_length(script: ModuleType) -> None:
    sources = ["one two", "one two three four"]
    perfect = [["a b c d e"], ["f g h i j"]]
    scores = {
        "good": script.by_source_length(sources, ["a b c d e", "f g h i j"], perfect, [3, 10]),
        "bad": script.by_source_length(sources, ["", ""], perfect, [3, 10]),
        "brief": script.by_source_length(sources, ["a", "f g h i j"], perfect, [3, 10]),
    }
    assert script.table(scores).splitlines() == [
        "| source words | 0–3 | 4–10 |",
        "| --- | ---: | ---: |",
        "| sentences | 1 | 1 |",
        "| good | 100.0 | 100.0 |",
        "| bad | 0.0 | 0.0 |",
        "| brief | – | 100.0 |",
    ]


def test_nothing_is_lost_where_no_length_has_enough_sentences(
    script: ModuleType, tmp_path: Path
) -> None:
    buckets = script.by_source_length(["a b"], ["c"], [["c"]], [10])
    with pytest.raises(UserError, match=r"no length has 2 sentences, .*length.md and .json"):
        script.write(tmp_path / "length", {"good": buckets}, fewest=2)
    assert (tmp_path / "length.md").exists()
    assert json.loads((tmp_path / "length.json").read_text())["good"][0]["items"] == 1


def check(settings: list[str]) -> Mapping[str, Any]:
    composed = import_module("options").composed  # on the path since the script was loaded
    return dict(composed(settings))


@pytest.mark.parametrize(
    ("recipes", "corpus", "longest"), [("toy", "toy", 40), ("multi30k", "hub", None)]
)
def test_every_model_has_its_recipe(
    script: ModuleType, recipes: str, corpus: str, longest: int | None
) -> None:
    for model in script.RECIPES:
        settings = script.settings(model, script.parse(["--recipes", recipes]))
        assert f"experiment={recipes}{script.RECIPES[model]}" in settings
        config = check(settings)
        assert config["data"]["kind"] == corpus
        assert config["data"].get("max_words") == longest
        assert config["schedule"]["kind"] == "linear"  # of the recipes, no default


def test_a_recipe_is_for_another_corpus_too(script: ModuleType) -> None:
    def settings(*arguments: str) -> Mapping[str, Any]:
        return check(script.settings("rnn_none", script.parse(arguments)))

    config = settings("--recipes", "multi30k", "data=bible_de_en")
    assert (config["data"]["kind"], config["schedule"]["kind"]) == ("pypi", "linear")
    assert settings("data=bible_de_en")["model"]["dropout"] != config["model"]["dropout"]


def test_the_transformer_is_not_trained_twice_for_its_own_positions(script: ModuleType) -> None:
    given = script.parse([])
    plain = script.settings("transformer", given)
    assert check(plain)["model"]["positions"] == script.RECIPE_POSITIONS
    assert script.settings("transformer", given, script.RECIPE_POSITIONS) == plain
    assert script.folder_of(script.RECIPE_POSITIONS) == "transformer"
    other = check(script.settings("transformer", given, "alibi"))
    assert other["model"]["positions"] == "alibi"
    assert script.folder_of("alibi") == "transformer-alibi"
