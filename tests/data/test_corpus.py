"""From a configuration to memory-mapped tables, once, whole and reproducibly."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace

import pyarrow.ipc
import pytest
from conf_nodes import corpus_of, node, overlay
from filelock import FileLock

from translate.data import corpus as corpus_module
from translate.data.account import LanguageCounts
from translate.data.corpus import FORMAT, check_data, load
from translate.data.plain_text import sameness
from translate.data.tokenizer import check_tokenizer
from translate.errors import UserError
from translate.extras.corpus_report import render
from translate.vocabulary import BOS, EOS

CONF = Path(__file__).parents[2] / "conf"
NUMBERS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def count(numbers, tens, word):
    return [f"{word} {a} {b}." for b in tens for a in numbers]


@pytest.fixture
def folder(tmp_path):
    """80 pairs, of which every tenth has a second translation."""
    path = tmp_path / "text"
    path.mkdir()
    source, target = count(NUMBERS, TENS, "die Zahl"), count(WORDS, TENS, "the number")
    source += source[::10]
    target += [line.replace("the", "that") for line in target[::10]]
    (path / "train.de").write_text("".join(f"{x}\n" for x in source), encoding="utf-8")
    (path / "train.en").write_text("".join(f"{x}\n" for x in target), encoding="utf-8")
    return path


@pytest.fixture
def data(folder):
    return node("data", "files", dir=str(folder), source="de", target="en",
                hold_out={"dev": 10, "test": 12}, attribution="counted [by us]")  # fmt: skip


@pytest.fixture
def tokenizer():
    return node("tokenizer", "bpe", vocab_size=320)


def test_columns_and_lengths(data, tokenizer, tmp_path):
    corpus = corpus_of(data, tokenizer, cache=tmp_path / "cache")
    assert (corpus.source_language, corpus.target_language) == ("de", "en")
    assert (len(corpus.dev), len(corpus.test)) == (10, 12)
    for row in corpus.train.to_pylist():
        assert row["source_ids"] == corpus.tokenizers.source.encode(row["source"])
        assert row["target_ids"] == corpus.tokenizers.target.encode(row["target"])
        assert row["source_length"] == len(row["source_ids"])
        assert row["target_length"] == len(row["target_ids"])
        assert not {BOS, EOS} & set(row["source_ids"])
    for row in corpus.test.to_pylist():
        assert row["target_ids"] == corpus.tokenizers.target.encode(row["references"][0])
    assert "alignment" not in corpus.train.column_names
    assert corpus.tokenizers.joint
    assert str(corpus.train.schema.field("source_ids").type.value_type) == "int32"


def test_no_sentence_of_either_side_is_in_two_splits(data, tokenizer, tmp_path):
    corpus = corpus_of(data, tokenizer, cache=tmp_path)
    train = {*corpus.train["source"].to_pylist(), *corpus.train["target"].to_pylist()}
    splits = [train, _sentences(corpus.dev), _sentences(corpus.test)]
    for one, other in combinations([set(map(sameness, split)) for split in splits], 2):
        assert not one & other
    assert sum(split["pairs"] for split in corpus.report["splits"].values()) == 88


def test_the_second_time_nothing_is_made(data, tokenizer, tmp_path, monkeypatch):
    first = corpus_of(data, tokenizer, cache=tmp_path)
    monkeypatch.setattr(corpus_module, "_make", None)
    second = corpus_of(data | {"tokens_per_batch": 77, "workers": 3}, tokenizer, cache=tmp_path)
    assert second.folder == first.folder
    assert second.train == first.train
    wild = tokenizer | {"sampling": {"alpha": 0.0, "dropout": 0.1}}
    third = corpus_of(data, wild, cache=tmp_path)
    assert third.folder == first.folder
    assert third.tokenizers.source.sampling.dropout == 0.1


def test_a_number_is_the_same_however_it_is_written(data, tokenizer, tmp_path):
    first, again = (
        corpus_of(data, {**tokenizer, "character_coverage": coverage}, cache=tmp_path)
        for coverage in (1, 1.0)
    )
    assert first.folder == again.folder


def test_whatever_shapes_the_corpus_makes_another(data, tokenizer, tmp_path, folder, monkeypatch):
    folders = {corpus_of(data, tokenizer, cache=tmp_path).folder}
    for changed_data, changed_tokenizer, seed in (
        (data, tokenizer, 2),
        (data | {"hold_out": {"dev": 9, "test": 0}}, tokenizer, 1),
        (data, tokenizer | {"joint": False, "vocab_size": 300}, 1),
        (data | {"source": "en", "target": "de"}, tokenizer, 1),
    ):
        folders.add(
            corpus_of(changed_data | {"seed": seed}, changed_tokenizer, cache=tmp_path).folder
        )
    with (folder / "train.de").open("a") as file:
        file.write("noch eine\n")
    with (folder / "train.en").open("a") as file:
        file.write("one more\n")
    folders.add(corpus_of(data, tokenizer, cache=tmp_path).folder)
    monkeypatch.setattr(corpus_module, "FORMAT", FORMAT + 1)
    folders.add(corpus_of(data, tokenizer, cache=tmp_path).folder)
    assert len(folders) == 7


# FORMAT, and the first digits of the hash of what it makes of `test_the_rules_…`'s text
RULES = (7, "62ad7be6d2dad706")


def test_the_rules_of_preparing_change_only_with_the_format(data, tokenizer, tmp_path, folder):
    """Else a cache of before would be taken for a corpus by the rules of now."""
    mess = [
        ("die Zahl fu\u0308nf dreißig.", "the same letters,  decomposed ."),
        ("die Zahl eins zwanzig.", "a training sentence with a dev source"),
        ("<b>fett</b> &amp; mehr", "bold &amp; <b>more</b>"), ("gleich", "gleich"),
        ("", "nothing"), ("kurz", "very " * 30 + "long"), ("DIE ZAHL EINS ZWANZIG.", "Shouted."),
        ("die Zahl\u200b eins zwan\u00adzig．", "of other signs, and two without width"),
        ("\u202bdie Zahl eins zwanzig .\u202c", "within marks of direction"), ("nichts", "\u200e"),
    ]  # fmt: skip
    for side, language in enumerate(("de", "en")):
        with (folder / f"train.{language}").open("a", encoding="utf-8") as file:
            file.writelines(f"{pair[side]}\n" for pair in mess)
        (folder / f"more.{language}").write_text(
            "".join(f"{pair[side]}\n" for pair in [("mehr", "more"), *mess]), encoding="utf-8"
        )
    rows = [f"{i} {source}\t{i} {target}\t{i % 3}\n" for i, (source, target) in enumerate(mess * 2)]
    (folder / "all.tsv").write_text(f"de\ten\tdomain\n{''.join(rows)}", encoding="utf-8")
    extra = {"more": {"source": str(folder / "more.de"), "target": str(folder / "more.en"),
                      "weight": None, "tag": None}}  # fmt: skip
    by_number = corpus_of(
        overlay(data, {"cleaning": {"replace": [["<[^>]*>", ""]]}, "extra": extra}),
        tokenizer, cache=tmp_path,
    )  # fmt: skip
    by_group = corpus_of(
        node("data", "tsv", train=str(folder / "all.tsv"), source="de", target="en", header=True,
             domain="domain", hold_out={"dev": [1], "test": [2]}),
        node("tokenizer", "char", vocab_size=60, hard_vocab_limit=False), cache=tmp_path,
    )  # fmt: skip
    made = [
        table.to_pylist()
        for corpus in (by_number, by_group)
        for table in (corpus.train, corpus.dev, corpus.test)
    ]
    text = [[{k: v for k, v in row.items() if "_" not in k} for row in rows] for rows in made]
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()[:16]
    assert (FORMAT, digest) == RULES, "the rules have changed: raise FORMAT, then write both above"


def test_the_same_corpus_is_made_again_byte_for_byte(data, tokenizer, tmp_path):
    one = corpus_of(data, tokenizer, cache=tmp_path / "a").folder
    two = corpus_of(data, tokenizer, cache=tmp_path / "b").folder
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in two.iterdir())
    assert names == [
        "dev.arrow",
        "report.json",
        "source.spm",
        "target.spm",
        "test.arrow",
        "train.arrow",
    ]
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.parametrize("step", ["select", "_write"])
def test_a_half_written_corpus_is_never_taken(data, tokenizer, tmp_path, monkeypatch, step):
    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(corpus_module, step, die)
        with pytest.raises(KeyboardInterrupt):
            corpus_of(data, tokenizer, cache=tmp_path)
    assert not [path for path in (tmp_path / "corpora").iterdir() if path.is_dir()]
    assert len(corpus_of(data, tokenizer, cache=tmp_path).dev) == 10


def test_contents_reach_the_disk_before_the_corpus_has_its_name(
    data, tokenizer, tmp_path, monkeypatch
):
    synced = []

    def sync(path):
        synced.append(path.name)
        assert path.exists()

    monkeypatch.setattr("translate.files.sync", sync)
    folder = corpus_of(data, tokenizer, cache=tmp_path).folder
    assert synced[-1] == "corpora"
    assert synced[-2].startswith(f"{folder.name}.tmp-")
    assert set(synced[:-2]) == {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return the nodes of a small corpus, and the cache that it is in."""
    data = node("data", "toy", train=60, dev=5, test=5, min_words=4, max_words=8)
    tokenizer, cache = node("tokenizer", "char"), tmp_path_factory.mktemp("prepared")
    corpus_of(data, tokenizer, cache=cache)
    return data, tokenizer, cache


