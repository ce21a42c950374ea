"""Capitals are read as ordinary text, and written as they came."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.casing import plain_case, written
from translate.inference.lines import WHOLE

PIECES = {
    "a", "y", "Tom", "no", "vive", "en", "Boston", "María", "está", "casa", "la", "con", "DVD",
    "dónde",
}  # fmt: skip


def count(words: Sequence[str]) -> list[int]:
    return [1 if word in PIECES else len(word) for word in words]


@pytest.mark.parametrize(
    ("text", "plain", "case"),
    [
        ("TOM NO VIVE EN BOSTON.", "Tom no vive en Boston.", "upper"),
        ("¿DÓNDE ESTÁ TOM? NO ESTÁ.", "¿Dónde está Tom? No está.", "upper"),
        ("NO", "No", "upper"),
        ("LA CASA {name} <b>CON TOM</b>", "La casa {name} <b>con Tom</b>", "upper"),
        ("Tom NO vive en Boston.", "Tom no vive en Boston.", None),
        ("Tom está EN LA CASA.", "Tom está en la casa.", None),
        ("Tom Vive En Boston Con María.", "Tom vive en Boston con María.", "title"),
        ("La ONU está en Boston, con DVD.", "La ONU está en Boston, con DVD.", None),
        ("https://A.ORG/NO está.", "https://A.ORG/NO está.", None),
        ("Tom", "Tom", None),
        ("Dónde Está", "Dónde está", "title"),
        ("Tom Boston María", "Tom Boston María", None),  # names
        ("12 - 3", "12 - 3", None),
        ("", "", None),
    ],
)
def test_words_in_capitals_are_read_in_their_usual_case(text, plain, case) -> None:
    assert plain_case(text, WHOLE.spans(text), count) == (plain, case)


def test_a_vocabulary_of_capitals_reads_capitals() -> None:
    text = "TOM NO VIVE EN BOSTON."
    assert plain_case(text, [], lambda words: [1 + any(map(str.islower, w)) for w in words]) == (
        text, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "expected"),
    [("upper", "TOM {name} ISN'T <b>HERE</b>."), ("title", "Tom {name} Isn't <b>Here</b>.")],
)
def test_a_translation_is_written_in_the_case_of_its_source(case, expected) -> None:
    text = "Tom {name} isn't <b>here</b>."
    assert written(text, case, WHOLE.spans(text)) == expected


@given(st.text(alphabet="aAbBñÑßİ' .<>/{}é", max_size=40))
def test_nothing_but_the_case_changes(text: str) -> None:
    plain, case = plain_case(text, WHOLE.spans(text), count)
    assert plain.upper() == text.upper()
    if case == "upper":
        assert written(plain, case, WHOLE.spans(plain)) == text
