"""Every option composes and is valid; every slip is found before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from pydantic import TypeAdapter

from translate.cli.arguments import Job, split
from translate.cli.composing import launch
from translate.cli.main import COMMANDS
from translate.compose import config_dir, groups, key_of, node_of, options, yaml_value
from translate.config import Node, OnlyWith
from translate.errors import UsageError, UserError
from translate.nodes import (
    NODES,
    fields_of,
    group_problems,
    node_class,
    without_effect,
)
from translate.training.settings import training_problems

CHOICES = [f"{group}={option}" for group in groups() for option in options(group)]


ASKING = [
    "data=files",
    "data=tsv",
    "data=csv",
    "data=parquet",
    "data=tmx",
    "data=xliff",
    "data=po",
    "data=jsonl",
    "data=hub",
    "data=pypi",
    "experiment=bahdanau2015",
    "experiment=luong2015",
    "experiment=vaswani2017_base",
    "experiment=vaswani2017_big",
]  # where the text is, nobody else knows


def composed(*arguments: str, command: str = "train") -> list[Job]:
    """The jobs that a command line comes to."""
    jobs: list[Job] = []
    launch(COMMANDS[command], split(COMMANDS[command].syntax(), arguments), jobs.append)
    return jobs


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    (job,) = composed("data=toy")
    return dict(job.config)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_option_is_valid(choice: str) -> None:
    """Keys that only a person can fill in (`data.dir=`) are asked for by name."""
    group, option = choice.split("=")
    assert 10 < len(options(group)[option]) < 200, "it describes itself in a line"
    if choice in ASKING:
        with pytest.raises(UsageError, match=r" is missing: write data\."):
            composed(choice)
        return
    if choice.startswith("guard="):
        text = COMMANDS["text"]
        arguments = split(text.syntax(), ["run=r", choice, "search=beam"])
        values, wrong = text.options.values_of(arguments, {})
        assert wrong == group_problems(values, ["guard"]) == []
        return
    (job,) = composed(choice)
    assert training_problems(job.config) == []


@pytest.mark.parametrize("model", ["transformer", "rnn_luong", "convolutional"])
def test_r_drop_without_dropout_is_refused(model: str) -> None:
    def problems(*changes: str) -> list[str]:
        (job,) = composed("data=toy", f"model={model}", "trainer.r_drop=5.0", *changes)
        return training_problems(job.config)

    (job,) = composed("data=toy", f"model={model}")
    none = [f"model.{key}=0.0" for key in job.config["model"] if key.endswith("dropout")]
    (problem,) = problems(*none)
    assert problem.startswith("trainer.r_drop = 5.0 compares two passes")
    for name in ("model.dropout", "trainer.word_dropout"):
        assert problems(*none, f"{name}=0.1") == []


def nodes(config: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (group, key)
        for group, node in sorted(config.items())
        if isinstance(node, dict)
        for key in node
    ]


def test_every_misspelt_key_is_found_in_every_node(default) -> None:
    assert len(nodes(default)) > 60
    for group, key in nodes(default):
        changed = {name: value for name, value in default[group].items() if name != key}
        changed[f"{key}x"] = default[group][key]
        found = "\n".join(training_problems({**default, group: changed}))
        if key in ("kind", "family"):
            assert f"{group}.{key}" in found
        else:
            assert f"{group}.{key}x is not a key; did you mean {group}." in found
            # a search without rules forbids nothing; no run had the others before they were keys
            later = {("search", "rules"), ("tokenizer", "pretrained"), ("data", "modifiers"),
                     ("data", "short")}  # fmt: skip
            whole = (group, key) in later
            assert whole or f"{group}.{key} is missing" in found


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("model.d_modle=3", "model.d_modle is not a key; did you mean model.d_model?"),
        ("modle=rnn_none", "modle is not a key; did you mean model?"),
        ("model=transformr", "model=transformr: no such option; did you mean transformer?"),
        ("sed=3", "sed is not a key; did you mean seed?"),
        ("rum=runs/x", "rum is not a key; did you mean run?"),
        ("max_steps=3", "max_steps is not a key; did you mean trainer.max_steps?"),
        ("search=null", "search=null: no such option; choose from beam, "),
        (
            "model.attention_size=3",
            "model.attention_size is not a key of this model, but one of "
            "model=rnn_bahdanau or rnn_luong or rnn_none",
        ),
        (
            "data.extra.back.weight=2",
            "data.extra.back.weight is not a key: data.extra holds none; give it whole, as "
            "data.extra=VALUE",
        ),
        (
            "batch_size=9",
            "batch_size is another toolkit's name: write data.tokens_per_batch=TOKENS",
        ),
        ("trainer.gpus=2", "trainer.gpus is another toolkit's name: write trainer.devices=DEVICES"),
        ("trainer.fp16=true", "write trainer.precision=16-mixed"),
        ("training.max-epoch=3", "another toolkit's name: write trainer.max_epochs=EPOCHS"),
        ("lr=0.1", "lr is another toolkit's name: write optimizer.learning_rate=RATE"),
        ("beam_siz=3", "beam_siz is not a key; did you mean search.beam_size?"),
        ("dropout=0", "did you mean tokenizer.sampling.dropout or model.dropout?"),
        ("seed=[", "seed=[: cannot be read"),
        ("search.rules.banned=[a", """: 'search.rules.banned=["…", "…"]'"""),
        ("seed=4294967296", "seed = 4294967296: must be less than 4294967296"),
        ("seed=1,2", "several values need --multirun (a list is written seed=[1,2])"),
        ("model=rnn_none,rnn_luong", "need --multirun; without it, choose one: model=rnn_none\n"),
        ("seed=${nothing}", "nothing"),
    ],
)
def test_a_wrong_setting_is_told_in_a_line(program, override, line) -> None:
    done = program("train", override)
    assert done.status == 2
    assert done.out == ""
    assert line in done.err
    assert done.err.count("\n") == 1


def test_an_experiment_with_the_model_of_another_is_told_as_such(program) -> None:
    line = (
        "experiment=toy is for model=transformer, and model=rnn_luong has no model.d_model, "
        "model.d_ff, model.positions: choose another experiment, or leave out model=\n"
    )
    done = program("train", "experiment=toy", "model=rnn_luong", "run=run")
    assert (done.status, done.err) == (2, f"translate: error: {line}")
    slipped = program("train", "experiment=toy", "model=rnn_luong", "model.dropout=2", "sed=3")
    assert slipped.err == (
        f"translate: error: 3 problems\n  sed is not a key; did you mean seed?\n  {line}"
        "  model.dropout = 2: must be less than 1\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["search=[greedy,beam]"],
        ["model=[transformer]", "-c", "job"],
        ["--multirun", "model=rnn_none,[rnn_none,rnn_luong]"],
    ],
    ids=str,
)
def test_a_list_of_options_is_not_merged_in_silence(arguments: list[str]) -> None:
    told = r"]: choose one option, not a list: (\S+)=OPTION, or \1=A,B with --multirun"
    with pytest.raises(UserError, match=told):
        composed(*arguments)


def test_what_a_sweep_cannot_be_taken_apart_into_is_left_to_hydra(program) -> None:
    (job,) = composed("--multirun", "model=glob(rnn_l*)", "data=toy")
    assert job.choices["model"] == "rnn_luong"
    assert "seed=[: cannot be read" in program("train", "--multirun", "seed=[").err


def test_wrong_names_wrong_values_and_what_is_missing_are_told_at_once(program) -> None:
    slips = ["model.d_modle=3", "optimizer.beta1=2", "seed=-1", "trainer.savings=1", "data=files"]
    done = program("train", *slips)
    assert done.status == 2
    assert done.err.startswith("translate: error: 6 problems\n")
    for line in (
        "model.d_modle is not a key", "optimizer.beta1 = 2: must be less than 1",
        "seed = -1: must be greater than or equal to 0", "trainer.savings is not a key",
        "data.source is missing: write data.source=VALUE", "data.target is missing",
    ):  # fmt: skip
        assert line in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["search=diverse", "search.beam_size=5"], "multiple of search.groups = 3"),
        (["data.target=de"], "data.target = 'de': must be another language than data.source"),
        (["model.d_model=10", "model.num_heads=4"], "(model.d_model, model.num_heads)"),
        (["model=rnn_none", "trainer.compile=true"], "model.family=rnn reads word by word"),
        (["tokenizer=word", "tokenizer.joint=false"], "set model.tied_embeddings=decoder or"),
        (["trainer.max_steps=null"], "trainer: has no end: set max_steps or max_epochs"),
        (["trainer.devices=0"], "trainer.devices = 0: must be greater than 0 or 'auto'"),
        (["cache="], "cache = ''"),
    ],
)
def test_a_combination_that_cannot_be_is_refused_before_a_run_is_begun(
    program, tmp_path: Path, arguments: list[str], told: str
) -> None:
    done = program("train", "data=toy", "run=r", *arguments)
    assert done.status == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "option", ["search=greedy", "search=sample", "schedule=plateau", "optimizer=sgd"]
)
def test_an_option_beside_an_experiment_takes_the_place_of_its_keys(program, option: str) -> None:
    """What the experiment sets for another one is left out, and a slip is still a slip."""
    done = program("train", "experiment=multi30k", option, "trainer.max_steps=0", "run=r")
    assert done.status == 2
    told, error = done.err.splitlines()
    assert told.startswith("left out, since the experiment sets it for another option: ")
    assert error == "translate: error: trainer.max_steps = 0: must be greater than 0"
    if option == "search=greedy":
        done = program("train", "experiment=multi30k", option, "search.alpha=1", "run=r")
        assert "search.alpha is not a key" in done.err


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (["optimizer=sgd"], 1.0),
        (["optimizer=sgd", "optimizer.learning_rate=0.5"], 0.5),
        (["optimizer=adamw"], 3e-3),
    ],
)
def test_a_learning_rate_is_for_the_optimizer_of_its_experiment(
    program, monkeypatch: pytest.MonkeyPatch, given: list[str], rate: float
) -> None:
    rates: list[float] = []

    def train(config: dict[str, Any], run: Path, init: str | None) -> float:
        rates.append(config["optimizer"]["learning_rate"])
        return 0.0

    monkeypatch.setattr("translate.training.run.train", train)
    assert program("train", "experiment=multi30k_rnn", *given, "run=r").status == 0
    assert rates == [rate]


def test_an_option_beside_a_run_under_way_leaves_the_rest_as_it_was(
    program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[dict[str, Any]] = []

    def train(config: dict[str, Any], run: Path, init: str | None) -> float:
        configs.append(config)
        run.mkdir(exist_ok=True)
        (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        return 0.0

    monkeypatch.setattr("translate.training.run.train", train)
    first = program("train", "data=toy", "data.train=50", "model=rnn_none", "seed=7", "run=r")
    folder = '/tmp/${oc.env:HOME} "x" ü\\'  # of a stranger, to be obeyed in nothing
    (tmp_path / "r" / "config.yaml").write_text(yaml.safe_dump(configs[0] | {"cache": folder}))
    again = program("train", "run=r", "schedule=plateau", "trainer.max_steps=9")
    assert (first.status, again.status) == (0, 0), again.err
    assert "other settings from r/config.yaml" in again.err
    before, after = configs
    assert after["schedule"]["kind"] == "plateau"
    assert after["trainer"] == before["trainer"] | {"max_steps": 9}
    assert after["cache"] == folder
    kept = ("data", "tokenizer", "model", "optimizer", "search", "seed")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ([], (None, 7)),
        (["trainer.max_steps=9"], (9, None)),
        (["trainer.max_steps=9", "trainer.max_epochs=2"], (9, 2)),
        (["trainer.max_epochs=null"], (10_000, None)),
    ],
)
def test_epochs_of_an_experiment_take_the_place_of_the_default_steps(
    program, tmp_path: Path, given: list[str], ends: tuple[int | None, int | None]
) -> None:
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    text = "# @package _global_\ntrainer:\n  max_epochs: 7\n"
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    options = ["--config-dir", str(tmp_path / "own"), "data=toy", "experiment=mine", "-c", "job"]
    trainer = yaml.safe_load(program("train", *options, *given).out)["trainer"]
    assert (trainer["max_steps"], trainer["max_epochs"]) == ends


def test_a_configuration_is_shown_as_it_would_run_with_what_is_wrong_in_it(program) -> None:
    done = program("train", "experiment=toy_rnn", "optimizer=sgd", "trainer.max_epochs=4", "-c=job")
    shown = yaml.safe_load(done.out)
    assert done.status == 0
    assert shown["optimizer"] == {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0}
    assert (shown["trainer"]["max_steps"], shown["trainer"]["max_epochs"]) == (None, 4)
    wrong = program("train", "data=files", "model.dropout=2", "--cfg", "job")
    assert wrong.status == 2
    assert yaml.safe_load(wrong.out)["model"]["dropout"] == 2
    assert "model.dropout = 2: must be less than" in wrong.err
    assert "data.source is missing: write data.source=VALUE" in wrong.err


def test_an_experiment_that_sets_nothing_is_refused(program, tmp_path: Path) -> None:
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("data:\n  train: 5\n", encoding="utf-8")
    options = ["--config-dir", str(tmp_path / "own"), "data=toy", "run=r"]
    done = program("train", *options, "experiment=mine")
    assert done.status == 2
    assert (
        "experiment.data is not a key: begin the experiment's file with the line `# @package"
        in (done.err)
    )
    (folder / "mine.yaml").write_text("# @package _global_\ndata:\n  train: -5\n", encoding="utf-8")
    assert "data.train = -5" in program("train", *options, "experiment=mine").err
    missing = program("train", "--config-dir", "nowhere", "experiment=mine")
    assert missing.err == "translate: error: --config-dir nowhere: there is no such folder\n"


def test_a_run_of_epochs_is_trained_on_by_steps(program, tmp_path: Path, monkeypatch) -> None:
    seen: list[Any] = []

    def train(config: dict[str, Any], run: Path, init: str | None) -> float:
        seen.append(config["trainer"])
        run.mkdir(exist_ok=True)
        (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        record = {"status": "finished", "steps": 12, "dev_bleu": 1.0}
        (run / "provenance.json").write_text(json.dumps(record), encoding="utf-8")
        return 1.0

    monkeypatch.setattr("translate.training.run.train", train)
    program("train", "run=r", "experiment=toy", "trainer.max_epochs=1", "trainer.patience=3")
    done = program("train", "run=r")
    assert "with trainer.max_steps=24 and trainer.patience=null or a larger" in done.err
    assert program("train", "run=r", "trainer.max_steps=24").status == 0
    assert [(trainer["max_steps"], trainer["max_epochs"]) for trainer in seen] == [
        (None, 1),
        (24, None),
    ]


@pytest.mark.parametrize("given", [(), ("trainer.max_steps=9",), ("data.workers=1",)])
def test_a_slip_in_run_begins_no_training_on_the_default_corpus(program, given) -> None:
    done = program("train", "run=rusn/mine", *given)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "there is no run to resume in rusn/mine: check run=; a new run needs" in done.err
    assert not Path("rusn").exists()
    shown = program("train", "run=rusn/mine", "--cfg", "job")
    assert shown.status == 0, "to look at a configuration is no training"


def test_hydra_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(composed("data=toy", "--multirun", "seed=1,2")) == 2
    assert not list(tmp_path.iterdir())
    assert not HydraConfig.initialized()


def test_a_job_sees_the_command_line_of_the_program(monkeypatch) -> None:
    """Lightning starts the other processes of a distributed run from it."""
    monkeypatch.setattr(sys, "argv", ["/bin/translate", "train", "run=a b", "data=toy"])
    seen: list[tuple[list[str], bool]] = []

    def job(job: Job) -> None:
        seen.append((list(sys.argv), HydraConfig.initialized()))

    launch(COMMANDS["train"], split(COMMANDS["train"].syntax(), sys.argv[2:]), job)
    assert seen == [(["/bin/translate", "train", "run=a b", "data=toy"], False)]
    assert sys.argv == ["/bin/translate", "train", "run=a b", "data=toy"]


def test_a_sweep_tells_what_differs() -> None:
    first, second = composed("data=toy", "--multirun", "seed=1,2", "model=rnn_none")
    assert (first.swept, second.swept) == (("seed=1",), ("seed=2",))
    assert first.overrides == ("data=toy", "seed=1", "model=rnn_none")
    assert second.config["seed"] == 2


def test_an_experiment_has_the_last_word() -> None:
    """`_self_` stands first in train.yaml; last, it would silently undo the experiment."""
    defaults = yaml.safe_load((config_dir() / "train.yaml").read_text(encoding="utf-8"))["defaults"]
    assert defaults[0] == "_self_"
    for option in options("experiment"):
        raw = yaml.safe_load((config_dir() / "experiment" / f"{option}.yaml").read_text("utf-8"))
        choice = f"experiment={option}"
        (job,) = composed(choice, *(["data=toy"] if choice in ASKING else []))
        for group, values in raw.items():
            if isinstance(values, dict):
                for key, value in values.items():
                    if not isinstance(value, dict):
                        assert job.config[group][key] == value or f"{value}".startswith("${")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["trainer.minimum_risk.metric=chrf"],
         "trainer.minimum_risk.metric has no effect while trainer.minimum_risk.weight = 0.0: set "
         "trainer.minimum_risk.weight=0.8, or leave it out"),
        (["trainer.averaging.kind=last", "trainer.averaging.decay=0.9"],
         "trainer.averaging.decay has no effect while trainer.averaging.kind = last: set "
         "trainer.averaging.kind=ema, or"),
        (["model.window=8"], "model.window has no effect while model.self_attention = full: set "
         "model.self_attention=sliding_window, or leave it out"),
        (["model=rnn_none", "model.query=previous"],
         "model.query has no effect while model.attention = none: set model.attention=additive"),
    ],
)  # fmt: skip
def test_what_would_do_nothing_is_refused_where_it_is_given(
    program, tmp_path: Path, given: list[str], told: str
) -> None:
    done = program("train", "data=toy", "run=r", *given)
    assert done.status == 2
    assert told in done.err
    assert not [*tmp_path.iterdir()]


def test_a_sweep_over_a_switch_has_the_keys_that_it_switches() -> None:
    config = {"trainer": {"averaging": {"kind": "none", "decay": 0.9, "start": None, "every": 5},
                          "minimum_risk": {"weight": 0.5, "metric": "chrf"},
                          "guided_alignment": {"weight": 0.0, "layer": None}}}  # fmt: skip
    given = ["trainer.averaging.decay=0.9", "trainer.averaging.kind=none",
             "trainer.minimum_risk.metric=chrf", "trainer.guided_alignment.weight=0"]  # fmt: skip
    keys_given = set(map(key_of, given))
    for swept in ("trainer.averaging.kind", "trainer", "experiment"):
        assert without_effect(config, keys_given, {swept}) == []
    assert len(without_effect(config, keys_given)) == 1


@pytest.mark.parametrize("machine", ["0", "1"])
def test_further_processes_of_a_job_are_not_refused_for_what_its_sweep_varies(
    program, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """Lightning starts them on each machine, with the command of the job alone."""
    started: list[list[str]] = []
    monkeypatch.setattr("translate.training.run.train", lambda *_, **__: started.append(sys.argv))
    monkeypatch.setenv("NODE_RANK", machine)
    averaging = ["trainer.averaging.kind=ema,none", "trainer.averaging.decay=0.9"]
    assert program("train", "--multirun", "data=toy", "run=r", *averaging).status == 0
    monkeypatch.setenv("LOCAL_RANK", "1")
    for _, *command in started[:]:
        done = program(*command)
        assert done.status == 0, done.err
    assert len(started) == 4


SWITCHED = [
    (key, only, node)
    for group, option in [(g, o) for g in NODES for o in options(g) if g != "data"]
    for key, field, node in fields_of(node_class(group, node_of(group, option)), group)
    for only in field.metadata
    if isinstance(only, OnlyWith)
]


@pytest.mark.parametrize(("key", "only", "node"), SWITCHED, ids=[key for key, *_ in SWITCHED])
def test_a_switch_is_a_key_and_its_remedy_turns_it_on(
    key: str, only: OnlyWith, node: type[Node]
) -> None:
    assert only.is_met({only.key: only.example})
    switch = node.model_fields[only.key]
    adapter = TypeAdapter(Annotated[switch.annotation, switch, *switch.metadata])
    assert adapter.validate_python(only.example) == only.example


def test_a_training_without_text_says_how_to_name_it(program) -> None:
    done = program("train")
    assert (done.status, done.out) == (2, "")
    assert "error: train needs text to learn from: experiment=demo (" in done.err


def test_a_power_of_ten_is_a_whole_number() -> None:
    values = {"1e3": 1000, "2E+4": 20_000, "1e-3": 0.001, "1.5e3": 1500.0, "1e3x": "1e3x"}
    assert {text: yaml_value(text) for text in values} == values
    assert isinstance(yaml_value("1e3"), int)
