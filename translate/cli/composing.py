"""The way from a command line of `train`, `prepare` or `doctor` to its job or its sweep.

Hydra's program runs sweeps and shows what it knows of itself, with its output folders and loggers
off: the run folder is ours, and standard output belongs to results. While a job runs, `sys.argv` is
the program's own and `HydraConfig` is empty, because Lightning starts the other processes of a
distributed run from the two.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from translate.cli.arguments import Arguments, Job
from translate.cli.commands import Command, commands_with
from translate.cli.errors import JobFailedError, UsageError, refuse
from translate.compose import (
    STORED,
    Composition,
    compose,
    config_dir,
    experiments_for,
    key_of,
    literal,
    node_of,
    option_of,
    options,
)
from translate.errors import UserError, first_line
from translate.nodes import without_effect
from translate.training.launch import started_by_lightning
from translate.wording import listing

log = logging.getLogger(__name__)

Check = Callable[[Mapping[str, Any]], list[str]]  # every problem of a configuration
Settle = Callable[[dict[str, Any], Composition, Sequence[str]], dict[str, Any]]
Nodes = Mapping[str, Mapping[str, Any]]

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
    settle: Settle = lambda config, composition, overrides: config,
    stored: Nodes | None = None,
    begun: Mapping[str, Any] | None = None,
) -> None:
    """Call `job` with the composed configuration: once, or once for each combination of a sweep.

    What it returns is what a sweep that searches for the best goes by. Where one job of a sweep
    fails, the sweeper says whether others are still run.

    Args:
        check: tells every problem of a composed configuration.
        settle: what the command makes of a composed configuration.
        stored: group → the node that `GROUP=stored` chooses.
        begun: the configuration of a run under way, in place of the defaults.

    Raises:
        UsageError: something is wrong in the configuration; all of it is listed.
        JobFailedError: a job of a sweep raised, which is its cause.
    """
    _tell_given_again(arguments.overrides)
    composer = _Composer(command, arguments, check, settle, stored or {}, begun)
    if arguments.multirun:
        for key in {"json", "dropped"} & arguments.verbatim.keys():
            raise UsageError(
                f"--multirun and {key}={arguments.verbatim[key]}: each job would overwrite the "
                f"output of the one before; leave out {key}=, or run the command once for each job"
            )
        composer.foretell()
        _sweep(composer, job)
    elif arguments.shows_job:
        composer.show()
    elif arguments.inspects:
        _by_hydra(composer, lambda composed: None)
    else:
        refuse(_of_sweeps(arguments.overrides))
        prepared = composer.job(arguments.overrides)
        command.end_of_imports()
        job(prepared)


@dataclass(frozen=True)
class _Composer:
    """The part that the configurations of all jobs of a command line have in common."""

    command: Command
    arguments: Arguments
    check: Check
    settle: Settle
    stored: Nodes
    begun: Mapping[str, Any] | None

    def compose(self, overrides: Sequence[str]) -> Composition:
        return compose(
            self.command.name, overrides,
            begun=self.begun, stored=self.stored, folder=self.arguments.config_dir,
            keys=self.command.syntax().verbatim, owners=commands_with,
        )  # fmt: skip

    def problems(self, composition: Composition, overrides: Sequence[str]) -> list[str]:
        """Return everything that is wrong with a job, one line each."""
        if not composition.values:
            return composition.wrong
        absent = {line.split(" ")[0] for line in composition.wrong if " is missing: " in line}
        found = [
            line for line in self.check(composition.values) if line.split(" ")[0] not in absent
        ]
        wrong = [*composition.wrong, *_without_misfits(found, composition)]
        return wrong or self._idle(composition, overrides)

    def _idle(self, composition: Composition, overrides: Sequence[str]) -> list[str]:
        """Return a line for each key that a person gave and that does nothing."""
        if started_by_lightning():  # for one job: it does not see what a sweep varies
            return []
        added = set(map(key_of, self.arguments.added))
        typed = [override for override in overrides if key_of(override) not in added]
        return without_effect(composition.values, set(map(key_of, typed)), self.swept(overrides))

    def job(self, overrides: Sequence[str]) -> Job:
        """Return the job; a UsageError lists all its problems."""
        composition = self.compose(overrides)
        _tell_left_out(composition)
        refuse(self.problems(composition, overrides))
        swept = self.swept(overrides)
        return Job(
            config=self.settle(composition.values, composition, overrides),
            verbatim=self.arguments.verbatim,
            repeated=self.arguments.repeated,
            sentences=self.arguments.sentences,
            choices=composition.choices,
            overrides=tuple(overrides),
            composing=self.arguments.composing,
            multirun=self.arguments.multirun,
            swept=tuple(override for override in overrides if key_of(override) in swept),
        )

    def swept(self, overrides: Sequence[str]) -> set[str]:
        return swept_keys(self.arguments, overrides)

    def show(self) -> None:
        """Write the configuration as it would be run, whatever is wrong in it; then that."""
        overrides = self.arguments.overrides
        composition = self.compose(overrides)
        _tell_left_out(composition)
        if config := composition.values:
            config = self.settle(config, composition, overrides)
            for place in filter(None, (self.arguments.package or "").split(".")):
                if place not in config:
                    raise UsageError(f"--package {self.arguments.package}: there is no such node")
                config = config[place]
            sys.stdout.write(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        refuse(self.problems(composition, overrides))

    def foretell(self) -> None:
        """Refuse keys that a job of the sweep lacks; warn of jobs that will fail on their values.

        Where all will fail the first says so itself.
        """
        singles = [_singles(override) for override in self._own_overrides()]
        jobs = list(itertools.islice(itertools.product(*singles), MOST_FORETOLD))
        if any("glob(" in override for override in self.arguments.overrides):
            return  # which only Hydra can list
        wrong: dict[tuple[str, ...], list[str]] = {}
        failing: dict[str, list[str]] = {}
        for overrides in jobs:
            composition = self.compose(overrides)
            problems = self.problems(composition, overrides)
            if composition.wrong:
                wrong[overrides] = problems
            elif problems:
                swept = self.swept(overrides)
                failing[" ".join(o for o in overrides if key_of(o) in swept)] = problems
        refuse(_of_jobs(wrong, len(jobs)))
        if len(failing) < len(jobs):
            for settings, problems in failing.items():
                log.warning(
                    "of these jobs the one with %s will fail: %s", settings, "; ".join(problems)
                )

    def _own_overrides(self) -> list[str]:
        return [each for each in self.arguments.overrides if not _is_hydras(each)]


def _of_jobs(wrong: Mapping[tuple[str, ...], Sequence[str]], jobs: int) -> list[str]:
    """Return what is wrong with the jobs of a sweep; what is wrong with some names the first."""
    counts = Counter(line for problems in wrong.values() for line in set(problems))
    first: dict[str, tuple[str, ...]] = {}
    for overrides, problems in wrong.items():
        first |= {line: overrides for line in problems if line not in first}
    return [
        line if counts[line] == jobs or line.startswith(overrides) else
        f"with {' '.join(overrides)}: {line}"
        for line, overrides in first.items()
    ]  # fmt: skip


def swept_keys(arguments: Arguments, of_the_job: Sequence[str]) -> set[str]:
    """Return the keys that differ from job to job, of which a single job has none.

    A sweeper may have further ones of its own (`hydra.sweeper.params`).
    """
    if not arguments.multirun:
        return set()
    typed = arguments.overrides
    sweeps = {key_of(override) for override in typed if len(_singles(override)) > 1}
    return sweeps | (set(map(key_of, of_the_job)) - set(map(key_of, typed)))


def _is_hydras(override: str) -> bool:
    return override.startswith(("hydra.", "hydra/"))


def _singles(override: str) -> list[str]:
    """Return the overrides that one of a sweep stands for; of an interval its ends."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override)
        if not parsed.is_sweep_override():
            return [override]
        if parsed.is_interval_sweep():
            interval: Any = parsed.value()
            return [f"{parsed.get_key_element()}={end}" for end in (interval.start, interval.end)]
        return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]
    except HydraException:  # no override, or what only Hydra itself can list: glob(*)
        return [override]


