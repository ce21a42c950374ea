"""Markup comes through: XML stays well-formed, and characters stay the characters they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import translate
from translate.errors import UserError
from translate.inference.inline import put_back, take_out
from translate.inference.lines import Protection
from translate.inference.markup import read, well_formed, written
from translate.inference.translator import Translator

BUNDLE = Path(__file__).parents[1] / "bundles" / "transformer"
TEXTS = st.lists(
    st.sampled_from(
        ["the dog", "sleeps", "The cat sees the old child .", "a house", " ", "😀", "!", "&lt;",
         "&gt;", "&amp;", "&quot;", "&#60;", "&#x26;", "&#38;lt;", "&amp;gt;", "&#160;", "]", ">",
         "<!-- a > b -->", "<?php x?>", "<![CDATA[a < b & c]]>", "https://a.b/?x=1&amp;y=2", "{x}"]
    ),
    max_size=4,
).map(" ".join)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "br", "x-y", "ñ", "_"])
ATTRIBUTES = st.sampled_from(["", ' t="a > b"', " t='x&amp;\"y'", ' t="&quot;" u = "/"', "\n"])


def element(parts: tuple[str, str, list[str]]) -> str:
    name, attributes, inner = parts
    inside = "".join(inner)
    return f"<{name}{attributes}>{inside}</{name}>" if inner else f"<{name}{attributes}/>"


LINES = st.recursive(
    TEXTS,
    lambda inner: st.one_of(
        st.tuples(NAMES, ATTRIBUTES, st.lists(inner, max_size=3)).map(element),
        st.tuples(inner, st.sampled_from(["", " "]), inner).map("".join),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def translators() -> Iterator[dict[str, Translator]]:
    logging.disable()
    yield {
        markup: translate.load(BUNDLE, device="cpu", search="greedy", markup=markup)
        for markup in ("auto", "xml", "none")
    }
    logging.disable(logging.NOTSET)


def parsed(line: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<line>{line}</line>")


def tags(line: str) -> list[tuple[str, str]]:
    return sorted((each.tag, str(each.attrib)) for each in parsed(line).iter())


@pytest.mark.parametrize("markup", ["auto", "xml"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=LINES)
def test_what_is_well_formed_stays_so(translators, markup: str, line: str) -> None:
    (translation,) = translators[markup].translate([line.replace("\n", " ")])
    assert tags(translation) == tags(line)


@given(line=LINES)
def test_what_is_read_is_written_as_it_was(line: str) -> None:
    """But for the ways to write a character."""
    assert well_formed(line)
    reading = read(line, "auto")
    assert reading.xml
    again = parsed(written(reading.text))
    assert "".join(again.itertext()) == "".join(parsed(line).itertext())


@pytest.mark.parametrize(
    ("line", "text", "back"),
    [
        ("Q&amp;A", "Q&A", "Q&amp;A"),
        ("Tom&nbsp;vive", "Tom\N{NO-BREAK SPACE}vive", "Tom\N{NO-BREAK SPACE}vive"),
        ("&amp;lt;b&amp;gt;", "&amp;lt;b&amp;gt;", "&amp;lt;b&amp;gt;"),
        ("&#38;lt;", "&amp;lt;", "&amp;lt;"),
        ("a &lt; b", "a &lt; b", "a &lt; b"),
        ("&brandShortName; &eacute;", "&brandShortName; é", "&brandShortName; é"),
        ('<a t="&quot;&amp;">x</a>', '<a t="&quot;&amp;">x</a>', '<a t="&quot;&amp;">x</a>'),
        ("<![CDATA[a < b & c]]>", "a &lt; b & c", "a &lt; b &amp; c"),
    ],
)
def test_references_are_read_and_written(line: str, text: str, back: str) -> None:
    reading = read(line, "auto")
    assert (reading.text, written(reading.text)) == (text, back)


@pytest.mark.parametrize("line", ["AT&T", "x < y", "<b>", "a & <b>x</b>", "<br>&amp;"])
def test_what_is_not_well_formed_is_no_xml_unless_it_is_so_named(line: str) -> None:
    assert not read(line, "auto").xml
    assert read(line, "xml").xml
    assert read(line, "none") == (line, False, False)


def test_nothing_that_a_model_writes_becomes_markup() -> None:
    protection = Protection(["tag"])
    source, translation = "<b>uno</b>", "a <i> & &lt; \x00 ]]> <b>"
    bare = take_out(source, protection.spans(source), xml=True)
    text = written(put_back(bare, translation, np.ones((12, 1))))
    assert "".join(parsed(text).itertext()) == translation.replace("\x00", "")
    assert [each.tag for each in parsed(text).iter()] == ["line", "b"]


def test_tags_of_several_sentences_keep_their_order(translators) -> None:
    line = "<b>The dog sleeps . The cat <i>sees the child . A house</i> sleeps . Often</b>"
    (translation,) = translators["auto"].translate([line])
    assert tags(translation) == tags(line)


def test_without_markup_all_is_characters(translators) -> None:
    protects = {markup: each.guard.config.protect for markup, each in translators.items()}
    assert {markup for markup in protects if "tag" in protects[markup]} == {"auto", "xml"}
    assert "&nbsp;" not in translators["xml"].translate(["a house&nbsp;"])[0]
    assert translators["none"].translate(["&", "<"]) == ["&", "<"]


def test_an_unknown_way_is_told() -> None:
    with pytest.raises(UserError, match="markup='html': must be one of auto, xml, none"):
        translate.load(BUNDLE, device="cpu", markup="html")  # type: ignore[arg-type]