@pytest.mark.parametrize(
    "name", ["train.arrow", "dev.arrow", "test.arrow", "report.json", "source.spm"]
)
@pytest.mark.parametrize("length", [None, 0, 100, "fewer rows"])
def test_a_damaged_corpus_is_named_with_the_remedy(prepared, tmp_path, name, length):
    cache = prepared[-1]
    (folder,) = (path for path in (cache / "corpora").iterdir() if path.is_dir())
    damaged = tmp_path / folder.name
    shutil.copytree(folder, damaged)
    if length is None:
        (damaged / name).unlink()
    elif length == "fewer rows":  # to Arrow it is a shorter table
        whole = pyarrow.ipc.open_stream((folder / "train.arrow").read_bytes()).read_all()
        with pyarrow.ipc.new_stream(damaged / "train.arrow", whole.schema) as stream:
            stream.write_table(whole.slice(0, 7))
    else:
        os.truncate(damaged / name, length)
    with pytest.raises(UserError) as refused:
        load(damaged)
    assert str(damaged) in str(refused.value)
    assert "remove it, and it will be prepared again" in str(refused.value)


def test_what_a_killed_process_left_is_removed(data, tokenizer, tmp_path):
    folder = corpus_of(data, tokenizer, cache=tmp_path).folder
    stale = folder.with_name(f"{folder.name}.tmp-dead")
    folder.rename(stale)  # as after kill -9 just before the renaming
    assert corpus_of(data, tokenizer, cache=tmp_path).folder == folder
    assert not stale.exists()