def _tell_left_out(composition: Composition) -> None:
    if composition.left_out:
        log.info(
            "left out, since the experiment sets it for another option: %s",
            ", ".join(composition.left_out),
        )


def _tell_given_again(overrides: Sequence[str]) -> None:
    values: dict[str, str] = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in values:
            log.info("%s is given twice: %s takes the place of %s", key, value, values[key])
        values[key] = value


def _of_sweeps(overrides: Sequence[str]) -> list[str]:
    """Return a line for each of Hydra's own keys, which a single job leaves unread."""
    return [
        f"{override} only applies to several runs: add --multirun, or leave it out"
        for override in filter(_is_hydras, overrides)
    ]


def _without_misfits(problems: Sequence[str], composition: Composition) -> list[str]:
    """Return the problems, with those of an experiment for another model told in one."""
    experiment, model = (composition.choices.get(group, "") for group in ("experiment", "model"))
    if experiment not in options("experiment") or model not in {STORED, *options("model")}:
        return list(problems)  # one is not chosen, or of a folder of the user's own
    meant = option_of(composition.of_experiment, "model")
    keys = {f"model.{key}" for key in composition.of_experiment.get("model", {})}
    misfits = [line for line in problems if line.split(" ")[0] in keys and " is not a key" in line]
    if model == STORED:  # the network of init= has replaced what the experiment sets
        network = composition.values["model"]
        set_by_it = composition.of_experiment.get("model", {})
        misfits = [f"model.{key} is not a key" for key in set_by_it if key not in network]
    if meant == model or not misfits:
        return list(problems)
    family = composition.values["model"].get("family") or node_of("model", model)["family"]
    others = experiments_for(family)
    instead = f"; experiments for such a model: {', '.join(others)}" if others else ""
    wrong = ", ".join(line.split(" ")[0] for line in misfits)
    named = "the network of init=" if model == STORED else f"model={model}"
    return [
        f"experiment={experiment} is for model={meant}, and {named} has no {wrong}{instead}",
        *(line for line in problems if line not in misfits),
    ]


