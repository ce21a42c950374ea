from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from translate.inference.batches import Segment
from translate.inference.guard import Guard, GuardConfig, loops
from translate.inference.lines import Protection
from translate.inference.text_constraints import TextConstraint
from translate.inference.translation import NOTHING, Translation
from translate.inference.translator import Translator
from translate.search import Constraint, Hypothesis, read
from translate.search.constraints import NO_RULES

BEAM = {
    "kind": "beam", "beam_size": 3, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 2,
    "coverage_penalty": 0.0, "max_length_ratio": 1.0, "max_length_offset": 4,
}  # fmt: skip


def guard(again=None, *, foreign: bool = True, **options) -> Guard:
    settings = {
        "again": BEAM, "loop_times": 4, "loop_characters": 12, "copy_share": 0.8,
        "copy_letters": 20, "length_ratio": 4.0, "length_offset": 40,
        "short_ratio": 0.33, "short_letters": 30, "stutter_times": 3,
        "protect": ("url", "placeholder", "number"), **options,
    }  # fmt: skip
    made = Guard(GuardConfig.model_validate(settings), read(BEAM), foreign=foreign)
    made.again = again or made.again
    return made


def findings(
    source: str, text: str, *, finished: bool = True, asked: str = "", **options
) -> list[str]:
    def same(segments):
        return [[found]]

    pieces = tuple(f"▁{word}" for word in text.split())
    segment = Segment(source, [hash(word) for word in source.split()], [], Constraint(), asked)
    found = Translation(text, -1.0, -1.0, pieces, (), None, finished)
    ((kept,),) = guard(**options).watch(
        [segment], [[found]], without=same, apart=same, renamed=same, again=same
    )
    return list(kept.flags)


@pytest.mark.parametrize(
    ("asked", "text", "found"),
    [
        ("the dog the dog the dog the dog", "the dog the dog the dog the dog", []),
        ("the dog", "the dog the dog the dog the dog", ["loop"]),
        ("perro come la casa azul", "el perro come la casa azul", []),
        ("so many words " * 30, "so many words " * 30, []),
    ],
)
def test_what_was_asked_for_is_not_found_wrong(asked: str, text: str, found: list[str]) -> None:
    assert findings("el perro come la casa azul", text, asked=asked) == found


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("el perro come", "the dog eats", []),
        ("el perro come", "", ["empty"]),
        ("¡…!", "", []),  # no word to translate
        ("7", "", ["empty"]),  # a digit says something
        ("el perro come", "the dog the dog the dog the dog", ["loop"]),
        ("el perro come", "the dog the dog the dog eats", []),
        ("ja ja ja ja ja ja", "hahaha hahaha hahaha hahaha", []),  # so does the source
        ("puntos", ". . . . .", []),
        ("el perro come la casa azul", "el perro come la casa azul", ["copy"]),
        ("Juan López", "Juan López", []),
        ("https://a.de/b/c/d/e/f", "https://a.de/b/c/d/e/f", []),
        ("el perro", ("abcdefghij" * 9)[:73], ["too long"]),
        ("el perro", ("abcdefghij" * 9)[:72], []),
        ("see {x}", "mira {x}", []),
        ("see {x}", "mira", ["lost {x}"]),
    ],
)
def test_what_cannot_be_right_is_found(source: str, text: str, found: list[str]) -> None:
    assert findings(source, text) == found


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("el perro negro come la casa azul del gato", "the dog", ["too short"]),
        ("el perro negro come la casa azul del gato", "the black dog eats", []),
        ("el perro negro come la casa", "the dog", []),  # too short itself to tell
        ("我昨天在北京买了一本很好的书", "I", ["too short"]),
        ("el perro negro come la casa azul del gato", "我买了一本书", []),
        ("una pregunta", "a quuuestion", ["loop"]),
        ("una pregunta", "a queesestition", []),
        ("una pregunta", "a questtitition", ["loop"]),
        ("jajaja", "hahaha", []),
        ("1000000", "1000000", []),
    ],
)
def test_too_little_and_stutters_are_found(source: str, text: str, found: list[str]) -> None:
    assert findings(source, text) == found


