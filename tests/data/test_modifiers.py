"""Training pairs that are changed: by their share, alike in all processes, planned as they are."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import numpy as np
import pytest
from conf_nodes import corpus_of, node
from hypothesis import example, given
from hypothesis import strategies as st

from translate.data.corpus import Corpus
from translate.data.modifiers import ALONE, NAMES, Modified, Texts, title
from translate.data.module import TranslationData
from translate.data.sources import Modifiers

BUDGET = 200
PAIR = Texts("¿Dónde está Tom, María?", "Where is Tom, María?")
SHARES = {"upper": 0.2, "typos": 0.1, "merged": 0.2, "signs": 0.3}


def modifiers(**shares: float) -> Modifiers:
    return Modifiers.model_validate(dict.fromkeys(NAMES, 0.0) | shares)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    data = node("data", "toy", train=200, dev=10, test=5)
    return corpus_of(
        data, node("tokenizer", "bpe", vocab_size=600), cache=tmp_path_factory.mktemp("cache")
    )


def changed(corpus: Corpus, shares: dict[str, float], seed: int = 1) -> Modified:
    parts = [(part.pairs, corpus.tokenizers) for part in corpus.parts]
    return Modified(modifiers(**shares), corpus.train, parts, max_length=100, seed=seed)


def loaded(corpus: Corpus, **changes: object) -> TranslationData:
    options = {
        "max_length": 100, "tokens_per_batch": BUDGET, "pool_batches": 5, "workers": 0,
        "sampling": False, "guided": False, "seed": 1, "modifiers": modifiers(**SHARES),
    }  # fmt: skip
    return TranslationData(corpus, **options | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("upper", "¿DÓNDE ESTÁ TOM, MARÍA?", "WHERE IS TOM, MARÍA?"),
        ("title", "¿Dónde Está Tom, María?", "Where Is Tom, María?"),
        ("lower", "¿dónde está tom, maría?", "Where is Tom, María?"),
        ("unpunctuated", "Dónde está Tom, María", "Where is Tom, María"),
    ],
)
def test_a_modifier_changes_both_sides_alike(name: str, source: str, target: str) -> None:
    assert ALONE[name](PAIR, Random(1)) == Texts(source, target)


def test_capitals_of_a_title_stand_after_spaces() -> None:
    assert title(Texts("l'été, c'est ça", "x-ray"), Random(1)) == Texts("L'été, C'est Ça", "X-ray")


@given(st.integers(), st.text(), st.text(), st.sampled_from(sorted(ALONE)))
def test_any_pair_is_changed_the_same_way_twice_or_left(
    seed: int, source: str, target: str, name: str
) -> None:
    once, twice = (ALONE[name](Texts(source, target), Random(seed)) for _ in range(2))
    assert once == twice
    assert once != Texts(source, target)


@given(st.integers())
@example(26)  # a sign that the source has already
def test_a_sign_stands_on_both_sides_and_all_else_stays(seed: int) -> None:
    modified = ALONE["signs"](PAIR, Random(seed))
    assert modified is not None
    new = [
        {*(Counter(after) - Counter(before))} - {" "}
        for before, after in zip(PAIR, modified, strict=True)
    ]
    assert new[0] == new[1]
    if len(modified.source) - len(PAIR.source) > 3:  # no dash in place of a comma
        left = [[c for c in side if c not in new[0] | {" "}] for side in modified]
        same = [c for c in PAIR.source if c not in new[0] | {" "}]
        assert left[0][:-1] == same[: len(left[0]) - 1]


@given(st.integers())
def test_a_name_is_replaced_by_the_same_word_on_both_sides(seed: int) -> None:
    modified = ALONE["names"](PAIR, Random(seed))
    assert modified is not None
    words = [set(side.strip("¿?").replace(",", "").split()) for side in modified]
    assert len(words[0] & words[1]) == 2  # the new one, and the name that stayed
    assert ("Tom" in words[0]) != ("María" in words[0])


def test_a_slip_is_of_the_source_alone() -> None:
    slips = [ALONE["typos"](PAIR, Random(seed)) for seed in range(50)]
    sources = {slip.source for slip in slips if slip}
    assert len(sources) > 20
    assert all(abs(len(source) - len(PAIR.source)) <= 2 for source in sources)
    assert {slip.target for slip in slips if slip} == {PAIR.target}


def test_each_modifier_has_its_share_and_other_epochs_other_pairs(corpus: Corpus) -> None:
    shown = changed(corpus, SHARES)
    drawn = [[shown.texts(epoch, pair, 0) for pair in range(200)] for epoch in range(20)]
    for name, share in SHARES.items():
        count = sum(each[0] == name for epoch in drawn for each in epoch if each)
        assert count / 4000 == pytest.approx(share, abs=0.03), name
    assert drawn[0] != drawn[1]
    assert drawn[0] == [changed(corpus, SHARES).texts(0, pair, 0) for pair in range(200)]
    assert drawn[0] != [changed(corpus, SHARES, seed=2).texts(0, pair, 0) for pair in range(200)]


def test_batches_are_planned_for_the_pairs_as_they_are_changed(corpus: Corpus) -> None:
    data = loaded(corpus)
    plain = [batch.source.shape[1] for batch in islice(loaded(corpus, modifiers=modifiers())
                                                       .train_dataloader(), 30)]  # fmt: skip
    batches = list(islice(data.train_dataloader(), 30))
    for batch in batches:
        rows, widths = len(batch.ids), (batch.source.shape[1], batch.target_in.shape[1])
        assert rows == 1 or rows * max(widths) <= BUDGET
    assert max(batch.source.shape[1] for batch in batches) > max(plain)  # two sentences on a line


def test_what_is_changed_is_what_is_read(corpus: Corpus) -> None:
    data = loaded(corpus)
    shown, seen = changed(corpus, SHARES), 0
    for draws, batch in zip(data.batches(), islice(data.train_dataloader(), 8), strict=False):
        for draw, ids, length in zip(draws, batch.source, batch.source_lengths, strict=True):
            text = corpus.tokenizers.source.decode(ids[: length - 1].tolist())
            if modified := shown.texts(*draw):
                seen += 1
                assert text == corpus.tokenizers.source.normalised(modified[1].source)
    assert seen > 10


def test_workers_and_a_resumed_run_see_the_same(corpus: Corpus) -> None:
    def sources(count: int, **changes: object) -> list[np.ndarray]:
        data = loaded(corpus, **changes)
        data.skip = 12 - count
        return [batch.source.numpy() for batch in islice(data.train_dataloader(), count)]

    whole = sources(12)
    for other in (sources(12, workers=1), [None] * 5 + sources(7)):
        for expected, seen in zip(whole, other, strict=True):
            assert seen is None or np.array_equal(expected, seen)
