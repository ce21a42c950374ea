"""The Jinja2 templates of all pages."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def templates() -> Environment:
    """The environment of the templates; texts are escaped, for a stranger may have written them."""
    return Environment(
        loader=PackageLoader("translate.extras"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
