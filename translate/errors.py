"""Errors as people read them."""

from __future__ import annotations


class UserError(Exception):
    """A fault that a person can mend: one line with the value, the place and the remedy.

    Commands print the message alone and exit with 1; a traceback appears only with `debug=true`.
    """


class UsageError(UserError):
    """The arguments or the configuration are wrong, and nothing was started: exit status 2."""


class JobFailedError(BaseException):
    """A job's exception (its `__cause__`) on its way past Hydra, which would print it itself."""


def first_line(error: BaseException) -> str:
    """Return an error's message, cut to a line; its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