def test_that_another_process_is_waited_for_is_told(data, tokenizer, tmp_path, caplog):
    folder = corpus_of(data, tokenizer, cache=tmp_path).folder
    shutil.rmtree(folder)
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(1) as pool:
        with FileLock(f"{folder}.lock"):
            waiting = pool.submit(corpus_of, data, tokenizer, cache=tmp_path)
            deadline = time.monotonic() + 10
            while "waiting" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not folder.exists()
        assert waiting.result().folder == folder
    told = f"another process prepares the corpus {folder}: waiting until it is there"
    assert caplog.messages.count(told) == 1


def test_the_report_adds_up_and_is_worth_reading(data, tokenizer, tmp_path, folder):
    with (folder / "train.de").open("a") as file:
        file.write("die Zahl eins zwanzig.\n\ngleich\nSehr lang\n")
    with (folder / "train.en").open("a") as file:
        file.write(f"the number one zwanzig.\nx\nGleich\n{'very ' * 300}\n")
    corpus = corpus_of(data, tokenizer, cache=tmp_path)
    dropped = {
        "unreadable": 0,
        "duplicate": 1,
        "empty": 1,
        "identical": 1,
        "too_long": 1,
        "length_ratio": 0,
        "overlap": 0,
    }
    assert corpus.report["dropped"] == dropped
    assert json.loads(json.dumps(corpus.report)) == corpus.report
    words = sum(len(sentence.split()) for sentence in corpus.train["source"].to_pylist())
    pieces = sum(corpus.train["source_length"].to_pylist())
    assert corpus.report["languages"]["source"]["pieces_per_word"] == round(pieces / words, 3)
    text = render(corpus.report)
    for shown in ("dropped: too long", "counted [by us]", "320", "pieces per word", "dev"):
        assert shown in text


