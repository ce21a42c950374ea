"""Pairs from tables, and what is wrong with them in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conf_nodes import node

from translate.data.corpus import read_nodes
from translate.data.pairs import Lines, Pair
from translate.errors import UserError

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
        ({"columns": {"de": 1, "en": 2}}, "pairs.tsv, line 2 has 1 tab-separated column,"),
        ({"columns": None}, "no column de; without a header line, columns are numb"),
        ({"columns": {"fr": 1, "en": 2}}, r"data.source = de is not a language .* has fr, en"),
        ({"header": True, "columns": {"de": "x", "en": "b"}}, "no column x; .* line has a, b"),
        (
            {"header": True, "columns": {"de": "a", "en": "b"}, "domain": "c"},
            "data.domain: .* no column c; its header line has a, b",
        ),
    ],
)
def test_tsv_problems_name_line_and_column(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read("tsv", write(tmp_path / "pairs.tsv", ["a\tb", "c"]), **changes)


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_pair_n_stands_on_line_n_of_a_table_with_blank_lines(
    tmp_path: Path, kind: str, blank: str
) -> None:
    rows: list[Any] = (
        [f"{p.source}\t{p.target}" for p in PAIRS]
        if kind == "tsv"
        else [{"de": p.source, "en": p.target} for p in PAIRS]
    )
    head = ["de\ten"] if kind == "tsv" else []
    path = write(tmp_path / "table", [*head, rows[0], blank, *rows[1:], blank, blank])
    pairs = read(kind, path, **({"header": True} if head else {}))
    assert pairs == [PAIRS[0], Pair("", ""), *PAIRS[1:]]
    assert pairs.first == 1 + len(head)


def test_jsonl_by_path(tmp_path: Path) -> None:
    nested = [{"translation": {"de": p.source, "en": p.target}} for p in PAIRS]
    columns = {"de": "translation.de", "en": "translation.en"}
    path = write(tmp_path / "pairs.jsonl.gz", nested)
    assert read("jsonl", path, columns=columns) == PAIRS
    with pytest.raises(UserError, match=r"line 1 has no column translation.fr .*it has de, en"):
        read("jsonl", path, columns=columns | {"de": "translation.fr"})
    with pytest.raises(UserError, match=r"column translation .* which is not text"):
        read("jsonl", path, columns=columns | {"de": "translation"})
    flat = [{"translation.de": p.source, "translation.en": p.target} for p in PAIRS]
    assert read("jsonl", write(path, flat), columns=columns) == PAIRS  # the dots are of the names


def test_null_is_an_empty_text_and_a_domain_may_be_a_number(tmp_path: Path) -> None:
    rows = [{"de": "a", "en": None, "by": None}, {"de": "b", "en": "c", "by": 1}]
    path = write(tmp_path / "pairs.jsonl", rows)
    assert read("jsonl", path, domain="by") == [Pair("a", ""), Pair("b", "c", "1")]
    with pytest.raises(UserError, match=r"column by \(data.columns\) holds 1, which is not text"):
        read("jsonl", path, columns={"de": "by", "en": "en"})


@pytest.mark.parametrize(
    "line", ["{", "9" * 5000, "[" * 100_000, '[{"de": "a", "en": "b"}]'],
    ids=["open", "long", "deep", "list"],
)  # fmt: skip
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "pairs.jsonl", [{"de": "a", "en": "b"}, line])
    with pytest.raises(UserError, match=r"pairs.jsonl, line 2 is not a JSON object: .* one per"):
        read("jsonl", path)
