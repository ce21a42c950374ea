"""Further training text on the command line, such as several languages in one run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Program = Callable[..., Any]
TINY = [
    "tokenizer.vocab_size=400", "model.d_model=16", "model.d_ff=16", "model.num_heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "search.beam_size=2",
    "search.max_length_ratio=0.0", "search.max_length_offset=5", "trainer.max_steps=2",
    "trainer.validate_every=2", "trainer.validation_sentences=2", "trainer.samples=0",
    "trainer.accelerator=cpu", "trainer.precision=32-true",
]  # fmt: skip
DATA = ["data=files", "data.source=de", "data.target=en", "cache=data"]

FRENCH = "data.extra={fr: {source: more.de, target: more.fr, tag: fr}}"


def write(path: Path, text: str, lines: int) -> None:
    path.write_text("".join(f"{text} {n}\n" for n in range(lines)), encoding="utf-8")


def corpora(folder: Path) -> list[str]:
    """40 German-English pairs, 8 for dev and test, 30 German-French ones; what reads them."""
    for split, lines in (("train", 40), ("dev", 8), ("test", 8)):
        write(folder / f"{split}.de", f"das Wort {split}", lines)
        write(folder / f"{split}.en", f"the {split} word", lines)
    write(folder / "more.de", "noch ein Wort", 30)
    write(folder / "more.fr", "encore un mot", 30)


def test_a_run_of_two_languages_translates_into_the_one_asked_for(
    program: Program, tmp_path: Path
) -> None:
    corpora(tmp_path)
    languages = ("data.tag=en", FRENCH, "data.temperature=5", "data.workers=0")
    done = program("train", "run=run", *TINY, *DATA, *languages)
    assert (done.status, done.out) == (0, ""), done.err
    assert "70 training pairs" in done.err

    write(tmp_path / "in.de", "noch ein Wort", 3)
    write(tmp_path / "in.fr", "encore un mot", 3)
    pairs = ("input=in.de", "reference=in.fr")
    plain, english, french = (
        program("score", "run=run", *pairs, *target).out.splitlines()
        for target in ((), ("target=en",), ("target=fr",))
    )
    assert plain == english != french
    assert len(program("text", "run=run", "target=fr", "input=in.de").out.splitlines()) == 3
    (line,) = program("text", "run=run", "target=fr", "format=json", "Wort").out.splitlines()
    assert json.loads(line)["source_pieces"][0] == "<fr>"

    for tag in ("en", "fr"):
        drawn = program("attend", "run=run", f"target={tag}", "pieces=true", "Wort")
        assert f"<{tag}>" in drawn.out
    links = {tag: program("align", "run=run", f"target={tag}", *pairs).out for tag in ("en", "fr")}
    assert links["en"] == program("align", "run=run", *pairs).out
    assert all(text.count("\n") == 3 for text in links.values())

    assert program("evaluate", "run=run", *pairs, "target=fr", "resamples=9").status == 0
    stored = json.loads((tmp_path / "run" / "evaluation" / "in.de.json").read_text())
    assert stored["decoding"]["target"] == "fr"
    assert program("verify", "run=run", *pairs).out.startswith("equal: in.de")

    shutil.copytree(tmp_path / "run", tmp_path / "other")
    other = tmp_path / "other" / "evaluation"
    figures = json.loads((other / "in.de.json").read_text())
    figures["sha256"]["model"] = "of before it was trained on"
    (other / "in.de.json").write_text(json.dumps(figures))
    stale = program("compare", "run", "other", *pairs)
    assert stale.status != 0
    assert "in.de.json evaluates target=fr with a model that other no longer has" in stale.err
    shutil.rmtree(other)
    mixed = program("compare", "run", "other", *pairs)
    assert mixed.status != 0
    assert (
        "run with target=fr and other with target=its own: evaluate all runs with the" in mixed.err
    )

    refused = program("text", "run=run", "target=it", "Wort")
    assert refused.status != 0
    assert "target = 'it' is not a tag of this run: it has en, fr" in refused.err


def test_mistakes_in_further_corpora_are_told_before_anything_is_read(
    program: Program, tmp_path: Path
) -> None:
    corpora(tmp_path)
    wrong = "data.extra={fr: {source: more.de, weight: -1}}"
    done = program("prepare", *DATA, wrong, "data.temperature=0.5")
    assert done.status != 0
    for said in ("data.extra.fr.target is missing", "data.extra.fr.weight = -1: must be greater",
                 "data.temperature = 0.5: must be greater than or equal to 1"):  # fmt: skip
        assert said in done.err


def test_the_account_tells_every_corpus(program: Program, tmp_path: Path) -> None:
    corpora(tmp_path)
    (tmp_path / "more.de").write_text("das Wort dev 3\n" * 2 + "noch ein Wort\n" * 28)
    done = program("prepare", *DATA, FRENCH, "tokenizer.vocab_size=400")
    assert done.status == 0, done.err
    assert "Extra: fr <fr>" in done.out
    assert "dropping 2 pairs of data.extra.fr with a sentence of dev or test" in done.err
