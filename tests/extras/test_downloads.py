"""Data sets of the hub and files of packages, from local ones that stand in for them."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conf_nodes import node

from translate.data.corpus import check_data, read_nodes
from translate.data.pairs import Lines, Pair
from translate.data.sources import Source
from translate.errors import UserError
from translate.extras.downloads import fetch, read_sqlite

PAIRS = [
    Pair("ein Haus", "a house"),
    Pair("zwei Bäume", "two trees"),
    Pair("«drei»", "three\u2028"),
]
TRAIN_ALONE = {"train": "train", "dev": None, "test": None}


def source(kind: str, **changes: Any) -> Source:
    data = node("data", kind, **{"source": "de", "target": "en"} | changes)
    return read_nodes(data, node("tokenizer", "bpe"))[0]


def read(kind: str, folder: Path, **changes: Any) -> dict[str, Lines]:
    return source(kind, **changes).read(folder / "cache")


def write_files(folder: Path, name: str, pairs: list[Pair]) -> None:
    for side, language in enumerate(("de", "en")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("streaming", [False, True])
def test_hub_reads_what_datasets_loads(
    tmp_path: Path, streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "somebody" / "pairs"
    folder.mkdir(parents=True)
    rows = [json.dumps({"translation": {"de": p.source, "en": p.target}}) for p in PAIRS]
    (folder / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    keys = {
        "id": str(folder), "splits": TRAIN_ALONE, "streaming": streaming,
        "columns": {"de": "translation.de", "en": "translation.en"},
    }  # fmt: skip
    assert read("hub", tmp_path, **keys) == {"train": PAIRS}
    assert read("hub", tmp_path, **keys, limit=2) == {"train": PAIRS[:2]}
    before = source("hub", **keys).fingerprint(tmp_path)
    assert read("hub", tmp_path, **keys | {"columns": None}) == {"train": PAIRS}
    with pytest.raises(
        UserError, match=r"split train: 3 of 3 rows .*no column x .*but translation.de"
    ):
        read("hub", tmp_path, **keys | {"columns": {"de": "x", "en": "y"}})
    with pytest.raises(UserError, match=r"cannot be loaded: .*check the id") as refused:
        read("hub", tmp_path, **keys | {"splits": TRAIN_ALONE | {"train": "no"}})
    assert "hold it out" not in str(refused.value)
    with pytest.raises(UserError, match=r"data\.splits\.dev=null to hold it out of train"):
        read("hub", tmp_path, **keys | {"splits": TRAIN_ALONE | {"dev": "dev"}})
    (folder / "train.jsonl").write_text("\n".join(rows[1:]))  # the same name, another text
    assert source("hub", **keys).fingerprint(tmp_path) != before


def test_a_local_folder_goes_before_the_hub(tmp_path: Path) -> None:
    write_files(tmp_path, "train", PAIRS)
    write_files(tmp_path, "dev", PAIRS[1:])
    keys = {"id": "nobody/nothing", "dir": str(tmp_path)}
    with pytest.raises(UserError, match=r"test\.de.* data\.files\.test=null to hold it out of tra"):
        read("hub", tmp_path, **keys)
    keys["files"] = TRAIN_ALONE | {"dev": "dev"}
    assert read("hub", tmp_path, **keys) == {"train": PAIRS, "dev": PAIRS[1:]}
    few = {"train": PAIRS[:1], "dev": PAIRS[1:]}  # the limit is of the training text alone
    assert read("hub", tmp_path, **keys, limit=1) == few


def test_what_a_data_set_of_the_hub_needs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.id=OWNER/NAME, .* train.de, train.en"):
        read("hub", tmp_path)
    (problem,) = check_data(node("data", "hub", source="de", target="en", dir="x", domain=3))
    assert problem.startswith("data.domain = 3 names a column, but the files of data.dir = x have")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


MEMBER, OTHER = "words/data/pairs.tsv", "words/more/pairs.tsv"
TABLE = "".join(f"{p.target}\t{p.source}\n" for p in PAIRS).encode()


def wheel(folder: Path, members: dict[str, bytes]) -> str:
    path = folder / "words-1.0-py3-none-any.whl"
    info = {
        "words-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: words\nVersion: 1.0\n",
        "words-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "words-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | info).items():
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_pypi_fetches_checks_and_unpacks_one_member_once(tmp_path: Path, index: Path) -> None:
    cache = tmp_path / "cache"
    sha256 = wheel(index, {MEMBER: TABLE, OTHER: b"one\teins\n", "words/__init__.py": b"1/0"})
    keys = {
        "name": "words", "version": "1.0", "sha256": sha256, "member": MEMBER, "format": "tsv",
        "header": False, "columns": {"en": 1, "de": 2},
    }  # fmt: skip
    assert read("pypi", tmp_path, **keys) == {"train": PAIRS}
    with pytest.raises(UserError, match=r"data.member = other.tsv is not in words-1.0"):
        fetch("words", "1.0", sha256, "other.tsv", cache)
    # two members of one name are not mixed up
    assert fetch("words", "1.0", sha256, OTHER, cache).read_bytes() == b"one\teins\n"
    for archive in index.iterdir():
        archive.unlink()
    assert read("pypi", tmp_path, **keys) == {"train": PAIRS}  # from the cache
    kept = [path.name for path in cache.rglob("*") if path.is_file() and path.name != "lock"]
    assert kept == ["pairs.tsv"] * 2


@pytest.mark.parametrize(
    ("there", "message"),
    [(True, "DO NOT MATCH THE HASHES.*nothing was unpacked"), (False, "Could not find.*network")],
)
def test_another_hash_and_a_missing_package_are_refused(
    tmp_path: Path, index: Path, there: bool, message: str
) -> None:
    if there:
        wheel(index, {MEMBER: TABLE})
    with pytest.raises(UserError, match=f"pip could not fetch words==1.0: .*{message}"):
        fetch("words", "1.0", "0" * 64, MEMBER, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("pairs.tsv"))


def test_sqlite_by_query(tmp_path: Path, index: Path) -> None:
    database = tmp_path / "verses.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE verses (name, book, verse, text)")
        rows = [("e", 7, n, p.source) for n, p in enumerate(PAIRS)]
        rows += [("4", 7, n, p.target) for n, p in enumerate(PAIRS)]
        connection.executemany("INSERT INTO verses VALUES (?, ?, ?, ?)", rows)
    connection.close()
    query = (
        "SELECT s.text, t.text, s.book FROM verses s JOIN verses t USING (book, verse) "
        "WHERE s.name = :source AND t.name = :target ORDER BY verse"
    )
    keys = {
        "name": "words", "version": "1.0", "member": "verses.db", "format": "sqlite",
        "query": query, "columns": {"de": "e", "en": "4"},
        "sha256": wheel(index, {"verses.db": database.read_bytes()}),
    }  # fmt: skip
    expected = [Pair(p.source, p.target, group="7") for p in PAIRS]
    assert read("pypi", tmp_path, **keys) == {"train": expected}
    with pytest.raises(UserError, match=r"data.query fails .*no such table: missing"):
        read("pypi", tmp_path, **keys | {"query": "SELECT * FROM missing"})
    with pytest.raises(UserError, match=r"data.query is missing"):
        source("pypi", **keys | {"query": None})


def test_sql_values_are_texts_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    sqlite3.connect(path).close()
    columns = [("de", "data.columns"), ("en", "data.columns")]
    query = "SELECT NULL, 7, 1.5 UNION ALL SELECT :source, :target, NULL"
    assert read_sqlite(path, query, columns) == [Pair("", "7", "1.5"), Pair("de", "en", "")]
    with pytest.raises(UserError, match=r"data.query = .* gives b'\\x00', which is not text; CAST"):
        read_sqlite(path, "SELECT 'a', x'00'", columns)
