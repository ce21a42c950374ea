from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.lines import VERBATIM, CutLine, Cutter, Protection, sentences, within
from translate.inference.translation import NOTHING, Translation


def characters(texts) -> list[int]:
    """A tokenizer whose pieces are characters other than spaces."""
    return [len("".join(text.split())) for text in texts]


def translation(text: str) -> Translation:
    return Translation(text, -1.0, -2.0, (text,), (-1.5, -0.5), None)


def test_the_best_of_a_line_are_as_many_as_those_of_any_of_its_texts() -> None:
    line = CutLine(("", " ", " ", ""), ("Hola.", "{name}.", "Adiós."), ([4], [], [5]))
    found = [
        [translation(text) for text in some]
        for some in (["Hello.", "Hi."], ["{name}."], ["Bye.", "Goodbye.", "So long."])
    ]
    assert [best.text for best in line.joined(found)] == [
        "Hello. {name}. Bye.", "Hi. {name}. Goodbye.", "Hi. {name}. So long.",
    ]  # fmt: skip


TEXT = st.text(st.sampled_from("ab.,;? \u3000犬、。\u00a0"))


@given(st.lists(TEXT), st.integers(1, 9))
def test_parts_are_all_of_the_text_and_within_the_limit(texts, limit) -> None:
    parts = list(within(texts, limit, characters))
    assert "".join(parts) == "".join(texts)
    assert max(characters(parts), default=0) <= limit


@given(st.text())
def test_sentences_are_all_of_the_text(text: str) -> None:
    assert "".join(sentences(text, "en")) == text


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (16, ["On, and on we go."]),
        (9, ["On, ", "and on we ", "go."]),  # after a clause, where there is one
        (5, ["On, ", "and on ", "we go."]),  # after a word
        (2, ["On", ", ", "an", "d ", "on ", "we ", "go", "."]),  # anywhere
    ],
)
def test_parts_end_after_a_clause_else_a_word_else_anywhere(limit, expected) -> None:
    assert list(within(["On, and on we go."], limit, characters)) == expected


def test_scripts_without_spaces_are_cut_at_their_punctuation() -> None:
    assert list(within(["犬が寝る、猫も寝る、"], 7, characters)) == ["犬が寝る、", "猫も寝る、"]


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("es", "El Sr. García llegó. ¿Y Ud.? Sí.", 3),
        ("de", "Am 3. Mai kam z. B. Dr. Müller. Er blieb.", 2),
        ("en", "See http://a.b/c.html?x=1. Mail a@b.com. Mr. Smith paid $3.50.", 3),
        ("ja", "犬が寝る。猫も寝る。", 2),
        ("", "An unknown language. Still two.", 2),
        ("en", "Visit https://a.b/?Q=1 now. Or <a title='So. Yes.'>this</a>. Bye.", 3),
        ("en", "Call foo.Bar() in node.js!Important", 1),
        ("zh", "你好!我是学生。他也是。", 3),
        ("en", "It is known.[2][3] So it goes.", 2),
        ("zh", "他说：“好。”Tom走了。", 2),
        ("hi", "वह आया।मैं गया।", 2),
        ("ar", "كيف حالك؟أنا بخير.", 2),
        ("de", "Er kam.„Ja“, sagte er.", 2),
    ],
)
def test_abbreviations_and_numbers_end_no_sentence(language, text, count) -> None:
    assert len(sentences(text, language)) == count


def test_a_hundred_thousand_quotation_marks_take_no_minutes() -> None:
    start = time.process_time()
    sentences("' \" " * 25_000, "en")
    assert time.process_time() - start < 10


@pytest.fixture
def cutter(joint):
    return lambda **options: Cutter(
        joint.source, **{"language": "es", "limit": 500, "sentences": True, **options}
    )


def test_white_space_around_sentences_is_kept(cutter) -> None:
    line = cutter()("  \tel perro come.  la casa. \u3000", 1)
    assert line.gaps == ("  \t", "  ", " \u3000")
    assert line.texts == ("el perro come.", "la casa.")
    found = [[translation("A.")], [translation("B.")]]
    assert line.joined(found)[0].text == "  \tA.  B. \u3000"
    assert cutter(sentences=False)(" el perro. la casa. ", 1).texts == ("el perro. la casa.",)
    assert cutter()("el perro. la casa.", 1, whole=True).texts == ("el perro. la casa.",)


