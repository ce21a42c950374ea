from __future__ import annotations

import re
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.protection import VERBATIM, Protection

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
        ("It&#x27;s &frac12;&sup2; ni&ntilde;o &#233;", ["&#x27;", "&frac12;", "&sup2;"]),
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


@given(st.text(st.sampled_from("a@.<>/{}%s &;:htps1,")))
def test_parts_around_items_are_all_of_the_text(text: str) -> None:
    parts = ALL.parts(text)
    assert "".join(parts) == text
    within_words = re.findall(r"(?<=[a-z])&[a-z]{2,};(?=[a-z])", text)
    assert not Counter(ALL.items(text)) - Counter(parts[1::2] + within_words)


def test_a_reference_inside_a_word_does_not_part_it() -> None:
    assert ALL.parts("Don&#39;t go&nbsp;home, R&amp;D") == [
        "Don&#39;t go",
        "&nbsp;",
        "home, R&amp;D",
    ]
    assert ALL.parts("&lt;b&gt;A&lt;/b&gt;")[1::2] == ["&lt;", "&gt;", "&lt;", "&gt;"]
    assert ALL.parts("El ni&ntilde;o come {x}.") == ["El ni&ntilde;o come ", "{x}", "."]
    assert ALL.damage("It&#x27;s {x}", "C'est {x}") == ["lost &#x27;"]


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
        ("Tom&#39;s dog, https://a.b/123", "Hund", []),
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
    assert nothing.parts("{x}") == ["{x}"]


@pytest.mark.parametrize(
    "text",
    ["a", "a@", "a.", "<a", "&a", "{a", "www.", "http://", "%(a", "1,", "http://(a)", "{a:", "%.1"],
)
def test_a_megabyte_takes_no_minute(text: str) -> None:
    start = time.process_time()
    ALL.damage(text * (300_000 // len(text)), "")
    ALL.numbers(text * (300_000 // len(text)), "")
    assert time.process_time() - start < 5
