from __future__ import annotations

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from translate.inference.minimum_bayes_risk import UTILITIES, expected_utilities

SLOW = {
    "chrf": lambda text, other: sentence_chrf(text, [other]).score,
    "bleu": lambda text, other: sentence_bleu(text, [other], use_effective_order=True).score,
}
CANDIDATES = [
    "the dog sleeps .", "the dog sleeps .", "a dog is sleeping .", "the cat sleeps .", "", "xyz",
    "the dog sleeps in the house .",
]  # fmt: skip


@pytest.mark.parametrize("utility", SLOW)
def test_equals_the_readable_twin(utility) -> None:
    expected = []
    for text in CANDIDATES:
        total = 0.0
        for other in CANDIDATES:
            total += SLOW[utility](text, other)
        expected.append(total / len(CANDIDATES))
    assert expected_utilities(CANDIDATES, utility) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("utility", SLOW)
def test_the_one_most_like_the_others_wins(utility) -> None:
    found = expected_utilities(CANDIDATES, utility)
    assert max(found) == found[0] == found[1]
    assert min(found) in (found[4], found[5])


def test_bleu_counts_the_characters_of_a_script_without_spaces() -> None:
    bleu, reference = UTILITIES["bleu"](), "他在北京买了一本好书。"
    for text in (reference, "他在北京买了一本新书。", "今天天气很好。"):
        expected = sentence_bleu(text, [reference], tokenize="zh", use_effective_order=True).score
        assert bleu(text, reference) == pytest.approx(expected)
    assert bleu("เขาซื้อหนังสือดี", "เขาซื้อหนังสือใหม่") > 50
    assert bleu("Änderung größer", "Änderung größer!") == SLOW["bleu"](
        "Änderung größer", "Änderung größer!"
    )


def sampled(seed: int = 1, **changes):
    return {
        "kind": "sample", "n_best": 6, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
        "typical_p": 1.0, "seed": seed, "max_length_ratio": 1.0, "max_length_offset": 4, **changes,
    }  # fmt: skip


def test_of_one_candidate_the_score_is_a_utility_too(make_translator) -> None:
    from translate.inference.translator import Translator
    from translate.search import build

    made = make_translator()
    one = Translator(made.model, made.tokenizers, build(sampled(n_best=1)), mbr="chrf")
    ((found,),) = one.stream(["el perro come."])
    assert found.score == pytest.approx(100)
    assert found.log_prob < 0


def test_the_translator_ranks_by_utility(make_translator) -> None:
    from translate.inference.translator import Translator
    from translate.search import build

    made = make_translator()
    lines = ["el perro come.", "", "la casa azul"]
    search = build(sampled())
    plain = Translator(made.model, made.tokenizers, search)
    by_risk = Translator(made.model, made.tokenizers, search, mbr="chrf")
    again = list(by_risk.stream(lines))
    assert list(by_risk.stream(lines)) == again
    for samples, ranked in zip(plain.stream(lines), again, strict=True):
        utilities = expected_utilities([t.text for t in samples], "chrf")
        if not samples[0].tokens:  # an empty line
            continue
        assert [t.score for t in ranked] == sorted(utilities, reverse=True)
        assert ranked[0].text == samples[utilities.index(max(utilities))].text
        assert sorted(t.log_prob for t in ranked) == sorted(t.log_prob for t in samples)
