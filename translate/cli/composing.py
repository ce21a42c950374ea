"""The way from a command line of `train`, `prepare` or `doctor` to its job or its sweep.

Hydra's program runs sweeps, with its output folders and loggers off: the run folder is ours, and
standard output belongs to results. While a job runs, `sys.argv` is the program's own and
`HydraConfig` is empty, because Lightning starts the other processes of a distributed run from the
two.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from translate.cli.arguments import MULTIRUN, Arguments, Job
from translate.compose import (
    STORED,
    Composition,
    compose,
    config_dir,
    key_of,
    literal,
    without_misfits,
)
from translate.config import check as check_all
from translate.errors import JobFailedError, UsageError, UserError, first_line
from translate.nodes import without_effect
from translate.training.launch import started_by_lightning
from translate.wording import listing

if TYPE_CHECKING:
    from translate.cli.main import Command

log = logging.getLogger(__name__)

Check = Callable[[Mapping[str, Any]], list[str]]  # every problem of a configuration
Nodes = Mapping[str, Mapping[str, Any]]

MOST_CHECKED = 256  # jobs of a sweep that are checked before the first begins

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
    stored: Nodes | None = None,
    begun: Mapping[str, Any] | None = None,
) -> None:
    """Call `job` with the composed configuration: once, or once for each combination of a sweep.

    A sweep that searches for the best goes by what it returns. Where one job of a sweep fails, the
    sweeper says whether others are still run.

    Args:
        check: returns every problem of a composed configuration.
        stored: group → the node that `GROUP=stored` chooses.
        begun: the configuration of a run under way, in place of the defaults.

    Raises:
        UsageError: something is wrong in the configuration; all of it is listed.
        JobFailedError: a job of a sweep raised, which is its cause.
    """
    composer = _Composer(command, arguments, check, stored or {}, begun)
    if arguments.shows:
        composer.show()
    elif arguments.multirun:
        for key in {"json", "dropped"} & arguments.verbatim.keys():
            raise UsageError(
                f"--multirun and {key}={arguments.verbatim[key]}: each job would overwrite the "
                f"output of the one before; leave out {key}=, or run the command once for each job"
            )
        composer.check_sweep()
        _sweep(composer, job)
    else:
        for override in filter(_is_hydras, arguments.overrides):
            raise UsageError(
                f"{override} only applies to several runs: add --multirun, or leave it out"
            )
        composed = composer.job(arguments.overrides)
        command.end_of_imports()
        job(composed)


@dataclass(frozen=True)
class _Composer:
    """The part that the configurations of all jobs of a command line have in common."""

    command: Command
    arguments: Arguments
    check: Check
    stored: Nodes
    begun: Mapping[str, Any] | None

    def compose(self, overrides: Sequence[str]) -> Composition:
        return compose(
            self.command.name, overrides,
            begun=self.begun, stored=self.stored, folder=self.arguments.config_dir,
            keys=self.command.syntax().verbatim,
        )  # fmt: skip

    def problems(self, composition: Composition, overrides: Sequence[str]) -> list[str]:
        """Return everything that is wrong with a job, one line each."""
        if not composition.values:
            return composition.wrong
        absent = {line.split(" ")[0] for line in composition.wrong if " is missing: " in line}
        lines = [
            line for line in self.check(composition.values) if line.split(" ")[0] not in absent
        ]
        wrong = [*composition.wrong, *without_misfits(lines, composition)]
        return wrong or self._idle(composition, overrides)

    def _idle(self, composition: Composition, overrides: Sequence[str]) -> list[str]:
        """Return a line for each typed key that does nothing."""
        if started_by_lightning():  # for one job: it does not see what a sweep varies
            return []
        typed = set(map(key_of, overrides)) - set(map(key_of, self.arguments.added))
        return without_effect(composition.values, typed, self.swept(overrides))

    def job(self, overrides: Sequence[str]) -> Job:
        """Return the job; a UsageError lists all its problems."""
        composition = self.compose(overrides)
        _log_left_out(composition)
        check_all(self.problems(composition, overrides), UsageError)
        swept = self.swept(overrides)
        return Job(
            config=composition.values,
            verbatim=self.arguments.verbatim,
            choices=composition.choices,
            overrides=tuple(overrides),
            composing=self.arguments.composing,
            multirun=self.arguments.multirun,
            swept=tuple(override for override in overrides if key_of(override) in swept),
        )

    def swept(self, overrides: Sequence[str]) -> set[str]:
        return swept_keys(self.arguments, overrides)

    def show(self) -> None:
        """Write the configuration as it would be run; then what is wrong in it."""
        overrides = self.arguments.overrides
        composition = self.compose(overrides)
        _log_left_out(composition)
        sys.stdout.write(yaml.safe_dump(composition.values, sort_keys=False, allow_unicode=True))
        check_all(self.problems(composition, overrides), UsageError)

    def check_sweep(self) -> None:
        """Raise a UsageError with the problems of all jobs of a sweep, before the first begins.

        What a sweeper draws by itself, or lists by `glob(*)`, is checked job by job.
        """
        typed = self.arguments.overrides
        if any(each.startswith("hydra/sweeper=") or "glob(" in each for each in typed):
            return
        choices = [_singles(override) for override in typed if not _is_hydras(override)]
        lines: dict[str, str] = {}  # problem → the swept settings of the first job that has it
        for overrides in itertools.islice(itertools.product(*choices), MOST_CHECKED):
            swept = self.swept(overrides)
            settings = " ".join(each for each in overrides if key_of(each) in swept)
            for line in self.problems(self.compose(overrides), overrides):
                lines.setdefault(line, settings)
        check_all(
            (f"with {job}: {line}" if job else line for line, job in lines.items()), UsageError
        )


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


def _log_left_out(composition: Composition) -> None:
    if composition.left_out:
        log.info(
            "left out, since the experiment sets it for another option: %s",
            ", ".join(composition.left_out),
        )


def _sweep(composer: _Composer, job: Callable[[Job], float | None]) -> None:
    """Let Hydra's sweeper run the jobs; all are run before the failure of one is raised."""
    from hydra.core.hydra_config import HydraConfig

    program = sys.argv
    failed: list[UserError] = []
    done: list[Job] = []

    def task(composed: object) -> float | None:
        overrides = list(HydraConfig.get().overrides.task)
        HydraConfig.instance().cfg = None
        try:
            composed_job = composer.job(overrides)
            composer.command.end_of_imports()
            with _command_line(program):
                result = job(composed_job)
            done.append(composed_job)
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
    """Run `task` for each job of the sweep by Hydra's own program."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig

    store = ConfigStore.instance()
    for group, node in composer.stored.items():
        store.store(group=group, name=STORED, node=literal(dict(node)))
    name, arguments = composer.command.name, composer.arguments
    app = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    try:
        with tempfile.TemporaryDirectory(prefix="translate-") as sweep:  # Hydra leaves a file there
            quiet = [*QUIET, f"hydra.sweep.dir='{sweep}'"]
            # flags first: argparse takes no more of them once it has met an override
            argv = [sys.argv[0], MULTIRUN, *arguments.composing, *quiet, *arguments.overrides]
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
