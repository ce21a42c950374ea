"""Scores are sacreBLEU's own, also where items differ in their number of references."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import asdict

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from translate.errors import UserError
from translate.evaluation.metrics import bleu, chrf, evaluate, reference_streams
from translate.evaluation.sentences import sentence_chrf, sentence_scores

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
    scores = evaluate(HYPOTHESES, [[text] for text in first])
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
    assert asdict(evaluate(HYPOTHESES, REFERENCES))[name]["score"] == pytest.approx(expected)


def test_a_padded_item_is_not_given_an_empty_reference() -> None:
    """An empty reference, of length 0, would spare a short hypothesis the brevity penalty."""
    hypotheses, references = ["a b c d", "x"], [["a b c d", "a b"], ["x y z w v"]]
    streams = reference_streams(hypotheses, references)
    assert streams == [["a b c d", "x y z w v"], ["a b", None]]
    emptied = BLEU().corpus_score(hypotheses, [[text or "" for text in line] for line in streams])
    assert emptied.bp == 1
    assert bleu(hypotheses, references) == pytest.approx(emptied.score * math.exp(1 - 9 / 5))


def test_the_signature_says_that_reference_counts_vary() -> None:
    scores = evaluate(HYPOTHESES, REFERENCES)
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
    perfect = evaluate(["one two three four five"], [["one two three four five"]])
    assert (round(perfect.bleu.score, 6), perfect.chrf.score, perfect.ter.score) == (100, 100, 0)
    scores = evaluate(HYPOTHESES, REFERENCES)
    assert bleu(HYPOTHESES, REFERENCES) == scores.bleu.score
    assert chrf(HYPOTHESES, REFERENCES) == scores.chrf.score
    assert set(asdict(scores)) == {"bleu", "chrf", "ter"}


def test_chrf_of_sentences_is_had_without_the_other_scores(monkeypatch) -> None:
    every = [scores.chrf for scores in sentence_scores(HYPOTHESES, REFERENCES)]
    monkeypatch.delattr("sacrebleu.metrics.bleu.BLEU.sentence_score")
    monkeypatch.delattr("translate.evaluation.sentences.build_ter")
    assert sentence_chrf(HYPOTHESES, REFERENCES) == every


def test_empty_hypotheses_are_scored_not_dropped() -> None:
    assert bleu(["", "a b c d"], [["x y z w"], ["a b c d"]]) < 100
    assert evaluate([""], [["x"]]).ter.score == 100


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
    for score in (evaluate, bleu, chrf, sentence_chrf):
        with pytest.raises(UserError, match=message):
            score(hypotheses, references)


def test_tokenizers() -> None:
    assert "tok:char" in evaluate(["ab"], [["ab"]], tokenize="char").bleu.signature
    for score in (evaluate, sentence_scores):
        with pytest.raises(UserError, match="'14a' is unknown: choose one of 13a, char"):
            score(["a"], [["a"]], tokenize="14a")


def test_importing_the_metrics_does_not_load_sacrebleu() -> None:
    code = "import sys, translate.evaluation.run; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
