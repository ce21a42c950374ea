"""Lines end at a line feed and nowhere else; links of a line are those of its words."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import logging
import lzma
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data.plain_text import (
    Gold,
    bare_words,
    from_line,
    has_text,
    json_line,
    normalise,
    one_line,
    read_lines,
    read_links,
    sameness,
    spaced,
    text_hash,
    to_line,
    unspaced,
    without_surrogates,
    words,
)
from translate.errors import UserError

lines_of_text = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n")).filter(
        lambda line: not line.endswith("\r") and not line.startswith("\ufeff")
    )
)


@given(lines_of_text, st.booleans(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_come_back_as_they_were_written(lines, compressed, ending, ended):
    last_is_visible = bool(lines) and lines[-1] != ""
    text = ending.join(lines) + (ending if lines and (ended or not last_is_visible) else "")
    data = text.encode()
    stream = io.BytesIO(gzip.compress(data) if compressed else data)
    assert list(read_lines(stream)) == lines


@given(st.binary())
def test_any_bytes_give_as_many_lines_as_they_have_newlines(data):
    data = b"a" + data  # neither gzip nor UTF-16
    expected = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    lines = list(read_lines(io.BytesIO(data)))
    assert len(lines) == expected
    for line in lines:
        line.encode()  # no lone surrogates


def test_only_newline_ends_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("a\u2028b\x0bc\u0085d\r\ne\rf\n\ng".encode())
    assert list(read_lines(path)) == ["a\u2028b\x0bc\u0085d", "e\rf", "", "g"]


def test_a_byte_order_mark_is_dropped_at_the_start_only():
    stream = io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert list(read_lines(stream)) == ["a", "\ufeffb"]


def test_gzip_is_told_by_its_first_bytes_not_its_name(tmp_path):
    path = tmp_path / "corpus.de"
    path.write_bytes(gzip.compress("grün\nrot\n".encode()))
    assert list(read_lines(str(path))) == ["grün", "rot"]


@pytest.mark.parametrize("data", [
    b"PK\x03\x04\x14\0", "\ufeff上海\n".encode("utf-16-le"), "\ufeffgrün\n".encode("utf-16-be"),
])  # fmt: skip
def test_other_formats_are_refused_with_the_remedy(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.de.gz"
    path.write_bytes(data)
    message = r"train.de.gz is no plain text, .*: unpack it .* iconv -f UTF-16 -t UTF-8"
    with pytest.raises(UserError, match=message):
        list(read_lines(path))


def zstd(text: bytes) -> bytes:
    return pytest.importorskip("zstandard").compress(text)


@pytest.mark.parametrize(("pack", "kind"), [
    (gzip.compress, "gzip"), (lzma.compress, "xz"), (bz2.compress, "bzip2"), (zstd, "zstd"),
])  # fmt: skip
def test_packed_text_is_read_whatever_it_is_called(tmp_path: Path, pack, kind: str) -> None:
    text = "".join(f"grün {n * n}\n" for n in range(2000)).encode()
    plain, packed = tmp_path / "train.de", tmp_path / "train.de.gz"
    plain.write_bytes(text)
    packed.write_bytes(pack(text) + pack(b"noch\n"))  # as `cat` makes one of two
    assert list(read_lines(packed)) == [*read_lines(plain), "noch"]
    packed.write_bytes(pack(text))
    assert text_hash(packed) == text_hash(plain)
    assert list(read_lines(io.BytesIO(packed.read_bytes()))) == list(read_lines(plain))
    packed.write_bytes(pack(text)[: len(pack(text)) // 2])
    with pytest.raises(UserError, match=f"train.de.gz is a damaged {kind} file .*; fetch it again"):
        list(read_lines(packed))


def test_zstd_without_its_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UserError, match=r"needs the package zstandard: .* -m pip install "):
        list(read_lines(io.BytesIO(b"\x28\xb5\x2f\xfd\0")))


def test_a_sentence_may_begin_like_an_archive():
    assert list(read_lines(io.BytesIO(b"BZh9 (PK)\n"))) == ["BZh9 (PK)"]


def test_invalid_utf8_is_replaced_with_a_warning_that_names_the_line(tmp_path, caplog):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"ok\ngr\xfcn\n")
    with caplog.at_level(logging.WARNING):
        assert list(read_lines(path)) == ["ok", "gr\ufffdn"]
    assert "latin1.txt, line 2: byte 0xfc is not UTF-8" in caplog.text


def test_many_invalid_lines_are_summed_up(caplog):
    assert len(list(read_lines(io.BytesIO(b"\xff\n" * 20)))) == 20
    assert len(caplog.records) == 2
    assert "20 lines" in caplog.records[-1].getMessage()


def test_a_text_in_another_encoding_is_refused_where_only_slips_are_tolerated():
    few, many = (b"gr\xfcn\n" * bad + b"ok\n" * 900 for bad in (9, 10))
    assert len(list(read_lines(io.BytesIO(few), tolerated=0.01))) == 909
    assert len(list(read_lines(io.BytesIO(b"gr\xfcn\n" * 5), tolerated=0.01))) == 5  # of so few
    told = (
        r"input: 10 of 910 lines contain bytes that are not UTF-8; convert it, .* iconv -f LATIN1"
    )
    with pytest.raises(UserError, match=told):
        list(read_lines(io.BytesIO(many), tolerated=0.01))


def test_strict_refuses_invalid_utf8():
    with pytest.raises(UserError, match=r"line 1: byte 0xff is not UTF-8; convert the file"):
        list(read_lines(io.BytesIO(b"\xff"), strict=True))


def test_a_missing_file_and_a_damaged_archive_are_one_line_errors(tmp_path):
    with pytest.raises(UserError, match=r"nowhere cannot be read"):
        list(read_lines(tmp_path / "nowhere"))
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"a line\n" * 1000)[:30])
    with pytest.raises(UserError, match=r"damaged.gz is a damaged gzip file"):
        list(read_lines(damaged))


@given(st.text(st.characters()))
def test_one_line_never_breaks_and_surrogates_go(text):
    assert len(one_line(text).splitlines()) <= 1
    without_surrogates(text).encode()


@given(st.text(st.sampled_from("a 1é\u0e01\u4e00、ﾀＡ\U00020000\u2028가")))
def test_a_sign_of_a_script_without_spaces_has_spaces_around_it(text):
    assert spaced(text) == "".join(f" {sign} " if unspaced(sign) else sign for sign in text)


@given(st.text())
def test_json_is_one_line_for_every_reader(text):
    line = json_line({"text": f"{text}\x85\u2028 \u2029"})
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"text": f"{text}\x85\u2028 \u2029"}


def test_normalise_ignores_case_and_spaces():
    assert normalise(" Ein\u00a0 HAUS ") == normalise("ein haus")
    assert normalise("a b") != normalise("ab")
    assert sameness(" Ein\u00a0 HAUS ") == sameness("einhaus") == "einhaus"


@given(st.text())
def test_normalise_ignores_how_characters_are_composed(text):
    composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert normalise(composed) == normalise(apart) == normalise(text)
    assert sameness(composed) == sameness(apart) == sameness(text)
    assert normalise("Cafe\u0301 I\u0307") == normalise("CAF\u00c9 \u0130")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Wait\u2026", "Wait..."), ("the \ufb01sh", "the fish"), ("\uff11\uff12", "12"),
        ("5 m\u00b2", "5 m2"), ("wo\u00adhin", "wohin"), ("a\u200bb", "ab"), ("\ufeffTee", "Tee"),
        ("\u202bשלום\u202c", "שלום"), ("\u061cنعم", "نعم"), ("a\x01b\x9f", "ab"),
        ("\u0390", "\u0390".upper()), ("\u1fe7", "\u1fe7".upper()),
    ],
)  # fmt: skip
def test_what_a_tokenizer_reads_alike_is_the_same_sentence(one, other):
    assert normalise(one) == normalise(other)
    assert sameness(one) == sameness(other)


@pytest.mark.parametrize(
    "line", ["", " ", "\t\u00a0\u3000", "\u200b\ufeff", "\x00\x07", "\u2028", "\ud800"]
)
def test_what_cannot_be_seen_is_no_text(line: str) -> None:
    assert not has_text(line)


@pytest.mark.parametrize("line", ["a", " .", "🚂", "\u200b7", "\ue000", "\u0378", "\ufffd"])
def test_what_can_be_seen_is_text(line: str) -> None:
    assert has_text(line)


def test_scripts_without_spaces_are_known_by_letters_and_signs() -> None:
    assert all(map(unspaced, "他の ｱ ー々。「、！，๏ที່ ဗཀខ〇𠮷".replace(" ", "")))
    assert not any(map(unspaced, "aé1Ａ１가ㄱहि।كת.😀 \u3000"))


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


positions = st.integers(0, 300)


@given(st.frozensets(st.tuples(positions, positions), max_size=12))
def test_links_survive_being_written(links: frozenset[tuple[int, int]]) -> None:
    assert from_line(to_line(links)) == Gold(links, frozenset())


def test_lines_are_sorted_by_number_and_empty_without_links() -> None:
    assert to_line([(10, 0), (2, 3), [2, 1]]) == "2-1 2-3 10-0"
    assert to_line([]) == ""


def test_sure_and_possible_links_have_their_signs() -> None:
    assert from_line("0-0 1p2 2?1  3-3") == Gold(
        frozenset({(0, 0), (3, 3)}), frozenset({(1, 2), (2, 1)})
    )
    assert from_line("0-0 0p0") == Gold(frozenset({(0, 0)}), frozenset())  # sure is more
    assert from_line("  ") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize("word", ["0:1", "1-", "-1-2", "1-2-3", "a-b", "1.5-2", "1–2", "٣-١"])
def test_what_is_no_link_is_told(word: str) -> None:
    with pytest.raises(UserError, match=r"gold, line 3: .* is not a link: write i-j \(sure\)"):
        from_line(f"0-0 {word}", "gold, line 3")


def test_a_file_holds_a_line_a_pair(tmp_path: Path) -> None:
    path = tmp_path / "gold.gz"
    path.write_bytes(gzip.compress(b"0-1\n\n1-0 0p0\r\n"))
    found = read_links(path, ["a b", "", "a b"], ["x y", "z", "x"])
    assert [to_line(gold.sure) for gold in found] == ["0-1", "", "1-0"]
    assert found[2].possible == {(0, 0)}


def test_a_file_that_does_not_fit_the_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0\n1-1\n")
    with pytest.raises(UserError, match="gold has 2 lines for 1 pair of sentences"):
        read_links(path, ["a b"], ["x y"])
    with pytest.raises(UserError, match=r"line 2: 1-1 .* source word 1, .* sentence has no words:"):
        read_links(path, ["a b", " "], ["x y", "x"])
    with pytest.raises(UserError, match=r"line 2: 1-1 links a target word 1, .* words 0 to 0"):
        read_links(path, ["a b", "a b"], ["x y", "x"])
    with pytest.raises(UserError, match="line 2: 1-1 links a source word 1"):
        read_links(path, ["a b", "a"], ["x y", "x y"])
