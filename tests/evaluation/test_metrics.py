"""Scores are sacreBLEU's own, bounded in time, by the tokeniser of the target language."""

from __future__ import annotations

import logging
import math
import random
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from translate.errors import UserError
from translate.evaluation.breakdown import by_label, by_source_length
from translate.evaluation.metrics import (
    LONGEST,
    bleu,
    build_metrics,
    build_ter,
    choose_tokenizer,
    chrf,
    corpus_scores,
    edits,
    intervals,
    reference_streams,
    sentence_chrf,
    sentence_scores,
)
from translate.evaluation.report import Likelihood
from translate.extras.comparison import compare
from translate.extras.seeds import System

HYPOTHESES = [
    "The cat sits on the red mat .",
    "Where is the train station?",
    "He does not want to come with us today.",
    "Thanks a lot",
]
REFERENCES = [
    ["The cat is sitting on the red mat.", "A cat sits on the red mat."],
    ["Where is the train station?"],
    ["He doesn't want to come along today.", "Today he does not want to come with us.", "No."],
    ["Thank you very much"],
]


def test_one_reference_each_is_sacrebleus_corpus_score() -> None:
    first = [item[0] for item in REFERENCES]
    scores = corpus_scores(HYPOTHESES, [[text] for text in first])
    for metric, ours in ((BLEU(), scores.bleu), (CHRF(), scores.chrf), (TER(), scores.ter)):
        assert ours.score == metric.corpus_score(HYPOTHESES, [first]).score
        assert ours.signature == str(metric.get_signature())


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())])
def test_varying_references_sum_the_statistics_of_each_item_alone(
    name: str, metric: BLEU | CHRF | TER
) -> None:
    """The slow twin: an item's statistics from its own references alone, no padding anywhere."""
    totals: list[float] = []
    for hypothesis, references in zip(HYPOTHESES, REFERENCES, strict=True):
        (row,) = metric._extract_corpus_statistics([hypothesis], [[text] for text in references])
        totals = [a + b for a, b in zip(totals or [0] * len(row), row, strict=True)]
    expected = metric._compute_score_from_stats(totals).score
    assert asdict(corpus_scores(HYPOTHESES, REFERENCES))[name]["score"] == pytest.approx(expected)


def test_a_padded_item_is_not_given_an_empty_reference() -> None:
    """An empty reference, of length 0, would spare a short hypothesis the brevity penalty."""
    hypotheses, references = ["a b c d", "x"], [["a b c d", "a b"], ["x y z w v"]]
    streams = reference_streams(hypotheses, references)
    assert streams == [["a b c d", "x y z w v"], ["a b", None]]
    emptied = BLEU().corpus_score(hypotheses, [[text or "" for text in line] for line in streams])
    assert emptied.bp == 1
    assert bleu(hypotheses, references) == pytest.approx(emptied.score * math.exp(1 - 9 / 5))


def test_the_signature_says_that_reference_counts_vary() -> None:
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    for score in (scores.bleu, scores.chrf, scores.ter):
        assert score.signature.startswith("nrefs:var|")
    assert "tok:13a" in scores.bleu.signature
    assert "case:mixed" in scores.bleu.signature
    assert re.search(r"version:\d", scores.bleu.signature)


def test_bleu_by_hand() -> None:
    """Three of four words match, and a bigram; Papineni et al. 2002 with exponential smoothing."""
    # 1-grams 3/4, 2-grams 1/3, 3-grams 0/2 -> 1/(2*2), 4-grams 0/1 -> 1/(4*1); length 4 against 4
    expected = 100 * math.exp(sum(map(math.log, (3 / 4, 1 / 3, 1 / 4, 1 / 4))) / 4)
    assert bleu(["a b x c"], [["a b c d"]]) == pytest.approx(expected)


def test_perfect_and_single_metric_scores() -> None:
    perfect = corpus_scores(["one two three four five"], [["one two three four five"]])
    assert (round(perfect.bleu.score, 6), perfect.chrf.score, perfect.ter.score) == (100, 100, 0)
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    assert bleu(HYPOTHESES, REFERENCES) == scores.bleu.score
    assert chrf(HYPOTHESES, REFERENCES) == scores.chrf.score
    assert set(asdict(scores)) == {"bleu", "chrf", "ter"}


