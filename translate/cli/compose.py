"""From a command line to a job: Hydra composes the configuration, then steps aside.

A single job asks Hydra for its configuration and nothing else: Hydra's own program composes it
twice, the first time to learn whether it is to sweep. Sweeps, and what Hydra shows of itself, are
that program's, with its output folders and loggers off: the run folder is ours and stdout belongs
to results. While a job runs, `sys.argv` is the program's own and `HydraConfig` is empty, because
Lightning starts the other processes of a distributed run from the two.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hydra
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job, key_of
from translate.cli.config_dir import STORED, config_dir
from translate.cli.errors import JobFailedError, UsageError, refuse
from translate.cli.experiments import leave_out_misfits
from translate.cli.hydra_errors import (
    Check,
    explain,
    given_again,
    jobs_of,
    lists_of_options,
    problems,
)
from translate.cli.stored import nodes_of
from translate.cli.streams import refuse_to_share
from translate.cli.validation import without_effect
from translate.errors import UserError, first_line
from translate.training.launch import started_by_lightning
from translate.wording import listing

log = logging.getLogger(__name__)

Settle = Callable[[Any, Sequence[str]], Any]

MOST_FORETOLD = 256  # jobs of a sweep that are looked at before the first begins

QUIET = [
    "hydra.run.dir=.",
    "hydra.output_subdir=null",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
]


def launch(
    command: Command,
    arguments: Arguments,
    job: Callable[[Job], float | None],
    *,
    check: Check = lambda config: [],
    settle: Settle = lambda config, overrides: config,
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    base: Mapping[str, Any] | None = None,
) -> None:
    """Call `job` with the composed configuration: once, or once for each combination of a sweep.

    What it returns is what a sweep that searches for the best goes by. Where one job of a sweep
    fails, the sweeper says whether others are still run.

    Args:
        check: tells every problem of a composed configuration; those of its values are listed
            together with those that Hydra has with the names of its keys.
        settle: what the command makes of a composed configuration and the overrides that led to it.
        nodes: group → what is to be had as `group=stored`; default: what `run=` carries.
        base: a whole configuration to start from in place of the command's YAML.

    Raises:
        UsageError: the configuration cannot be composed; every problem that can be found is listed.
            Or the jobs of a sweep would share what each needs for itself.
        JobFailedError: the job raised, which is its cause.
    """
    refuse(lists_of_options(arguments.overrides))
    if not arguments.flags:
        refuse(_of_sweeps(arguments.overrides))
    for line in given_again(arguments.overrides):
        log.info("%s", line)
    if arguments.multirun:
        refuse_to_share(command, arguments)
    store = ConfigStore.instance()
    if nodes is None:
        nodes = nodes_of(arguments.verbatim.get("run"), command.carried)
    for group, node in nodes.items():
        store.store(group=group, name=STORED, node=dict(node))
    if base is not None:
        store.store(name=STORED, node=dict(base))
    name = command.name if base is None else STORED
    program = sys.argv
    failed: list[UserError] = []
    done: list[Job] = []

    def task(composed: DictConfig) -> float | None:
        try:
            if arguments.shows_job:
                _show(composed, arguments, check, settle)
                return None
            prepared = _job(composed, arguments, check, settle)
            HydraConfig.instance().cfg = None
            _end_of_imports(command)
            with _command_line(program):
                result = job(prepared)
            done.append(prepared)
            return result
        except Exception as error:
            # wrong usage is so in every job, unless one has shown that it is not
            one_of_many = bool(done) or not isinstance(error, UsageError)
            if arguments.multirun and isinstance(error, UserError) and one_of_many:
                log.error("failed: %s", error)
                failed.append(error)
                raise
            raise JobFailedError from error

    try:
        if arguments.composing or (arguments.flags and not arguments.shows_job):
            if arguments.multirun:
                _foretell(name, arguments, check)
            _by_hydra(name, arguments, task)
        else:
            with initialize_config_dir(str(config_dir()), version_base="1.3"):
                composed = compose(name, list(arguments.overrides), return_hydra_config=True)
                HydraConfig.instance().set_config(composed)
                with open_dict(composed):
                    del composed["hydra"]
                task(composed)
    except BrokenPipeError:  # who read what Hydra shows has seen enough
        raise
    except Exception as error:
        if failed and (error in failed or not done):  # a search has no best of none
            raise JobFailedError from failed[0]
        found = explain(
            error, name, arguments.overrides, check,
            multirun=arguments.multirun, verbatim=command.verbatim,
        )  # fmt: skip
        raise UsageError(listing(found)) from error
    finally:
        HydraConfig.instance().cfg = None


def _end_of_imports(command: Command) -> None:
    """From here on garbage is looked for, but not among what the program has imported.

    Where a first job has done so already, as in a sweep, what it has left behind is looked through.
    """
    if command.computes_with:
        importlib.import_module(command.computes_with)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _of_sweeps(overrides: Sequence[str]) -> list[str]:
    """What speaks against Hydra's own keys where a single job leaves them unread."""
    return [
        f"{override} only applies to several runs: add --multirun, or leave it out"
        for override in overrides
        if override.startswith(("hydra.", "hydra/"))
    ]