def test_a_character_of_a_script_without_spaces_counts_as_a_word():
    counts = LanguageCounts()
    counts.add(["他在北京买书", "two words", "größer als"], [[1] * 6, [1] * 2, [1] * 3])
    assert (counts.words, counts.pieces, counts.longest) == (10, 11, 6)


def _sentences(table):
    return {*table["source"].to_pylist(), *chain(*table["references"].to_pylist())}


def test_given_splits_stay_line_by_line_and_overlap_leaves_training(
    data, tokenizer, tmp_path, folder, caplog
):
    test = [
        ("Die Zahl  eins zwanzig.", "new"),
        ("neu", "THE number two zwanzig."),
        ("neu", "newer"),
    ]
    (folder / "test.de").write_text("".join(f"{s}\n" for s, _ in test), encoding="utf-8")
    (folder / "test.en").write_text("".join(f"{t}\n" for _, t in test), encoding="utf-8")
    data |= {"test": "test"}
    with caplog.at_level(logging.WARNING):
        corpus = corpus_of(data, tokenizer, cache=tmp_path)
    assert [(row["source"], *row["references"]) for row in corpus.test.to_pylist()] == test
    planted = 2 + 1  # "eins zwanzig" has two translations
    left = corpus.report["splits"]["dev"]["pairs"] + len(corpus.train)
    assert left == 88 - planted
    assert corpus.report["dropped"]["overlap"] == planted
    assert not {"Die Zahl eins zwanzig.", "the number two zwanzig."} & _sentences(corpus.dev)
    assert "dropping 3 pairs of the training text with a sentence of dev or test" in caplog.text
    allowed = corpus_of(data | {"allow_overlap": True}, tokenizer, cache=tmp_path)
    assert allowed.report["dropped"]["overlap"] == 0
    assert "keeping 3 pairs of the training text" in caplog.text


@pytest.mark.parametrize("allowed", [False, True])
def test_given_test_text_in_a_given_dev_is_told(data, tokenizer, tmp_path, folder, caplog, allowed):
    for name, text in (
        ("dev.de", "neu\nanders\nalt\n"), ("dev.en", "new\nother\nold\n"),
        ("test.de", "NEU\nneuer\nal t\n"), ("test.en", "New\nOther\nvery old\n"),
    ):  # fmt: skip
        (folder / name).write_text(text, encoding="utf-8")
    changes = {"dev": "dev", "test": "test", "allow_overlap": allowed}
    report = corpus_of(data | changes, tokenizer, cache=tmp_path).report
    told = f"test text in dev (test {1 if allowed else 3})"  # allowed, only whole pairs
    assert report["suspicious"] == [told]
    assert told in caplog.text
    assert f"Suspicious: {told}" in render(report)


