"""What is told to people when something fails."""

from __future__ import annotations


class UserError(Exception):
    """Something a person can mend: one line with the value, the place and the remedy.

    Commands print the message alone and exit with 1; a traceback appears only with `debug=true`.
    """


def first_line(error: BaseException) -> str:
    """What an error says, cut to a line; its type if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