def test_empty_hypotheses_are_scored_not_dropped() -> None:
    assert bleu(["", "a b c d"], [["x y z w"], ["a b c d"]]) < 100
    assert corpus_scores([""], [["x"]]).ter.score == 100


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a", "b"], [["a"]], "2 hypotheses but references for 1 item:"),
        (["a"], [["a"], ["b"]], "1 hypothesis but references for 2 items"),
        ([], [], "0 hypotheses and 0 references"),
        (
            ["a", "b", "c"],
            [["a"], [], []],
            r"2 of 3 items have no reference \(the first is item 2\)",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused_with_the_counts(
    hypotheses: list[str], references: list[list[str]], message: str
) -> None:
    for score in (corpus_scores, bleu, chrf, sentence_chrf):
        with pytest.raises(UserError, match=message):
            score(hypotheses, references)


def test_tokenizers() -> None:
    assert "tok:char" in corpus_scores(["ab"], [["ab"]], tokenize="char").bleu.signature
    for score in (corpus_scores, sentence_scores):
        with pytest.raises(UserError, match="'14a' is unknown: choose one of 13a, char"):
            score(["a"], [["a"]], tokenize="14a")


WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


def levenshtein(first: Sequence[str], second: Sequence[str]) -> int:
    """The slow twin: the whole matrix."""
    row = list(range(len(second) + 1))
    for number, word in enumerate(first, start=1):
        above, row = row, [number]
        for j, other in enumerate(second):
            row.append(min(row[-1] + 1, above[j + 1] + 1, above[j] + (word != other)))
    return row[-1]


@given(WORDS, WORDS)
def test_edits_are_the_fewest(first: list[str], second: list[str]) -> None:
    assert edits(first, second) == levenshtein(first, second)


def test_up_to_the_longest_sentence_ter_is_sacrebleus() -> None:
    reference = " ".join(map(str, range(LONGEST)))
    shifted = " ".join(map(str, [*range(9, 30), *range(9), *range(30, LONGEST)]))
    found = build_ter("13a").sentence_score(shifted, [reference])
    assert found.score == TER().sentence_score(shifted, [reference]).score == 100 / LONGEST


def test_a_longer_sentence_is_edited_without_shifts_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference = " ".join(map(str, range(LONGEST + 1)))
    shifted = " ".join(map(str, [*range(9, LONGEST + 1), *range(9)]))
    hypotheses, references = [shifted, "a b"], [[reference, "1"], ["a b"]]
    scores = corpus_scores(hypotheses, references)
    assert scores.ter.score == pytest.approx(100 * 18 / ((LONGEST + 2) / 2 + 2))
    assert "|shifts:≤250words|" in scores.ter.signature
    assert "TER counts no shifts in 1 of 2 sentences" in caplog.text
    assert "shifts" not in corpus_scores(["a b"], [["a b"]]).ter.signature
    found = intervals(hypotheses, references, resamples=2, seed=1)["ter"]
    assert "|shifts:≤250words|" in found.signature
    assert sentence_scores(hypotheses, references)[0].ter == pytest.approx(3600 / (LONGEST + 2))


def test_a_megabyte_is_scored() -> None:
    """sacreBLEU takes more than 40 s for 500 words of each."""
    generator = random.Random(1)
    hypothesis, reference = (generator.choices("abcdefgh", k=20_000) for _ in range(2))
    found = build_ter("13a").sentence_score(" ".join(hypothesis), [" ".join(reference)])
    assert 50 < found.score < 100


CHINESE = [["他昨天在北京买了一本好书。"], ["一个男人正在海边跑步。"], ["孩子们正在公园里踢足球。"]]
TRANSLATED = ["他昨天在北京买了一本新书。", "这个男人正在海边跑步。", "孩子们在公园里踢足球。"]


@pytest.mark.parametrize(
    ("language", "tokenize"),
    [
        *((name, "zh") for name in ("zh", "zh-TW", "zh_CN", "ZHO_Hans", "cmn", "Chinese")),
        *((name, "13a") for name in ("de", "", "en-GB", "zhuang", "2en", "français", "-")),
    ],
)
def test_the_language_decides_as_in_sacrebleu(
    language: str, tokenize: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_tokenizer(None, language, [["the dog"]]) == tokenize
    assert not caplog.records


@pytest.mark.parametrize(("language", "wanted"), [("ja", "ja-mecab"), ("ko-KR", "ko-mecab")])
def test_where_a_tokenizer_is_not_installed_characters_count(
    language: str, wanted: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(tokenize: str) -> None:
        if tokenize == wanted:
            raise UserError(f"BLEU tokenizer {wanted!r} cannot be used here: install it")

    monkeypatch.setattr("translate.evaluation.metrics.build_bleu", made)
    assert choose_tokenizer(None, language, [["犬"]]) == "char"
    assert f"BLEU counts characters (tokenize=char): BLEU tokenizer {wanted!r}" in caplog.text
    with pytest.raises(UserError, match="cannot be used here"):
        choose_tokenizer(wanted, language, [["犬"]])


def test_what_is_named_is_taken_or_refused() -> None:
    assert choose_tokenizer("char", "zh", CHINESE) == "char"
    with pytest.raises(UserError, match="'zh-tw' is unknown: choose one of 13a, char"):
        choose_tokenizer("zh-tw", "zh", CHINESE)


@pytest.mark.parametrize("language", ["target", "th", "yue"])
@pytest.mark.parametrize("text", ["他昨天在北京。", "彼はカメラを買った。", "เขาอยู่ที่นี่"])
def test_characters_count_where_neither_language_nor_spaces_tell_words(
    text: str, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert choose_tokenizer(None, language, [[text], ["GPU"]]) == "char"
    assert "BLEU counts characters (tokenize=char): the references are in a" in caplog.text
    assert f"the language '{language}' has no tokenizer of its own" in caplog.text
    assert choose_tokenizer("13a", language, [[text]]) == "13a", "what is named is taken"


def test_a_nearly_right_translation_without_spaces_scores() -> None:
    references = [["ฉันอยู่ที่กรุงเทพมหานคร"], ["เขาไปโรงเรียนทุกวัน"]]
    nearly = ["ฉันอยู่ที่กรุงเทพ", "เขาไปโรงเรียนวันนี้"]
    tokenize = choose_tokenizer(None, "th", references)
    assert bleu(nearly, references, tokenize=tokenize) > 50
    assert bleu(["ก", "ก"], references, tokenize=tokenize) < 1


def test_every_figure_of_a_comparison_is_of_that_tokenizer() -> None:
    systems = [
        System(name, texts, Likelihood(-40.0, 60, 200), {}, name, 1)
        for name, texts in (("a", TRANSLATED), ("b", [item[0] for item in CHINESE]))
    ]
    found = compare(
        systems, TRANSLATED, CHINESE,
        split="test", resamples=2, trials=2, seed=1, shown=0, tokenize="zh",
    )  # fmt: skip
    theirs = BLEU(trg_lang="zh").corpus_score(TRANSLATED, [[item[0] for item in CHINESE]]).score
    column = found.columns[0]
    assert theirs > 80
    assert column.scores.bleu.score == theirs
    assert "tok:zh" in column.scores.bleu.signature
    assert found.challengers[0].differences["bleu"].baseline == pytest.approx(theirs)
    assert [bucket.label for bucket in column.buckets] == ["6–10", "11–15"]
    assert min(bucket.bleu for bucket in column.buckets) > 50
    assert min(sentence.bleu for sentence in column.sentences) > 50
    assert column.scores.ter.score < 20, "a sentence is no word"
    assert "norm:yes" in column.scores.ter.signature
    assert "asian:yes" in column.scores.ter.signature
    assert max(sentence.ter for sentence in column.sentences) < 30
    assert by_source_length([""] * 3, TRANSLATED, CHINESE, tokenize="zh")[0].bleu == theirs
    assert by_label(["x"] * 3, TRANSLATED, CHINESE, tokenize="zh")[0].bleu == theirs


ANIMALS = ("dog", "cat")
ITEMS = [[f"the {animal} sees a house number {i}"] for i in range(8) for animal in ANIMALS]
MIXED = [
    text.replace("sees", "eats").replace("house", "mouse") if number % 3 else text
    for number, (text,) in enumerate(ITEMS)
]


def test_intervals_are_around_the_score_and_narrower_with_more_sentences() -> None:
    few = intervals(MIXED, ITEMS, resamples=300, seed=3)
    many = intervals(MIXED * 9, ITEMS * 9, resamples=300, seed=3)
    for metric, found in few.items():
        assert found.half_width > 2 * many[metric].half_width > 0
        assert "bs:300|seed:3" in found.signature
    assert few["chrf"].mean == pytest.approx(chrf(MIXED, ITEMS), abs=few["chrf"].half_width)


def test_the_interval_agrees_with_all_resamples() -> None:
    """Slow twin: the middle 95 % of the scores of all n^n resamples."""
    hypotheses, references = MIXED[:4], ITEMS[:4]
    scores = sorted(
        chrf([hypotheses[i] for i in drawn], [references[i] for i in drawn])
        for drawn in product(range(4), repeat=4)
    )
    low, high = np.quantile(scores, [0.025, 0.975], method="nearest")
    found = intervals(hypotheses, references, resamples=2000, seed=1)["chrf"]
    assert found.half_width == pytest.approx((high - low) / 2, rel=0.02)
    assert found.mean == pytest.approx(np.mean(scores), abs=0.05 * found.half_width)


@pytest.mark.parametrize("seed", [1, 12345])
def test_the_signature_repeats_the_interval_in_sacrebleu(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(seed))
    streams = reference_streams(MIXED, ITEMS)
    test = PairedTest([("a", MIXED)], build_metrics("13a"), streams, test_type="bs", n_samples=200)
    signatures, results = test()
    found = intervals(MIXED, ITEMS, resamples=200, seed=seed)
    for (theirs, (alone,)), ours in zip(list(results.items())[1:], found.values(), strict=True):
        assert (ours.mean, ours.half_width) == pytest.approx((alone.mean, alone.ci), rel=1e-5)
        assert ours.signature == str(signatures[theirs])


def test_an_interval_takes_memory_for_one_resample() -> None:
    """A thousand of them at once take 80 kB a sentence, more than all else together."""
    hypotheses, references, peaks = MIXED * 10, ITEMS * 10, []
    intervals(hypotheses, references, resamples=1, seed=1)  # what is loaded once is no part
    for resamples in (1, 200):
        tracemalloc.start()
        intervals(hypotheses, references, resamples=resamples, seed=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
