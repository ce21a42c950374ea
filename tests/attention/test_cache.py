"""The cache that the hypotheses of a sentence share, against a list of tokens for each of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from translate.attention.cache import Ancestry, Kept, KeysValues, KeyValueCache
from translate.models.seq2seq import rows_of

Randn = Callable[..., Tensor]
HEADS, D_K = 2, 3
Pasts = list[list[list[Tensor]]]  # sentence, hypothesis, token → its key (HEADS, D_K)


def read(pasts: Pasts, cache: KeyValueCache, ancestry: Ancestry) -> tuple[KeyValueCache, Ancestry]:
    """A new token of every hypothesis."""
    beam = len(pasts[0])
    new = torch.randn(len(pasts), HEADS, beam, D_K)
    for b, hypotheses in enumerate(pasts):
        pasts[b] = [[*past, new[b, :, n]] for n, past in enumerate(hypotheses)]
    ancestry = ancestry.grown(len(pasts), beam, like=new)
    kept = cache.append(KeysValues(new, -new))
    assert torch.equal(kept.values, -kept.keys)
    check(pasts, kept.keys, ancestry)
    return cache, ancestry


def check(pasts: Pasts, keys: Tensor, ancestry: Ancestry) -> None:
    """What a hypothesis sees are the tokens of its own past, each at its position."""
    positions = ancestry.positions(keys).expand(len(pasts), 1, 1, -1).flatten(1)
    for b, hypotheses in enumerate(pasts):
        for n, past in enumerate(hypotheses):
            seen = torch.ones_like(positions[b], dtype=torch.bool)
            if ancestry.bias is not None:
                seen = ancestry.bias[b, 0, n] == 0
            order = positions[b][seen].argsort()
            assert positions[b][seen][order].tolist() == list(range(len(past)))
            assert torch.equal(keys[b][:, seen][:, order], torch.stack(past, dim=1))


@given(data=st.data())
@settings(max_examples=30)
def test_every_hypothesis_sees_its_own_past(data: st.DataObject) -> None:
    """Whatever is chosen, and whichever sentences leave, with the columns nobody sees any more."""
    pasts: Pasts = [[[]] for _ in range(3)]
    cache = KeyValueCache.empty(len(pasts), HEADS, D_K, like=torch.zeros(1))
    ancestry = Ancestry(0)
    for _ in range(14):  # most often more than the 16 columns that there is room for
        cache, ancestry = read(pasts, cache, ancestry)
        beam = len(pasts[0])
        width = data.draw(st.integers(1, 3), label="beam")
        picks = st.lists(st.integers(0, beam - 1), min_size=width, max_size=width)
        chosen = [data.draw(picks, label="chosen") for _ in pasts]
        pasts = [[own[n] for n in some] for own, some in zip(pasts, chosen, strict=True)]
        rows = torch.tensor([[b * beam + n for n in some] for b, some in enumerate(chosen)])
        cache, ancestry = cache.select(rows.flatten()), ancestry.select(rows.flatten())
        places = st.lists(st.integers(0, len(pasts) - 1), min_size=1, max_size=3)
        if data.draw(st.booleans(), label="some leave"):
            stay = data.draw(places, label="stay")
            pasts = [pasts[b] for b in stay]
            sentences = torch.tensor(stay)
            ancestry, columns = ancestry.keep(sentences)
            cache = cache.keep(Kept(sentences, rows_of(sentences, width), columns))
            distinct = [len({id(key) for past in own for key in past}) for own in pasts]
            if columns is not None:
                assert cache.used == max(distinct)
