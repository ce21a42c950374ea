"""metrics.csv: a row a report, and no row lost when a run is resumed."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from translate.durable import replacing


class MetricsFile(Logger):
    """Appends to `path`; a new column rewrites the file once.

    What is reached again (after a crash, from an older checkpoint) is replaced: a row of the same
    columns, and all from its step on where later ones have come. What a kill left of a row is
    dropped.
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
            self.rows = list(reader)
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
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)

    def _without(self, row: Mapping[str, str]) -> list[dict[str, str]]:
        """The rows that `row` does not replace."""
        step = int(row["step"])
        last = int(self.rows[-1]["step"]) if self.rows else -1
        if last < step:
            return self.rows
        return [
            old
            for old in self.rows
            if int(old["step"]) < step or (last == step and _filled(old) != _filled(row))
        ]

    def _rewrite(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        with replacing(self.path) as file:
            file.write(text.getvalue().encode())


def _filled(row: Mapping[str, str]) -> set[str]:
    return {column for column, value in row.items() if value}
