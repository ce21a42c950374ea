"""Pairs from tables, and what is wrong with them in one line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from conf_nodes import corpus_of, node
from hypothesis import given
from hypothesis import strategies as st

from translate.data.cleaning import Dropped
from translate.data.corpus import read_nodes
from translate.data.pairs import Lines, Pair, Unreadable
from translate.errors import UserError
from translate.extras.doctor import diagnose

PAIRS = [
    Pair("ein Haus", "a house"),
    Pair("zwei Bäume", "two trees"),
    Pair("«drei»", "three\u2028"),
]


def read(kind: str, path: Path, **changes: Any) -> Lines:
    data = node("data", kind, source="de", target="en", train=str(path), **changes)
    return read_nodes(data, node("tokenizer", "bpe"))[0].read(path.parent / "cache")["train"]


def write(path: Path, rows: list[Any]) -> Path:
    """Write a line a row: JSON of what is no text."""
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    content = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_tsv_by_number_and_by_header(tmp_path: Path) -> None:
    rows = [f"{p.target}\t{p.source}\tsomeone" for p in PAIRS]
    plain = write(tmp_path / "plain.tsv", rows)
    headed = write(tmp_path / "headed.tsv", [f"{row}\r" for row in ["en\tde\tby", *rows]])
    assert read("tsv", plain, columns={"de": 2, "en": 1}) == PAIRS
    assert read("tsv", plain, columns={"de": "2", "en": "1"}) == PAIRS
    assert read("tsv", headed, header=True) == PAIRS


def test_a_domain_comes_by_number_name_or_path(tmp_path: Path) -> None:
    pairs = [Pair("a", "b", "news"), Pair("c", "d", "talk")]
    rows = ["\t".join(pair[:3]) for pair in pairs]
    plain = write(tmp_path / "plain.tsv", rows)
    headed = write(tmp_path / "headed.tsv", ["de\ten\ttopic", *rows])
    assert read("tsv", plain, columns={"de": 1, "en": 2}, domain=3) == pairs
    assert read("tsv", headed, header=True, domain="topic") == pairs
    assert {pair.group for pair in read("tsv", headed, header=True)} == {""}
    nested = [{"de": s, "en": t, "about": {"topic": d}} for s, t, d, _ in pairs]
    assert read("jsonl", write(tmp_path / "pairs.jsonl", nested), domain="about.topic") == pairs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns": None},
            r"no column de \(data.source\), .* such as 'data.columns={de: 1, en: 2}'",
        ),
        ({"columns": {"fr": 1, "en": 2}}, r"data.source = de is not a language .* has fr, en"),
        (
            {"header": True, "columns": {"de": "x", "en": "b"}},
            r"no column x \(data.columns\), but a, b",
        ),
        (
            {"header": True, "columns": {"de": "a", "en": "b"}, "domain": "c"},
            r"no column c \(data.domain\), but a, b",
        ),
        (
            {"columns": {"de": 1, "en": 3}},
            "3 of 3 rows cannot be read .* row 1: it has 2 cells, where",
        ),
    ],
)
def test_tsv_problems_name_the_column_and_the_key(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read("tsv", write(tmp_path / "pairs.tsv", ["a\tb", "c\td", "e\tf"]), **changes)


MESSY = [
    Pair('er sagt "hund"', 'he says "dog"'), Pair("Guten Morgen", "good morning"),
    Pair('"Hilfe!"', '"Help!"'), Pair("Tab\tim Satz", "tab\tinside"),
    Pair("eine Zeile", "one line"), Pair('5" breit', '5" wide'), Pair("", "x"),
    Pair("2024", "2024"), Pair("a, b; c|d", "Ja, ja."),
]  # fmt: skip


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("header", [["de", "en"], [" DE ", "En"], ["de-AT", "en_US"], None])
@pytest.mark.parametrize(("kind", "separator"), [("tsv", "\t"), *(("csv", s) for s in ",;\t|")])
def test_a_table_is_read_as_pandas_writes_it(
    tmp_path: Path, kind: str, separator: str, header: list[str] | None, quoting: int
) -> None:
    """With row numbers, and with line ends in cells, which are spaces of a pair."""
    out = io.StringIO()
    rows = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\r\n")
    if header:
        rows.writerow(["", *header])
    for number, (source, target, *_) in enumerate(MESSY):
        rows.writerow([number, source.replace("eine ", "eine\n"), target])
    path = tmp_path / "table"
    path.write_text(f"\ufeff{out.getvalue()}", encoding="utf-8", newline="")
    by_number = {} if header else {"columns": {"de": 2, "en": 3}, "header": "auto"}
    pairs = read(kind, path, **by_number)
    assert pairs == MESSY
    assert pairs.first == (2 if header else 1)


def test_quotation_marks_that_belong_to_the_text_stay(tmp_path: Path) -> None:
    rows = [
        '"Ja!"\t"Yes!"',
        '"Nein", sagt er.\t"No", he says.',
        'ein "Wort"\ta "word"',
        '"offen\t"x',
    ]
    path = write(tmp_path / "pairs.tsv", rows)
    literal = [Pair(*row.split("\t")) for row in rows]
    assert read("tsv", path, columns={"de": 1, "en": 2}) == literal


def test_a_row_with_a_tab_too_many_is_read_where_only_one_reading_is_left(tmp_path: Path) -> None:
    rows = ["de\ten", "a\tb", "\tc\td", "e\tf\t", "g\t\th", "i\tj\tk", "l", "\tm"]
    pairs = read("tsv", write(tmp_path / "pairs.tsv", rows))
    assert [tuple(pair[:2]) for pair in pairs[:4]] == [*zip("aceg", "bdfh", strict=True)]
    assert pairs[4:6] == [
        Unreadable.of("i\tj\tk", "it has 3 cells, where the table has 2"),
        Unreadable.of("l", "it has 1 cell, where the table has 2"),
    ]
    assert pairs[6] == Pair("", "m")
    rows = ["de\ten\tby", "a\tb\t", "\tc\td\t"]  # of two empty cells either may be too many
    assert isinstance(read("tsv", write(tmp_path / "pairs.tsv", rows))[1], Unreadable)


def test_r_names_no_column_of_row_names(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", ['"de"\t"en"', '"1"\t"a"\t"b"', '"2"\t"c"\t"d"'])
    assert read("tsv", path) == [Pair("a", "b"), Pair("c", "d")]


def test_a_bad_line_of_a_csv_does_not_swallow_the_next(tmp_path: Path) -> None:
    rows = ["de,en", '"a" x,b', "c,d", '"offen,e', "f,g"]
    pairs = read("csv", write(tmp_path / "pairs.csv", rows))
    assert [isinstance(pair, Unreadable) for pair in pairs] == [True, False, True, False]
    assert [pair[:2] for pair in pairs[1::2]] == [("c", "d"), ("f", "g")]


@given(st.lists(st.text(st.sampled_from('"\t,;a\n')), max_size=8))
def test_any_text_is_a_table_of_pairs_or_is_refused(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "table", ["de\ten", *lines])
        for kind in ("tsv", "csv"):
            with suppress(UserError):
                assert all(isinstance(text, str) for pair in read(kind, path) for text in pair[:3])


def test_jsonl_by_path(tmp_path: Path) -> None:
    nested = [{"translation": {"de": p.source, "en": p.target}} for p in PAIRS]
    columns = {"de": "translation.de", "en": "translation.en"}
    path = write(tmp_path / "pairs.jsonl.gz", nested)
    assert read("jsonl", path, columns=columns) == PAIRS
    assert read("jsonl", path) == PAIRS  # there is only one
    with pytest.raises(UserError, match=r"no column translation.fr .*but translation.de, transla"):
        read("jsonl", path, columns=columns | {"de": "translation.fr"})
    with pytest.raises(UserError, match=r"column translation .* which is not text"):
        read("jsonl", path, columns=columns | {"de": "translation"})
    flat = [{"translation.de": p.source, "translation.en": p.target} for p in PAIRS]
    assert read("jsonl", write(path, flat), columns=columns) == PAIRS  # the dots are of the names
    twice = [{"a": row, "b": row} for row in ({"de": "x", "en": "y"},)]
    told = r"several columns de .*a.de, b.de: .* 'data.columns={de: a.de, en: a.en}'"
    with pytest.raises(UserError, match=told):
        read("jsonl", write(path, twice))


def test_a_number_is_the_text_that_spells_it_and_null_an_empty_one(tmp_path: Path) -> None:
    rows = ['{"de": 2024, "EN": 1.50, "by": 1}', '{"de": "b", "EN": null, "by": NaN}']
    path = write(tmp_path / "pairs.jsonl", rows)
    assert read("jsonl", path, domain="by") == [Pair("2024", "1.50", "1"), Pair("b", "")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not a JSON object"), ("[" * 100_000, "is not a JSON object"),
        ('[{"de": "a", "en": "b"}]', "is not a JSON object"),
        ('{"de": "a"}', r"has no column en \(data.target\), but de: "),
        ('{"de": ["a"], "en": "b"}', r"column de \(data.source\) holds \['a'\], which is not text"),
        ('{"de": true, "en": "b"}', "holds True, which is not text"),
    ],
    ids=["open", "deep", "list", "none", "inner list", "bool"],
)  # fmt: skip
def test_a_bad_line_does_not_refuse_the_others(tmp_path: Path, line: str, reason: str) -> None:
    good = {"de": "a", "en": "b"}
    pairs = read("jsonl", write(tmp_path / "pairs.jsonl", [good, line, good]))
    assert pairs[::2] == [Pair("a", "b")] * 2
    assert isinstance(pairs[1], Unreadable)
    assert re.search(reason, pairs[1].reason)
    with pytest.raises(UserError, match=f"11 of 12 rows cannot be read.* row 2: .*{reason}"):
        read("jsonl", write(tmp_path / "pairs.jsonl", [good, *[line] * 11]))


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    table = pyarrow.table({"translation": [{"DE": p.source, "EN": p.target} for p in PAIRS]})
    pyarrow.parquet.write_table(table, path)
    assert read("parquet", path) == PAIRS
    path.write_text("de,en", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs.parquet cannot be read as Parquet .*data=csv"):
        read("parquet", path)


def test_rows_that_cannot_be_read_are_counted_listed_and_examined(tmp_path: Path) -> None:
    good = [f"{n} Häuser\t{n} houses" for n in range(60)]
    write(tmp_path / "train.tsv", ["de\ten", *good[:50], "a\tb\tc"])
    write(tmp_path / "dev.tsv", ["de\ten", *good[50:], "allein"])
    data = node("data", "tsv", source="de", target="en", train=str(tmp_path / "train.tsv"),
                dev=str(tmp_path / "dev.tsv"), hold_out={"dev": 1, "test": 0})  # fmt: skip
    tokenizer = node("tokenizer", "char", vocab_size=60, hard_vocab_limit=False)
    dropped: list[Dropped] = []
    corpus = corpus_of(data, tokenizer, cache=tmp_path / "cache", tell=dropped.append)
    assert corpus.report["dropped"]["unreadable"] == 1
    assert dropped == [Dropped("unreadable", "main", 52, "a b c", "")]
    assert len(corpus.dev) == 10
    diagnosis = diagnose(*read_nodes(data, tokenizer), tmp_path)
    (finding,) = diagnosis.findings
    assert [(line.split, line.number, line.source) for line in finding.lines] == [
        ("train", 52, "a\tb\tc"), ("dev", 12, "allein"),
    ]  # fmt: skip
    assert "rows that cannot be read (train 1, dev 1)" in corpus.report["suspicious"]