def _sweep(composer: _Composer, job: Callable[[Job], float | None]) -> None:
    """Let Hydra's sweeper run the jobs; all are run before the failure of one is told."""
    from hydra.core.hydra_config import HydraConfig

    program = sys.argv
    failed: list[UserError] = []
    done: list[Job] = []

    def task(composed: object) -> float | None:
        overrides = list(HydraConfig.get().overrides.task)
        HydraConfig.instance().cfg = None
        try:
            prepared = composer.job(overrides)
            composer.command.end_of_imports()
            with _command_line(program):
                result = job(prepared)
            done.append(prepared)
            return result
        except Exception as error:
            # wrong usage is so in every job, unless one has shown that it is not
            one_of_many = bool(done) or not isinstance(error, UsageError)
            if isinstance(error, UserError) and one_of_many:
                log.error("failed: %s", error)
                failed.append(error)
                raise
            raise JobFailedError from error

    try:
        _by_hydra(composer, task)
    except Exception as error:
        if failed and (error in failed or not done):  # a search has no best of none
            raise JobFailedError from failed[0]
        raise UsageError(listing([first_line(error)])) from error


def _by_hydra(composer: _Composer, task: Callable[[Any], float | None]) -> None:
    """Let Hydra's own program do what its flags ask for."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig

    store = ConfigStore.instance()
    for group, node in composer.stored.items():
        store.store(group=group, name=STORED, node=literal(dict(node)))
    name = composer.command.name
    app = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    try:
        with tempfile.TemporaryDirectory(prefix="translate-") as sweep:  # Hydra leaves a file there
            quiet = [*QUIET, f"hydra.sweep.dir='{sweep}'"]
            # flags first: argparse takes no more of them once it has met an override
            argv = [sys.argv[0], *composer.arguments.flags, *quiet, *composer.arguments.overrides]
            with _command_line(argv), environment_restored():
                os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions, do not print them
                app()
    finally:
        HydraConfig.instance().cfg = None


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
