"""What the experiments share: public commands, each run once, however often a script is started."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from translate.errors import UserError
from translate.evaluation.report import Stored, read
from translate.files import file_hash
from translate.inference import bundle
from translate.training import records
from translate.training.settings import LENGTHS, MAY_CHANGE


def new_parser(description: str, epilog: str, *, output: str) -> argparse.ArgumentParser:
    """Takes settings of every training and where all goes; an experiment adds its own options."""
    parser = argparse.ArgumentParser(
        description=description, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE",
        help=(
            "settings for every training run, as `translate train` takes them: data=, tokenizer=, "
            "trainer.max_steps=, …"
        ),
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path(output), metavar="FOLDER",
        help=f"where runs, tables and pictures go; default: {output}",
    )  # fmt: skip
    return parser


def tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def translate(*arguments: str) -> None:
    """Run one command of the program; its tables are also in the files that it writes."""
    tell(shlex.join(["translate", *arguments]))
    command = [sys.executable, "-m", "translate", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C reached it as well: let it save
        raise
    if status:
        raise UserError(f"translate {arguments[0]} ended with status {status}")


def train(run: Path, settings: Sequence[str]) -> None:
    """Train to the end, from nothing or from where it stopped; a finished run is left alone."""
    if records.run_status(run) != "finished":
        translate("train", f"run={run}", *settings)
        return
    before, now = binding(records.read(run)["command"][2:]), binding(settings)
    if before != now:
        raise UserError(
            f"{run} was trained with {shlex.join(before)}, not {shlex.join(now)}: give another "
            "--output or remove it"
        )
    tell(f"{run} is finished")


def binding(settings: Sequence[str]) -> list[str]:
    """Those that make a run what it is; with others it may go on, such as trainer.threads."""
    free = {"run"} | MAY_CHANGE - LENGTHS - {"data.dir"}
    latest = {setting.partition("=")[0]: setting for setting in settings}
    return [setting for key, setting in latest.items() if key not in free]


def evaluated(run: Path, name: str, *arguments: str, output: Path | None = None) -> Stored:
    """The run's evaluation under this name: made now, unless one of its weights is there."""
    folder = output or run / "evaluation"
    stored = read(folder, name)
    weights = file_hash(bundle.find(run) / bundle.WEIGHTS)
    if stored is None or stored.figures["sha256"].get("model") != weights:
        elsewhere = [f"output={output}"] if output else []
        translate("evaluate", f"run={run}", *arguments, *elsewhere)
        stored = read(folder, name)
    assert stored is not None
    return stored
