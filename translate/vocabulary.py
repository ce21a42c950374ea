"""The ids of the four special tokens, the same in every vocabulary of this package."""

from __future__ import annotations

PAD, UNK, BOS, EOS = 0, 1, 2, 3
