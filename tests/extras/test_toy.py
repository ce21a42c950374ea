"""The toy pairs: their counts and lengths, their split, their gold alignments."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from conf_nodes import node

from translate.errors import UserError
from translate.extras.toy import ToyPair, realise, toy_pairs
from translate.extras.toy.sampler import SentenceSampler
from translate.extras.toy.source import GRAMMAR, Toy
from translate.extras.toy.syntax import combinations, is_held_out
from translate.extras.toy.words import lexicon

SMALL = {"train": 2000, "dev": 150, "test": 150, "min_words": 5, "max_words": 15, "seed": 1}
FUNCTION_WORDS = {"die", "der", "das", "dem", "den", ","}  # may have no counterpart


@pytest.fixture(scope="module")
def pairs() -> dict[str, list[ToyPair]]:
    return toy_pairs(**SMALL)


# The pairs


def test_each_of_500_words_a_side_is_named_once() -> None:
    entries = lexicon()
    for words_of_a_side in (
        [*(n.german for n in entries.nouns), *(v.lemma for v in entries.verbs),
         *(a.german for a in entries.adjectives), *(p.german for p in entries.phrases)],
        [*(n.english for n in entries.nouns), *{v.english for v in entries.verbs},
         *(a.english for a in entries.adjectives), *(p.english for p in entries.phrases)],
    ):  # fmt: skip
        assert len(words_of_a_side) >= 500
        assert len({*words_of_a_side}) > 0.98 * len(words_of_a_side)  # liebe: dear and love


def test_as_many_distinct_pairs_as_asked_for(pairs: dict[str, list[ToyPair]]) -> None:
    assert [len(pairs[split]) for split in ("train", "dev", "test")] == [2000, 150, 150]
    assert len({pair.source for split in pairs.values() for pair in split}) == 2300


def test_an_impossible_range_is_refused_and_an_exhausted_one_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=r"data\.max_words 4 is less than data\.min_words 5"):
        toy_pairs(**{**SMALL, "max_words": 4})
    monkeypatch.setattr("translate.extras.toy.PATIENCE", 20)
    with pytest.raises(UserError, match=r"found only [1-9][\d,]* of 387,420,489 .* ask for fewer"):
        toy_pairs(train=9**9, dev=0, test=0, min_words=3, max_words=3, seed=1)


@pytest.mark.parametrize("lengths", [(3, 6), (5, 15), (30, 40), (41, 80), (80, 80)])
def test_lengths_are_within_the_range(lengths: tuple[int, int]) -> None:
    low, high = lengths
    found = toy_pairs(train=10, dev=2, test=2, min_words=low, max_words=high, seed=2)
    counts = [len(pair.source.split(" ")) for split in found.values() for pair in split]
    assert low <= min(counts)
    assert max(counts) <= high


def test_lengths_spread_over_the_range(pairs: dict[str, list[ToyPair]]) -> None:
    counts = Counter(len(pair.source.split(" ")) for pair in pairs["train"])
    assert set(counts) == set(range(5, 16))
    assert min(counts.values()) > 0.02 * sum(counts.values())


def test_these_are_the_pairs_that_data_toy_names(pairs: dict[str, list[ToyPair]]) -> None:
    """Other pairs need another GRAMMAR, or corpora and runs of the two would be mixed."""
    digest = hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]
    assert (GRAMMAR[:8], digest) == ("a9044b7e", "a630383d389a61b3")


def test_another_seed_gives_other_pairs() -> None:
    first, second = (
        toy_pairs(train=50, dev=0, test=0, min_words=5, max_words=15, seed=seed)["train"]
        for seed in (1, 2)
    )
    assert not {pair.source for pair in first} & {pair.source for pair in second}


def test_more_training_pairs_leave_all_others_as_they_are(pairs: dict[str, list[ToyPair]]) -> None:
    fewer = toy_pairs(**{**SMALL, "train": 100})
    assert fewer["train"] == pairs["train"][:100]
    assert fewer["dev"] == pairs["dev"]
    assert fewer["test"] == pairs["test"]


# The split


def test_training_has_no_held_out_combination_and_test_has_no_other() -> None:
    seen = _combinations(SentenceSampler("a", held_out=False))
    unseen = _combinations(SentenceSampler("b", held_out=True))
    assert not seen & unseen
    assert not any(is_held_out(pair) for pair in seen)
    assert all(is_held_out(pair) for pair in unseen)


def _combinations(sampler: SentenceSampler) -> set[tuple[str, str]]:
    return {pair for _ in range(1500) for pair in combinations(sampler.sentence(12))}


def test_test_words_are_seen_in_training(pairs: dict[str, list[ToyPair]]) -> None:
    """At 2,000 pairs nearly all word forms are known already; at 20,000, all but one in 500."""
    for side in ("source", "target"):
        known = {word for pair in pairs["train"] for word in getattr(pair, side).split(" ")}
        tested = [word for pair in pairs["test"] for word in getattr(pair, side).split(" ")]
        assert sum(word in known for word in tested) > 0.95 * len(tested)


# The alignment


def test_alignments_are_sorted_links_between_existing_words(
    pairs: dict[str, list[ToyPair]],
) -> None:
    for pair in pairs["train"]:
        sizes = len(pair.source.split(" ")), len(pair.target.split(" "))
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in pair.alignment)


def test_every_content_word_is_linked(pairs: dict[str, list[ToyPair]]) -> None:
    for pair in [*pairs["train"], *pairs["test"]]:
        source, target = pair.source.split(" "), pair.target.split(" ")
        unlinked = set(range(len(source))) - {i for i, _ in pair.alignment}
        loose = {source[i] for i in unlinked}
        # besides commas, only the article of what is possessed: das Haus der Frau
        assert all(word in FUNCTION_WORDS for word in loose), pair.source
        assert {j for _, j in pair.alignment} == set(range(len(target))), pair.target


def test_links_cross_and_are_many_to_one_in_both_directions(
    pairs: dict[str, list[ToyPair]],
) -> None:
    def crosses(pair: ToyPair) -> bool:
        return any(i < k and j > m for i, j in pair.alignment for k, m in pair.alignment)

    assert sum(map(crosses, pairs["train"])) > 0.5 * len(pairs["train"])

    def doubled(position: int) -> int:
        return sum(
            len({link[position] for link in pair.alignment}) < len(pair.alignment)
            for pair in pairs["train"]
        )

    assert doubled(0) > 0.2 * len(pairs["train"])  # Haustür: front door
    assert doubled(1) > 0.2 * len(pairs["train"])  # hat gesehen: saw


def test_english_is_a_function_of_german() -> None:
    """Short sentences of few shapes meet each other often enough to disagree."""
    sampler = SentenceSampler("function", held_out=False)
    target_of: dict[str, str] = {}
    repeated = 0
    for _ in range(2000):
        pair = realise(sampler.sentence(4))
        repeated += pair.source in target_of
        assert target_of.setdefault(pair.source, pair.target) == pair.target
    assert repeated > 30


# The German


def test_finite_verb_comes_last_in_a_subordinate_clause(pairs: dict[str, list[ToyPair]]) -> None:
    """After `dass`, a clause of one piece ends in a verb, never in a (capitalised) noun."""
    finals = Counter[bool]()
    for pair in pairs["train"]:
        _, found, clause = pair.source.partition(" , dass ")
        if found and clause.count(",") == 0 and " und " not in clause and " oder " not in clause:
            last = clause.split(" ")[-2]
            finals[last[0].islower()] += 1
    assert finals[True] > 50
    assert not finals[False]


def test_the_corpus_turns_with_its_alignment(tmp_path: Path) -> None:
    data = node("data", "toy", train=20, dev=2, test=2, min_words=4, max_words=9)
    there = Toy.model_validate(data).open(tmp_path)
    back = Toy.model_validate(data | {"source": "en", "target": "de"}).open(tmp_path)
    assert {split: len(list(pairs)) for split, pairs in there.items()} == {
        "train": 20, "dev": 2, "test": 2
    }  # fmt: skip
    for forth, turned in zip(there["train"], back["train"], strict=True):
        assert (forth.source, forth.target) == (turned.target, turned.source)
        assert {(s, t) for s, t in forth.alignment} == {(s, t) for t, s in turned.alignment}
        assert max(s for s, _ in forth.alignment) < len(forth.source.split())
    with pytest.raises(UserError, match="data=toy is German-English"):
        Toy.model_validate(data | {"source": "fr"}).open(tmp_path)
    changes: list[dict[str, int]] = [{}, {"seed": 2}, {"train": 21}]
    prints = {Toy.model_validate(data | change).fingerprint(tmp_path) for change in changes}
    assert len(prints) == 3
