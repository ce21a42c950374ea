from __future__ import annotations

import itertools
import logging
import re
from functools import cache

import pytest
from small_translators import learned

from translate.data.tokenizer import Tokenizer, Tokenizers
from translate.errors import UserError
from translate.inference.text_constraints import (
    NO_CONSTRAINT,
    ConstraintEncoder,
    TextConstraint,
    paired,
    places,
)
from translate.inference.translator import Translator
from translate.search import build
from translate.vocabulary import BOS, EOS

LINES = ["el perro come.", "la casa azul", "", "gato"]
GREEDY = {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 6}
BEAM = GREEDY | {
    "kind": "beam", "beam_size": 2, "length_penalty": "none", "alpha": 0.0, "n_best": 1,
    "coverage_penalty": 0.0,
}  # fmt: skip
RULES = {"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "banned": []}


def test_a_prefix_begins_every_translation(make_translator) -> None:
    for best, *_ in make_translator().stream(LINES, constraints=TextConstraint("the dog")):
        assert best.text.startswith("the dog") or not best.tokens


def test_each_line_has_constraints_of_its_own(make_translator) -> None:
    constraints = [
        TextConstraint("a cat"),
        TextConstraint(phrases=("blue", "red house")),
        TextConstraint("the"),
        NO_CONSTRAINT,
    ]
    translator = make_translator()
    found = [best.text for best, *_ in translator.stream(LINES, constraints=constraints, window=3)]
    assert found[0].startswith("a cat")
    assert "blue" in found[1]
    assert "red house" in found[1]
    assert found[2] == ""
    assert found[3] == translator.translate(LINES)[3]


def test_nothing_to_translate_cannot_hold_what_is_asked_for(make_translator, caplog) -> None:
    asked = [TextConstraint(phrases=("the dog",)), TextConstraint("the"), TextConstraint()]
    with caplog.at_level(logging.WARNING, logger="translate"):
        found = list(make_translator().stream(["", " ", ""], constraints=asked))
    assert [best.text for best, *_ in found] == [""] * 3
    assert caplog.messages == [
        "line 1 is empty, and so is its translation: 'the dog' is not in it",
        "line 2 is empty, and so is its translation: 'the' is not in it",
    ]


def test_banned_words_stay_away(make_translator) -> None:
    translator = make_translator()
    words = {w for text in translator.translate(LINES) for w in re.findall(r"\w+", text)}
    assert words
    banning = make_translator(search={"rules": RULES | {"banned": sorted(words)}})
    found = [one for n_best in banning.stream(LINES) for one in n_best]
    assert "".join(one.text for one in found)
    for one in found:
        held = words & set(re.findall(r"\w+", one.text))
        assert {flag.removeprefix("banned ") for flag in one.flags} == held


@pytest.mark.parametrize(
    ("lines", "constraints", "words"),
    [
        (3, 2, "line 3 has no constraint"),
        (1, 2, "line 2 has no input"),
    ],
)
def test_counts_that_differ_are_told(lines: int, constraints: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        list(paired(["x"] * lines, [NO_CONSTRAINT] * constraints))


TEXTS = [
    "in einem Haus.",
    "eine Frau, so eine",
    "Wein",
    "我有红的书",
    "红的 房子",
    "집에서",
    "집",
    "红。",
    "(eine) Frau?",
    "„eine“ Frau ?",
    "(Wein) ( eine",
]


@pytest.fixture(scope="module")
def make_target():
    """`make_target(kind)`: tokenizers that cut these texts each in its own way."""

    @cache
    def make(kind: str) -> Tokenizer:
        chosen = {"byte_fallback": True} if kind == "bytes" else {"kind": kind}
        return learned(TEXTS * 3, vocab_size=300, **chosen)

    return make


held = pytest.mark.parametrize(  # whether a text holds a phrase
    ("kinds", "phrase", "text", "there"),
    [
        ("unigram bpe char word bytes", "eine", "so eine", True),
        ("unigram bpe char word bytes", "eine", "eine Frau", True),
        ("unigram bpe char word bytes", "eine", "in einem", False),
        ("unigram bpe char bytes", "ein", "eine", False),
        ("unigram bpe char bytes", "ein", "Wein", False),
        ("unigram bpe char bytes", "Haus", "Haus.", True),
        ("unigram bpe char bytes", "Frau,", "Frau,so", True),  # a word ends before the comma
        ("unigram bpe char bytes", "eine Frau", "so eine Frauen", False),
        ("char", "红", "我有红的书", True),
        ("bpe char", "红", "红的书", True),
        ("unigram char", "집", "집에서", True),
        ("unigram char", "집", "我집", False),  # Korean words begin with a space
        ("bytes", "ein", "einł", False),
        ("bytes", "ein", "ein…", True),
        ("unigram bpe char bytes", "eine", "(eine Frau)", True),  # right behind a sign
        ("unigram bpe char bytes", "eine", "„eine“", True),
        ("unigram bpe char bytes", "einem", "„eine“", False),
        ("unigram bpe char bytes", "ein", "(Wein)", False),
        (
            "unigram bpe char word bytes",
            "?",
            "eine Frau ?",
            True,
        ),  # a sign, with a space and without
        ("unigram bpe char bytes", "?", "eine Frau?", True),
        ("unigram bpe char bytes", ".", "Haus.", True),
    ],
)


@held
def test_a_phrase_is_whole_words_or_a_run_of_characters(
    make_target, kinds, phrase, text, there
) -> None:
    for kind in kinds.split():
        target = make_target(kind)
        (constraint,) = ConstraintEncoder(target, [phrase])(NO_CONSTRAINT, 1, 1)
        written = (BOS, *target.encode(text), EOS)
        found = [
            (tokens in constraint.glued, written[end - len(tokens) - 1], tokens[-1], written[end])
            for tokens in (*constraint.banned, *constraint.glued)
            for end in range(len(tokens) + 1, len(written))
            if written[end - len(tokens) : end] == tokens
        ]
        joints = constraint.joints  # none where every piece is a word
        whole = [
            not (joints and ((glued and joints.open[a]) or (joints.open[b] and joints.onward[c])))
            for glued, a, b, c in found
        ]
        assert any(whole) == there, (kind, target.pieces(written))


@held
def test_a_phrase_that_is_asked_for_and_banned_is_refused(
    make_target, kinds, phrase, text, there
) -> None:
    for kind in kinds.split():
        encoder = ConstraintEncoder(make_target(kind), ["Frau einem", phrase])
        asked = TextConstraint(phrases=("Frau", text))
        if not there:
            assert [one.phrases for one in encoder(asked, 1, 1)]
            continue
        told = f"line 3: the phrase {text!r} is asked for, but search.rules.banned has {phrase!r}"
        with pytest.raises(UserError, match=re.escape(told)):
            list(encoder(asked, 1, 3))


def test_a_word_is_banned_with_its_signs_in_a_vocabulary_of_words(make_target, caplog) -> None:
    """Where no piece is the word alone, <unk> is not banned in its place."""
    target = make_target("word")
    for banned, texts in {
        "Frau einem": ["Frau einem"],  # and neither of the two alone
        "eine Frau": ["eine Frau", "eine Frau,", "eine Frau?"],
        "Haus": ["Haus."],
        "so eine Haus": ["so eine Haus."],
        ".": ["Haus."],
        "ein": [],
    }.items():
        (constraint,) = ConstraintEncoder(target, [banned])(NO_CONSTRAINT, 1, 1)
        found = {target.decode(tokens) for tokens in constraint.banned}
        assert found == set(texts)
        assert not constraint.glued
    assert "it never writes 'ein'" in caplog.text
    assert "Haus" not in caplog.text


def test_a_sign_that_is_asked_for_stands_without_a_space(make_target) -> None:
    target = make_target("char")
    phrases = (".", "eine,")
    (constraint,) = ConstraintEncoder(target, [])(TextConstraint(phrases=phrases), 1, 1)
    spelled = ["".join(target.pieces(tokens)) for tokens in constraint.phrases]
    assert spelled == [".", "▁eine,"]


def test_a_constraint_in_a_script_without_spaces_asks_for_none(make_target) -> None:
    target = make_target("char")
    (constraint,) = ConstraintEncoder(target, [])(TextConstraint(phrases=("红的", "집")), 1, 1)
    assert [target.pieces(tokens) for tokens in constraint.phrases] == [["红", "的"], ["▁", "집"]]


def test_no_more_lines_are_read_than_asked_for() -> None:
    endless = itertools.count()
    pairs = paired(map(str, endless), itertools.repeat(TextConstraint("x")))
    assert [next(pairs)[0], next(pairs)[0]] == ["0", "1"]
    assert next(endless) == 2


def test_phrases_of_a_line_in_segments_are_refused(make_translator) -> None:
    translator = make_translator(max_source_length=8)
    long = "el perro come la casa. " * 3
    with pytest.raises(UserError, match=r"line 2 is too long .* 'blue' belongs"):
        list(
            translator.stream(
                ["la", long], constraints=[NO_CONSTRAINT, TextConstraint(phrases=("blue",))]
            )
        )
    ((best, *_),) = translator.stream([long], constraints=[TextConstraint("a cat")])
    assert best.text.startswith("a cat")
    assert best.text.count("a cat") == 1


def test_searches_that_cannot_promise_phrases_say_so(make_translator) -> None:
    translator = make_translator()
    translator.search = build(GREEDY)
    with pytest.raises(UserError, match="use search=beam"):
        list(translator.stream(["la"], constraints=TextConstraint(phrases=("blue",))))


@pytest.mark.parametrize(
    "constraint", [TextConstraint("the 🚂 dog"), TextConstraint(phrases=("blue", "a 🚂"))]
)
def test_a_constraint_the_model_cannot_write_is_refused(
    make_translator, constraint: TextConstraint
) -> None:
    with pytest.raises(UserError, match="line 2: '🚂' is not in this model's vocabulary") as told:
        list(make_translator().stream(["la", "gato"], constraints=[NO_CONSTRAINT, constraint]))
    assert repr(constraint.prefix or constraint.phrases[1]) in str(told.value)


@pytest.mark.parametrize(
    "constraint", [TextConstraint("\u200b"), TextConstraint(phrases=("blue", " "))]
)
def test_a_constraint_of_nothing_is_refused(make_translator, constraint: TextConstraint) -> None:
    with pytest.raises(UserError, match=r"line 2: '.*' contains nothing to write: leave it out"):
        list(make_translator().stream(["la", "gato"], constraints=[NO_CONSTRAINT, constraint]))
    with pytest.raises(UserError, match=r"banned: '\\u200b' contains nothing to write"):
        make_translator(search={"rules": RULES | {"banned": ["\u200b"]}})


def test_more_than_the_model_writes_is_refused_with_its_line(make_model, joint) -> None:
    model = make_model("transformer", positions="learned", max_positions=8)
    translator = Translator(model, joint, build(BEAM))
    asked = [TextConstraint("the"), TextConstraint("the dog", ("red house blue cat eats a",))]
    needed = sum(len(joint.target.encode(text)) for text in (asked[1].prefix, *asked[1].phrases))
    told = rf"line 2: prefix and phrases have {needed} pieces, and this model writes at most 7"
    with pytest.raises(UserError, match=told):
        list(translator.stream(["la", "gato"], constraints=asked))


def test_to_ban_an_unknown_word_bans_no_other(make_translator, caplog) -> None:
    expected = make_translator().translate(LINES)
    with caplog.at_level(logging.WARNING, logger="translate"):
        translator = make_translator(search={"rules": RULES | {"banned": ["🚂", "a 🚅"]}})
    assert translator.translate(LINES) == expected
    (constraint,) = translator._constraint_encoder(NO_CONSTRAINT, 1, 1)
    assert constraint.banned == ()
    assert "'🚅' is not in this model's vocabulary, so it never writes 'a 🚅'" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "text", "count"),
    [
        ("AI", "AI", 1), ("AI", "使用AI技术", 1), ("AI", "AI는 좋다, AI", 2), ("AI", "PAID AIM", 0),
        ("집", "집에서", 1), ("집", "새집", 0), ("집", "我집", 0), ("猫", "大猫们", 1),
        ("हिंद", "हिंदी", 0), ("हिंद", "हिंद।", 1), ("-1", "-10 a-1", 1), ("...", "no...", 1),
    ],
)  # fmt: skip
def test_where_a_text_stands_by_itself(wanted: str, text: str, count: int) -> None:
    assert len(list(places(wanted, text))) == count