def test_nothing_to_see_is_nothing_to_translate(cutter) -> None:
    for text in ("", "  ", "\u200b \x00"):
        assert cutter()(text, 1).joined([]) == [NOTHING]


@pytest.mark.parametrize(
    ("gap", "left", "right", "expected"),
    [
        ("", "Yes.", "No.", "Yes. No."),
        ("", "はい。", "いいえ。", "はい。いいえ。"),
        (" ", "はい。", "いいえ。", "はい。 いいえ。"),
        ("", "Yes.", "</p>", "Yes.</p>"),
        ("", "Hola.", "¿Qué tal?", "Hola. ¿Qué tal?"),
        ("", "Hello.", '"Really?"', 'Hello. "Really?"'),
        ("", "Bonjour.", "« Oui »", "Bonjour. « Oui »"),
        ("", "Hallo.", "„Ja“", "Hallo. „Ja“"),
        ("", "Hello.", "(laughs)", "Hello. (laughs)"),
        ("", "Pay.", "$5 now.", "Pay. $5 now."),
        ("", "Yes", "!", "Yes!"),
        ("", "はい。", "「いいえ」", "はい。「いいえ」"),
        ("", "Yes.", "", "Yes."),
        ("", "", "No.", "No."),
        ("", "", "Today.", "Today."),
    ],
)
def test_sentences_without_a_space_between_get_one_where_the_script_has_spaces(
    gap, left, right, expected
) -> None:
    line = CutLine(("", gap, ""), ("a", "b"), ([4], [5]))
    (found,) = line.joined([[translation(left)], [translation(right)]])
    assert found.text == expected
    assert (found.score, found.log_prob) == (-2.0, -4.0)
    assert len(found.token_log_probs) == 4


def test_a_sentence_too_long_for_the_model_is_cut_with_a_warning(cutter, caplog) -> None:
    with caplog.at_level(logging.WARNING, logger="translate"):
        line = cutter(limit=6)("el perro, la casa azul, el gato rojo. el tren.", 7)
    assert len(line.texts) > 2
    assert all(len(ids) <= 6 for ids in line.ids)
    assert "line 7 has" in caplog.text
    assert caplog.text.rstrip().endswith("some of them parts of a sentence")


def test_the_texts_of_a_line_hold_its_pieces(cutter, joint) -> None:
    line = "el perro come. la casa azul, el gato rojo. el tren."
    for limit in (500, 8, 4):
        ids = cutter(limit=limit)(line, 1).ids
        assert [piece for text in ids for piece in text] == joint.source.encode(line)


def test_no_part_ends_within_what_must_stay_whole() -> None:
    parts = list(within(["{name}" * 40], 20, characters))
    assert sum(map(len, parts)) == 240
    assert set(parts) == {"{name}" * 3, "{name}"}
    assert next(within(["{" + "a" * 20 + "}"], 8, characters)) == "{aaaaaaa"  # one too long


@pytest.mark.parametrize("line", ["...", "!!! ---", "=====", "😀", "|---|---|", "。"])
def test_what_has_no_word_stays_as_it_is(cutter, line: str) -> None:
    assert cutter()(line, 1) == CutLine((line,), (), ())
    behind = cutter()(f"El perro come. {line}", 1)
    assert behind.gaps == ("", f" {line}")
    assert " ".join(cutter()(line, 1, asked=True).texts) == line


