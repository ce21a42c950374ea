"""The page of attention, used in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from translate.extras.attention_pictures import heatmap
from translate.extras.attention_views import Attended, Tokens, write_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on the path")

# Run after the page's own script; `see` tells of what the page shows.
HELPERS = """
const $ = (selector, within = document) => [...within.querySelectorAll(selector)];
const token = (panel, side, index) => $(`#${side}-${panel} .token`)[index];
const fire = (target, type, more = {}) =>
  target.dispatchEvent(new (type.startsWith("key") ? KeyboardEvent : PointerEvent)(
    type, { bubbles: true, cancelable: true, ...more }));
const see = () => $("section").map(panel => ({
  selected: $("[aria-selected=true]", panel).map(token => token.textContent),
  lit: Object.fromEntries($(".token", panel).filter(token => token.dataset.percent)
    .map(token => [token.textContent, Number(token.dataset.percent)])),
  status: $("[role=status]", panel)[0].textContent,
  tokens: $(".line", panel).map(line => $(".token", line).map(token => token.textContent)),
  directions: $(".line", panel).map(line => getComputedStyle(line).direction),
  checked: $(".heads :checked", panel).map(input => input.getAttribute("aria-label")),
}));
const seen = {};
"""

Seen = dict[str, list[dict]]


def attended(run: str, weights: np.ndarray, *, source: list[str], target: list[str]) -> Attended:
    """Words are given; each is two pieces, with half of its weight."""
    pieces = Tokens(
        [piece for word in source for piece in (f"▁{word[0]}", word[1:])],
        [piece for word in target for piece in (f"▁{word[0]}", word[1:])],
        np.repeat(np.repeat(weights, 2, axis=-1) / 2, 2, axis=-2),
    )
    words = Tokens(source, target, weights)
    texts = (" ".join(source), " ".join(target))
    return Attended(run, "transformer", ("es", "en"), "cross", *texts, False, words, pieces)


WEIGHTS = np.array([[[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]]]])  # (1, 2, 2, 2)
ONE = attended("runs/a", WEIGHTS, source=["hola", "mundo"], target=["hello", "world"])
OTHER = attended("runs/b", WEIGHTS[:, :1, ::-1], source=["hola", "mundo"], target=["so", "there"])
HEBREW = attended("runs/c", WEIGHTS, source=["איפה", "הרכבת"], target=["the", "</s>"])


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[Path, str], Seen]:
    """`browse(page, script)`: what the script has put into `seen`."""

    def call(page: Path, script: str) -> Seen:
        script = f"{HELPERS}{script}\ndocument.body.dataset.seen = JSON.stringify(seen);"
        page.write_text(f"{page.read_text('utf-8')}<script>{script}</script>", "utf-8")
        done = subprocess.run(
            [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        found = re.search(r'data-seen="([^"]*)"', done.stdout)
        assert found, done.stderr
        seen: Seen = json.loads(unescape(found[1]))
        return seen

    return call


@pytest.fixture
def act(tmp_path: Path, browse: Callable[[Path, str], Seen]) -> Callable[..., Seen]:
    """`act(runs, script)`: the same on their page."""

    def call(runs: list[Attended], script: str) -> Seen:
        write_page(runs, tmp_path / "page.html")
        return browse(tmp_path / "page.html", script)

    return call


def test_a_full_stop_stands_where_the_script_ends(
    tmp_path: Path, browse: Callable[[Path, str], Seen]
) -> None:
    """In an SVG, whose text has the viewer's direction."""
    words = ["הרכבת.", "الشارع.", "train."]
    heatmap(["a", "b"], words, np.eye(3, 2), tmp_path / "a.svg")
    page = tmp_path / "page.html"
    page.write_text(f"<meta charset=utf-8>{(tmp_path / 'a.svg').read_text('utf-8')}", "utf-8")
    seen = browse(
        page,
        """
        const words = $("text").filter(text => /\\p{L}\\./u.test(text.textContent));
        seen.right = words.map(text => {
          const place = piece => text.getExtentOfChar(text.textContent.search(piece)).x;
          return [text.textContent, place(/\\./) > place(/\\p{L}/u)];
        });
        """,
    )
    right = {text.strip("\u2068\u2069"): stands for text, stands in seen["right"]}
    assert right == {"הרכבת.": False, "الشارع.": False, "train.": True}