def test_no_sentence_of_a_group_is_held_out_by_number(tokenizer, tmp_path):
    """Every source of the book `b` is in the book `a`, too, otherwise translated."""
    rows = [f"{word} {n}\t{book} {n}\t{book}" for word, book in (("x", "a"), ("x", "b"), ("y", "c"))
            for n in range(10)]  # fmt: skip
    (tmp_path / "books.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    data = node("data", "tsv", source="de", target="en", train=str(tmp_path / "books.tsv"),
                columns={"de": 1, "en": 2}, domain=3,
                hold_out={"dev": ["a"], "test": 4})  # fmt: skip
    corpus = corpus_of(data, tokenizer | {"hard_vocab_limit": False}, cache=tmp_path)
    assert not _sentences(corpus.dev) & _sentences(corpus.test)
    assert (len(corpus.dev), len(corpus.test), len(corpus.train)) == (10, 4, 6)
    assert corpus.report["dropped"]["overlap"] == 10


@pytest.mark.parametrize("order", [1, -1])
def test_groups_are_held_out_whole_whatever_cleaning_says_of_the_rest(tokenizer, tmp_path, order):
    """Some of the book `b` stands in `a`, too; one pair of each is of unlike lengths."""
    rows = [
        f"w {n}\tv {n}\t{book}" for book, least in (("a", 0), ("b", 8)) for n in range(least, 20)
    ]
    rows += [f"x\t{'long ' * 30}{book}\t{book}" for book in ("a", "b")]
    (tmp_path / "books.tsv").write_text("".join(f"{row}\n" for row in rows[::order]), "utf-8")
    data = node("data", "tsv", source="de", target="en", train=str(tmp_path / "books.tsv"),
                columns={"de": 1, "en": 2}, domain=3,
                hold_out={"dev": ["b"], "test": 0})  # fmt: skip
    corpus = corpus_of(data, tokenizer | {"hard_vocab_limit": False}, cache=tmp_path)
    assert (len(corpus.dev), len(corpus.train)) == (13, 8)
    dropped = {rule: count for rule, count in corpus.report["dropped"].items() if count}
    assert dropped == {"length_ratio": 1, "overlap": 12}


def test_no_test_split_is_none(data, tokenizer, tmp_path):
    data |= {"hold_out": {"dev": 5, "test": 0}}
    assert corpus_of(data, tokenizer, cache=tmp_path).test is None


def test_common_names_stand_behind_other_words_on_both_sides(prepared):
    texts = ["hay Tom.", "hay Mary, Tom", "Luis. Luis hay casa", "hay tom", "hay Xyzzyqk"]
    table = pyarrow.table({"source": texts * 20, "target": texts * 20})
    tokenizers = SimpleNamespace(is_rare=lambda name: name == "Xyzzyqk")
    data, tokenizer, cache = prepared
    corpus = replace(
        corpus_of(data, tokenizer, cache=cache),
        train=table,
        tokenizers=SimpleNamespace(source=tokenizers, target=tokenizers),
    )
    assert corpus.common_names() == ["Tom", "Mary"]
    assert replace(corpus, train=table[: 19 * 5]).common_names() == ["Tom"]


def test_one_pair_is_enough_to_train(tokenizer, tmp_path):
    for split, pair in (("train", ("ja", "yes")), ("dev", ("nein", "no"))):
        for language, text in zip(("de", "en"), pair, strict=True):
            (tmp_path / f"{split}.{language}").write_text(f"{text}\n")
    data = node("data", "files", dir=str(tmp_path), source="de", target="en", dev="dev",
                hold_out={"test": 0})  # fmt: skip
    tokenizer |= {"hard_vocab_limit": False}
    corpus = corpus_of(data, tokenizer, cache=tmp_path / "cache")
    assert (len(corpus.train), len(corpus.dev)) == (1, 1)


