"""The toy pairs: their counts and lengths, their split, their gold alignments."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections import Counter

import pytest

from translate.data.sources import GRAMMAR
from translate.errors import UserError
from translate.extras.toy import ToyPair, german, realise, toy_pairs, words
from translate.extras.toy.sampler import Sampler
from translate.extras.toy.syntax import combinations, is_held_out
from translate.extras.toy.words import Noun, lexicon

SMALL = {"train": 2000, "dev": 150, "test": 150, "min_words": 5, "max_words": 15, "seed": 1}
FUNCTION_WORDS = {"die", "der", "das", "dem", "den", ","}  # may have no counterpart


@pytest.fixture(scope="module")
def pairs() -> dict[str, list[ToyPair]]:
    return toy_pairs(**SMALL)


# The pairs


def test_there_are_500_lemmas_a_side() -> None:
    entries = lexicon()
    german_lemmas = (
        {noun.german for noun in entries.nouns},
        {verb.particle + verb.infinitive for verb in entries.verbs},
        {adjective.german for adjective in entries.adjectives},
        {phrase.german for phrase in entries.phrases},
    )
    english_lemmas = (
        {noun.english for noun in entries.nouns},
        {verb.english for verb in entries.verbs},
        {adjective.english for adjective in entries.adjectives},
        {phrase.english for phrase in entries.phrases},
    )
    assert sum(map(len, german_lemmas)) >= 500
    assert sum(map(len, english_lemmas)) >= 500


def test_the_lexicon_names_every_word_once() -> None:
    entries = lexicon()
    for lemma_list in (
        [noun.german for noun in entries.nouns],
        [noun.english for noun in entries.nouns],
        [verb.lemma for verb in entries.verbs],
        [adjective.german for adjective in entries.adjectives],
        [adjective.english for adjective in entries.adjectives],
        [phrase.german for phrase in entries.phrases],
        [phrase.english for phrase in entries.phrases],
    ):
        assert [lemma for lemma, count in Counter(lemma_list).items() if count > 1] == []


def test_counts_are_as_asked(pairs: dict[str, list[ToyPair]]) -> None:
    assert {split: len(found) for split, found in pairs.items()} == {
        "train": 2000,
        "dev": 150,
        "test": 150,
    }


def test_sources_are_distinct_over_all_splits(pairs: dict[str, list[ToyPair]]) -> None:
    sources = [pair.source for found in pairs.values() for pair in found]
    assert len(set(sources)) == len(sources)


@pytest.mark.parametrize("lengths", [(3, 6), (5, 15), (30, 40), (41, 80), (80, 80)])
def test_lengths_are_within_the_range(lengths: tuple[int, int]) -> None:
    low, high = lengths
    found = toy_pairs(train=40, dev=2, test=2, min_words=low, max_words=high, seed=2)
    counts = [len(pair.source.split(" ")) for split in found.values() for pair in split]
    assert low <= min(counts)
    assert max(counts) <= high


def test_lengths_spread_over_the_range(pairs: dict[str, list[ToyPair]]) -> None:
    counts = Counter(len(pair.source.split(" ")) for pair in pairs["train"])
    assert set(counts) == set(range(5, 16))
    assert min(counts.values()) > 0.02 * sum(counts.values())


def test_the_same_seed_gives_the_same_pairs_in_another_process(
    pairs: dict[str, list[ToyPair]],
) -> None:
    program = (
        "import hashlib; from translate.extras.toy import toy_pairs;"
        f"print(hashlib.sha256(repr(toy_pairs(**{SMALL!r})).encode()).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == hashlib.sha256(repr(pairs).encode()).hexdigest()


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": -1}, "data.train is -1"),
        ({"min_words": 0}, "data.min_words is 0"),
        ({"max_words": 4}, "data.max_words 4 is less than data.min_words 5"),
        ({"min_words": 1, "max_words": 2}, "found only 0 of 150 distinct test pairs"),
    ],
)
def test_impossible_requests_name_value_and_remedy(change: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        toy_pairs(**{**SMALL, **change})


def test_an_exhausted_range_says_how_many_pairs_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("translate.extras.toy.PATIENCE", 20)
    with pytest.raises(UserError, match=r"found only [1-9][\d,]* of 387,420,489 .* ask for fewer"):
        toy_pairs(train=9**9, dev=0, test=0, min_words=3, max_words=3, seed=1)


# The split


def test_training_has_no_held_out_combination_and_test_has_no_other() -> None:
    seen = _combinations(Sampler("a", held_out=False))
    unseen = _combinations(Sampler("b", held_out=True))
    assert not seen & unseen
    assert not any(is_held_out(pair) for pair in seen)
    assert all(is_held_out(pair) for pair in unseen)


def _combinations(sampler: Sampler) -> set[tuple[str, str]]:
    return {pair for _ in range(1500) for pair in combinations(sampler.sentence(12))}


def test_held_out_combinations_are_absent_from_training_text(
    pairs: dict[str, list[ToyPair]],
) -> None:
    """Without the tree: no adjective stands before a noun it is held out from."""
    noun_of = {form: noun for noun in lexicon().nouns for form in _noun_forms(noun)}
    adjective_of = {
        german.adjective_form(adjective, words.DEFINITE, "m", number, "nom"): adjective
        for adjective in lexicon().adjectives
        for number in ("sg", "pl")
    }
    checked = Counter[bool]()
    for split in ("train", "test"):
        for pair in pairs[split]:
            tokens = pair.source.split(" ")
            for first, second in itertools.pairwise(tokens):
                if first in adjective_of and second in noun_of:
                    combination = adjective_of[first].german, noun_of[second].german
                    assert is_held_out(combination) == (split == "test"), pair.source
                    checked[split == "test"] += 1
    assert checked[False] > 500
    assert checked[True] > 20


def _noun_forms(noun: Noun) -> set[str]:
    numbers = ("sg",) if noun.mass else ("sg", "pl")
    return {german.noun_form(noun, number, case) for number in numbers for case in ("nom", "dat")}


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


def test_at_least_half_of_the_pairs_are_reordered(pairs: dict[str, list[ToyPair]]) -> None:
    for found in pairs.values():
        assert sum(map(_is_reordered, found)) > 0.5 * len(found)


def _is_reordered(pair: ToyPair) -> bool:
    return any(i < k and j > m for i, j in pair.alignment for k, m in pair.alignment)


def test_links_are_many_to_one_in_both_directions(pairs: dict[str, list[ToyPair]]) -> None:
    def doubled(position: int) -> int:
        return sum(
            len({link[position] for link in pair.alignment}) < len(pair.alignment)
            for pair in pairs["train"]
        )

    assert doubled(0) > 0.2 * len(pairs["train"])  # Haustür: front door
    assert doubled(1) > 0.2 * len(pairs["train"])  # hat gesehen: saw


def test_english_is_a_function_of_german() -> None:
    """Short sentences of few shapes meet each other often enough to disagree."""
    sampler = Sampler("function", held_out=False)
    target_of: dict[str, str] = {}
    repeated = 0
    for _ in range(4000):
        pair = realise(sampler.sentence(4))
        repeated += pair.source in target_of
        assert target_of.setdefault(pair.source, pair.target) == pair.target
    assert repeated > 100


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
