"""Items of a sentence are taken out, and stand beside the translation of their neighbours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.inline import TOKEN, BareText, between_tokens, put_back, take_out

ITEM = re.compile(r"</?[A-Za-z][^<>]*>|https?://\S+\w|\{\w*\}|😀")


def bare_of(text: str) -> BareText:
    return take_out(text, [match.span() for match in ITEM.finditer(text)])


def looks(source: str, target: str, links: str) -> np.ndarray:
    """Attention from links `target-source`, in tokens."""
    shape = len(TOKEN.findall(target)), len(TOKEN.findall(source))
    weights = np.zeros(shape)
    for link in links.split():
        weights[tuple(map(int, link.split("-")))] = 1.0
    return weights


@pytest.mark.parametrize(
    ("source", "translation", "links", "expected"),
    [
        ("Tom <b>no</b> vive aquí.", "Tom doesn't live here.", "0-0 1-1 2-2 3-3 4-4",
         "Tom <b>doesn't</b> live here."),
        ("una casa <b>roja</b>", "a red house", "0-0 1-2 2-1", "a <b>red</b> house"),
        ("Das <a href='x'>rote <i>Haus</i></a> steht.", "La maison rouge est là.",
         "0-0 1-2 2-1 3-3 4-3 5-4", "La <a href='x'><i>maison</i> rouge</a> est là."),
        ("Visita https://a.b/x ahora 😀.", "Visit now.", "0-0 1-1 2-2",
         "Visit https://a.b/x now 😀."),
        ("😀 Hola", "Hello", "0-0", "😀 Hello"),
        ("Hola 😀", "Hello", "0-0", "Hello 😀"),
        ("{n}GB frei", "free GB", "0-1 1-0", "free {n}GB"),
        ("una<br/>dos", "one two", "0-0 1-1", "one<br/> two"),
        ("un<b>believ</b>able", "unglaublich", "0-0", "<b>unglaublich</b>"),
        ("<p>Hola</p>", "Hello", "0-0", "<p>Hello</p>"),
        ("Uno <br> dos </b>", "One two", "0-0 1-1", "One <br> two </b>"),
        ("<a></a> Uno", "One", "0-0", "<a></a> One"),
        # elements side by side hold words of their own, those within a word do not
        ("<x>uno</x><y><i>dos</i></y>", "one two", "0-0 1-1", "<x>one</x> <y><i>two</i></y>"),
        # a mark belongs to an element where it did before, whatever looks at what
        ("<b>Nota</b>: uno.", "Note: one.", "0-0 1-0 2-2 3-3", "<b>Note</b>: one."),
        ("<b>Nota:</b> uno.", "Note: one.", "0-0 1-2 2-2 3-3", "<b>Note:</b> one."),
        ("uno (<b>dos</b>)", "one (two)", "0-0 1-2 2-2 3-3", "one (<b>two</b>)"),
        # what stands in both is its own translation
        ("usa <b>Ctrl</b> aquí", "here use Ctrl", "0-2 1-1 2-0", "here use <b>Ctrl</b>"),
        ("abre <b>%APP uno</b>", "open %APP one", "0-0 1-1 2-2", "open <b>%APP one</b>"),
        # both must look at each other: "a" is looked at by more than one
        ("<b>perro</b> ladra", "the dog barks", "0-0 0-1 1-0 2-1", "the <b>dog</b> barks"),
    ],
)  # fmt: skip
def test_an_item_stands_beside_the_translation_of_its_neighbours(
    source: str, translation: str, links: str, expected: str
) -> None:
    bare = bare_of(source)
    assert put_back(bare, translation, looks(bare.text, translation, links)) == expected


def test_words_are_parted_where_an_element_ends_and_the_next_begins() -> None:
    assert bare_of("<x>a</x><y><i>b</i></y>").text == "a b"
    assert bare_of("<b>H</b><sub>2</sub>O").text == "H2O"


WORDS = st.lists(st.sampled_from(["uno", "dos", "tres", "cuatro", ",", "."]), max_size=4)
TREES = st.recursive(
    WORDS.map(" ".join),
    lambda inner: st.tuples(st.sampled_from("abi"), st.lists(inner, max_size=3)).map(
        lambda tree: f"<{tree[0]}>{' '.join(tree[1])}</{tree[0]}>"
    ),
    max_leaves=6,
)


@given(TREES, WORDS.map(" ".join), st.integers(0, 2**32 - 1))
def test_markup_stays_well_formed_and_nothing_is_lost(text: str, translation: str, seed: int):
    bare = bare_of(text)
    shape = len(TOKEN.findall(translation)), len(TOKEN.findall(bare.text))
    weights = np.random.default_rng(seed).dirichlet(np.ones(max(1, shape[1])), shape[0])
    written = put_back(bare, translation, weights[:, : shape[1]])
    ElementTree.fromstring(f"<line>{written}</line>")
    assert sorted(ITEM.findall(written)) == sorted(ITEM.findall(text))
    assert "".join(ITEM.sub("", written).split()) == "".join(translation.split())


@given(st.lists(st.sampled_from(["uno", "<a>", "</a>", "<b>", "</b>", "{x}", "😀", ".", ""])))
def test_no_item_is_lost_however_it_stands(parts: list[str]) -> None:
    text = " ".join(parts)
    bare = bare_of(text)
    assert not ITEM.search(bare.text)
    count = len(TOKEN.findall(bare.text))
    written = put_back(bare, bare.text, np.eye(count))
    assert sorted(ITEM.findall(written)) == sorted(ITEM.findall(text))


def test_attention_between_pieces_is_that_between_tokens() -> None:
    source, target = ["Do", "n't", " go", "."], ["Geh", " nicht", "."]
    pieces = np.array([[0.1, 0.1, 0.7, 0.1], [0.4, 0.5, 0.1, 0.0], [0.0, 0.0, 0.0, 1.0]])
    weights = between_tokens(pieces, source, target)
    assert weights == pytest.approx(np.array([[0.2, 0.7, 0.1], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]]))
    assert between_tokens(None, source, target).argmax(axis=1).tolist() == [0, 1, 2]
    assert between_tokens(np.zeros((0, 4)), source, []).shape == (0, 3)
