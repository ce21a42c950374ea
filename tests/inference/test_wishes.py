from __future__ import annotations

import itertools
import logging

import pytest

from translate.errors import UserError
from translate.inference.wishes import NO_WISH, Wish, paired
from translate.search import build

LINES = ["el perro come.", "la casa azul", "", "gato"]
RULES = {"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "banned": []}


def test_a_prefix_begins_every_translation(make_translator) -> None:
    for best, *_ in make_translator().stream(LINES, wishes=Wish("the dog")):
        assert best.text.startswith("the dog") or not best.tokens


def test_each_line_has_wishes_of_its_own(make_translator) -> None:
    wishes = [Wish("a cat"), Wish(phrases=("blue", "red house")), Wish("the"), NO_WISH]
    translator = make_translator()
    found = [best.text for best, *_ in translator.stream(LINES, wishes=wishes, window=3)]
    assert found[0].startswith("a cat")
    assert "blue" in found[1]
    assert "red house" in found[1]
    assert found[2] == ""
    assert found[3] == translator.translate(LINES)[3]


def test_banned_words_stay_away(make_translator) -> None:
    translator = make_translator()
    words = {w for text in translator.translate(LINES) for w in text.split() if w.isalpha()}
    assert words
    search = {"rules": RULES | {"banned": sorted(words)}}
    pieces = [
        make_translator().tokenizers.target.pieces(translator.tokenizers.target.encode(w))
        for w in words
    ]
    banning = make_translator(search=search)
    found = [one.tokens for n_best in banning.stream(LINES) for one in n_best]
    found += [banning.align(line).target_pieces for line in LINES if line]
    for tokens in found:
        for piece in pieces:
            runs = zip(*(tokens[i:] for i in range(len(piece))), strict=False)
            assert tuple(piece) not in runs


@pytest.mark.parametrize(
    ("lines", "wishes", "words"),
    [(3, 2, "3 lines .* only 2 wishes"), (1, 2, "2 wishes .* only 1 lines")],
)
def test_counts_that_differ_are_told(lines: int, wishes: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        list(paired(["x"] * lines, [NO_WISH] * wishes))


def test_no_more_lines_are_read_than_asked_for() -> None:
    endless = itertools.count()
    pairs = paired(map(str, endless), Wish("x"))
    assert [next(pairs)[0], next(pairs)[0]] == ["0", "1"]
    assert next(endless) == 2


def test_phrases_of_a_line_in_segments_are_refused(make_translator) -> None:
    translator = make_translator(max_source_length=8)
    long = "el perro come la casa. " * 3
    with pytest.raises(UserError, match=r"line 2 is too long .* 'blue' belongs"):
        list(translator.stream(["la", long], wishes=[NO_WISH, Wish(phrases=("blue",))]))
    ((best, *_),) = translator.stream([long], wishes=[Wish("a cat")])
    assert best.text.startswith("a cat")
    assert best.text.count("a cat") == 1


def test_searches_that_cannot_promise_phrases_say_so(make_translator) -> None:
    translator = make_translator()
    translator.search = build("greedy", max_length_ratio=1.0, max_length_offset=4)
    with pytest.raises(UserError, match="search=beam can"):
        list(translator.stream(["la"], wishes=Wish(phrases=("blue",))))


@pytest.mark.parametrize("wish", [Wish("the 🚂 dog"), Wish(phrases=("blue", "a 🚂"))])
def test_a_wish_for_what_the_model_cannot_write_is_refused(make_translator, wish: Wish) -> None:
    with pytest.raises(UserError, match="line 2: '🚂' is no word of this model") as told:
        list(make_translator().stream(["la", "gato"], wishes=[NO_WISH, wish]))
    assert repr(wish.prefix or wish.phrases[1]) in str(told.value)


def test_to_ban_an_unknown_word_bans_no_other(make_translator, caplog) -> None:
    expected = make_translator().translate(LINES)
    with caplog.at_level(logging.WARNING, logger="translate"):
        translator = make_translator(search={"rules": RULES | {"banned": ["🚂", "a 🚅"]}})
    assert translator.translate(LINES) == expected
    (demand,) = translator._demands(NO_WISH, 1, 1)
    assert demand.banned == ()
    assert "'🚅' is no word of this model, which never writes 'a 🚅'" in caplog.text
