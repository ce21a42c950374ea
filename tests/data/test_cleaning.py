"""Cleaning keeps the right pairs and accounts for each of the others."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conf_nodes import corpus_of, node
from hypothesis import example, given
from hypothesis import strategies as st

from translate import config as schema
from translate.data import corpus as corpus_module
from translate.data import pairs
from translate.data.cleaning import (
    RULES,
    Cleaning,
    Dropped,
    Drops,
    clean,
    drop_overlap,
    tidy,
)
from translate.data.corpus import KINDS
from translate.data.pairs import Pair, write_pairs
from translate.data.selection import select
from translate.errors import UserError


@pytest.fixture
def rules():
    return Cleaning(
        replace=[],
        max_characters=40,
        length_ratio=3.0,
        ratio_slack=10,
        drop_identical=True,
        drop_duplicates=True,
    )


def cleaned(pairs, rules):
    with tempfile.TemporaryDirectory() as folder:
        drops = Drops("main")
        kept = clean(pairs, rules, Path(folder) / "pairs", drops)
        return list(kept), drops.counts


@pytest.mark.parametrize(
    ("pair", "rule"),
    [
        (("", "x"), "empty"),
        (("x", ""), "empty"),
        (("x", "\u200b"), "empty"),
        (("\u200e\u200f \x01", "x"), "empty"),
        (("a" * 41, "a" * 40), "too_long"),
        (("a" * 40, "b" * 40), None),
        (("a" * 20 + "b", "."), None),
        (("a" * 24, "."), "length_ratio"),
        (("OK!", "ok!"), "identical"),
        (("Go.", "Ve."), None),
    ],
)
def test_each_rule(rules, pair, rule):
    kept, dropped = cleaned([Pair(*pair)], rules)
    assert (len(kept), dict(dropped)) == ((0, {rule: 1}) if rule else (1, {}))


def test_many_pairs_of_unlike_length_are_told(rules, caplog: pytest.LogCaptureFixture):
    chinese = "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。"
    english = (
        "All human beings are born free and equal in dignity and rights. They are endowed with "
        "reason and conscience and should act towards one another in a spirit of brotherhood."
    )
    longer = rules.model_copy(update={"max_characters": None})
    assert cleaned([Pair(chinese, english)], longer)[1] == {"length_ratio": 1}
    assert "length_ratio = 3 drops 1 of 1 pairs" in caplog.text
    assert "6 suits Chinese and English" in caplog.text
    caplog.clear()
    wide = longer.model_copy(update={"length_ratio": 6.0})
    assert len(cleaned([Pair(chinese, english)], wide)[0]) == 1
    fine = [Pair(f"{n} one", f"{n} two") for n in range(19)]  # one of twenty is not many
    assert cleaned([*fine, Pair("a" * 24, ".")], rules)[1] == {"length_ratio": 1}
    assert caplog.text == ""


def test_duplicates_go_but_other_translations_stay(rules):
    pairs = [Pair("a b", "x"), Pair("a b", "y"), Pair("a b", "x")]
    kept, dropped = cleaned(pairs, rules)
    assert kept == pairs[:2]
    assert dropped == {"duplicate": 1}


texts = st.text("ab \n", max_size=60)


@given(pairs=st.lists(st.builds(Pair, texts, texts, alignment=st.just(()))))
def test_every_pair_is_kept_or_counted_and_kept_pairs_are_clean(pairs):
    rules = Cleaning(
        replace=[], max_characters=40, length_ratio=3.0, ratio_slack=1, drop_identical=True,
        drop_duplicates=True,
    )  # fmt: skip
    kept, dropped = cleaned(pairs, rules)
    assert len(kept) + dropped.total() == len(pairs)
    assert set(dropped) <= set(RULES)
    assert cleaned(kept, rules) == (kept, {})


def test_tidy_replaces_in_order_and_joins_spaces(rules):
    replace = [(r"\(\d+:\d+\)", ""), (r"-?\[([^\]]*)\]", r"\1"), ("`", "'")]
    rules = rules.model_copy(update={"replace": replace})
    (pair,) = tidy([Pair("(7:26) of  -[fruits]\t", "God`s\u00a0son")], rules)
    assert pair == Pair("of fruits", "God's son")


def test_an_alignment_does_not_outlive_words_that_are_replaced(rules):
    pairs = [Pair("a b", "c d", alignment=((0, 0), (1, 1)))]
    assert list(tidy(pairs, rules)) == pairs
    (pair,) = tidy(pairs, rules.model_copy(update={"replace": [("a ", "")]}))
    assert pair == Pair("b", "c d")


def test_a_bad_expression_is_a_problem_of_the_configuration(rules):
    node = rules.model_dump() | {"replace": [["(", ""]]}
    (problem,) = schema.problems(Cleaning, node, "data.cleaning")
    assert "'(' is not a regular expression" in problem
    for replacement in (r"<n\1>", r"y\qz"):
        node = rules.model_dump() | {"replace": [[r"\d+", replacement]]}
        (problem,) = schema.problems(Cleaning, node, "data.cleaning")
        assert f"{replacement!r} cannot replace what '\\\\d+' finds (" in problem


def test_overlap_counts_either_side_after_normalising(rules, tmp_path):
    train = [
        Pair("Guten Tag", "Hi"), Pair("Hallo", "hello  there"), Pair("Ja", "Yes"),
        Pair("می خوانم", "I read"),
    ]  # fmt: skip
    held_out = [
        Pair("guten  tag", "Good day"), Pair("Servus", "Hello there"),
        Pair("می\u200cخوانم", "I am reading"),
    ]  # fmt: skip
    kept, dropped = drop_overlap(write_pairs(tmp_path / "train", train), held_out, rules)
    assert (list(kept), dropped) == ([Pair("Ja", "Yes")], 3)


def test_overlap_is_looked_for_before_and_after_replacing(rules, tmp_path):
    rules = rules.model_copy(update={"replace": [("`", "'")]})
    train = [Pair("it's", "a"), Pair("x'y", "b"), Pair("`", "c"), Pair("so", "d")]
    held_out = [Pair("It`s", "e"), Pair("f", "`"), Pair("`", "B")]
    kept, dropped = drop_overlap(write_pairs(tmp_path / "train", train), held_out, rules)
    assert (list(kept), dropped) == ([Pair("so", "d")], 3)


HELD_OUT = [("der Abend", "the evening"), ("der Morgen", "the morning")]
FINE = [(f"Satz {n} ist da", f"sentence {n} is here") for n in range(8)]
# a line for each rule, and the rule
DIRT = [
    (("", "nothing"), "empty"),
    (("x" * 90, "y" * 90), "too_long"),
    (("kurz", "very " * 12), "length_ratio"),
    (("gleich", "Gleich"), "identical"),
    (FINE[3], "duplicate"),
    (("DER  ABEND", "that evening"), "overlap"),
]


def data(folder: Path, **changes: Any) -> dict[str, Any]:
    """Two columns and a domain under a header, and the further corpus `more`."""
    merged = node(
        "data", "tsv", source="de", target="en", train=str(folder / "train.tsv"),
        dev=str(folder / "dev.tsv"), header=True, hold_out={"dev": 1, "test": 0},
        extra={"more": {"source": str(folder / "more.de"), "target": str(folder / "more.en")}},
    )  # fmt: skip
    rules = {"max_characters": 80, "replace": [["<[^>]*>", ""]]} | changes.pop("cleaning", {})
    return merged | {"cleaning": merged["cleaning"] | rules} | changes


def write(folder: Path, main: Sequence[Sequence[str]], more: Sequence[Sequence[str]]) -> None:
    for name, rows in (("train", main), ("dev", [(*pair, "") for pair in HELD_OUT])):
        text = "".join(f"{line}\n" for line in ("de\ten\tdomain", *map("\t".join, rows)))
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8", newline="")
    for side, language in enumerate(("de", "en")):
        text = "".join(f"{pair[side]}\n" for pair in more)
        (folder / f"more.{language}").write_text(text, encoding="utf-8", newline="")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Each rule drops a pair of the main corpus, and one of `more`."""
    main = [pair for pair, _ in DIRT]
    write(tmp_path, [(*pair, "") for pair in (*FINE, *main)], [*FINE[:4], *main])
    return tmp_path


