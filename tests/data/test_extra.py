"""Further training corpora: read by the same rules, weighed, tagged, and never scored on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conf_nodes import corpus_of, node
from hypothesis import given
from hypothesis import strategies as st

from translate.data.batching import by_temperature
from translate.data.corpus import Corpus, check_data
from translate.data.module import TranslationData
from translate.errors import UserError
from translate.extras.corpus_report import render

Prepared = Callable[..., Corpus]


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for ending, side in (("de", 0), ("en", 1)):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """40 pairs, 10 each for dev and test, and 30 further ones of which 3 are no good."""
    letters = "abcdefghij"
    for split, words in (("train", ("rot", "blau", "gut", "neu")), ("dev", ("alt",)),
                         ("test", ("kalt",))):  # fmt: skip
        write(tmp_path, split, [(f"{w} {c} sind", f"{c} are {w}!") for w in words for c in letters])
    extra = [(f"warm {c} {d} sind", f"{c} {d} are warm!") for c in "abc" for d in letters]
    extra[0] = ("ALT  a sind", "something else")  # the source of dev, spelled otherwise
    extra[1] = ("etwas anderes", "b are kalt!")  # the target of test
    extra[2] = ("", "nothing")
    write(tmp_path, "back", extra)

    def prepare_with(**changes: Any) -> Corpus:
        sampling = changes.pop("sampling", {"alpha": 0.0, "dropout": 0.0})
        whole = changes.pop("data", {})
        files = {"source": str(tmp_path / "back.de"), "target": str(tmp_path / "back.en")}
        data = node("data", "files", dir=str(tmp_path), source="de", target="en",
                    extra={"back": files | changes}, **whole)  # fmt: skip
        tokenizer = node("tokenizer", "bpe", vocab_size=330, sampling=sampling)
        return corpus_of(data, tokenizer, cache=tmp_path / "cache")

    return prepare_with


def occurrences(corpus: Corpus, epochs: int, **options: Any) -> Counter[int]:
    """How often each pair came in so many epochs."""
    settings = {"max_length": 99, "tokens_per_batch": 99, "pool_batches": 3, "workers": 0,
                "sampling": False, "guided": False, "seed": 1} | options  # fmt: skip
    batches = TranslationData(corpus, **settings).batches()
    return Counter(int(i) for e in range(epochs) for batch in batches.epoch(e) for i in batch.pairs)


def test_what_is_held_out_is_dropped_and_told(
    prepared: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = prepared(data={"allow_overlap": True})
    told = "keeping 2 pairs of data.extra.back with a sentence of dev or test (data.allow_overlap)"
    assert told in caplog.text
    assert [part.pairs for part in allowed.parts] == [40, 29]
    with caplog.at_level(logging.WARNING):
        corpus = prepared(tag="bt")
    assert "dropping 2 pairs of data.extra.back with a sentence of dev or test" in caplog.text
    assert [part[:3] for part in corpus.parts] == [("main", 40, None), ("back", 27, "bt")]
    assert len(corpus.train) == 67
    assert (len(corpus.dev), len(corpus.test or ())) == (10, 10)
    assert all("warm" in text for text in corpus.train["source"].to_pylist()[40:])
    dropped = corpus.report["extra"]["back"]["dropped"]
    assert {rule: count for rule, count in dropped.items() if count} == {"empty": 1, "overlap": 2}
    assert corpus.report["dropped"]["overlap"] == 0
    shown = render(corpus.report)
    assert "Extra: back <bt>" in shown
    assert shown.count("dropped: overlap") == 2


def test_pieces_per_word_are_told_of_each_corpus_by_itself(
    prepared: Prepared, tmp_path: Path
) -> None:
    write(tmp_path, "back", [(f"warmgutneu{c}", f"{c} is warm") for c in "abcdefghij"])
    corpus = prepared()
    main, back = (part.pairs for part in corpus.parts)
    told = (
        corpus.report["languages"]["source"]["pieces_per_word"],
        corpus.report["extra"]["back"]["pieces_per_word"]["source"],
    )
    for found, rows in zip(told, (range(main), range(main, main + back)), strict=True):
        words = sum(len(corpus.train["source"][row].as_py().split()) for row in rows)
        pieces = sum(corpus.train["source_length"][row].as_py() for row in rows)
        assert found == round(pieces / words, 3)
    assert "pieces per word: target" in render(corpus.report)


def test_a_tag_stands_before_every_source_of_its_corpus_alone(prepared: Prepared) -> None:
    corpus = prepared(tag="bt")
    source = corpus.tokenizers.source
    (tag,) = {row[0] for row in corpus.train["source_ids"].to_pylist()[40:]}
    assert source.pieces([tag]) == ["<bt>"]
    for row in corpus.train.to_pylist():
        tagged = source.tagged("bt" if "warm" in row["source"] else None)
        assert row["source_ids"] == tagged.encode(row["source"])
        assert row["source_length"] == len(row["source_ids"])
        assert tag not in source.encode(f"<bt> {row['source']} <bt>")  # no text can spell it
        assert tag not in row["target_ids"]
    assert not any(
        tag in ids for table in (corpus.dev, corpus.test) for ids in table["source_ids"].to_pylist()
    )


def test_sampled_pieces_keep_the_tag(prepared: Prepared) -> None:
    corpus = prepared(tag="bt", sampling={"alpha": 0.0, "dropout": 0.5})
    (tag,) = corpus.tokenizers.source.tagged("bt").encode("x")[:1]
    data = TranslationData(
        corpus, max_length=99, tokens_per_batch=400, pool_batches=3, workers=0,
        sampling=True, guided=False, seed=1,
    )  # fmt: skip
    seen = 0
    for batch in islice(data.train_dataloader(), 20):
        for pair, row in zip(batch.ids.tolist(), batch.source.tolist(), strict=True):
            assert row.count(tag) == (row[0] == tag) == (pair >= 40)
            seen += pair >= 40
    assert seen > 20


@pytest.mark.parametrize(("temperature", "power"), [(1.0, 0.0), (2.0, 0.5), (1e9, 1.0)])
def test_temperature_evens_the_corpora_that_have_no_weight(
    prepared: Prepared, temperature: float, power: float
) -> None:
    corpus = prepared(data={"temperature": temperature})
    assert [part.weight for part in corpus.parts] == pytest.approx([1.0, (40 / 27) ** power])
    fixed = prepared(weight=0.3)
    assert [part.weight for part in fixed.parts] == [1.0, 0.3]
    assert corpus.folder == fixed.folder


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=5), temperature=st.floats(1.0, 9.0)
)
def test_shares_are_those_of_the_formula(sizes: list[int], temperature: float) -> None:
    named = {str(i): size for i, size in enumerate(sizes)}
    weights = by_temperature(named, temperature)
    drawn = np.array([weights[name] * size for name, size in named.items()])
    wanted = (np.array(sizes) / sum(sizes)) ** (1 / temperature)
    np.testing.assert_allclose(drawn / drawn.sum(), wanted / wanted.sum())
    assert min(weights.values()) == pytest.approx(1.0)


def test_languages_are_told_apart_by_tags(prepared: Prepared) -> None:
    corpus = prepared(data={"tag": "en"}, tag="fr")
    assert corpus.report["tag"] == "en"
    assert corpus.tokenizers.source.tag == "en"
    assert set(corpus.tokenizers.source.tags) == {"en", "fr"}
    for table, tag in ((corpus.train.slice(0, 40), "en"), (corpus.dev, "en"),
                       (corpus.train.slice(40), "fr")):  # fmt: skip
        for text, ids in zip(
            *(table[name].to_pylist() for name in ("source", "source_ids")), strict=True
        ):
            assert corpus.tokenizers.source.pieces(ids)[0] == f"<{tag}>"
            assert ids == corpus.tokenizers.source.tagged(tag).encode(text)


@pytest.mark.parametrize("weight", [1.0, 2.0, 0.25, 1.5])
def test_pairs_occur_as_often_as_their_weight_says(prepared: Prepared, weight: float) -> None:
    counts = occurrences(prepared(weight=weight), epochs=4)
    assert {counts[pair] for pair in range(40)} == {4}
    assert {counts[pair] for pair in range(40, 67)} == {int(4 * weight)}


def test_a_weight_prepares_nothing_anew_and_a_tag_does(prepared: Prepared, tmp_path: Path) -> None:
    folder = prepared(weight=2.0).folder
    assert prepared(weight=0.5).folder == folder
    assert prepared(tag="bt").folder != folder
    with (tmp_path / "back.en").open("a") as english, (tmp_path / "back.de").open("a") as german:
        english.write("one more\n")
        german.write("noch eins\n")
    assert prepared().folder != folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 0.0}, "data.extra.back.weight = 0.0: must be greater than or equal to 0.0001"),
        ({"weight": 1e12}, "data.extra.back.weight = 1000000000000.0: must be less than or equal"),
        ({"tag": "<bt>"}, r"data.extra.back.tag = '<bt>': '<bt>' cannot be a tag: use letters"),
        ({"tag": "unk"}, "data.extra.back.tag = 'unk': 'unk' cannot be a tag"),
        ({"wieght": 2.0}, "data.extra.back.wieght is not a key"),
        ({"target": "nowhere.en"}, r"nowhere\.en cannot be read .*check the path"),
    ],
)
def test_mistakes_are_told_by_name(
    prepared: Prepared, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepared(**changes)


@pytest.mark.parametrize("weight", [None, 0.5])
def test_a_temperature_needs_a_corpus_without_a_weight(weight: float | None) -> None:
    changes = {"dir": None, "source": "de", "target": "en", "temperature": 5.0}
    alone = check_data(node("data", "files", **changes))
    assert alone == [
        "data.temperature = 5 mixes corpora without a weight, but data.extra has none: add one, "
        "or set it to 1"
    ]
    extra = {"back": {"source": "a", "target": "b", "weight": weight}}
    assert check_data(node("data", "files", extra=extra, **changes)) == alone * bool(weight)


def test_the_main_corpus_has_its_name_for_itself() -> None:
    files = {"source": "a", "target": "b"}
    for name in ("main", "defaults", "_a", "a/b", ""):
        data = node("data", "toy", extra={name: files})
        assert any("cannot name a corpus" in line for line in check_data(data))
    assert check_data(node("data", "toy", extra={"back": files})) == []
    (line,) = check_data(node("data", "toy", extra={1: files}))
    assert line == "data.extra: 1 is a number or the like, not a name: write it in quotes"


def test_nothing_left_of_a_corpus_is_an_error(prepared: Prepared, tmp_path: Path) -> None:
    write(tmp_path, "back", [("alt a sind", "x")])
    message = r"data\.extra\.back is empty, or nothing of it is left \(dropped: overlap 1\)"
    with pytest.raises(UserError, match=message):
        prepared()


def test_what_is_held_out_is_not_learnt_the_other_way(prepared: Prepared, tmp_path: Path) -> None:
    prepared()
    write(tmp_path, "back", [("a are alt!", "alt a sind"), ("c d are warm!", "warm c d sind")])
    corpus = prepared()
    assert corpus.report["extra"]["back"]["dropped"]["overlap"] == 1
    assert "alt a sind" not in corpus.train["target"].to_pylist()