def test_what_is_right_depends_on_the_languages_and_on_the_end() -> None:
    text = "el perro come la casa azul"
    assert findings(text, text, foreign=False) == []
    assert findings("el perro come", "the dog", finished=False) == ["unfinished"]


def test_what_a_person_asked_for_is_not_told() -> None:
    asked = TextConstraint("In 2024 {n}:", ("24 hours",))
    text = "In 2024 {n}: 24 hours"
    assert findings("veinte", text) == ["added {n}", "added 2024", "added 24"]
    assert findings("veinte", text, asked=asked.words) == []
    found = Translation(text, -1.0, -1.0, (), (), None)
    assert guard().whole("veinte", asked.words, [found], str) == [found]


@given(st.lists(st.sampled_from("abc"), max_size=14), st.integers(2, 4))
def test_loops_are_those_that_a_search_of_everything_finds(tokens, times) -> None:
    longest = 0
    for start in range(len(tokens)):
        for end in range(start + 1, len(tokens) + 1):
            part = tokens[start:end]
            sizes = range(1, len(part) // times + 1)
            if any(part[size:] == part[:-size] for size in sizes):
                longest = max(longest, len(part))
    assert max(map(len, loops(tokens, times)), default=0) == longest


class Scripted:
    """A search that says what it is told to, in whole lines."""

    rules = NO_RULES

    def __init__(self, tokenizers, answers: dict[str, str]) -> None:
        self.tokenizers, self.answers, self.asked = tokenizers, answers, []

    def __call__(self, model, source, source_mask, *, constraints=None, need_alignment=False):
        rows = [row[there][:-1].tolist() for row, there in zip(source, source_mask, strict=True)]
        texts = [self.tokenizers.source.decode(row) for row in rows]
        self.asked += texts
        encode = self.tokenizers.target.encode
        tokens = [tuple(encode(self.answers.get(text, ""))) for text in texts]
        return [[Hypothesis(t, -1.0, -1.0, (-1.0,) * (len(t) + 1), None, True)] for t in tokens]


@pytest.fixture
def watched(make_model, joint):
    """`watched(answers, second answers)`: a translator that says them, under guard."""

    def make(first: dict[str, str], second: dict[str, str]) -> Translator:
        again = Scripted(joint, second)
        return Translator(
            make_model("transformer"), joint, Scripted(joint, first), guard=guard(again=again)
        )

    return make


GOOD = {"la casa": "the house", "el perro": "the dog"}


def test_what_is_right_is_left_alone(watched, caplog) -> None:
    translator = watched(GOOD, {})
    assert translator.translate([*GOOD, ""]) == ["the house", "the dog", ""]
    assert translator.guard.again.asked == []
    assert caplog.text == ""


def test_what_is_wrong_is_translated_again_and_the_better_one_kept(watched, caplog) -> None:
    translator = watched({**GOOD, "el perro": ""}, {"el perro": "a dog"})
    with caplog.at_level(logging.WARNING, logger="translate"):
        (house,), (dog,) = translator.stream(["la casa", "el perro"])
    assert (house.text, dog.text) == ("the house", "a dog")
    assert (house.mended, dog.mended, dog.flags) == ((), ("empty",), ())
    assert translator.guard.again.asked == ["el perro"]
    assert caplog.messages == ["line 2 was translated again: empty"]


def test_the_first_is_kept_where_the_second_is_no_better(watched, caplog) -> None:
    loops = "dog dog dog dog dog dog"
    translator = watched({"el perro": loops}, {"el perro": ""})
    with caplog.at_level(logging.WARNING, logger="translate"):
        ((dog,),) = translator.stream(["el perro"])
    assert (dog.text, dog.flags, dog.mended) == (loops, ("loop",), ())
    assert caplog.messages == ["line 1 may be wrong: loop"]


def test_damage_is_worse_than_all_else(watched) -> None:
    """A second try that lost what the first kept is not taken, however much was wrong with it."""
    url, far = "https://a.de/b", "dog " * 60
    segment = Segment(f"la casa {url}", [5, 6, 7], [], Constraint())
    first = Translation(f"{far}{url}", -1.0, -1.0, tuple(far.split()), (), None, True)
    second = replace(first, text="the house", tokens=("the", "house"))
    ((found,),) = guard().watch(
        [segment],
        [[first]],
        without=lambda _: [[first]],
        renamed=lambda _: [[first]],
        apart=lambda _: [[first]],
        again=lambda _: [[second]],
    )
    assert found.text == first.text
    assert found.flags == ("too long", "loop")


def test_every_one_of_an_n_best_list_is_judged(make_translator, joint) -> None:
    """The best alone is translated again; what is told of the others is told of each."""
    texts = ["the house", "", "dog dog dog dog dog dog"]

    def several(model, source, source_mask, **_):
        tokens = [tuple(joint.target.encode(text)) for text in texts]
        n_best = [Hypothesis(t, -1.0, -1.0, (-1.0,) * (len(t) + 1), None, True) for t in tokens]
        return [n_best] * len(source)

    translator = make_translator(guard=guard())
    several.rules, translator.search = NO_RULES, several
    (found,) = translator.stream(["la casa 1999"])
    assert [flag for one in found for flag in one.flags if flag != "lost 1999"] == ["empty", "loop"]
    assert [one.flags[-1] for one in found] == ["lost 1999"] * 3


def test_a_sentence_is_translated_without_an_item_that_was_lost(watched) -> None:
    url = "https://a.de/b?c"
    translator = watched({**GOOD, "la casa el perro.": "the house the dog."}, {})
    ((found,),) = translator.stream([f" {url} la casa el perro {{x}}."])
    assert translator.search.asked[-1] == "la casa el perro."
    assert re.sub(r" ?\{x\}", "", found.text) == f" {url} the house the dog."
    assert found.flags == ()
    assert found.mended == ()
    ((alone,),) = translator.stream([url])
    assert (alone.text, alone.tokens) == (url, ())


def test_a_common_name_stands_in_for_a_rare_one(watched) -> None:
    """Where it does not come through, the rare name is put back by the alignment."""
    answers = {"el perro, Zbigniew": "the dog", "el perro, tren": "the dog tren",
               "el perro": "the dog", "el gato, Zbigniew": "a cat", "el gato, tren": "the cat",
               "el gato": "a cat"}  # fmt: skip
    translator = watched(answers, {})
    translator.common_names = ["tren"]
    tokenizer = translator.tokenizers.source
    translator.search.answers = {
        tokenizer.decode(tokenizer.encode(text)): answer for text, answer in answers.items()
    }
    translator.guard.protection = Protection(("name",), rare=tokenizer.is_rare)
    assert tokenizer.is_rare("Zbigniew")
    renamed, put_back = (best for best, *_ in translator.stream([*answers][::3]))
    assert renamed.text == "the dog Zbigniew"
    assert renamed.mended == ("lost Zbigniew",)
    assert "Zbigniew" in put_back.text
    assert "tren" not in put_back.text


def test_a_rare_first_word_is_a_name_where_the_model_is_surer_then() -> None:
    """So `Zbigniew come` is told from a verb that training hardly had."""
    segment = Segment("¿Zbigniew come aquí?", [5, 6], [], Constraint(), "")
    first = Translation("You come?", -2.0, -4.0, ("▁You", "▁come?"), (), None, True)
    named = replace(first, text="Does Zbigniew eat?", tokens=("▁Does", "▁Tom", "▁eat?"))
    watching = guard()
    watching.protection = Protection((), rare=lambda word: word == "Zbigniew")
    assert watching.protection.first_name(segment.text) == []
    watching.protection = Protection(("name",), rare=lambda word: word == "Zbigniew")
    same = {"without": lambda _: [[first]]}
    same["apart"] = same["again"] = same["without"]
    for others, text in (
        ([replace(named, log_prob=-4.4)], "You come?"),  # a quarter of a nat a piece is too little
        ([replace(named, log_prob=-4.2)], "Does Zbigniew eat?"),
        ([], "You come?"),
    ):
        ((kept,),) = watching.watch([segment], [[first]], renamed=lambda _, n=others: [n], **same)
        assert kept.text == text
    assert kept.mended == ()


def test_what_is_too_short_is_translated_clause_by_clause(watched) -> None:
    clauses = ["el perro come la casa azul,", "la casa come el perro azul."]
    line = " ".join(clauses)
    answers = {clauses[0]: "the dog eats the house.", clauses[1]: "the house eats the dog."}
    translator = watched({**answers, line: "the dog"}, {})
    read = translator.tokenizers.source.normalised
    translator.search.answers = {
        translator.tokenizers.source.decode(translator.tokenizers.source.encode(read(text))): answer
        for text, answer in translator.search.answers.items()
    }
    ((found,),) = translator.stream([line])
    assert found.text == "the dog eats the house. the house eats the dog."
    assert (found.mended, found.flags) == (("too short",), ())


def test_an_item_that_was_cut_through_is_told(make_translator) -> None:
    tag = '<a title="la casa el perro">'
    translator = make_translator(guard=guard(protect=("tag",)), max_source_length=4)
    (found,) = translator.stream([f"la casa {tag} azul"])
    assert [one.flags[-1] for one in found] == [f"lost {tag}"] * 2


def test_numbers_that_changed_are_told_and_left(watched, joint, caplog) -> None:
    read = joint.source.decode(joint.source.encode("la casa 1999"))
    translator = watched({read: "the house"}, {})
    with caplog.at_level(logging.WARNING, logger="translate"):
        ((found,),) = translator.stream(["la casa 1999"])
    assert (found.text, found.flags) == ("the house", ("lost 1999",))
    assert caplog.messages == ["line 1 may be wrong: lost 1999"]
    assert translator.guard.again.asked == []


ITEMS = st.sampled_from(["{x}", "https://a.de/b.", "el perro", "la casa.", "gato", ",", "(", ""])


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.lists(ITEMS, max_size=5).map(" ".join), max_size=3))
def test_no_item_is_ever_lost(make_translator, lines) -> None:
    translator = make_translator(guard=guard(), split_sentences=True)
    for line, text in zip(lines, translator.translate(lines), strict=True):
        assert sorted(guard().protection.items(text)) == sorted(guard().protection.items(line))


