"""train.log: what a run says, kept in its folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class _LogFile(logging.FileHandler):
    """Each line is on the console too: where the disk is full, one that is lost needs no word."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing; logging itself prints a traceback for each line."""


@contextmanager
def logged_to(path: Path, *, spoken: tuple[type[Exception], ...]) -> Iterator[None]:
    """Everything that is logged meanwhile also goes to a file, and how it ended.

    Args:
        spoken: errors that need no name beside what they say.
    """
    root = logging.getLogger()
    logging.getLogger("translate").setLevel(logging.INFO)
    handler = _LogFile(path, encoding="utf-8", delay=True)  # a run that is refused has no log
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    root.addHandler(handler)
    try:
        yield
    except Exception as error:
        if handler.stream is not None:  # there is a log: of how the run ended, too
            name = "" if isinstance(error, spoken) else f"{type(error).__name__}: "
            handler.handle(logging.makeLogRecord({"msg": f"ended: {name}{error}"}))
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
