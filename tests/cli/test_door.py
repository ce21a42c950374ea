"""`translate.load` and `translate text` are one door: the same texts, flags and confidence."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import translate
from translate.errors import UserError

BUNDLE = Path(__file__).parents[1] / "bundles" / "transformer"
ORDINARY = ["the dog sleeps .", "a house", "The old woman sees the child today .", "often", "two"]
ODD = [
    "", "   ", "😀", "...", "https://a.de/b?c", "ana@a.de", "{x}", "%s", "<b>", "</b>", "<br/>",
    "&nbsp;", "&amp;", "&lt;", "AT&T", "x < y", "♪", "— ", "10 m²", "1.000,5", "ŹŻ", "字字字",
    "\u200b", "\ufffd", "THE DOG .", "the the the the", "Who ? I ! You .", "\t", '"', "«", "a" * 90,
]  # fmt: skip


def inputs(count: int) -> list[str]:
    """Lines of ordinary and odd parts, the same every time."""
    random = Random(1)
    return [
        " ".join(random.choices(ORDINARY + ODD, k=random.choice((1, 1, 2, 3, 6))))
        for _ in range(count)
    ]


def test_the_door_and_the_command_give_the_same(program) -> None:
    lines = inputs(300)
    typed = ["format=json", "workers=1", "device=cpu", "search=beam", "search.beam_size=3"]
    done = program(
        "text", f"run={BUNDLE}", *typed, stdin="".join(f"{line}\n" for line in lines).encode()
    )
    command = [json.loads(line)["translations"][0] for line in done.out.splitlines()]
    door = translate.load(BUNDLE, device="cpu", search={"beam_size": 3})
    assert [best["text"] for best in command] == door.translate(lines)
    for line, expected, (best, *_) in zip(lines, command, door.stream(lines), strict=True):
        found = (best.text, list(best.flags), list(best.mended), best.confidence)
        fields = [expected[key] for key in ("text", "flags", "mended")]
        assert found == (*fields, expected.get("confidence")), line
    assert any(best["flags"] for best in command)
    assert any(best["mended"] for best in command)


def test_line_breaks_stay() -> None:
    door = translate.load(BUNDLE, device="cpu")
    texts = ["the dog\n\n  a house\r\n", "\n", "", "two\u2028often\rthe dog"]
    lines = door.translate(["the dog", "  a house", "two", "often"])
    first, second, third, fourth = lines
    expected = [f"{first}\n\n{second}\r\n", "", "", f"{third}\u2028{fourth}\r{first}"]
    assert door.translate(texts) == expected


def test_a_guard_is_chosen_as_on_the_command_line() -> None:
    guard = translate.load(BUNDLE, device="cpu", search={"max_length_offset": 7}).guard
    assert guard is not None
    assert guard.config.again.max_length_offset == 7  # that of the first search
    for nothing in ("none", None):
        assert translate.load(BUNDLE, device="cpu", guard=nothing).guard is None
    changed = {"protect": ["url"], "again": {"beam_size": 2}}
    other = translate.load(BUNDLE, device="cpu", guard=changed).guard
    assert other is not None
    assert other.config.protect == ("url",)
    assert other.config.again.beam_size == 2
    assert other.config.again.rules == guard.config.again.rules
    greedy = translate.load(BUNDLE, device="cpu", guard={"again": "greedy"}).guard
    assert greedy is not None
    assert greedy.config.again.kind == "greedy"
    assert greedy.config.again.rules == guard.config.again.rules


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"guard": "strict"}, "guard = 'strict': no such option; choose from default, none"),
        ({"guard": {"protct": []}}, "guard.protct is not a key; did you mean guard.protect?"),
        ({"guard": {"again": "bean"}}, "search = 'bean': no such option; did you mean beam?"),
        ({"guard": {"again": 5}}, "search = '5': no such option"),
        ({"search": "bean"}, "search = 'bean': no such option; did you mean beam?"),
        ({"search": {"beem_size": 3}}, "search.beem_size is not a key; did you mean"),
        ({"search": {"kind": "greedy", "beam_size": 3}}, "but one of search=beam or diverse"),
    ],
)
def test_slips_are_told_as_on_the_command_line(options, line: str) -> None:
    with pytest.raises(UserError) as error:
        translate.load(BUNDLE, device="cpu", **options)
    assert line in str(error.value)


def test_the_other_options_of_the_command_are_keywords() -> None:
    door = translate.load(
        BUNDLE, device="cpu", search="sample", workers=1, precision="float32", mbr="chrf",
        confidence=False, engine="native",
    )  # fmt: skip
    assert door.mbr == "chrf"
    assert len(door.translate(["the dog"])) == 1
