"""Several runs by one command: what each returns, and a search that goes by it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from translate.cli.arguments import Job, split
from translate.cli.composing import launch, swept_keys
from translate.cli.main import COMMANDS
from translate.cli.train import check, folder
from translate.errors import JobFailedError, UsageError, UserError

SEARCH = ["data=toy", "run=r", "--multirun", "hydra/sweeper=dev_bleu", "hydra.sweeper.n_trials=6"]
# Optuna 2, which Hydra's plugin asks for, is older than the SQLAlchemy below it and warns of itself
OPTUNA_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
DROPOUT = "model.dropout=interval(0.0,0.8)"


def trials(*arguments: str, fails: float = 1.0) -> list[tuple[float, str]]:
    """The dropout and the folder of each trial, where the best dropout is 0.5."""
    seen: list[tuple[float, str]] = []

    def job(job: Job) -> float:
        dropout = job.config["model"]["dropout"]
        seen.append((dropout, str(folder(job))))
        if dropout > fails:
            raise UserError(f"diverged at {dropout}")
        return -abs(dropout - 0.5)

    launch(COMMANDS["train"], split(COMMANDS["train"].syntax(), arguments), job)
    return seen


@OPTUNA_WARNS
def test_optuna_looks_for_the_best_the_same_way_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    with caplog.at_level("INFO"):
        found = trials(*SEARCH, DROPOUT)
    best = max((-abs(dropout - 0.5), dropout) for dropout, _ in found)[1]
    assert f"Best parameters: {{'model.dropout': {best}}}" in caplog.text
    assert len({name for _, name in found}) == 6
    assert all(name == f"r-model.dropout={dropout}" for dropout, name in found)
    assert trials(*SEARCH, DROPOUT) == found


def test_what_a_sweeper_varies_by_itself_names_the_folders_too() -> None:
    def swept(*given: str, by: list[str]) -> set[str]:
        return swept_keys(split(COMMANDS["train"].syntax(), ["--multirun", *given]), by)

    assert swept("data=toy", by=["data=toy", "model.dropout=0.1"]) == {"model.dropout"}
    assert swept("data=toy", "seed=1,2", by=["data=toy", "seed=1"]) == {"seed"}
    assert swept("data=toy", "seed=1", by=["data=toy", "seed=1"]) == set()


def test_the_job_that_cannot_be_composed_is_told_with_its_key(program) -> None:
    swept = ["--multirun", "data=toy", "model=transformer,rnn_luong", "model.d_model=64"]
    done = program("train", *swept, "run=r")
    assert done.status == 2
    assert "with model=rnn_luong: model.d_model is not a key of this" in done.err


@pytest.mark.parametrize(
    "setting", ["hydra/sweeper=dev_bleu", "hydra.sweeper.n_trials=6", "hydra.mode=MULTIRUN"]
)
def test_a_setting_of_sweeps_is_refused_where_there_is_none(setting: str) -> None:
    with pytest.raises(UsageError, match=f"{setting} only applies to several runs: add --multirun"):
        trials("data=toy", "run=r", setting)


@OPTUNA_WARNS
def test_a_search_goes_on_after_a_trial_that_failed() -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    found = trials(*SEARCH, DROPOUT, fails=0.5)
    assert len(found) == 6
    assert any(dropout > 0.5 for dropout, _ in found)
    with pytest.raises(JobFailedError) as stopped:
        trials(*SEARCH, DROPOUT, "hydra.sweeper.max_failure_rate=0.0", fails=0.0)
    assert str(stopped.value.__cause__).startswith("diverged at 0.")
    with pytest.raises(JobFailedError) as stopped:  # of none there is no best
        trials(*SEARCH, DROPOUT, fails=0.0)
    assert str(stopped.value.__cause__).startswith("diverged at 0.")


def test_the_other_runs_of_a_sweep_are_trained_before_a_failure_is_told() -> None:
    seen: list[int] = []

    def job(job: Job) -> None:
        seen.append(job.config["seed"])
        if job.config["seed"] == 1:
            raise UserError("this one failed")

    with pytest.raises(JobFailedError) as failed:
        launch(
            COMMANDS["train"],
            split(COMMANDS["train"].syntax(), ["data=toy", "-m", "seed=1,2"]),
            job,
        )
    assert (seen, str(failed.value.__cause__)) == ([1, 2], "this one failed")


def test_a_sweep_with_a_wrong_job_begins_none() -> None:
    command, begun = COMMANDS["train"], list[Job]()
    sweep = ["data=toy", "-m", "model.num_heads=4,3,8", "model.norm=pre,wrong"]  # d_model 256
    with pytest.raises(UsageError) as wrong:
        launch(command, split(command.syntax(), sweep), begun.append, check=check)
    assert not begun
    lines = str(wrong.value).splitlines()
    assert "  with model.num_heads=4 model.norm=wrong: model.norm = 'wrong': must be" in lines[1]
    assert lines[2].startswith(
        "  with model.num_heads=3 model.norm=pre: d_model 256 is not divisible by 3 heads"
    )
    assert len(lines) == 3


def test_a_search_asks_for_what_it_needs(program, monkeypatch: pytest.MonkeyPatch) -> None:
    search = ["train", "data=toy", "hydra/sweeper=dev_bleu", DROPOUT]
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    done = program(*search)
    assert (done.status, done.err.count("\n")) == (2, 1)
    told = "hydra/sweeper=dev_bleu only applies to several runs: add --multirun, or leave it out"
    assert told in done.err
    done = program(*search, "--multirun", "model.droupot=0.1")
    assert done.status == 2
    assert "model.droupot is not a key; did you mean model.dropout?" in done.err
    done = program("train", "data=toy", "hydra/sweeper=optuna", DROPOUT, "--multirun")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "would look for the lowest score: write hydra/sweeper=dev_bleu" in done.err
    monkeypatch.setattr("translate.cli.train.find_spec", lambda name: None)
    done = program(*search, "--multirun")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert re.search("needs Optuna: .* -m pip install 'hydra-optuna-sweeper>=", done.err)


def test_a_sweep_does_not_train_again_what_is_finished(program, tmp_path: Path) -> None:
    """With its own configuration; under another the folder is somebody else's."""
    small = ["data=toy", "data.train=300", "data.dev=20", "data.test=20", "-m"]
    sweep = [*small, "seed=7,7", "run=r"]
    configs: list[Any] = []
    launch(
        COMMANDS["train"],
        split(COMMANDS["train"].syntax(), [*small, "seed=7"]),
        lambda job: configs.append(job.config),
    )
    run = tmp_path / "r-seed=7"
    run.mkdir()
    config = {key: value for key, value in configs[0].items() if key != "experiment"}
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    record = {"status": "finished", "steps": 10, "dev_bleu": 12.34}
    (run / "provenance.json").write_text(json.dumps(record), encoding="utf-8")
    done = program("train", *sweep)
    assert done.status == 0, done.err
    assert done.err.count("r-seed=7 is already finished: best dev BLEU 12.34") == 2
    done = program("train", *sweep, "model.dropout=0.4")
    assert done.status == 1
    assert "was started with another configuration (model.dropout: 0.1 → 0.4)" in done.err


def test_a_bundle_in_a_run_stands_for_the_run(
    program, run: str, trained: Path, tmp_path: Path
) -> None:
    """The next bundle would take away what is written into this one."""
    Path("bundled").write_text("der Hund\n", encoding="utf-8")
    files = ["input=bundled", "reference=bundled", "resamples=2"]
    assert program("evaluate", f"{run}/bundle", *files).status == 0
    assert (trained / "evaluation" / "bundled.json").is_file()
    assert not (trained / "bundle" / "evaluation").exists()
    shutil.copytree(trained / "bundle", tmp_path / "alone" / "bundle")  # and no run around it
    assert program("evaluate", "run=alone/bundle", *files).status == 0
    assert (tmp_path / "alone" / "bundle" / "evaluation" / "bundled.json").is_file()
