"""metrics.csv: a row a report, and no row lost when a run is resumed."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from translate.errors import UserError
from translate.files import naming, replacing


class MetricsFile(Logger):
    """Appends to `path`; a new column rewrites the file once.

    What is reached again (after a crash, from an older checkpoint) is replaced, with all that came
    after it: the row of the same step and columns. What a kill left of a row is dropped.

    Raises:
        UserError: the file is there, and is none of these.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        self.rows: list[dict[str, str]] = []
        if path.exists():
            text = path.read_bytes().decode("utf-8", "replace")
            whole, _, torn = text.rpartition("\n")  # a kill may leave a part of the last row
            reader = csv.DictReader(io.StringIO(whole, newline=""))
            self.rows = [_checked(row, path, reader.line_num) for row in reader]
            self.columns = list(reader.fieldnames or self.columns)
            if torn:
                self._rewrite()

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """The run keeps its configuration in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = {"step": str(step)} | {
            key: f"{value:.6g}" for key, value in sorted(metrics.items()) if key != "epoch"
        }
        before = len(self.rows)
        self.rows = self._without(row)
        reached_again = len(self.rows) < before
        new_columns = [key for key in row if key not in self.columns]
        self.columns += new_columns
        self.rows.append(row)
        if reached_again or new_columns or len(self.rows) == 1:
            self._rewrite()
        else:
            with naming(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)

    def _without(self, row: Mapping[str, str]) -> list[dict[str, str]]:
        """The rows that `row` does not replace."""
        step = int(row["step"])
        if not self.rows or int(self.rows[-1]["step"]) < step:
            return self.rows
        before = [old for old in self.rows if int(old["step"]) < step]
        of_step = [old for old in self.rows if int(old["step"]) == step]
        return before + list(takewhile(lambda old: _filled(old) != _filled(row), of_step))

    def _rewrite(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        with replacing(self.path) as file:
            file.write(text.getvalue().encode())


def _checked(row: dict[str, str], path: Path, line: int) -> dict[str, str]:
    """The row, if it is one: a step, and no more fields than columns."""
    if None in row or not (row.get("step") or "").isdecimal():
        raise UserError(
            f"{path}, line {line} is not a row of metrics: fix it, or remove the file (the run "
            "can resume without it)"
        )
    return row


def _filled(row: Mapping[str, str]) -> set[str]:
    return {column for column, value in row.items() if value}
