"""Pairs from two files a split, and what is wrong with them in one line."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import pytest
from conf_nodes import node

from translate.data.corpus import check_data, read_nodes
from translate.data.pairs import Lines, Pair
from translate.data.sources import Source
from translate.errors import UserError

PAIRS = [
    Pair("ein Haus", "a house"),
    Pair("zwei Bäume", "two trees"),
    Pair("«drei»", "three\u2028"),
]
NONE: dict[str, Any] = {"dev": None, "test": None}


def files(**changes: Any) -> Source:
    data = node("data", "files", **{"source": "de", "target": "en"} | NONE | changes)
    return read_nodes(data, node("tokenizer", "bpe"))[0]


def read(folder: Path, **changes: Any) -> dict[str, Lines]:
    return files(**{"dir": str(folder)} | changes).read(folder / "cache")


def lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def write_files(folder: Path, name: str, pairs: list[Pair], *, compress: bool = False) -> None:
    for ending, texts in (("de", [p.source for p in pairs]), ("en", [p.target for p in pairs])):
        data = lines(texts)
        path = folder / f"{name}.{ending}{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(data) if compress else data)


@pytest.mark.parametrize("compress", [False, True])
def test_files_by_prefix(tmp_path: Path, compress: bool) -> None:
    write_files(tmp_path, "train", PAIRS, compress=compress)
    write_files(tmp_path, "val", PAIRS[:1], compress=compress)
    assert read(tmp_path, dev="val") == {"train": PAIRS, "dev": PAIRS[:1]}
    turned = read(tmp_path, source="en", target="de")
    assert turned["train"] == [Pair(p.target, p.source) for p in PAIRS]


def test_dev_and_test_files_are_taken_where_they_are_there(tmp_path: Path) -> None:
    write_files(tmp_path, "train", PAIRS)
    auto = {"dev": "auto", "test": "auto"}
    assert read(tmp_path, **auto) == {"train": PAIRS}
    write_files(tmp_path, "dev", PAIRS[:1])
    write_files(tmp_path, "test", PAIRS[1:2], compress=True)
    assert read(tmp_path, **auto) == {"train": PAIRS, "dev": PAIRS[:1], "test": PAIRS[1:2]}
    (tmp_path / "dev.en").unlink()
    with pytest.raises(UserError, match=r"neither .*dev\.en nor dev\.en\.gz exists"):
        read(tmp_path, **auto)


def test_files_by_name_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "german.txt").write_bytes(lines([p.source for p in PAIRS]))
    (tmp_path / "english.txt").write_bytes(lines([p.target for p in PAIRS]))
    assert read(tmp_path, train=["german.txt", "english.txt"]) == {"train": PAIRS}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(tmp_path, dir=None, train=["~/german.txt", "~/english.txt"]) == {"train": PAIRS}


ALIGNED = {"dev": "val", "alignments": "align"}


def test_files_of_links_stand_beside_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "train", PAIRS)
    write_files(tmp_path, "val", PAIRS[:1])
    (tmp_path / "train.align.gz").write_bytes(gzip.compress(b"1-1 0-0\n0-0\n\n"))
    aligned = read(tmp_path, **ALIGNED)
    assert [pair.alignment for pair in aligned["train"]] == [((0, 0), (1, 1)), ((0, 0),), ()]
    assert [pair._replace(alignment=()) for pair in aligned["train"]] == PAIRS
    assert aligned["dev"] == PAIRS[:1]  # no val.align, no links
    source = files(dir=str(tmp_path), **ALIGNED)
    before = source.fingerprint(tmp_path)
    (tmp_path / "val.align").write_text("0-1 0p1 1?1\n")
    assert source.fingerprint(tmp_path) != before
    assert read(tmp_path, **ALIGNED)["dev"][0].alignment == ((0, 1),)
    (message,) = caplog.messages  # none of train.align, whose links are all sure
    assert f"ignoring 1 possible link of {tmp_path / 'val.align'}: only" in message


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (None, r"train.align .*exists; .*data.alignments"),
        ("0-0\n", r"train\.align has 1 line for 3 pairs"),
        ("0-0\n2-0\n\n", "line 2: 2-0 links a source word 2"),
    ],
)
def test_links_that_do_not_fit_the_text_are_an_error(
    tmp_path: Path, links: str | None, message: str
) -> None:
    write_files(tmp_path, "train", PAIRS)
    if links is not None:
        (tmp_path / "train.align").write_text(links)
    with pytest.raises(UserError, match=message):
        read(tmp_path, alignments="align")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": "file"}, "did you mean files?"),
        ({"trian": "x"}, "did you mean data.train?"),
        ({"hold_out": {"dev": 0, "test": 0}}, "data.hold_out.dev"),
        ({"tokens_per_batch": -1}, "data.tokens_per_batch = -1"),
        ({"train": 3}, "data.train = 3"),
        (
            {"alignments": "align", "cleaning": {"replace": [["-", " "]]}},
            "data.alignments count the words in the files, but data.cleaning.replace may join",
        ),
        ({"alignments": "align", "train": ["a", "b"]}, "data.train must be a prefix"),
        ({"hold_out": {"dev": ["a", "7"], "test": [7]}}, "both name the group 7"),
    ],
)
def test_problems_of_the_node_are_named(changes: dict[str, Any], problem: str) -> None:
    plain = {"source": "de", "target": "en"}
    assert check_data(node("data", "files", **plain)) == []
    assert any(problem in line for line in check_data(node("data", "files", **plain, **changes)))


def test_unequal_line_counts_name_both_files_and_counts(tmp_path: Path) -> None:
    write_files(tmp_path, "train", PAIRS)
    (tmp_path / "train.en").write_bytes(lines(["one", "two"]))
    with pytest.raises(UserError, match=r"train.de has 3 lines, but .*train.en has 2"):
        read(tmp_path)
    (tmp_path / "train.de").write_bytes(lines(["eins"]))
    with pytest.raises(UserError, match=r"train.de has 1 line, but .*train.en has 2: "):
        read(tmp_path)


@pytest.mark.parametrize("side", ["de", "en"])
def test_blank_lines_that_one_side_alone_has_at_its_end_do_not_count(
    tmp_path: Path, side: str
) -> None:
    write_files(tmp_path, "train", PAIRS)
    with (tmp_path / f"train.{side}").open("ab") as file:
        file.write(b"\n \n")
    assert read(tmp_path) == {"train": PAIRS}
    with (tmp_path / f"train.{side}").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match=r"has 6 lines, but .* has 3|has 3 lines, but .* has 6"):
        read(tmp_path)


@pytest.mark.parametrize(("end", "code"), [("\x85", r"\xc2\x85"), ("\r", r"\x0d")])
def test_a_file_without_line_feeds_names_the_command_that_mends_it(
    tmp_path: Path, end: str, code: str
) -> None:
    write_files(tmp_path, "train", PAIRS)
    path = tmp_path / "train.de"
    path.write_bytes(end.join(["a", "b", "c", ""]).encode())
    told = f"train.de has no line feed, but .* other line ends .* sed 's/{code}/\\n/g' "
    with pytest.raises(UserError, match=re.escape(told).replace(r"\.\*", ".*")):
        read(tmp_path)


def test_further_text_may_be_compressed_as_any_other(tmp_path: Path) -> None:
    write_files(tmp_path, "mono", PAIRS, compress=True)
    back = {"source": str(tmp_path / "mono.de"), "target": str(tmp_path / "mono.en.gz")}
    extra = files(extra={"back": back}).extra
    assert extra is not None
    assert list(extra["back"].open()) == PAIRS


def test_missing_files_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither .*train.de nor train.de.gz exists; set data.dir"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"data.dir = nowhere: /.*/nowhere is not a folder; give"):
        read(tmp_path, dir="nowhere")


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    write_files(tmp_path, "train", PAIRS)
    (tmp_path / "train.de").unlink()
    os.mkfifo(tmp_path / "train.de")
    with pytest.raises(UserError, match=r"train.de is no file that can be read twice, .*: write"):
        files(dir=str(tmp_path)).fingerprint(tmp_path)


def test_a_fingerprint_follows_the_text_and_neither_its_place_nor_its_packing(
    tmp_path: Path,
) -> None:
    """gzip notes the time, so that its bytes are others."""
    prints = []
    for name, text in (("a", b"a\nb\n"), ("b", gzip.compress(b"a\nb\n", mtime=1)), ("c", b"a\n")):
        (tmp_path / name).mkdir()
        for language in ("de", "en"):
            (tmp_path / name / f"train.{language}").write_bytes(text)
        prints.append(files(dir=str(tmp_path / name)).fingerprint(tmp_path))
    assert prints[0] == prints[1] != prints[2]
