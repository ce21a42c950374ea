"""The folder of a run: the configuration, record and metrics that training leaves for others."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from translate.errors import UserError, first_line
from translate.files import read_plain

Curve = list[tuple[int, float]]  # (step, value), steps rising
Status = Literal["new", "unfinished", "finished"]
RECORD = "provenance.json"
KEYS = ("data", "tokenizer", "model", "optimizer", "schedule", "trainer", "search", "seed", "cache")
LARGEST, DEEPEST = 1 << 18, 16  # bytes and levels of a config.yaml
LARGEST_RECORD, LARGEST_METRICS = 1 << 24, 1 << 28  # bytes: ten thousand calls, a million rows
PLAIN = (str, int, float, bool, type(None))


def status(run: Path) -> Status:
    """Tell whether a folder holds nothing yet, an interrupted run, or a finished one."""
    if not (run / RECORD).exists():
        return "new"
    return "finished" if read_record(run)["status"] == "finished" else "unfinished"


def read_record(run: Path) -> dict[str, Any]:
    """Read the record of a run.

    Raises:
        UserError: it is missing, or damaged.
    """
    path = run / RECORD
    remedy = f"is {run} the folder of a run?"
    if (run / "config.yaml").exists():
        remedy = "it records the state of the run; restore it, or start a new run folder"
    try:
        record = json.loads(read_plain(path, largest=LARGEST_RECORD))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path} ({error}): {remedy}") from error
    if not isinstance(record, dict) or "status" not in record:
        raise UserError(f"{path} has no status: {remedy}")
    return record


def noted(run: Path, fact: str) -> Any:
    """A fact of a run's record; None without a record, or where it does not have the fact."""
    return read_record(run).get(fact) if (run / RECORD).exists() else None


def configuration(run: str | Path) -> dict[str, Any]:
    """The configuration a run was started with; empty where the folder has none.

    The folder may come from a stranger, and Hydra, which composes with it, obeys much that a
    configuration can say: only plain values under the keys of a training pass.

    Raises:
        UserError: the file is there and cannot be read, or says more than a training writes.
    """
    file = Path(run) / "config.yaml"
    if not file.is_file():
        return {}
    try:
        content = read_plain(file, largest=LARGEST)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return deepcopy(_parse(content, file))


@lru_cache(maxsize=32)  # a comparison asks for those of its runs a dozen times
def _parse(content: bytes, file: Path) -> dict[str, Any]:
    try:
        text = content.decode()
        _check_shape(text, file)
        config = yaml.safe_load(text)
        _check_plain(config)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} does not contain a configuration")
    strange = [str(key) for key in config if key not in KEYS] + list(_orders(config))
    if strange:
        raise UserError(
            f"{file} contains {', '.join(strange)}, which translate train never writes: remove it "
            "if you know what it is for"
        )
    return config


def _check_shape(text: str, file: Path) -> None:
    """Refuse what would take forever to read, before it is read: its events come one by one."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
            raise UserError(
                f"{file} refers to itself (*) or is more than {DEEPEST} levels deep, which no "
                "training writes"
            )


def _check_plain(node: Any) -> None:
    """Raise a ValueError for a date, or another value that YAML knows and a configuration not."""
    if isinstance(node, dict):
        node = [*node.keys(), *node.values()]
    if isinstance(node, list):
        for each in node:
            _check_plain(each)
    elif not isinstance(node, PLAIN):
        raise ValueError(f"{node!r} is not a plain value")  # noqa: TRY004  # as YAML's own


def _orders(node: Any, place: str = "") -> Iterator[str]:
    """Places where a configuration tells Hydra to do something, instead of giving a value."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        for key, value in node.items():
            name = f"{place}{key}"
            if str(key) == "defaults" or str(key).startswith("_"):
                yield name
            yield from _orders(value, f"{name}.")


def read_curves(metrics: Path) -> dict[str, Curve]:
    """Read a metrics.csv: every column with finite values, as (step, value) pairs in rising steps.

    A row holds the values of one moment and leaves other cells empty; a kill may cut the last row.

    Steps count from 1; only in the file, the row of the first says 0. Where a resumed
    run logged a step again, the later value counts.

    Raises:
        UserError: no such file, or one without a `step` column.
    """
    values: dict[str, dict[int, float]] = {}
    try:
        text = io.StringIO(read_plain(metrics, largest=LARGEST_METRICS).decode(), newline="")
        rows = csv.DictReader(line for line in text if line.endswith("\n"))  # no cut last row
        if "step" not in (rows.fieldnames or []):
            raise UserError(f"{metrics} has no `step` column: give the metrics.csv of a run")
        for row in rows:
            _collect(row, values)
    except OSError as error:
        raise UserError(
            f"cannot read {metrics}: {error.strerror or error}; give the metrics.csv of a run"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{metrics} is damaged ({error}): restore a copy, or move it away"
        ) from error
    return {name: sorted(curve.items()) for name, curve in values.items()}


def _collect(row: Mapping[str | None, str | None], values: dict[str, dict[int, float]]) -> None:
    step = _number(row["step"])
    if step is None:
        return
    for name, cell in row.items():
        number = _number(cell)
        if name not in (None, "step", "epoch") and number is not None:
            values.setdefault(str(name), {})[int(step) + 1] = number


def _number(cell: object) -> float | None:
    """A finite number, or None for an empty, cut or non-finite cell."""
    try:
        number = float(cell) if isinstance(cell, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def paths_in(value: str) -> list[str]:
    """The paths of a list with commas; a path that exists may have commas in its own name."""
    parts, paths = value.split(","), list[str]()
    exists = os.path.exists  # of a name that is too long too, which a Path refuses
    while parts:
        sizes = range(len(parts), 0, -1)
        most = next((n for n in sizes if exists(",".join(parts[:n]))), 1)
        paths.append(",".join(parts[:most]))
        parts = parts[most:]
    return paths