def test_a_word_lights_up_what_it_looks_at(act: Callable[..., Seen]) -> None:
    seen = act(
        [ONE],
        """
        seen.rest = see();
        fire(token(0, "target", 0), "pointerover"); seen.target = see();
        fire($("#target-0")[0], "pointerleave"); seen.left = see();
        fire(token(0, "source", 0), "pointerover"); seen.source = see();
        fire($("#source-0")[0], "pointerleave");
        fire(token(0, "target", 1), "click"); seen.held = see();
        fire(document.body, "keydown", { key: "Escape" }); seen.released = see();
        fire(token(0, "target", 1), "click"); fire(token(0, "target", 1), "click");
        seen.twice = see();
        """,
    )
    assert seen["rest"][0]["lit"] == {}
    assert seen["rest"][0]["checked"] == ["layer: 1, head: mean"]
    (target,) = seen["target"]
    assert target["selected"] == ["hello"]
    assert target["lit"] == {"hola": 70, "mundo": 30}  # the mean of both heads
    assert re.sub("[\u2066-\u2069\u202f]", "", target["status"]) == (
        "“hello” looks at “hola” 70%, “mundo” 30%"
    )
    assert seen["left"] == seen["rest"] == seen["released"] == seen["twice"]
    assert seen["source"][0]["lit"] == {"hello": 70, "world": 10}
    assert "is looked at by" in seen["source"][0]["status"]
    assert seen["held"][0]["selected"] == ["world"]


def test_heads_and_units_can_be_switched(act: Callable[..., Seen]) -> None:
    seen = act(
        [ONE],
        """
        fire(token(0, "target", 0), "click");
        $(".heads input")[1].click(); seen.first = see();
        $(".heads input")[2].click(); seen.second = see();
        $("[value=pieces]")[0].click(); fire(token(0, "target", 3), "click"); seen.pieces = see();
        """,
    )
    assert seen["first"][0]["lit"] == {"hola": 90, "mundo": 10}
    assert seen["second"][0]["lit"] == {"hola": 50, "mundo": 50}
    (pieces,) = seen["pieces"]
    assert pieces["tokens"][0] == ["▁h", "ola", "▁m", "undo"]
    assert pieces["selected"] == ["orld"]
    assert pieces["lit"] == {"▁m": 50, "undo": 50}
    assert pieces["checked"] == ["layer: 1, head: 2"]


def test_small_pictures_share_a_scale_whose_end_is_told(act: Callable[..., Seen]) -> None:
    """A head that spreads its weight is not to look as sharp as one that does not."""
    seen = act(
        [ONE],
        """
        seen.darkness = $("canvas").map(canvas =>
          canvas.getContext("2d").getImageData(0, 0, 1, 1).data[3] / 255);
        seen.legend = $(".picker legend").map(legend => legend.textContent);
        """,
    )
    assert seen["darkness"] == pytest.approx([0.7, 0.9, 0.5], abs=0.005)  # the mean, two heads
    assert re.sub("\u202f", "", str(seen["legend"][0])).endswith("the strongest square is 100%")


def test_a_long_sentence_is_shown(act: Callable[..., Seen]) -> None:
    """More weights than a function can take as arguments."""
    words = [f"w{i}" for i in range(400)]
    long = Tokens(words, words, np.eye(400)[None, None])
    run = Attended("runs/a", "transformer", ("es", "en"), "cross", "", "", False, long, long)
    seen = act([run], "fire(token(0, 'target', 3), 'pointerover'); seen.one = see();")
    assert seen["one"][0]["lit"] == {"w3": 100}


def test_two_runs_light_up_together_where_their_lines_are_equal(act: Callable[..., Seen]) -> None:
    seen = act(
        [ONE, OTHER],
        """
        fire(token(0, "source", 1), "pointerover"); seen.source = see();
        fire(token(1, "target", 1), "pointerover"); seen.target = see();
        """,
    )
    assert [panel["selected"] for panel in seen["source"]] == [["mundo"], ["mundo"]]
    assert seen["source"][0]["lit"] == {"hello": 30, "world": 90}
    assert seen["source"][1]["lit"] == {"so": 80, "there": 10}
    assert seen["target"][0]["lit"] == {}  # another translation
    assert seen["target"][1]["lit"] == {"hola": 90, "mundo": 10}


def test_the_keyboard_goes_the_way_the_script_runs(act: Callable[..., Seen]) -> None:
    seen = act(
        [HEBREW],
        """
        const press = (side, key) => fire($(`#${side}-0`)[0], "keydown", { key });
        press("source", "Home"); seen.home = see();
        press("source", "ArrowLeft"); seen.left = see();
        press("source", "ArrowLeft"); seen.end = see();
        press("source", "ArrowRight"); seen.right = see();
        press("target", "ArrowRight"); seen.target = see();
        """,
    )
    assert seen["home"][0]["directions"] == ["rtl", "ltr"]
    assert seen["home"][0]["selected"] == ["איפה"]
    assert seen["left"][0]["selected"] == seen["end"][0]["selected"] == ["הרכבת"]
    assert seen["right"][0]["selected"] == ["איפה"]
    assert seen["target"][0]["selected"] == ["</s>"]
