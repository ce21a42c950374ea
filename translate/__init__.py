"""Neural machine translation with attention: `translate.load("runs/demo").translate(["…"])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from translate.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from translate.inference.translator import Translator
    from translate.search import Search

__all__ = ["__version__", "load"]


def load(
    run: str | Path,
    *,
    device: str = "auto",
    search: Search | Mapping[str, Any] | None = None,
    split_sentences: bool = True,
) -> Translator:
    """Return the translator of a finished run.

    Args:
        run: the folder of a run, or of a bundle.
        device: `auto` takes a GPU if there is one; else `cpu`, `cuda`, `cuda:1`, `mps`.
        search: in place of the run's own; a mapping holds keys of conf/search, all of
            them unless it is of the same kind.
        split_sentences: translate each sentence of a line by itself, as `translate text` does,
            which also has a guard and tells its confidence.

    The process keeps the memory it has from then on, for speed (glibc alone).

    Raises:
        UserError: nothing to load there, or files that are damaged or do not belong together.
    """
    from translate.inference import translator  # torch is imported when it is needed

    return translator.load(run, device=device, search=search, split_sentences=split_sentences)
