"""The ablations: each changes its recipe, is found under its own name, and is tested."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from translate.errors import UserError
from translate.extras.significance import differences


@pytest.mark.soak
def test_every_change_is_one_of_the_recipe_and_can_be_trained(script: ModuleType) -> None:
    changes = script.checked(script.parse([]))
    assert changes == [script.RECIPE, *script.CHANGES]
    folders = {script.folder(Path(), change, 1) for change in changes}
    trained = [change for change in changes if script.is_of_training(change)]
    assert len(folders) == len(trained) < len(changes)


@pytest.mark.parametrize(
    ("change", "refused"), [("data.seed=2", True), ("data.pool_batches=7", False)]
)
def test_a_change_of_the_dev_sentences_is_no_ablation(
    script: ModuleType, tmp_path: Path, change: str, refused: bool
) -> None:
    small = ["data.train=200", "data.dev=10", "data.test=10", f"cache={tmp_path}"]
    given = script.parse(["--recipe", "toy", "--change", change, *small])
    if not refused:
        assert script.checked(given) == [script.RECIPE, change]
        return
    with pytest.raises(UserError, match=r"'data\.seed=2' also changes the dev sentences"):
        script.checked(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.norm=pre", "changes nothing: toy already has it"),
        ("model.num_heads=7", "not divisible by 7 heads"),
    ],
)
def test_a_wrong_change_is_told_before_any_training(
    script: ModuleType, change: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "train", lambda *_: pytest.fail("it trains"))
    with pytest.raises(UserError, match=message):
        script.main(["--recipe", "toy", "--change", "model.norm=post", "--change", change])


def test_a_search_is_tried_with_the_recipe_s_model(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(script, "evaluated", lambda *a, **k: made.append((*a, *k.values())))
    for change in ("search=greedy", "search.alpha=0 search.beam_size=2", "model.norm=post"):
        script.translated(tmp_path, change, 1)
    recipe, post = tmp_path / "the_recipe-seed=1", tmp_path / "model.norm=post-seed=1"
    dev = ("dev", "data.split=dev")
    assert made == [
        (recipe, *dev, "search=greedy", recipe / "evaluation" / "search=greedy"),
        (
            recipe, *dev, "search.alpha=0", "search.beam_size=2",
            recipe / "evaluation" / "search.alpha=0_search.beam_size=2",
        ),
        (post, *dev),
    ]  # fmt: skip


def stored(lines: list[str], bleu: float) -> SimpleNamespace:
    figures = {"bleu": {"score": bleu}, "chrf": {"score": 2 * bleu}}
    return SimpleNamespace(hypotheses=lines, figures=figures, tokenize="13a")


def test_one_seed_is_tested_by_sentences_and_several_by_their_scores(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"a{n} b{n} c{n} d{n} e{n}" for n in range(30)]
    (tmp_path / "the_recipe-seed=1").mkdir()
    config = "{data: {}, tokenizer: {}, cache: there}"
    (tmp_path / "the_recipe-seed=1" / "config.yaml").write_text(config, "utf-8")
    monkeypatch.setattr(script, "dev", lambda config: (lines, [[line] for line in lines]))
    monkeypatch.setattr(script, "parameters", lambda run: 1234)
    fewer = {"resamples": 200, "trials": 500}
    monkeypatch.setattr(script, "differences", lambda *a, **k: differences(*a, **k | fewer))

    worse = ["x", *lines[1:]]
    much_worse = ["x"] * 15 + lines[15:]
    systems = {script.RECIPE: lines, "a=1": worse, "b=1": much_worse}
    one = {change: [stored(text, len(set(text)))] for change, text in systems.items()}
    recipe, chance, real = script.judged(tmp_path, [1], one)
    assert (recipe.gain, recipe.p) == (None, None)
    assert chance.p > 0.05 > real.p
    assert (chance.gain, real.gain) == (0, 16 - 30)

    several = {
        script.RECIPE: [stored(lines, 30.0), stored(lines, 30.2), stored(lines, 29.8)],
        "a=1": [stored(lines, 30.1), stored(lines, 30.3), stored(lines, 29.6)],
        "b=1": [stored(lines, 25.0), stored(lines, 25.2), stored(lines, 24.8)],
    }
    rows = script.judged(tmp_path, [1, 2, 3], several)
    assert rows[1].p > 0.05 > rows[2].p
    assert script.table(rows).splitlines()[2:] == [
        "| the recipe | 1,234 | 30.00 ± 0.20 |  |  | 60.00 ± 0.40 |",
        "| `a=1` | 1,234 | 30.00 ± 0.36 | +0.00 | 1.000 | 60.00 ± 0.72 |",
        "| `b=1` | 1,234 | 25.00 ± 0.20 | **-5.00** | < 0.001 | 50.00 ± 0.40 |",
    ]
    still = {script.RECIPE: [stored(lines, 30.0)] * 2, "a=1": [stored(lines, 25.0)] * 2}
    rows = script.judged(tmp_path, [1, 2], still)
    assert rows[1].p is None, "no seed tells how far others would be"
    assert "| -5.00 |  |" in script.table(rows)


def test_of_many_changes_those_are_bold_that_remain_so_with_adjusted_p_values(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 5 % each, one of twenty changes that are worth nothing would seem worth something."""
    monkeypatch.setattr(script, "parameters", lambda run: 1)
    chances = {f"a={n}": 0.02 for n in range(3)} | {"b=1": 0.001}
    monkeypatch.setattr(script, "by_seeds", lambda scores: chances)
    systems = {name: [stored([], 1.0)] * 2 for name in (script.RECIPE, *chances)}
    rows = script.judged(tmp_path, [1, 2], systems)
    assert [(row.p, row.p_holm) for row in rows[1:]] == [(0.02, 0.06)] * 3 + [(0.001, 0.004)]
    assert ["**" in line for line in script.table(rows).splitlines()[2:]] == [
        False, False, False, False, True,
    ]  # fmt: skip


@pytest.mark.soak
def test_two_models_and_a_search_are_set_side_by_side(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["data.train=300", "data.dev=20", "data.test=20", f"cache={tmp_path / 'data'}"]
    changes = ["--change", "model.norm=post", "--change", "search=greedy"]
    steps = ["trainer.max_steps=2", "trainer.validate_every=2", "trainer.samples=0"]
    arguments = ["--recipe", "toy", *small, *steps, *changes, "--output", str(tmp_path / "out")]
    script.main(arguments)
    first = capsys.readouterr().out
    assert (tmp_path / "out" / "ablations.md").read_text("utf-8") == first
    assert first.count("\n") == 5
    script.main(arguments)  # all of it is there
    again = capsys.readouterr()
    assert again.out == first
    assert "translate train" not in again.err
    assert "translate evaluate" not in again.err
