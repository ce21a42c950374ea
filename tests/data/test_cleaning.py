"""Cleaning drops what its rules say and accounts for every pair."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate import config as schema
from translate.data.cleaning import RULES, Cleaning, Drops, clean, drop_overlap, tidy
from translate.data.pairs import Pair, write_pairs


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


def test_null_switches_a_rule_off(rules):
    off = rules.model_copy(
        update={"max_characters": None, "length_ratio": None, "drop_identical": False}
    )
    pairs = [Pair("a" * 500, "b"), Pair("same", "same")]
    assert cleaned(pairs, off)[0] == pairs


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
