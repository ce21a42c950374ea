"""Every detector finds all that was planted and says nothing of clean text."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data.batching import Mixture, TokenBatches
from translate.data.pairs import Lines, Pair
from translate.data.tokenizer import TokenizerConfig
from translate.extras.doctor import (
    Check,
    advise,
    all_checks,
    examine,
    misalignment,
    padding,
    quick_look,
)
from translate.extras.doctor.checks import (
    NEAR,
    Finding,
    anomaly,
    copies,
    duplicates,
    empty,
    jaccard,
    literal,
    near,
    other_languages,
    outliers,
    quoted,
    report,
    shingles,
    swapped_sides,
)
from translate.extras.doctor.misalignment import misaligned
from translate.extras.lexicon import Lexicon
from translate.extras.toy import toy_pairs
from translate.vocabulary import EOS

Splits = dict[str, list[Pair]]


@pytest.fixture(scope="module")
def clean() -> Splits:
    pairs = toy_pairs(train=2000, dev=100, test=100, seed=3, min_words=5, max_words=15)
    return {split: [Pair(p.source, p.target) for p in found] for split, found in pairs.items()}


def damaged(clean: Splits, change: Callable[[list[Pair]], None]) -> Splits:
    train = list(clean["train"])
    change(train)
    return clean | {"train": train}


def found(splits: Splits, *chosen: Check) -> Mapping[str, Finding]:
    return {finding.check: finding for finding in examine(splits, chosen)}


def numbers(finding: Finding) -> list[int]:
    return [line.number for line in finding.lines]


def test_clean_text_raises_no_alarm(clean: Splits) -> None:
    assert found(clean, *all_checks(codes=("de", "en"), allow_overlap=True)) == {}


def shift(train: list[Pair], start: int, stop: int) -> None:
    """As if a line had been lost at `start` on the source side and one added at `stop`."""
    for index in range(start, stop):
        train[index] = Pair(train[index + 1].source, train[index].target)


def swap(train: list[Pair], index: int) -> None:
    first, second = train[index : index + 2]
    train[index] = Pair(first.source, second.target)
    train[index + 1] = Pair(second.source, first.target)


def test_shifted_blocks_swapped_neighbours_and_strays_are_found(clean: Splits) -> None:
    def change(train: list[Pair]) -> None:
        shift(train, 500, 560)
        shift(train, 1500, 1508)
        for index in (100, 700, 1900):
            swap(train, index)
        train[50] = Pair(
            "die Katze vergisst den reichen Nachbarn und die Lehrerin .",
            "his brave horse will sleep next to my big shops .",
        )

    findings = found(damaged(clean, change), misaligned)
    blocks = findings["shifted"].lines
    for line, (start, stop) in zip(blocks, [(500, 560), (1500, 1508)], strict=True):
        first, last = line.note.split(":")[0].removeprefix("lines ").split("–")
        assert abs(int(first) - (start + 1)) <= 2
        assert abs(int(last) - stop) <= 2
        assert line.note.endswith("translated 1 line below")
    assert [(line.number, line.note) for line in findings["swapped"].lines] == [
        (101, "with line 102"), (701, "with line 702"), (1901, "with line 1902"),
    ]  # fmt: skip
    assert numbers(findings["stray"]) == [51]


def slow_offsets(judge: misalignment._Judge, split: str) -> list[int]:
    """Every line beside every neighbour, one by one."""
    sources, targets = judge.ids[split]

    def evidence(line: int, other: int) -> float:
        return float(judge.lexicons[1 - line % 2].evidence([sources[line]], [targets[other]])[0])

    found = []
    for line in range(len(sources)):
        near = sorted(range(-5, 6), key=lambda k: (abs(k), -k))
        found_at = {k: evidence(line, line + k) for k in near if 0 <= line + k < len(sources)}
        likely = {k: value for k, value in found_at.items() if value > judge.middle}
        doubtful = found_at[0] < judge.middle
        found.append(max(likely, key=lambda k: likely[k]) if doubtful and likely else 0)
    return found


def test_neighbours_are_weighed_for_doubtful_lines_alone_and_a_few_at_once(
    clean: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(train: list[Pair]) -> None:
        del train[800:]
        shift(train, 500, 560)
        swap(train, 100)
        train[0], train[7] = Pair(train[0].source, "x"), Pair("", train[7].target)

    judge = misalignment._Judge({"train": damaged(clean, change)["train"]})
    slowly = slow_offsets(judge, "train")
    weighed: list[int] = []
    evidence = Lexicon.evidence

    def counted(self: Lexicon, sources: Any, targets: Any) -> Any:
        weighed.append(len(sources))
        return evidence(self, sources, targets)

    monkeypatch.setattr(Lexicon, "evidence", counted)
    monkeypatch.setattr(misalignment, "TOGETHER", 150)
    assert judge.offsets("train") == slowly
    assert sum(map(bool, slowly)) > 50
    assert max(weighed) == 150
    assert sum(weighed) < 3 * len(slowly)  # of eleven places each


def test_swapped_and_untranslated_sides_are_found(clean: Splits) -> None:
    def change(train: list[Pair]) -> None:
        long = [i for i, pair in enumerate(train) if min(map(len, pair[:2])) > 30]
        for i in long[:3]:
            train[i] = Pair(train[i].target, train[i].source)
        train[long[3]] = Pair(train[long[4]].target, train[long[3]].target)

    splits = damaged(clean, change)
    finding = found(splits, swapped_sides)["other_side"]
    notes = [line.note for line in finding.lines]
    assert notes == [*["the sides are swapped"] * 3, "the source looks like the target language"]
    for line in finding.lines:
        assert splits["train"][line.number - 1].source == line.source


def test_copies_are_found_however_many_and_short_and_hide_nothing(clean: Splits) -> None:
    copied = 1200
    swapped = next(n for n, pair in enumerate(clean["train"]) if min(map(len, pair[:2])) > 30)

    def change(train: list[Pair]) -> None:
        train[:copied] = [Pair(pair.source, pair.source.upper()) for pair in train[:copied]]
        train += [Pair("ja", "Ja "), Pair(" ", ""), Pair(*clean["train"][swapped][1::-1])]

    findings = found(damaged(clean, change), copies, swapped_sides)
    assert numbers(findings["copy"]) == [*range(1, copied + 1), 2001]
    assert numbers(findings["other_side"]) == [2003]


def test_a_quick_look_finds_in_dev_and_test_what_cleaning_drops_of_training() -> None:
    text = [Pair("ein Haus", "a house"), Pair("ja", "ja"), Pair("", " ")]
    assert quick_look({"train": text, "dev": text, "test": text}) == [
        "an empty side (dev 1, test 1)", "a copy, not a translation (dev 1, test 1)",
    ]  # fmt: skip


def test_a_side_that_is_in_the_other_sides_language_as_a_whole_is_found() -> None:
    """Nothing in the text itself tells which of the two is which."""
    pytest.importorskip("py3langid")
    german = "Die beiden braunen Hunde laufen sehr schnell über die große Wiese am Fluss."
    english = "The two brown dogs run very fast across the large meadow beside the river."
    splits = {"train": [Pair(german, english)] * 9, "dev": [Pair(english, german)] * 2}
    splits["train"].append(Pair(english, english + "!"))  # a single one is for another check
    finding = found(splits, partial(other_languages, codes=("de", "en")))["language"]
    notes = ["source: en", "target: de"] * 2
    assert [(line.split, line.note) for line in finding.lines] == [("dev", note) for note in notes]


def test_overlap_with_held_out_text_is_found_exact_and_near(clean: Splits) -> None:
    long = max(clean["test"], key=lambda pair: len(pair.source))

    def change(train: list[Pair]) -> None:
        train[10] = Pair(train[5].source.upper(), train[5].target.replace(" ", "\u200b"))
        train[20] = clean["test"][3]
        train[30] = Pair(long.source + " !", long.target)
        train[40] = Pair(clean["dev"][0].source, "something")
        train[50] = Pair(train[6].source, "another translation")  # is no duplicate
        train[60] = Pair("another sentence", train[6].target)

    splits = damaged(clean, change)
    chosen = (partial(literal, allow_one_side=True), near, duplicates)
    findings = found(splits, *chosen)
    (line,) = findings["overlap"].lines
    assert (line.number, line.note) == (21, "both sides are test line 4")
    assert numbers(findings["near_overlap"]) == [31]
    (line,) = findings["duplicate"].lines
    assert (line.number, line.note) == (11, "as line 6")
    both = found(splits, partial(literal, allow_one_side=False))["overlap"].lines
    assert (41, "the source is that of dev line 1") in [(line.number, line.note) for line in both]
    headed = {split: Lines(pairs, first=2) for split, pairs in splits.items()}
    (line,) = found(headed, duplicates)["duplicate"].lines
    assert (line.number, line.note) == (12, "as line 7"), "lines of the file, header included"
    shown = list(report([findings["duplicate"]], lines=1))
    assert shown[0].startswith("the same pair again (train 1): data.cleaning.drop_duplicates")
    assert shown[1] == "  train line 11  as line 6"
    assert "\\u200b" in shown[3]
    assert list(report([], lines=2)) == ["nothing suspicious was found"]


def test_test_text_in_dev_is_told(clean: Splits) -> None:
    one_side = Pair(clean["dev"][7].source, "something")
    splits = clean | {"test": [clean["dev"][4], *clean["test"][:20], one_side]}
    finding = found(splits, partial(literal, allow_one_side=True))["dev_overlap"]
    assert [(line.split, line.number, line.note) for line in finding.lines] == [
        ("test", 1, "both sides are dev line 5")
    ]
    finding = found(splits, partial(literal, allow_one_side=False))["dev_overlap"]
    assert ("test", 22, "the source is that of dev line 8") in [
        (line.split, line.number, line.note) for line in finding.lines
    ]


def test_empty_sides_and_lengths_that_do_not_fit_are_found(clean: Splits) -> None:
    def change(train: list[Pair]) -> None:
        train[1] = Pair("\u3000", "a house .")
        train[2] = Pair("", " ")
        train[4] = Pair("ein Haus .", "\u200b\ufeff")
        train[5] = Pair("\u200b", "\u200e")  # no copy either
        train[3] = Pair("ja .", train[3].target * 4)

    findings = found(damaged(clean, change), empty, copies, outliers)
    assert [(line.number, line.note) for line in findings["empty"].lines] == [
        (2, "source"), (3, "both sides"), (5, "target"), (6, "both sides"),
    ]  # fmt: skip
    assert "copy" not in findings
    assert numbers(findings["length"]) == [4]


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("schÃ¶n", "UTF-8 decoded as another encoding: 'Ã¶'"),
        ("itâ€™s", "UTF-8 decoded as another encoding"),
        ("a\rb", "old Mac line ending, which does not end a line here: '\\r'"),
        ("a\x07b", "control character: '\\x07'"),
        ("a\u200bb", "invisible character: '\\u200b'"),
        ("the b\u0430nk", "scripts mixed in a word: 'b\u0430nk'"),
        ("a <b>bold</b> word", "mark-up: '<b>'"),
        ("salt &amp; pepper", "mark-up: '&amp;'"),
        ("what\ufffd", "not decoded"),
        ("¿Dónde está? «Ça» — ĐŠć “quoted”…", ""),
        ("5 < 6 & 7 > 3", ""),
        ("東京 タワー, Москва, Αθήνα", ""),
        ("Âge d'or, ÎLE, Ã l'été", ""),
        ("E=mc² 10 µm Ω", ""),
        ("“Até amanhã”, Amanhã… irmã– e avelã”", ""),
        ("ã‚¢ニメ", "UTF-8 decoded as another encoding: 'ã‚¢'"),
    ],
)
def test_strange_characters(text: str, strange: str) -> None:
    assert anomaly(text).startswith(strange)
    assert bool(anomaly(text)) == bool(strange)


def test_a_column_in_quotation_marks_is_told() -> None:
    train = [Pair(f'"Satz {n}"', f"sentence {n}") for n in range(9)] + [Pair("a", '"b"')] * 8
    finding = found({"train": train, "dev": [Pair('"', "x")]}, quoted)["quoted"]
    assert [(line.number, line.note) for line in finding.lines] == [
        (n, "source: in quotation marks") for n in range(1, 10)
    ]
    assert "sentences in quotation marks (train 9)" in quick_look({"train": train})


sentences = st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "x"]), min_size=3, max_size=12)


@given(st.lists(sentences, min_size=1, max_size=6), st.lists(sentences, min_size=1, max_size=6))
def test_the_join_finds_what_comparing_all_pairs_finds(train, test) -> None:
    splits = {
        name: [Pair(" ".join(words), " ".join(words[::2])) for words in texts]
        for name, texts in (("train", train), ("test", test))
    }
    slow = {
        i + 1
        for (i, a), b in product(enumerate(splits["train"]), splits["test"])
        if a not in splits["test"] and jaccard(shingles(a), shingles(b)) >= NEAR
    }
    (finding,) = near(splits)
    assert set(numbers(finding)) == slow


def test_the_lexicon_is_that_of_model_1_by_hand() -> None:
    """das Haus / das Buch / ein Buch (Brown et al. 1993), with dictionaries."""
    texts = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book")]
    sides = [sorted({w for pair in texts for w in pair[side].split()}) for side in (0, 1)]
    ids = [
        [np.array([sides[side].index(w) for w in pair[side].split()]) for pair in texts]
        for side in (0, 1)
    ]
    lexicon = Lexicon(*ids, num_sources=4, num_targets=4)
    given = {(s, t): 1.0 for a, b in texts for s in a.split() for t in b.split()}
    for _ in range(4):
        count = dict.fromkeys(given, 0.0)
        for a, b in texts:
            for t in b.split():
                total = sum(given[s, t] for s in a.split())
                for s in a.split():
                    count[s, t] += given[s, t] / total
        totals = {s: sum(c for (of, _), c in count.items() if of == s) for s, _ in given}
        given = {(s, t): c / totals[s] for (s, t), c in count.items()}
    for key, value in zip(lexicon.keys, lexicon.probability, strict=True):
        s, t = sides[0][key // 4], sides[1][key % 4]
        assert value == pytest.approx(given[s, t])
    right, wrong = lexicon.evidence([ids[0][0], ids[0][0]], [ids[1][0], ids[1][2]])
    assert right > wrong


CHINESE = [f"{'天地玄黄宇宙洪荒'[n % 8]}{chr(0x4E00 + n)}" for n in range(300)]


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ([Pair("ein Haus", "a house")], "1 training pair, and at least 200 are needed"),
        ([Pair(text, text[::-1]) for text in CHINESE], "no words recur on both sides"),
        ([Pair("ja", "yes")] * 300, "say too little"),
    ],
)
def test_lines_that_cannot_be_judged_are_told(
    train: list[Pair], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert found({"train": train}, misaligned) == {}
    assert re.search(f"not looking for misaligned lines: .*{reason}", caplog.text)


BPE = TokenizerConfig(
    kind="bpe", joint=True, vocab_size=99, hard_vocab_limit=False, character_coverage=1.0,
    byte_fallback=True, normalization="nmt_nfkc", train_sentences=100000,
    sampling={"alpha": 0.0, "dropout": 0.0},
)  # fmt: skip


def test_padding_is_the_share_of_the_positions_of_both_sides() -> None:
    source, target = np.array([2, 4]), np.array([3, 3])
    mixture = Mixture([(2, 1.0)], lambda places: (source[places], target[places]))
    batches = TokenBatches(mixture, tokens_per_batch=8, pool_batches=1, seed=0)
    assert [len(batch.pairs) for batch in batches.epoch(0)] == [2]
    assert padding(batches) == 1 - 12 / 14


def test_advice_follows_the_text(clean: Splits) -> None:
    unseen = {**clean, "dev": [Pair("völlig unerhört", "the new")]}
    advice = advise(unseen, BPE, seed=1, tokens_per_batch=500, pool_batches=10)
    assert advice.unseen_words["source"] == 1.0
    assert advice.vocab_size in (1000, 2000)
    assert 1 < advice.pieces_per_word < 3
    assert 10 < advice.max_length < 60
    assert 0 < advice.padding < 0.5
    assert f"tokenizer.vocab_size={advice.vocab_size}" in [*advice.report()][-1]


def test_a_vocabulary_of_characters_is_told_as_it_was_learned(clean: Splits) -> None:
    char = BPE.model_copy(update={"kind": "char", "byte_fallback": False})
    advice = advise(clean, char, seed=1, tokens_per_batch=500, pool_batches=10)
    letters = set("".join(text for pair in clean["train"] for text in pair[:2])) - {" "}
    assert advice.pieces == (EOS + 1) + len("▁") + len(letters)
    shown = "\n".join(advice.report())
    assert f"joint vocabulary of {advice.pieces}: " in shown
    assert "occur 100 times" not in shown


def test_words_of_a_script_without_spaces_are_its_characters() -> None:
    train = [Pair("".join(CHINESE[n : n + 10]), f"sign {n}") for n in range(290)]
    splits = {"train": train, "dev": [Pair("洪天洪猫", "sign 1")]}
    advice = advise(splits, BPE, seed=1, tokens_per_batch=500, pool_batches=10)
    assert advice.unseen_words == {"source": 0.25, "target": 0.0}
    assert advice.pieces_per_word < 1.5  # with a sentence as one word it would be over 3