def test_a_sign_does_not_ban_the_longer_number_behind_it() -> None:
    target = learned(["-1 -10 -12 a-1"] * 5, kind="bpe", vocab_size=40)
    assert {"-1", "-10"} <= {target.decode([token]) for token in range(len(target))}
    (constraint,) = ConstraintEncoder(target, ["-1"])(NO_CONSTRAINT, 1, 1)
    texts = {target.decode(tokens) for tokens in constraint.banned}
    assert "-1" in texts
    assert not {"-10", "-12"} & texts


PEOPLE = ("老师", "大猫", "厨师", "邻居")
CHINESE = [f"{a}在花园里看见{b}。" for a in PEOPLE for b in PEOPLE]


def test_a_piece_may_hold_what_is_banned_in_its_middle() -> None:
    target = learned(CHINESE, kind="bpe", vocab_size=40)
    (constraint,) = ConstraintEncoder(target, ["园"])(NO_CONSTRAINT, 1, 1)
    holding = {token for token in range(len(target)) if "园" in target.decode([token])}
    assert len(holding) > 1
    assert holding <= {tokens[0] for tokens in constraint.banned if len(tokens) == 1}


@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_what_is_banned_is_not_written_or_flagged(make_model, kind: str) -> None:
    """A model may write it in pieces that the tokenizer would not choose."""
    chinese = learned(CHINESE, kind="bpe", vocab_size=40)
    both = Tokenizers(chinese, chinese)
    model = make_model("transformer", both)
    search = BEAM | {"beam_size": 4, "n_best": 3} if kind == "beam" else GREEDY
    free = Translator(model, both, build(search))
    pieces = {piece for n_best in free.stream(CHINESE) for one in n_best for piece in one.tokens}
    middles = sorted({piece[-1] for piece in pieces if len(piece.strip("▁")) > 1})
    assert middles
    for never in middles:
        held = Translator(model, both, build({**search, "rules": RULES | {"banned": [never]}}))
        for n_best in held.stream(CHINESE):
            for one in n_best:
                assert one.flags == ((f"banned {never}",) if never in one.text else ())


def test_a_banned_word_in_other_pieces_is_found_but_for_a_prefix(make_target) -> None:
    target = make_target("char")
    encoder = ConstraintEncoder(target, ["eine", "Wein"])
    assert encoder.banned_in("so eine Frau.") == ["eine"]
    assert encoder.banned_in("in einem Haus") == []
    prefix = tuple(target.encode("eine"))
    assert encoder.banned_in("eine Frau", prefix) == []
    assert encoder.banned_in("eine Frau, so eine", prefix) == ["eine"]