def test_nothing_to_train_on_is_an_error(data, tokenizer, tmp_path, folder):
    (folder / "train.de").write_text("a\nb\n")
    (folder / "train.en").write_text("a\n\n")
    told = r"the training text is empty, or nothing of it is left \(dropped: identical 1, empty 1\)"
    with pytest.raises(UserError, match=told):
        corpus_of(data, tokenizer, cache=tmp_path)


def test_all_problems_of_both_nodes_are_listed_at_once(data, tokenizer, tmp_path):
    with pytest.raises(UserError) as refusal:
        corpus_of(data | {"workers": -1}, tokenizer | {"kind": "bpee"}, cache=tmp_path)
    assert "data.workers = -1" in str(refusal.value)
    assert "tokenizer.kind = 'bpee'" in str(refusal.value)


def test_a_cache_that_cannot_be_written_is_an_error(data, tokenizer, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written to the cache .* cache=PATH"):
        corpus_of(data, tokenizer, cache=tmp_path / "cache")


def test_an_interrupted_disk_leaves_no_corpus(data, tokenizer, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_module, "_write", full)
    with pytest.raises(UserError, match=r"No space left on device.*free up space"):
        corpus_of(data, tokenizer, cache=tmp_path)


def test_toy_carries_gold_alignments(prepared):
    data, tokenizer, cache = prepared
    corpus = corpus_of(data, tokenizer, cache=cache)
    for table in (corpus.train, corpus.dev, corpus.test):
        for row in table.to_pylist():
            target = row["target"] if "target" in row else row["references"][0]
            assert row["alignment"]
            for s, t in row["alignment"]:
                assert s < len(row["source"].split())
                assert t < len(target.split())


CONFIGS = sorted(path.stem for path in (CONF / "data").glob("*.yaml"))


@pytest.mark.parametrize("name", [name for name in CONFIGS if not name.endswith("base")])
def test_every_data_configuration_is_valid(name):
    blanks = {key: key for key, value in node("data", name).items() if value == "???"}
    if name == "pypi":
        blanks |= {"sha256": "0" * 64, "columns": {"source": 1, "target": 2}}
    assert check_data(node("data", name, **blanks)) == []


@pytest.mark.parametrize("name", ["unigram", "bpe", "char", "word"])
def test_every_tokenizer_configuration_is_valid(name):
    assert check_tokenizer(node("tokenizer", name)) == []


SHARED_DATA = Path(os.environ.get("TRANSLATE_SHARED_DATA", CONF.parents[1] / "shared" / "data"))


@pytest.mark.skipif(not (SHARED_DATA / "multi30k").is_dir(), reason="no local Multi30k")
def test_multi30k_from_a_folder(tmp_path):
    data = node("data", "multi30k_de_en", dir=str(SHARED_DATA / "multi30k"))
    few = node("tokenizer", "bpe", vocab_size=500, train_sentences=2000)
    corpus = corpus_of(data, few, cache=tmp_path)
    assert (len(corpus.dev), len(corpus.test)) == (1014, 1000)
    assert 28_950 < len(corpus.train) <= 29_000
    assert len(load(corpus.folder).train) == len(corpus.train)


def test_of_a_small_text_a_twentieth_is_held_out_and_said(data, tokenizer, tmp_path, caplog):
    auto = node("data", "files")["hold_out"]
    with caplog.at_level(logging.INFO):
        corpus = corpus_of(data | {"hold_out": auto}, tokenizer, cache=tmp_path)
    assert (len(corpus.dev), len(corpus.test)) == (2, 2)
    assert "holding out 2 sentences for dev and as many for test, of 80: data.hold" in caplog.text


def test_a_check_on_the_training_text_itself_is_told_its_key(data, tokenizer, tmp_path):
    itself = data | {"dev": "train", "test": None, "hold_out": {"dev": 1, "test": 0}}
    with pytest.raises(UserError, match=r"overlap 88\); .* set data.allow_overlap=true"):
        corpus_of(itself, tokenizer, cache=tmp_path)
    corpus = corpus_of(itself | {"allow_overlap": True}, tokenizer, cache=tmp_path)
    assert len(corpus.train) == 88
