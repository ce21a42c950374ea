"""translate prepare dropped=FILE: what cleaning leaves out, in a file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from translate.data.plain_text import read_lines

Program = Callable[..., Any]
PREPARE = [
    "prepare", "data=tsv", "data.train=train.tsv", "data.source=de", "data.target=en",
    "data.header=true", "data.hold_out.dev=5", "data.hold_out.test=0", "tokenizer=char",
    "tokenizer.vocab_size=90", "cache=cache",
    "data.extra={more: {source: more.de, target: more.en}}",
]  # fmt: skip
FINE = "".join(f"Satz {n} ist da\tsentence {n} is here\n" for n in range(30))
BEFORE = "rule\tcorpus\tline\tsource\ttarget"  # as an earlier version wrote it
HEADER = f"{BEFORE}\trepeats"
LINES = [
    'empty\tmain\t32\t\tno "source"\t',
    "identical\tmain\t33\tgleich\tgleich\t",
    "duplicate\tmain\t35\tvon\tline sep\t34",
    "empty\tmore\t1\t\tnothing\t",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dirt = '\tno "source"\ngleich\tgleich\nvon\tline sep\nvon\tline\u2028sep\n'
    (tmp_path / "train.tsv").write_text(f"de\ten\n{FINE}{dirt}", encoding="utf-8", newline="")
    (tmp_path / "more.de").write_text("\nnoch etwas\n", encoding="utf-8")
    (tmp_path / "more.en").write_text("nothing\nsome more\n", encoding="utf-8")
    return tmp_path


def test_a_line_a_pair_under_a_header(program: Program, folder: Path) -> None:
    done = program(*PREPARE, "dropped=left out, =.tsv")
    assert done.status == 0, done.err
    assert done.out.endswith("\nDropped pairs: left out, =.tsv\n")
    written = (folder / "left out, =.tsv").read_bytes()
    assert written.decode().split("\n") == [HEADER, *LINES, ""]
    printed = re.findall(r"dropped: (\w+(?: \w+)?) +│ +(\d+)", done.out)
    counts: Counter[str] = Counter()
    for rule, count in printed:
        counts[rule.replace(" ", "_")] += int(count)
    assert +counts == Counter(line.split("\t")[0] for line in LINES)


@pytest.mark.parametrize("name", ["d.jsonl", "d.JSONL", "d.jsonl.gz", "d.tsv.gz", "d.gz", "d"])
def test_the_name_says_how_it_is_written(program: Program, folder: Path, name: str) -> None:
    assert program(*PREPARE, f"dropped={name}").status == 0
    packed = (folder / name).read_bytes().startswith(b"\x1f\x8b")
    assert packed == name.endswith(".gz")
    lines = list(read_lines(folder / name))
    if "json" in name.lower():
        records = [json.loads(line) for line in lines]
        assert all(type(record["line"]) is int for record in records)
        assert [record["repeats"] for record in records] == [None, None, 34, None]
        rows = [["" if cell is None else str(cell) for cell in r.values()] for r in records]
        lines = list(map("\t".join, (records[0], *rows)))
    assert lines == [HEADER, *LINES]
    again = program(*PREPARE, f"dropped={name}")  # goes over a list of before
    assert again.status == 0, again.err


def test_what_is_prepared_already_is_listed_too(program: Program, folder: Path) -> None:
    plain = program(*PREPARE)
    assert "Dropped pairs" not in plain.out
    (corpus,) = (path for path in (folder / "cache" / "corpora").iterdir() if path.is_dir())
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in corpus.iterdir()}
    done = program(*PREPARE, "dropped=d.tsv")
    assert done.out == f"{plain.out}Dropped pairs: d.tsv\n"
    assert "this corpus is prepared already: cleaning its text again to list" in done.err
    assert (folder / "d.tsv").read_text("utf-8").splitlines() == [HEADER, *LINES]
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in corpus.iterdir()}
    assert after == before


@pytest.mark.parametrize(("name", "content"), [("d.tsv", f"{HEADER}\n"), ("d.jsonl", "")])
def test_where_nothing_is_dropped_there_is_a_list_of_nothing(
    program: Program, folder: Path, name: str, content: str
) -> None:
    (folder / "train.tsv").write_text(f"de\ten\n{FINE}", encoding="utf-8")
    done = program(*PREPARE[:-1], f"dropped={name}")
    assert done.status == 0, done.err
    assert (folder / name).read_text("utf-8") == content


def test_where_nothing_is_left_what_was_dropped_is_there_to_read(
    program: Program, folder: Path
) -> None:
    (folder / "train.tsv").write_text("de\ten\na\ta\n\tb\n", encoding="utf-8")
    (folder / "d.tsv").write_text(f"{HEADER}\nof before\n", encoding="utf-8")
    done = program(*PREPARE, "dropped=d.tsv")
    assert done.status == 1
    assert "lines written so far, in d.tsv.partial: 3\n" in done.err
    assert "the training text is empty, or nothing of it is left" in done.err
    assert (folder / "d.tsv").read_text("utf-8") == f"{HEADER}\nof before\n"
    lines = (folder / "d.tsv.partial").read_text("utf-8").splitlines()
    assert lines == [HEADER, "identical\tmain\t2\ta\ta\t", "empty\tmain\t3\t\tb\t"]
    (folder / "train.tsv").write_text(f"de\ten\n{FINE}", encoding="utf-8")
    assert program(*PREPARE, "dropped=d.tsv").status == 0  # what is left of it is in no one's way
    assert not (folder / "d.tsv.partial").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no/d.tsv", "dropped=no/d.tsv cannot be written: name a file in a folder"),
        (".", "dropped=. cannot be written: name a file in a folder"),
        ("d.csv", "dropped=d.csv ends with .csv: name it .tsv or .jsonl (or with .gz)"),
        ("d.json.gz", "dropped=d.json.gz ends with .json: name it .tsv or .jsonl"),
        ("-", "dropped=- is standard output, where the report goes: name a file"),
    ],
)
def test_a_file_that_cannot_be_the_list_is_told_before_any_text_is_read(
    program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("translate.data.corpus.prepare", lambda *_, **__: pytest.fail("it is read"))
    done = program(*PREPARE, f"dropped={name}", "tokenizer.vocab_size=0")
    assert (done.status, done.out) == (2, "")
    assert told in done.err
    assert "tokenizer.vocab_size = 0" in done.err, "with all other problems"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_showing_the_configuration_lists_nothing(program: Program, folder: Path) -> None:
    done = program(*PREPARE, "dropped=d.tsv", "-c", "job")
    assert done.status == 0, done.err
    assert done.out.startswith("cache: cache\n")
    assert not list(folder.glob("d.*"))
    assert not (folder / "cache").exists()


def test_jobs_of_a_sweep_do_not_share_a_list(program: Program, folder: Path) -> None:
    done = program(*PREPARE, "dropped=d.tsv", "--multirun", "data.seed=1,2")
    assert (done.status, done.out) == (2, "")
    assert "--multirun and dropped=d.tsv: each job would overwrite the output" in done.err