@pytest.mark.parametrize(("line", "item"), [("el perro {x} come", "{x}"), ("{}!", "{}")])
def test_phrases_that_must_occur_stay_in_one_piece(make_translator, line: str, item: str) -> None:
    translator = make_translator(guard=guard())
    ((best, *_),) = translator.stream([line], constraints=TextConstraint(phrases=("red house",)))
    assert "red house" in best.text
    assert f"lost {item}" in best.flags


def test_as_many_translations_as_the_search_gives(make_translator) -> None:
    """And the search of the second try keeps prefixes too."""
    translator = make_translator(guard=guard(), max_source_length=6)
    lines = ["el perro come. la casa {x} azul", "gato", ""]
    found = list(translator.stream(lines, constraints=TextConstraint("the dog")))
    assert [len(n_best) for n_best in found] == [2, 2, 1]
    assert all(best.text.startswith("the dog") for best, *_ in found[:2])


def test_what_was_put_together_has_no_attention_of_its_own(make_translator) -> None:
    translator = make_translator(guard=guard())
    ((best, *_),) = translator.stream(["la casa azul {x}"], need_alignment=True)
    assert best.text.endswith(" {x}")
    assert best.alignment is None
    ((best, *_),) = translator.stream([" la casa azul "], need_alignment=True)
    assert best.alignment is not None


@pytest.mark.parametrize("line", ["{x} la casa azul", "{x}", "{}", "{} {}!", "el perro {x}"])
def test_a_prefix_stays_in_front_of_what_is_copied(make_translator, line: str) -> None:
    translator = make_translator(guard=guard())
    ((best, *_),) = translator.stream([line], constraints=TextConstraint("the dog"))
    assert best.text.startswith("the dog")


def test_nothing_is_known_of_how_sure_another_search_is(joint) -> None:
    segment = Segment("la casa", joint.source.encode("la casa"), [], Constraint(), "")
    nothing = replace(NOTHING, confidence=0.1)
    sure = replace(NOTHING, text="the house", confidence=0.9)
    for way, confidence in (("apart", 0.9), ("again", None)):
        ways = dict.fromkeys(("without", "renamed", "apart", "again"), lambda _: [[nothing]])
        ways[way] = lambda _: [[sure]]
        first = replace(nothing, flags=("too short",))  # so that all ways are tried
        ((kept,),) = guard().watch([segment], [[first]], **ways)
        assert (kept.text, kept.confidence) == ("the house", confidence)
