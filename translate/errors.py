"""The one exception that is meant for people."""

from __future__ import annotations


class UserError(Exception):
    """Something a person can mend: one line with the value, the place and the remedy.

    Commands print the message alone and exit with 1; a traceback appears only with `debug=true`.
    """
