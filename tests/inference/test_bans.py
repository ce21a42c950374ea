"""What is banned is in no translation, whatever pieces a model would write it with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from translate.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from translate.inference import bans
from translate.inference.bans import Bans, places
from translate.inference.batches import Segment
from translate.inference.text_constraints import NO_CONSTRAINT, ConstraintEncoder
from translate.inference.translator import Translator
from translate.search import Hypothesis, build
from translate.search.constraints import NO_RULES, Constraint, Tokens

PEOPLE = ("老师", "大猫", "厨师", "邻居")
CHINESE = [f"{a}在花园里看见{b}。" for a in PEOPLE for b in PEOPLE]
ENGLISH = ["the house is red.", "a housed cat (the house)", "he houses the cat", "hose, hou"] * 3


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return tokenizer(ENGLISH, kind="unigram", vocab_size=60)


@pytest.fixture(scope="module")
def chinese() -> Tokenizer:
    return tokenizer(CHINESE, kind="bpe", vocab_size=40)


def tokenizer(texts: list[str], *, kind: str, vocab_size: int) -> Tokenizer:
    return train_tokenizer(
        texts, kind=kind, vocab_size=vocab_size, hard_vocab_limit=False, byte_fallback=False,
        character_coverage=1.0, normalization="nmt_nfkc", train_sentences=10_000, seed=1,
    )  # fmt: skip


def spellings(target: Tokenizer, text: str) -> Iterator[Tokens]:
    """Every way to cut a text into pieces of the vocabulary."""
    names = {name: token for token, name in enumerate(target.pieces(range(len(target))))}

    def cut(rest: str) -> Iterator[Tokens]:
        if not rest:
            yield ()
        for end in range(1, len(rest) + 1):
            if rest[:end] in names:
                yield from ((names[rest[:end]], *others) for others in cut(rest[end:]))

    yield from cut("▁" + text.replace(" ", "▁"))


def written(tokens: Tokens) -> Hypothesis:
    return Hypothesis(
        tokens=tokens, score=0.0, log_prob=0.0, token_log_probs=(), alignment=None, finished=True
    )


def stubborn(target: Tokenizer, choices: list[Tokens]):
    """A search that writes the first choice that it may."""
    names = target.pieces(range(len(target)))
    letter = [bool(re.search(r"\w$", name)) for name in names]
    onward = [bool(re.match(r"\w", name)) for name in names]

    def allowed(tokens: Tokens, constraint: Constraint) -> bool:
        for run in (*constraint.banned, *constraint.glued):
            for start in range(len(constraint.prefix), len(tokens) - len(run) + 1):
                end = start + len(run)
                inside = start > 0 and letter[tokens[start - 1]] and run not in constraint.banned
                longer = letter[run[-1]] and end < len(tokens) and onward[tokens[end]]
                if tokens[start:end] == run and not inside and not longer:
                    return False
        return True

    def find(segments: list[Segment]) -> list[list[Hypothesis]]:
        return [
            [written(next(tokens for tokens in choices if allowed(tokens, one.constraint)))]
            for one in segments
        ]

    return find


def segment(target: Tokenizer, banned: str, **changes: Tokens) -> Segment:
    (constraint,) = ConstraintEncoder(target, [banned])(NO_CONSTRAINT, 1, 1)
    return Segment("x", [5], [], replace(constraint, **changes))


def test_a_word_is_banned_however_it_is_cut(english: Tokenizer) -> None:
    several = list(spellings(english, "the house is red."))
    assert len(several) > 10
    last = tuple(english.encode("the cat"))
    find = stubborn(english, [*several, last])
    ((found,),) = Bans(english, ["house"]).kept(find, [segment(english, "house")])
    assert found.tokens == last


@pytest.mark.parametrize("text", ["he houses the cat", "a housed cat", "hou se", "the hose."])
def test_other_words_stay(english: Tokenizer, text: str) -> None:
    several = list(spellings(english, text))
    assert several
    for tokens in several:
        find = stubborn(english, [tokens])
        ((found,),) = Bans(english, ["house"]).kept(find, [segment(english, "house")])
        assert found.tokens == tokens


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


def test_what_is_banned_before_a_word_is_allowed_within_it(english: Tokenizer) -> None:
    """`use` is in `house` and is no word there, whatever was found elsewhere."""
    word = list(spellings(english, "he (use)."))
    inside = list(spellings(english, "the house"))
    find = stubborn(english, [*word, inside[-1]])
    ((found,),) = Bans(english, ["use"]).kept(find, [segment(english, "use")])
    assert found.tokens == inside[-1]


def test_a_piece_may_hold_what_is_banned_in_its_middle(chinese: Tokenizer) -> None:
    pieces = chinese.pieces(range(len(chinese)))
    (piece,) = [name for name in pieces if "园" in name and len(name) > 1][:1]
    several = [tuple(chinese.encode(text)) for text in CHINESE]
    find = stubborn(chinese, [*several, tuple(chinese.encode("大猫"))])
    ((found,),) = Bans(chinese, ["园"]).kept(find, [segment(chinese, "园")])
    assert piece not in chinese.pieces(found.tokens)
    assert chinese.decode(found.tokens) == "大猫"
    # known beforehand: one search is enough
    assert find([segment(chinese, "园")]) == [[found]]


def test_a_translator_keeps_to_what_is_banned_in_every_search(chinese, make_model) -> None:
    both = Tokenizers(chinese, chinese)
    model = make_model("transformer", both)
    limits = {"max_length_ratio": 1.0, "max_length_offset": 6}
    beam = limits | {"kind": "beam", "beam_size": 4, "length_penalty": "none", "alpha": 0.0,
                     "n_best": 3, "coverage_penalty": 0.0}  # fmt: skip
    for search in (limits | {"kind": "greedy"}, beam):
        free = Translator(model, both, build(search))
        found = [one for n_best in free.stream(CHINESE) for one in n_best]
        middles = {piece[-1] for one in found for piece in one.tokens if len(piece.strip("▁")) > 1}
        assert middles
        for never in sorted(middles):
            rules = NO_RULES.model_dump() | {"banned": [never]}
            held = Translator(model, both, build({**search, "rules": rules}))
            assert never not in "".join(
                one.text for n_best in held.stream(CHINESE) for one in n_best
            )
            assert never not in held.align(CHINESE[0]).target


def test_a_sign_does_not_ban_the_longer_number_behind_it() -> None:
    target = tokenizer(["-1 -10 -12 a-1"] * 5, kind="bpe", vocab_size=40)
    assert {"-1", "-10"} <= {target.decode([token]) for token in range(len(target))}
    (constraint,) = ConstraintEncoder(target, ["-1"])(NO_CONSTRAINT, 1, 1)
    texts = {target.decode(tokens) for tokens in constraint.banned}
    assert "-1" in texts
    assert not {"-10", "-12"} & texts


def test_a_prefix_is_the_persons_own(english: Tokenizer) -> None:
    tokens = next(tokens for tokens in spellings(english, "the house") if len(tokens) > 5)
    find = stubborn(english, [tokens])
    given = segment(english, "house", prefix=tokens)
    ((found,),) = Bans(english, ["house"]).kept(find, [given])
    assert found.tokens == tokens


def test_only_what_holds_something_banned_is_searched_again(english: Tokenizer) -> None:
    bad, good = next(spellings(english, "a house")), tuple(english.encode("a cat"))
    searched = []

    def find(segments: list[Segment]) -> list[list[Hypothesis]]:
        searched.append([one.text for one in segments])
        first = len(searched) == 1
        return [[written(bad if one.text == "bad" and first else good)] for one in segments]

    segments = [segment(english, "house")._replace(text=text) for text in ("a", "bad", "b")]
    found = Bans(english, ["house"]).kept(find, segments)
    assert [one.tokens for (one,) in found] == [good] * 3
    assert searched == [["a", "bad", "b"], ["bad"]]


def test_a_model_that_never_gives_in_is_told(
    english: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bans, "TRIES", 2)
    find = stubborn(english, list(spellings(english, "the house is red.")))
    Bans(english, ["house"]).kept(find, [segment(english, "house")])
    assert "ever new ways to write a banned text in the translation of 'x'" in caplog.text


def test_bytes_are_read_together() -> None:
    target = train_tokenizer(
        ENGLISH, kind="unigram", vocab_size=330, hard_vocab_limit=False, byte_fallback=True,
        character_coverage=1.0, normalization="nmt_nfkc", train_sentences=10_000, seed=1,
    )  # fmt: skip
    names = {name: token for token, name in enumerate(target.pieces(range(len(target))))}
    tokens = (names["▁"], *(names[f"<0x{byte:02X}>"] for byte in "house é".encode()))
    find = stubborn(target, [tokens, tuple(target.encode("the cat"))])
    for banned in ("house", "é"):
        ((found,),) = Bans(target, [banned]).kept(find, [segment(target, banned)])
        assert found.tokens != tokens