def _foretell(name: str, arguments: Arguments, check: Check) -> None:
    """Say which jobs of a sweep are going to fail, before the first has run for hours.

    A sweeper that looks for the best makes its jobs up as it goes, and what cannot be composed here
    is Hydra's to tell.
    """
    overrides = arguments.overrides
    if any(override.startswith(("hydra/sweeper", "hydra.sweeper")) for override in overrides):
        return
    wrong: dict[str, list[str]] = {}
    try:
        jobs = jobs_of(overrides)
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            for job in jobs[:MOST_FORETOLD]:
                composed = compose(name, job)
                leave_out_misfits(composed, job)
                if found := problems(composed, check, job):
                    swept = _swept(arguments, job)
                    own = (override for override in job if key_of(override) in swept)
                    wrong[" ".join(own)] = found
    except (HydraException, OmegaConfBaseException):
        return
    if len(wrong) == len(jobs):  # the first is told at once
        return
    for settings, found in wrong.items():
        log.warning("of these jobs the one with %s will fail: %s", settings, "; ".join(found))


def _by_hydra(name: str, arguments: Arguments, task: Callable[[DictConfig], float | None]) -> None:
    """Let Hydra's own program do what its flags ask for."""
    flags = arguments.composing if arguments.shows_job else arguments.flags
    app = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    with tempfile.TemporaryDirectory(prefix="translate-") as sweep:  # Hydra leaves a file a sweep
        quiet = [*QUIET, f"hydra.sweep.dir='{sweep}'"]
        # flags first: argparse takes no more of them once it has met an override
        argv = [sys.argv[0], *flags, *quiet, *arguments.overrides]
        with _command_line(argv), environment_restored():
            os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions instead of printing them
            app()


def _job(composed: DictConfig, arguments: Arguments, check: Check, settle: Settle) -> Job:
    """What the command is to do."""
    runtime = HydraConfig.get()
    try:
        overrides = tuple(runtime.overrides.task)
        _leave_out(composed, overrides)
        refuse(problems(composed, check, overrides))
        config = settle(OmegaConf.to_container(composed, resolve=True), overrides)
    except OmegaConfBaseException as error:
        raise UsageError(first_line(error)) from error
    refuse(_idle(config, arguments, overrides))
    swept = _swept(arguments, overrides)
    return Job(
        config=config,
        verbatim=arguments.verbatim,
        repeated=arguments.repeated,
        sentences=arguments.sentences,
        choices={str(k): str(v) for k, v in runtime.runtime.choices.items() if v is not None},
        overrides=overrides,
        composing=arguments.composing,
        multirun=arguments.multirun,
        swept=tuple(o for o in overrides if key_of(o) in swept),
    )


def _idle(config: Mapping[str, Any], arguments: Arguments, overrides: Sequence[str]) -> list[str]:
    """What of the overrides that a person gave a job does nothing."""
    if started_by_lightning():  # for one job: it does not see what a sweep varies
        return []
    added = set(map(key_of, arguments.added))
    typed = [override for override in overrides if key_of(override) not in added]
    return without_effect(config, typed, _swept(arguments, overrides))


def _show(composed: DictConfig, arguments: Arguments, check: Check, settle: Settle) -> None:
    """The configuration as it would be run, whatever is wrong in it; then that."""
    overrides = tuple(HydraConfig.get().overrides.task)
    _leave_out(composed, overrides)
    try:
        config = settle(OmegaConf.to_container(composed, resolve=True), overrides)
    except OmegaConfBaseException:  # what a value refers to only a run has
        sys.stdout.write(OmegaConf.to_yaml(composed))
        return
    sys.stdout.write(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    refuse(problems(composed, check, overrides) or _idle(config, arguments, overrides))


def _leave_out(composed: DictConfig, overrides: Sequence[str]) -> None:
    if left_out := leave_out_misfits(composed, overrides):
        told = ", ".join(left_out)
        log.info("left out, since the experiment sets it for another option: %s", told)


def _swept(arguments: Arguments, of_the_job: Sequence[str]) -> set[str]:
    """The keys that differ from job to job, of which a single job has none.

    A sweeper may have further ones of its own (`hydra.sweeper.params`).
    """
    if not arguments.multirun:
        return set()
    parsed = OverridesParser.create().parse_overrides(list(arguments.overrides))
    keys = {str(o.key_or_group) for o in parsed}
    sweeps = {str(o.key_or_group) for o in parsed if o.is_sweep_override()}
    return sweeps | (set(map(key_of, of_the_job)) - keys)


@contextmanager
def _command_line(argv: Sequence[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, list(argv)
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def environment_restored() -> Iterator[None]:
    """Leave no variable to what comes after; what has not changed is there all the time."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
