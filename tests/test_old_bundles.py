"""Bundles and a run that an earlier version wrote: they translate and go on as they did then."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import translate

HERE = Path(__file__).parent / "bundles"
BUNDLES = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"kind": "greedy", "max_length_ratio": 2.0, "max_length_offset": 20},
    "beam": {"kind": "beam", "beam_size": 5, "n_best": 2},
}
SENTENCES = [
    "the dog sees the old cat today .",
    "the young woman hears the bird now .",
    "the horse knows the small child here .",
    "often the child",
    "words that nobody has seen 123 %",
    "",
    "the the the the the the the the the the the the the the the the the the the .",
]


def translations(bundle: Path, search: str) -> list[list[tuple[str, float]]]:
    """Text and score of the best translations of each sentence, in float32 on the CPU."""
    translator = translate.load(bundle, device="cpu", search=SEARCHES[search], guard=None)
    return [[(t.text, t.score) for t in best] for best in translator.stream(SENTENCES)]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", BUNDLES)
def test_an_old_bundle_translates_as_it_did(name: str, search: str) -> None:
    expected = json.loads((HERE / name / "expected.json").read_text(encoding="utf-8"))
    then, now = expected[search], translations(HERE / name, search)
    assert [[text for text, _ in best] for best in now] == [[t for t, _ in b] for b in then]
    for old, new in zip(then, now, strict=True):
        assert [score for _, score in new] == pytest.approx([s for _, s in old], abs=1e-5)


def test_each_family_has_an_old_bundle() -> None:
    assert {name.partition("_")[0] for name in BUNDLES} == {"convolutional", "rnn", "transformer"}


def losses(run: Path) -> dict[int, float]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["train/loss"]]
    return {int(row["step"]): float(row["train/loss"]) for row in rows}


def test_an_old_run_goes_on_as_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own configuration, the same prepared text, and the losses of a run without a break."""
    from translate.cli.main import main

    shutil.copytree(HERE / "interrupted", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["translate", "train", "run=run"])
    assert max(losses(Path("run"))) == 10  # steps are counted from 0
    assert main() == 0
    expected = json.loads((HERE / "interrupted" / "losses.json").read_text(encoding="utf-8"))
    assert list(losses(Path("run")).values()) == pytest.approx(expected, rel=1e-4)
    assert json.loads(Path("run/provenance.json").read_text("utf-8"))["status"] == "finished"
    assert translate.load("run", device="cpu").translate(["the old dog"])


if __name__ == "__main__":  # run with the code whose translations are to be kept
    for name in sys.argv[1:]:
        kept = {search: translations(HERE / name, search) for search in SEARCHES}
        text = json.dumps(kept, ensure_ascii=False, indent=1)
        (HERE / name / "expected.json").write_text(f"{text}\n", encoding="utf-8")
