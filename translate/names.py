"""Tables of names: what lies in `translate/extras/` is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any


def on_demand(name: str) -> Any:
    """Import the object that `module:attribute` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