def tokenizer() -> dict[str, Any]:
    return node("tokenizer", "char", vocab_size=60, hard_vocab_limit=False)


def counted(report: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Pairs by corpus and rule, of a report."""
    texts = {"main": report} | report["extra"]
    return Counter(
        {(name, rule): n for name in texts for rule, n in texts[name]["dropped"].items()}
    )


def by_rule(told: Sequence[Dropped]) -> Counter[tuple[str, str]]:
    return Counter((pair.corpus, pair.rule) for pair in told)


def test_each_rule_tells_the_line_and_the_tidy_text(folder: Path) -> None:
    told: list[Dropped] = []
    corpus = corpus_of(data(folder), tokenizer(), cache=folder / "cache", tell=told.append)
    assert {rule for _, rule in DIRT} == set(RULES) - {"unreadable"}  # tests/extras/test_tables.py
    # below a header and eight fine pairs; files of `more` have no header, and four
    for name, first, repeated in (("main", 10, 5), ("more", 5, 4)):
        lines = enumerate(DIRT, start=first)
        expected = {
            Dropped(
                rule, name, line, *(" ".join(text.split()) for text in pair),
                repeats=repeated if rule == "duplicate" else None,
            )
            for line, (pair, rule) in lines
        }  # fmt: skip
        assert {pair for pair in told if pair.corpus == name} == expected
    assert len(told) == 2 * len(DIRT)
    assert +counted(corpus.report) == by_rule(told)


def test_a_corpus_of_the_cache_is_cleaned_again_and_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = corpus_of(data(folder), tokenizer(), cache=folder / "cache").folder
    before = {path.name: path.read_bytes() for path in plain.iterdir()}
    first: list[Dropped] = []
    made = corpus_of(data(folder), tokenizer(), cache=folder / "other", tell=first.append).folder
    assert made.name == plain.name
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert "already" not in caplog.text
    monkeypatch.setattr(corpus_module, "_make", None)
    again: list[Dropped] = []
    with caplog.at_level(logging.INFO):
        corpus_of(data(folder), tokenizer(), cache=folder / "cache", tell=again.append)
    assert again == first != []
    assert "prepared already: cleaning its text again to list the drops" in caplog.text
    assert {path.name: path.read_bytes() for path in plain.iterdir()} == before
    assert [path for path in plain.parent.iterdir() if path.is_dir()] == [plain]


words = st.sampled_from(["a", "b ", " c", "<i>", "Der Abend", "\u200b", "\u2028", "x" * 50])
words_joined = st.lists(words, max_size=3).map("".join)
some = st.lists(
    st.tuples(words_joined, words_joined, st.sampled_from("pqr")), min_size=1, max_size=20
)
rows = st.builds(lambda first, again: first + first[:again], some, st.integers(0, 9))


@given(
    read=st.fixed_dictionaries({"main": rows, "more": rows}),
    drop_duplicates=st.booleans(),
    allow_overlap=st.booleans(),
    held_out=st.sampled_from([None, 1, ["p"], ["p", "q"]]),
)
@example(  # a duplicate among what is held out, which chance brings now and then
    read={"main": [("a", "b ", "p")] * 2, "more": []},
    drop_duplicates=False, allow_overlap=False, held_out=["p"],
)  # fmt: skip
def test_what_is_told_and_what_is_kept_are_all_that_was_read(
    read: dict[str, list[tuple[str, str, str]]],
    drop_duplicates: bool,
    allow_overlap: bool,
    held_out: Any,
) -> None:
    told: list[Dropped] = []
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "CHUNK", 4)
        folder = Path(name)
        write(folder, [*read["main"], *((*pair, "r") for pair in FINE)], [*read["more"], *FINE])
        splits = {"dev": None, "hold_out": {"dev": held_out, "test": 0}} if held_out else {}
        cleaning = {"drop_duplicates": drop_duplicates, "ratio_slack": 5}
        changes = splits | {"allow_overlap": allow_overlap, "domain": "domain"}
        node = data(folder, cleaning=cleaning, **changes)
        try:
            found = select(KINDS["tsv"].model_validate(node), folder, folder, told.append)
        except UserError:  # a group that is not there
            return
        kept = {text.name: Counter(pair[:2] for pair in text.pairs) for text in found.texts}
        for text in found.texts:
            assert text.dropped == Counter(p.rule for p in told if p.corpus == text.name)
    if held_out:
        items = found.held_out["dev"]
        kept["main"] += Counter((item.source, text) for item in items for text in item.references)
    rules = Cleaning.model_validate(node["cleaning"])
    for corpus, first in (("main", 2), ("more", 1)):
        given = [Pair(*row[:2]) for row in (*read[corpus], *FINE)]
        lines = dict(enumerate((pair[:2] for pair in tidy(given, rules)), start=first))
        of_corpus = [pair for pair in told if pair.corpus == corpus]
        for pair in of_corpus:
            assert lines[pair.line] == (pair.source, pair.target)
            earlier = [line for line in range(first, pair.line) if lines[line] == lines[pair.line]]
            assert (pair.repeats in earlier) == (pair.rule == "duplicate"), "the first one stays"
            if pair.repeats is not None and not held_out:  # whose groups have firsts of their own
                assert pair.repeats == earlier[0]
        for pair in of_corpus:
            del lines[pair.line]  # fails for one that is told twice
        assert Counter(lines.values()) == kept[corpus]
