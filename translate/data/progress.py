"""A progress bar on stderr for whatever takes longer than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PATIENCE = 2.0  # seconds before anything is shown


@contextmanager
def progress(
    description: str, total: int | None = None, *, counted: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts steps; a spinner alone where there is neither total nor count.

    Nothing appears before `PATIENCE` is over, nor on a stderr that is no terminal, and nothing
    remains after.
    """
    counts = (BarColumn(), MofNCompleteColumn()) if total or counted else ()
    left = (TextColumn("•"), TimeRemainingColumn()) if total else ()
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), *counts, TimeElapsedColumn(), *left
    )  # fmt: skip
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(description, total=total)
    timer = Timer(PATIENCE, bar.start)
    timer.daemon = True
    if console.is_terminal:
        timer.start()
    try:
        yield lambda steps: bar.advance(task, steps)
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # a bar that is just being started must not outlive the step
        if bar.live.is_started:  # stopping one that never began would still print an empty line
            bar.stop()