def test_what_was_practised_counts_words_and_not_items(cutter) -> None:
    long = "el perro come, la casa come, el perro come"
    count = len(cutter()(long, 1).ids[0])
    read = cutter(practised=count // 2)
    assert len(read(long, 1).texts) > 1
    line = "el perro https://a.de/b?c=1&d=2&e=3&f=4&g=5 come"
    assert len(cutter()(line, 1).ids[0]) > count // 2
    assert read(line, 1).texts == (line,)
    assert len(cutter(practised=count // 2, limit=count)(line * 9, 1).texts) > 1


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u3000\u00a0"])
@pytest.mark.parametrize("language", ["", "en", "fr", "zh"])
def test_a_wide_space_behind_an_initial_is_no_trap(space: str, language: str) -> None:
    text = f"Le plan B{space}. Oui. Non."
    assert "".join(sentences(text, language)) == text


ALL = Protection([*VERBATIM, "number"])


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Siehe https://a.de/b?c=1&d=#e.", ["https://a.de/b?c=1&d=#e"]),
        ("(see www.x.org/y/), ftp://z.org/!", ["www.x.org/y/", "ftp://z.org/"]),
        ("http://例え.jp/犬。犬が", ["http://例え.jp/犬"]),
        ("Mail: a.b+c@d-e.org, now.", ["a.b+c@d-e.org"]),
        ('<b>so</b> <br/> <a href="x">', ["<b>", "</b>", "<br/>", '<a href="x">']),
        ("&lt; &#8364; R&D AT&T; a < b > c", ["&lt;", "&#8364;"]),
        ("{name} ${x} {0} %s %(n)d 100 % sicher", ["{name}", "${x}", "{0}", "%s", "%(n)d"]),
        (
            "{{ name }}, ${USER-x} {0:>10} {x!r} {n:,} {a[0]}",
            ["{{ name }}", "${USER-x}", "{0:>10}", "{x!r}", "{n:,}", "{a[0]}"],
        ),
        (
            "%1$s of %2$d, %.2f EUR, %-5d %@ %% 50% discount 5 % de {a b}",
            ["%1$s", "%2$d", "%.2f", "%-5d", "%@"],
        ),
        (
            "(see http://a.b/c_(d)) http://a.b/(x)/y, (www.c.d/e)",
            ["http://a.b/c_(d)", "http://a.b/(x)/y", "www.c.d/e"],
        ),
        ("HTTP://A.DE/x und Www.b.de", ["HTTP://A.DE/x", "Www.b.de"]),
        ("1999 Hunde @ home, e.g. this", []),
        ("请访问https://x.com/a。", ["https://x.com/a"]),
        ("发送到a@b.com吧，müller-x@y.de", ["a@b.com", "müller-x@y.de"]),
        ("共%d个文件、%sさん、%s님", ["%d", "%s", "%s"]),
        ("info@한국.한국, a@公司.cn", ["info@한국.한국", "a@公司.cn"]),
        ("20%désormais, 100%ige, %s-Datei", ["%s"]),
    ],
)
def test_what_stays_as_it_is(text: str, items: list[str]) -> None:
    assert ALL.items(text) == items


@pytest.mark.parametrize(
    ("source", "translation", "damage"),
    [
        ("a {x} b {y}", "b {y} a {x}", []),
        ("<b>a</b>", "<b> a </b>", []),
        ("<b>a</b>", "</b>a<b>", ["tags in another order"]),
        (
            "see http://x.de/a",
            "siehe http://x.de/as",
            ["lost http://x.de/a", "added http://x.de/as"],
        ),
        ("{x} and {x}", "{x}", ["lost {x}"]),
        ("nothing", "a@b.org", ["added a@b.org"]),
    ],
)
def test_damage(source: str, translation: str, damage: list[str]) -> None:
    assert ALL.damage(source, translation) == damage


@pytest.mark.parametrize(
    ("source", "translation", "changes"),
    [
        ("1,500.25 in 1999", "1.500,25 im Jahr 1999", []),
        ("1 500", "1500", []),  # a plain space may part thousands …
        ("10 000 000 euros", "10,000,000 euros", []),
        ("rooms 101 102", "Zimmer 101, 102", []),  # … or two numbers
        ("1 500", "1501", ["lost 500", "added 1501"]),
        ("51 500", "51 600", ["lost 500", "added 600"]),
        ("at 10:30", "um 10.30", []),
        ("٢٠٢٤", "2024", []),
        ("3 dogs", "drei Hunde", []),
        ("1999", "1989", ["lost 1999", "added 1989"]),
        ("1,000,000 and 0.125", "1'000'000 und 0,125", []),
        ("3.5 m", "35 m", ["lost 3.5", "added 35"]),
        ("12.50 or 10.000", "12,50 oder 10000", []),
        ("Tom's dog, https://a.b/123", "Hund", []),
        ("{0} of 12", "{0} von 12", []),
    ],
)
def test_numbers_are_compared_by_their_digits(source, translation, changes) -> None:
    assert ALL.numbers(source, translation) == changes


def test_what_is_asked_for_may_be_added() -> None:
    assert ALL.numbers("el tren", "In 2024 the train", "In 2024") == []
    assert ALL.numbers("el tren", "In 2024 2024", "In 2024") == ["added 2024"]
    assert ALL.damage("<b>x</b>", "<i> {n}: <b>x</b>", "<i> {n}:") == []
    assert ALL.damage("{n} x", "x", "{n}") == ["lost {n}"]


def test_what_is_not_protected_is_not_looked_for() -> None:
    assert Protection(["url"]).items("a@b.org http://x.de") == ["http://x.de"]
    nothing = Protection([])
    assert (nothing.damage("{x} 1999", ""), nothing.numbers("1999", "")) == ([], [])
    assert nothing.spans("{x}") == []


@pytest.mark.parametrize(
    "text",
    ["a", "a@", "a.", "<a", "&a", "{a", "www.", "http://", "%(a", "1,", "http://(a)", "{a:", "%.1"],
)
def test_a_megabyte_takes_no_minute(text: str) -> None:
    start = time.process_time()
    ALL.damage(text * (300_000 // len(text)), "")
    ALL.numbers(text * (300_000 // len(text)), "")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("မြန်မာ vive aquí.", ["မြန်မာ"]),  # with marks that are no letters
        ("Hace 20 °C hoy.", ["°C"]),
        ("Hola ♪, Łódź y 東京と.", ["♪", "東京と"]),
        ("Dos – tres 👩\u200d🚀.", ["–", "👩\u200d🚀"]),
        ("10 + 3 < 20 €, ¿no?", []),
    ],
)
def test_symbols_and_what_the_vocabulary_lacks_are_signs(text: str, items: list[str]) -> None:
    known = {*"€áéíóúñŁódź¿¡♪"}
    protection = Protection(("sign",), lacks=lambda each: not each.isascii() and each not in known)
    assert protection.items(text) == items


def test_rare_words_with_a_capital_behind_another_are_names() -> None:
    text = "Zoé y Zbigniew, Björk. Otro Día <b>Wojtek</b> con el URSS"
    protection = Protection(("name",), rare=lambda word: word != "Día")
    assert [text[a:b] for a, b in protection.names(text)] == ["Zbigniew", "Björk", "URSS"]
    assert protection.damage(text, "Zoe and Zbigniew") == ["lost Björk", "lost URSS"]
    assert protection.damage(text, "Zoe", asked="Zoe") == []
    assert protection.first_name(f"¿{text}") == [(1, 4)]
    assert protection.first_name("Día y noche") == protection.first_name("zoé y a") == []
    assert protection.first_name("Zoé viene") == []


@pytest.mark.parametrize(
    ("line", "texts", "gaps"),
    [
        ("a" * 60_000, (), ("a" * 60_000,)),
        ("字" * 3_000, (), ("字" * 3_000,)),
        ("On. " + "Zg==" * 99 + "  we go.", ("On.", "we go."), ("", " " + "Zg==" * 99 + "  ", "")),
        ("字" * 900 + "。" + "字" * 900, None, None),
        ("on " * 500, None, None),
        ("https://x.org/" + "a" * 900, None, None),
    ],
    ids=["letters", "unspaced", "among words", "unspaced writing", "words", "an address"],
)
def test_what_has_no_end_of_a_word_stays_as_it_is(
    cutter, line: str, texts: tuple[str, ...] | None, gaps: tuple[str, ...] | None
) -> None:
    cut = cutter()(line, 1)
    if texts is None:
        assert not cut.flags
        return
    assert (cut.texts, cut.gaps) == (texts, gaps)
    (best,) = cut.joined([[NOTHING]] * len(texts))
    assert best.flags == cut.flags
    assert "kept" in cut.flags[0]
    asked = cutter()(line[:400], 1, asked=True)
    assert not asked.flags
