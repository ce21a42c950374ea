"""A lexical shortlist: learned from sentence pairs, and kept in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError

from translate.data.corpus import Corpus
from translate.data.pairs import in_order
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.extras.lexicon import Ids, Lexicon
from translate.extras.shortlist_search import Shortlist
from translate.files import read_plain, replacing
from translate.vocabulary import PAD

BLOCK = 3_000_000  # pieces times pieces that are aligned at a time: some hundred megabytes
LARGEST = 1 << 30  # bytes: a vocabulary of a million pieces, with a hundred candidates each
SPARE = 4  # times as many translations as wanted are remembered from block to block

Counts = Float[np.ndarray, "_"]
Pieces = tuple[Ids, Ids]  # of a source sentence and of its translation


def learn_from_corpus(
    corpus: Corpus,
    tokenizers: Tokenizers,
    path: Path,
    *,
    run: Path,
    frequent: int,
    likeliest: int,
) -> int:
    """Learn from a corpus' training pairs for a run's tokenizers; return the number of pairs.

    Raises:
        UserError: the corpus has other tokenizers, or the file `path` cannot be written.
    """
    if not torch.equal(_fingerprint(tokenizers), _fingerprint(corpus.tokenizers)):
        raise UserError(
            f"the tokenizer of this corpus is not the one that {run} was trained with: give "
            "the same data= and tokenizer= as then"
        )
    sides = (in_order(corpus.train, f"{side}_ids") for side in ("source", "target"))
    pairs = zip(*sides, strict=True)
    write(path, learn(pairs, tokenizers, frequent=frequent, likeliest=likeliest), tokenizers)
    return len(corpus.train)


def learn(
    pairs: Iterable[Pieces], tokenizers: Tokenizers, *, frequent: int, likeliest: int
) -> Shortlist:
    """Return the `frequent` target pieces and `likeliest` translations of each source piece.

    Links are those that IBM Model 1 expects (Brown et al. 1993), learned block by block, so that
    memory is bounded. In a joint vocabulary each piece is a candidate of itself: names are copied.
    """
    sources, targets = len(tokenizers.source), len(tokenizers.target)
    seen = np.zeros(targets, np.int64)
    keys: Ids = np.zeros(0, np.int64)  # source piece · targets + target piece
    counts: Counts = np.zeros(0)
    for block in _blocks(pairs):
        sides = [
            [np.unique(pieces).astype(np.int64) for pieces in s] for s in zip(*block, strict=True)
        ]
        seen += np.bincount(np.concatenate(sides[1]), minlength=targets)
        lexicon = Lexicon(*sides, num_sources=sources, num_targets=targets)
        keys, place = np.unique(np.concatenate([keys, lexicon.keys]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts, lexicon.count]), len(keys))
        best, _ = _best(keys // targets, counts, SPARE * likeliest)
        keys, counts = keys[best], counts[best]
    best, rank = _best(keys // targets, counts, likeliest)
    table = np.full((sources, likeliest), PAD)
    table[keys[best] // targets, rank] = keys[best] % targets
    if tokenizers.joint:
        table = np.concatenate([np.arange(sources)[:, None], table], axis=1)
    order = np.argsort(-seen, kind="stable")[: min(frequent, np.count_nonzero(seen))]
    return Shortlist(torch.from_numpy(order), torch.from_numpy(table))


def _blocks(pairs: Iterable[Pieces]) -> Iterator[list[Pieces]]:
    """Group pairs so that each group takes as much memory to align."""
    block: list[Pieces] = []
    work = 0
    for source, target in pairs:
        block.append((source, target))
        work += len(source) * len(target)
        if work >= BLOCK:
            yield block
            block, work = [], 0
    if block:
        yield block


def _best(sources: Ids, counts: Counts, most: int) -> tuple[Ids, Ids]:
    """Return the places of the highest counts of each source piece, and their ranks."""
    order = np.lexsort((-counts, sources))
    starts = np.flatnonzero(np.diff(sources[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return order[rank < most], rank[rank < most]


def write(path: Path, shortlist: Shortlist, tokenizers: Tokenizers) -> None:
    """Write a shortlist for `read`, with the tokenizers that it is for.

    Raises:
        UserError: the file cannot be written.
    """
    tensors = {
        "frequent": shortlist.frequent.int(),
        "likeliest": shortlist.likeliest.int(),
        "tokenizers": _fingerprint(tokenizers),
    }
    try:
        with replacing(path) as file:
            file.write(safetensors.torch.save(tensors))
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}): choose another file with output="
        ) from error


def read(path: Path, tokenizers: Tokenizers) -> Shortlist:
    """Return the shortlist that `translate shortlist` has learned for these tokenizers.

    Raises:
        UserError: the file cannot be read, is none, or was learned for others.
    """
    try:
        tensors = safetensors.torch.load(read_plain(path, largest=LARGEST))
        frequent, likeliest, made_for = (
            tensors[name] for name in ("frequent", "likeliest", "tokenizers")
        )
    except OSError as error:
        remedy = "write one with translate shortlist"
        raise UserError(f"shortlist={path} cannot be read ({error.strerror}): {remedy}") from error
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"shortlist={path} is not a shortlist: write one with translate shortlist"
        ) from error
    if made_for.dtype != torch.uint8 or not torch.equal(made_for, _fingerprint(tokenizers)):
        raise UserError(
            f"shortlist={path} was learned for other tokenizers than those of this run: learn one "
            "with translate shortlist"
        )
    return Shortlist(frequent.long(), likeliest.long())


def _fingerprint(tokenizers: Tokenizers) -> torch.Tensor:
    """Return the SHA-256 of both, as bytes."""
    digests = bytes.fromhex(tokenizers.source.sha256 + tokenizers.target.sha256)
    return torch.tensor(list(digests), dtype=torch.uint8)
