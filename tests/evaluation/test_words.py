"""What a word is, with spaces and without."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.evaluation.words import bare_words, words

EUROPEAN = st.text(
    st.characters(max_codepoint=0x0DFF) | st.sampled_from("\u1e9e\u2013\u2019\u20ac\uac00"),
    max_size=30,
)


@given(EUROPEAN)
def test_with_spaces_words_are_between_them(text: str) -> None:
    assert words(text) == text.split()
    spelled = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text)
    assert bare_words(text) == spelled.split()


@pytest.mark.parametrize(
    ("text", "found", "bare"),
    [
        ("他在北京。", ["他", "在", "北", "京。"], ["他", "在", "北", "京"]),
        ("GPU 很快", ["GPU", "很", "快"], ["GPU", "很", "快"]),
        ("カメラを3台", ["カ", "メ", "ラ", "を", "3", "台"], ["カ", "メ", "ラ", "を", "3", "台"]),
        ("ที่นี่", ["ที่", "นี่"], ["ที่", "นี่"]),
        ("กินa กัน", ["กิ", "น", "a", "กั", "น"], ["กิ", "น", "a", "กั", "น"]),
        ("나는 갔다.", ["나는", "갔다."], ["나는", "갔다"]),
        ("हिन्दी में किताब।", ["हिन्दी", "में", "किताब।"], ["हिन्दी", "में", "किताब"]),
        ("كِتَابٌ، cafe\u0301", ["كِتَابٌ،", "cafe\u0301"], ["كِتَابٌ", "cafe\u0301"]),
        ("ＮＴＴの「１」", ["ＮＴＴ", "の「", "１」"], ["ＮＴＴ", "の", "１"]),
    ],
)
def test_without_spaces_every_letter_is_one(text: str, found: list[str], bare: list[str]) -> None:
    assert words(text) == found
    assert bare_words(text) == bare
