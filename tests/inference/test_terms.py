"""Terms of the source are called what the glossary says, or flagged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import translate
from translate.errors import UserError
from translate.inference.batches import Segment
from translate.inference.terms import MOST, Term, Terms, choices, with_terms
from translate.inference.text_constraints import NO_CONSTRAINT, ConstraintEncoder
from translate.inference.translation import NOTHING

BUNDLE = Path(__file__).parents[1] / "bundles" / "transformer"
GLOSSARY = Terms(
    [("casa", "house"), ("casa", "home"), ("casa blanca", "White House"), ("IT", "IT department"),
     ("Datei", "file"), ("字", "letter")]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Una casa.", ["casa"]),
        ("CASA y Casa", ["CASA", "Casa"]),
        ("la casa  blanca, la casa", ["casa  blanca", "casa"]),
        ("casas encasa", []),
        ("it works in IT", ["IT"]),
        ("datei DATEI Datei", ["DATEI", "Datei"]),
        ("漢字", ["字"]),
        ("", []),
    ],
)
def test_terms_are_whole_words_and_the_longest_wins(text: str, terms: list[str]) -> None:
    assert [term.source for term in GLOSSARY.within(text)] == terms


@pytest.mark.parametrize(
    ("targets", "translation", "there"),
    [
        (("house", "home"), "My Home is small.", True),
        (("house",), "The houses are small.", False),
        (("White House",), "the white house", False),
        (("White House",), "THE WHITE HOUSE", True),
    ],
)
def test_any_form_of_a_term_will_do(targets, translation: str, there: bool) -> None:
    assert Term("casa", targets).is_in(translation) is there


def test_forms_follow_the_case_of_the_source() -> None:
    assert Term("casa", ("house",)).forms == ["house"]
    assert Term("Casa", ("house", "Home")).forms == ["house", "Home", "House"]
    assert Term("CASA", ("house",)).forms == ["HOUSE"]
    assert choices([]) == []
    assert len(choices([Term("a", tuple("bcd"))] * 3)) == MOST


@pytest.mark.parametrize(
    ("text", "line"),
    [("a b\n", "line 1: 'a b': write SOURCE, a tab and TARGET"), ("# none\n\n", "has no terms"),
     ("a\t\n", "write SOURCE, a tab and TARGET"), ("a\tb\tc\n", "write SOURCE, a tab"),
     (f"a\t{'b' * 999}\n", "write SOURCE, a tab")],
)  # fmt: skip
def test_a_file_of_another_form_is_told(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=line):
        Terms.read(path)


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_what_lacks_a_term_is_searched_again(tmp_path: Path, search: str) -> None:
    lines = ["the dog sees the old cat today .", "often the child", "a <b>house</b> sleeps ."]
    plain = translate.load(BUNDLE, device="cpu", search=search)
    first = plain.translate(lines)
    path = tmp_path / "terms.tsv"
    path.write_text("# es\ndog\tKatze\ndog\tPferd\nHouse\tx\nhouse\tKind\n", encoding="utf-8")
    with_terms = translate.load(BUNDLE, device="cpu", search=search, terms=path)
    texts = [best for best, *_ in with_terms.stream(lines)]
    assert "Katze" in texts[0].text or "Pferd" in texts[0].text
    assert texts[1].text == first[1]
    assert "Kind" in texts[2].text
    assert "</b>" in texts[2].text
    assert not any("no term" in flag for best in texts for flag in best.flags)


@pytest.mark.parametrize(
    ("again", "flags"),
    [("Here is my sis.", ()), ("Here is my aunt. sis.", ("no term for tía",))],
)
def test_a_term_that_comes_as_a_sentence_of_its_own_is_none(
    joint, again: str, flags: tuple[str, ...]
) -> None:
    texts = {"first": "Here is my aunt.", "terms": again}
    encoder = ConstraintEncoder(joint.target, (), max_length=None, unknown_replaced=False)
    nothing = next(iter(encoder(NO_CONSTRAINT, 1, 1)))
    ((best,),) = with_terms(
        Terms([("tía", "sis")]),
        encoder,
        lambda segments, by="first": [[replace(NOTHING, text=texts[by])] for _ in segments],
        [Segment("Aquí está mi tía.", [], [], nothing)],
    )
    assert (best.text, best.flags) == (texts["first" if flags else "terms"], flags)


def test_a_term_that_cannot_be_written_is_flagged(make_translator) -> None:
    translator = make_translator(terms=Terms([("perro", "漢字")]))
    ((best, *_),) = translator.stream(["el perro come."])
    assert "no term for perro" in best.flags
