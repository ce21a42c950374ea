"""A sentence's attention as data and as a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from colours import contrast
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.extras.attention_views import Attended, Tokens, write_json, write_page

TEMPLATE = (
    resources.files("translate.extras").joinpath("templates/attention.html").read_text("utf-8")
)


def attended(source: list[str], target: list[str], *, layers: int = 2, heads: int = 3) -> Attended:
    weights = np.random.default_rng(0).dirichlet(
        np.full(len(source), 0.2), size=(layers, heads, len(target))
    )
    tokens = Tokens(source, target, weights.astype(np.float32))
    texts = (" ".join(source), " ".join(target))
    return Attended("runs/a", "transformer", ("es", "en"), "cross", *texts, False, tokens, tokens)


class Page(HTMLParser):
    """What a browser would make of it: tags in order, their attributes, and texts by element."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self.name = ""
        self.feed(path.read_text("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.name = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self.name] = self.texts.get(self.name, "") + data

    @property
    def document(self) -> dict:
        return json.loads(self.texts["data"])


def test_json_has_words_and_pieces_of_every_layer_and_head(tmp_path: Path) -> None:
    run = attended(["¿Dónde", "está?", "</s>"], ["Where?", "</s>"])
    write_json([run, run], tmp_path / "new" / "a.json")
    document = json.loads((tmp_path / "new" / "a.json").read_text("utf-8"))
    assert document["format"] == 1
    first, second = document["runs"]
    assert first == second
    assert first["model"] == {"run": "runs/a", "family": "transformer", "languages": ["es", "en"]}
    assert (first["source"], first["target_given"]) == ("¿Dónde está? </s>", False)
    assert first["words"] == first["pieces"]
    assert first["words"]["source"] == ["¿Dónde", "está?", "</s>"]
    weights = np.array(first["words"]["weights"])
    np.testing.assert_allclose(weights, run.words.weights, atol=5e-7)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=3e-6)


def test_the_page_carries_the_same_data_and_where_to_start(tmp_path: Path) -> None:
    runs = [attended(["a", "b"], ["c"]), attended(["a", "b"], ["d", "e"], layers=1, heads=1)]
    write_json(runs, tmp_path / "a.json")
    write_page(runs, tmp_path / "a.html", layer=1, pieces=True)
    document = Page(tmp_path / "a.html").document
    assert document.pop("start") == {"unit": "pieces", "layer": 1, "head": None}
    assert document == json.loads((tmp_path / "a.json").read_text("utf-8"))


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    write_page([attended(["a"], ["b"])], tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    assert not {"link", "img", "iframe", "base", "object", "embed"} & set(page.tags)
    assert not {"src", "href", "srcset", "action"} & {name for name, _ in page.attributes}
    assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttp|import\(|WebSocket", TEMPLATE)
    policy = next(value for _, value in page.attributes if value and "default-src" in value)
    assert policy.startswith("default-src 'none';")


NASTY = ["</script><script>x()</script>", "<!--", "-->", "<!--data-->", "<!--title-->", "]]>"]
text = st.one_of(st.sampled_from([*NASTY, "\u2028", "&lt;", "\\u003c", "\ud800", "'\""]), st.text())


@settings(max_examples=10)
@given(st.lists(text, min_size=1, max_size=4), st.lists(text, min_size=1, max_size=4))
def test_no_sentence_breaks_out(
    tmp_path_factory: pytest.TempPathFactory, source: list[str], target: list[str]
) -> None:
    path = tmp_path_factory.mktemp("page") / "a.html"
    write_page([attended(["a"], ["b"])], path)
    plain = Page(path)
    write_page([attended(source, target)], path)
    page = Page(path)
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes
    assert page.texts["script"] == plain.texts["script"]
    assert page.document["runs"][0]["words"]["source"] == source
    assert page.document["runs"][0]["pieces"]["target"] == target


def colours(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_every_shade(scheme: str) -> None:
    light, dark = TEMPLATE.split("@media (prefers-color-scheme: dark)")
    colour = colours(light if scheme == "light" else dark)
    assert contrast(colour["ink"], colour["paper"]) > 12
    assert contrast(colour["ink"], colour["lit"]) > 6  # and more on every paler shade
    assert contrast(colour["quiet"], colour["paper"]) > 4.5
    assert contrast(colour["on-mark"], colour["mark"]) > 7
    assert contrast(colour["mark"], colour["paper"]) > 3  # outlines and pictures
    assert contrast(colour["lit"], colour["paper"]) > 1.5
