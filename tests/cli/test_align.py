"""`translate align` on the tiny trained run, as a person would use it."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from pathlib import Path

import pyarrow
import pytest
import torch

from translate.cli.align import wanted_head
from translate.data.plain_text import from_line
from translate.inference import bundle
from translate.models.head import AttentionHead

SOURCES = ["der Hund schläft .", "", "eine  Katze sieht den Hund", "ja"]
TARGETS = ["the dog sleeps .", "", "a cat sees the dog", ""]
SIZES = [(4, 4), (0, 0), (5, 5), (1, 0)]


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[str, str]:
    for name, lines in (("s, =.txt", SOURCES), ("t.txt", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return "input=s, =.txt", "reference=t.txt"


def test_a_line_of_links_a_pair(program, run: str, pairs, tmp_path: Path) -> None:
    done = program("align", run, *pairs)
    assert done.status == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == len(SOURCES) + 1
    for line, (source, target) in zip(lines, SIZES, strict=False):
        links = from_line(line).sure
        assert len(links) == (target if source else 0)  # one link a target word
        assert all(i < source and j < target for i, j in links)
    assert lines[1] == lines[3] == ""
    to_file = program("align", run, *pairs, "output=o ${x}.txt", "tokens_per_batch=1")
    assert (to_file.status, to_file.out) == (0, "")
    assert (tmp_path / "o ${x}.txt").read_text("utf-8") == done.out


def test_other_heads_and_methods_give_other_links(program, run: str, pairs) -> None:
    plain = program("align", run, *pairs).out
    for options in (["head=2"], ["method=threshold", "threshold=0.01"]):
        done = program("align", run, *pairs, *options)
        assert done.status == 0, done.err
        assert done.out != plain
    both = [program("align", run, *pairs, f"method={way}").out for way in ("intersection", "union")]
    for few, some, many in zip(
        *(text.split("\n") for text in (both[0], plain, both[1])), strict=True
    ):
        assert from_line(few).sure <= from_line(some).sure <= from_line(many).sure


def test_links_are_scored_against_gold(program, run: str, pairs, trained: Path, tmp_path) -> None:
    links = program("align", run, *pairs).out
    (tmp_path / "gold").write_text(links.replace("-", "p", 1))  # one possible, the others sure
    done = program("align", run, *pairs, "gold=gold")
    assert done.status == 0, done.err
    assert done.out == links
    assert "AER 0.0000, precision 1.0000, recall 1.0000 (4 pairs, 9 links" in done.err
    figures = json.loads((trained / "evaluation" / "s, =.txt.alignment.json").read_text())
    assert (figures["error_rate"], figures["sure"], figures["possible"]) == (0, 8, 1)
    (tmp_path / "gold").write_text("0-0\n\n1p1\n\n")  # precision 1 or 2 of 9
    done = program("align", run, *pairs, "gold=gold", "layer=1", "head=1")
    name = "s, =.txt-layer=1,head=1.alignment.json"
    figures = json.loads((trained / "evaluation" / name).read_text())
    hits = figures["precision"] * figures["links"], figures["recall"]
    assert figures["error_rate"] == pytest.approx(1 - sum(hits) / (figures["links"] + 1))
    assert (figures["layer"], figures["head"], figures["method"]) == (1, 1, "argmax")
    assert "threshold" not in figures
    program("align", run, *pairs, "gold=gold", "method=threshold", "threshold=0.2")
    name = "s, =.txt-method=threshold,threshold=0.2.alignment.json"
    figures = json.loads((trained / "evaluation" / name).read_text())
    assert (figures["method"], figures["threshold"]) == ("threshold", 0.2)


def test_figures_say_what_they_are_about_and_other_options_have_files_of_their_own(
    program, trained: Path, home: Path, tmp_path: Path
) -> None:
    """One method's figures took the place of another's, whose links stayed."""
    shutil.copytree(trained, tmp_path / "a", ignore=shutil.ignore_patterns("evaluation"))
    folder, run, cache = tmp_path / "a" / "evaluation", "run=a", f"cache={home}/data"
    assert program("align", run, cache).status == 0
    links = (folder / "test.links").read_bytes()
    before = (folder / "test.alignment.json").read_bytes()
    assert program("align", run, cache, "head=2", "output=elsewhere").status == 0
    assert program("align", run, cache, "method=union").status == 0
    assert (folder / "test.alignment.json").read_bytes() == before
    assert (folder / "test-head=2.alignment.json").is_file()
    assert (folder / "test-method=union.links").read_bytes() != links
    first, other = (
        json.loads((folder / f"test{name}.alignment.json").read_text("utf-8"))
        for name in ("", "-method=union")
    )
    assert first["sha256"].pop("links") == hashlib.sha256(links).hexdigest()
    assert other["sha256"].pop("links") != hashlib.sha256(links).hexdigest()
    assert first["sha256"] == other["sha256"]
    assert first["sha256"]["model"] == bundle.load(trained / "bundle").weights_sha256
    assert set(first["sha256"]) == {"model", "sources", "references", "gold"}
    assert shlex.split(other["command"]) == ["translate", "align", run, cache, "method=union"]


def test_the_runs_own_test_sentences_have_gold(
    program, run: str, trained: Path, home: Path
) -> None:
    for split in ("test", "dev"):
        done = program("align", run, f"cache={home}/data", f"data.split={split}")
        assert done.status == 0, done.err
        assert done.out == ""
        assert "AER 0." in done.err
        assert "(8 pairs" in done.err
        assert json.loads((trained / "evaluation" / f"{split}.alignment.json").read_text())
        kept = (trained / "evaluation" / f"{split}.links").read_text().splitlines()
        assert len(kept) == 8
        assert all(kept)


def test_the_test_sentences_of_another_corpus_have_names_of_their_own(
    program, run: str, trained: Path, home: Path
) -> None:
    folder = trained / "evaluation"
    assert program("align", run, f"cache={home}/data").status == 0
    before = {name: (folder / name).read_bytes() for name in ("test.links", "test.alignment.json")}
    done = program("align", run, f"cache={home}/data", "data.seed=7")
    assert done.status == 0, done.err
    assert {name: (folder / name).read_bytes() for name in before} == before
    (links,) = folder.glob("test-*.links")
    assert len(links.read_text("utf-8").splitlines()) == 8
    ending = links.stem.removeprefix("test")
    assert (folder / f"test.alignment{ending}.json").is_file()


def test_links_to_standard_output_make_no_folder(
    program, run: str, trained: Path, pairs, tmp_path: Path
) -> None:
    """A bare bundle may lie where nothing can be written."""
    shutil.copytree(trained / "bundle", tmp_path / "bare")
    assert program("align", "run=bare", *pairs).out == program("align", run, *pairs).out
    assert not (tmp_path / "bare" / "evaluation").exists()


def test_the_head_that_was_taught_is_the_one_that_is_read(
    program, run: str, trained: Path, pairs, tmp_path: Path
) -> None:
    saved = bundle.load(trained / "bundle")
    kept = {key: getattr(saved.config, key) for key in ("languages", "search", "extra")}
    bundle.save(
        tmp_path / "taught" / "bundle", node=saved.config.model, **kept,
        model=saved.model, tokenizers=saved.tokenizers, taught=AttentionHead(1, 2),
    )  # fmt: skip
    second = program("align", run, *pairs, "head=2").out
    assert program("align", run, *pairs).out != second
    assert program("align", "run=taught", *pairs).out == second
    assert program("align", "run=taught", *pairs, "head=1").out != second
    assert program("align", "run=taught", *pairs, "layer=1").out == second


@pytest.mark.parametrize(
    ("layer", "head", "wanted"),
    [
        (None, None, (3, 2)),
        (3, None, (3, 2)),
        (None, 1, (3, 1)),
        (3, 1, (3, 1)),
        (1, None, (1, None)),  # head 2 of another layer was taught nothing
        (1, 4, (1, 4)),
    ],
)
def test_what_is_left_out_is_as_it_was_taught(layer, head, wanted) -> None:
    assert wanted_head(AttentionHead(3, 2), layer, head) == wanted
    assert wanted_head(None, layer, head) == (layer, head)


def test_a_reverse_run_is_the_other_direction(
    program, run: str, trained: Path, pairs, tmp_path: Path
) -> None:
    saved = bundle.load(trained / "bundle")
    kept = {key: getattr(saved.config, key) for key in ("search", "extra")}
    with torch.no_grad():  # another model
        for weights in saved.model.parameters():
            weights.add_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)))
    bundle.save(
        tmp_path / "back" / "bundle", node=saved.config.model, **kept,
        languages=saved.config.languages[::-1], model=saved.model, tokenizers=saved.tokenizers,
    )  # fmt: skip
    plain = program("align", run, *pairs).out
    ways = ("intersection", "union")
    alone = [program("align", run, *pairs, f"method={way}").out for way in ways]
    both = [program("align", run, "reverse=back", *pairs, f"method={way}").out for way in ways]
    assert both != alone
    for few, some, many in zip(
        *(text.split("\n") for text in (both[0], plain, both[1])), strict=True
    ):
        assert from_line(few).sure <= from_line(some).sure <= from_line(many).sure


def test_a_reverse_run_must_translate_the_other_way(
    program, run: str, trained: Path, pairs, tmp_path: Path
) -> None:
    done = program("align", run, f"reverse={trained}", *pairs, "method=union")
    assert done.status == 1
    assert "translates de to en" in done.err
    assert "give a run for the opposite direction" in done.err
    done = program("align", run, f"reverse={trained}", *pairs)
    assert done.status == 2
    assert "reverse= is for method=intersection or union" in done.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["method=best"], "method = 'best': must be 'argmax', 'threshold', 'intersection' or"),
        (["threshold=0.5"], "threshold= is for method=threshold"),
        (["layer=2"], "layer = 2: this model has layers 1 to 1"),
        (["head=3"], "head = 3: this model has heads 1 to 2"),
        (["input=s"], "reference=FILE missing: input= and reference= go together"),
        (["gold=g"], "input=FILE and reference=FILE missing"),
        (["input=s", "reference=t", "data.split=dev"], "data.split= and input= cannot be combined"),
    ],
)
def test_slips_are_told_in_a_line(program, run: str, arguments, line) -> None:
    done = program("align", run, *arguments)
    assert done.status in (1, 2)
    assert done.out == ""
    assert line in done.err
    assert done.err.count("\n") == 1


def test_a_corpus_without_gold_alignments_is_told(program, run: str, trained: Path, home) -> None:
    table = pyarrow.table({"source": ["x"], "references": [["y"]]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("translate.cli.align.corpus_of_run", lambda *_, **__: (None, table))
        done = program("align", run)
    assert done.status == 1
    assert "has no gold alignments: give input=FILE reference=FILE" in done.err
