"""translate train: a run from nothing, or the rest of one."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from translate.cli.arguments import Arguments, Job, file_name
from translate.cli.options import CACHE, Folder, Group, Options, PathOption
from translate.compose import STORED, is_choice, key_of
from translate.errors import UsageError, UserError
from translate.names import on_demand
from translate.wording import counted, install

if TYPE_CHECKING:
    from translate.cli.main import Command
    from translate.data.tokenizer import Tokenizers

log = logging.getLogger(__name__)

USAGE = """\
  translate train experiment=demo run=runs/demo            # a ready recipe
  translate train run=runs/demo                            # resume where it stopped
  translate train model=rnn_luong model.attention=dot data=toy run=runs/luong
  translate train data=files data.dir=my/corpus data.source=de data.target=en model.d_model=512
  translate train init=runs/demo data=files data.dir=my/corpus data.source=es data.target=en
  translate train --multirun data=toy tokenizer=word seed=1,2 model=rnn_bahdanau,transformer
  translate train --multirun hydra/sweeper=dev_bleu experiment=toy 'model.dropout=interval(0.0,0.3)'

Ctrl-C saves the run, which can then be resumed. A resumed run takes its settings from its own
folder; those given beside run= are compared with them. How long to train, devices and logging may
differ; so may batches, precision and learning rate, with a warning, since the run is another one
from there on. Others, such as the model, are refused. The folder holds the configuration,
metrics, logs, checkpoints and the bundle: the model that every other command uses.

init=PATH starts from the weights of a run or bundle instead of random ones. Its network and its
vocabulary are those of PATH, even if experiment= has others. With model= the network is another,
and weights whose shapes do not fit are refused. With tokenizer=, or a key of it but sampling, a
vocabulary is learned from the new text: pieces that both have keep what was learned about them, and
the log counts the others.

--multirun trains a run for each combination, each in its own folder; finished runs are not trained
again. With hydra/sweeper=dev_bleu, Optuna (an extra) searches for the best dev BLEU:
interval(0.0,0.3) is a range to draw from, tag(log,interval(0.0001,0.01)) a logarithmic one and
choice(2,4) a set of values; hydra.sweeper.n_trials=20 is the number of runs. The same command
resumes the search.

What some options cost:
  trainer.r_drop=3                       two passes that should agree   a step takes twice as long
  trainer.word_dropout=0.1               words read as <unk>            nothing
  trainer.minimum_risk.weight=0.8        learning from BLEU or chrF     steps take 14 times as long
  trainer.activation_checkpointing=true  long inputs fit                a step takes a third longer
  trainer.compile=true                   torch.compile                  minutes at the start
  data.tokens_per_batch=auto             what the GPU's memory holds    a few seconds at the start
