from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from translate.errors import UserError
from translate.inference.confidence import FILE, Confidence, evidence, read, write
from translate.inference.translation import NOTHING

SEARCH = {"kind": "beam", "beam_size": 5}
LEARNT = Confidence(
    slope=2.0, intercept=1.0, good=50, weights_sha256="ab", search=SEARCH,
    judged={"brier": 0.1, "sentences": 9},
)  # fmt: skip


def test_it_is_a_logistic_curve_that_never_leaves_0_to_1() -> None:
    for x in (-3.0, -0.5, 0.0):
        assert LEARNT(x) == pytest.approx(1 / (1 + math.exp(-(2 * x + 1))))
    assert (LEARNT(-1e9), LEARNT(1e9)) == (0, 1)


@pytest.mark.parametrize(
    ("chances", "far"),
    [([0.2] * 10, True), ([0.2] * 9, False), ([0.2, 0.5] * 9, False), ([], False)],
)
def test_a_text_of_low_confidence_is_far(chances: list[float], far: bool) -> None:
    learnt = LEARNT.model_copy(update={"judged": {"expected": 0.6}})
    assert learnt.finds_far(chances) is far
    assert not LEARNT.finds_far([0.0] * 10), "an earlier file does not say what is usual"


def test_what_is_less_sure_than_nearly_all_that_was_learned_from_is_flagged() -> None:
    learnt = LEARNT.model_copy(update={"unsure": 0.1})
    for chance, flags in ((0.09, ("loop", "unsure")), (0.1, ("loop",)), (None, ("loop",))):
        translation = replace(NOTHING, flags=("loop",), confidence=chance)
        assert learnt.marked(translation).flags == flags
        assert LEARNT.marked(translation) == translation, "an earlier file has no such limit"


def test_what_was_written_is_read_for_the_same_weights_and_search(tmp_path: Path, caplog) -> None:
    assert read(tmp_path, weights_sha256="ab", search=SEARCH) is None
    write(tmp_path, LEARNT)
    assert '"sentences": 9\n' in (tmp_path / FILE).read_text("utf-8"), "a count is whole"
    assert read(tmp_path, weights_sha256="ab", search=SEARCH) == LEARNT
    with caplog.at_level(logging.INFO, logger="translate"):
        assert read(tmp_path, weights_sha256="ac", search=SEARCH) is None
        assert read(tmp_path, weights_sha256="ab", search={**SEARCH, "beam_size": 4}) is None
    assert caplog.text.count("different weights or another search") == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b"\xff"])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"confidence\.json cannot be read: write it anew"):
        read(tmp_path, weights_sha256="ab", search=SEARCH)


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"confidence\.json cannot be read \(it is a symbolic link"):
        read(tmp_path, weights_sha256="ab", search=SEARCH)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        write(Path("/dev/null"), LEARNT)


def test_the_evidence_is_the_mean_of_pieces_and_end() -> None:
    assert evidence(-6.0, 2) == -2
    assert evidence(-1.5, 0) == -1.5


def test_a_line_is_as_sure_as_its_least_sure_sentence(make_translator) -> None:
    sure = make_translator(confidence=LEARNT, split_sentences=True)
    first, second, both, none = (
        next(sure.stream([line]))[0]
        for line in ("el perro come.", "la casa.", "el perro come. la casa.", "")
    )
    for found in (first, second):
        assert found.confidence == LEARNT(evidence(found.log_prob, len(found.tokens)))
    assert both.confidence == pytest.approx(min(first.confidence, second.confidence))
    assert none.confidence is None
    assert next(make_translator().stream(["la casa."]))[0].confidence is None
