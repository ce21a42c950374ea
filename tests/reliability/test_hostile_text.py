"""Text as it comes: any bytes in, a line out for each line in, valid UTF-8 and no traceback."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.cli.main import main
from translate.data.plain_text import OTHER_FORMAT, one_line, read_lines

Run = Callable[..., str]


def around(characters: list[str] | str) -> list[bytes]:
    """Each alone, and inside a word."""
    return [form.encode() for c in characters for form in (c, f"Hu{c}nd schläft")]


def between(first: int, last: int) -> list[str]:
    return [chr(code) for code in range(first, last + 1)]


MEGABYTE = 1_000_000
HOSTILE: dict[str, list[bytes]] = {
    "C0 controls": around([c for c in between(0, 0x1F) if c != "\n"]),
    "DEL and C1 controls": around(between(0x7F, 0x9F)),
    "bidirectional marks": around("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e⁦⁧⁨⁩"),
    "invisible": around("\u00ad\u034f\u115f\u180e\u200b\u200c\u200d\u2060\u2063\u3164\ufeff\uffa0"),
    "spaces": around([*between(0x2000, 0x200A), *"\u00a0\u1680\u202f\u205f\u3000"]),
    "line breaks that are none": around("\u2028\u2029\x85\v\f\x1c\x1d\x1e"),
    "emoji with joiners": [
        s.encode()
        for s in (
            "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇪🇸", "1️⃣", "🧑🏻‍🤝‍🧑🏿", "👨‍💻 der Hund",
            "\u200d" * 3, "\ufe0f", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        )
    ],
    "decomposed": [
        unicodedata.normalize("NFD", s).encode()
        for s in ("schläft", "Ångström", "한국어", "ệ", "Ǖ")
    ] + [("e" + "\u0301" * n).encode() for n in (1, 10, 1_000)] + ["\u0301 allein".encode()],
    "scripts": [
        s.encode()
        for s in (
            "كلب ينام", "הכלב ישן", "หมานอนหลับ", "कुत्ता सोता है", "狗在睡觉", "собака спит",
            "𐌷𐌿𐌽𐌳𐍃", "犬が寝る",
        )
    ],
    "no characters": around(["\ufffe", "\uffff", "\U0001fffe", "\ue000", "\U0010ffff", "\ufffd"]),
    "tags and selectors": around([*between(0xE0020, 0xE0030), *between(0xFE00, 0xFE0F)]),
    "names of special tokens": around(
        ["<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "▁", "▁▁", "⁇", "%s{0}${x}", "\\n", "'\"`;"]
    ),
    "bytes that begin nothing": [bytes([byte]) for byte in range(0x80, 0x100)],
    "bytes inside a word": [b"Hu" + bytes([byte]) + b"nd" for byte in range(0x80, 0x100)],
    "lone surrogates": [
        code.to_bytes(3, "big")
        for code in (0xEDA080, 0xEDADBF, 0xEDAE80, 0xEDAFBF, 0xEDB080, 0xEDBFBF)
    ] + [b"\xed\xa0\xbd\xed\xb8\x80", b"Hund \xed\xb2\x80 x"],
    "overlong and cut": [
        b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
        b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3", b"\xff\xfe\x00H", b"\xfe\xff",
    ],
    "white space alone": [
        b"", b" ", b"\t", b"  \t  ", b"\r", b"\r\r", b"\xc2\xa0", b"\xe3\x80\x80",
    ],
    "marks of files": [
        b"\xef\xbb\xbfHund", b"\xef\xbb\xbf", b"Hund\r", b"\x1f\x8b", b"PK\x03\x04", b"\0" * 99,
    ],
    "a megabyte": [b"Hund " * (MEGABYTE // 5), b" " * MEGABYTE],
}  # fmt: skip
MEGABYTES = [
    b"x" * MEGABYTE, "🙂".encode() * (MEGABYTE // 4), b"\xff" * MEGABYTE, b"\0" * MEGABYTE,
    "e\u0301".encode() * (MEGABYTE // 3), "▁".encode() * (MEGABYTE // 3),
]  # fmt: skip
LINES = [line for lines in HOSTILE.values() for line in lines]
SHORT = [line for line in LINES if len(line) < MEGABYTE]


def garbage(count: int, seed: int) -> list[bytes]:
    """Lines of bytes at random, and of good text with some of them broken."""
    random, good = Random(seed), "Der Hund schläft – 狗 🙂 [x] .".encode()
    lines = []
    for _ in range(count):
        line = bytearray(good if random.random() < 0.5 else random.randbytes(random.randrange(40)))
        for _ in range(random.randrange(4)):
            line.insert(random.randrange(len(line) + 1), random.randrange(256))
        lines.append(bytes(line).replace(b"\n", b""))
    return lines


@pytest.fixture
def run(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`translate …` in the test's folder; what it says, when it did not fail."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, *arguments: str) -> str:
        capsys.readouterr()
        status = main([command, *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert status == 0, err
        return out + err

    return call


def write(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def assert_lines(path: Path, count: int) -> list[str]:
    """So many lines for every kind of reader, and valid UTF-8."""
    text = path.read_bytes().decode("utf-8", "strict")
    assert text.count("\n") == count
    assert len(text.splitlines()) == count
    return text.split("\n")[:-1]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES, id="hostile"),
        pytest.param(garbage(500, 1), id="garbage"),
        pytest.param(garbage(10_000, 2), id="more garbage", marks=pytest.mark.soak),
        pytest.param(MEGABYTES, id="megabytes", marks=pytest.mark.soak),
    ],
)
def test_a_line_in_is_a_line_out(run: Run, tmp_path: Path, lines: list[bytes]) -> None:
    write(tmp_path / "in", lines)
    # an untrained model is always wrong, and a second try of a megabyte takes its time
    again = ["beam_size=1", "max_length_ratio=0.0", "max_length_offset=2"]
    keys = ["device=cpu", "tokens_per_batch=20000", *(f"guard.again.{key}" for key in again)]
    run("text", "run=run", "input=in", "output=out", *keys)
    out = assert_lines(tmp_path / "out", len(lines))
    blank = [not line.decode("utf-8", "replace").strip() for line in lines]
    assert not [i for i, line in enumerate(out) if blank[i] and line]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(SHORT, id="hostile"),
        pytest.param(garbage(10_000, 3), id="garbage", marks=pytest.mark.soak),
        pytest.param([*HOSTILE["a megabyte"], *MEGABYTES], id="megabytes", marks=pytest.mark.soak),
    ],
)
def test_any_text_is_evaluated(run: Run, tmp_path: Path, lines: list[bytes]) -> None:
    write(tmp_path / "source", lines)
    write(tmp_path / "reference", lines[::-1])
    run("evaluate", "run=run", "input=source", "reference=reference", "device=cpu")
    assert_lines(tmp_path / "run" / "evaluation" / "source.hyp", len(lines))
    report = json.loads((tmp_path / "run" / "evaluation" / "source.json").read_text("utf-8"))
    assert report["items"] == len(lines)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(SHORT, id="hostile"),
        pytest.param(garbage(10_000, 3), id="garbage", marks=pytest.mark.soak),
    ],
)
def test_any_text_is_scored(run: Run, tmp_path: Path, lines: list[bytes]) -> None:
    write(tmp_path / "source", lines)
    write(tmp_path / "reference", lines[::-1])
    run("score", "run=run", "input=source", "reference=reference", "output=scores", "device=cpu")
    assert_lines(tmp_path / "scores", len(lines))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES, id="hostile"),
        pytest.param(garbage(10_000, 4), id="garbage", marks=pytest.mark.soak),
    ],
)
def test_any_text_is_prepared(run: Run, tmp_path: Path, lines: list[bytes]) -> None:
    tame = [b"Satz %d ." % number for number in range(len(lines))]
    pairs = list(zip(nearly_utf_8(lines), tame, strict=True))
    write(tmp_path / "train.de", [pair[number % 2] for number, pair in enumerate(pairs)])
    write(tmp_path / "train.en", [pair[1 - number % 2] for number, pair in enumerate(pairs)])
    said = run(
        "prepare", "data=files", "data.source=de", "data.target=en",
        "data.cleaning.length_ratio=null", "data.hold_out.dev=10", "data.hold_out.test=10",
        "tokenizer.vocab_size=4000", "cache=cache",
    )  # fmt: skip
    assert "Prepared corpus: " in said


def nearly_utf_8(lines: list[bytes]) -> list[bytes]:
    """The lines, five of which may have other bytes: with more of them a corpus is refused."""
    found, others = [], 0
    for line in lines:
        text = line.decode("utf-8", "replace").encode()
        others += text != line
        found.append(text if others > 5 else line)
    return found


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))))
def test_lines_are_split_at_newlines_alone(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    write(path, lines)
    if lines[:1] and (lines[0].startswith(b"\x1f\x8b") or OTHER_FORMAT.match(lines[0])):
        return  # other formats are refused: tests/data/test_plain_text.py
    found = list(read_lines(path))
    assert len(found) == len(lines)
    assert all(len(one_line(line).splitlines()) <= 1 for line in found)
    "".join(found).encode("utf-8", "strict")