"""


class TrainOptions(Options):
    """The options of `translate train`, whose configuration Hydra composes."""

    usage: ClassVar[str] = USAGE

    run: PathOption | None = Field(
        None,
        description="the folder of the run; default: runs/EXPERIMENT or runs/DATA-MODEL. With "
        "--multirun the settings that vary are appended to it",
    )
    init: PathOption | None = Field(
        None,
        description="a run or bundle to start from; the default of run then ends in its name",
    )
    experiment: Annotated[Any, Group("null")] = Field(
        None, description="a recipe that sets several of the following"
    )
    data: Annotated[Any, Group("tatoeba_es_en")] = Field(
        None, description="the corpus, and the size of batches (data.tokens_per_batch)"
    )
    tokenizer: Annotated[Any, Group("unigram")] = Field(
        None, description="how sentences are cut into pieces"
    )
    model: Annotated[Any, Group("transformer")] = Field(None, description="the network")
    search: Annotated[Any, Group("beam")] = Field(
        None,
        description="the search of translate text and evaluate with this run; dev BLEU while "
        "training is that of a greedy search",
    )
    optimizer: Annotated[Any, Group("adamw")] = Field(None, description="and its learning rate")
    schedule: Annotated[Any, Group("inverse_sqrt")] = Field(
        None, description="of the learning rate"
    )
    trainer: Annotated[Any, Group("default")] = Field(
        None, description="length of training, validation, precision, devices"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(1, description="of everything random")
    cache: Folder = CACHE


TEXT = (
    "experiment=demo (Spanish to English in a quarter of an hour, of 85 MB that are downloaded "
    "once), data=tatoeba_es_en (the same text, 10,000 steps), or your own, as data=files "
    "data.dir=FOLDER data.source=de data.target=en (translate models lists corpora and recipes)"
)
FIND_ORIGIN = "translate.extras.fine_tuning:find_origin"
SEARCH = "hydra/sweeper=dev_bleu"  # conf/hydra/sweeper/dev_bleu.yaml


def main(command: Command, arguments: Arguments) -> None:
    """Run the command. A run under way brings its settings, but for options chosen anew."""
    from translate.cli.composing import launch
    from translate.inference.bundle import of_run

    begin = partial(launch, command, job=job)
    _refuse_sweeper(arguments)
    run, init = (arguments.verbatim.get(key) for key in ("run", "init"))
    chosen = set(filter(is_choice, map(key_of, arguments.overrides)))
    begun = _begun_config(run) if run else {}
    # what chooses everything anew is compared with the run as a whole
    anew = "experiment" in chosen or init or arguments.multirun
    if begun and not anew:
        log.info("%ssettings from %s/config.yaml", "other " if chosen else "", run)
        begin(_with_origin(arguments), check=check_begun, begun=begun)
    elif init:
        if not (chosen & {"data", "experiment"} or arguments.shows):
            raise UsageError(
                "init= says what to begin from, not what to train on: give data= or experiment= "
                "(translate models lists them)"
            )
        origin = of_run(init)
        completed = _with_stored_vocabulary(arguments, init, origin.tokenizers)
        if "model" not in chosen:
            completed = completed.beginning_with([f"model={STORED}"])
        begin(completed, check=check, stored={"model": origin.config.model})
    else:
        # a slip in run= must not begin another training, on the corpus that is the default
        unnamed = not chosen if run else not arguments.overrides
        if unnamed and not (arguments.multirun or arguments.shows):
            start = f"there is no run to resume in {run}: check run=; a new run" if run else "train"
            raise UsageError(f"{start} needs text to learn from: {TEXT}")
        begin(arguments, check=check)


def _begun_config(run: str) -> dict[str, Any]:
    """The configuration of a run under way, which an earlier version may have begun."""
    from translate.models import registry
    from translate.run_folder import configuration

    config = configuration(run)
    if isinstance(node := config.get("model"), dict):
        config["model"] = registry.upgraded(node)
    return config


def _with_origin(arguments: Arguments) -> Arguments:
    """Return the arguments with the `init=` of a run's first call, which need not be repeated.

    A run without a checkpoint yet has nothing else to begin from.
    """
    from translate.training.records import noted

    if origin := noted(Path(arguments.verbatim["run"]), "init"):
        return replace(arguments, verbatim={"init": origin["bundle"]} | arguments.verbatim)
    return arguments


def _with_stored_vocabulary(arguments: Arguments, place: str, tokenizers: Tokenizers) -> Arguments:
    """The vocabulary is that of `init=`, unless one is chosen; an experiment has no say in it.

    Of pieces that another lacks what was learned would be lost. How the text is sampled is free.
    """
    from translate.inference.bundle import find

    keys = set(map(key_of, arguments.overrides))
    if any(re.match(r"tokenizer(\.(?!sampling)|$)", key) for key in keys):
        return arguments
    settings = (
        f"tokenizer={tokenizers.source.kind}",
        f"tokenizer.joint={json.dumps(tokenizers.joint)}",
        f"tokenizer.pretrained={json.dumps(str(find(place).absolute()), ensure_ascii=False)}",
    )
    return arguments.beginning_with(settings)


def check(config: Mapping[str, Any]) -> list[str]:
    """Return every problem of the configuration, one line each."""
    from translate.training.settings import training_problems

    return training_problems(config)


def check_begun(config: Mapping[str, Any]) -> list[str]:
    """Return every problem of a run under way; a key that is missing is newer than the run."""
    problems = check(config)
    if any(line.endswith("is missing") for line in problems):
        problems.append(
            "the run was started by another version of this program: resume it with that version, "
            "or start a new run"
        )
    return problems


def job(job: Job) -> float:
    """Train; the best dev BLEU."""
    from translate.training.run import Interrupted, train

    config, run = dict(job.config), folder(job)
    if job.multirun:
        # further processes of a distributed run are started from sys.argv: it must name this job
        init = [f"init={job.verbatim['init']}"] if "init" in job.verbatim else []
        sys.argv = [sys.argv[0], "train", *job.composing, f"run={run}", *init, *job.overrides]
    if _is_finished(run, config):
        return _score_of_finished(job, run, config)
    for name in ("lightning", "lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).handlers.clear()  # they log through ours, once
    try:
        with _processes_of_its_own():
            return train(config, run, init=job.verbatim.get("init"))
    except Interrupted:
        if job.multirun:
            log.info("to go on with all runs of the sweep, give the same command again")
        raise


@contextmanager
def _processes_of_its_own() -> Iterator[None]:
    """Leave no process group and none of its variables to the next job of a sweep."""
    import torch.distributed as processes

    from translate.cli.composing import environment_restored

    try:
        with environment_restored():
            yield
    finally:
        if processes.is_available() and processes.is_initialized():
            processes.destroy_process_group()


def folder(job: Job) -> Path:
    """Return the folder of the run; the jobs of a sweep get one each."""
    run = Path(job.verbatim.get("run") or f"runs/{_chosen_name(job)}")
    return Path(f"{run}-{file_name(job.swept)}") if job.swept else run


def _chosen_name(job: Job) -> str:
    chosen = job.choices
    name = chosen.get("experiment")
    if init := job.verbatim.get("init"):
        origin = Path(init).absolute()
        if origin.name == "bundle":  # is called after its run
            origin = origin.parent
        return f"{name or chosen['data']}-{origin.name}"
    return name or f"{chosen.get('data', 'run')}-{chosen.get('model', '')}".strip("-")


def _is_finished(run: Path, config: dict[str, Any]) -> bool:
    """A finished run is trained on only for longer than it was meant to."""
    from translate.run_folder import configuration
    from translate.training.records import run_status
    from translate.training.settings import LENGTHS, flat

    before, now = flat(configuration(run)), flat(config)
    return run_status(run) == "finished" and all(now[key] == before.get(key) for key in LENGTHS)


def _score_of_finished(job: Job, run: Path, config: dict[str, Any]) -> float:
    """The best dev BLEU of a job that an earlier sweep has trained; a single run is refused."""
    from translate.data.corpus import prepare
    from translate.training.preflight import check_same_configuration, check_same_corpus
    from translate.training.records import read
    from translate.training.settings import TrainingConfig

    record = read(run)
    if not job.multirun:
        steps = record.get("steps", 0)
        longer = f"trainer.max_steps={2 * steps}"
        if config["trainer"]["patience"]:  # which may be what ended it
            longer += " and trainer.patience=null or a larger number"
        raise UserError(
            f"{run} is finished after {counted(steps, 'step')}: continue training with {longer}, "
            "or start over by removing the folder or naming another with run="
        )
    nodes = TrainingConfig.model_validate(config)
    check_same_configuration(config, run)
    corpus = prepare(nodes.data, nodes.tokenizer, cache=Path(nodes.cache))
    check_same_corpus(corpus, run)
    on_demand(FIND_ORIGIN)(run, job.verbatim.get("init"), nodes, resuming=True)
    log.info("%s is already finished: best dev BLEU %.2f", run, record["dev_bleu"])
    return float(record["dev_bleu"])


def _refuse_sweeper(arguments: Arguments) -> None:
    """Refuse a search for the lowest score, and one without Optuna."""
    if "hydra/sweeper=optuna" in arguments.overrides:
        raise UsageError(f"hydra/sweeper=optuna would look for the lowest score: write {SEARCH}")
    if SEARCH in arguments.overrides and find_spec("optuna") is None:
        raise UsageError(f"{SEARCH} needs Optuna: {install('optuna')}")
