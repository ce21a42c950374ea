"""BLEU's tokeniser goes by the target language, in every figure."""

from __future__ import annotations

import logging

import pytest
from sacrebleu.metrics.bleu import BLEU

from translate.errors import UserError
from translate.evaluation.bleu_tokenizer import settle
from translate.evaluation.buckets import by_source_length
from translate.evaluation.comparison import System, compare
from translate.evaluation.likelihood import Likelihood
from translate.evaluation.metrics import bleu
from translate.evaluation.slices import by_label

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
    assert settle(None, language, [["the dog"]]) == tokenize
    assert not caplog.records


@pytest.mark.parametrize(("language", "wanted"), [("ja", "ja-mecab"), ("ko-KR", "ko-mecab")])
def test_where_a_tokenizer_is_not_installed_characters_count(
    language: str, wanted: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(tokenize: str) -> None:
        if tokenize == wanted:
            raise UserError(f"BLEU tokenizer {wanted!r} cannot be used here: install it")

    monkeypatch.setattr("translate.evaluation.bleu_tokenizer.build_metrics", made)
    assert settle(None, language, [["犬"]]) == "char"
    assert f"BLEU counts characters (tokenize=char): BLEU tokenizer {wanted!r}" in caplog.text
    with pytest.raises(UserError, match="cannot be used here"):
        settle(wanted, language, [["犬"]])


def test_what_is_named_is_taken_or_refused() -> None:
    assert settle("char", "zh", CHINESE) == "char"
    with pytest.raises(UserError, match="'zh-tw' is unknown: choose one of 13a, char"):
        settle("zh-tw", "zh", CHINESE)


@pytest.mark.parametrize("language", ["target", "th", "yue"])
@pytest.mark.parametrize("text", ["他昨天在北京。", "彼はカメラを買った。", "เขาอยู่ที่นี่"])
def test_characters_count_where_neither_language_nor_spaces_tell_words(
    text: str, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert settle(None, language, [[text], ["GPU"]]) == "char"
    assert "BLEU counts characters (tokenize=char): the references are in a" in caplog.text
    assert f"the language '{language}' has no tokenizer of its own" in caplog.text
    assert settle("13a", language, [[text]]) == "13a", "what is named is taken"


def test_a_nearly_right_translation_without_spaces_scores() -> None:
    references = [["ฉันอยู่ที่กรุงเทพมหานคร"], ["เขาไปโรงเรียนทุกวัน"]]
    nearly = ["ฉันอยู่ที่กรุงเทพ", "เขาไปโรงเรียนวันนี้"]
    tokenize = settle(None, "th", references)
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
